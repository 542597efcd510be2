"""Which predictors belong to a problem: its oracle, and the classical ones that it is compared with, the best one last.

>>> from ridgeformer import Problem
>>> chosen, left_out = baselines(Problem(dim=3, context=2, noise=1))
>>> list(chosen)
['OracleRR', 'ConstRR', 'LeastSquares', 'Bayes floor']
>>> left_out[0]
'AdaRR and TunedRR are left out: they estimate the noise level, which needs n > 3 examples, and n is 2.'
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ridgeformer.errors import kind_of, refuse
from ridgeformer.moments import Moments
from ridgeformer.predictors.base import Predictor
from ridgeformer.predictors.bayes import gram_bound
from ridgeformer.predictors.discrete import PoolPosterior, SparseOracle, at_known_levels
from ridgeformer.predictors.iterative import IterativeRR
from ridgeformer.predictors.ridge import AdaRR, ConstRR, LeastSquares, OracleRR, TunedRR
from ridgeformer.problems import BaseProblem, ByDimension, Draw, Problem, Sequences
from ridgeformer.problems.base import check_any_problem
from ridgeformer.validation import Array

GRAM_BOUND = "Gram bound"  # the best that can be made of the Gram matrix where tokens tell more
STEPS = 100  # of IterativeRR


def oracle(problem: Problem, drawn: Sequences | Draw | Moments) -> Array:
    """Compute E[w | context, noise levels].

    Args:
        problem: The distribution of sequences.
        drawn: The sequences, or their moments with noise levels.

    Returns:
        The weights, [B, d].
    """
    if not isinstance(drawn, Moments | Sequences | Draw):
        refuse("an oracle needs sequences or moments", kind_of(drawn), "Pass problem.sequences(100), for example.")
    if problem.noise.per_token:
        tokens = drawn if isinstance(drawn, Sequences) else getattr(drawn, "tokens", None)
        if tokens is None:
            refuse("this oracle needs tokens", kind_of(drawn), "Use problem.sequences, or moments with tokens=True.")
        if problem.tasks.is_gaussian:
            return np.asarray(tokens.ridge(problem.prior))
        moments = _of_unit_noise(tokens)
    else:
        moments = drawn if isinstance(drawn, Moments) else drawn.moments
    if problem.has_pool:
        return at_known_levels(moments, partial(PoolPosterior, problem.tasks))
    return (OracleRR(problem.prior) if problem.tasks.is_gaussian else SparseOracle(problem.tasks)).weights(moments)


def _of_unit_noise(tokens: Sequences) -> Moments:
    """Moments of tokens that are divided by their noise levels."""
    assert tokens.sigma is not None
    least = 1e-6 * np.sqrt(np.square(tokens.y).mean(1, keepdims=True)) + 1e-150  # below, levels are rounding
    scale = np.maximum(tokens.sigma, least)
    moments = Moments.from_tokens(tokens.x / scale[:, :, None], tokens.y / scale, tokens.context)
    return Moments(moments.gram, moments.context, np.ones(len(scale)))


def best_label(problem: BaseProblem) -> str:
    """Return the name of the best predictor of a problem in tables: `DMMSE` for pools, else `Bayes floor`.

    Args:
        problem: The distribution of sequences.

    Returns:
        The name.
    """
    return "DMMSE" if problem.has_pool else "Bayes floor"


def oracle_label(problem: BaseProblem) -> str:
    """Return the name of ridge regression that is told the noise level in tables.

    For tasks that are not Gaussian it is not the oracle of the adjusted loss, which knows their law; its name says so.

    Args:
        problem: The distribution of sequences.

    Returns:
        The name.
    """
    return "OracleRR" if problem.has_ridge_oracle else "OracleRR (Gaussian prior)"


def baselines(problem: BaseProblem) -> tuple[dict[str, Predictor], list[str]]:
    """Return the classical predictors that a problem allows, the best predictor last, and why others are left out.

    Those that estimate the noise from residuals need more examples than the tasks have directions, in every sequence.
    IterativeRR assumes that features, tasks and queries are N(0, I) and that all contexts have the same length. On a
    problem of your own there is no oracle, and ridge regression assumes tasks from N(0, I).

    Args:
        problem: The distribution of sequences.

    Returns:
        The predictors by name, and one sentence for each reason to leave some out.

    Raises:
        InputError: This is no problem.
    """
    check_any_problem(problem)
    if len(cells := problem.by_dimension()) > 1:
        return _by_dimension({d: baselines(cell) for d, cell in cells.items()})
    predictors, left_out, prior = dict[str, Predictor](), list[str](), problem.prior
    rank = problem.dim if prior.factor is None else prior.factor.shape[1]
    if problem.has_known_laws:
        predictors[oracle_label(problem)] = OracleRR(prior)
    else:
        left_out.append("OracleRR is left out: sequences of this problem do not have one known noise level each.")
    predictors |= {"ConstRR": ConstRR.tune(problem), "LeastSquares": LeastSquares()}
    if problem.lengths.least > rank:
        predictors |= {"AdaRR": AdaRR(prior), "TunedRR": TunedRR.tune(problem)}
    else:
        needed = f"they estimate the noise level, which needs n > {rank} examples, and n is {problem.lengths}"
        left_out.append(f"AdaRR and TunedRR are left out: {needed}.")
    if problem.is_isotropic and problem.lengths.least > rank:
        predictors[f"IterativeRR({STEPS})"] = IterativeRR(STEPS)
    elif problem.is_isotropic:
        left_out.append("IterativeRR is left out for the same reason.")
    elif differences := problem.differences():
        assumed = "it assumes that features, tasks and queries are N(0, I) and n is fixed"
        left_out.append(f"IterativeRR is left out: {assumed}; here {differences}.")
    if isinstance(problem, Problem) and (bound := gram_bound(problem)) is not None:
        predictors[GRAM_BOUND] = bound
    best = problem.best_predictor()
    if best is None:
        left_out.append("The floor is left out: the problem does not say which predictor is the best one.")
    return predictors | ({} if best is None else {best_label(problem): best}), left_out


def _by_dimension(each: dict[int, tuple[dict[str, Predictor], list[str]]]) -> tuple[dict[str, Predictor], list[str]]:
    """The predictors that every dimension allows, and why others are left out at the smallest dimension that does."""
    shared = [name for name in next(iter(each.values()))[0] if all(name in allowed for allowed, _ in each.values())]
    combined: dict[str, Predictor] = {}
    for name in shared:
        by_dim: dict[int, Any] = {d: predictors[name] for d, (predictors, _) in each.items()}
        knows_sigma = any(getattr(predictor, "knows_sigma", False) for predictor in by_dim.values())
        combined[name] = ByDimension({d: predictor.weights for d, predictor in by_dim.items()}, knows_sigma=knows_sigma)
    return combined, [f"At d = {d}: {reason}" for d, (_, reasons) in list(each.items())[:1] for reason in reasons]
