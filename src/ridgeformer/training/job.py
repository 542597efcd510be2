"""A training job: the model to be trained, where it may start, what a protocol reports and returns, and who listens.

A search or a descent is a generator. After every piece of work it yields a `Step`, with the best model so far; at its
end it returns an `Outcome`. `follow` runs one, reports its steps, and stops it when its time is over. So protocols know
nothing about progress reports and time limits; what they have done is kept in the journal of the job. `Vector` packs
the parameters of any family into one vector of numbers near one, in the natural `Units` of the problem.

A callback is an object with any of the methods of `Callback`. A plain function is the simplest form: it is called where
`on_step` is. If a callback raises an error, training stops; with a folder for runs it can be resumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Layout
from ridgeformer.engine.kernels import pieces
from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.losses import exploded
from ridgeformer.models.family import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.training.spec import Spec
from ridgeformer.training.store import Journal

if TYPE_CHECKING:
    from ridgeformer.training.results import Training

Array = NDArray[np.float64]
AnyFamily = TypeVar("AnyFamily", bound=Family)


class Units:
    """The natural size of a model's parameters on a problem.

    A layer multiplies tokens by P G Q, and G grows as n where attention is a sum: parameters times sqrt(n) are of the
    order of one whatever n is. `Family.natural_sizes` says what sizes of features and labels change.

    Args:
        problem: What the model is trained on.
        layout: The layout of its tokens.

    Raises:
        InputError: There is nothing to predict.
    """

    def __init__(self, problem: BaseProblem, layout: Layout) -> None:
        self.scale = 1.0 if layout.attention == "mean" else float(np.sqrt(problem.lengths.mean))
        self.dim = problem.dim
        self.feature = problem.feature_scale
        if not problem.signal > 0:
            refuse("training needs answers that are not all 0", f"{problem} with a signal of 0", "Change its tasks.")
        self.label = float(np.sqrt(problem.signal / problem.dim))

    def sizes(self, family: Family) -> dict[str, Array]:
        """Return the natural size of each parameter, by which it is multiplied.

        Args:
            family: The parameters.

        Returns:
            The sizes by name; arrays that are not named have the size one.
        """
        return family.natural_sizes(self.dim, self.scale, self.feature, self.label)

    def applied(self, family: AnyFamily) -> AnyFamily:
        """Return the parameters times their natural sizes.

        Args:
            family: The parameters.

        Returns:
            The product.
        """
        sizes = self.sizes(family)
        return type(family)(**{name: value * sizes.get(name, 1.0) for name, value in family.arrays.items()})


class Vector:
    """Packs and unpacks the parameters of models shaped like `model`, in their natural units.

    Args:
        model: A model of that shape.
        units: The units; None for the numbers of the family as they are.
    """

    def __init__(self, model: LinearTransformer, units: Units | None) -> None:
        self._like, self._scale = model, 1.0 if units is None else units.scale
        self._shapes = {name: value.shape for name, value in model.family.arrays.items()}
        sizes = {} if units is None else units.sizes(model.family)
        self._sizes = self._join({n: np.broadcast_to(sizes.get(n, 1.0), shape) for n, shape in self._shapes.items()})

    def pack(self, model: LinearTransformer) -> Array:
        """Return the numbers of a model.

        Args:
            model: The model.

        Returns:
            The numbers, one after another.
        """
        return np.asarray(self._scale * (self._join(model.family.arrays).astype(np.float64) / self._sizes))

    def model(self, vector: Array, dtype: type = np.float64) -> LinearTransformer:
        """Return the model with these numbers.

        Args:
            vector: The numbers.
            dtype: The precision of the model.

        Returns:
            The model.
        """
        family = type(self._like.family)(**self._arrays(vector, dtype))
        return LinearTransformer(family, self._like.dim, self._like.layout)

    def passing(self, vector: Array, dtype: type = np.float64) -> LinearTransformer:
        """Return the model with these numbers for one evaluation: its parameters are not checked, which is faster.

        Args:
            vector: The numbers.
            dtype: The precision of the model.

        Returns:
            The model, which must not be kept.
        """
        family = self._like.family.with_arrays(self._arrays(vector, dtype))
        model = object.__new__(LinearTransformer)
        vars(model).update(vars(self._like), family=family)
        return model

    def _arrays(self, vector: Array, dtype: type) -> dict[str, NDArray[Any]]:
        numbers = (vector / self._scale * self._sizes).astype(dtype)
        return dict(zip(self._shapes, pieces(numbers, self._shapes.values()), strict=True))

    def matrices(self) -> list[tuple[int, int, int]]:
        """Return the shapes of the numbers: stacks of K matrices m x n, as (K, m, n).

        Returns:
            One entry for each run of arrays whose axes after layers and heads are the same.
        """
        stacks: list[tuple[int, int, int]] = []
        for shape in self._shapes.values():
            m, n = (1, 1, *shape[2:])[-2:]
            count = int(np.prod(shape)) // (m * n)
            if stacks and stacks[-1][1:] == (m, n):
                count += stacks.pop()[0]
            stacks.append((count, m, n))
        return stacks

    def slope(self, gradient: dict[str, Array]) -> Array:
        """Convert a gradient.

        Args:
            gradient: The gradient with respect to the arrays of the family, by name.

        Returns:
            The gradient with respect to the numbers.
        """
        return np.asarray(self._join(gradient) * self._sizes / self._scale)

    def _join(self, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([arrays[name].ravel() for name in self._shapes])


# Streams of sequences; evaluation and the tuned baselines have others.
RACE, FINISH, SEARCH, SELECT = 1, 2, 3, 4


@dataclass(frozen=True)
class Step:
    """A piece of work that was just done.

    Attributes:
        model: The best model so far.
        phase: The name of the part of the search.
        fraction: How much of the search is done, from 0 to 1.
        loss: The training loss that this piece of work ended with.
        rows: The recorded steps of a descent since the last report, each by the names of its columns.
    """

    model: LinearTransformer
    phase: str
    fraction: float
    loss: float
    rows: tuple[Mapping[str, float], ...] = ()


class Price(NamedTuple):
    """The price of caution: the best model that was found without regard to explosions, beside the chosen one.

    Attributes:
        loss: The mean adjusted loss of that model on the sequences that select, without those that explode.
        exploded: How many of these sequences explode.
        sequences: How many sequences there are.
        worse: By how much the loss of the chosen model is higher on the sequences that do not explode: 0.2 for 20 %; 0
            where no better model was found.
    """

    loss: float
    exploded: int
    sequences: int
    worse: float

    @classmethod
    def between(cls, reckless: Array, chosen: Array, signal: float, oracle: float = 0.0) -> Price:
        """Compare the losses of two models on the same sequences.

        Args:
            reckless: Losses of the model that was found without regard to explosions, [B].
            chosen: Losses of the chosen model, [B].
            signal: The signal of the problem, which decides what has exploded.
            oracle: The part of the mean losses that is the oracle's, where they are not adjusted.

        Returns:
            The price.
        """
        burst = exploded(reckless, signal)
        calm = ~burst & ~exploded(chosen, signal)
        if not calm.any():
            return cls(math.nan, int(burst.sum()), len(burst), math.nan)
        least, ours = (float(values[calm].mean()) - oracle for values in (reckless, chosen))
        if ours <= least:  # then the chosen one is the best one
            return cls(ours, int(exploded(chosen, signal).sum()), len(burst), 0.0)
        return cls(least, int(burst.sum()), len(burst), ours / least - 1 if least > 0 else 0.0)

    def __str__(self) -> str:
        if not (self.exploded or self.worse >= 5e-4):
            return "avoiding explosions cost nothing"
        reckless = f"the best model found without regard to explosions has a loss of {self.loss:.4g}"
        worse = "as good" if not self.worse >= 5e-4 else f"{self.worse:.1%} worse"
        return f"{reckless} and explodes on {self.exploded:,} of {self.sequences:,}; the chosen one is {worse}"


@dataclass(frozen=True)
class Outcome:
    """The end of a search or of a descent.

    Attributes:
        model: The model that was chosen.
        converged: Whether its descent had converged.
        message: How it was found, in words.
        course: What a descent recorded, to be stored: its table and the parameters of its snapshots.
        lost: Whether a descent ended early, because it could not be followed further.
        family: The family that the model really is of, where a search chose a model of a simpler family; otherwise
            empty.
        reckless: The best model that a search found without regard to explosions; None where it did not look for one.
        price: What avoiding explosions cost; None where that is not known.
    """

    model: LinearTransformer
    converged: bool
    message: str
    course: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    lost: bool = False
    family: str = ""
    reckless: LinearTransformer | None = None
    price: Price | None = None


class Parent(NamedTuple):
    """A trained model that another one is grown from.

    Attributes:
        model: The model.
        family: The family that it really is of: the simplest one whose model was chosen.
    """

    model: LinearTransformer
    family: str


Steps = Generator[Step, None, Outcome]
Report = Callable[[Step], None]


@dataclass(frozen=True, eq=False)
class Job:
    """A model to be trained, and what helps to train it.

    Attributes:
        spec: What to train.
        journal: Finished pieces of work.
        threads: Threads of the engine; None for all.
        report: Is called with every step.
        deadline: When to stop, by `time.monotonic()`; None for no limit.
        shallower: The best model with one layer less; None where there is none.
        simpler: The best model of the family that this family contains; None where there is none.
    """

    spec: Spec
    journal: Journal = field(default_factory=Journal)
    threads: int | None = None
    report: Report = lambda step: None
    deadline: float | None = None
    shallower: Parent | None = None
    simpler: Parent | None = None

    @property
    def problem(self) -> BaseProblem:
        """The problem to train on."""
        return self.spec.problem

    @property
    def layout(self) -> Layout:
        """The layout of the model's tokens."""
        return self.spec.layout

    @property
    def seed(self) -> int:
        """Seed of the starts and of the sequences."""
        return self.spec.seed

    @property
    def units(self) -> Units:
        """The natural size of parameters on this problem."""
        return Units(self.problem, self.layout)

    def start(self, scale: float | None = None) -> LinearTransformer:
        """Return the one model that a descent starts from: the given one, or a random one.

        Args:
            scale: The standard deviation of the numbers of a random start; None for the natural size of a small one.

        Returns:
            The model.
        """
        if self.spec.init is not None:
            return self.spec.init.astype(np.float64)
        if scale is None:
            return self.fresh(0)
        width = self.problem.dim + self.layout.extra
        return self.model(self.spec.family.random(width, self.spec.layers, self.spec.heads, scale, self.rng(1, 0)))

    def fresh(self, number: int) -> LinearTransformer:
        """Return a small random model: large ones end in worse minima, or overflow.

        Args:
            number: Which one.

        Returns:
            The model; the same for the same seed, depth and number.
        """
        return self.model(self.random(self.spec.layers, 0.05, self.rng(1, number)))

    def model(self, family: Family) -> LinearTransformer:
        """Return the model with these parameters.

        Args:
            family: The parameters.

        Returns:
            The model, with the dimension and the layout of the job.
        """
        return LinearTransformer(family, self.problem.dim, self.layout)

    def random(self, layers: int, size: float, rng: np.random.Generator) -> Family:
        """Return random parameters.

        Args:
            layers: How many layers.
            size: Their size, relative to the natural one.
            rng: The random numbers.

        Returns:
            The parameters.
        """
        scale, width = size / self.units.scale, self.problem.dim + self.layout.extra
        return self.units.applied(self.spec.family.random(width, layers, self.spec.heads, scale, rng))

    def rng(self, *which: int) -> np.random.Generator:
        """Return random numbers for one purpose: the same whatever was interrupted.

        Args:
            *which: The purpose.

        Returns:
            The generator.
        """
        return np.random.default_rng([self.seed, self.spec.layers, *which])


def follow(steps: Steps, job: Job) -> Outcome:
    """Run a search or a descent to its end, or until its time is over.

    Args:
        steps: The search.
        job: Its `report` is called with every step; its `deadline` is looked at after every step.

    Returns:
        What the search returns; where time is over before, the best model so far.
    """
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        job.report(step)
        if job.deadline is not None and time.monotonic() > job.deadline:
            return Outcome(step.model, False, "the time given was over")


@dataclass(frozen=True)
class TrainingProgress:
    """How far a call of `train` or `train_many` has come.

    Attributes:
        spec: The run that is being trained now. The models that a model is grown from come first.
        phase: The part of that run.
        fraction: How much of the whole call is done, from 0 to 1; an estimate.
        loss: The training loss now.
        seconds: Time since the call began.
        remaining: Seconds until the call ends; an estimate.
        record: The recorded numbers by the names of the columns: of a descent a row of its history, of a search its
            loss; and the ratio of the adjusted loss to the floor.
    """

    spec: Spec
    phase: str
    fraction: float
    loss: float
    seconds: float
    remaining: float
    record: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """The loss now and the time, such as `race: loss 0.2 (1.5 times the floor), 3 s, about 2 s left`."""
        loss, share = self.record.get("adjusted_loss", self.loss), self.record.get("ratio", math.nan)
        ratio = f" ({share:.2f} times the floor)" if math.isfinite(share) else ""
        step = f" step {self.record['step']:,.0f}" if "step" in self.record else ""
        times = f"{self.seconds:.0f} s, about {self.remaining:.0f} s left"
        return f"{self.phase}{step}: loss {loss:.4g}{ratio}, {times}"


class Callback:
    """The base class of callbacks, whose methods do nothing. A class of your own overrides those that it needs.

    >>> class Stop(Callback):
    ...     def on_step(self, progress):
    ...         if progress.loss < 0.5:
    ...             raise KeyboardInterrupt
    """

    def on_start(self, spec: Spec) -> None:
        """Called before a run is trained, not for one that is finished already.

        Args:
            spec: The run; `spec.name` is the name of its folder.
        """

    def on_step(self, progress: TrainingProgress) -> None:
        """Called for every recorded step of a descent, several at a time, and for every piece of work of a search.

        Args:
            progress: How far training has come, and what was recorded.
        """

    def on_end(self, training: Training) -> None:
        """Called when a run is finished and stored.

        Args:
            training: The run, with its whole history, also that before an interruption.
        """


AnyCallback = Callback | Callable[[TrainingProgress], None]


class _Function(Callback):
    """A plain function, called with every step."""

    def __init__(self, function: Callable[[TrainingProgress], Any]) -> None:
        self._function = function

    def on_step(self, progress: TrainingProgress) -> None:
        self._function(progress)


def as_callbacks(values: Sequence[AnyCallback]) -> list[Callback]:
    """Return callbacks from objects of the base class and from plain functions.

    Args:
        values: Callbacks or functions.

    Returns:
        The callbacks.

    Raises:
        InputError: One is neither.
    """
    if isinstance(values, Callback) or callable(values) or not isinstance(values, Sequence):
        refuse("callbacks must be a list", kind_of(values), "Pass callbacks=[...].")
    callbacks = []
    for value in values:
        if not isinstance(value, Callback) and (isinstance(value, type) or not callable(value)):
            refuse("a callback must be a Callback or a function", shown(value), "Pass CSVLogger(path), for example.")
        callbacks.append(value if isinstance(value, Callback) else _Function(value))
    return callbacks
