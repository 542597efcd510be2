"""What training minimises: the adjusted loss over sequences, and what it does about those on which a model explodes.

A deep model is a polynomial of high degree: on one sequence in 10^5 its loss can be 10^10, and an average over a batch
either misses that sequence or is ruined by it. Two things keep such models away. Losses above `ceiling` enter by their
logarithm. And a search among many contexts, all stretched by a fifth so that rare ones become common, collects
those on which the model fails (`training.hard`); these then count in the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Evaluation, Key
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.training.batch import Batch, ceiling, damped
from ridgeformer.training.hard import Hard

__all__ = ["STORED", "SampleAverage", "fewer"]

Array = NDArray[np.float64]
STORED = 1 << 27  # bytes of Gram matrices that are kept; beyond, they are drawn again every time


def fewer(problem: BaseProblem, sequences: int) -> int:
    """Return a number of sequences, or an eighth of it where they are drawn by Python, which takes longer.

    Args:
        problem: The distribution of sequences.
        sequences: How many there are where an engine draws them.

    Returns:
        How many to use.
    """
    return sequences if problem.law is not None else sequences // 8


@dataclass(eq=False)
class SampleAverage:
    """The mean adjusted loss over fixed sequences, and hard ones: a deterministic function to be minimised.

    Args:
        problem: What the sequences are drawn from.
        sequences: How many.
        key: Their stream.
        dtype: float32 or float64, of the computation.
        hard: Hard contexts that count too.
        threads: Threads of the engine; None for all.
    """

    problem: BaseProblem
    sequences: int
    key: Key
    dtype: type = np.float64
    hard: Hard | None = None
    threads: int | None = None
    _batch: Batch | None = field(default=None, init=False, repr=False)

    def __call__(self, model: LinearTransformer) -> tuple[float, dict[str, Array]]:
        """Value and gradient with respect to the family's arrays; an infinite value where the model overflows."""
        limit = ceiling(self.problem)
        model = model.astype(self.dtype)
        if not all(np.isfinite(values).all() for values in model.kernel):  # products of finite parameters
            return np.inf, {name: np.zeros(value.shape) for name, value in model.family.arrays.items()}
        found = self._evaluate(model, limit)
        value = float(damped(found.losses, limit).mean())
        gradient = model.family.pullback(found.gradient)
        if self.hard is not None and len(self.hard):
            more, slopes = self.hard.value(model.astype(np.float64), limit, self.threads)
            value += more
            gradient = {name: slope + slopes[name] for name, slope in gradient.items()}
        return value, gradient

    def _evaluate(self, model: LinearTransformer, limit: float) -> Evaluation:
        key: dict[str, Any] = self.key._asdict()
        size = np.dtype(self.dtype).itemsize * self.sequences * (model.width + 1) ** 2
        if size > STORED:
            return model.step(self.problem, self.sequences, **key, ceiling=limit, threads=self.threads)
        if self._batch is None:
            sums = model.layout.coordinate != "none"
            draw = self.problem.moments(self.sequences, **key, dtype=self.dtype, sums=sums, threads=self.threads)
            self._batch = Batch.of(draw, model.layout)
        return self._batch.evaluate(model, limit, threads=self.threads)
