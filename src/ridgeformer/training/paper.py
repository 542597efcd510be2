"""The protocol of the paper: Adam on the query loss, from one small random start, at a constant rate.

The query loss is 1/2 <w_hat - w, x>^2 for a sampled query x. Its gradient is that of 1/2 |w_hat - t|^2 for the fixed
target t = w_hat - <w_hat - w, x> x, which any engine can differentiate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ridgeformer.errors import refuse
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.training.descent.walk import TINY, DescentState
from ridgeformer.training.job import RACE, Job, Outcome, Step, Steps, Vector, follow
from ridgeformer.training.spec import Protocol, Spec
from ridgeformer.validation import integer, keywords, positive
from ridgeformer.values import Array

FIRST, SECOND = 0.9, 0.999  # Adam's usual constants
SAVED = 1000  # steps between two checkpoints
ROWS = 200  # of the history, about
PIECE = "adam"  # its name in the journal


@keywords()
@dataclass(frozen=True, kw_only=True)
class PaperProtocol(Protocol):
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


def _adam(job: Job, protocol: PaperProtocol) -> Steps:
    start, every = job.start(), min(max(protocol.steps // ROWS, 1), SAVED)
    vector = Vector(start, None)
    state = DescentState.begin(vector.pack(start), job.journal.recall(PIECE))
    losses: list[float] = []
    notes: list[tuple[int, float, float]] = []  # sequences, mean loss and time, noted with the next checkpoint
    while state.taken < protocol.steps:
        model = vector.model(state.point)
        loss, gradient = query_gradient(
            job.problem, model, batch=protocol.batch, seed=job.seed, step=state.taken, threads=job.threads
        )
        losses.append(loss)
        slope = vector.slope(gradient)
        state.taken += 1
        state.velocity += (1 - FIRST) * (slope - state.velocity)
        state.square += (1 - SECOND) * (slope**2 - state.square)
        size = np.sqrt(state.square / (1 - SECOND**state.taken)) + TINY
        state.point -= protocol.rate * state.velocity / (1 - FIRST**state.taken) / size
        saves = state.taken % SAVED == 0 or state.taken == protocol.steps
        if state.taken % every == 0 or saves:
            notes.append((protocol.batch * len(losses), float(np.mean(losses)), job.journal.seconds))
            losses = []
        if not np.isfinite(loss) or not np.isfinite(state.point).all():
            return Outcome(model, False, f"the loss was not finite at step {state.taken:,}", lost=True)
        if saves:
            for note in notes:
                job.journal.note("adam", *note)
            job.journal.keep(PIECE, state.arrays())
            loss, notes = notes[-1][1], []
            yield Step(vector.model(state.point), "adam", state.taken / protocol.steps, loss)
    return Outcome(vector.model(state.point), False, f"all {protocol.steps:,} steps were taken")


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
