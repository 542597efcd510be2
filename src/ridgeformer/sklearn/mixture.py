"""Predictive distributions of labels: mixtures of t distributions over what is not known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
STEPS, NEGLIGIBLE = 60, 1e-9  # of quantiles; chances of nodes that do not matter to them
FREEDOM = 4.0  # degrees of freedom of Student's t distribution of the noise
NODES = 9  # of most of that distribution; three more show the tail
TABLE = 8001  # points of a table of the distribution function of t
TABULATED = 1000  # quantiles of a row, from which more labels than that are drawn
CELLS = 1 << 20  # labels times parts at a time


@dataclass(frozen=True, eq=False)
class Tails:
    """Factors of the variance of the noise of a label, with their probabilities: one factor of 1 for normal noise.

    Attributes:
        chances: The probabilities, [J].
        multiples: The factors, [J].
    """

    chances: Array = field(default_factory=lambda: np.ones(1))
    multiples: Array = field(default_factory=lambda: np.ones(1))

    @property
    def mean(self) -> float:
        """The mean factor."""
        return float(self.chances @ self.multiples)


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


@dataclass(eq=False)
class PosteriorMixture:
    """The posterior of weights and labels as a mixture over what is not known, in standardised units.

    Attributes:
        chance: The probabilities of the parts, [K].
        means: The means of the weights, given the part, [K, d].
        covariances: Their covariances, [K, d, d].
        noise: The means of the variance of the noise, [K].
        root: The means of its standard deviation, [K].
        inclusion: The probabilities that features matter, [d].
        freedom: The degrees of freedom of the t distributions of labels given a part; infinite for normal ones.
        level: The variance of the intercept over that of the noise: 1 / n, or 0 without an intercept.
        log_evidence: log p(labels); NaN with a law of the noise level.
        tails: How the noise of a single label differs from its level.
    """

    chance: Array
    means: Array
    covariances: Array
    noise: Array
    root: Array
    inclusion: Array
    freedom: float
    level: float
    log_evidence: float
    tails: Tails = field(default_factory=Tails)

    @property
    def mean(self) -> Array:
        """The mean of the weights, [d]."""
        return np.asarray(self.chance @ self.means)

    @property
    def covariance(self) -> Array:
        """The covariance of the weights, [d, d]."""
        spread = (self.means - self.mean) * np.sqrt(self.chance)[:, None]
        return np.asarray(np.tensordot(self.chance, self.covariances, 1) + spread.T @ spread)

    @property
    def sigma(self) -> float:
        """The mean of the noise level."""
        return float(self.chance @ self.root)

    @property
    def variance(self) -> float:
        """The mean of the variance of the noise."""
        return float(self.chance @ self.noise)

    def parts(self, x: Array, negligible: float = NEGLIGIBLE) -> tuple[Array, Array, Array, Array]:
        """Compute means and variances of the parts for new rows, without those that do not matter.

        Args:
            x: Standardised features, [m, d].
            negligible: The chance of a part that does not matter. Default: 1e-9.

        Returns:
            The probabilities [P], the means of the labels and the variances of these means, [m, P] each, and the
            variance of the noise, [P].
        """
        variance, relevant = (
            np.stack([((x @ covariance) * x).sum(1) for covariance in self.covariances], 1),
            self.chance > negligible,
        )
        variance = np.maximum(variance, 0.0) + self.level * self.noise
        return self.chance[relevant], (x @ self.means.T)[:, relevant], variance[:, relevant], self.noise[relevant]

    def components(self, x: Array) -> tuple[Array, Array, Array]:
        """Compute the parts of the mixture for new rows, without those that do not matter.

        Args:
            x: Standardised features, [m, d].

        Returns:
            Probabilities [P], locations and scales [m, P] each.
        """
        chance, mean, variance, noise = self.parts(x)
        shrink = 1.0 if np.isinf(self.freedom) else max(self.freedom - 2, 1e-9) / self.freedom
        scales = [np.sqrt(shrink * (variance + factor * noise)) for factor in self.tails.multiples]
        chances = np.concatenate([tail * chance for tail in self.tails.chances])
        return chances / chances.sum(), np.tile(mean, (1, len(scales))), np.concatenate(scales, 1)

    def quantiles(self, x: Array, levels: Array) -> Array:
        """Compute quantiles of the labels of new rows by bisection.

        Args:
            x: Standardised features, [m, d].
            levels: Probabilities between 0 and 1, [L], or [L, m] if rows differ in them.

        Returns:
            The quantiles, [L, m].
        """
        law, (chance, location, scale) = law_of(self.freedom), self.components(x)
        low, high = np.empty((2, len(levels), len(x)))
        levels = levels.reshape(len(levels), -1)
        for k, level in enumerate(law.ppf(levels)):  # the quantile lies between those of the parts
            ends = location + scale * level[:, None]
            low[k], high[k] = ends.min(1), ends.max(1)
        points = np.sinh(np.linspace(-16, 16, TABLE))
        table = law.cdf(points)
        for _ in range(STEPS):
            middle = 0.5 * (low + high)
            if np.all(high - low <= 1e-9 * (np.abs(middle) + scale.min())):
                break
            below = np.interp((middle[:, :, None] - location) / scale, points, table) @ chance < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(0.5 * (low + high))

    def sample(self, x: Array, count: int, rng: np.random.Generator, levels: Callable[[Array], Array]) -> Array:
        """Draw labels of new rows: quantiles of random levels.

        Args:
            x: Standardised features, [m, d].
            count: How many for each row.
            rng: The random numbers.
            levels: Translates levels of a calibrated distribution to those of this one.

        Returns:
            The labels, [count, m].
        """
        from scipy.special import ndtr

        drawn = rng.standard_normal((count, len(x)))  # whose distribution function is the level
        if count <= TABULATED:
            size = max(1, CELLS // (count * len(self.chance)))
            starts = range(0, len(x), size)
            parts = [self.quantiles(x[k : k + size], levels(ndtr(drawn[:, k : k + size]))) for k in starts]
            return np.concatenate(parts, 1)
        grid = np.linspace(-6, 6, TABULATED)
        table = self.quantiles(x, levels(ndtr(grid)))
        return np.stack([np.interp(column, grid, places) for column, places in zip(drawn.T, table.T, strict=True)], 1)


def law_of(freedom: float) -> Any:
    """Return the t distribution of SciPy, or the normal one.

    Args:
        freedom: The degrees of freedom; infinite for the normal distribution.

    Returns:
        The distribution.
    """
    from scipy.stats import norm, t

    return norm if np.isinf(freedom) else t(freedom)
