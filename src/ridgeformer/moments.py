"""The context's Gram matrix: all that a linear transformer's prediction depends on.

With tokens e = (x, y) and D = d + 1,  G = sum e e' = [S a; a' l],  S = sum x x', a = sum y x, l = sum y^2
(in the paper: Sigma, alpha, lambda).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.engine import PAPER_LAYOUT, Layout
from ridgeformer.errors import refuse
from ridgeformer.validation import array, integer, real
from ridgeformer.values import Value, read_only

if TYPE_CHECKING:
    from ridgeformer.spectrum import ContextSpectrum

Float = NDArray[np.floating[Any]]
Counts = NDArray[np.int64]
Index = NDArray[np.integer[Any]] | slice


@dataclass(eq=False, repr=False)
class Moments(Value):
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
        >>> m.S[0].tolist(), m.a[0].tolist(), m.l[0].item()
        ([[10.0, 14.0], [14.0, 20.0]], [23.0, 34.0], 61.0)
        """
        x, y = real("x", x), real("y", y)
        if x.ndim == 2 and y.ndim == 1:
            x, y = x[None], y[None]
        features = array("x", x, ("B", "n", "d"))
        labels = array("y", y, features.shape[:2])
        tokens = np.concatenate([features, labels[..., None]], axis=-1)
        count = features.shape[1] if context is None else _check_counts(tokens, context)
        return cls(np.swapaxes(tokens, 1, 2) @ tokens, count, sums=tokens.sum(1))

    @classmethod
    def from_parts(cls, S: ArrayLike, a: ArrayLike, l: ArrayLike, context: int) -> Moments:  # noqa: E741
        """Put the parts of the Gram matrices together.

        Args:
            S: sum x x', [B, d, d].
            a: sum y x, [B, d].
            l: sum y^2, [B].
            context: The number of tokens n.

        Returns:
            The moments.

        Raises:
            InputError: Shapes do not fit, or there are values that are not finite.
        """
        S_ = array("S", S, ("B", "d", "d"))
        count, dim = S_.shape[:2]
        a_, l_ = array("a", a, (count, dim)), array("l", l, (count,))
        gram = np.empty((count, dim + 1, dim + 1), np.result_type(S_, a_, l_))
        gram[:, :dim, :dim] = array("S", S_, (count, dim, dim))
        gram[:, :dim, dim] = gram[:, dim, :dim] = a_
        gram[:, dim, dim] = l_
        return cls(gram, context)

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

    def chosen(self, index: Index) -> Moments:
        """Return some of the contexts.

        Args:
            index: Their numbers, [b], or a slice of them.

        Returns:
            Their moments.
        """
        sigma = None if self.sigma is None else self.sigma[index]
        sums = None if self.sums is None else self.sums[index]
        context = self.context if isinstance(self.context, int) else self.context[index]
        return Moments._trusted(self.gram[index], context, sigma, sums)

    def by_length(self) -> Iterator[tuple[NDArray[np.intp], Moments]]:
        """Split the contexts by their number of tokens: indices [b], and moments whose `context` is a number."""
        for n in np.unique(self.counts).tolist():
            index = np.flatnonzero(self.counts == n)
            part = self.chosen(index)
            yield index, Moments._trusted(part.gram, n, part.sigma, part.sums)

    @cached_property
    def spectrum(self) -> ContextSpectrum:
        """The eigendecomposition of S and what ridge regression needs of it, computed once."""
        from ridgeformer.spectrum import spectrum

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
        if layout.coordinate != "none" and self.sums is None:
            refuse(
                "tokens with a further coordinate need the sums of the tokens",
                "moments without them",
                "Use Moments.from_tokens, or problem.moments(..., sums=True).",
            )
        return layout.gram(self.gram, self.context, self.sums)

    @property
    def S(self) -> Float:
        """The matrix S = sum x x', [B, d, d]."""
        return self.gram[:, :-1, :-1]

    @property
    def a(self) -> Float:
        """The vector a = sum y x, [B, d]."""
        return self.gram[:, :-1, -1]

    @property
    def l(self) -> Float:  # noqa: E743
        """The number l = sum y^2, [B]."""
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
            chosen = self.chosen(index)
        except TypeError:
            refuse("slices need whole numbers", index, "Write moments[i:j].")
        if len(chosen) == 0:
            refuse("a selection must keep at least one context", f"{index} of {len(self)}", "Widen the slice.")
        return chosen

    def __repr__(self) -> str:
        n = self.context if isinstance(self.context, int) else f"{self.counts.min()}..{self.counts.max()}"
        return f"Moments({len(self)} contexts, dim={self.dim}, context={n}, {self.dtype})"


def _check_context(context: object, count: int) -> int | Counts:
    """One number of tokens for all contexts, or one for each."""
    if np.ndim(context) == 0:  # type: ignore[arg-type]
        return integer("context", context)
    given = array("context", np.asarray(context), (count,))
    if not (given >= 1).all() or not (given == np.floor(given)).all():
        refuse("numbers of tokens must be whole numbers of at least 1", "others", "Pass one per context.")
    return given.astype(np.int64)


def _check_counts(tokens: Float, context: ArrayLike) -> Counts:
    """The numbers of tokens of contexts that are filled up with zeros."""
    counts, most = _check_context(np.asarray(context), len(tokens)), tokens.shape[1]
    beyond = np.arange(most) >= np.broadcast_to(counts, len(tokens))[:, None]
    if np.max(counts) > most:
        refuse(f"a context can have at most the {most} tokens given", int(np.max(counts)), "Pass its number of tokens.")
    if tokens[beyond].any():
        refuse("tokens beyond the number of a context's tokens must be 0", "others", "Set them to 0, or count them.")
    return np.asarray(counts)


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
