"""A training job: the model to be found, where its search may start, and what a search reports and returns.

A search is a generator. After every piece of work it yields a `Step`, with the best model so far; at its end it
returns a `Found`. `follow` runs one, reports its steps, and stops it when its time is over. So searches know nothing
about progress reports and time limits; what they have done is kept in the journal of the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import PAPER_LAYOUT, Key, Layout
from ridgeformer.models.family import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.training.hard import Among, Hard, edges, mine
from ridgeformer.training.journal import Journal
from ridgeformer.training.objective import fewer
from ridgeformer.training.vector import Units

__all__ = ["FINISH", "RACE", "SELECT", "SELECTION", "Found", "Job", "Report", "Step", "Steps", "follow"]

# Streams of sequences; evaluation and the tuned baselines have others.
RACE, FINISH, SEARCH, SELECT = 1, 2, 3, 4
SELECTION = 1 << 17  # sequences that decide between candidates


@dataclass(frozen=True)
class Step:
    """A piece of work that was just done.

    Attributes:
        model: The best model so far.
        phase: The part of the search, in a word.
        fraction: How much of the search is done, from 0 to 1.
        loss: The training loss that this piece of work ended with.
        rows: The recorded steps of a descent since the last report, each by the names of its columns.
    """

    model: LinearTransformer
    phase: str
    fraction: float
    loss: float
    rows: tuple[Mapping[str, float], ...] = ()


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        model: The model that was chosen.
        converged: Whether its descent had converged.
        message: How it was found, in words.
        course: What a descent recorded, to be stored: its table and the parameters of its snapshots.
        lost: Whether a descent ended early, because it could not be followed further.
    """

    model: LinearTransformer
    converged: bool
    message: str
    course: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    lost: bool = False


Steps = Generator[Step, None, Found]
Report = Callable[[Step], None]


def follow(steps: Steps, report: Report, deadline: float | None = None) -> Found:
    """Run a search to its end, or until its time is over.

    Args:
        steps: The search.
        report: Is called with every step.
        deadline: When to stop, by `time.monotonic()`; None for no limit. It is looked at after every step.

    Returns:
        What the search returns; where time is over before, the best model so far.
    """
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found
        report(step)
        if deadline is not None and time.monotonic() > deadline:
            return Found(step.model, False, "the time given was over")


@dataclass(frozen=True, eq=False)
class Job:
    """A model to be found, and what helps to find it.

    Attributes:
        problem: What to train on.
        family: The parametrisation of the model.
        layers: Its layers.
        heads: Its heads per layer.
        seed: Seed of the starts and of the sequences.
        effort: How many starts and rounds, relative to the default.
        caution: What contexts on which a model explodes count in the objective, relative to the default.
        precision: `auto`, `float32` or `float64`.
        shallower: The best model with one layer less; None where there is none.
        simpler: The best model of the family that this family contains; None where there is none.
        journal: Finished pieces of work.
        threads: Threads of the engine; None for all.
        layout: What the model's tokens hold beside (x, y), and whether its attention is a sum or a mean.
        init: A model to start from; None for random starts alone.
    """

    problem: BaseProblem
    family: type[Family]
    layers: int
    heads: int
    seed: int
    effort: float
    caution: float
    precision: str
    shallower: LinearTransformer | None
    simpler: LinearTransformer | None
    journal: Journal
    threads: int | None = None
    layout: Layout = PAPER_LAYOUT
    init: LinearTransformer | None = None

    @property
    def units(self) -> Units:
        """The natural size of parameters on this problem."""
        return Units(self.problem, self.layout)

    def scaled(self, count: int) -> int:
        """Return a number of starts or rounds, times the effort; at least 1.

        Args:
            count: The number for an effort of 1.

        Returns:
            The number.
        """
        return max(1, round(count * self.effort))

    def dtype(self) -> type[np.float32] | type[np.float64]:
        """Return what stochastic descents compute in.

        Returns:
            The precision of the job; for `auto` float32, unless the losses of its first model are so small that
            float32's rounding matters.
        """
        if self.precision == "auto":
            known = self.first().astype(np.float64)
            found = known.step(self.problem, 4096, stream=SELECT, step=1, gradient=False, threads=self.threads)
            return np.float64 if found.loss < 1e-5 * self.problem.signal else np.float32
        return np.float64 if self.precision == "float64" else np.float32

    def starts(self, fresh: int, grown: int) -> list[LinearTransformer]:
        """Return models to start from.

        Args:
            fresh: How many small random ones, times the effort.
            grown: How many grown from the shallower model, times the effort; none where there is no such model.

        Returns:
            The fresh ones, then the grown ones, then the given one.
        """
        found = [self.fresh(i) for i in range(self.scaled(fresh))]
        if self.shallower is not None:
            found += [self._grown(self.shallower, i) for i in range(self.scaled(grown))]
        return found if self.init is None else [*found, self.init.astype(np.float64)]

    def mined(self, model: LinearTransformer, known: Hard, turn: int, sequences: int) -> Hard:
        """Return hard contexts: those already known, and further ones on which a model fails.

        Args:
            model: The model that may fail.
            known: Hard contexts that are known already.
            turn: Which fresh contexts to search.
            sequences: How many of them.

        Returns:
            The hard contexts; `exploded` says on how many fresh ones the model explodes.
        """
        among = Among(edges(self.problem), Key(self.seed, SEARCH, turn), fewer(self.problem, sequences))
        return mine(model, known, among, caution=self.caution, threads=self.threads)

    def checked(self, model: LinearTransformer, known: Hard) -> Hard:
        """Return hard contexts: those already known, and those among the sequences that will decide.

        Args:
            model: The model that is about to be a candidate.
            known: Hard contexts that are known already.

        Returns:
            The hard contexts; where `exploded` is not zero, the model loses against ancestors that explode less often.
        """
        among = Among(self.problem, Key(self.seed, SELECT), fewer(self.problem, SELECTION))
        return mine(model, known, among, caution=self.caution, threads=self.threads, deciding=True)

    def ancestors(self) -> list[LinearTransformer]:
        """Return the shallower and the simpler model as models of this family and depth, with the same function."""
        found = []
        if self.shallower is not None:
            found.append(self.shallower.with_identity(self.layers - 1))
        if self.simpler is not None:
            embedded = self.family.embed(self.simpler.family, self.problem.dim, self.heads)
            found.append(self.model(embedded))
        return found

    def first(self) -> LinearTransformer:
        """Return the best model that is known before the search: the last ancestor, or a fresh model."""
        return [self.fresh(0), *self.ancestors()][-1]

    def start(self, scale: float | None = None) -> LinearTransformer:
        """Return the one model that a descent starts from: the given one, or a random one.

        Args:
            scale: The standard deviation of the numbers of a random start; None for the natural size of a small one.

        Returns:
            The model.
        """
        if self.init is not None:
            return self.init.astype(np.float64)
        if scale is None:
            return self.fresh(0)
        width = self.problem.dim + self.layout.extra
        return self.model(self.family.random(width, self.layers, self.heads, scale, self._rng(1, 0)))

    def fresh(self, number: int) -> LinearTransformer:
        """Return a small random model: large ones end in worse minima, or overflow.

        Args:
            number: Which one.

        Returns:
            The model; the same for the same seed, depth and number.
        """
        return self.model(self._random(self.layers, 0.05, self._rng(1, number)))

    def model(self, family: Family) -> LinearTransformer:
        """Return the model with these parameters.

        Args:
            family: The parameters.

        Returns:
            The model, with the dimension and the layout of the job.
        """
        return LinearTransformer(family, self.problem.dim, self.layout)

    def _random(self, layers: int, size: float, rng: np.random.Generator) -> Family:
        """Random parameters of a size relative to their natural one."""
        scale, width = size / self.units.scale, self.problem.dim + self.layout.extra
        return self.units.applied(self.family.random(width, layers, self.heads, scale, rng))

    def _grown(self, shallower: LinearTransformer, number: int) -> LinearTransformer:
        """The shallower model with a small random layer somewhere; successive numbers try all positions."""
        rng = self._rng(2, number)
        new = self._random(1, np.exp(rng.uniform(np.log(0.1), np.log(0.4))), rng)
        at = self._rng(3).permutation(self.layers)[number % self.layers]
        return self.model(shallower.family.inserted(at, new))

    def _rng(self, *which: int) -> np.random.Generator:
        """Random numbers for one purpose: the same whatever was interrupted."""
        return np.random.default_rng([self.seed, self.layers, *which])
