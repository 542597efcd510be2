"""What training minimises: the adjusted loss over sequences, and what it does about those on which a model explodes.

A deep model is a polynomial of high degree: on one sequence in 10^5 its loss can be 10^10, and an average over a batch
either misses that sequence or is ruined by it. Two things keep such models away. Losses above `ceiling` enter by their
logarithm. And a search among many contexts, all stretched by a fifth so that rare ones become common, collects
those on which the model fails; these then count in the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import Key
from ridgeformer.losses import threshold
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.problems import Problem

__all__ = ["STRETCH", "Hard", "SampleAverage", "ceiling", "damped", "mine"]

Array = NDArray[np.float64]
Value = tuple[float, dict[str, Array]]
STRETCH = 1.2  # contexts are stretched by this in the search for hard ones
WEIGHT = 0.5  # what a hard sequence counts, next to one that was met without stretching
STRONGER = 3.0  # what hard sequences count more as long as there are such
FAILS = 20  # times the ceiling: a loss from which on a stretched context counts as hard
MOST = 512  # hard sequences that are kept
STORED = 1 << 27  # bytes of Gram matrices that are kept; beyond, they are drawn again every time


def ceiling(problem: Problem) -> float:
    """Twice the loss of predicting nothing at all: losses above enter by their logarithm."""
    return float(problem.dim)


def damped(losses: NDArray[Any], limit: float) -> Array:
    """The losses, and limit (1 + log(loss / limit)) for those above the limit."""
    values = losses.astype(np.float64)
    return np.where(values > limit, limit * (1 + np.log(np.maximum(values, limit) / limit)), values)


@dataclass(frozen=True, eq=False)
class Hard:
    """Stretched contexts on which some model failed.

    Attributes:
        gram: [h, D, D]; target: [h, d].
        share: of the objective: their part of all contexts, times what one of them counts.
        strength: what one counts, relative to the first search: it grows as long as the model explodes.
        exploded: how many contexts of the last search the model exploded on without stretching.
    """

    gram: Array
    target: Array
    share: float = 0.0
    strength: float = 1.0
    exploded: int = 0

    @classmethod
    def none(cls, problem: Problem) -> Hard:
        """No such contexts yet."""
        return cls(np.empty((0, problem.dim + 1, problem.dim + 1)), np.empty((0, problem.dim)))

    @classmethod
    def restored(cls, arrays: dict[str, Array]) -> Hard:
        """From what `arrays` gave."""
        share, strength, exploded = arrays["hard"].tolist()
        return cls(arrays["gram"], arrays["target"], share, strength, int(exploded))

    def arrays(self) -> dict[str, Array]:
        """To be stored."""
        facts = np.array([self.share, self.strength, self.exploded])
        return {"gram": self.gram, "target": self.target, "hard": facts}

    def __len__(self) -> int:
        return len(self.gram)

    def value(self, model: LinearTransformer, problem: Problem, threads: int | None) -> Value:
        """Their share of the objective, and its gradient."""
        moments = Moments._trusted(self.gram, problem.context)
        limit = ceiling(problem)
        found = model.evaluate(moments, self.target, gradient=True, ceiling=limit, threads=threads)
        worst = damped(np.minimum(found.losses, np.finfo(np.float64).max), limit)
        gradient = model.family.pullback(found.gradient)
        return self.share * float(worst.mean()), {name: self.share * slope for name, slope in gradient.items()}


def mine(
    model: LinearTransformer,
    problem: Problem,
    known: Hard,
    key: Key,
    sequences: int,
    caution: float = 1.0,
    threads: int | None = None,
) -> Hard:
    """Further hard contexts, found among `sequences` fresh ones, before those already known; none without caution."""
    if not caution:
        return known
    exploded = len(_above(model, problem, key, sequences, 1.0, threshold(problem.signal), threads))
    found = _above(model, problem, key, sequences, STRETCH, FAILS * ceiling(problem), threads)
    draws = [problem.moments(1, seed=key.seed, stream=key.stream, step=key.step, first=i) for i in found[: MOST // 2]]
    gram = np.concatenate([*(STRETCH * draw.moments.gram for draw in draws), known.gram])[:MOST]
    target = np.concatenate([*(draw.ridge for draw in draws), known.target])[:MOST]
    strength = known.strength * (STRONGER if exploded and len(known) else 1.0)
    share = caution * WEIGHT * strength * max(len(found), len(gram)) / sequences
    return Hard(gram, target, share, strength, exploded)


def _above(
    model: LinearTransformer,
    problem: Problem,
    key: Key,
    sequences: int,
    stretch: float,
    limit: float,
    threads: int | None,
) -> list[int]:
    """Which of a key's sequences, with stretched contexts, have losses above the limit."""
    engine = engines.resolve(None)
    first, *others = model.astype(np.float32).family.kernel()
    stretched = (np.float32(stretch) * first, *others)  # the same as stretching the Gram matrix
    found: list[int] = []
    for start in range(0, sequences, 1 << 16):
        count = min(1 << 16, sequences - start)
        choices = problem.choices(count, seed=key.seed, stream=key.stream, step=key.step, first=start, engine=engine)
        result = engine.step(stretched, problem.law, choices, key, gradient=False, first=start, threads=threads)
        found += [start + int(i) for i in np.flatnonzero(~(result.losses <= limit))]
    return found


@dataclass(eq=False)
class SampleAverage:
    """The mean adjusted loss over fixed sequences, and hard ones: a deterministic function to be minimised."""

    problem: Problem
    sequences: int
    key: Key
    dtype: type = np.float64
    hard: Hard | None = None
    threads: int | None = None
    _draw: Any = field(default=None, init=False, repr=False)

    def __call__(self, model: LinearTransformer) -> Value:
        """Value and gradient with respect to the family's arrays; an infinite value where the model overflows."""
        limit = ceiling(self.problem)
        model = model.astype(self.dtype)
        if not all(np.isfinite(values).all() for values in model.family.kernel()):  # products of finite parameters
            return np.inf, {name: np.zeros(value.shape) for name, value in model.family.arrays.items()}
        seed, stream, step = self.key
        size = np.dtype(self.dtype).itemsize * self.sequences * (self.problem.dim + 1) ** 2
        if size <= STORED:
            if self._draw is None:
                self._draw = self.problem.moments(
                    self.sequences, seed=seed, stream=stream, step=step, dtype=self.dtype, threads=self.threads
                )
            found = model.evaluate(
                self._draw.moments, self._draw.ridge, gradient=True, ceiling=limit, threads=self.threads
            )
        else:
            found = model.step(
                self.problem, self.sequences, seed=seed, stream=stream, step=step, ceiling=limit, threads=self.threads
            )
        value = float(damped(found.losses, limit).mean())
        gradient = model.family.pullback(found.gradient)
        if self.hard is not None and len(self.hard):
            more, slopes = self.hard.value(model.astype(np.float64), self.problem, self.threads)
            value += more
            gradient = {name: slope + slopes[name] for name, slope in gradient.items()}
        return value, gradient
