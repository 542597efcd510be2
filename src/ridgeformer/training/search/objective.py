"""The objective of a search: the adjusted loss over sequences, with a remedy for those on which a model explodes.

A deep model is a polynomial of high degree: on one sequence in 10^5 its loss can be 10^10, and an average over a batch
either misses that sequence or is ruined by it. Two things keep such models away. Losses above `ceiling` enter by their
logarithm. And a search among many contexts, all stretched by a fifth so that rare ones become common, collects
those on which the model fails (`training.search.failures`); these then count in the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Evaluation, Key
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.training.batch import STORED, Batch, ceiling, damped
from ridgeformer.training.search.failures import Failures

Array = NDArray[np.float64]


@dataclass(eq=False)
class SampleAverage:
    """The mean adjusted loss over fixed sequences and failures: a deterministic function to be minimised.

    Args:
        problem: What the sequences are drawn from.
        sequences: How many.
        key: Their stream.
        dtype: float32 or float64, of the computation.
        failures: Contexts on which models failed, which count too.
        threads: Threads of the engine; None for all.
    """

    problem: BaseProblem
    sequences: int
    key: Key
    dtype: type = np.float64
    failures: Failures | None = None
    threads: int | None = None
    _batch: Batch | None = field(default=None, init=False, repr=False)

    def __call__(self, model: LinearTransformer) -> tuple[float, dict[str, Array]]:
        """Value and gradient with respect to the family's arrays; an infinite value where the model overflows."""
        limit = ceiling(self.problem)
        model = model.astype(self.dtype)
        if not all(np.isfinite(values).all() for values in model.kernel):  # products of finite parameters
            return np.inf, {name: np.zeros(value.shape) for name, value in model.family.arrays.items()}
        evaluation = self._evaluate(model, limit)
        value = float(damped(evaluation.losses, limit).mean())
        gradient = model.family.pullback(evaluation.gradient)
        if self.failures is not None and len(self.failures):
            more, slopes = self.failures.value(model.astype(np.float64), limit, self.threads)
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
