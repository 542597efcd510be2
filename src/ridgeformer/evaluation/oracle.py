"""What the oracle of a problem loses: the part of every loss that knowing the noise level does not avoid."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation.sequence_losses import draw_sequences
from ridgeformer.evaluation.statistics import Running
from ridgeformer.predictors.base import check_problem
from ridgeformer.problems import Problem
from ridgeformer.validation import integer
from ridgeformer.wishart import eigenvalues

__all__ = ["OracleRisk", "expected_oracle_loss", "oracle_risk"]

Array = NDArray[np.float64]
BLOCK = 16_384  # sequences at a time
CONTEXTS, CELLS = 1 << 17, 1 << 23  # contexts that stand for all, at most, and their entries of S
NOTHING = 1e-12  # of the largest eigenvalue: a direction of which a context says nothing


class OracleRisk(NamedTuple):
    """The mean unadjusted loss of the oracle.

    Attributes:
        loss: The mean of 1/2 (<w_oracle, x> - <w, x>)^2 over queries x.
        error: Its standard error.
    """

    loss: float
    error: float


def oracle_risk(problem: Problem, *, sequences: int = 100_000, seed: int = 0) -> OracleRisk:
    """Measure the unadjusted loss of the oracle, which predicts with E[w | context, sigma].

    The unadjusted loss of any predictor is this plus its adjusted loss, on average.

    Args:
        problem: The distribution of sequences.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.

    Returns:
        The loss and its standard error.

    Raises:
        InputError: The problem is not a `Problem`, or a number is out of range.

    >>> round(oracle_risk(Problem(dim=1, context=1, noise=0), sequences=100).loss, 6)
    0.0
    """
    sequences, seed = integer("sequences", sequences, 2), integer("seed", seed, 0)
    found = Running(1, check_problem(problem).signal)
    for first in range(0, sequences, BLOCK):
        draw = draw_sequences(problem, seed, first, min(BLOCK, sequences - first))
        found.add(draw.losses(draw.ridge, draw.task)[:, None])
    return OracleRisk(float(found.mean[0]), float(found.errors[0]))


@functools.lru_cache(maxsize=64)
def expected_oracle_loss(problem: Problem) -> float:
    """Compute the unadjusted loss of the oracle with as little sampling as possible, for Gaussian tasks.

    Given a context and sigma it is half the trace of the posterior covariance, a sum over the eigenvalues e of S, in
    coordinates in which tasks are N(0, I), of sigma^2 / (sigma^2 + e). For isotropic problems their law is known
    exactly; elsewhere it is that of random contexts. Noise and tasks are never sampled.

    Args:
        problem: A problem without a pool of tasks.

    Returns:
        The loss.

    >>> round(expected_oracle_loss(Problem(dim=3, context=6, noise="uniform(0,2)")), 4)
    0.3551
    """
    if problem.is_isotropic:
        values, weights = eigenvalues(problem.dim, problem.context)
        return 0.5 * float(weights @ _unknown(problem, values)) + 0.5 * max(problem.dim - problem.context, 0)
    draw = problem.moments(min(CONTEXTS, CELLS // problem.dim**2 + 1))
    values, basis = np.linalg.eigh(problem.prior.whiten(draw.moments).S.astype(np.float64))
    if problem.prior.factor is not None:
        basis = problem.prior.factor @ basis
    metric = np.eye(problem.dim) if draw.metric is None else np.asarray(draw.metric, np.float64)
    weights = np.einsum("bik,bik->bk", basis, metric @ basis)
    return 0.5 * float((weights * _unknown(problem, values)).sum(1).mean())


def _unknown(problem: Problem, values: Array) -> Array:
    """E sigma^2 / (sigma^2 + e) for eigenvalues e, over the noise; interpolated where there are many eigenvalues."""
    largest = float(values.max())
    grid = np.geomspace(NOTHING * largest, largest, 4096)
    sigma, chance = problem.noise.quadrature()
    variance = sigma**2
    found = sum(c * (v / (v + grid)) for v, c in zip(variance.tolist(), chance.tolist(), strict=True))
    share = np.interp(np.log(np.maximum(values, grid[0])), np.log(grid), np.asarray(found))
    return np.where(values <= grid[0], 1.0, share)
