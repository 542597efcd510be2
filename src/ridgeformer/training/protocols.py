"""Ways to train, as values: our search, the paper's, and descents whose course is recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse, shown
from ridgeformer.validation import integer, number

__all__ = [
    "SGD",
    "Adam",
    "Descent",
    "GradientDescent",
    "GradientFlow",
    "Paper",
    "Protocol",
    "Search",
    "as_protocol",
    "sample_size",
]

MOST_STEPS = 10**9
MOST_CALLS = 20_000  # of a schedule that is a function
PAIRS = "Write cosine, [(0, 1.0), (5000, 0.1)], or a function of the step, for example."
BATCHES = "Write population, sample(8192) or 512, for example."


@dataclass(frozen=True, kw_only=True)
class Search:
    """Our protocol; nothing in it needs tuning.

    Attributes:
        effort: How many starts and steps, relative to the default.
        caution: How much contexts on which a model explodes count in the objective, relative to the default. With 0
            they are ignored: losses are then a few percent lower on nearly every sequence, and huge on one in a
            million.
        precision: What descents compute in: `float32`, `float64` or `auto`. With `auto` BFGS (few parameters) uses
            float64, and other descents use it where losses come near float32's rounding. Selection and the reported
            loss are always float64.
        seconds: Stop after this time, with the best model so far; None for no limit. Such a run cannot be repeated bit
            for bit. Every model it is grown from gets a part of the time. What was found last may still explode, and is
            then not chosen.

    Raises:
        InputError: A value is outside its range.
    """

    effort: float = 1.0
    caution: float = 1.0
    precision: str = "auto"
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not 0 < number("effort", self.effort) <= 1000:
            refuse("effort must lie in (0, 1000]", self.effort, "Pass 1 for the default.")
        if not number("caution", self.caution) <= 1000:
            refuse("caution must lie in [0, 1000]", self.caution, "Pass 1 for the default.")
        if self.precision not in ("auto", "float32", "float64"):
            refuse("precision must be auto, float32 or float64", repr(self.precision), "Choose one of these.")
        if self.seconds is not None and not number("seconds", self.seconds) > 0:
            refuse("seconds must be positive", self.seconds, "Pass the time that training may take, or None.")


@dataclass(frozen=True, kw_only=True)
class Paper:
    """What the paper did: the query loss, Adam, a constant rate, one small random start.

    Attributes:
        steps: Steps of Adam.
        batch: Sequences per step.
        rate: The learning rate.

    Raises:
        InputError: A value is outside its range.
    """

    steps: int = 200_000
    batch: int = 2048
    rate: float = 1e-4

    def __post_init__(self) -> None:
        integer("steps", self.steps)
        integer("batch", self.batch, 1, 1 << 24)
        _check_positive("the learning rate", self.rate, 1e-4)


Batch = int | str
Stops = int | tuple[int, ...] | None
Schedule = str | tuple[tuple[int, float], ...] | Callable[[int], float]
SCHEDULES = ("constant", "linear", "cosine")


@dataclass(frozen=True, kw_only=True)
class GradientDescent:
    """Plain gradient descent, with momentum if wanted, from one start: to watch how a model learns.

    Parameters are those of the family, in their own units. A step is v <- momentum v + gradient, then parameters <-
    parameters - rate v.

    Attributes:
        rate: The learning rate; None for one that suits the sizes of the problem, with a clip unless one is given; see
            `training.rates`. The spec of a run says which.
        steps: How many steps.
        batch: What a gradient is taken of. `population`: the exact expectation over all sequences, known for one layer
            and features with one covariance; `sample(8192)`: the mean over so many sequences, the same in all steps; a
            number: the mean over so many fresh sequences in every step. None for the population where it is known, and
            `sample(8192)` elsewhere; the spec of a run says which.
        momentum: From 0 to below 1.
        schedule: What the rate is multiplied by: `constant`; `linear` or `cosine`, which fall to 0 at the last step; or
            pairs (step, factor) of any shape, with straight lines between them. A function of the number of the step is
            called once for every step, and becomes such pairs; there may be 20,000 at most.
        warmup: In the first so many steps the rate rises in proportion to the number of the step.
        clip: The largest norm of a gradient: a longer one is scaled down to it before the step, and a batch that
            contains a sequence whose loss overflows does not end the descent. None: no clipping if there is a rate,
            otherwise a clip that suits the problem. Infinity: no clipping. The history has the norms before clipping.
        scale: The standard deviation of the numbers of a random start; None for the one that the problem suggests.
            Without meaning where training starts from a given model.
        record: Which steps enter the history: every so many, or a list of steps; None for about 1,000 in all. The first
            and the last always do.
        snapshots: The steps whose parameters are kept: so many, evenly spaced from the start to the end, or a list of
            steps; 0 for none.

    Raises:
        InputError: A value is outside its range.
    """

    rate: float | None = None
    steps: int = 10_000
    batch: Batch | None = None
    momentum: float = 0.0
    schedule: Schedule = "constant"
    warmup: int = 0
    clip: float | None = None
    scale: float | None = None
    record: Stops = None
    snapshots: Stops = 20

    def __post_init__(self) -> None:
        if self.rate is not None:
            _check_positive("the learning rate", self.rate, 0.0005)
        if self.clip is not None:
            _check_clip(self.clip)
            object.__setattr__(self, "clip", float(self.clip))  # 2 and 2.0 are one run
        integer("steps", self.steps, 1, MOST_STEPS)
        integer("warmup", self.warmup, 0, self.steps)
        if not 0 <= number("momentum", self.momentum) < 1:
            refuse("momentum must lie in [0, 1)", self.momentum, "Pass 0.9, for example.")
        _check_common(self)
        if not isinstance(self.schedule, str):
            pairs = _tabulated(self.schedule, self.steps) if callable(self.schedule) else self.schedule
            object.__setattr__(self, "schedule", _pairs(pairs))
        elif self.schedule not in SCHEDULES:
            refuse(f"the schedule must be {', '.join(SCHEDULES)} or a list of pairs", repr(self.schedule), PAIRS)

    def rates(self) -> NDArray[np.float64]:
        """Return the learning rate of every step.

        Returns:
            The rates, [steps].

        Raises:
            InputError: The rate is None: it is known when there is a problem.
        """
        if self.rate is None:
            refuse(
                "the rates of a descent need a rate", None, "Choose one, or ask the spec of a run, run.spec.protocol."
            )
        steps = np.arange(self.steps)
        if isinstance(self.schedule, tuple):
            factors = np.interp(steps, *np.array(self.schedule, np.float64).T)
        else:
            left = 1 - steps / self.steps
            shapes = {"constant": np.ones(self.steps), "linear": left, "cosine": 0.5 - 0.5 * np.cos(np.pi * left)}
            factors = shapes[str(self.schedule)]
        return np.asarray(self.rate * factors * np.minimum(1.0, (steps + 1) / (self.warmup + 1)))

    def recorded(self) -> NDArray[np.int64]:
        """Return the steps that enter the history, ascending, from 0 to `steps`."""
        every = max(self.steps // 1000, 1) if self.record is None else self.record
        chosen = range(0, self.steps + 1, every) if isinstance(every, int) else every
        return np.unique(np.array([0, *chosen, self.steps]))

    def kept(self) -> NDArray[np.int64]:
        """Return the steps whose parameters are kept, ascending."""
        return _kept(self)


@dataclass(frozen=True, kw_only=True)
class SGD(GradientDescent):
    """Stochastic gradient descent: `GradientDescent` with fresh sequences in every step unless told otherwise.

    Attributes:
        batch: As for `GradientDescent`; by default 512 fresh sequences per step.
    """

    batch: Batch | None = 512


@dataclass(frozen=True, kw_only=True)
class Adam(GradientDescent):
    """Adam from one start; `momentum` is the forgetting factor of the gradient.

    Attributes:
        batch: As for `GradientDescent`; by default 512 fresh sequences per step.
        momentum: The forgetting factor of the gradient, often called beta_1.
        second: The forgetting factor of the squared gradient, often called beta_2.
    """

    batch: Batch | None = 512
    momentum: float = 0.9
    second: float = 0.999

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= number("second", self.second) < 1:
            refuse("second must lie in [0, 1)", self.second, "Pass 0.999, for example.")


@dataclass(frozen=True, kw_only=True)
class GradientFlow:
    """Gradient flow, d parameters / dt = -gradient: gradient descent with infinitely small steps.

    It is integrated by `scipy.integrate.LSODA`, which adapts its steps and changes to an implicit method
    where the equations are stiff. Time t is that of gradient descent after t / rate steps.

    Attributes:
        time: How long.
        batch: `population`, a fixed sample such as `sample(8192)`, or None for the first of these that is known; see
            `GradientDescent`.
        tolerance: The relative error of the parameters that one step of the integration may make.
        scale: As for `GradientDescent`.
        record: How many times enter the history, besides the start: powers of ten apart evenly and ending at `time`. A
            step of the history is the number of such a time.
        snapshots: As for `GradientDescent`: a number, or a list of numbers of recorded times.

    Raises:
        InputError: A value is outside its range.
    """

    time: float = 1000.0
    batch: Batch | None = None
    tolerance: float = 1e-8
    scale: float | None = None
    record: int = 200
    snapshots: Stops = 20

    def __post_init__(self) -> None:
        _check_positive("the time of gradient flow", self.time, 1000)
        if not 1e-13 <= number("tolerance", self.tolerance) <= 1e-2:
            refuse("the tolerance must lie between 1e-13 and 0.01", self.tolerance, "Pass 1e-8, for example.")
        integer("record", self.record, 1, 100_000)
        _check_common(self)
        if isinstance(self.batch, int):
            remedy = "Use a fixed sample, such as sample(8192), or stochastic gradient descent, SGD."
            refuse("gradient flow follows one function; the batch is population or sample(N)", self.batch, remedy)

    @property
    def steps(self) -> int:
        """How many intervals are integrated: one for each recorded time."""
        return self.record

    def times(self) -> NDArray[np.float64]:
        """Return the recorded times: 0, then four decades up to the end, [steps + 1]."""
        return np.append(0.0, self.time * np.geomspace(1e-4, 1.0, self.record) if self.record > 1 else self.time)

    def recorded(self) -> NDArray[np.int64]:
        """Return the numbers of the recorded times, from 0 to `steps`."""
        return np.arange(self.steps + 1)

    def kept(self) -> NDArray[np.int64]:
        """Return the numbers of the recorded times whose parameters are kept, ascending."""
        return _kept(self)


Descent = GradientDescent | GradientFlow


def sample_size(batch: Batch | None) -> int | None:
    """Return how many fixed sequences a batch such as `sample(8192)` names.

    Args:
        batch: The batch of a `GradientDescent` or `GradientFlow`.

    Returns:
        The number; None for `population` and for fresh sequences.
    """
    found = re.fullmatch(r"sample\(([0-9]{1,9})\)", batch) if isinstance(batch, str) else None
    return int(found[1]) if found else None


def _check_common(protocol: Descent) -> None:
    """Check the batch, the scale, and the lists of steps, which become tuples."""
    batch = protocol.batch
    if isinstance(batch, str):
        if batch != "population" and not sample_size(batch):
            refuse("the batch must be population, sample(N) or a number of fresh sequences", repr(batch), BATCHES)
    elif batch is not None:
        object.__setattr__(protocol, "batch", integer("batch", batch, 1, 1 << 24))
    if protocol.scale is not None:
        _check_positive("the scale of a start", protocol.scale, 0.01)
    for name in ("record", "snapshots"):
        object.__setattr__(protocol, name, _stops(name, getattr(protocol, name), protocol.steps))


def _check_positive(name: str, value: object, example: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < float("inf"):
        refuse(f"{name} must be positive and finite", shown(value), f"Pass {example:g}, for example.")


def _check_clip(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
        refuse("clip must be positive", shown(value), "Pass 1, for example, or infinity for no clipping.")


def _kept(protocol: Descent) -> NDArray[np.int64]:
    if isinstance(protocol.snapshots, tuple):
        return np.array(protocol.snapshots)
    return np.unique(np.linspace(0, protocol.steps, protocol.snapshots or 0).round().astype(np.int64))


def _stops(name: str, value: Any, steps: int) -> Stops:
    if value is None and name == "record":
        return None
    if isinstance(value, Integral):
        return integer(name, value, int(name == "record"), MOST_STEPS)
    if not isinstance(value, Iterable) or isinstance(value, str) or not (found := list(value)):
        given = "an empty list" if isinstance(value, Iterable) and not isinstance(value, str) else repr(value)
        remedy = "Give one number, such as 100, or steps, such as 0,100,1000; in Python, steps are a list."
        refuse(f"{name} must be a number or a list with at least one step", given, remedy)
    return tuple(sorted({integer(f"a step of {name}", step, 0, steps) for step in found}))


def _tabulated(schedule: Callable[[int], float], steps: int) -> list[tuple[int, float]]:
    """A function of the step as pairs; those within a straight line are left out."""
    if steps > MOST_CALLS:
        rule = f"a schedule that is a function is tabulated, for at most {MOST_CALLS:,} steps"
        refuse(rule, f"{steps:,} steps", "Pass pairs (step, factor) instead.")
    factors = np.array([number("a factor of the schedule", schedule(step)) for step in range(steps)])
    kept = np.flatnonzero(np.concatenate([[True], np.diff(factors, 2) != 0, [True]])[:steps])
    return list(zip(kept.tolist(), factors[kept].tolist(), strict=True))


def _pairs(schedule: object) -> tuple[tuple[int, float], ...]:
    try:
        pairs = [(step, factor) for step, factor in schedule]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        refuse("a schedule must be a name or pairs (step, factor)", repr(schedule)[:80], PAIRS)
    step_of, factor_of = "a step of the schedule", "a factor of the schedule"
    found = tuple((integer(step_of, step, 0), number(factor_of, factor)) for step, factor in pairs)
    if not found or any(b <= a for (a, _), (b, _) in pairwise(found)):
        refuse("the steps of a schedule must ascend, and there must be one", repr(found)[:80], PAIRS)
    return found


Protocol = Search | Paper | GradientDescent | GradientFlow
NAMES: dict[str, type[Protocol]] = {
    "search": Search,
    "paper": Paper,
    "descent": GradientDescent,
    "sgd": SGD,
    "adam": Adam,
    "flow": GradientFlow,
}


def as_protocol(value: object) -> Protocol:
    """Return a protocol from one or from its name.

    Args:
        value: A protocol, or the name of one with default settings: `search`, `paper`, `descent`, `sgd`, `adam` or
            `flow`.

    Returns:
        The protocol.

    Raises:
        InputError: It is none of these.
    """
    if isinstance(value, Protocol):
        return value
    if isinstance(value, str) and value in NAMES:
        return NAMES[value]()
    names, classes = ", ".join(NAMES), ", ".join(kind.__name__ for kind in NAMES.values())
    refuse(f"the protocol must be one of {names}, or a {classes}", repr(value), "Choose one of these.")


def describe(protocol: Protocol) -> dict[str, Any]:
    """Return a protocol as values that JSON can hold.

    Args:
        protocol: The protocol.

    Returns:
        Its name, and its parameters by name, without a clip that is None: there was none in earlier versions.
    """
    name = next(name for name, kind in NAMES.items() if kind is type(protocol))
    values = {key: _lists(value) for key, value in asdict(protocol).items() if (key, value) != ("clip", None)}
    return {"name": name, **values}


def _lists(value: Any) -> Any:
    """Tuples as lists, which they are after a journey through JSON."""
    return [_lists(item) for item in value] if isinstance(value, tuple) else value
