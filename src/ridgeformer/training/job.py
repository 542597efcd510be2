"""What a search is given, what it leaves behind, and where it starts from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ridgeformer.models.families import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import Problem
from ridgeformer.training.journal import Journal

__all__ = ["FINISH", "RACE", "SEARCH", "SELECT", "Found", "OutOfTime", "Task"]

Array = NDArray[np.float64]
# Streams of sequences; evaluation and the tuned baselines have others.
RACE, FINISH, SEARCH, SELECT = 1, 2, 3, 4


class OutOfTime(Exception):
    """The time that was given is over."""


@dataclass(frozen=True)
class Found:
    """The model that was chosen, whether its descent had come to rest, and how that was seen."""

    model: LinearTransformer
    converged: bool
    message: str


@dataclass(eq=False)
class Task:
    """A model to be found, and what helps to find it.

    Attributes:
        shallower: the best model of one layer less; poorer: that of the poorer family; None where there is none.
        report: called with the phase, the fraction done and the loss after every piece of work.
        deadline: when to stop, by time.monotonic().
        best: the best model so far.
    """

    problem: Problem
    family: type[Family]
    layers: int
    heads: int
    seed: int
    effort: float
    caution: float
    precision: str
    shallower: LinearTransformer | None
    poorer: LinearTransformer | None
    journal: Journal
    report: Callable[[str, float, float], None]
    deadline: float | None = None
    threads: int | None = None
    best: LinearTransformer | None = field(default=None, init=False)

    def many(self, count: int) -> int:
        """A number of starts or rounds, times the effort."""
        return max(1, round(count * self.effort))

    def dtype(self) -> type[np.float32] | type[np.float64]:
        """What stochastic descents compute in: float32, unless losses come near its rounding or one was asked for."""
        if self.precision == "auto" and self.best is not None:
            known = self.best.astype(np.float64).step(
                self.problem, 4096, stream=SELECT, step=1, gradient=False, threads=self.threads
            )
            return np.float64 if known.loss < 1e-5 * self.problem.dim else np.float32
        return np.float64 if self.precision == "float64" else np.float32

    def done(self, name: str, result: dict[str, Array], phase: str, fraction: float, work: int, loss: float) -> None:
        """Keep and report a piece of work that was done just now, on so many sequences."""
        self.journal.note(phase, work, loss)
        self.journal.keep(name, result)
        self.report(phase, fraction, loss)
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise OutOfTime

    # ---- starts -----------------------------------------------------------------------------------------

    def starts(self, fresh: int, grown: int) -> list[LinearTransformer]:
        """Fresh ones, and ones grown from the shallower model."""
        found = [self.fresh(i) for i in range(self.many(fresh))]
        if self.shallower is not None:
            found += [self._grown(self.shallower, i) for i in range(self.many(grown))]
        return found

    def ancestors(self) -> list[LinearTransformer]:
        """The shallower and the poorer model as models of this family and depth, with the same function."""
        found = []
        if self.shallower is not None:
            found.append(self.shallower.with_identity(self.layers - 1))
        if self.poorer is not None:
            embedded = self.family.embed(self.poorer.family, self.problem.dim, self.heads)
            found.append(LinearTransformer(embedded, self.problem.dim))
        return found

    def fresh(self, number: int) -> LinearTransformer:
        """A small random model: large ones end in worse minima, or overflow."""
        scale = 0.05 / np.sqrt(self.problem.context)
        rng, dim = self._rng(1, number), self.problem.dim
        return LinearTransformer(self.family.random(dim, self.layers, self.heads, scale, rng), dim)

    def _grown(self, shallower: LinearTransformer, number: int) -> LinearTransformer:
        """The shallower model with a small random layer somewhere; successive numbers try all positions."""
        rng, dim = self._rng(2, number), self.problem.dim
        scale = np.exp(rng.uniform(np.log(0.1), np.log(0.4))) / np.sqrt(self.problem.context)
        new = self.family.random(dim, 1, self.heads, scale, rng).arrays
        at = self._rng(3).permutation(self.layers)[number % self.layers]
        old = shallower.family.arrays
        merged = {name: np.insert(old[name], at, new[name], axis=0) for name in old}
        return LinearTransformer(self.family(**merged), dim)

    def _rng(self, *which: int) -> np.random.Generator:
        """Random numbers for one purpose: the same whatever was interrupted."""
        return np.random.default_rng([self.seed, self.layers, *which])
