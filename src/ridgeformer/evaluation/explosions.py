"""How often a predictor explodes, also where no sample of affordable size would show it.

A sequence has exploded if its loss is above 100 times the signal (see `ridgeformer.losses`). Shipped models explode
with probabilities from 10^-15 to 10^-6. Sequences are therefore drawn from a wider law on which explosions are
frequent, and each is weighted by the ratio of the two densities, which is exact (see `proposals`). In a few rounds the
wider law is adapted to the explosions that were seen; only the last round, whose sequences are new, enters the result.

>>> from ridgeformer import Problem, load
>>> model = load("zoo:diag/3/uniform(0,5)")
>>> rare = explosion_probability(Problem(noise="uniform(0,5)"), model, sequences=40_000)
>>> bool(1e-7 < rare.probability < 1e-6)
True
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import default_threads, one_blas_thread
from ridgeformer.errors import refuse
from ridgeformer.evaluation.proposals import Proposal
from ridgeformer.evaluation.sequence_losses import AnyPredictor, check_predictor, losses, needs_tokens
from ridgeformer.losses import exploded
from ridgeformer.predictors.base import check_problem
from ridgeformer.problems import BaseProblem
from ridgeformer.validation import integer
from ridgeformer.values import Value

Array = NDArray[np.float64]
BLOCK = 4096  # sequences at a time
PILOTS, SHARE = 4, 0.1  # rounds before the last one, and the share of the sequences that each of them takes
FEW_HITS = 10.0  # effective hits below which an estimate is rather too low than too high


@dataclass(frozen=True)
class ExplosionProbability(Value):
    """The probability that a sequence explodes, by importance sampling.

    Attributes:
        probability: The estimate, at most 1; but for that limit, its expectation is the probability exactly.
        error: Its standard error.
        hits: The effective number of exploded sequences behind it: (sum of weights)^2 / sum of squared weights.
        exploded: How many sequences exploded among those drawn from the wider law.
        sequences: How many sequences were drawn from the wider law in the last round.
        upper: A bound that is above the probability in 95 % of all cases: the estimate plus 1.645 standard errors; or,
            where nothing exploded, 3 times the largest possible weight over the number of sequences.
    """

    probability: float
    error: float
    hits: float
    exploded: int
    sequences: int
    upper: float

    @property
    def bound(self) -> str:
        """The kind of bound that the estimate is: `upper`, `lower` or `none`.

        It is `upper` where no sequence exploded, so that only the attribute `upper` is known, and `lower` with fewer
        than 10 effective hits, where an estimate is more often too low than too high.
        """
        if not self.exploded:
            return "upper"
        return "lower" if self.hits < FEW_HITS else "none"

    def numbers(self) -> dict[str, Any]:
        """Return the attributes by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes by name, and the kind of bound, as JSON has them."""
        return {**self.numbers(), "bound": self.bound}

    def __str__(self) -> str:
        if not self.exploded:
            return f"below {self.upper:.1e} (none of {self.sequences:,} sequences of a wider law exploded)"
        least = "at least about " if self.bound == "lower" else ""
        return f"{least}{self.probability:.2e} +- {self.error:.1e} ({self.hits:.0f} effective hits)"


def explosion_probability(
    problem: BaseProblem, predictor: AnyPredictor, *, sequences: int = 50_000, seed: int = 0
) -> ExplosionProbability:
    """Estimate the probability that a sequence of a problem explodes.

    The estimate has no bias, but it can only see explosions that the wider law reaches: contexts that are stretched or
    compressed in one direction, larger tasks, more noise, higher noise levels, extreme scales of features, and short
    or long contexts. Random covariances of features and tasks that are not Gaussian are drawn as the problem has
    them, so explosions that only rare covariances cause are found as rarely as they occur.

    Args:
        problem: The distribution of sequences, a built-in one.
        predictor: A model or any object with `weights(moments)`.
        sequences: How many sequences are drawn from wider laws, at least 1,000. Default: 50,000, about
            three seconds for a shipped model on two cores.
        seed: The seed. Default: 0.

    Returns:
        The probability, its standard error, and the effective number of hits.

    Raises:
        InputError: The problem is one of your own, whose density is not known, or the predictor needs tokens.
    """
    law, count = check_problem(problem), integer("sequences", sequences, 1000)
    check_predictor("the predictor", predictor, law)
    if needs_tokens(predictor):
        refuse(
            "explosion probabilities need a predictor with weights(moments), because contexts are drawn as moments",
            f"{type(predictor).__name__}, which only has predict(x, y, queries)",
            "Count explosions with evaluate and many sequences.",
        )
    proposal, pilot, step = Proposal(law), int(SHARE * count), 0
    for size in [pilot] * PILOTS + [count - PILOTS * pilot]:
        ratios, step = _hits(proposal, predictor, size, integer("seed", seed, 0), step)
        logs = proposal.log_weights(ratios)
        top = float(logs.max(initial=-np.inf))  # comes out first: weights may be below the least positive number
        weights, last = np.exp(logs - top), proposal
        if len(weights):
            proposal = proposal.adapted(ratios, np.sqrt(weights))  # the root: a single sequence should not decide
    if not len(weights):
        return ExplosionProbability(0.0, 0.0, 0.0, 0, size, min(3 * last.largest_weight / size, 1.0))
    total, squares, unit = float(weights.sum()), float(np.square(weights).sum()), float(np.exp(top))
    mean, spread = total / size, float(np.sqrt(max(squares / size - (total / size) ** 2, 0.0) / (size - 1)))
    probability, upper = min(unit * mean, 1.0), min(unit * (mean + 1.645 * spread), 1.0)
    return ExplosionProbability(probability, unit * spread, total**2 / squares, len(weights), size, upper)


def _hits(
    proposal: Proposal, predictor: AnyPredictor, count: int, seed: int, step: int
) -> tuple[dict[str, Array], int]:
    """The ratios of densities of the sequences that exploded, [H, K] for each axis, and the next free step."""
    sizes = [min(BLOCK, count - first) for first in range(0, count, BLOCK)]

    def work(block: int) -> dict[str, Array]:
        tilted = proposal.draw(sizes[block], seed, step + block)
        adjusted, _ = losses(predictor, tilted.draw)
        return tilted.log_ratios(np.flatnonzero(exploded(adjusted, proposal.problem.signal)))

    with one_blas_thread(), ThreadPoolExecutor(default_threads()) as pool:
        parts = list(pool.map(work, range(len(sizes))))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, step + len(sizes)
