"""Losses of predictors: one type for every question about them, and its row.

The same names stand for the same things everywhere:

- `loss`: the mean adjusted loss, half the squared error against the oracle, which knows the noise level. On problems
  without an oracle it is the unadjusted loss, and `adjusted` is False. `error`: its standard error.
- `unadjusted`: the mean loss against the true task. `unadjusted_error`: its standard error.
- `floor`: the loss of the best predictor on the same sequences, NaN where it is not known or was not asked for.
  `floor_error`: its standard error. `ratio`: loss over floor. At single noise levels (the axis `sigma`) there is none,
  because no predictor is the best one at every level.
- `largest`, `tail`: the largest loss of a sequence, and the 99.99 % quantile.
- `exploded`: how many sequences exploded; see `ridgeformer.losses`, also for what a single loss counts at most.
  `unexploded`: the mean loss of the other sequences, NaN where all exploded.
- `sequences`: how many sequences were used, at every point.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse, shown
from ridgeformer.evaluation.table import Table
from ridgeformer.files import jsonable
from ridgeformer.losses import ratio, without_rounding
from ridgeformer.validation import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BY_PREDICTOR = ("loss", "error", "unadjusted", "unadjusted_error", "largest", "tail", "exploded", "unexploded")
BY_POINT = ("floor", "floor_error", "signal")
PRINTED = ("name", "actual", "loss", "error", "floor", "ratio", "unadjusted", "unadjusted_error", "largest", "exploded")
OPTIONAL = ("query_error", "explosion_probability", "explosion_error", "explosion_hits")  # where they were asked for
UNADJUSTED = ("unadjusted", "unadjusted_error")
UNITS = ("loss", "error", "floor", "unadjusted", "unadjusted_error", "largest", "unexploded")  # of a loss


@dataclass(frozen=True, repr=False)
class Loss(Table):
    """Loss of one predictor on one problem; the module says what the names mean.

    Attributes:
        name: What was evaluated.
        loss: The mean loss.
        error: The standard error of `loss`.
        unadjusted: The mean loss against the true tasks.
        unadjusted_error: The standard error of `unadjusted`.
        floor: The loss of the best predictor on the same sequences; NaN where it is not known.
        floor_error: The standard error of `floor`.
        largest: The largest loss of a sequence.
        tail: The 99.99 % quantile of the losses.
        exploded: How many sequences exploded.
        unexploded: The mean loss of the sequences that did not explode.
        sequences: How many sequences were used.
        estimator: `exact` or `query`; see `evaluate`.
        signal: The mean square of what is to be predicted.
        adjusted: Whether `loss` is adjusted; False where the problem has no oracle.
        query_error: See `Losses`; None if not asked for.
        explosion_probability: The probability that a sequence explodes; None if not asked for.
        explosion_error: Its standard error; None if not asked for.
        explosion_hits: The effective number of explosions behind it; None if not asked for.
    """

    name: str
    loss: float
    error: float
    unadjusted: float
    unadjusted_error: float
    floor: float
    floor_error: float
    largest: float
    tail: float
    exploded: int
    unexploded: float
    sequences: int
    estimator: str
    signal: float
    adjusted: bool
    query_error: float | None = None
    explosion_probability: float | None = None
    explosion_error: float | None = None
    explosion_hits: float | None = None

    @property
    def ratio(self) -> float:
        """Loss over floor: 1 is the best possible value.

        It is infinite where it says nothing: above a million, or where the floor is 0 to rounding and the loss is not.
        It is NaN where the floor is not known.
        """
        return ratio(self.loss, self.floor, self.signal)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row with all fields and the ratio."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields = {name: value for name, value in fields.items() if name not in OPTIONAL or value is not None}
        return [{**fields, "ratio": self.ratio}]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and the ratio, ready for JSON; a number that is not finite is None."""
        row: dict[str, Any] = jsonable(self.rows()[0])
        return row

    def _title(self) -> str:
        return f"{_kind(self.adjusted)} on {self.sequences:,} sequences"

    def _printed(self) -> list[dict[str, Any]]:
        return _printed(self.rows(), () if self.adjusted else UNADJUSTED)

    def __repr__(self) -> str:
        return f"Loss({self.name!r}, loss={self.loss:.4g}, error={self.error:.2g}, floor={self.floor:.4g})"


@dataclass(frozen=True, eq=False, repr=False)
class Losses(Table, Mapping[str, Any]):
    """Losses of K predictors on the same sequences, at one point or along axes; the module says what the names mean.

    `losses[name]` is the `Loss` of one predictor, or its `Losses` where there are axes. It is a mapping by these names.

    Attributes:
        names: The names of the predictors, [K].
        axes: The axes with their values, in the order of the arrays' dimensions after the first. `points` below stands
            for the numbers of these values.
        in_distribution: For each axis but `layer`, which values can occur in the problem itself.
        loss: The mean losses, [K, *points].
        error: The standard errors of `loss`, [K, *points].
        unadjusted: The mean losses against the true tasks, [K, *points].
        unadjusted_error: The standard errors of `unadjusted`, [K, *points].
        largest: The largest losses of sequences, [K, *points].
        tail: The 99.99 % quantiles of the losses, [K, *points].
        exploded: How many sequences exploded, [K, *points].
        unexploded: The mean losses of the sequences that did not explode, [K, *points].
        floor: The losses of the best predictor, [*points].
        floor_error: The standard errors of `floor`, [*points].
        signal: The mean squares of what is to be predicted, [*points].
        covariance: The covariance of the mean losses of the predictors, [K, K, *points].
        sequences: How many sequences were used at every point.
        estimator: `exact` or `query`; see `evaluate`.
        adjusted: Whether `loss` is adjusted; False where a problem has no oracle.
        problem: A short text of the problem.
        actual: The models that the predictors really are, [K], such as `gdpp, 2 layers`, where that is a simpler family
            or fewer layers than a model says; otherwise nothing.
        query_error: The standard errors that the paper's estimator, one query per sequence, has on as many sequences,
            [K, *points]; None if not asked for.
        explosion_probability: The probabilities that a sequence explodes, by importance sampling (see
            `explosion_probability`), [K, *points]; None if not asked for.
        explosion_error: Their standard errors, [K, *points]; None if not asked for.
        explosion_hits: The effective numbers of explosions behind them, [K, *points]; None if not asked for.
    """

    names: tuple[str, ...]
    axes: dict[str, tuple[Any, ...]]
    in_distribution: dict[str, tuple[bool, ...]]
    loss: Array
    error: Array
    unadjusted: Array
    unadjusted_error: Array
    largest: Array
    tail: Array
    exploded: NDArray[np.int64]
    unexploded: Array
    floor: Array
    floor_error: Array
    signal: Array
    covariance: Array
    sequences: int
    estimator: str
    adjusted: bool
    problem: str
    actual: tuple[str, ...]
    query_error: Array | None = None
    explosion_probability: Array | None = None
    explosion_error: Array | None = None
    explosion_hits: Array | None = None

    @property
    def ratio(self) -> Array:
        """Loss over floor, [K, *points]; see `Loss.ratio`."""
        floor, signal = (np.broadcast_to(values, self.loss.shape) for values in (self.floor, self.signal))
        quotients = map(ratio, self.loss.ravel().tolist(), floor.ravel().tolist(), signal.ravel().tolist())
        return np.array(list(quotients)).reshape(self.loss.shape)

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str) or name not in self.names:
            raise KeyError(f"the name must be one of {', '.join(self.names)}; got {shown(name)}. Choose one of these.")
        i = self.names.index(name)
        selected = self._select([i], {})
        if self.axes:
            return selected
        values = {field: value for field, value in selected.rows()[0].items() if field not in ("ratio", "actual")}
        return Loss(estimator=self.estimator, adjusted=self.adjusted, **values)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def at(self, **values: Any) -> Losses:
        """Return the losses at one value of an axis, or of several axes.

        Args:
            **values: The value by the name of its axis, such as `sigma=2`.

        Returns:
            The losses, without these axes.

        Raises:
            InputError: There is no such axis or value.
        """
        index = {}
        for name, value in values.items():
            if name not in self.axes:
                refuse(f"the axes are {', '.join(self.axes) or 'none'}", name, "Choose one of these.")
            texts, text = list(map(str, self.axes[name])), value if isinstance(value, str) else shown(value)
            same = [i for i, stored in enumerate(self.axes[name]) if texts[i] == text or _equal(stored, value)]
            if not same:
                refuse(f"the axis {name} has the values {', '.join(texts)}", shown(value), "Choose one of these.")
            index[name] = same[0]
        return self._select(range(len(self)), index)

    def _select(self, predictors: Sequence[int], index: Mapping[str, int]) -> Losses:
        """The losses of some predictors at some values of axes, which are gone then."""
        rows, where = list(predictors), tuple(index.get(axis, slice(None)) for axis in self.axes)

        def pick(name: str) -> Any:
            values = getattr(self, name)
            return None if values is None else values[(slice(None), *where)][rows]

        changes = {name: pick(name) for name in (*BY_PREDICTOR, *OPTIONAL)}
        changes |= {name: getattr(self, name)[where] for name in BY_POINT}
        changes["covariance"] = self.covariance[np.ix_(rows, rows)][(slice(None),) * 2 + where]
        axes = {name: values for name, values in self.axes.items() if name not in index}
        inside = {name: values for name, values in self.in_distribution.items() if name in axes}
        names, actual = (tuple(values[i] for i in rows) for values in (self.names, self.actual))
        return replace(self, names=names, actual=actual, axes=axes, in_distribution=inside, **changes)

    def difference(self, first: str, second: str) -> tuple[Any, Any]:
        """Return how much larger the loss of one predictor is than the loss of another.

        Args:
            first: The name of one predictor.
            second: The name of the other predictor.

        Returns:
            The loss of `first` minus the loss of `second`, and the standard error of this difference: numbers, or
            arrays [*points] where there are axes.

        Raises:
            InputError: There is no predictor of that name.
        """
        for name in (first, second):
            if not isinstance(name, str) or name not in self.names:
                refuse(f"the name must be one of {', '.join(self.names)}", shown(name), "Choose one of these.")
        i, j = self.names.index(first), self.names.index(second)
        spread = self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j]
        both = self.loss[i] - self.loss[j], np.sqrt(np.maximum(spread, 0.0))
        return both if self.axes else (float(both[0]), float(both[1]))

    def _points(self) -> Iterator[tuple[tuple[int, ...], dict[str, Any], bool]]:
        """The index, the values by axis, and whether these can occur in the problem, of every point."""
        for index in itertools.product(*(range(len(values)) for values in self.axes.values())):
            at = dict(zip(self.axes, index, strict=True))
            values = {name: self.axes[name][k] for name, k in at.items()}
            yield index, values, all(inside[at[name]] for name, inside in self.in_distribution.items())

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per predictor and point, with all that is known about it."""
        ratios, rows = self.ratio, []
        for (i, name), (index, values, inside) in itertools.product(enumerate(self.names), self._points()):
            row = {"name": name, **values}
            row |= {field: getattr(self, field)[(i, *index)].item() for field in BY_PREDICTOR}
            row |= {field: getattr(self, field)[index].item() for field in BY_POINT}
            row |= {"ratio": ratios[(i, *index)].item(), "sequences": self.sequences}
            row |= {"in_distribution": inside} if self.in_distribution else {}
            row |= {"actual": self.actual[i]} if any(self.actual) else {}
            optional = {field: getattr(self, field) for field in OPTIONAL}
            row |= {field: values[(i, *index)].item() for field, values in optional.items() if values is not None}
            rows.append(row)
        return rows

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and the ratios, ready for JSON; a number that is not finite is None."""
        return {**super().as_dict(), "ratio": jsonable(self.ratio)}

    def plot(self, path: str | Path | None = None, *, title: str | None = None) -> Figure:
        """Draw the losses: lines along an axis of numbers, points for other axes, bars of the predictors without axes.

        Along the axes `dim` and `context` together, a map of loss / floor for each predictor.

        Args:
            path: A file to write to, which ends in .png, .pdf or .svg; None to write none.
            title: The title of the figure; None for the problem.

        Returns:
            The figure, a `matplotlib.figure.Figure`, which a notebook shows.

        Raises:
            InputError: The name of the file has another ending.
            MissingPackageError: matplotlib is not installed.
            StorageError: The file cannot be written.
        """
        from ridgeformer.plotting.losses import draw_losses

        return draw_losses(self, path, title=title)

    def _title(self) -> str:
        each = f" at each {' and '.join(self.axes)}" if self.axes else ""
        of = f" of {self.names[0]}" if self.axes and len(self) == 1 else ""
        return f"{_kind(self.adjusted)}{of} on {self.sequences:,} sequences{each}"

    def _printed(self) -> list[dict[str, Any]]:
        if not self.axes:
            return _printed(self.rows(), () if self.adjusted else UNADJUSTED)
        if len(self) > 1 or (len(self.axes) > 1 and "dim" not in self.axes):
            return self._wide()
        unknown = () if np.isfinite(self.floor).any() else ("floor", "ratio")
        return _printed(self.rows(), ("name", "actual", "largest", *UNADJUSTED, *unknown), tuple(self.axes))

    def _wide(self) -> list[dict[str, Any]]:
        """One row per point, with a column for each predictor, or of one predictor for each value of the first axis."""
        first = next(iter(self.axes))
        if len(self) == 1:
            columns = {f"{first} {value}": self.at(**{first: value}) for value in self.axes[first]}
        else:
            columns = {name: self[name] for name in self.names}
        rows = []
        for index, values, inside in next(iter(columns.values()))._points():
            cells: dict[str, Any] = {
                name: without_rounding(losses.loss[(0, *index)], float(losses.signal[index]))
                for name, losses in columns.items()
            }
            for name, losses in columns.items():
                if len(self) > 1 and losses.exploded.any():
                    cells[f"{name}: exploded"] = int(losses.exploded[(0, *index)])
            if len(self) > 1 and np.isfinite(self.floor).any():
                cells["floor"] = without_rounding(float(self.floor[index]), float(self.signal[index]))
            rows.append({**values, **cells, **({"in_distribution": inside} if self.in_distribution else {})})
        return rows

    def _note(self) -> str:
        if not self.axes:
            return ""
        smaller = zip(self.names, self.actual, strict=True)
        notes = [f"{name} is really a smaller model: {actual}." for name, actual in smaller if actual]
        if self.exploded.any():
            points = self.exploded.reshape(len(self), -1).max(0)
            where = f"{np.count_nonzero(points)} of {points.size} points"
            notes.append(f"Sequences exploded at {where}: see `exploded` and `unexploded`.")
        return "\n".join(notes)

    def __repr__(self) -> str:
        if self.axes:
            axes = ", ".join(f"{len(values)} values of {name}" for name, values in self.axes.items())
            return f"Losses({', '.join(map(repr, self.names))}; {axes})"
        losses = ", ".join(f"{name!r}: {loss:.4g}" for name, loss in zip(self.names, self.loss.tolist(), strict=True))
        return f"Losses({{{losses}}})"


def _equal(stored: Any, value: Any) -> bool:
    """Whether a value, which may be anything, is a known one."""
    comparable = isinstance(value, int | float | type(stored)) and not isinstance(stored, np.ndarray)
    return stored is value or (comparable and stored == value)


def _kind(adjusted: bool) -> str:
    return "Adjusted loss" if adjusted else "Loss"


def _printed(rows: list[dict[str, Any]], without: Sequence[str], axes: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The columns of rows that are printed, with 0 for losses that are 0 to rounding."""
    calm = ("unexploded",) if any(row["exploded"] for row in rows) else ()
    names = [*axes, *PRINTED, *calm, *OPTIONAL[1:], "in_distribution"]
    names = [name for name in names if name in rows[0] and name not in without]
    return [
        {name: without_rounding(row[name], row["signal"]) if name in UNITS else row[name] for name in names}
        for row in rows
    ]
