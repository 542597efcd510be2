"""Contexts in the eigenbasis of S, where every ridge solution is a division.

With S = V diag(lambda) V' and c = V'a, (S + v I)^-1 a = V (c / (lambda + v)). When n < d, S has at most rank n: only
that many eigenpairs are kept. Where eigenvalues are nothing but rounding, c is set to 0. So solutions lie in the span
of the features, as the least-squares solution of least norm does.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import default_threads, one_blas_thread
from ridgeformer.moments import Moments
from ridgeformer.values import Value, read_only

Array = NDArray[np.float64]
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
        kept, least = eigenvalues[:, d - m :], NULL[moments.dtype] * d * eigenvalues[:, -1:]
        values[part] = np.where(kept > least, kept, ZERO)
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
    """What ridge regression needs, given the eigenvalues [B, m] and eigenvectors [B, d, m] of S."""
    c = np.einsum("bim,bi->bm", vectors, moments.a.astype(np.float64))
    c = np.where(values > ZERO, c, 0.0)
    total = moments.l.astype(np.float64)
    n = int(moments.counts[0])
    enough = n > (values > ZERO).sum(1)  # otherwise some weights fit all examples
    residual = np.where(enough, np.maximum(total - (c**2 / values).sum(1), 0.0), 0.0)
    rounding = 1e-14 if moments.dtype == np.float64 else 1e-5
    fixed = [read_only(array) for array in (values, c, vectors, residual, total)]
    return ContextSpectrum(fixed[0], fixed[1], fixed[2], fixed[3], fixed[4], n, moments.dim, rounding)
