"""The context's Gram matrix: all that a linear transformer's prediction depends on.

With tokens e = (x, y) and D = d + 1,  G = sum e e' = [S b; b' q],  S = sum x x', b = sum y x, q = sum y^2
(in the paper: Sigma, alpha, lambda).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.engine import PAPER_LAYOUT, Layout, default_threads, one_blas_thread
from ridgeformer.errors import refuse
from ridgeformer.validation import Array, Float, array, axes, integer, real
from ridgeformer.values import Batched, Value, read_only

CHUNK = 4096
NULL = {np.dtype(t): (8 if t is np.float64 else 1) * float(np.finfo(t).eps) for t in (np.float32, np.float64)}
ZERO = 1e-300  # an eigenvalue of NULL times d times the largest one is rounding, and counts as this


@dataclass(eq=False)
class ContextSpectrum(Value):
    """The eigendecomposition of S of a batch of contexts, and what ridge regression needs of it.

    Attributes:
        values: The m = min(n, d) largest eigenvalues of S, ascending, [B, m]; 1e-300 where they are 0 up to rounding.
        c: V'a, [B, m]; 0 where eigenvalues are.
        vectors: The eigenvectors V, [B, d, m].
        residual: The residual sums of squares of least squares, [B].
        total: The sums y'y, [B].
        context: The number of tokens n; not a whole number where examples have weights.
        dim: The dimension d.
        rounding: The share of y'y below which a residual may be nothing but rounding.
    """

    values: Array
    c: Array
    vectors: Array
    residual: Array
    total: Array
    context: float
    dim: int
    rounding: float

    def back(self, coordinates: Array) -> Array:
        """Convert coordinates in the eigenbasis to weights.

        Args:
            coordinates: Coordinates, [B, m].

        Returns:
            Weights, [B, d].
        """
        return np.asarray(np.einsum("bim,bm->bi", self.vectors, coordinates))

    def ridge(self, variance: Array | float) -> Array:
        """Compute (S + variance I)^-1 a; the least-squares solution (of least norm) where the variance is 0.

        Args:
            variance: The noise variance, one for all contexts or [B].

        Returns:
            Weights, [B, d].
        """
        shift = np.broadcast_to(np.asarray(variance, np.float64), self.residual.shape)
        return self.back(self.c / (self.values + shift[:, None]))

    def unbiased_variance(self) -> Array:
        """The residual sum of squares of least squares over n minus the rank of S, [B]; needs n > d."""
        return self.residual / (self.context - self.rank)

    @property
    def rank(self) -> NDArray[np.int64]:
        """The rank of S, [B]."""
        return np.asarray((self.values > ZERO).sum(1))


def explained(c: Array, values: Array) -> Array:
    """Return what least squares explains of y'y along each eigenvector of S, in any units.

    Args:
        c: V'a, of any shape.
        values: The eigenvalues of S, of the same shape.

    Returns:
        c^2 / values, computed as c (c / values) where the square would underflow or overflow.
    """
    size = np.abs(c)
    ordinary = (size > 1e-140) & (size < 1e140)
    return np.where(ordinary, np.where(ordinary, c, 0.0) ** 2 / values, c * (c / values))


def spectrum(moments: Moments, threads: int | None = None) -> ContextSpectrum:
    """Return the eigendecomposition of a batch with one number of tokens, spread over threads.

    Args:
        moments: The contexts.
        threads: How many threads; None for the default.

    Returns:
        The eigendecomposition.
    """
    B, d = len(moments), moments.dim
    n = int(moments.counts[0])
    m = min(n, d)
    values, vectors = np.empty((B, m)), np.empty((B, d, m))

    def work(start: int) -> None:
        part = slice(start, start + CHUNK)
        eigenvalues, basis = np.linalg.eigh(moments.S[part].astype(np.float64))
        largest, least = eigenvalues[:, d - m :], NULL[moments.dtype] * d * eigenvalues[:, -1:]
        values[part] = np.where(largest > least, largest, ZERO)
        vectors[part] = basis[:, :, d - m :]

    with one_blas_thread(), ThreadPoolExecutor(threads or default_threads()) as pool:
        list(pool.map(work, range(0, B, CHUNK)))
    return _in_basis(moments, values, vectors)


def solve(matrix: Array, right: Array) -> Array:
    """Solve symmetric systems without negative eigenvalues, of least norm where they are singular.

    Args:
        matrix: The matrices, [B, k, k].
        right: The right-hand sides, [B, k].

    Returns:
        The solutions, [B, k].
    """
    values, vectors = np.linalg.eigh(matrix)
    null = values <= NULL[np.dtype(np.float64)] * matrix.shape[1] * values[:, -1:]
    c = np.where(null, 0.0, np.einsum("bij,bi->bj", vectors, right)) / np.where(null, 1.0, values)
    return np.asarray(np.einsum("bij,bj->bi", vectors, c))


def share_basis(moments: Moments, known: Moments) -> None:
    """Let `moments` use the eigenbasis that `known` has computed, if it has and if their S are the same numbers.

    Sequences of one key that differ in the noise level have the same S, so a profile needs one decomposition for all
    levels. The spectrum has the bits that it would have had without.

    Args:
        moments: Contexts whose spectrum has not been asked for yet.
        known: Contexts that may have a spectrum.
    """
    spectrum = vars(known).get("spectrum")
    if spectrum is not None and np.array_equal(moments.counts, known.counts) and np.array_equal(moments.S, known.S):
        vars(moments)["spectrum"] = _in_basis(moments, spectrum.values, spectrum.vectors)


def _in_basis(moments: Moments, values: Array, vectors: Array) -> ContextSpectrum:
    """The spectrum that ridge regression needs, given the eigenvalues [B, m] and eigenvectors [B, d, m] of S."""
    c = np.einsum("bim,bi->bm", vectors, moments.b.astype(np.float64))
    c = np.where(values > ZERO, c, 0.0)
    total = moments.q.astype(np.float64)
    n = int(moments.counts[0])
    enough = n > (values > ZERO).sum(1)  # otherwise some weights fit all examples
    residual = np.where(enough, np.maximum(total - explained(c, values).sum(1), 0.0), 0.0)
    rounding = 1e-14 if moments.dtype == np.float64 else 1e-5
    values, c, vectors, residual, total = map(read_only, (values, c, vectors, residual, total))
    return ContextSpectrum(values, c, vectors, residual, total, n, moments.dim, rounding)


Counts = NDArray[np.int64]


@dataclass(eq=False, repr=False)
class Moments(Batched):
    """Gram matrices of a batch of contexts; read-only, and independent of the arrays they were made from.

    Attributes:
        gram: [B, D, D], symmetric, y last. The engines keep the batch innermost in memory and show it as a view.
        context: n, the number of tokens that were summed: one for all contexts, or [B] where it varies.
        sigma: [B], the true noise levels, where they are known: what an oracle sees.
        sums: [B, D], the sums of the tokens (x, y), where they are known: what a model whose tokens have a further
            coordinate sees.
    """

    gram: Float
    context: int | Counts
    sigma: NDArray[np.float64] | None = None
    sums: Float | None = None
    _remedy = "Copy it, change the copy, and make new ones: Moments(gram, context)."

    def __post_init__(self) -> None:
        gram = array("gram", self.gram, ("B", "D", "D"))
        if gram.shape[1] != gram.shape[2] or gram.shape[1] < 2:
            refuse("gram must have shape (B, d+1, d+1)", f"shape {gram.shape}", "Build it with Moments.from_tokens.")
        if not is_symmetric(gram):
            refuse("gram must be symmetric", "one that is not", "Build it with Moments.from_tokens.")
        self.gram, self.context = gram, _check_context(self.context, len(gram))
        if self.sums is not None:
            self.sums = array("sums", self.sums, (len(gram), gram.shape[1])).astype(gram.dtype)
        if self.sigma is not None:
            sigma = array("sigma", self.sigma, (len(gram),)).astype(np.float64)
            if (sigma < 0).any():
                refuse("noise levels must not be negative", float(sigma.min()), "Pass standard deviations >= 0.")
            self.sigma = sigma

    @classmethod
    def from_tokens(cls, x: ArrayLike, y: ArrayLike, context: ArrayLike | None = None) -> Moments:
        """Sum over the tokens of each context.

        Args:
            x: Features, [B, n, d]; one context may come without the B axis.
            y: Labels, [B, n].
            context: How many of the n tokens each context has, [B]; tokens beyond must be 0. None for all.

        Returns:
            The moments, with the sums of the tokens.

        Raises:
            InputError: Shapes do not fit, or there are values that are not finite.

        >>> m = Moments.from_tokens([[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0])
        >>> m.S[0].tolist(), m.b[0].tolist(), m.q[0].item()
        ([[10.0, 14.0], [14.0, 20.0]], [23.0, 34.0], 61.0)
        """
        x, y = real("x", x), real("y", y)
        if x.ndim == 2 and y.ndim == 1:
            x, y = x[None], y[None]
        features = array("x", x, ("B", "n", "d"))
        labels = array("y", y, features.shape[:2])
        tokens = np.concatenate([features, labels[..., None]], axis=-1)
        count = features.shape[1] if context is None else _check_counts(tokens, context)
        gram = array("gram", np.swapaxes(tokens, 1, 2) @ tokens, ("B", "D", "D"))  # squares may overflow
        return cls._trusted(gram, count, sums=tokens.sum(1))

    @classmethod
    def from_parts(cls, S: ArrayLike, b: ArrayLike, q: ArrayLike, context: int) -> Moments:
        """Put the parts of the Gram matrices together.

        Args:
            S: sum x x', [B, d, d].
            b: sum y x, [B, d].
            q: sum y^2, [B].
            context: The number of tokens n.

        Returns:
            The moments.

        Raises:
            InputError: Shapes do not fit, or there are values that are not finite.
        """
        S_ = array("S", S, ("B", "d", "d"))
        count, dim = S_.shape[:2]
        b_, q_ = array("b", b, (count, dim)), array("q", q, (count,))
        return cls(bordered(array("S", S_, (count, dim, dim)), b_, q_), context)

    @classmethod
    def _trusted(
        cls, gram: Float, context: int | Counts, sigma: NDArray[np.float64] | None = None, sums: Float | None = None
    ) -> Moments:
        """From an engine, whose output needs no checks and no copy: nobody else has it."""
        moments = object.__new__(cls)
        moments.gram = read_only(gram)
        moments.context = context if isinstance(context, int) else read_only(context)
        moments.sigma = None if sigma is None else read_only(sigma)
        moments.sums = None if sums is None else read_only(sums)
        return moments._seal()

    @property
    def counts(self) -> Counts:
        """The number of tokens n of every context, [B]."""
        return np.broadcast_to(np.asarray(self.context, np.int64), len(self))

    def by_length(self) -> Iterator[tuple[NDArray[np.intp], Moments]]:
        """Split the contexts by their number of tokens: indices [b], and moments whose `context` is a number."""
        if isinstance(self.context, int):
            yield np.arange(len(self)), self
            return
        for n in np.unique(self.counts).tolist():
            index = np.flatnonzero(self.counts == n)
            part = self.chosen(index)
            yield index, Moments._trusted(part.gram, n, part.sigma, part.sums)

    @cached_property
    def spectrum(self) -> ContextSpectrum:
        """The eigendecomposition of S and what ridge regression needs of it, computed once."""
        return spectrum(self)

    def gram_of(self, layout: Layout) -> Float:
        """Return the Gram matrices of tokens that hold more than (x, y), or whose attention is a mean.

        Args:
            layout: The layout of the tokens.

        Returns:
            Gram matrices, [B, D, D], where D counts the coordinates of these tokens.

        Raises:
            InputError: The tokens have a further coordinate, and the moments no sums.
        """
        if layout == PAPER_LAYOUT:
            return self.gram
        if layout.coordinate in ("constant", "length") and self.sums is None:
            rule = "tokens with a further coordinate need the sums of the tokens"
            refuse(rule, "moments without them", "Use Moments.from_tokens, or problem.moments(..., sums=True).")
        return layout.gram(self.gram, self.context, self.sums)

    @property
    def S(self) -> Float:
        """The matrix S = sum x x', [B, d, d]."""
        return self.gram[:, :-1, :-1]

    @property
    def b(self) -> Float:
        """The vector b = sum y x, [B, d]."""
        return self.gram[:, :-1, -1]

    @property
    def q(self) -> Float:
        """The number q = sum y^2, [B]."""
        return self.gram[:, -1, -1]

    @property
    def dim(self) -> int:
        """The dimension d of the features."""
        return int(self.gram.shape[1]) - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return self.gram.dtype

    def __len__(self) -> int:
        return len(self.gram)

    def __getitem__(self, index: slice) -> Moments:
        """The contexts that a slice selects."""
        if not isinstance(index, slice):
            refuse("moments are indexed by slices", index, "Write moments[i:i+1] for one context.")
        try:
            selection = self.chosen(index)
        except TypeError:
            refuse("slices need whole numbers", index, "Write moments[i:j].")
        if len(selection) == 0:
            refuse("a selection must keep at least one context", f"{index} of {len(self)}", "Widen the slice.")
        return selection

    def __repr__(self) -> str:
        n = self.context if isinstance(self.context, int) else f"{self.counts.min()}..{self.counts.max()}"
        return f"Moments({len(self)} contexts, dim={self.dim}, context={n}, {self.dtype})"


def _check_context(context: object, count: int) -> int | Counts:
    """One number of tokens for all contexts, or one for each."""
    if axes(context) == 0:
        return integer("context", context)
    counts = array("context", context, (count,))  # type: ignore[arg-type]
    if not (counts >= 1).all() or not (counts == np.floor(counts)).all():
        refuse("numbers of tokens must be whole numbers of at least 1", "others", "Pass one per context.")
    return counts.astype(np.int64)


def _check_counts(tokens: Float, context: ArrayLike) -> Counts:
    """The numbers of tokens of contexts that are filled up with zeros."""
    counts, most = _check_context(np.asarray(context), len(tokens)), tokens.shape[1]
    beyond = np.arange(most) >= np.broadcast_to(counts, len(tokens))[:, None]
    if np.max(counts) > most:
        refuse(f"a context can have at most the {most} tokens given", int(np.max(counts)), "Pass its number of tokens.")
    if tokens[beyond].any():
        refuse("tokens beyond the number of a context's tokens must be 0", "others", "Set them to 0, or count them.")
    return np.asarray(counts)


def bordered(S: Float, b: Float, q: Float) -> Float:
    """Put the parts of Gram matrices together.

    Args:
        S: The matrices, [B, d, d].
        b: The last column and row, [B, d].
        q: The corners, [B].

    Returns:
        The Gram matrices, [B, d + 1, d + 1].
    """
    gram = np.empty((len(S), S.shape[1] + 1, S.shape[1] + 1), np.result_type(S, b, q))
    gram[:, :-1, :-1], gram[:, -1, -1] = S, q
    gram[:, :-1, -1] = gram[:, -1, :-1] = b
    return gram


def is_symmetric(gram: Float) -> bool:
    """Whether matrices are symmetric up to rounding.

    Args:
        gram: The matrices, [n, d, d].

    Returns:
        Whether all of them are.
    """
    scale = np.abs(gram).max() or 1.0
    slack = 1e-5 if gram.dtype == np.float32 else 1e-12
    return bool(np.abs(gram - np.swapaxes(gram, 1, 2)).max() <= slack * scale)
