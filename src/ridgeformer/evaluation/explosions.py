"""How often a predictor explodes, also where no sample of affordable size would show it.

A sequence has exploded if its loss is above 100 times the signal (see `ridgeformer.losses`). Shipped models explode
with probabilities from 10^-15 to 10^-6. Sequences are therefore drawn from a wider law on which explosions are
frequent, and each is weighted by the ratio of the two densities, which is exact (see `proposals`). In a few rounds the
wider law is adapted to the explosions that were seen; only the last round, whose sequences are new, enters the result.
Where directions are not alike, because the problem or the predictor prefers some, a second stage also widens the law
along the direction that the exploded contexts share: a Full model may explode on estimates that point in one direction
of its own, which an average over all directions hardly ever meets.

No sequences are needed where a predictor says how long its weights can be, as `Universal.longest` does. An oracle o is
the mean of the task given the context and the noise level, so E exp(s |o|^2) <= E exp(s |w|^2) for s > 0 by Jensen's
inequality. For tasks N(0, I signal / d) Markov's inequality with the best s gives, for t > 1,

    P(|o|^2 > t signal) <= (t exp(1 - t))^(d / 2).

With |w_hat|^2 <= r^2 signal, a loss 1/2 |w_hat - o|^2 above 100 signals needs |o|^2 > (sqrt(200) - r)^2 signal.

>>> from ridgeformer import Problem, load
>>> model = load("zoo:diag/3/uniform(0,5)")
>>> rare = explosion_probability(Problem(noise="uniform(0,5)"), model, sequences=40_000)
>>> bool(1e-7 < rare.probability < 1e-6)
True
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ridgeformer.engine import default_threads, one_blas_thread
from ridgeformer.errors import refuse
from ridgeformer.evaluation.proposals import STREAM, Proposal
from ridgeformer.evaluation.sequence_losses import AnyPredictor, Candidate, blocks, check_predictor
from ridgeformer.losses import exploded, threshold
from ridgeformer.moments import Moments
from ridgeformer.predictors.base import check_problem
from ridgeformer.problems import BaseProblem, Problem
from ridgeformer.problems.features import Isotropic
from ridgeformer.validation import Array, integer, keywords
from ridgeformer.values import Value

BLOCK = 4096  # sequences at a time
PILOTS, SHARE = 4, 0.1  # rounds before the last one, and the share of the sequences that each of them takes
ALIKE, TRIED = 1e-3, 64  # how far weights may be from those of rotated contexts, and on how many contexts
LEAST = -700.0  # the logarithm of the smallest bound that is stated: smaller ones underflow
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
        upper: A bound that is above the probability in about 95 % of all cases; see `upper_bound`. Where nothing
            exploded, it is 3 times the largest possible weight over the number of sequences. Where no sequences were
            drawn, because the length of the weights is bounded, it is above the probability for certain.
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

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes by name, and the kind of bound, as JSON has them."""
        return {**asdict(self), "bound": self.bound}

    def __str__(self) -> str:
        if not self.sequences:
            return f"below {self.upper:.1e} (proven, because the length of the weights is bounded)"
        if not self.exploded:
            return f"below {self.upper:.1e} (none of {self.sequences:,} sequences of a wider law exploded)"
        least = "at least about " if self.bound == "lower" else ""
        return f"{least}{self.probability:.2e} +- {self.error:.1e} ({self.hits:.0f} effective hits)"


@keywords()
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
        predictor: A model or any object with `weights(moments)`. If it has a method `longest(problem)`, that must be a
            length that its weights never exceed.
        sequences: How many sequences are drawn from wider laws, at least 1,000. Default: 50,000, about
            three seconds for a shipped model on two cores, and twice as long where there is a second stage.
        seed: The seed. Default: 0.

    Returns:
        The probability, its standard error, and the effective number of hits.

    Raises:
        InputError: The problem is one of your own, whose density is not known, or the predictor needs tokens.
    """
    law, count = check_problem(problem), integer("sequences", sequences, 1000)
    candidate = check_predictor("the predictor", predictor, law)
    if candidate.needs_tokens:
        rule = "explosion probabilities need a predictor with weights(moments), because contexts are drawn as moments"
        received = f"{type(predictor).__name__}, which only has predict(x, y, queries)"
        refuse(rule, received, "Count explosions with evaluate and many sequences.")
    certain = _largest_probability(law, predictor)
    if certain < 1:
        return ExplosionProbability(0.0, 0.0, 0.0, 0, 0, certain)
    proposal, pilot, step = Proposal(law), int(SHARE * count), 0
    stages = (1, 2) if _has_directions(law, candidate) else (2,)
    for stage in stages:
        for size in [pilot] * PILOTS + [count - PILOTS * pilot]:
            ratios, directions, step = _hits(proposal, candidate, size, integer("seed", seed, 0), step)
            logs = proposal.log_weights(ratios)
            top = float(logs.max(initial=-np.inf))  # comes out first: weights may be below the least positive number
            weights, last = np.exp(logs - top), proposal
            if len(weights):
                roots = np.sqrt(weights)  # a single sequence should not decide
                proposal = proposal.adapted(ratios, roots, directions)
        if not len(weights):
            break
        if stage == 1:
            proposal = proposal.directed(directions, roots)
    if not len(weights):
        return ExplosionProbability(0.0, 0.0, 0.0, 0, size, min(3 * last.largest_weight / size, 1.0))
    total, squares, unit = float(weights.sum()), float(np.square(weights).sum()), float(np.exp(top))
    mean, spread = total / size, float(np.sqrt(max(squares / size - (total / size) ** 2, 0.0) / (size - 1)))
    probability, error, hits = min(unit * mean, 1.0), unit * spread, total**2 / squares
    upper = upper_bound(probability, error, hits)
    return ExplosionProbability(probability, error, hits, len(weights), size, upper)


def why_unknown(problem: BaseProblem) -> str:
    """Say why the explosion probabilities of a problem cannot be measured.

    Args:
        problem: The distribution of sequences.

    Returns:
        The reason, as the end of a sentence; empty where they can be measured.
    """
    if problem.has_known_laws:
        return ""
    if len(problem.by_dimension()) > 1:
        return "unknown: it is measured for one dimension only"
    if problem.noise is not None and problem.noise.per_token:
        return "unknown: it is measured for one noise level per sequence only, and here every example has its own"
    return "unknown: the density of a problem of your own is not known"


def upper_bound(probability: float, error: float, hits: float) -> float:
    """Return a bound that is above a probability in about 95 % of all cases.

    Estimates that rest on few hits are skewed: most are too low, with standard errors that are too small, because the
    sequences of large weight are missing. The bound is p exp(1.645 (1 + 2 / sqrt(hits)) error / p): the relative error
    counts as 1 + 2 / sqrt(hits) times what it seems. On a law of known probability that is hard for the estimate (one
    coordinate of least squares, d = 10, n = 60), p + 1.645 error is above it for 15 of 24 seeds, and the bound for 22.

    Args:
        probability: The estimate.
        error: Its standard error.
        hits: The effective number of hits.

    Returns:
        The bound, at most 1.
    """
    if not probability > 0:  # weights below the least positive number
        return 0.0
    return float(min(probability * np.exp(1.645 * (1 + 2 / np.sqrt(hits)) * error / probability), 1.0))


def _largest_probability(problem: Problem, predictor: Any) -> float:
    """Bound the probability by the length of the weights, where all directions are alike; 1 where nothing is proven."""
    bounded = hasattr(predictor, "longest") and problem.tasks.is_gaussian and not problem.noise.per_token
    tasks = problem.signal / problem.dim * np.eye(problem.dim)
    if not bounded or problem.query is not None or problem.features != Isotropic():
        return 1.0
    if problem.prior.mean is not None or not np.allclose(problem.tasks.second_moment(problem.dim), tasks):
        return 1.0
    room = max(np.sqrt(2 * threshold(problem.signal)) - predictor.longest(problem), 0.0) ** 2 / problem.signal
    logarithm = problem.dim / 2 * (np.log(room) + 1 - room) if room > 1 else 0.0
    return float(np.exp(max(logarithm, LEAST)))


def _has_directions(problem: Problem, candidate: Candidate) -> bool:
    """Whether some directions differ from others: for the problem, or for the weights of rotated contexts."""
    if not problem.is_isotropic:
        return True
    moments = problem.moments(TRIED, seed=0, stream=STREAM, sums=candidate.needs_sums).moments
    R = np.eye(problem.dim + 1)
    R[:-1, :-1] = np.linalg.qr(np.random.default_rng(0).standard_normal((problem.dim, problem.dim)))[0]
    sums = None if moments.sums is None else moments.sums @ R.T
    turned = Moments._trusted(R @ moments.gram @ R.T, moments.context, moments.sigma, sums)
    weights, turned_weights = (np.asarray(candidate.predictor.weights(m), np.float64) for m in (moments, turned))
    size = float(np.abs(weights).max())  # weights that are all 0 tell nothing
    return not (size > 0 and np.allclose(weights @ R[:-1, :-1].T, turned_weights, rtol=0, atol=ALIKE * size))


def _hits(
    proposal: Proposal, candidate: Candidate, count: int, seed: int, step: int
) -> tuple[dict[str, Array], Array, int]:
    """Return ratios [H, K] by axis and directions [H, r] of sequences that exploded, and the next free step."""
    sizes = [size for _, size in blocks(count, proposal.problem.dim, BLOCK)]

    def work(block: int) -> tuple[dict[str, Array], Array]:
        tilted = proposal.draw(sizes[block], seed, step + block)
        with np.errstate(all="ignore"):
            adjusted, _ = candidate.losses(tilted.draw)
        index = np.flatnonzero(exploded(adjusted, proposal.problem.signal))
        return tilted.log_ratios(index), tilted.directions[index]

    with one_blas_thread(), ThreadPoolExecutor(default_threads()) as pool:
        parts, directions = zip(*pool.map(work, range(len(sizes))), strict=True)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return joined, np.concatenate(directions), step + len(sizes)
