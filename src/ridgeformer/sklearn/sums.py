"""Sums over the training rows: weighted counts, means and centred sums, which add over batches of rows.

Centred sums of two batches are merged with the difference of their means. Sums of raw squares, whose difference gives
the same, would lose digits where means are large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeformer.values import Value

__all__ = ["Sums"]

Array = NDArray[np.float64]
ROUNDING = 10 * np.finfo(np.float64).eps  # of its mean: a standard deviation below that is rounding


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
