"""Descents whose course is recorded: gradient descent, SGD, Adam and gradient flow, from one start.

A descent is a sequence of states (parameters, memory of the optimiser, number of the step), each a function of the one
before. The last state and all that was recorded are kept in the journal, so a run that was killed goes on to the bit.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.training.gradients import Course
from ridgeformer.training.history import COLUMNS
from ridgeformer.training.job import Found, Job, Report, Step, Steps, follow
from ridgeformer.training.protocols import Adam, Descent, GradientDescent, GradientFlow

__all__ = ["descend_and_record"]

Array = NDArray[np.float64]
PIECE = "descent"  # its name in the journal
TINY = 1e-8  # Adam's usual constant
RESTED = 1e-6  # of the largest gradient: where a descent has converged
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
        self.reported = len(self.state.rows)
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
                why = f"the loss was not finite at step {state.taken:,}"
                return Found(self.vector.model(state.point), False, why, self._recorded())
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
        return Found(self.vector.model(state.point), rested, f"{self.name}: {what}; {end}", self._recorded())

    def _run_to(self, stop: int) -> tuple[float, Array]:
        """Go on to a step; the loss and the gradient there. A loss that is not finite ends the descent before."""
        state, gradient, advance = self.state, self.course.gradient, self._advance
        with np.errstate(all="ignore"):
            while True:
                loss, slope = gradient(state.point, state.taken)
                if state.taken == stop or not math.isfinite(loss):
                    return loss, slope
                new = advance(state, slope)
                if not math.isfinite(float(new @ new)):
                    return math.inf, slope
                state.point = new
                state.taken += 1

    def _advance(self, state: _State, slope: Array) -> Array:
        """The next point."""
        protocol, taken = self.protocol, state.taken
        if isinstance(protocol, GradientFlow):
            return self._flow(protocol, state)
        rate = self.rates[taken]
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
        """From one recorded time to the next."""
        from scipy.integrate import solve_ivp

        def downhill(_: float, point: Array) -> Array:
            if not math.isfinite(float(point @ point)):
                refuse("gradient flow must stay finite", "parameters that overflow", "Pass a smaller scale or time.")
            return -self.course.gradient(point, 0)[1]

        size = float(np.abs(state.point).max()) or 1.0
        span = (float(self.times[state.taken]), float(self.times[state.taken + 1]))
        how: dict[str, Any] = {"method": "LSODA", "rtol": protocol.tolerance, "atol": 1e-3 * protocol.tolerance * size}
        found = solve_ivp(downhill, span, state.point, t_eval=[span[1]], **how)
        return np.asarray(found.y[:, -1] if found.success else np.full_like(state.point, np.nan))

    def _row(self, loss: float, slope: Array) -> tuple[float, ...]:
        taken = self.state.taken
        with np.errstate(all="ignore"):
            norm = float(np.sqrt(slope @ slope))
        whole, adjusted = self.course.both(loss)
        work = self.course.sequences * taken
        return float(taken), float(self.times[taken]), float(work), whole, adjusted, norm, self.job.journal.seconds

    def _keep(self) -> None:
        """Now and then; the journal decides when it is written."""
        now, journal = time.monotonic(), self.job.journal
        if journal.path is not None and now - self.kept >= journal.interval:
            journal.keep(PIECE, self.state.arrays())
            self.kept = now

    def _step(self) -> Step:
        rows = self.state.rows
        new = tuple(dict(zip(COLUMNS, row, strict=True)) for row in rows[self.reported :])
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
