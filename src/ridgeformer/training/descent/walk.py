"""Descents whose course is recorded, from one start: what all of them share.

A descent is a sequence of states (parameters, memory of the optimiser, number of the step), each a function of the one
before. The last state and all that was recorded are kept in the journal, so a run that was killed goes on to the bit.
"""

from __future__ import annotations

import dataclasses
import math
import time
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse, shown
from ridgeformer.losses import largest
from ridgeformer.population import FIXED, REMEDY, has_population
from ridgeformer.training.descent.averages import Average, Population, Sample, as_average
from ridgeformer.training.job import Job, Outcome, Step, Steps, Vector, follow
from ridgeformer.training.results import COLUMNS
from ridgeformer.training.spec import Protocol, Spec
from ridgeformer.validation import axes, integer, positive

Array = NDArray[np.float64]
Evaluated = tuple[float, Array]  # a loss and its gradient
Stops = int | tuple[int, ...] | None
MOST_STEPS = 10**9
TINY = 1e-8  # Adam's usual constant
PIECE = "descent"  # its name in the journal
RESTED = 1e-6  # of the largest gradient: where a descent has converged
PAUSE = 0.05  # seconds between two reports, at least
STALLED = 0.01  # a share of clipped steps from which on the message names it


@dataclass(frozen=True, kw_only=True)
class Descent(Protocol):
    """Base class of the protocols that follow one model from its start, and record its course.

    Attributes:
        batch: The sequences over which the loss is averaged: `Population()`, `Sample(8192)` or `Fresh(512)`, or their
            texts `population`, `sample(8192)` and 512. None for the population where its gradient is known (one layer,
            features with one covariance), and `Sample(8192)` elsewhere.
        scale: The standard deviation of the numbers of a random start; None for the one that the problem suggests.
            Without meaning where training starts from a given model.
        record: Which steps enter the history.
        snapshots: The steps whose parameters are kept: a list of steps, or their number, evenly spaced from the start
            to the end; 0 for none.
    """

    follows_one_function: ClassVar[bool] = False

    batch: Average | str | int | None = None
    scale: float | None = None
    record: Stops = None
    snapshots: Stops = 20

    def __post_init__(self) -> None:
        if self.batch is not None:
            object.__setattr__(self, "batch", as_average(self.batch))
        if self.scale is not None:
            positive("the scale of a start", self.scale, 0.01)
        for name in ("record", "snapshots"):
            object.__setattr__(self, name, _stops(name, getattr(self, name), self.length))

    @property
    @abstractmethod
    def length(self) -> int:
        """How many steps there are."""

    @property
    def average(self) -> Average:
        """The sequences over which the loss is averaged.

        Raises:
            InputError: The batch is None: it is known when there is a problem.
        """
        if self.batch is None:
            refuse("a descent averages over sequences", None, "Choose a batch, or ask the spec of a run.")
        return as_average(self.batch)

    @abstractmethod
    def recorded(self) -> NDArray[np.int64]:
        """Return the steps that enter the history, ascending, from 0 to `length`."""

    def kept(self) -> NDArray[np.int64]:
        """Return the steps whose parameters are kept, ascending."""
        if isinstance(self.snapshots, tuple):
            return np.array(self.snapshots)
        return np.unique(np.linspace(0, self.length, self.snapshots or 0).round().astype(np.int64))

    @property
    def clips(self) -> bool:
        """Whether long gradients are scaled down."""
        return False

    def rates(self) -> NDArray[np.float64]:
        """Return the learning rate of every step; one that is NaN where there are none."""
        return np.array([np.nan])

    @abstractmethod
    def advance(self, walk: Walk, loss: float, slope: Array) -> tuple[Array, Evaluated | None]:
        """Compute the next point, and count time and clipped steps in the state.

        Args:
            walk: The descent, with its state.
            loss: The loss there.
            slope: The gradient there.

        Returns:
            The next point, with NaN where there is none, and its loss and gradient if they are known already.
        """

    def can_pause(self, taken: int) -> bool:
        """Tell whether a descent can go on from its state alone.

        Args:
            taken: How many steps were taken.

        Returns:
            False in the middle of a leg of gradient flow.
        """
        return True

    @abstractmethod
    def describe_length(self) -> str:
        """Return how long the descent is, in words."""

    @abstractmethod
    def describe_end(self, taken: int) -> str:
        """Return why a descent ended early, in words.

        Args:
            taken: How many steps were taken.

        Returns:
            A sentence without its period.
        """

    def as_dict(self) -> dict[str, Any]:
        """See `Protocol.as_dict`."""
        values = {name: _lists(value) for name, value in super().as_dict().items()}
        return {**values, "batch": None if self.batch is None else self.average.text}

    def complete(self, spec: Spec) -> Spec:
        """See `Protocol.complete`: the batch; and with a given start no scale, which would change no bits."""
        layers = spec.layers * spec.family.loops
        usual = Population() if has_population(spec.problem, layers, spec.layout) else Sample()
        batch = usual if self.batch is None else self.average
        batch.check(spec, f"{FIXED}." if self.follows_one_function else REMEDY)
        scale = self.scale if spec.init is None else None
        return dataclasses.replace(spec, protocol=dataclasses.replace(self, batch=batch, scale=scale))

    def cost(self, spec: Spec) -> float:
        """See `Protocol.cost`."""
        return float(self.length)

    def run(self, job: Job) -> Outcome:
        """See `Protocol.run`."""
        return follow(Walk(job, self).steps(), job)


@dataclass(eq=False)
class DescentState:
    """Where a descent is, and what was recorded on the way.

    Attributes:
        point: The parameters.
        velocity: The mean of past gradients.
        square: The mean of past squared gradients.
        taken: Steps taken so far.
        time: The time of gradient flow so far; NaN where steps are not those of plain gradient descent.
        clipped: Steps so far whose gradient was scaled down.
        factor: What rates are multiplied by, because they were halved.
        rows: What was recorded, in the order of `COLUMNS`.
        shots: The parameters of the snapshots.
    """

    point: Array
    velocity: Array
    square: Array
    taken: int = 0
    time: float = 0.0
    clipped: int = 0
    factor: float = 1.0
    rows: list[tuple[float, ...]] = field(default_factory=list)
    shots: list[Array] = field(default_factory=list)

    @classmethod
    def begin(cls, point: Array, stored: dict[str, NDArray[Any]] | None) -> DescentState:
        """Return the state from which a descent goes on.

        Args:
            point: The parameters of the start.
            stored: What `arrays` returned before an interruption; None for a new descent.

        Returns:
            The state.
        """
        if stored is None:
            return cls(point, np.zeros_like(point), np.zeros_like(point))
        point, velocity, square = (stored[name].copy() for name in ("point", "velocity", "square"))
        taken, time, clipped, factor = stored["facts"].tolist()
        rows, shots = [tuple(row) for row in stored["rows"].tolist()], list(stored["shots"])
        return cls(point, velocity, square, int(taken), time, int(clipped), factor, rows, shots)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name, to be stored."""
        return {
            **{name: getattr(self, name).copy() for name in ("point", "velocity", "square")},
            "facts": np.array([self.taken, self.time, self.clipped, self.factor]),
            "rows": np.array(self.rows).reshape(-1, len(COLUMNS)),
            "shots": np.array(self.shots).reshape(-1, len(self.point)),
        }


class Walk:
    """A descent, recorded.

    Args:
        job: What is trained.
        protocol: How to descend, and what to record.
    """

    def __init__(self, job: Job, protocol: Descent) -> None:
        start = job.start(protocol.scale)
        self.job, self.protocol, self.average = job, protocol, protocol.average
        self.name = type(protocol).__name__
        self.vector = Vector(start, None)
        self.objective = self.average.objective(job, self.vector)
        self.rates, self.leg = protocol.rates(), list[Array]()  # points of a flow at the recorded times to come
        self.state = DescentState.begin(self.vector.pack(start), job.journal.recall(PIECE))
        self.here: Evaluated | None = None  # the loss and its gradient at the point, once they are known
        self.reported = 0  # of a resumed run, callbacks are told the whole course
        self.clock = self.saved = -math.inf

    def steps(self) -> Steps:
        """Take all steps; stop at those that are recorded or whose parameters are kept.

        Yields:
            The steps that were recorded, several at a time.

        Returns:
            The last model, with the course.
        """
        protocol, state = self.protocol, self.state
        shot_steps = protocol.kept()
        rows, shots = set(protocol.recorded().tolist()), set(shot_steps.tolist())
        for stop in sorted(stop for stop in rows | shots if stop >= state.taken):
            loss, slope = self._run_to(stop)
            if not math.isfinite(loss):
                if len(state.rows) > self.reported:
                    yield self._step()
                message = protocol.describe_end(state.taken)
                return Outcome(self.vector.model(state.point), False, message, self._course(), lost=True)
            if stop in rows and not (state.rows and state.rows[-1][0] >= stop):
                state.rows.append(self._row(loss, slope))
            if stop in shots and len(state.shots) < int((shot_steps <= stop).sum()):
                state.shots.append(state.point.copy())
            self._save()
            now = time.monotonic()
            if len(state.rows) > self.reported and (now - self.clock >= PAUSE or stop == protocol.length):
                yield self._step()
                self.clock = now
        column = dict(zip(COLUMNS, np.array(state.rows).T, strict=True))
        losses, norms = column["loss"], column["gradient_norm"]
        rested = bool(norms[-1] <= RESTED * norms[losses <= losses[0]].max())  # not beside those of an explosion
        end = "converged" if rested else f"ended with a gradient of {norms[-1]:.3g}"
        how = f"{self.name} on {self.average.describe()}: {protocol.describe_length()}"
        message = f"{how}; {end}{self._remarks()}{risen(column)}"
        return Outcome(self.vector.model(state.point), rested, message, self._course())

    def _run_to(self, stop: int) -> Evaluated:
        """Go on to a step; the loss and the gradient there. A loss that is not finite ends the descent before.

        Where gradients are clipped, such a loss counts as the largest one, and the descent goes on with what engines
        leave in the gradient, if there is anything.
        """
        state, gradient, protocol = self.state, self.objective.gradient, self.protocol
        most = largest(self.job.problem.signal)
        with np.errstate(all="ignore"):
            while True:
                loss, slope = self.here = self.here or gradient(state.point, state.taken)
                if protocol.clips and not loss <= most and slope.any():
                    loss = most
                if state.taken == stop or not math.isfinite(loss):
                    return loss, slope
                new, evaluated = protocol.advance(self, loss, slope)
                if not math.isfinite(float(new @ new)):
                    return math.inf, slope
                state.point, self.here = new, evaluated
                state.taken += 1

    def rate(self) -> float:
        """Return the learning rate of the next step."""
        return float(self.rates[min(self.state.taken, len(self.rates) - 1)]) * self.state.factor

    def _remarks(self) -> str:
        """Remarks on steps that were not those of plain gradient descent, and on a sample that was learnt by heart."""
        state, text = self.state, ""
        if state.clipped > STALLED * state.taken:
            share = f"{state.clipped:,} of {state.taken:,} steps ({state.clipped / state.taken:.0%})"
            text += f"; {share} were clipped"
        if state.factor < 1:
            times = round(-math.log2(state.factor))
            text += f"; the rate was halved {times} time{'s' * (times > 1)}, to {self.rate():.3g}"
        row = dict(zip(COLUMNS, state.rows[-1], strict=True))
        if not math.isnan(row["fresh_loss"]):
            fresh = row["adjusted_loss"] + row["fresh_loss"] - row["loss"]
            text += f"; the adjusted loss is {row['adjusted_loss']:.3g} on the sample, {fresh:.3g} on fresh sequences"
        return text

    def _row(self, loss: float, slope: Array) -> tuple[float, ...]:
        state, both = self.state, self.objective.both
        unadjusted, adjusted = both(loss)
        values = {
            "step": state.taken,
            "time": state.time,
            "sequences": self.average.sequences * state.taken,
            "loss": unadjusted,
            "adjusted_loss": adjusted,
            "gradient_norm": norm_of(slope),
            "seconds": self.job.journal.seconds,
            "rate": self.rate(),
            "clipped": state.clipped,
            "fresh_loss": math.nan if self.objective.fresh is None else both(self.objective.fresh(state.point))[0],
        }
        return tuple(float(values[name]) for name in COLUMNS)

    def _save(self) -> None:
        """Keep the state now and then; the journal decides when it is written."""
        now, journal = time.monotonic(), self.job.journal
        due = journal.path is not None and now - self.saved >= journal.interval
        if due and self.protocol.can_pause(self.state.taken):
            journal.keep(PIECE, self.state.arrays())
            self.saved = now

    def _step(self) -> Step:
        rows, integers = self.state.rows, ("step", "sequences", "clipped")
        new = tuple(
            {name: int(value) if name in integers else value for name, value in zip(COLUMNS, row, strict=True)}
            for row in rows[self.reported :]
        )
        self.reported = len(rows)
        fraction = self.state.taken / self.protocol.length
        return Step(self.vector.model(self.state.point), self.name, fraction, new[-1]["loss"], new)

    def _course(self) -> dict[str, NDArray[Any]]:
        """The course, as it is stored: the table, and the parameters of the snapshots."""
        course: dict[str, NDArray[Any]] = {"table": np.array(self.state.rows).reshape(-1, len(COLUMNS))}
        if self.state.shots:
            course["steps"] = self.protocol.kept()[: len(self.state.shots)]
            models = [self.vector.model(shot).family.arrays for shot in self.state.shots]
            course |= {f"snapshots/{name}": np.array([arrays[name] for arrays in models]) for name in models[0]}
        return course


def risen(column: dict[str, Array]) -> str:
    """Return a remark on a loss that ended far above the lowest one; empty where it did not.

    Args:
        column: The columns of the history by name.

    Returns:
        The remark, from medians of ten rows, which one batch does not change.
    """
    steps, losses = column["step"], column["adjusted_loss"]
    width = min(10, len(losses))
    medians = np.median(np.lib.stride_tricks.sliding_window_view(losses, width), -1)
    best, last = medians.min(), medians[-1]
    if last <= 1.5 * best or last - best <= 0.01 * losses[0]:
        return ""
    when = steps[medians.argmin() + width // 2]
    rise = f"the adjusted loss was {best:.3g} at step {when:,.0f} and is {last:.3g} at the end"
    return f"; {rise}: a smaller rate or clip may help"


def _stops(name: str, value: Any, steps: int) -> Stops:
    if value is None and name == "record":
        return None
    if isinstance(value, Integral):
        return integer(name, value, int(name == "record"), MOST_STEPS)
    many = isinstance(value, Iterable) and not isinstance(value, str) and axes(value) != 0
    if not many or not (steps_given := list(value)):
        remedy = "Give one number, such as 100, or steps, such as 0,100,1000; in Python, steps are a list."
        received = "an empty list" if many else shown(value)
        refuse(f"{name} must be a number or a list with at least one step", received, remedy)
    return tuple(sorted({integer(f"a step of {name}", step, 0, steps) for step in steps_given}))


def _lists(value: Any) -> Any:
    """Tuples as lists, which they are after a journey through JSON."""
    return [_lists(item) for item in value] if isinstance(value, tuple) else value


def norm_of(slope: Array) -> float:
    """Return the Euclidean norm of a gradient, also where squares of its numbers overflow.

    Args:
        slope: The gradient.

    Returns:
        The norm.
    """
    with np.errstate(all="ignore"):
        norm = float(np.sqrt(slope @ slope))
    if math.isfinite(norm):
        return norm
    largest = float(np.abs(slope).max())  # it comes out first, as squares of an explosion overflow
    return largest * float(np.linalg.norm(slope / largest))
