"""What losses at several points share, such as numbers of examples or shifted problems: each has a floor of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation.table import Table, ratio, ratios

__all__ = ["Series"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Series(Table):
    """Losses of M predictors at K points, each point with its own floor.

    Attributes:
        name: The names of the predictors, [M].
        loss: The mean adjusted losses, [M, K].
        error: The standard errors of `loss`, [M, K].
        exploded: How many sequences exploded, [M, K].
        unexploded: The mean adjusted losses of the sequences that did not explode, [M, K]; NaN where all did.
        floor: The loss of the best predictor at each point, [K]; NaN where it is not known.
        floor_error: The standard errors of `floor`, [K].
        sequences: How many sequences were used at each point.
    """

    name: tuple[str, ...]
    loss: Array
    error: Array
    exploded: NDArray[np.int64]
    unexploded: Array
    floor: Array
    floor_error: Array
    sequences: int

    @property
    def ratio(self) -> Array:
        """Loss over floor, [M, K]; infinite where it says nothing, NaN where the floor is not known; see `Result`."""
        return ratios(self.loss, self.floor)

    @abstractmethod
    def _points(self) -> tuple[str, Sequence[Any]]:
        """What the points differ in, and its values."""

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per predictor and point."""
        what, points = self._points()
        return [
            {
                "name": name,
                what: point,
                "loss": float(self.loss[i, k]),
                "error": float(self.error[i, k]),
                "floor": float(self.floor[k]),
                "floor_error": float(self.floor_error[k]),
                "ratio": ratio(float(self.loss[i, k]), float(self.floor[k])),
                "exploded": int(self.exploded[i, k]),
                "unexploded": float(self.unexploded[i, k]),
                "sequences": self.sequences,
            }
            for i, name in enumerate(self.name)
            for k, point in enumerate(points)
        ]
