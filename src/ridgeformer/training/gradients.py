"""What descents follow: the loss and gradient of the population, of a fixed sample, or of fresh sequences.

All three give the gradient of the plain mean loss, without what the search does about exploding sequences. For one
layer the population and a fixed sample are quadratic forms (`ridgeformer.population`): a gradient takes microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Evaluation
from ridgeformer.engine.arrays import pieces
from ridgeformer.evaluation.oracle import expected_oracle_loss
from ridgeformer.models.family import ArrayFamily
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.population import Quadratic
from ridgeformer.problems import Problem
from ridgeformer.training.batch import Batch
from ridgeformer.training.job import FINISH, RACE, SELECT, Job
from ridgeformer.training.objective import STORED
from ridgeformer.training.protocols import Descent, sample_size
from ridgeformer.training.vector import Vector

__all__ = ["Course"]

Array = NDArray[np.float64]
Gradient = tuple[float, Array]
SEQUENCES = 1 << 18  # on which the oracle's loss is measured where tasks come from a pool
OWN = 1 << 12  # the same where sequences are drawn by Python


class Course:
    """Loss and gradient for a protocol, as functions of one vector of parameters.

    Args:
        job: What is trained, on which problem.
        protocol: The protocol, which names the batch.
        start: The model to start from.

    Attributes:
        vector: Packs and unpacks the parameters.
        oracle: The unadjusted loss of the oracle, the difference between both kinds of losses.
        offset: The part of the loss that no weights can predict.
        adjusted: Whether the losses that `gradient` gives are adjusted ones.
        gradient: Takes the parameters and the number of a step; returns the loss and its gradient.
        sequences: Fresh sequences per step; 0 for the population and for a fixed sample.
    """

    def __init__(self, job: Job, protocol: Descent, start: LinearTransformer) -> None:
        self.job, self.start, self.vector = job, start, Vector(start, None)
        self.sequences = protocol.batch if isinstance(protocol.batch, int) else 0
        self.oracle, self.offset = _oracle(job)
        self.adjusted = True
        size = sample_size(protocol.batch)
        self.gradient: Callable[[Array, int], Gradient]
        if size is not None:
            self.gradient = self._of_sample(size)
        elif self.sequences:
            self.gradient, self.adjusted = self._of_fresh(self.sequences), not job.problem.has_pool
        else:
            self.gradient = self._of_quadratic(Quadratic.of_problem(job.problem, job.layout))
            self.adjusted = False

    def both(self, loss: float) -> tuple[float, float]:
        """Return the unadjusted and the adjusted loss.

        Args:
            loss: What `gradient` gave.

        Returns:
            Both losses.
        """
        if self.adjusted:
            return loss + self.offset + self.oracle, loss + self.offset
        return loss, loss - self.oracle

    def _of_quadratic(self, quadratic: Quadratic) -> Callable[[Array, int], Gradient]:
        live = _Live(self.start, self.vector)

        def gradient(point: Array, step: int) -> Gradient:
            loss, slopes = quadratic.of_family(live.at(point).family)
            return loss, self.vector.slope(slopes)

        return gradient

    def _of_sample(self, size: int) -> Callable[[Array, int], Gradient]:
        job = self.job
        D = job.problem.dim + job.layout.extra + 1
        if 8 * size * D * D > STORED:
            return self._of_fresh(size, np.float64, fixed=True)
        sums = job.layout.coordinate != "none"
        draw = job.problem.moments(size, seed=job.seed, stream=FINISH, sums=sums, threads=job.threads)
        batch = Batch.of(draw, job.layout)
        shared = batch.metric is None or batch.metric.ndim == 2
        if self.start.layers == 1 and not job.layout.extra and shared and size >= D * D:
            metric = None if batch.metric is None else np.asarray(batch.metric, np.float64)
            return self._of_quadratic(Quadratic.of_sample(np.asarray(batch.gram), np.asarray(batch.target), metric))

        return self._of_engine(lambda model, _: batch.evaluate(model, np.inf, threads=job.threads))

    def _of_fresh(self, size: int, dtype: type = np.float32, fixed: bool = False) -> Callable[[Array, int], Gradient]:
        job, stream = self.job, FINISH if fixed else RACE

        def evaluate(model: LinearTransformer, step: int) -> Evaluation:
            number = 0 if fixed else step
            return model.step(job.problem, size, seed=job.seed, stream=stream, step=number, threads=job.threads)

        return self._of_engine(evaluate, dtype)

    def _of_engine(
        self, evaluate: Callable[[LinearTransformer, int], Evaluation], dtype: type = np.float64
    ) -> Callable[[Array, int], Gradient]:
        live = _Live(self.start, self.vector, dtype)

        def gradient(point: Array, step: int) -> Gradient:
            # Engines refuse parameters, and products of them, that are not finite in their precision.
            if not (_is_finite(point.astype(dtype)) and _is_finite(*(model := live.at(point)).kernel)):
                return np.inf, np.zeros_like(point)
            found = evaluate(model, step)
            return found.loss, self.vector.slope(model.family.pullback(found.gradient))

        return gradient


def _oracle(job: Job) -> tuple[float, float]:
    """The unadjusted loss of the oracle, and the part of it that no weights can predict."""
    if isinstance(job.problem, Problem) and not job.problem.has_pool:
        return expected_oracle_loss(job.problem), 0.0
    draw = job.problem.moments(SEQUENCES if job.problem.law is not None else OWN, seed=job.seed, stream=SELECT)
    adjusted, unadjusted = draw.both_losses(draw.ridge)
    return float((unadjusted - adjusted).mean()), 0.0 if draw.offset is None else float(np.mean(draw.offset))


def _is_finite(*values: NDArray[Any]) -> bool:
    return all(bool(np.isfinite(value).all()) for value in values)


class _Live:
    """A model whose parameters follow a vector without being checked and copied at every step.

    Making a model costs more than the gradient of one layer. Ridgeformer's own families keep a dict of arrays, and
    nothing computed from them: an object of which these are views of one vector is always up to date. It never leaves
    this module. Models of other families are made anew at every step.
    """

    def __init__(self, start: LinearTransformer, vector: Vector, dtype: type = np.float64) -> None:
        self.vector, self.dtype = vector, dtype
        self.model: LinearTransformer | None = None
        if not (start.family.built_in and isinstance(start.family, ArrayFamily)):
            return
        point = vector.pack(start)
        self.model = vector.model(point, dtype)
        self.point: NDArray[Any] = point.astype(dtype)
        shapes = {name: value.shape for name, value in start.family.arrays.items()}
        vars(self.model.family)["_arrays"] = dict(zip(shapes, pieces(self.point, shapes.values()), strict=True))

    def at(self, point: Array) -> LinearTransformer:
        """The model at a point; valid until the next call."""
        if self.model is None:
            return self.vector.model(point, self.dtype)
        self.point[:] = point
        return self.model
