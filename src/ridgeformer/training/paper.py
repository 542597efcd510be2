"""What the paper did: Adam on the query loss, from one small random start, at a constant rate.

The query loss is 1/2 <w_hat - w, x>^2 for a sampled query x. Its gradient is that of 1/2 |w_hat - t|^2 for the fixed
target t = w_hat - <w_hat - w, x> x, which any engine can differentiate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.training.job import RACE, Found, Job, Report, Step, Steps, follow
from ridgeformer.training.protocols import Paper

__all__ = ["query_gradient", "train_as_the_paper"]

Array = NDArray[np.float64]
FIRST, SECOND, TINY = 0.9, 0.999, 1e-8  # Adam's usual constants
SAVED = 1000  # steps between two checkpoints
ROWS = 200  # of the history, about


def train_as_the_paper(job: Job, protocol: Paper, report: Report) -> Found:
    """Train by Adam from a small random start or a given one, to the end or until the loss is not finite.

    Args:
        job: What to find.
        protocol: Steps, sequences per step, learning rate.
        report: Is called after every checkpoint.

    Returns:
        The last model.
    """
    return follow(_adam(job, protocol), report)


def _adam(job: Job, protocol: Paper) -> Steps:
    model = job.start()
    names = [*model.family.arrays]
    kept = next((found for t in _checkpoints(protocol.steps) if (found := job.journal.recall(f"step/{t}"))), None)
    if kept is None:
        zeros = [np.zeros(value.shape) for value in model.family.arrays.values()]
        kept = dict(zip(_names(names), [*model.family.arrays.values(), *zeros, *zeros], strict=True))
        kept["taken"] = np.zeros(1, np.int64)
    taken = int(kept["taken"][0])
    point, mean, square = ({name: kept[f"{part}/{name}"].copy() for name in names} for part in PARTS)
    losses: list[float] = []
    notes: list[tuple[int, float, float]] = []  # sequences, mean loss and time, noted with the next checkpoint
    every = min(max(protocol.steps // ROWS, 1), SAVED)
    while taken < protocol.steps:
        model = LinearTransformer(job.family(**point), job.problem.dim)
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
        if taken % every == 0 or taken % SAVED == 0 or taken == protocol.steps:
            notes.append((protocol.batch * len(losses), float(np.mean(losses)), job.journal.seconds))
            losses = []
        lost = not np.isfinite(loss) or not all(np.isfinite(value).all() for value in point.values())
        if taken % SAVED == 0 or taken == protocol.steps or lost:
            current = [values[name] for values in (point, mean, square) for name in names]
            state = {key: value.copy() for key, value in zip(_names(names), current, strict=True)}
            if lost:
                return Found(model, False, f"the loss was not finite at step {taken:,}", lost=True)
            state["taken"] = np.array([taken])
            job.journal.forget(f"step/{(taken - 1) // SAVED * SAVED}")
            for note in notes:
                job.journal.note("adam", *note)
            job.journal.keep(f"step/{taken}", state)
            loss, notes = notes[-1][1], []
            yield Step(LinearTransformer(job.family(**point), job.problem.dim), "adam", taken / protocol.steps, loss)
    return Found(
        LinearTransformer(job.family(**point), job.problem.dim), False, f"all {protocol.steps:,} steps were taken"
    )


PARTS = ("point", "mean", "square")


def _names(names: list[str]) -> list[str]:
    return [f"{part}/{name}" for part in PARTS for name in names]


def _checkpoints(steps: int) -> list[int]:
    return [steps, *range(steps - steps % SAVED, 0, -SAVED)]


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
    found = model.evaluate(draw.moments, target, gradient=True, threads=threads)
    return loss, model.family.pullback(found.gradient)
