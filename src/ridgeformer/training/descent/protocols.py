"""Descents as protocols: gradient descent, SGD, Adam and gradient flow, which show how a model learns.

>>> from ridgeformer import Problem, train
>>> run = train(Problem(2, 4, "fixed(1)"), "diag", 1, protocol=GradientDescent(rate=0.01, steps=100), sequences=500)
>>> int(run.history.step[-1]), run.snapshots[-1].step
(100, 100)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse, shown
from ridgeformer.training.descent.averages import Average
from ridgeformer.training.descent.walk import MOST_STEPS, TINY, Descent, DescentState, Evaluated, Walk, norm_of
from ridgeformer.training.job import Units
from ridgeformer.training.spec import Spec
from ridgeformer.validation import flag, integer, keywords, number, positive

Schedule = str | tuple[tuple[int, float], ...] | Callable[[int], float]
SCHEDULES = ("constant", "linear", "cosine")
MOST_CALLS = 20_000  # of a schedule that is a function
PAIRS = "Write cosine, [(0, 1.0), (5000, 0.1)], or a function of the step, for example."
RATE, ADAM_RATE, CLIP = 0.1, 0.002, 0.1  # in natural units
SMALLEST = 2.0**-60  # of the first rate: where halving is given up
ROUNDING = 1e-9  # of the loss of predicting nothing: a rise of the loss that counts as none
Array = NDArray[np.float64]


@keywords()
@dataclass(frozen=True, kw_only=True)
class GradientDescent(Descent):
    """Plain gradient descent, with momentum if wanted, from one start: to watch how a model learns.

    Parameters are those of the family, in their own units. A step is v <- momentum v + gradient, then parameters <-
    parameters - rate v.

    Attributes:
        rate: The learning rate; None for one that follows from the sizes of the problem. The spec of a run says which.
        steps: How many steps.
        batch: The sequences over which the loss is averaged. `Population()`: the exact expectation over all sequences,
            known for one layer and features with one covariance; `Sample(8192)`: the mean over that many sequences, the
            same in all steps; `Fresh(512)`: the mean over that many fresh sequences in every step. The texts
            `population` and `sample(8192)` and the number 512 mean the same. None for the population where it is known,
            and `Sample(8192)` elsewhere; the spec of a run says which.
        momentum: From 0 to below 1.
        schedule: What the rate is multiplied by: `constant`; `linear` or `cosine`, which fall to 0 at the last step; or
            pairs (step, factor) of any shape, with straight lines between them. A function of the number of the step is
            called once for every step, and becomes such pairs; there may be 20,000 at most.
        warmup: Number of steps at the start in which the rate rises in proportion to the number of the step.
        clip: The largest norm of a gradient: a longer one is scaled down to it before the step, and a batch that
            contains a sequence whose loss overflows does not end the descent. None: no clipping if there is a rate or
            if rates are halved, otherwise a clip that follows from the sizes of the problem. Infinity: no clipping. The
            history has the norms before clipping, and the number of clipped steps.
        halving: Whether a step that would raise the loss is not taken, and all later rates are halved: plain gradient
            descent wherever that is stable. None for yes where no rate is given, the loss is the same function in all
            steps, and there is neither momentum nor a clip.
        scale: The standard deviation of the numbers of a random start; None for the one that the problem suggests.
            Without meaning where training starts from a given model.
        record: Which steps enter the history: a list of steps, or the distance between two of them;
            None for about 1,000 in all. The first and the last always do.
        snapshots: The steps whose parameters are kept: a list of steps, or their number, evenly spaced from the start
            to the end; 0 for none.

    Raises:
        InputError: A value is outside its range.
    """

    name: ClassVar[str] = "descent"

    rate: float | None = None
    steps: int = 10_000
    momentum: float = 0.0
    schedule: Schedule = "constant"
    warmup: int = 0
    clip: float | None = None
    halving: bool | None = None

    def __post_init__(self) -> None:
        if self.rate is not None:
            positive("the learning rate", self.rate, 0.0005)
        if self.clip is not None:
            object.__setattr__(self, "clip", _checked_clip(self.clip))  # 2 and 2.0 are one run
        integer("steps", self.steps, 1, MOST_STEPS)
        integer("warmup", self.warmup, 0, self.steps)
        if not 0 <= number("momentum", self.momentum) < 1:
            refuse("momentum must lie in [0, 1)", self.momentum, "Pass 0.9, for example.")
        halving, average = self.halving, None if self.batch is None else self.average
        if halving is not None and flag("halving", halving) and not self._can_halve(average):
            rule = "rates are halved where plain gradient descent follows one function"
            refuse(rule, "fresh sequences, momentum or a clip", "Leave out halving.")
        super().__post_init__()
        if not isinstance(self.schedule, str):
            pairs = _tabulated(self.schedule, self.steps) if callable(self.schedule) else self.schedule
            object.__setattr__(self, "schedule", _pairs(pairs))
        elif self.schedule not in SCHEDULES:
            refuse(f"the schedule must be {', '.join(SCHEDULES)} or a list of pairs", shown(self.schedule), PAIRS)

    def _can_halve(self, average: Average | None) -> bool:
        """Whether the loss of plain gradient descent falls at every step of a small rate."""
        fixed = average is None or not average.sequences
        return fixed and not self.momentum and self.clip in (None, np.inf)

    @property
    def length(self) -> int:
        """See `Descent.length`."""
        return self.steps

    @property
    def clips(self) -> bool:
        """See `Descent.clips`."""
        return self.clip is not None

    def rates(self) -> NDArray[np.float64]:
        """Return the learning rate of every step.

        Returns:
            The rates, [steps].

        Raises:
            InputError: The rate is None: it is known when there is a problem.
        """
        if self.rate is None:
            remedy = "Choose one, or ask the spec of a run, run.spec.protocol."
            refuse("the rates of a descent need a rate", None, remedy)
        steps = np.arange(self.steps)
        if isinstance(self.schedule, tuple):
            factors = np.interp(steps, *np.array(self.schedule, np.float64).T)
        else:
            left = 1 - steps / self.steps
            shapes = {"constant": np.ones(self.steps), "linear": left, "cosine": 0.5 - 0.5 * np.cos(np.pi * left)}
            factors = shapes[str(self.schedule)]
        return np.asarray(self.rate * factors * np.minimum(1.0, (steps + 1) / (self.warmup + 1)))

    def recorded(self) -> NDArray[np.int64]:
        """See `Descent.recorded`."""
        every = max(self.steps // 1000, 1) if self.record is None else self.record
        steps = range(0, self.steps + 1, every) if isinstance(every, int) else every
        return np.unique(np.array([0, *steps, self.steps]))

    def as_dict(self) -> dict[str, Any]:
        """See `Protocol.as_dict`: without clip and halving where there is none, as in earlier versions."""
        absent = {"clip": None, "halving": None} if self.halving is None else {"clip": None, "halving": False}
        return {name: value for name, value in super().as_dict().items() if absent.get(name, "") != value}

    def complete(self, spec: Spec) -> Spec:
        """See `Protocol.complete`: also the rate, and with it halving or a clip."""
        spec = super().complete(spec)
        protocol = spec.protocol
        assert isinstance(protocol, GradientDescent)
        rate, clip, halving = self.rate, self.clip, bool(self.halving)
        if rate is None:
            halving = self._can_halve(protocol.average) if self.halving is None else halving
            rate, suggested = self._natural(spec)
            clip = None if halving else suggested if clip is None else clip
        clip = None if clip == np.inf else clip
        return dataclasses.replace(spec, protocol=dataclasses.replace(protocol, rate=rate, clip=clip, halving=halving))

    def _natural(self, spec: Spec) -> tuple[float, float]:
        """The rate and the clip that the sizes of a problem suggest.

        In natural units (`training.job.Units`) parameters are of the order of one, and a loss is measured in
        signals, the mean square of what is to be predicted. There one rate and one clip fit all numbers of examples,
        dimensions and kinds of attention. With a parameter of natural size s, a gradient of size signal / s moves it by
        its own size if the rate is s^2 / signal. Three digits: last bits of a sampled signal must not decide the name
        of a run.
        """
        units, family = Units(spec.problem, spec.layout), spec.example() if spec.init is None else spec.init.family
        size = min([1.0, *(float(abs(f).min()) for f in units.sizes(family).values())]) / units.scale
        signal = spec.problem.signal
        return float(f"{self._rate(size, signal):.3g}"), float(f"{CLIP * signal / size:.3g}")

    def _rate(self, size: float, signal: float) -> float:
        return RATE * (1 - self.momentum) * size**2 / signal

    def advance(self, walk: Walk, loss: float, slope: Array) -> tuple[Array, Evaluated | None]:
        """See `Descent.advance`. A clipped step is one of plain gradient descent at a smaller rate."""
        if self.halving:
            return self._halved(walk, loss, slope)
        state, rate = walk.state, walk.rate()
        slope, share = self._clipped(state, slope)
        state.time += math.nan if self.momentum else rate * share
        if self.momentum:
            state.velocity = slope = self.momentum * state.velocity + slope
        return np.asarray(state.point - rate * slope), None

    def _halved(self, walk: Walk, loss: float, slope: Array) -> tuple[Array, Evaluated | None]:
        """A step that does not raise the loss: as long as it would, this and all later rates are halved."""
        state, most = walk.state, loss + ROUNDING * walk.job.problem.signal
        while state.factor > SMALLEST:
            point = np.asarray(state.point - walk.rate() * slope)
            evaluated = walk.objective.gradient(point, state.taken + 1)
            if evaluated[0] <= most:
                state.time += walk.rate()
                return point, evaluated
            state.factor /= 2
        return np.full_like(state.point, np.nan), None

    def _clipped(self, state: DescentState, slope: Array) -> tuple[Array, float]:
        """The gradient with a norm that is at most the clip, and the factor that makes it so."""
        if self.clip is None or (norm := norm_of(slope)) <= self.clip:
            return slope, 1.0
        state.clipped += 1
        return slope * (self.clip / norm), self.clip / norm

    def describe_length(self) -> str:
        """See `Descent.describe_length`."""
        return f"{self.steps:,} steps"

    def describe_end(self, taken: int) -> str:
        """See `Descent.describe_end`."""
        return f"the loss was not finite at step {taken:,}"

    def advice(self) -> str:
        """See `Protocol.advice`."""
        clip = "" if self.clip is None else f" with a clip of {self.clip:.3g}"
        return "" if self.rate is None else f"; a rate of {self.rate / 10:.3g}{clip} may help"


@keywords()
@dataclass(frozen=True, kw_only=True)
class SGD(GradientDescent):
    """Stochastic gradient descent: `GradientDescent` with fresh sequences in every step unless told otherwise.

    Attributes:
        batch: As for `GradientDescent`; by default 512 fresh sequences per step.
    """

    name: ClassVar[str] = "sgd"

    batch: Average | str | int | None = 512


@keywords()
@dataclass(frozen=True, kw_only=True)
class Adam(GradientDescent):
    """Adam from one start; `momentum` is the forgetting factor of the gradient.

    Attributes:
        batch: As for `GradientDescent`; by default 512 fresh sequences per step.
        momentum: The forgetting factor of the gradient, often called beta_1.
        second: The forgetting factor of the squared gradient, often called beta_2.
    """

    name: ClassVar[str] = "adam"

    batch: Average | str | int | None = 512
    momentum: float = 0.9
    second: float = 0.999

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= number("second", self.second) < 1:
            refuse("second must lie in [0, 1)", self.second, "Pass 0.999, for example.")

    def _can_halve(self, average: Average | None) -> bool:
        return False

    def _rate(self, size: float, signal: float) -> float:
        return ADAM_RATE * size  # the steps of Adam are as long as its rate, whatever the gradient is

    def advance(self, walk: Walk, loss: float, slope: Array) -> tuple[Array, Evaluated | None]:
        """See `Descent.advance`."""
        state = walk.state
        slope, _ = self._clipped(state, slope)
        state.time = math.nan
        state.velocity += (1 - self.momentum) * (slope - state.velocity)
        state.square += (1 - self.second) * (slope * slope - state.square)
        size = np.sqrt(state.square / (1 - self.second ** (state.taken + 1))) + TINY
        rate = walk.rate() / (1 - self.momentum ** (state.taken + 1))
        return np.asarray(state.point - rate * state.velocity / size), None


def _checked_clip(value: object) -> float:
    if type(value) is not bool and isinstance(value, Real) and (clip := number("clip", value, -math.inf)) > 0:
        return clip
    refuse("clip must be positive", shown(value), "Pass 1, for example, or infinity for no clipping.")


def _tabulated(schedule: Callable[[int], float], steps: int) -> list[tuple[int, float]]:
    """A function of the step as pairs; those within a straight line are left out."""
    if steps > MOST_CALLS:
        rule = f"a schedule that is a function is tabulated, for at most {MOST_CALLS:,} steps"
        refuse(rule, f"{steps:,} steps", "Pass pairs (step, factor) instead.")
    factors = np.array([number("a factor of the schedule", schedule(step)) for step in range(steps)])
    corners = np.flatnonzero(np.concatenate([[True], np.diff(factors, 2) != 0, [True]])[:steps])
    return list(zip(corners.tolist(), factors[corners].tolist(), strict=True))


def _pairs(schedule: object) -> tuple[tuple[int, float], ...]:
    try:
        pairs = [(step, factor) for step, factor in schedule]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        refuse("a schedule must be a name or pairs (step, factor)", shown(schedule), PAIRS)
    step_of, factor_of = "a step of the schedule", "a factor of the schedule"
    checked = tuple((integer(step_of, step, 0), number(factor_of, factor)) for step, factor in pairs)
    if not checked or any(b <= a for (a, _), (b, _) in pairwise(checked)):
        refuse("the steps of a schedule must ascend, and there must be one", shown(checked), PAIRS)
    return checked
