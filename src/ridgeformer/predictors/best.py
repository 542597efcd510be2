"""The best predictor of a built-in problem, and its oracle: which one belongs to which laws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import kind_of, refuse
from ridgeformer.moments import Moments
from ridgeformer.predictors.bayes import DMMSE, BayesRR
from ridgeformer.predictors.ridge import OracleRR
from ridgeformer.predictors.sparse import SparseBayes, SparseOracle
from ridgeformer.predictors.tokenwise import TokenBayes
from ridgeformer.problems import Draw, Problem, Sequences
from ridgeformer.problems.posterior import oracle_of_pool

__all__ = ["best_predictor", "oracle"]

Array = NDArray[np.float64]


def best_predictor(problem: Problem) -> BayesRR | DMMSE | SparseBayes | TokenBayes:
    """Return the predictor of least expected loss.

    Args:
        problem: The distribution of sequences.

    Returns:
        `DMMSE` for tasks of a pool, `SparseBayes` for sparse tasks, and `BayesRR` for Gaussian ones; `TokenBayes` where
        noise differs from token to token.
    """
    if problem.noise.per_token:
        return TokenBayes(problem.noise, problem.prior)
    if problem.tasks.is_gaussian:
        return BayesRR(problem.noise, problem.prior)
    return (DMMSE if problem.has_pool else SparseBayes)(problem.tasks, problem.noise)


def oracle(problem: Problem, drawn: Sequences | Draw | Moments) -> Array:
    """Compute E[w | context, noise levels].

    Args:
        problem: The distribution of sequences.
        drawn: The sequences, or their moments with noise levels.

    Returns:
        The weights, [B, d].
    """
    if problem.noise.per_token:
        tokens = drawn if isinstance(drawn, Sequences) else getattr(drawn, "tokens", None)
        if tokens is None:
            refuse("this oracle needs tokens", kind_of(drawn), "Use problem.sequences, or moments with tokens=True.")
        return np.asarray(tokens.ridge(problem.prior))
    moments = drawn if isinstance(drawn, Moments) else drawn.moments
    if problem.has_pool:
        return oracle_of_pool(problem.tasks, moments)
    return (OracleRR(problem.prior) if problem.tasks.is_gaussian else SparseOracle(problem.tasks)).weights(moments)
