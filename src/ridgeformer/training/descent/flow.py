"""Gradient flow: gradient descent with infinitely small steps, integrated from one recorded time to the next."""

from __future__ import annotations

import contextlib
import math
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.training.descent.walk import Descent, Evaluated, Stops, Walk
from ridgeformer.validation import integer, keywords, number, positive

MANY, LEAST = 5000, 1e-4  # a flow that advances less than this share of its way with so many gradients is given up
LEG = 20  # recorded times of a flow that one solver goes through
Array = NDArray[np.float64]


@keywords()
@dataclass(frozen=True, kw_only=True)
class GradientFlow(Descent):
    """Gradient flow, d parameters / dt = -gradient: gradient descent with infinitely small steps.

    It is integrated by `scipy.integrate.LSODA`, which adapts its steps and changes to an implicit method
    where the equations are stiff. Time t is that of gradient descent after t / rate steps.

    Attributes:
        time: How long.
        batch: `Population()`, `Sample(8192)`, or None for the first of these that is known; see `GradientDescent`.
        tolerance: The relative error of the parameters that one step of the integration may make.
        scale: As for `GradientDescent`.
        record: How many times enter the history, besides the start: powers of ten apart evenly and ending at `time`. A
            step of the history is the number of such a time.
        snapshots: As for `GradientDescent`: a number, or a list of numbers of recorded times.

    Raises:
        InputError: A value is outside its range.
    """

    name: ClassVar[str] = "flow"
    axis: ClassVar[str] = "time"
    follows_one_function: ClassVar[bool] = True

    time: float = 1000.0
    tolerance: float = 1e-8
    record: Stops = 200

    def __post_init__(self) -> None:
        positive("the time of gradient flow", self.time, 1000)
        if not 1e-13 <= number("tolerance", self.tolerance) <= 1e-2:
            refuse("the tolerance must lie between 1e-13 and 0.01", self.tolerance, "Pass 1e-8, for example.")
        integer("record", self.record, 1, 100_000)
        super().__post_init__()
        if self.batch is not None and self.average.sequences:
            remedy = "Use a fixed sample, such as sample(8192), or stochastic gradient descent, SGD."
            refuse("gradient flow follows one function; the batch is population or sample(N)", self.batch, remedy)

    @property
    def length(self) -> int:
        """See `Descent.length`: one step for each recorded time."""
        return integer("record", self.record)

    def times(self) -> NDArray[np.float64]:
        """Return the recorded times: 0, then four decades up to the end, [length + 1]."""
        return np.append(0.0, self.time * np.geomspace(1e-4, 1.0, self.length) if self.length > 1 else self.time)

    def recorded(self) -> NDArray[np.int64]:
        """See `Descent.recorded`."""
        return np.arange(self.length + 1)

    def can_pause(self, taken: int) -> bool:
        """See `Descent.can_pause`."""
        return taken % LEG == 0

    def advance(self, walk: Walk, loss: float, slope: Array) -> tuple[Array, Evaluated | None]:
        """See `Descent.advance`: from one recorded time to the next; a leg of them is integrated at once."""
        state, times = walk.state, self.times()
        walk.leg = walk.leg or self._integrated(walk, times[state.taken :][: LEG - state.taken % LEG + 1])
        if not walk.leg:
            return np.full_like(state.point, np.nan), None
        state.time = float(times[state.taken + 1])
        return walk.leg.pop(0), None

    def _integrated(self, walk: Walk, times: Array) -> list[Array]:
        """The points at the recorded times of a leg, as far as the flow can be followed."""
        from scipy.integrate import LSODA

        asked: list[float] = []  # the times at which gradients were asked for
        points: list[Array] = []

        def downhill(now: float, point: Array) -> Array:
            asked.append(now)
            stuck = len(asked) % MANY == 0 and now - asked[-MANY] < LEAST * (times[1] - times[0])
            if stuck or not math.isfinite(float(point @ point)):
                raise _LostError
            return -walk.objective.gradient(point, 0)[1]

        start = walk.state.point
        with warnings.catch_warnings(), contextlib.suppress(_LostError):
            warnings.simplefilter("ignore")  # of LSODA, which also says whether it failed
            error = 1e-3 * self.tolerance * (float(np.abs(start).max()) or 1.0)
            solver = LSODA(downhill, float(times[0]), start, float(times[-1]), rtol=self.tolerance, atol=error)
            for goal in times[1:].tolist():
                while solver.t < goal:
                    solver.step()
                    if solver.status == "failed":
                        return points
                points.append(np.asarray(solver.dense_output()(goal)))
        return points

    def describe_length(self) -> str:
        """See `Descent.describe_length`."""
        return f"time {self.time:g}"

    def describe_end(self, taken: int) -> str:
        """See `Descent.describe_end`."""
        reached = f"the flow could not be followed beyond time {self.times()[taken]:.3g}"
        return f"{reached}; a smaller scale of the start or an earlier end time may help"


class _LostError(Exception):
    """A flow overflows, or its steps become too small."""
