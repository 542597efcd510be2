"""Sums over the training rows, and the same sums in the units of a problem with standardised features.

Sums are weighted counts, means and centred sums, which add over batches of rows: centred sums of two batches are merged
with the difference of their means. Sums of raw squares, whose difference gives the same, would lose digits where means
are large.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import one_blas_thread
from ridgeformer.moments import ContextSpectrum, Moments
from ridgeformer.noise import Noise
from ridgeformer.values import Value

Array = NDArray[np.float64]
ROUNDING = 10 * np.finfo(np.float64).eps  # of its mean: a standard deviation below that is rounding
RANK = 1e-12  # of the largest eigenvalue: what is smaller is 0 with rounding
CONSTANT = np.sqrt(np.finfo(np.float64).eps)  # the standard deviation of constant labels, as a share of their value


@dataclass(eq=False)
class Sums(Value):
    """Centred sums over rows with weights.

    Attributes:
        weight: The sum of the weights, the number of rows where all are 1.
        x_mean: The means of the features, [d].
        y_mean: The means of the labels, [q].
        xx: sum weight (x - mean)(x - mean)', [d, d].
        xy: sum weight (x - mean)(y - mean)', [d, q].
        yy: sum weight (y - mean)^2, [q].
        centred: Whether means are subtracted, as for a model with an intercept; otherwise they are 0.
    """

    weight: float
    x_mean: Array
    y_mean: Array
    xx: Array
    xy: Array
    yy: Array
    centred: bool = True

    @classmethod
    def of(cls, x: Array, y: Array, weights: Array, centred: bool = True) -> Sums:
        """Sum over rows.

        Args:
            x: Features, [n, d].
            y: Labels, [n, q].
            weights: Weights, [n], not negative and not all zero.
            centred: Whether to subtract means. Default: True.

        Returns:
            The sums.
        """
        total = float(weights.sum())
        if not centred:
            weighted, means = weights[:, None] * x, (np.zeros(x.shape[1]), np.zeros(y.shape[1]))
            return cls(total, *means, weighted.T @ x, weighted.T @ y, weights @ y**2, False)
        # Means of differences from the first row: those of constant columns are exactly 0, whatever the number of rows.
        x_mean, y_mean = (part[0] + weights @ (part - part[0]) / total for part in (x, y))
        x, y = x - x_mean, y - y_mean
        weighted = weights[:, None] * x
        return cls(total, x_mean, y_mean, weighted.T @ x, weighted.T @ y, weights @ y**2)

    def plus(self, other: Sums) -> Sums:
        """Merge the sums of two batches.

        Args:
            other: The sums of the other batch.

        Returns:
            The sums over the rows of both.
        """
        total = self.weight + other.weight
        share, x, y = other.weight / total, other.x_mean - self.x_mean, other.y_mean - self.y_mean
        between = self.weight * share
        return Sums(
            total,
            self.x_mean + share * x,
            self.y_mean + share * y,
            self.xx + other.xx + between * np.outer(x, x),
            self.xy + other.xy + between * np.outer(x, y),
            self.yy + other.yy + between * y**2,
            self.centred,
        )

    @property
    def examples(self) -> float:
        """How many examples the centred rows are: an intercept takes one."""
        return self.weight - self.centred

    @property
    def level(self) -> float:
        """The variance of the mean of the labels over that of the noise; 0 without an intercept."""
        return self.centred / self.weight

    @property
    def x_scale(self) -> Array:
        """The standard deviations of the features, [d]; exactly 0 where a feature is constant."""
        return _deviation(self.xx.diagonal(), self.x_mean, self.weight)

    @property
    def y_scale(self) -> Array:
        """The standard deviations of the labels, [q]; exactly 0 where a label is constant."""
        return _deviation(self.yy, self.y_mean, self.weight)


def _deviation(squares: Array, mean: Array, weight: float) -> Array:
    deviation = np.sqrt(squares / weight)
    return np.where(deviation > ROUNDING * np.abs(mean), deviation, 0.0)


class StandardisedSums(Value):
    """Sums in the units of a problem with standardised features; constant features are left out.

    Args:
        sums: The sums over the rows.
        noise: The law of the noise level. None if there is none: labels then have a standard deviation of 1.
    """

    def __init__(self, sums: Sums, noise: Noise | None = None) -> None:
        scale = sums.x_scale
        self.kept, self.noise, self.weight = np.flatnonzero(scale > 0), noise, sums.weight
        self.examples, self.level = sums.examples, sums.level
        self.x_mean, self.y_mean = sums.x_mean, sums.y_mean
        self.dim, self.x_scale = len(self.kept), scale[self.kept]
        deviation = 1.0 if noise is None else np.sqrt(self.dim + noise.second_moment)
        constant = sums.y_scale == 0  # such labels become 0, in units of about half the digits of a float
        scale = np.where(constant, CONSTANT * np.where(sums.y_mean == 0, 1.0, np.abs(sums.y_mean)), sums.y_scale)
        self.unit = scale / (deviation or 1.0)  # what 1 is in units of the labels, [q]
        inner = np.where(constant, np.inf, self.unit)
        self.S = sums.xx[np.ix_(self.kept, self.kept)] / np.outer(self.x_scale, self.x_scale)
        self.a = (sums.xy[self.kept] / self.x_scale[:, None] / inner).T  # [q, d]
        self.total = sums.yy / inner**2  # [q]

    @cached_property
    def spectrum(self) -> ContextSpectrum:
        """The eigendecomposition, one for all labels, of rank r: directions in which rows do not differ are left out.

        The residuals of least squares belong to `examples` rows, one less than there are if there is an intercept.
        """
        with one_blas_thread():
            values, vectors = np.linalg.eigh(self.S)
        kept = values > RANK * values.max(initial=0.0)
        values, vectors, q = values[kept], vectors[:, kept], len(self.total)
        c, rank = self.a @ vectors, int(kept.sum())
        residual = np.maximum(self.total - (c**2 / values).sum(1), 0.0)
        values = np.broadcast_to(values, (q, rank))
        vectors = np.broadcast_to(vectors, (q, self.dim, rank))
        return ContextSpectrum(values, c, vectors, residual, self.total, self.examples, rank, 1e-14)

    def moments(self, dim: int, context: int | None) -> Moments:
        """Moments for a model: with further features that are 0, and as if there were as many examples as it knows.

        n examples with noise sigma say about w what m examples with noise sigma sqrt(m / n) do: S / sigma^2 is the
        same. So S, a and what least squares explains of l are multiplied by m / n, and its residual becomes that of
        m examples with this noise. Where there are no more rows than features, nothing is changed.

        Args:
            dim: The dimension of the model.
            context: The number of examples m that it was trained on; None to leave the moments as they are.

        Returns:
            The moments, one context for each label.
        """
        spectrum, share, total, n = self.spectrum, 1.0, self.total, max(1, round(self.weight))
        freedom = spectrum.context - spectrum.dim
        if context is not None and freedom > 0 and context > spectrum.dim:
            n, share = context, context / self.weight
            total = share * (self.total + spectrum.residual * ((context - spectrum.dim) / freedom - 1))
        gram = np.zeros((len(total), dim + 1, dim + 1))
        gram[:, : self.dim, : self.dim] = share * self.S
        gram[:, : self.dim, dim] = gram[:, dim, : self.dim] = share * self.a
        gram[:, dim, dim] = total
        return Moments(gram, n, sums=np.zeros((len(total), dim + 1)))  # of centred rows
