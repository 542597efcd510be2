"""The averages of a loss that a descent can follow: the population, a fixed sample, or fresh sequences in every step.

All three give the gradient of the plain mean loss, without what the search does about exploding sequences. For one
layer the population and a fixed sample are quadratic forms (`ridgeformer.population`): a gradient takes microseconds.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Evaluation
from ridgeformer.errors import refuse, shown
from ridgeformer.exact import expected_oracle_loss
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.population import Quadratic, check_population
from ridgeformer.problems import Problem
from ridgeformer.training.batch import STORED, Batch
from ridgeformer.training.job import FINISH, RACE, SELECT, Job, Vector
from ridgeformer.training.spec import Spec
from ridgeformer.validation import integer

Array = NDArray[np.float64]
Gradient = Callable[[Array, int], tuple[float, Array]]
SEQUENCES = 1 << 18  # on which the oracle's loss is measured where it is not known
PAIRS, LEAST = 1 << 22, 1 << 12  # of sequences and tasks of a pool, which the oracle compares; sequences all the same
CHECKED = 8192  # sequences that show how far the loss on a fixed sample is from that on fresh sequences


@dataclass(frozen=True, eq=False)
class Objective:
    """Loss and gradient as functions of one vector of parameters.

    Attributes:
        gradient: Takes the parameters and the number of a step; returns the loss and its gradient.
        adjusted: Whether these losses are adjusted ones.
        fresh: Takes the parameters; returns the loss on sequences that `gradient` does not see. None where all
            sequences are fresh.
        oracle: The unadjusted loss of the oracle, the difference between both kinds of losses.
        offset: The part of the loss that no weights can predict.
    """

    gradient: Gradient
    adjusted: bool
    fresh: Callable[[Array], float] | None
    oracle: float
    offset: float

    def both(self, loss: float) -> tuple[float, float]:
        """Return the unadjusted and the adjusted loss.

        Args:
            loss: The loss that `gradient` or `fresh` returned.

        Returns:
            Both losses.
        """
        if self.adjusted:
            return loss + self.offset + self.oracle, loss + self.offset
        return loss, loss - self.oracle


class Average(ABC):
    """The sequences over which a descent averages its loss.

    Attributes:
        sequences: Fresh sequences per step; 0 where all steps see the same function.
    """

    sequences = 0

    @property
    @abstractmethod
    def text(self) -> str | int:
        """The value as specs and the command line write it."""

    def __str__(self) -> str:
        return str(self.text)

    def check(self, spec: Spec, remedy: str) -> None:  # noqa: B027 (most averages fit every spec)
        """Refuse a spec whose loss cannot be averaged in this way.

        Args:
            spec: The run.
            remedy: What to do about it, for the error message.

        Raises:
            InputError: It cannot.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return what gradients are taken of, in words."""

    @abstractmethod
    def gradient(self, job: Job, vector: Vector) -> tuple[Gradient, bool]:
        """Return the loss and its gradient as a function of the parameters and the number of a step.

        Args:
            job: What is trained, on which problem.
            vector: Packs and unpacks the parameters.

        Returns:
            The function, and whether its losses are adjusted ones.
        """

    def objective(self, job: Job, vector: Vector) -> Objective:
        """Return what a descent follows.

        Args:
            job: What is trained, on which problem.
            vector: Packs and unpacks the parameters.

        Returns:
            The loss and its gradient, with what both kinds of losses differ by.
        """
        return Objective(*self.gradient(job, vector), self.fresh(job, vector), *_oracle(job))

    def fresh(self, job: Job, vector: Vector) -> Callable[[Array], float] | None:
        """Return the loss on sequences that gradients do not see, as a function of the parameters.

        Args:
            job: What is trained, on which problem.
            vector: Packs and unpacks the parameters.

        Returns:
            The function; None where all sequences are fresh.
        """
        return None


@dataclass(frozen=True)
class Population(Average):
    """The exact expectation over all sequences, known for one layer and features with one covariance."""

    text = "population"

    def check(self, spec: Spec, remedy: str) -> None:
        """See `Average.check`."""
        check_population(spec.problem, spec.layers * spec.family.loops, spec.layout, remedy)

    def describe(self) -> str:
        """See `Average.describe`."""
        return "the population"

    def gradient(self, job: Job, vector: Vector) -> tuple[Gradient, bool]:
        """See `Average.gradient`."""
        return _of_quadratic(vector, Quadratic.of_problem(job.problem, job.layout)), False


@dataclass(frozen=True)
class Sample(Average):
    """The mean over some sequences, the same in all steps.

    Attributes:
        size: How many sequences.
    """

    size: int = 8192

    def __post_init__(self) -> None:
        integer("the size of a sample", self.size, 1, 10**9 - 1)

    @property
    def text(self) -> str:
        """See `Average.text`."""
        return f"sample({self.size})"

    def describe(self) -> str:
        """See `Average.describe`."""
        return f"a fixed sample of {self.size:,} sequences"

    def gradient(self, job: Job, vector: Vector) -> tuple[Gradient, bool]:
        """See `Average.gradient`."""
        D = job.problem.dim + job.layout.extra + 1
        if self.size > _room(job):
            return _of_steps(job, vector, self.size, FINISH, np.float64, fixed=True), True
        batch = _drawn(job, self.size, FINISH)
        shared = batch.metric is None or batch.metric.ndim == 2
        if job.spec.layers * job.spec.family.loops == 1 and not job.layout.extra and shared and self.size >= D * D:
            metric = None if batch.metric is None else np.asarray(batch.metric, np.float64)
            form = Quadratic.of_sample(np.asarray(batch.gram), np.asarray(batch.target), metric)
            return _of_quadratic(vector, form), True
        return _of_engine(vector, lambda model, _: batch.evaluate(model, np.inf, threads=job.threads)), True

    def fresh(self, job: Job, vector: Vector) -> Callable[[Array], float]:
        """See `Average.fresh`."""
        batch = _drawn(job, min(CHECKED, _room(job)), SELECT)

        def loss(point: Array) -> float:
            if not _is_finite(point, *(model := vector.passing(point)).kernel):
                return np.inf
            return batch.evaluate(model, np.inf, gradient=False, threads=job.threads).loss

        return loss


@dataclass(frozen=True)
class Fresh(Average):
    """The mean over some sequences, fresh ones in every step.

    Attributes:
        size: How many sequences per step.
    """

    size: int = 512

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", integer("batch", self.size, 1, 1 << 24))

    @property
    def text(self) -> int:
        """See `Average.text`."""
        return self.size

    @property
    def sequences(self) -> int:  # type: ignore[override]
        """See `Average`."""
        return self.size

    def describe(self) -> str:
        """See `Average.describe`."""
        return f"{self.size:,} fresh sequences per step"

    def gradient(self, job: Job, vector: Vector) -> tuple[Gradient, bool]:
        """See `Average.gradient`."""
        return _of_steps(job, vector, self.size, RACE, np.float32), job.problem.has_ridge_oracle


def as_average(value: object) -> Average:
    """Return what a descent averages over from one of these values or from its text.

    Args:
        value: An `Average`, `population`, `sample(8192)`, or a number of fresh sequences.

    Returns:
        The value.

    Raises:
        InputError: It is none of these.
    """
    if isinstance(value, Average):
        return value
    if not isinstance(value, str):
        return Fresh(value)  # type: ignore[arg-type]
    if value == "population":
        return Population()
    named = re.fullmatch(r"sample\(([0-9]{1,9})\)", value)
    if named is None or int(named[1]) == 0:
        remedy = "Write population, sample(8192) or 512, for example."
        refuse("the batch must be population, sample(N) or a number of fresh sequences", shown(value), remedy)
    return Sample(int(named[1]))


def _room(job: Job) -> int:
    """How many sequences can be stored."""
    return STORED // (8 * (job.problem.dim + job.layout.extra + 1) ** 2)


def _drawn(job: Job, size: int, stream: int) -> Batch:
    sums = job.layout.coordinate != "none"
    draw = job.problem.moments(size, seed=job.seed, stream=stream, sums=sums, threads=job.threads)
    return Batch.of(draw, job.layout)


def _of_quadratic(vector: Vector, quadratic: Quadratic) -> Gradient:
    def gradient(point: Array, step: int) -> tuple[float, Array]:
        loss, slopes = quadratic.of_family(vector.passing(point).family)
        return loss, vector.slope(slopes)

    return gradient


def _of_steps(job: Job, vector: Vector, size: int, stream: int, dtype: type, fixed: bool = False) -> Gradient:
    def evaluate(model: LinearTransformer, step: int) -> Evaluation:
        number = 0 if fixed else step
        return model.step(job.problem, size, seed=job.seed, stream=stream, step=number, threads=job.threads)

    return _of_engine(vector, evaluate, dtype)


def _of_engine(
    vector: Vector, evaluate: Callable[[LinearTransformer, int], Evaluation], dtype: type = np.float64
) -> Gradient:
    def gradient(point: Array, step: int) -> tuple[float, Array]:
        # Engines refuse parameters, and products of them, that are not finite in their precision.
        if not (_is_finite(point.astype(dtype)) and _is_finite(*(model := vector.passing(point, dtype)).kernel)):
            return np.inf, np.zeros_like(point)
        evaluation = evaluate(model, step)
        return evaluation.loss, vector.slope(model.family.pullback(evaluation.gradient))

    return gradient


def _oracle(job: Job) -> tuple[float, float]:
    """The unadjusted loss of the oracle, and the part of it that no weights can predict."""
    if job.problem.has_known_laws and job.problem.has_ridge_oracle:
        return expected_oracle_loss(job.problem), 0.0
    sequences = job.problem.affordable(SEQUENCES)
    if job.problem.has_pool:
        tasks = cast("Problem", job.problem).tasks.pool(job.problem.dim)
        sequences = min(sequences, max(LEAST, PAIRS // len(cast("Array", tasks))))
    draw = job.problem.moments(sequences, seed=job.seed, stream=SELECT)
    adjusted, unadjusted = draw.both_losses(draw.ridge)
    return float((unadjusted - adjusted).mean()), 0.0 if draw.offset is None else float(np.mean(draw.offset))


def _is_finite(*values: NDArray[Any]) -> bool:
    return all(bool(np.isfinite(value).all()) for value in values)
