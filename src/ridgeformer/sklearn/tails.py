"""The noise of a single label over its level: normal, or with the heavy tails of Student's t distribution."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["FREEDOM", "Tails", "student_tails"]

Array = NDArray[np.float64]
FREEDOM = 4.0  # degrees of freedom of Student's t distribution of the noise
NODES = 9  # of most of the distribution; three more show the tail


@dataclass(frozen=True, eq=False)
class Tails:
    """Factors of the variance of the noise of a label, with their probabilities: one factor of 1 for normal noise.

    Attributes:
        chances: The probabilities, [J].
        factors: The factors, [J].
    """

    chances: Array = field(default_factory=lambda: np.ones(1))
    factors: Array = field(default_factory=lambda: np.ones(1))

    @property
    def mean(self) -> float:
        """The mean factor."""
        return float(self.chances @ self.factors)


def student_tails(unit: float) -> Tails:
    """Return the factors of Student's t distribution with four degrees of freedom.

    Such noise is normal with the variance sigma^2 / g, with g from a gamma distribution of shape and rate 2. The nodes
    are the means of 1 / g between quantiles of g, so that their mean, which is the variance, is exact.

    Args:
        unit: The mean of g sigma^2 over the variance that the factors multiply.

    Returns:
        The factors.
    """
    from scipy.stats import gamma

    edges = np.concatenate([[0.0, 0.002, 0.01, 0.03], np.linspace(0.1, 1.0, NODES)])
    law = gamma(FREEDOM / 2, scale=2 / FREEDOM)
    chances, cuts = np.diff(edges), law.ppf(edges)
    # E[1 / g] between two cuts: g^-1 times a gamma density of shape 2 is twice one of shape 1.
    shifted = gamma(FREEDOM / 2 - 1, scale=2 / FREEDOM)
    inverse = (FREEDOM / 2) / (FREEDOM / 2 - 1) * np.diff(shifted.cdf(cuts)) / chances
    return Tails(chances, unit * inverse)
