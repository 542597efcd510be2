"""What descents follow: the loss and gradient of the population, of a fixed sample, or of fresh sequences.

All three give the gradient of the plain mean loss, without what the search does about exploding sequences. For one
layer the population and a fixed sample are quadratic forms (`ridgeformer.population`): a gradient takes microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation.oracle import expected_oracle_loss
from ridgeformer.models.family import ArrayFamily, Family
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
        live = _Live(self.start.family, self.vector)

        def gradient(point: Array, step: int) -> Gradient:
            loss, slopes = quadratic.of_family(live.at(point))
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

        def gradient(point: Array, step: int) -> Gradient:
            model = self.vector.model(point)
            if not _is_finite(model):
                return np.inf, np.zeros_like(point)
            found = batch.evaluate(model, np.inf, threads=job.threads)
            return float(found.losses.mean()), self.vector.slope(model.family.pullback(found.gradient))

        return gradient

    def _of_fresh(self, size: int, dtype: type = np.float32, fixed: bool = False) -> Callable[[Array, int], Gradient]:
        job = self.job

        def gradient(point: Array, step: int) -> Gradient:
            model = self.vector.model(point, dtype)
            if not _is_finite(model):
                return np.inf, np.zeros_like(point)
            key: dict[str, Any] = {"seed": job.seed, "stream": FINISH if fixed else RACE, "step": 0 if fixed else step}
            found = model.step(job.problem, size, threads=job.threads, **key)
            return found.loss, self.vector.slope(model.family.pullback(found.gradient))

        return gradient


def _oracle(job: Job) -> tuple[float, float]:
    """The unadjusted loss of the oracle, and the part of it that no weights can predict."""
    if isinstance(job.problem, Problem) and not job.problem.has_pool:
        return expected_oracle_loss(job.problem), 0.0
    draw = job.problem.moments(SEQUENCES if job.problem.law is not None else OWN, seed=job.seed, stream=SELECT)
    adjusted, unadjusted = draw.both_losses(draw.ridge)
    return float((unadjusted - adjusted).mean()), 0.0 if draw.offset is None else float(np.mean(draw.offset))


def _is_finite(model: LinearTransformer) -> bool:
    """Whether products of finite parameters are finite too, which engines require."""
    return all(bool(np.isfinite(value).all()) for value in model.kernel)


class _Live:
    """Parameters that follow a vector without being checked and copied at every step.

    Making a family costs more than the gradient of one layer. Ridgeformer's own families keep a dict of arrays, and
    nothing computed from them: an object of which these are views of one vector is always up to date. It never leaves
    this module. Other families are made anew at every step.
    """

    def __init__(self, family: Family, vector: Vector) -> None:
        self.vector, self.family = vector, None
        if not (family.built_in and isinstance(family, ArrayFamily)):
            return
        arrays = {name: value.astype(np.float64) for name, value in family.arrays.items()}
        self.family = type(family)(**arrays)
        self.point = np.concatenate([value.ravel() for value in arrays.values()])
        pieces = np.split(self.point, np.cumsum([value.size for value in arrays.values()])[:-1])
        views = {name: piece.reshape(arrays[name].shape) for name, piece in zip(arrays, pieces, strict=True)}
        vars(self.family)["_arrays"] = views

    def at(self, point: Array) -> Family:
        """The parameters at a point; valid until the next call."""
        if self.family is None:
            return self.vector.model(point).family
        self.point[:] = point
        return self.family
