"""A finished training with its history and snapshots, and how it is read back from the folder of its run."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import InputError, short
from ridgeformer.evaluation import ExplosionProbability, Loss, explosion_probability
from ridgeformer.evaluation.explosions import why_unknown
from ridgeformer.evaluation.table import Table, lines
from ridgeformer.exact import expected_oracle_loss
from ridgeformer.losses import ratio, warn_below_floor
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.training.job import Price
from ridgeformer.training.spec import Spec, parse_spec
from ridgeformer.training.store import AGAIN, FORMAT, VERSION, read_course, read_init, read_run
from ridgeformer.values import Value

Array = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]
SHOWN = 20  # rows that are printed, at most


class TrainingPoint(NamedTuple):
    """A piece of work of a search or of the paper's protocol.

    Attributes:
        phase: The part of the search.
        sequences: Sequences used so far in this run.
        loss: The training loss then.
        seconds: Time spent on this run until then.
    """

    phase: str
    sequences: int
    loss: float
    seconds: float


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
    def of(cls, phase: Sequence[str], columns: Arrays, result: Loss) -> History:
        """Return the history with some of the `COLUMNS`; the others are NaN.

        Args:
            phase: The phase of every row.
            columns: The known columns by name.
            result: The loss of the trained model, with its floor.

        Returns:
            The table.
        """
        column = dict.fromkeys(COLUMNS, np.full(len(phase), np.nan)) | columns
        column |= {name: column[name].astype(np.int64) for name in ("step", "sequences")}
        ratios = [ratio(value, result.floor, result.signal) for value in column["adjusted_loss"].tolist()]
        return cls(tuple(phase), **column, ratio=np.array(ratios, np.float64))

    def rows(self) -> list[dict[str, Any]]:
        """See `Table.rows`."""
        columns = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return [{"phase": phase, **row} for phase, row in zip(self.phase, lines(columns), strict=True)]

    def __eq__(self, other: object) -> bool:
        """Whether all is equal but for the seconds."""
        if not isinstance(other, History) or self.phase != other.phase:
            return False
        pairs = ((getattr(self, name), getattr(other, name)) for name in (*COLUMNS, "ratio") if name != "seconds")
        return all(np.array_equal(*pair, equal_nan=True) for pair in pairs)

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
        index = np.unique(np.linspace(0, max(len(rows) - 1, 0), SHOWN).round().astype(int))[: len(rows)]
        columns = {name for row in rows for name, value in row.items() if value == value}
        return [{name: value for name, value in rows[i].items() if name in columns} for i in index]

    def __str__(self) -> str:
        return super().__str__() if len(self) else "no recorded steps"


# The columns of a descent as they are stored.
COLUMNS = tuple(field.name for field in fields(History) if field.name not in ("phase", "ratio"))
TrainingStatus = Literal["converged", "budget reached", "diverged"]
SHOT = "snapshots/"  # how the names of stored snapshots begin


@dataclass(eq=False, repr=False)
class Training(Value):
    """A finished training.

    Attributes:
        model: The trained model.
        spec: What was asked for.
        status: `converged`; `budget reached`; or `diverged`, where the model is worse than predicting 0 or a descent
            ended early, because its loss was not finite or a flow could not be followed.
        message: Why it has this status, in words.
        result: The adjusted loss on fresh sequences that took no part in training or selection, how many of these
            explode, and the floor.
        points: What a search or the paper's protocol recorded after every piece of work; see `history`.
        seconds: Time spent on this model alone.
        total_seconds: Time spent on this model and on all models it was grown from.
        made_with: Versions, engine and number of threads.
        folder: Where the run is stored; None if it is not.
        course: What a descent recorded, as it is stored; see `history` and `snapshots`.
        actual_family: The simplest family that the model is of: that of the model which the search chose.
        price: What avoiding explosions cost a search; None where that is not known.
    """

    model: LinearTransformer
    spec: Spec
    status: TrainingStatus
    message: str
    result: Loss
    points: tuple[TrainingPoint, ...]
    seconds: float
    total_seconds: float
    made_with: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None
    course: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    actual_family: str = ""
    price: Price | None = None

    @property
    def actual(self) -> str:
        """The model that it really is, such as `gdpp, 2 layers`: its simplest family, and the layers that do something.

        The search may choose a model of a simpler family, or a shallower one, whose further layers do nothing.
        """
        return self.model.described(self.actual_family or self.spec.family.name)

    @property
    def is_as_asked(self) -> bool:
        """Whether the model really is of the family and depth that were asked for; see `actual`."""
        return self.spec.describe_model().startswith(self.actual)

    @functools.cached_property
    def history(self) -> History:
        """The course of the training, a table: print it, or use `to_pandas()`."""
        problem, protocol = self.spec.problem, self.spec.protocol
        if "table" in self.course:
            table = self.course["table"]
            return History.of(
                [type(protocol).__name__] * len(table), dict(zip(COLUMNS, table.T, strict=True)), self.result
            )
        oracle = 0.0 if protocol.adjusted or not problem.has_known_laws else expected_oracle_loss(problem)
        points: Arrays = {
            name: np.array([getattr(point, name) for point in self.points]) for name in TrainingPoint._fields[1:]
        }
        points |= {"step": np.arange(1, len(self.points) + 1), "adjusted_loss": points["loss"] - oracle}
        return History.of([point.phase for point in self.points], points, self.result)

    @functools.cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The models at the steps that the protocol of a descent names; none for other protocols."""
        steps = self.course.get("steps", np.empty(0, np.int64)).tolist()
        stored = {name[len(SHOT) :]: value for name, value in self.course.items() if name.startswith(SHOT)}
        model = self.model

        def at(i: int) -> LinearTransformer:
            arrays = {name: np.array(value[i]) for name, value in stored.items()}
            return LinearTransformer(type(model.family)(**arrays), model.dim, model.layout)

        return tuple(Snapshot(step, at(i)) for i, step in enumerate(steps))

    @property
    def explosions_unknown(self) -> str:
        """Why `explosions` is None; empty where it is not."""
        return why_unknown(self.spec.problem)

    @functools.cached_property
    def explosions(self) -> ExplosionProbability | None:
        """The probability that a sequence explodes; None where it cannot be measured, as `explosions_unknown` says.

        It is measured when it is first asked for, which takes a few seconds, and is not stored with the run: see
        `ridgeformer.explosion_probability`, which takes other numbers of sequences and other seeds.
        """
        return None if self.explosions_unknown else explosion_probability(self.spec.problem, self.model)

    @property
    def loss(self) -> float:
        """Adjusted loss on fresh sequences."""
        return self.result.loss

    @property
    def floor(self) -> float:
        """The Bayes floor on the same sequences."""
        return self.result.floor

    def __repr__(self) -> str:
        actual = "" if self.is_as_asked else f" (actual: {self.actual})"
        ratio = f", {self.result.ratio:.3g} x the floor" if math.isfinite(self.result.ratio) else ""
        end = f"{self.status}, loss {self.loss:.4g}{ratio}, {self.total_seconds:.1f} s"
        return f"Training({self.spec.describe()}{actual}: {end})"

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Training:
        """Load a finished run from its folder.

        Args:
            folder: The folder of one run, such as `Training.folder`.

        Returns:
            The `Training` that `train` returned when the run was finished.

        Raises:
            InputError: There is no finished run in the folder, or a newer version wrote it.
            DamageError: The run is damaged.
        """
        (model, record), place = read_run(folder), Path(folder)
        init = read_init(place, record["spec"])
        try:
            spec = parse_spec(record["spec"], init)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise _incomplete(place, error) from error
        return training_of_record(spec, model, record, read_course(place, record), place)

    def record(self) -> dict[str, Any]:
        """Return what the run's folder holds besides the model, as values that JSON can hold."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "spec": self.spec.as_dict(),
            **{name: getattr(self, name) for name in ("status", "message")},
            "result": self.result.as_dict(),
            "history": [list(point) for point in self.points],
            **{name: getattr(self, name) for name in ("seconds", "total_seconds", "made_with")},
            **{name: getattr(self, name) for name in ("actual_family", "actual")},
            "price": None if self.price is None else self.price._asdict(),
        }


def training_of_record(
    spec: Spec,
    model: LinearTransformer,
    record: dict[str, Any],
    course: Mapping[str, NDArray[Any]],
    folder: Path | None,
) -> Training:
    """Make a `Training` of what `Training.record` returned.

    Args:
        spec: The spec of the run.
        model: Its model.
        record: What `Training.record` returned, perhaps after a journey through JSON.
        course: What a descent recorded.
        folder: Where the run is stored; None if it is not.

    Returns:
        The training.

    Raises:
        InputError: The record is incomplete.
    """
    try:
        kinds: dict[str, type] = {"name": str, "estimator": str, "exploded": int, "sequences": int, "adjusted": bool}
        fields = record["result"]
        values = {name: math.nan if value is None else value for name, value in fields.items() if name != "ratio"}
        result = Loss(**{name: kinds.get(name, float)(value) for name, value in values.items()})
        warn_below_floor(result.name, result.loss, result.error, result.floor, result.floor_error, result.signal)
        return Training(
            model=model,
            spec=spec,
            status=record["status"],
            message=str(record["message"]),
            result=result,
            points=tuple(TrainingPoint(str(p), int(w), float(x), float(s)) for p, w, x, s in record["history"]),
            seconds=float(record["seconds"]),
            total_seconds=float(record["total_seconds"]),
            made_with=dict(record["made_with"]),
            folder=folder,
            course=course,
            actual_family=str(record["actual_family"]),
            price=None if record.get("price") is None else Price(**record["price"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _incomplete(folder, error) from error


def _incomplete(folder: Path | None, error: Exception) -> InputError:
    where, reason = folder or "a record", short(repr(error))
    return InputError(f"a record must be complete; {where} has a damaged one ({reason}). {AGAIN}")
