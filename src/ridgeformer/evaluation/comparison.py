"""Losses on average over a problem: of several predictors, of one, and of the best possible one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.evaluation.results import Comparison, OracleResult, Result
from ridgeformer.evaluation.sequence_losses import (
    AnyPredictor,
    Estimator,
    Progress,
    block_losses,
    check_predictors,
    draw_sequences,
    how_many,
)
from ridgeformer.evaluation.statistics import Tally
from ridgeformer.predictors.base import check_any_problem
from ridgeformer.predictors.bayes import best_predictor
from ridgeformer.problems import BaseProblem, Draw
from ridgeformer.validation import choice, integer

__all__ = ["compare", "evaluate", "floor", "floor_and_error"]

Array = NDArray[np.float64]
BLOCK = 16_384  # sequences at a time: memory does not grow with their number
UNKNOWN = float("nan"), float("nan")  # the floor and its error, where they were not asked for


def compare(
    problem: BaseProblem,
    predictors: Mapping[str, AnyPredictor],
    *,
    sequences: int = 100_000,
    seed: int = 0,
    estimator: Estimator = "exact",
    with_floor: bool = True,
    with_query_errors: bool = False,
    progress: Progress = lambda done, total: None,
) -> Comparison:
    """Evaluate several predictors on the same sequences, so that their differences are sharper than their losses.

    Args:
        problem: The distribution of sequences.
        predictors: What to evaluate, by name. A predictor with the attribute `knows_sigma = True`, such as `OracleRR`,
            declares that it uses what the floor assumes to be unknown: its loss may be below the floor.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.
        estimator: `exact` or `query`; see `evaluate`.
        with_floor: Whether to compute the Bayes floor on the same sequences. Without it, the floor is NaN.
        with_query_errors: Whether to add the standard errors that the paper's estimator, one query per sequence, has on
            as many sequences. They need no queries: given w, with p, o and l the halves of |w - w_task|^2,
            |w_ridge - w_task|^2 and |w - w_ridge|^2, a query's loss has the mean l and the variance
            2 p^2 + 2 o^2 - (p + o - l)^2.
        progress: Called with the number of sequences done and the number of all.

    Returns:
        The results by name, with the covariance of their losses.

    Raises:
        InputError: There is no predictor, one of them is not a predictor, or a number is out of range.

    Warns:
        BelowFloorWarning: A loss is more than 4 standard errors below the floor.
    """
    check_predictors("a comparison needs a dict of at least one predictor", predictors, problem)
    choice("the estimator", estimator, ("exact", "query"))
    sequences, seed = how_many(problem, sequences), integer("seed", seed, 0)
    adjusted, whole = (Tally(len(predictors), problem.signal, sequences) for _ in range(2))
    by_query = np.zeros(len(predictors))
    least = floor_and_error(problem, sequences, seed) if with_floor else UNKNOWN
    for first in range(0, sequences, BLOCK):
        count = min(BLOCK, sequences - first)
        losses, unadjusted, draw = block_losses(predictors, problem, estimator, seed, first, count)
        losses, unadjusted = adjusted.add(losses), whole.add(unadjusted)
        if with_query_errors:
            by_query += _query_variance(losses, unadjusted, draw or draw_sequences(problem, seed, first, count))
        progress(first + count, sequences)
    errors = np.sqrt(np.maximum(by_query / sequences**2 + adjusted.errors**2, 0.0))
    queries = dict(zip(predictors, errors.tolist(), strict=True)) if with_query_errors else {}
    others = dict(zip(predictors, adjusted.unexploded.tolist(), strict=True))
    return Comparison(_results(predictors, adjusted, whole, least, estimator), adjusted.covariance, others, queries)


def evaluate(
    problem: BaseProblem,
    predictor: AnyPredictor,
    *,
    sequences: int = 100_000,
    seed: int = 0,
    estimator: Estimator = "exact",
    with_floor: bool = True,
    progress: Progress = lambda done, total: None,
) -> Result:
    """Evaluate one predictor on fresh sequences.

    Args:
        problem: The distribution of sequences.
        predictor: A model, a baseline, or anything else with `weights(moments)` or `predict(x, y, queries)`. What only
            has the latter is evaluated through four sampled queries per sequence.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.
        estimator: `exact` averages 1/2 |w_hat - w_ridge(sigma)|^2. `query` is the paper's estimator: it samples a query
            and subtracts the oracle's loss. It has the same mean and a larger error.
        with_floor: Whether to compute the Bayes floor on the same sequences; it is computed once per problem, number of
            sequences and seed. Without it, the floor is NaN.
        progress: Called with the number of sequences done and the number of all.

    Returns:
        The loss, its standard error, the floor, and how many sequences exploded.

    Raises:
        InputError: The predictor is not a predictor, or a number is out of range.

    Warns:
        BelowFloorWarning: The loss is more than 4 standard errors below the floor.
    """
    name = repr(predictor)
    return compare(
        problem,
        {name: predictor},
        sequences=sequences,
        seed=seed,
        estimator=estimator,
        with_floor=with_floor,
        progress=progress,
    )[name]


def floor(problem: BaseProblem, *, sequences: int = 100_000, seed: int = 0) -> Result:
    """Compute the Bayes floor: no predictor has a smaller expected loss on average over the problem's noise levels.

    Args:
        problem: The distribution of sequences.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.

    Returns:
        The Bayes predictor's result, whose loss is the floor.

    Raises:
        InputError: The problem is not a `Problem`, or a number is out of range.
    """
    best = best_predictor(check_any_problem(problem))
    if best is None:
        refuse(
            "a floor needs a problem whose best predictor is known",
            f"{problem}, which supplies none",
            "Write a method best_predictor() in its class, or leave the floor unknown.",
        )
    found = evaluate(problem, best, sequences=sequences, seed=seed, with_floor=False)
    return replace(found, floor=found.loss, floor_error=found.error)


@functools.lru_cache(maxsize=64)
def floor_and_error(problem: BaseProblem, sequences: int, seed: int) -> tuple[float, float]:
    """Measure the mean adjusted loss of the best predictor, and its standard error.

    Args:
        problem: The distribution of sequences.
        sequences: How many sequences to use.
        seed: Seed of these sequences.

    Returns:
        Both numbers; NaN where the best predictor is not known.
    """
    best = best_predictor(problem)
    if best is None:
        return UNKNOWN
    found = compare(problem, {"floor": best}, sequences=sequences, seed=seed, with_floor=False)["floor"]
    return found.loss, found.error


def _query_variance(losses: Array, unadjusted: Array, draw: Draw) -> Array:
    """The variances of the losses at one query per sequence, summed over a block of sequences, [K]; see `compare`."""
    oracle = draw.losses(draw.ridge, draw.task)[:, None]
    return np.asarray((2 * unadjusted**2 + 2 * oracle**2 - (unadjusted + oracle - losses) ** 2).sum(0))


def _results(
    predictors: Mapping[str, AnyPredictor],
    adjusted: Tally,
    whole: Tally,
    least: tuple[float, float],
    estimator: Estimator,
) -> dict[str, Result]:
    """The results by name, from the statistics of adjusted and unadjusted losses, and the floor with its error."""
    spread, whole_spread = adjusted.errors, whole.errors
    return {
        name: (OracleResult if getattr(predictor, "knows_sigma", False) else Result)(
            name=name,
            loss=float(adjusted.mean[i]),
            error=float(spread[i]),
            unadjusted=float(whole.mean[i]),
            unadjusted_error=float(whole_spread[i]),
            floor=least[0],
            floor_error=least[1],
            largest=float(adjusted.top[-1, i]),
            tail=float(adjusted.top[0, i]),
            exploded=int(adjusted.exploded[i]),
            sequences=adjusted.count,
            estimator=estimator,
        )
        for i, (name, predictor) in enumerate(predictors.items())
    }
