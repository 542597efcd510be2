"""Descents whose course is recorded: gradient descent, SGD, Adam and gradient flow, from one start.

A descent is a sequence of states (parameters, memory of the optimiser, number of the step), each a function of the one
before. The last state and all that was recorded are kept in the journal, so a run that was killed goes on to the bit.
"""

from __future__ import annotations

import math
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.losses import CAP
from ridgeformer.training.gradients import Course
from ridgeformer.training.history import COLUMNS
from ridgeformer.training.job import Found, Job, Report, Step, Steps, follow
from ridgeformer.training.protocols import Adam, Descent, GradientDescent, GradientFlow, sample_size

__all__ = ["descend_and_record"]

Array = NDArray[np.float64]
PIECE = "descent"  # its name in the journal
TINY = 1e-8  # Adam's usual constant
RESTED = 1e-6  # of the largest gradient: where a descent has converged
MANY, LEAST = 5000, 1e-4  # a flow that advances less than this share of its way with so many gradients is given up
LEG = 20  # recorded times of a flow that one solver goes through
PAUSE = 0.05  # seconds between two reports, at least


def descend_and_record(job: Job, protocol: Descent, report: Report) -> Found:
    """Descend from a given or a random start, and record the course.

    Args:
        job: What to find; its `init` is the start, if there is one.
        protocol: How to descend, and what to record.
        report: Is called with the steps that were recorded, several at a time.

    Returns:
        The last model, with the course.
    """
    return follow(_Walk(job, protocol).steps(), report)


class _LostError(Exception):
    """A flow overflows, or its steps become too small."""


@dataclass(eq=False)
class _State:
    """Where a descent is, and what was recorded on the way."""

    point: Array
    velocity: Array
    square: Array
    taken: int = 0
    rows: list[tuple[float, ...]] = field(default_factory=list)
    shots: list[Array] = field(default_factory=list)

    @classmethod
    def restored(cls, kept: dict[str, NDArray[Any]]) -> _State:
        point, velocity, square = (kept[name].copy() for name in ("point", "velocity", "square"))
        rows, shots = [tuple(row) for row in kept["rows"].tolist()], list(kept["shots"])
        return cls(point, velocity, square, int(kept["taken"][0]), rows, shots)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "point": self.point.copy(),
            "velocity": self.velocity.copy(),
            "square": self.square.copy(),
            "taken": np.array([self.taken]),
            "rows": np.array(self.rows).reshape(-1, len(COLUMNS)),
            "shots": np.array(self.shots).reshape(-1, len(self.point)),
        }


class _Walk:
    """A descent of a job by a protocol."""

    def __init__(self, job: Job, protocol: Descent) -> None:
        start = job.start(protocol.scale)
        self.job, self.protocol, self.course = job, protocol, Course(job, protocol, start)
        self.vector = self.course.vector
        self.name = type(protocol).__name__
        kept = job.journal.recall(PIECE)
        point = self.vector.pack(start)
        self.state = _State.restored(kept) if kept else _State(point, np.zeros_like(point), np.zeros_like(point))
        if isinstance(protocol, GradientDescent):
            self.rates = protocol.rates()
            self.times = np.append(0.0, np.cumsum(self.rates))
        else:
            self.times = protocol.times()
        self.here: tuple[float, Array] | None = None  # the loss and its gradient at the point, once they are known
        self.clip = protocol.clip if isinstance(protocol, GradientDescent) else None
        self.leg: list[Array] = []  # points of a flow at the recorded times to come
        self.reported = 0  # of a resumed run, callbacks are told the whole course
        self.clock = self.kept = -math.inf

    def steps(self) -> Steps:
        """Take all steps; stop at those that are recorded or kept."""
        protocol, state = self.protocol, self.state
        kept = protocol.kept()
        recorded, shot = set(protocol.recorded().tolist()), set(kept.tolist())
        stops = sorted(stop for stop in recorded | shot if stop >= state.taken)
        for stop in stops:
            loss, slope = self._run_to(stop)
            if not math.isfinite(loss):
                if len(state.rows) > self.reported:
                    yield self._step()
                return Found(self.vector.model(state.point), False, self._lost(), self._recorded(), lost=True)
            if stop in recorded and not (state.rows and state.rows[-1][0] >= stop):
                state.rows.append(self._row(loss, slope))
            if stop in shot and len(state.shots) < int((kept <= stop).sum()):
                state.shots.append(state.point.copy())
            self._keep()
            now = time.monotonic()
            if len(state.rows) > self.reported and (now - self.clock >= PAUSE or stop == protocol.steps):
                yield self._step()
                self.clock = now
        losses, norms = (np.array(state.rows)[:, COLUMNS.index(name)] for name in ("loss", "gradient_norm"))
        rested = bool(norms[-1] <= RESTED * norms[losses <= losses[0]].max())  # not beside those of an explosion
        end = "converged" if rested else f"ended with a gradient of {norms[-1]:.3g}"
        what = f"time {protocol.time:g}" if isinstance(protocol, GradientFlow) else f"{protocol.steps:,} steps"
        message = f"{self.name} on {_words(protocol)}: {what}; {end}{_risen(np.array(state.rows))}"
        return Found(self.vector.model(state.point), rested, message, self._recorded())

    def _lost(self) -> str:
        """Why a descent ended before its time, in words."""
        if isinstance(self.protocol, GradientFlow):
            reached = f"the flow could not be followed beyond time {self.times[self.state.taken]:.3g}"
            return f"{reached}; a smaller scale of the start or an earlier end time may help"
        return f"the loss was not finite at step {self.state.taken:,}"

    def _run_to(self, stop: int) -> tuple[float, Array]:
        """Go on to a step; the loss and the gradient there. A loss that is not finite ends the descent before.

        Where gradients are clipped, such a loss counts as `CAP`, and the descent goes on with what engines leave in the
        gradient, if there is anything.
        """
        state, gradient, advance = self.state, self.course.gradient, self._advance
        with np.errstate(all="ignore"):
            while True:
                loss, slope = self.here = self.here or gradient(state.point, state.taken)
                if self.clip is not None and not loss <= CAP and slope.any():
                    loss = CAP
                if state.taken == stop or not math.isfinite(loss):
                    return loss, slope
                new = advance(state, slope)
                if not math.isfinite(float(new @ new)):
                    return math.inf, slope
                state.point, self.here = new, None
                state.taken += 1

    def _advance(self, state: _State, slope: Array) -> Array:
        """The next point."""
        protocol, taken = self.protocol, state.taken
        if isinstance(protocol, GradientFlow):
            return self._flow(protocol, state)
        rate = self.rates[taken]
        if self.clip is not None:
            slope = _clipped(slope, self.clip)
        if isinstance(protocol, Adam):
            first, second = protocol.momentum, protocol.second
            state.velocity += (1 - first) * (slope - state.velocity)
            state.square += (1 - second) * (slope * slope - state.square)
            size = np.sqrt(state.square / (1 - second ** (taken + 1))) + TINY
            return np.asarray(state.point - rate / (1 - first ** (taken + 1)) * state.velocity / size)
        if protocol.momentum:
            state.velocity = slope = protocol.momentum * state.velocity + slope
        return np.asarray(state.point - rate * slope)

    def _flow(self, protocol: GradientFlow, state: _State) -> Array:
        """From one recorded time to the next: a leg of them is integrated at once."""
        if not self.leg:
            self.leg = self._integrated(protocol, state)
        return self.leg.pop(0) if self.leg else np.full_like(state.point, np.nan)

    def _integrated(self, protocol: GradientFlow, state: _State) -> list[Array]:
        """The points at the recorded times of a leg, as far as the flow can be followed."""
        last = min((state.taken // LEG + 1) * LEG, protocol.steps)
        found: list[Array] = []
        with warnings.catch_warnings(), suppress(_LostError):
            warnings.simplefilter("ignore")  # of LSODA, which also says whether it failed
            solver = self._solver(protocol, state, last)
            for goal in self.times[state.taken + 1 : last + 1]:
                while solver.t < goal:
                    solver.step()
                    if solver.status == "failed":
                        return found
                found.append(np.asarray(solver.dense_output()(goal)))
        return found

    def _solver(self, protocol: GradientFlow, state: _State, last: int) -> Any:
        """What integrates a leg; most gradients of a solver are spent on finding its first steps."""
        from scipy.integrate import LSODA

        asked: list[float] = []  # the times at which gradients were asked for

        def downhill(now: float, point: Array) -> Array:
            asked.append(now)
            interval = self.times[state.taken + 1] - self.times[state.taken]
            stuck = len(asked) % MANY == 0 and now - asked[-MANY] < LEAST * interval
            if stuck or not math.isfinite(float(point @ point)):
                raise _LostError
            return -self.course.gradient(point, 0)[1]

        size = float(np.abs(state.point).max()) or 1.0
        how: dict[str, Any] = {"rtol": protocol.tolerance, "atol": 1e-3 * protocol.tolerance * size}
        return LSODA(downhill, float(self.times[state.taken]), state.point, float(self.times[last]), **how)

    def _row(self, loss: float, slope: Array) -> tuple[float, ...]:
        taken = self.state.taken
        whole, adjusted = self.course.both(loss)
        work = self.course.sequences * taken
        return (
            float(taken),
            float(self.times[taken]),
            float(work),
            whole,
            adjusted,
            _norm(slope),
            self.job.journal.seconds,
        )

    def _keep(self) -> None:
        """Now and then, and in a flow between legs: a solver cannot be kept. The journal decides when it is written."""
        now, journal = time.monotonic(), self.job.journal
        if isinstance(self.protocol, GradientFlow) and self.state.taken % LEG:
            return
        if journal.path is not None and now - self.kept >= journal.interval:
            journal.keep(PIECE, self.state.arrays())
            self.kept = now

    def _step(self) -> Step:
        rows = self.state.rows
        whole = ("step", "sequences")
        new = tuple(
            {name: int(value) if name in whole else value for name, value in zip(COLUMNS, row, strict=True)}
            for row in rows[self.reported :]
        )
        self.reported = len(rows)
        fraction = self.state.taken / self.protocol.steps
        return Step(self.vector.model(self.state.point), self.name, fraction, new[-1]["loss"], new)

    def _recorded(self) -> dict[str, NDArray[Any]]:
        """The course, as it is stored: the table, and the parameters of the snapshots."""
        rows = np.array(self.state.rows).reshape(-1, len(COLUMNS))
        found: dict[str, NDArray[Any]] = {"table": rows}
        if self.state.shots:
            found["steps"] = self.protocol.kept()[: len(self.state.shots)]
            models = [self.vector.model(shot).family.arrays for shot in self.state.shots]
            found |= {f"snapshots/{name}": np.array([arrays[name] for arrays in models]) for name in models[0]}
        return found


def _clipped(slope: Array, most: float) -> Array:
    """The gradient, scaled down to a norm."""
    norm = _norm(slope)
    return slope * (most / norm) if norm > most else slope


def _norm(slope: Array) -> float:
    with np.errstate(all="ignore"):
        norm = float(np.sqrt(slope @ slope))
    if math.isfinite(norm):
        return norm
    largest = float(np.abs(slope).max())  # it comes out first, as squares of an explosion overflow
    return largest * float(np.linalg.norm(slope / largest))


def _risen(rows: Array) -> str:
    """A remark on a loss that ended far above the lowest one: medians of ten rows, which one batch does not change."""
    steps, losses = rows[:, COLUMNS.index("step")], rows[:, COLUMNS.index("adjusted_loss")]
    width = min(10, len(losses))
    medians = np.median(np.lib.stride_tricks.sliding_window_view(losses, width), -1)
    best, last = medians.min(), medians[-1]
    if last <= 1.5 * best or last - best <= 0.01 * losses[0]:
        return ""
    when = steps[medians.argmin() + width // 2]
    risen = f"the adjusted loss was {best:.3g} at step {when:,.0f} and is {last:.3g} at the end"
    return f"; {risen}: a smaller rate or clip may help"


def _words(protocol: Descent) -> str:
    """What gradients are taken of, in words."""
    if size := sample_size(protocol.batch):
        return f"a fixed sample of {size:,} sequences"
    return f"{protocol.batch:,} fresh sequences per step" if isinstance(protocol.batch, int) else "the population"
