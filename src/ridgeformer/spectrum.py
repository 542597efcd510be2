"""Contexts in the eigenbasis of S, where every ridge solution is a division.

With S = V diag(lambda) V' and c = V'a, (S + v I)^-1 a = V (c / (lambda + v)). When n < d, S has rank n: only that many
eigenpairs are kept, and solutions lie in their span, as the least-squares solution of least norm does.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import default_threads, one_blas_thread
from ridgeformer.moments import Moments
from ridgeformer.values import Value, read_only

__all__ = ["Spectrum", "spectrum"]

Array = NDArray[np.float64]
CHUNK = 4096


@dataclass(eq=False)
class Spectrum(Value):
    """Eigenvalues [B, m], ascending, of S; c = V'a [B, m]; V [B, d, m]; residual sum of squares [B]; y'y [B]; n; d.

    `rounding` is the share of y'y below which a residual may be nothing but rounding.
    """

    values: Array
    c: Array
    vectors: Array
    residual: Array
    total: Array
    context: int
    dim: int
    rounding: float

    def back(self, coordinates: Array) -> Array:
        """From the eigenbasis to weights, [B, m] to [B, d]."""
        return np.asarray(np.einsum("bim,bm->bi", self.vectors, coordinates))

    def ridge(self, variance: Array | float) -> Array:
        """(S + variance I)^-1 a, [B, d]; the least-squares solution (of least norm) where variance is 0."""
        shift = np.broadcast_to(np.asarray(variance, np.float64), self.residual.shape)
        return self.back(self.c / (self.values + shift[:, None]))

    def unbiased_variance(self) -> Array:
        """The residual sum of squares of least squares over n - d, [B]; needs n > d."""
        return self.residual / (self.context - self.dim)


def spectrum(moments: Moments, threads: int | None = None) -> Spectrum:
    """The eigendecomposition of a batch, spread over threads."""
    B, d = len(moments), moments.dim
    m = min(moments.context, d)
    values, c, vectors = np.empty((B, m)), np.empty((B, m)), np.empty((B, d, m))

    def work(start: int) -> None:
        part = slice(start, start + CHUNK)
        S, a = moments.S[part].astype(np.float64), moments.a[part].astype(np.float64)
        eigenvalues, basis = np.linalg.eigh(S)
        kept = eigenvalues[:, d - m :]
        # Rounding may leave a tiny eigenvalue at or below zero; nothing is known along it either way.
        values[part] = np.maximum(kept, 1e-15 * eigenvalues[:, -1:])
        vectors[part] = basis[:, :, d - m :]
        c[part] = np.einsum("bim,bi->bm", vectors[part], a)

    with one_blas_thread(), ThreadPoolExecutor(threads or default_threads()) as pool:
        list(pool.map(work, range(0, B, CHUNK)))
    total = moments.l.astype(np.float64)
    residual = np.maximum(total - (c**2 / values).sum(1), 0.0) if moments.context > d else np.zeros(B)
    rounding = 1e-14 if moments.dtype == np.float64 else 1e-5
    fixed = [read_only(array) for array in (values, c, vectors, residual, total)]
    return Spectrum(fixed[0], fixed[1], fixed[2], fixed[3], fixed[4], moments.context, d, rounding)
