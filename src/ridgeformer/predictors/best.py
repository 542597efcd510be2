"""The best predictor of a built-in problem, and its oracle: which one belongs to which laws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import kind_of, refuse
from ridgeformer.moments import Moments
from ridgeformer.predictors.bayes import DMMSE, BayesRR
from ridgeformer.predictors.gibbs import TokenBayes
from ridgeformer.predictors.ridge import OracleRR
from ridgeformer.predictors.sparse import SparseBayes, SparseOracle
from ridgeformer.problems import Draw, Problem, Sequences
from ridgeformer.problems.posterior import oracle_of_pool

__all__ = ["best_predictor", "gram_bound", "oracle"]

Array = NDArray[np.float64]


def best_predictor(problem: Problem) -> BayesRR | DMMSE | SparseBayes | TokenBayes:
    """Return the predictor of least expected loss.

    Args:
        problem: The distribution of sequences.

    Returns:
        `DMMSE` for tasks of a pool, `SparseBayes` for sparse tasks, and `BayesRR` for Gaussian ones; `TokenBayes` where
        noise differs from token to token.
    """
    return TokenBayes(problem.noise, problem.tasks) if problem.noise.per_token else _of_moments(problem)


def gram_bound(problem: Problem) -> BayesRR | DMMSE | SparseBayes | None:
    """Return the best predictor that sees the Gram matrix only, which no linear transformer can beat.

    Args:
        problem: The distribution of sequences.

    Returns:
        The predictor; None where it is the best one of all, or is not known: for standardised features, which leave out
        one direction of the noise, so that Gram matrices have another law than with one level for each sequence.
    """
    return _of_moments(problem) if problem.noise.per_token and not problem.features.standardised else None


def _of_moments(problem: Problem) -> BayesRR | DMMSE | SparseBayes:
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
        if problem.tasks.is_gaussian:
            return np.asarray(tokens.ridge(problem.prior))
        moments = _of_unit_noise(tokens)
    else:
        moments = drawn if isinstance(drawn, Moments) else drawn.moments
    if problem.has_pool:
        return oracle_of_pool(problem.tasks, moments)
    return (OracleRR(problem.prior) if problem.tasks.is_gaussian else SparseOracle(problem.tasks)).weights(moments)


def _of_unit_noise(tokens: Sequences) -> Moments:
    """Moments of tokens that are divided by their noise levels."""
    assert tokens.sigma is not None
    least = 1e-6 * np.sqrt(np.square(tokens.y).mean(1, keepdims=True)) + 1e-150  # below, levels are rounding
    scale = np.maximum(tokens.sigma, least)
    moments = Moments.from_tokens(tokens.x / scale[:, :, None], tokens.y / scale, tokens.context)
    return Moments(moments.gram, moments.context, np.ones(len(scale)))
