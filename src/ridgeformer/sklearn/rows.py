"""Options that need the training rows themselves, not only sums over them: heavy-tailed noise, and calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeformer.sklearn.posterior import Posterior, Standardised
from ridgeformer.sklearn.sums import Sums
from ridgeformer.sklearn.tails import FREEDOM, Tails, student_tails
from ridgeformer.values import Value

__all__ = ["Calibration", "Rows", "calibrate", "student_precisions"]

Array = NDArray[np.float64]
Solver = Callable[[Sums], tuple[Standardised, Posterior]]
ITERATIONS, CLOSE = 30, 1e-3  # of the precisions of rows
LEFT_OUT = 60  # rows at most that are left out, one after another
SCALES, FREEDOMS, SPREAD = np.exp(np.linspace(-1, 1, 41)), (3.0, 4.0, 6.0, 10.0, 30.0, np.inf), 0.3
CLIP = 1e-6  # probabilities beyond are rounding


@dataclass(eq=False)
class Rows(Value):
    """Rows with weights.

    Attributes:
        x: Features, [n, d].
        y: Labels, [n, q].
        weights: Weights, [n].
        centred: Whether there is an intercept.
    """

    x: Array
    y: Array
    weights: Array
    centred: bool

    def sums(self, precision: Array | float = 1.0) -> Sums:
        """Sum over the rows.

        Args:
            precision: Further factors of the weights, [n].

        Returns:
            The sums.
        """
        return Sums.of(self.x, self.y, self.weights * precision, self.centred)


def student_precisions(rows: Rows, solve: Solver) -> tuple[Array, Tails]:
    """Find the precision of every row if noise has Student's t distribution with four degrees of freedom.

    Such noise is normal with the variance sigma^2 / g, where g has a gamma distribution. The posterior of the weights
    given the means of g, and the means of g given the posterior of the weights, are computed in turn: the variational
    approximation in which both are independent.

    Args:
        rows: The rows, with one output.
        solve: Computes the posterior given sums.

    Returns:
        The precisions, [n], whose weighted mean is 1, and the factors of the variance of the noise of a new label.
    """
    mean = np.ones(len(rows.x))
    for _ in range(ITERATIONS):
        unit = float(rows.weights @ mean / rows.weights.sum())
        sums = rows.sums(mean / unit)
        given, posterior = solve(sums)
        z = (rows.x - sums.x_mean)[:, given.kept] / given.x_scale
        error = (rows.y - sums.y_mean)[:, 0] / given.unit[0] - z @ posterior.weights[0]
        own = ((z @ posterior.covariance[0]) * z).sum(1) + posterior.variance[0] * given.level
        squares = (error**2 + own) / (posterior.variance[0] * unit)
        new = (FREEDOM + 1) / (FREEDOM + squares)
        change, mean = np.abs(new - mean).max(), new
        if change < CLOSE:
            break
    unit = float(rows.weights @ mean / rows.weights.sum())
    return mean / unit, student_tails(unit)


@dataclass(frozen=True, eq=False)
class Calibration(Value):
    """A predictive distribution made wider or narrower, with heavier tails.

    With u the probability of smaller labels that a posterior says, the normal quantile of u is taken to have a t
    distribution with this scale and these degrees of freedom.

    Attributes:
        scale: The scale.
        freedom: The degrees of freedom.
    """

    scale: float = 1.0
    freedom: float = np.inf

    def levels(self, levels: Array) -> Array:
        """Translate probabilities to those of the posterior.

        Args:
            levels: Probabilities.

        Returns:
            The probabilities that the posterior gives to the same quantiles.
        """
        from scipy.stats import norm, t

        return np.asarray(np.clip(norm.cdf(self.scale * t(self.freedom).ppf(levels)), 1e-12, 1 - 1e-12))

    @property
    def spread(self) -> float:
        """The standard deviation over that of the posterior, if this is normal."""
        return self.scale if np.isinf(self.freedom) else float(self.scale * np.sqrt(self.freedom / (self.freedom - 2)))


def calibrate(rows: Rows, precision: Array, output: int, solve: Solver, tails: Tails) -> Calibration:
    """Calibrate by leave-one-out: predict some training rows from all others.

    The scale and the degrees of freedom are those of the largest posterior density, with a prior on the logarithm of
    the scale that is normal around 0.

    Args:
        rows: The rows.
        precision: Factors of the weights, [n].
        output: Which output.
        solve: Computes the posterior given sums.
        tails: The tails of the noise.

    Returns:
        The calibration.
    """
    from scipy.stats import norm, t

    chosen = np.random.default_rng(0).permutation(len(rows.x))[:LEFT_OUT]
    one = Rows(rows.x, rows.y[:, output : output + 1], rows.weights, rows.centred)
    whole, below = one.sums(precision), []
    for i in chosen:
        x, y, weight = one.x[i : i + 1], one.y[i : i + 1], (one.weights * precision)[i : i + 1]
        rest = whole.plus(Sums.of(x, y, -weight, one.centred))
        if not rest.examples > 0.5:
            continue
        given, posterior = solve(rest)
        mixture = posterior.mixtures[0]
        mixture.tails = tails
        z = (x - rest.x_mean)[:, given.kept] / given.x_scale
        below.append(float(mixture.distribution(z, (y[:, 0] - rest.y_mean) / given.unit)[0]))
    if not below:
        return Calibration()
    z = norm.ppf(np.clip(below, CLIP, 1 - CLIP))
    scores = [
        t(freedom).logpdf(z[:, None] / SCALES).sum(0) - len(z) * np.log(SCALES) - 0.5 * (np.log(SCALES) / SPREAD) ** 2
        for freedom in FREEDOMS
    ]
    best = np.unravel_index(int(np.argmax(scores)), (len(FREEDOMS), len(SCALES)))
    return Calibration(float(SCALES[best[1]]), FREEDOMS[best[0]])
