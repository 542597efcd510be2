"""Options that need the training rows themselves, not only sums over them: heavy-tailed noise, and calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeformer.sklearn.mixture import FREEDOM, PosteriorMixture, Tails, student_tails
from ridgeformer.sklearn.posterior import StandardisedSums, Sums
from ridgeformer.values import Value

Array = NDArray[np.float64]
Solver = Callable[[Sums], tuple[StandardisedSums, tuple[PosteriorMixture, ...]]]
ITERATIONS, CLOSE = 30, 1e-3  # of the precisions of rows
LEFT_OUT = 500  # rows at most that are left out, one after another
MOST_LEVERAGE, MOST_RATIO = 0.9, 3.0  # of a row; of the logarithms of probabilities of parts
SCALES, FREEDOMS, SPREAD = np.exp(np.linspace(-1, 1, 41)), (3.0, 4.0, 6.0, 10.0, 30.0, np.inf), 0.3
CLIP = 1e-6  # probabilities beyond are rounding


@dataclass(eq=False)
class WeightedRows(Value):
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


def student_precisions(rows: WeightedRows, solve: Solver) -> tuple[Array, Tails]:
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
        standardised, (posterior,) = solve(sums)
        z = (rows.x - sums.x_mean)[:, standardised.kept] / standardised.x_scale
        error = (rows.y - sums.y_mean)[:, 0] / standardised.unit[0] - z @ posterior.mean
        variance = ((z @ posterior.covariance) * z).sum(1) + posterior.variance * standardised.level
        squares = (error**2 + variance) / (posterior.variance * unit)
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


def left_out(
    rows: WeightedRows, precision: Array, given: StandardisedSums, mixture: PosteriorMixture, output: int
) -> Array:
    """Compute the probability of a smaller label for training rows, each as predicted from all other rows.

    Leaving out a row divides its likelihood out of each part of the mixture. With the variance v of a mean and s of the
    noise of a row, the row has the leverage h = v / s, and the label y - e is predicted as y - e / (1 - h). The parts
    then have other probabilities, too. This is exact for one subset of the features. An average over subsets is taken
    for a normal distribution.

    Args:
        rows: The rows.
        precision: Factors of the weights, [n].
        given: The sums over all rows, in the units of the problem.
        mixture: The posterior given all rows.
        output: Which output.

    Returns:
        The probabilities, for at most `LEFT_OUT` rows.
    """
    from scipy.special import ndtr, stdtr

    index = np.random.default_rng(0).permutation(len(rows.x))[:LEFT_OUT]
    x = (rows.x[index] - given.x_mean)[:, given.kept] / given.x_scale
    y = ((rows.y[index, output] - given.y_mean[output]) / given.unit[output])[:, None]
    weight, (before, mean, variance, noise) = (rows.weights * precision)[index, None], mixture.parts(x, 1e-6)
    leverage, free = np.minimum(variance * weight / noise, MOST_LEVERAGE), np.isfinite(mixture.freedom)
    error = (y - mean) / (1 - leverage)
    count, freedom, shrink = rows.weights[index, None], np.full((len(x), 1), np.inf), np.ones((len(x), 1))
    if free:  # the sum of squares has the terms of this row less, as many as its weight says
        squares = noise * max(mixture.freedom - 2, 1e-9) - weight * (1 - leverage) * error**2
        noise = np.maximum(squares, 1e-3 * noise) / np.maximum(mixture.freedom - 2 - count, 1e-9)
        freedom = np.maximum(mixture.freedom - count, 0.5)
        shrink = np.maximum(freedom - 2, 1e-9) / freedom
    variance = noise / weight * leverage / (1 - leverage)
    scale = np.sqrt(shrink * (variance + noise / weight))
    ratio = np.square(error / scale)
    tail = 0.5 * (freedom + count) * np.log1p(ratio / freedom) if free else 0.5 * ratio
    score = np.log(scale) + 0.5 * (count - 1) * np.log(noise) + tail  # a weight of 2 is two equal rows
    middle = np.median(score, 1, keepdims=True)
    chance = before * np.exp(np.minimum(score - middle, MOST_RATIO))
    chance /= chance.sum(1, keepdims=True)
    scales = [np.sqrt(shrink * (variance + factor * noise)) for factor in mixture.tails.multiples]
    below = [stdtr(freedom, error / wide) if free else ndtr(error / wide) for wide in scales]
    parts = [c * (chance * part).sum(1) for c, part in zip(mixture.tails.chances, below, strict=True)]
    return np.asarray(np.sum(parts, 0))


def calibrate(below: Array) -> Calibration:
    """Choose a calibration.

    The scale and the degrees of freedom are those of the largest posterior density, with a prior on the logarithm of
    the scale that is normal around 0.

    Args:
        below: The probabilities of smaller labels that `left_out` computes.

    Returns:
        The calibration.
    """
    from scipy.stats import norm, t

    z = norm.ppf(np.clip(below, CLIP, 1 - CLIP))
    scores = [
        t.logpdf(z[:, None] / SCALES, freedom).sum(0) - len(z) * np.log(SCALES) - 0.5 * (np.log(SCALES) / SPREAD) ** 2
        for freedom in FREEDOMS
    ]
    best = np.unravel_index(int(np.argmax(scores)), (len(FREEDOMS), len(SCALES)))
    return Calibration(float(SCALES[best[1]]), FREEDOMS[best[0]])
