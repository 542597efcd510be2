"""Sums over the training rows, and the posterior of weights and noise level given them.

Sums are weighted counts, means and centred sums, which add over batches of rows: centred sums of two batches are merged
with the difference of their means. Sums of raw squares, whose difference gives the same, would lose digits where means
are large.

Features are standardised, and a flat prior on the intercept takes one example: n - 1 are left. Weights are N(0, t) in
every direction. Given t and the noise variance t v, they are normal with the mean (S + v)^-1 a and the covariance
t v (S + v)^-1; what is not known is averaged over. There are three priors.

- With a law of the noise level, t is 1 and sigma^2 = v follows the law, as in a `Problem`. Labels are scaled to a
  standard deviation of sqrt(d + E sigma^2), which is theirs in that problem.
- Without one, the share R^2 of the variance of labels that features explain has a beta distribution. With V the
  variance of labels, t = V R^2 / d and t v = V (1 - R^2). V is known to be about the variance in the sample, as if
  two further examples had shown it.
- With a prior over subsets, the weights of the other features are 0, and the same holds within each subset, with the
  number of its features in place of d.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import one_blas_thread
from ridgeformer.moments import ContextSpectrum, Moments
from ridgeformer.noise import Noise
from ridgeformer.predictors.bayes import noise_posterior
from ridgeformer.predictors.subsets import FURTHER
from ridgeformer.sklearn.averaging import Law, average
from ridgeformer.sklearn.mixture import Averaged, Mixture, Nodes, Spectral
from ridgeformer.values import Value

__all__ = ["Posterior", "StandardisedSums", "Sums"]

Array = NDArray[np.float64]
ROUNDING = 10 * np.finfo(np.float64).eps  # of its mean: a standard deviation below that is rounding
RANK = 1e-12  # of the largest eigenvalue: what is smaller is 0 with rounding
FINEST = 1024  # nodes per factor of two of the noise level
NODES, ROUNDS, REACH = 145, 6, 40.0  # of the search for where the posterior of R^2 is; e^-40 of its peak is nothing
CONSTANT = np.sqrt(np.finfo(np.float64).eps)  # the standard deviation of constant labels, as a share of their value


@dataclass(eq=False)
class Sums(Value):
    """Centred sums over rows with weights.

    Attributes:
        weight: The sum of the weights, the number of rows where all are 1.
        x_mean: The means of the features, [d].
        y_mean: The means of the labels, [q].
        xx: sum weight (x - mean)(x - mean)', [d, d].
        xy: sum weight (x - mean)(y - mean)', [d, q].
        yy: sum weight (y - mean)^2, [q].
        centred: Whether means are subtracted, as for a model with an intercept; otherwise they are 0.
    """

    weight: float
    x_mean: Array
    y_mean: Array
    xx: Array
    xy: Array
    yy: Array
    centred: bool = True

    @classmethod
    def of(cls, x: Array, y: Array, weights: Array, centred: bool = True) -> Sums:
        """Sum over rows.

        Args:
            x: Features, [n, d].
            y: Labels, [n, q].
            weights: Weights, [n], not negative and not all zero.
            centred: Whether to subtract means. Default: True.

        Returns:
            The sums.
        """
        total = float(weights.sum())
        if not centred:
            weighted, means = weights[:, None] * x, (np.zeros(x.shape[1]), np.zeros(y.shape[1]))
            return cls(total, *means, weighted.T @ x, weighted.T @ y, weights @ y**2, False)
        # Means of differences from the first row: those of constant columns are exactly 0, whatever the number of rows.
        x_mean, y_mean = (part[0] + weights @ (part - part[0]) / total for part in (x, y))
        x, y = x - x_mean, y - y_mean
        weighted = weights[:, None] * x
        return cls(total, x_mean, y_mean, weighted.T @ x, weighted.T @ y, weights @ y**2)

    def plus(self, other: Sums) -> Sums:
        """Merge the sums of two batches.

        Args:
            other: The sums of the other batch.

        Returns:
            The sums over the rows of both.
        """
        total = self.weight + other.weight
        share, x, y = other.weight / total, other.x_mean - self.x_mean, other.y_mean - self.y_mean
        between = self.weight * share
        return Sums(
            total,
            self.x_mean + share * x,
            self.y_mean + share * y,
            self.xx + other.xx + between * np.outer(x, x),
            self.xy + other.xy + between * np.outer(x, y),
            self.yy + other.yy + between * y**2,
            self.centred,
        )

    @property
    def examples(self) -> float:
        """How many examples the centred rows are: an intercept takes one."""
        return self.weight - self.centred

    @property
    def level(self) -> float:
        """The variance of the mean of the labels over that of the noise; 0 without an intercept."""
        return self.centred / self.weight

    @property
    def x_scale(self) -> Array:
        """The standard deviations of the features, [d]; exactly 0 where a feature is constant."""
        return _deviation(self.xx.diagonal(), self.x_mean, self.weight)

    @property
    def y_scale(self) -> Array:
        """The standard deviations of the labels, [q]; exactly 0 where a label is constant."""
        return _deviation(self.yy, self.y_mean, self.weight)


def _deviation(squares: Array, mean: Array, weight: float) -> Array:
    deviation = np.sqrt(squares / weight)
    return np.where(deviation > ROUNDING * np.abs(mean), deviation, 0.0)


class StandardisedSums(Value):
    """Sums in the units of a problem with standardised features; constant features are left out.

    Args:
        sums: The sums over the rows.
        noise: The law of the noise level. None if there is none: labels then have a standard deviation of 1.
    """

    def __init__(self, sums: Sums, noise: Noise | None = None) -> None:
        scale = sums.x_scale
        self.kept, self.noise, self.weight = np.flatnonzero(scale > 0), noise, sums.weight
        self.examples, self.level = sums.examples, sums.level
        self.x_mean, self.y_mean = sums.x_mean, sums.y_mean
        self.dim, self.x_scale = len(self.kept), scale[self.kept]
        deviation = 1.0 if noise is None else np.sqrt(self.dim + noise.second_moment)
        constant = sums.y_scale == 0  # such labels become 0, in units of about half the digits of a float
        scale = np.where(constant, CONSTANT * np.where(sums.y_mean == 0, 1.0, np.abs(sums.y_mean)), sums.y_scale)
        self.unit = scale / (deviation or 1.0)  # what 1 is in units of the labels, [q]
        inner = np.where(constant, np.inf, self.unit)
        self.S = sums.xx[np.ix_(self.kept, self.kept)] / np.outer(self.x_scale, self.x_scale)
        self.a = (sums.xy[self.kept] / self.x_scale[:, None] / inner).T  # [q, d]
        self.total = sums.yy / inner**2  # [q]

    @cached_property
    def spectrum(self) -> ContextSpectrum:
        """The eigendecomposition, one for all labels, of rank r: directions in which rows do not differ are left out.

        The residuals of least squares belong to `examples` rows, one less than there are if there is an intercept.
        """
        with one_blas_thread():
            values, vectors = np.linalg.eigh(self.S)
        kept = values > RANK * values.max(initial=0.0)
        values, vectors, q = values[kept], vectors[:, kept], len(self.total)
        c, rank = self.a @ vectors, int(kept.sum())
        residual = np.maximum(self.total - (c**2 / values).sum(1), 0.0)
        values = np.broadcast_to(values, (q, rank))
        vectors = np.broadcast_to(vectors, (q, self.dim, rank))
        return ContextSpectrum(values, c, vectors, residual, self.total, self.examples, rank, 1e-14)

    def moments(self, dim: int, context: int | None) -> Moments:
        """Moments for a model: with further features that are 0, and as if there were as many examples as it knows.

        n examples with noise sigma say about w what m examples with noise sigma sqrt(m / n) do: S / sigma^2 is the
        same. So S, a and what least squares explains of l are multiplied by m / n, and its residual becomes that of
        m examples with this noise. Where there are no more rows than features, nothing is changed.

        Args:
            dim: The dimension of the model.
            context: The number of examples m that it was trained on; None to leave the moments as they are.

        Returns:
            The moments, one context for each label.
        """
        spectrum, share, total, n = self.spectrum, 1.0, self.total, max(1, round(self.weight))
        freedom = spectrum.context - spectrum.dim
        if context is not None and freedom > 0 and context > spectrum.dim:
            n, share = context, context / self.weight
            total = share * (self.total + spectrum.residual * ((context - spectrum.dim) / freedom - 1))
        gram = np.zeros((len(total), dim + 1, dim + 1))
        gram[:, : self.dim, : self.dim] = share * self.S
        gram[:, : self.dim, dim] = gram[:, dim, : self.dim] = share * self.a
        gram[:, dim, dim] = total
        return Moments(gram, n, sums=np.zeros((len(total), dim + 1)))  # of centred rows


@dataclass(eq=False)
class Posterior(Value):
    """The posterior under the prior, in the units of the standardised problem.

    Attributes:
        weights: The mean of the weights, [q, d].
        covariance: Their covariance, [q, d, d].
        sigma: The mean of the noise level, [q].
        variance: The mean of its square, [q].
        inclusion: The probabilities that features matter, [q, d].
        mixtures: The posterior as a mixture over what is not known, one for each output, [q].
        log_evidence: log p(labels), [q]; NaN with a law of the noise level.
    """

    weights: Array
    covariance: Array
    sigma: Array
    variance: Array
    inclusion: Array
    mixtures: tuple[Mixture, ...] = field(kw_only=True)
    log_evidence: Array = field(kw_only=True)

    @classmethod
    def of(
        cls, given: StandardisedSums, r2_prior: tuple[float, float] = (1.0, 1.0), size_prior: Law | None = None
    ) -> Posterior:
        """Compute it.

        Args:
            given: The sums in the units of the problem.
            r2_prior: The beta distribution of R^2, where there is no law of the noise level. Default: the uniform one.
            size_prior: The beta-binomial law of the number of features that matter, where there is no law of the
                noise level; None if all of them do.

        Returns:
            The posterior.
        """
        with one_blas_thread():
            if given.noise is None and size_prior is not None and given.dim:
                parts = [_averaged(given, k, r2_prior, size_prior) for k in range(len(given.total))]
            else:
                parts = [_whole(given, k, r2_prior) for k in range(len(given.total))]
        weights, covariance, sigma, variance, inclusion, mixtures, evidence = zip(*parts, strict=True)
        arrays = (np.array(part, np.float64) for part in (weights, covariance, sigma, variance, inclusion))
        return cls(*arrays, mixtures=mixtures, log_evidence=np.array(evidence))


def _averaged(given: StandardisedSums, k: int, r2_prior: tuple[float, float], size_prior: Law) -> tuple[Any, ...]:
    """The posterior of label k as an average over subsets."""
    averaged = average(given.S, given.a[k], float(given.total[k]), given.examples, r2_prior, size_prior)
    spread = (averaged.means - averaged.mean) * np.sqrt(averaged.chance)[:, None]
    covariance = np.tensordot(averaged.chance, averaged.covariances, 1) + spread.T @ spread
    mixture = Averaged(
        averaged.chance,
        given.examples + FURTHER,
        averaged.means,
        averaged.covariances,
        averaged.noise,
        given.level,
        averaged.log_evidence,
    )
    sigma, variance = float(averaged.chance @ averaged.root), float(averaged.chance @ averaged.noise)
    return averaged.mean, covariance, sigma, variance, averaged.inclusion, mixture, averaged.log_evidence


def _whole(given: StandardisedSums, k: int, r2_prior: tuple[float, float]) -> tuple[Any, ...]:
    """The posterior of label k with all features."""
    spectrum, dim = given.spectrum, given.dim
    nodes = _by_share(spectrum, k, dim, r2_prior) if given.noise is None else _by_noise(spectrum, k, given.noise)
    basis, means = spectrum.vectors[k], spectrum.c[k, :, None] * nodes.inverse  # [r, K]
    mean = means @ nodes.chance
    spread = (means - mean[:, None]) * np.sqrt(nodes.chance)
    inner = spread @ spread.T + np.diag(nodes.inverse @ (nodes.chance * nodes.size * nodes.v))
    covariance = basis @ inner @ basis.T
    if len(mean) < dim:  # what is known where rows do not differ
        covariance += float(nodes.chance @ nodes.size) * (np.eye(dim) - basis @ basis.T)
    sigma, variance = nodes.chance @ (nodes.root * np.sqrt(nodes.v)), nodes.chance @ (nodes.size * nodes.v)
    mixture = Spectral(nodes, basis, means, given.level)
    return basis @ mean, covariance, sigma, variance, np.ones(dim), mixture, nodes.log_evidence


def _by_noise(spectrum: ContextSpectrum, k: int, noise: Noise) -> Nodes:
    """For label k, with a law of the noise level."""
    freedom = max(spectrum.context - spectrum.dim, 0)
    levels, prior = noise.quadrature(per_octave=min(12 + int(4 * np.sqrt(freedom)), FINEST))
    v, chance, inverse = (part[..., 0, :] for part in noise_posterior(spectrum, np.array([k]), levels, prior))
    return Nodes(chance, v, inverse, np.ones_like(v), np.ones_like(v), np.inf, np.nan)


def _by_share(spectrum: ContextSpectrum, k: int, dim: int, r2_prior: tuple[float, float]) -> Nodes:
    """For label k, with a beta distribution of R^2. The posterior of log v is sampled ever more closely at its peak."""
    from scipy.special import betaln, gammaln

    values, n = spectrum.values[k, :, None], spectrum.context  # n - 1 examples
    squares = spectrum.c[k, :, None] ** 2 / values
    low, high, dim = -36.0 if dim else 36.0, 36.0, max(dim, 1)  # without features R^2 is 0
    for _ in range(ROUNDS):
        x = np.linspace(low, high, NODES)  # log (1 - R^2) / R^2
        v = dim * np.exp(x)
        tasks = np.exp(-np.logaddexp(0.0, x)) / dim  # R^2 / d
        inverse = 1 / (values + v)
        quadratic = (spectrum.residual[k] / v + (squares * inverse).sum(0)) / tasks
        size = np.log(1 / inverse).sum(0) + (n - len(values)) * np.log(v) + n * np.log(tasks)
        prior = r2_prior[1] * x - sum(r2_prior) * np.logaddexp(0.0, x)  # of x, up to a constant
        score = prior - 0.5 * (size + (n + FURTHER) * np.log(quadratic + FURTHER))
        kept, step = np.flatnonzero(score > score.max() - REACH), x[1] - x[0]
        low, high = max(x[kept[0]] - step, -36.0), min(x[kept[-1]] + step, 36.0)
        if high - low > 0.5 * (x[-1] - x[0]):
            break
    chance = np.exp(score - score.max())
    mass = chance.sum()
    chance /= mass
    freedom, scale = n + FURTHER, quadratic + FURTHER  # V is inverse gamma with these, given R^2
    root = np.sqrt(scale / 2) * np.exp(gammaln((freedom - 1) / 2) - gammaln(freedom / 2))
    constant = 0.5 * (freedom * np.log(2) + FURTHER * np.log(FURTHER / 2) - n * np.log(2 * np.pi))
    constant += gammaln(freedom / 2) - gammaln(FURTHER / 2)
    width = np.log(mass * step) - betaln(*r2_prior) if len(values) else -prior[0]  # without features R^2 is known
    evidence, size = constant + score.max() + width, tasks * scale / max(freedom - 2, 1e-9)
    return Nodes(chance, v, inverse, size, np.sqrt(tasks) * root, freedom, float(evidence))
