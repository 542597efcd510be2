"""Steps of descents: gradient descent, the same with halved rates, Adam, and gradient flow."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.training.results import COLUMNS

Array = NDArray[np.float64]
Evaluated = tuple[float, Array]  # a loss and its gradient
TINY = 1e-8  # Adam's usual constant
MANY, LEAST = 5000, 1e-4  # a flow that advances less than this share of its way with so many gradients is given up
LEG = 20  # recorded times of a flow that one solver goes through
SMALLEST = 2.0**-60  # of the first rate: where halving is given up
ROUNDING = 1e-9  # of the loss of predicting nothing: a rise of the loss that counts as none


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


class Stepper(ABC):
    """The rule by which a descent goes from one point to the next.

    Attributes:
        clip: The largest norm of a gradient; None for no limit.
    """

    clip: float | None = None

    @abstractmethod
    def advance(self, state: DescentState, loss: float, slope: Array) -> tuple[Array, Evaluated | None]:
        """Compute the next point, and count time and clipped steps in the state.

        Args:
            state: Where the descent is.
            loss: The loss there.
            slope: The gradient there.

        Returns:
            The next point, with NaN where there is none, and its loss and gradient if they are known already.
        """

    def rate(self, state: DescentState) -> float:
        """Return the learning rate of the next step; NaN where there is none.

        Args:
            state: Where the descent is.

        Returns:
            The rate.
        """
        return math.nan

    def can_pause(self, state: DescentState) -> bool:
        """Tell whether a descent can go on from its state alone.

        Args:
            state: Where the descent is.

        Returns:
            False in the middle of a leg of gradient flow.
        """
        return True


class PlainSteps(Stepper):
    """Steps of gradient descent, with momentum.

    Args:
        rates: Learning rates, [steps].
        momentum: What is left of the velocity at every step.
        clip: The largest norm of a gradient; None for no limit.
    """

    def __init__(self, rates: Array, momentum: float, clip: float | None) -> None:
        self.rates, self.momentum, self.clip = rates, momentum, clip

    def rate(self, state: DescentState) -> float:
        """See `Stepper.rate`."""
        return float(self.rates[min(state.taken, len(self.rates) - 1)]) * state.factor

    def advance(self, state: DescentState, loss: float, slope: Array) -> tuple[Array, Evaluated | None]:
        """See `Stepper.advance`. A clipped step is one of plain gradient descent at a smaller rate."""
        rate, (slope, share) = self.rate(state), self._clipped(state, slope)
        state.time += math.nan if self.momentum else rate * share
        if self.momentum:
            state.velocity = slope = self.momentum * state.velocity + slope
        return np.asarray(state.point - rate * slope), None

    def _clipped(self, state: DescentState, slope: Array) -> tuple[Array, float]:
        """The gradient with a norm that is at most the clip, and the factor that makes it so."""
        if self.clip is None or (norm := norm_of(slope)) <= self.clip:
            return slope, 1.0
        state.clipped += 1
        return slope * (self.clip / norm), self.clip / norm


class HalvingSteps(PlainSteps):
    """Steps of gradient descent; a step that would raise the loss is not taken, and all later rates are halved.

    Args:
        rates: Learning rates before any halving, [steps].
        gradient: The loss and the gradient at a point, the same function in all steps.
        tolerance: A rise of the loss that counts as none.
    """

    def __init__(self, rates: Array, gradient: Callable[[Array, int], Evaluated], tolerance: float) -> None:
        super().__init__(rates, 0.0, None)
        self.gradient, self.tolerance = gradient, tolerance

    def advance(self, state: DescentState, loss: float, slope: Array) -> tuple[Array, Evaluated | None]:
        """See `Stepper.advance`."""
        while state.factor > SMALLEST:
            point = np.asarray(state.point - self.rate(state) * slope)
            known = self.gradient(point, state.taken + 1)
            if known[0] <= loss + self.tolerance:
                state.time += self.rate(state)
                return point, known
            state.factor /= 2
        return np.full_like(state.point, np.nan), None


class AdamSteps(PlainSteps):
    """Steps of Adam.

    Args:
        rates: Learning rates, [steps].
        first: The forgetting factor of the gradient.
        second: The forgetting factor of the squared gradient.
        clip: The largest norm of a gradient; None for no limit.
    """

    def __init__(self, rates: Array, first: float, second: float, clip: float | None) -> None:
        super().__init__(rates, first, clip)
        self.second = second

    def advance(self, state: DescentState, loss: float, slope: Array) -> tuple[Array, Evaluated | None]:
        """See `Stepper.advance`."""
        slope, _ = self._clipped(state, slope)
        state.time = math.nan
        state.velocity += (1 - self.momentum) * (slope - state.velocity)
        state.square += (1 - self.second) * (slope * slope - state.square)
        size = np.sqrt(state.square / (1 - self.second ** (state.taken + 1))) + TINY
        rate = self.rate(state) / (1 - self.momentum ** (state.taken + 1))
        return np.asarray(state.point - rate * state.velocity / size), None


class _LostError(Exception):
    """A flow overflows, or its steps become too small."""


class FlowSteps(Stepper):
    """Gradient flow from one recorded time to the next; a leg of them is integrated at once.

    Args:
        times: The recorded times, the first of which is 0, [steps + 1].
        gradient: The loss and the gradient at a point, the same function at all times.
        tolerance: The relative error of the parameters that one step of the integration may make.
    """

    def __init__(self, times: Array, gradient: Callable[[Array, int], Evaluated], tolerance: float) -> None:
        self.times, self.gradient, self.tolerance = times, gradient, tolerance
        self.leg: list[Array] = []  # points at the recorded times to come

    def can_pause(self, state: DescentState) -> bool:
        """See `Stepper.can_pause`."""
        return state.taken % LEG == 0

    def advance(self, state: DescentState, loss: float, slope: Array) -> tuple[Array, Evaluated | None]:
        """See `Stepper.advance`."""
        self.leg = self.leg or self._integrated(state)
        if not self.leg:
            return np.full_like(state.point, np.nan), None
        state.time = float(self.times[state.taken + 1])
        return self.leg.pop(0), None

    def _integrated(self, state: DescentState) -> list[Array]:
        """The points at the recorded times of a leg, as far as the flow can be followed."""
        from scipy.integrate import LSODA

        asked: list[float] = []  # the times at which gradients were asked for
        points: list[Array] = []

        def downhill(now: float, point: Array) -> Array:
            asked.append(now)
            interval = self.times[state.taken + 1] - self.times[state.taken]
            stuck = len(asked) % MANY == 0 and now - asked[-MANY] < LEAST * interval
            if stuck or not math.isfinite(float(point @ point)):
                raise _LostError
            return -self.gradient(point, 0)[1]

        leg = self.times[state.taken :][: LEG - state.taken % LEG + 1].tolist()
        size = float(np.abs(state.point).max()) or 1.0
        with warnings.catch_warnings(), suppress(_LostError):
            warnings.simplefilter("ignore")  # of LSODA, which also says whether it failed
            error = 1e-3 * self.tolerance * size
            solver = LSODA(downhill, leg[0], state.point, leg[-1], rtol=self.tolerance, atol=error)
            for goal in leg[1:]:
                while solver.t < goal:
                    solver.step()
                    if solver.status == "failed":
                        return points
                points.append(np.asarray(solver.dense_output()(goal)))
        return points


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
