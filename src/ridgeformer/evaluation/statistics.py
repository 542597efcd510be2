"""Means, standard errors and extremes of losses, block by block: memory does not grow with the number of sequences."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ridgeformer.losses import capped, exploded

__all__ = ["Running", "Tally"]

Array = NDArray[np.float64]


class Running:
    """Mean and standard error of K loss columns, block by block, and how many losses exploded.

    Args:
        columns: How many losses each sequence has, K.
        signal: The mean square of what is to be predicted, which decides when a loss counts as exploded.
    """

    def __init__(self, columns: int, signal: float) -> None:
        self.count, self.signal = 0, signal
        self.mean, self.squares = np.zeros(columns), np.zeros(columns)
        self.exploded, self.others = np.zeros(columns, np.int64), np.zeros(columns)

    def add(self, losses: Array) -> Array:
        """Add one block of losses.

        Args:
            losses: The losses, [b, K].

        Returns:
            The losses capped, as they enter the mean, [b, K].
        """
        wild = exploded(losses, self.signal)
        losses = capped(losses)
        self.exploded += wild.sum(0)
        self.others += np.where(wild, 0.0, losses).sum(0)
        count, mean = len(losses), losses.mean(0)
        centred, shift, total = losses - mean, mean - self.mean, self.count + len(losses)
        self._scatter(centred, shift, self.count * count / total)
        self.mean += shift * count / total
        self.count = total
        return losses

    def _scatter(self, centred: Array, shift: Array, weight: float) -> None:
        """Chan's update keeps the sums accurate over any number of blocks."""
        self.squares += np.square(centred).sum(0) + np.square(shift) * weight

    @property
    def errors(self) -> Array:
        """Standard errors of the means, [K]."""
        return np.asarray(np.sqrt(self.squares / max(self.count - 1, 1) / self.count))

    @property
    def unexploded(self) -> Array:
        """Means over the sequences that did not explode, [K]; NaN where all did."""
        left = self.count - self.exploded
        return np.where(left > 0, self.others / np.maximum(left, 1), np.nan)


class Tally(Running):
    """As `Running`, with the covariance of the means, and the largest losses of each column.

    Args:
        columns: How many losses each sequence has, K.
        signal: The mean square of what is to be predicted.
        sequences: How many sequences there will be in all; 1 in 10,000 of the largest losses is kept.
    """

    def __init__(self, columns: int, signal: float, sequences: int) -> None:
        super().__init__(columns, signal)
        self.scatter = np.zeros((columns, columns))
        self.keep = max(int(np.ceil(sequences * 1e-4)), 1)
        self.top = np.empty((0, columns))

    def add(self, losses: Array) -> Array:
        """Add one block of losses.

        Args:
            losses: The losses, [b, K].

        Returns:
            The losses capped, as they enter the mean, [b, K].
        """
        losses = super().add(losses)
        highest = np.concatenate([self.top, losses])
        if len(highest) > self.keep:
            highest = np.partition(highest, len(highest) - self.keep, axis=0)[-self.keep :]
        self.top = np.sort(highest, axis=0)
        return losses

    def _scatter(self, centred: Array, shift: Array, weight: float) -> None:
        self.scatter += np.einsum("bi,bj->ij", centred, centred) + np.outer(shift, shift) * weight

    @property
    def covariance(self) -> Array:
        """The covariance of the means, [K, K]."""
        return np.asarray(self.scatter / max(self.count - 1, 1) / self.count)

    @property
    def errors(self) -> Array:
        """Standard errors of the means, [K]."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))
