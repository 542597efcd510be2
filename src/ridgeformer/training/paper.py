"""The protocol of the paper: Adam on the query loss, from one small random start, at a constant rate.

The query loss is 1/2 <w_hat - w, x>^2 for a sampled query x. Its gradient is that of 1/2 |w_hat - t|^2 for the fixed
target t = w_hat - <w_hat - w, x> x, which any engine can differentiate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.training.job import RACE, Job, Outcome, Step, Steps, follow
from ridgeformer.training.spec import Protocol, Spec
from ridgeformer.validation import integer, positive

Array = NDArray[np.float64]
FIRST, SECOND, TINY = 0.9, 0.999, 1e-8  # Adam's usual constants
SAVED = 1000  # steps between two checkpoints
ROWS = 200  # of the history, about
PARTS = ("point", "mean", "square")


@dataclass(frozen=True, kw_only=True)
class Paper(Protocol):
    """The protocol of the paper: the query loss, Adam, a constant rate, one small random start.

    Attributes:
        steps: Steps of Adam.
        batch: Sequences per step.
        rate: The learning rate.

    Raises:
        InputError: A value is outside its range.
    """

    name: ClassVar[str] = "paper"
    adjusted: ClassVar[bool] = False

    steps: int = 200_000
    batch: int = 2048
    rate: float = 1e-4

    def __post_init__(self) -> None:
        integer("steps", self.steps)
        integer("batch", self.batch, 1, 1 << 24)
        positive("the learning rate", self.rate, 1e-4)

    def complete(self, spec: Spec) -> Spec:
        """See `Protocol.complete`."""
        if not spec.problem.is_isotropic:
            refuse("the paper's protocol is for the paper's problem", spec.problem, "Use the protocol search.")
        return spec

    def cost(self, spec: Spec) -> float:
        """See `Protocol.cost`."""
        return float(self.steps * self.batch)

    def run(self, job: Job) -> Outcome:
        """See `Protocol.run`: Adam from a small random start or a given one, while the loss is finite."""
        return follow(_adam(job, self), job)

    def advice(self) -> str:
        """See `Protocol.advice`."""
        return f"; a rate of {self.rate / 10:.3g} may help"


def _adam(job: Job, protocol: Paper) -> Steps:
    model, every = job.start(), min(max(protocol.steps // ROWS, 1), SAVED)
    names = [*model.family.arrays]
    state = _restored(job, protocol, model)
    taken = int(state["taken"][0])
    point, mean, square = ({name: state[f"{part}/{name}"].copy() for name in names} for part in PARTS)
    losses: list[float] = []
    notes: list[tuple[int, float, float]] = []  # sequences, mean loss and time, noted with the next checkpoint
    while taken < protocol.steps:
        model = job.model(job.spec.family(**point))
        loss, slope = query_gradient(
            job.problem, model, batch=protocol.batch, seed=job.seed, step=taken, threads=job.threads
        )
        losses.append(loss)
        taken += 1
        for name in names:
            mean[name] += (1 - FIRST) * (slope[name] - mean[name])
            square[name] += (1 - SECOND) * (slope[name] ** 2 - square[name])
            size = np.sqrt(square[name] / (1 - SECOND**taken)) + TINY
            point[name] -= protocol.rate * mean[name] / (1 - FIRST**taken) / size
        saves = taken % SAVED == 0 or taken == protocol.steps
        if taken % every == 0 or saves:
            notes.append((protocol.batch * len(losses), float(np.mean(losses)), job.journal.seconds))
            losses = []
        if not np.isfinite(loss) or not all(np.isfinite(value).all() for value in point.values()):
            return Outcome(model, False, f"the loss was not finite at step {taken:,}", lost=True)
        if saves:
            job.journal.forget(f"step/{(taken - 1) // SAVED * SAVED}")
            for note in notes:
                job.journal.note("adam", *note)
            job.journal.keep(f"step/{taken}", _stored(taken, point, mean, square))
            loss, notes = notes[-1][1], []
            yield Step(job.model(job.spec.family(**point)), "adam", taken / protocol.steps, loss)
    return Outcome(job.model(job.spec.family(**point)), False, f"all {protocol.steps:,} steps were taken")


def _stored(taken: int, *parts: Mapping[str, Array]) -> dict[str, NDArray[Any]]:
    named = ((f"{part}/{name}", values[name]) for part, values in zip(PARTS, parts, strict=True) for name in values)
    arrays = {name: value.copy() for name, value in named}
    return {**arrays, "taken": np.array([taken])}


def _restored(job: Job, protocol: Paper, start: LinearTransformer) -> Mapping[str, NDArray[Any]]:
    """The last checkpoint in the journal, or the beginning."""
    steps = protocol.steps
    for taken in (steps, *range(steps - steps % SAVED, 0, -SAVED)):
        if (stored := job.journal.recall(f"step/{taken}")) is not None:
            return stored
    zeros = {name: np.zeros(value.shape) for name, value in start.family.arrays.items()}
    return _stored(0, {name: np.asarray(value) for name, value in start.family.arrays.items()}, zeros, zeros)


def query_gradient(
    problem: BaseProblem, model: LinearTransformer, *, batch: int, seed: int, step: int, threads: int | None = None
) -> tuple[float, dict[str, Array]]:
    """Compute the query loss of a batch of fresh sequences with one query each, and its gradient.

    Args:
        problem: The problem.
        model: The model.
        batch: How many sequences.
        seed: Seed of the run.
        step: The number of the step; every step has other sequences.
        threads: Threads of the engine; None for all.

    Returns:
        The mean loss, and the gradient with respect to the arrays of the family, by name. Where a prediction is not
        finite the loss is infinite and the gradient zero.
    """
    draw = problem.moments(batch, seed=seed, stream=RACE, step=step, dtype=np.float32, threads=threads)
    query = np.random.default_rng([seed, step, RACE]).standard_normal(draw.task.shape, np.float32)
    with np.errstate(all="ignore"):
        weights = model.weights(draw.moments, threads=threads)
        missed = ((weights - draw.task) * query).sum(1, keepdims=True)
        loss = 0.5 * float(np.square(missed.astype(np.float64)).mean())
        target = weights - missed * query
    good = np.isfinite(target).all(1)
    if not good.all():
        return float("inf"), {name: np.zeros(value.shape) for name, value in model.family.arrays.items()}
    evaluation = model.evaluate(draw.moments, target, gradient=True, threads=threads)
    return loss, model.family.pullback(evaluation.gradient)
