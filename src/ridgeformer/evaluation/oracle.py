"""What the oracle of a problem loses: the part of every loss that knowing the noise level does not avoid."""

from __future__ import annotations

from typing import NamedTuple

from ridgeformer.evaluation.sequence_losses import draw_sequences
from ridgeformer.evaluation.statistics import Running
from ridgeformer.predictors.base import check_problem
from ridgeformer.problems import Problem
from ridgeformer.validation import integer

__all__ = ["OracleRisk", "oracle_risk"]

BLOCK = 16_384  # sequences at a time


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
