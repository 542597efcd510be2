"""How training went: a table with one row for every recorded step, and the parameters at some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation import Loss
from ridgeformer.evaluation.table import Table, lines
from ridgeformer.losses import ratio
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.values import Value

Array = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]
# The columns of a descent as they are stored; the last three are missing in runs of earlier versions.
COLUMNS = (
    *("step", "time", "sequences", "loss", "adjusted_loss", "gradient_norm", "seconds"),
    *("rate", "clipped", "fresh_loss"),
)
SHOWN = 20  # rows that are printed, at most


class Point(NamedTuple):
    """A piece of work of a search or of the paper's protocol.

    Attributes:
        phase: The part of the search.
        sequences: Sequences used so far in this run.
        loss: The training loss then.
        seconds: Time spent on this run until then; None in runs of earlier versions.
    """

    phase: str
    sequences: int
    loss: float
    seconds: float | None = None


class Snapshot(NamedTuple):
    """The parameters at a step.

    Attributes:
        step: The number of the step; 0 is the start.
        model: The model.
    """

    step: int
    model: LinearTransformer


@dataclass(eq=False, repr=False)
class History(Value, Table):
    """The course of a training, one row per recorded step; `to_pandas()` gives it as a DataFrame.

    For descents (`GradientDescent`, `SGD`, `Adam`, `GradientFlow`) every number is that of the model before the step.
    Searches and the paper's protocol record pieces of work: their phase, the sequences and seconds used so far and the
    training loss, from which the adjusted loss follows; other columns have no meaning there, NaN.

    Attributes:
        phase: The part of the search, or the name of the protocol, for every row.
        step: The number of the step, or of the piece of work, [K].
        time: The time of gradient flow, [K]: the sum of the learning rates so far. A clipped step counts as one at a
            smaller rate. NaN for Adam and with momentum, which do not follow the flow.
        sequences: Sequences used so far, [K]; 0 for the population gradient.
        loss: The training loss, [K]. Of descents it is unadjusted; of searches it is adjusted.
        adjusted_loss: The adjusted loss, [K]: the unadjusted one minus the loss of the oracle.
        ratio: The adjusted loss over the floor, [K].
        gradient_norm: The Euclidean norm of the gradient, [K].
        seconds: Time spent on the run so far, [K].
        rate: The learning rate of the next step, [K].
        clipped: How many steps so far had a gradient that was scaled down, [K].
        fresh_loss: Of descents on a fixed sample, the loss on fresh sequences instead, [K]; otherwise NaN. Its
            distance from `loss` is what was learnt of the sample alone.
    """

    phase: tuple[str, ...]
    step: NDArray[np.int64]
    time: Array
    sequences: NDArray[np.int64]
    loss: Array
    adjusted_loss: Array
    ratio: Array
    gradient_norm: Array
    seconds: Array
    rate: Array
    clipped: Array
    fresh_loss: Array

    @classmethod
    def of_points(cls, points: list[Point], oracle: float, result: Loss) -> History:
        """Return the history of a search or of the paper's protocol.

        Args:
            points: Its pieces of work.
            oracle: The loss of the oracle, by which their losses are larger than adjusted ones.
            result: The loss of the trained model, with its floor.

        Returns:
            The table.
        """
        unknown = np.full(len(points), np.nan)
        loss = np.array([point.loss for point in points], np.float64)
        return cls(
            phase=tuple(point.phase for point in points),
            step=np.arange(1, len(points) + 1),
            time=unknown,
            sequences=np.array([point.sequences for point in points], np.int64),
            loss=loss,
            adjusted_loss=loss - oracle,
            ratio=_ratios(loss - oracle, result),
            gradient_norm=unknown,
            seconds=np.array([point.seconds for point in points], np.float64),
            rate=unknown,
            clipped=unknown,
            fresh_loss=unknown,
        )

    @classmethod
    def of_descent(cls, name: str, table: Array, result: Loss) -> History:
        """Return the history of a descent.

        Args:
            name: The name of the protocol.
            table: What was recorded, in the order of `COLUMNS`, [K, 10], or [K, 7] in runs of earlier versions.
            result: The loss of the trained model, with its floor.

        Returns:
            The table.
        """
        unknown = dict.fromkeys(COLUMNS, np.full(len(table), np.nan))
        column = {**unknown, **dict(zip(COLUMNS, table.T, strict=False))}
        whole = {"step": column.pop("step").astype(np.int64), "sequences": column.pop("sequences").astype(np.int64)}
        return cls((name,) * len(table), **whole, **column, ratio=_ratios(column["adjusted_loss"], result))

    def rows(self) -> list[dict[str, Any]]:
        """See `Table.rows`."""
        columns = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return [{"phase": phase, **row} for phase, row in zip(self.phase, lines(columns), strict=True)]

    @property
    def points(self) -> list[Point]:
        """Phase, sequences used so far, training loss and seconds of every row."""
        return list(map(Point, self.phase, self.sequences.tolist(), self.loss.tolist(), self.seconds.tolist()))

    def __eq__(self, other: object) -> bool:
        """Whether all is equal but for the seconds."""
        if not isinstance(other, History) or self.phase != other.phase:
            return False
        names = (*(name for name in COLUMNS if name != "seconds"), "ratio")
        return all(np.array_equal(getattr(self, name), getattr(other, name), equal_nan=True) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.loss)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.rows()[row]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        last = f", the last with loss {self.loss[-1]:.4g}" if len(self) else ""
        return f"History({len(self)} rows{last})"

    def _title(self) -> str:
        return f"{SHOWN} of {len(self):,} recorded steps" if len(self) > SHOWN else f"{len(self)} recorded steps"

    def _printed(self) -> list[Mapping[str, Any]]:
        rows = self.rows()
        chosen = np.unique(np.linspace(0, max(len(rows) - 1, 0), SHOWN).round().astype(int))[: len(rows)]
        known = {name for row in rows for name, value in row.items() if value == value}
        return [{name: value for name, value in rows[i].items() if name in known} for i in chosen]

    def __str__(self) -> str:
        return super().__str__() if len(self) else "no recorded steps"


def _ratios(adjusted: Array, result: Loss) -> Array:
    return np.array([ratio(value, result.floor, result.signal) for value in adjusted.tolist()], np.float64)
