"""Means, standard errors and extremes of losses, block by block: memory does not grow with the number of sequences.

A row of losses gives the same bits whatever the other rows are: sums run along one row at a time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ridgeformer.losses import capped, exploded

Array = NDArray[np.float64]


class Means:
    """Means of K rows of losses, and their standard errors.

    Args:
        rows: How many rows there are, K.
        signal: The mean square of what is to be predicted, which decides when a loss is too large for a mean.
    """

    def __init__(self, rows: int, signal: float) -> None:
        self.signal, self.count, self.mean = signal, 0, np.zeros(rows)
        self.squares, self.products = np.zeros(rows), np.zeros((rows, rows))

    def add(self, losses: Array) -> Array:
        """Add one block of losses.

        Args:
            losses: The losses, [K, b].

        Returns:
            The losses capped, as they enter the mean, [K, b].
        """
        losses = capped(losses, self.signal)
        count, mean = losses.shape[1], losses.mean(1)
        centred, shift, total = losses - mean[:, None], mean - self.mean, self.count + losses.shape[1]
        weight = self.count * count / total
        # Chan's update keeps the sums accurate over any number of blocks.
        self.squares += np.array([np.einsum("b,b->", row, row) for row in centred]) + shift * shift * weight
        self._multiply(centred, shift, weight)
        self.mean += shift * count / total
        self.count = total
        return losses

    def _multiply(self, centred: Array, shift: Array, weight: float) -> None:
        """Nothing: only a `Tally` has a covariance."""

    @property
    def error(self) -> Array:
        """Standard errors of the means, [K]."""
        return np.asarray(np.sqrt(self.squares / max(self.count - 1, 1) / self.count))


class Tally(Means):
    """Means as in `Means`, with their covariance, the largest losses of each row, and how many losses exploded.

    Args:
        rows: How many rows there are, K.
        signal: The mean square of what is to be predicted, which decides when a loss counts as exploded.
        sequences: How many sequences there will be in all; 1 in 10,000 of the largest losses is stored.
    """

    def __init__(self, rows: int, signal: float, sequences: int) -> None:
        super().__init__(rows, signal)
        self.exploded, self._calm = np.zeros(rows, np.int64), np.zeros(rows)
        self._most, self._top = max(int(np.ceil(sequences * 1e-4)), 1), np.empty((rows, 0))

    def add(self, losses: Array) -> Array:
        """Add one block of losses.

        Args:
            losses: The losses, [K, b].

        Returns:
            The losses capped, as they enter the mean, [K, b].
        """
        explosions = exploded(losses, self.signal)
        losses = super().add(losses)
        self.exploded += explosions.sum(1)
        self._calm += np.where(explosions, 0.0, losses).sum(1)
        highest = np.concatenate([self._top, losses], 1)
        if highest.shape[1] > self._most:
            highest = np.partition(highest, highest.shape[1] - self._most, axis=1)[:, -self._most :]
        self._top = np.sort(highest, axis=1)
        return losses

    def _multiply(self, centred: Array, shift: Array, weight: float) -> None:
        self.products += centred @ centred.T + np.outer(shift, shift) * weight

    @property
    def covariance(self) -> Array:
        """The covariance of the means, [K, K]."""
        covariance = self.products / max(self.count - 1, 1) / self.count
        np.fill_diagonal(covariance, self.error**2)
        return np.asarray(covariance)

    @property
    def unexploded(self) -> Array:
        """Means over the sequences that did not explode, [K]; NaN where all did."""
        left = self.count - self.exploded
        return np.where(left > 0, self._calm / np.maximum(left, 1), np.nan)

    @property
    def largest(self) -> Array:
        """The largest losses, [K]."""
        return np.asarray(self._top[:, -1])

    @property
    def tail(self) -> Array:
        """The 99.99 % quantiles of the losses, [K]."""
        return np.asarray(self._top[:, 0])
