"""What descents follow: the loss and gradient of the population, of a fixed sample, or of fresh sequences.

All three give the gradient of the plain mean loss, without what the search does about exploding sequences. For one layer
the population and a fixed sample are quadratic forms (`ridgeformer.population`), and a gradient takes microseconds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.population import Quadratic
from ridgeformer.training.job import FINISH, RACE, SELECT, Job
from ridgeformer.training.objective import STORED, Batch
from ridgeformer.training.protocols import Descent, sample_size

__all__ = ["Course"]

Array = NDArray[np.float64]
Gradient = tuple[float, dict[str, Array]]
SEQUENCES = 1 << 16  # on which the oracle's loss is measured
OWN = 1 << 12  # the same where sequences are drawn by Python


class Course:
    """Loss and gradient for a protocol.

    Args:
        job: What is trained, on which problem.
        protocol: The protocol, which names the batch.

    Attributes:
        oracle: The unadjusted loss of the oracle, the difference between both kinds of losses.
        offset: The part of the loss that no weights can predict.
        adjusted: Whether the losses that `gradient` gives are adjusted ones.
        gradient: Takes a model and the number of a step; returns the loss and the gradient by the names of the arrays.
        sequences: Fresh sequences per step; 0 for the population and for a fixed sample.
    """

    def __init__(self, job: Job, protocol: Descent) -> None:
        self.job = job
        self.sequences = protocol.batch if isinstance(protocol.batch, int) else 0
        draw = job.problem.moments(SEQUENCES if job.problem.law is not None else OWN, seed=job.seed, stream=SELECT)
        adjusted, unadjusted = draw.both_losses(draw.ridge)
        self.oracle = float((unadjusted - adjusted).mean())
        self.offset = 0.0 if draw.offset is None else float(np.mean(draw.offset))
        self.adjusted = True
        size = sample_size(protocol.batch)
        self.gradient: Callable[[LinearTransformer, int], Gradient]
        if size is not None:
            self.gradient = self._of_sample(size)
        elif isinstance(protocol.batch, str):
            quadratic = Quadratic.of_problem(job.problem, job.layout)
            self.gradient, self.adjusted = lambda model, step: quadratic(model), False
        else:
            self.gradient, self.adjusted = self._of_fresh(protocol.batch), not job.problem.has_pool

    def both(self, loss: float) -> tuple[float, float]:
        """Return the unadjusted and the adjusted loss.

        Args:
            loss: What `gradient` gave.

        Returns:
            Both losses; an adjusted one is not below 0.
        """
        if self.adjusted:
            return loss + self.offset + self.oracle, loss + self.offset
        return loss, max(loss - self.oracle, 0.0)

    def _of_sample(self, size: int) -> Callable[[LinearTransformer, int], Gradient]:
        job = self.job
        D = job.problem.dim + job.layout.extra + 1
        if 8 * size * D * D > STORED:
            return self._of_fresh(size, np.float64, fixed=True)
        sums = job.layout.coordinate != "none"
        draw = job.problem.moments(size, seed=job.seed, stream=FINISH, sums=sums, threads=job.threads)
        batch = Batch.of(draw, job.layout)
        shared = batch.metric is None or batch.metric.ndim == 2
        if job.layers == 1 and not job.layout.extra and shared and D * D <= size:
            metric = None if batch.metric is None else np.asarray(batch.metric, np.float64)
            quadratic = Quadratic.of_sample(np.asarray(batch.gram), np.asarray(batch.target), metric)
            return lambda model, step: quadratic(model)

        def gradient(model: LinearTransformer, step: int) -> Gradient:
            found = batch.evaluate(model, np.inf, threads=job.threads)
            return float(found.losses.mean()), model.family.pullback(found.gradient)

        return gradient

    def _of_fresh(
        self, size: int, dtype: type = np.float32, fixed: bool = False
    ) -> Callable[[LinearTransformer, int], Gradient]:
        job = self.job

        def gradient(model: LinearTransformer, step: int) -> Gradient:
            key = {"seed": job.seed, "stream": FINISH if fixed else RACE, "step": 0 if fixed else step}
            found = model.astype(dtype).step(job.problem, size, threads=job.threads, **key)
            return float(found.losses.astype(np.float64).mean()), model.family.pullback(found.gradient)

        return gradient
