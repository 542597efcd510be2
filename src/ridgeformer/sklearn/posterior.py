"""The posterior of weights and noise level, given sums over rows.

Features are standardised, and a flat prior on the intercept takes one example: n - 1 are left. Weights are N(0, t) in
every direction. Given t and the noise variance t v, they are normal with the mean (S + v)^-1 a and the covariance
t v (S + v)^-1; what is not known is averaged over. There are two priors.

- With a law of the noise level, t is 1 and sigma^2 = v follows the law, as in a `Problem`. Labels are scaled to a
  standard deviation of sqrt(d + E sigma^2), which is theirs in that problem.
- Without one, the share R^2 of the variance of labels that features explain has a beta distribution. With V the
  variance of labels, t = V R^2 / d and t v = V (1 - R^2). V is known to be about the variance in the sample, as if
  two further examples had shown it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import one_blas_thread
from ridgeformer.moments import ContextSpectrum, Moments
from ridgeformer.noise import Noise
from ridgeformer.predictors.bayes import noise_posterior
from ridgeformer.sklearn.sums import Sums
from ridgeformer.values import Value

__all__ = ["Mixture", "Posterior", "Standardised"]

Array = NDArray[np.float64]
RANK = 1e-12  # of the largest eigenvalue: what is smaller is 0 with rounding
FINEST = 1024  # nodes per factor of two of the noise level
BISECTIONS, NEGLIGIBLE = 60, 1e-12  # of quantiles; chances of nodes that do not matter to them
NODES, ROUNDS, REACH = 145, 6, 40.0  # of the search for where the posterior of R^2 is; e^-40 of its peak is nothing
CONSTANT = np.sqrt(np.finfo(np.float64).eps)  # the standard deviation of constant labels, as a share of their value
FURTHER = 2.0  # examples that the variance in the sample counts for


class Standardised(Value):
    """Sums in the units of a problem with standardised features; constant features are left out.

    Args:
        sums: The sums over the rows.
        noise: The law of the noise level. None if there is none: labels then have a standard deviation of 1.
    """

    def __init__(self, sums: Sums, noise: Noise | None = None) -> None:
        scale = sums.x_scale
        self.kept, self.noise, self.weight = np.flatnonzero(scale > 0), noise, sums.weight
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

        The residuals of least squares belong to `weight` - 1 examples.
        """
        with one_blas_thread():
            values, vectors = np.linalg.eigh(self.S)
        kept = values > RANK * values.max(initial=0.0)
        values, vectors, q = values[kept], vectors[:, kept], len(self.total)
        c, rank = self.a @ vectors, int(kept.sum())
        residual = np.maximum(self.total - (c**2 / values).sum(1), 0.0)
        values = np.broadcast_to(values, (q, rank))
        vectors = np.broadcast_to(vectors, (q, self.dim, rank))
        return ContextSpectrum(values, c, vectors, residual, self.total, self.weight - 1, rank, 1e-14)

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
        found, share, total, n = self.spectrum, 1.0, self.total, max(1, round(self.weight))
        freedom = found.context - found.dim
        if context is not None and freedom > 0 and context > found.dim:
            n, share = context, context / self.weight
            total = share * (self.total + found.residual * ((context - found.dim) / freedom - 1))
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
        mixtures: The posterior as a mixture over what is not known, one for each output, [q].
    """

    weights: Array
    covariance: Array
    sigma: Array
    variance: Array
    mixtures: tuple[Mixture, ...]

    @classmethod
    def of(cls, given: Standardised, r2_prior: tuple[float, float] = (1.0, 1.0)) -> Posterior:
        """Compute it.

        Args:
            given: The sums in the units of the problem.
            r2_prior: The beta distribution of R^2, where there is no law of the noise level. Default: the uniform one.

        Returns:
            The posterior.
        """
        found, dim, q = given.spectrum, given.dim, len(given.total)
        weights, covariance, (sigma, variance) = np.empty((q, dim)), np.empty((q, dim, dim)), np.empty((2, q))
        mixtures: list[Mixture] = []
        for k in range(q):
            nodes = _by_share(found, k, dim, r2_prior) if given.noise is None else _by_noise(found, k, given.noise)
            basis, means = found.vectors[k], found.c[k, :, None] * nodes.inverse  # [r, K]
            mean = means @ nodes.chance
            spread = (means - mean[:, None]) * np.sqrt(nodes.chance)
            inner = spread @ spread.T + np.diag(nodes.inverse @ (nodes.chance * nodes.size * nodes.v))
            prior = float(nodes.chance @ nodes.size)  # what is known where rows do not differ
            weights[k] = basis @ mean
            covariance[k] = basis @ inner @ basis.T
            if len(mean) < dim:
                covariance[k] += prior * (np.eye(dim) - basis @ basis.T)
            sigma[k] = nodes.chance @ (nodes.root * np.sqrt(nodes.v))
            variance[k] = nodes.chance @ (nodes.size * nodes.v)
            mixtures.append(Mixture(nodes, basis, means, given.weight))
        return cls(weights, covariance, sigma, variance, tuple(mixtures))


@dataclass(eq=False)
class _Nodes:
    """A quadrature rule for the posterior: K nodes with what belongs to each."""

    chance: Array  # [K], posterior probabilities
    v: Array  # [K], the noise variance over t
    inverse: Array  # [r, K], 1 / (lambda + v)
    size: Array  # [K], the mean of t, the prior variance of weights
    root: Array  # [K], the mean of sqrt(t)
    freedom: float  # degrees of freedom of the t distributions of labels given a node; infinite for normal ones
    log_evidence: float  # log p(labels), in units in which they are standardised; NaN with a law of the noise level


@dataclass(eq=False)
class Mixture:
    """The posterior distribution of labels: a mixture of t distributions over the nodes of a quadrature rule.

    Attributes:
        nodes: The nodes.
        basis: The directions in which rows differ, [d, r].
        means: The means of the weights in this basis, given the node, [r, K].
        weight: The number of rows.
    """

    nodes: _Nodes
    basis: Array
    means: Array
    weight: float

    def components(self, x: Array) -> tuple[Array, Array]:
        """Compute the parts of the mixture for new rows.

        Args:
            x: Standardised features, [m, d].

        Returns:
            Locations and scales, [m, K] each.
        """
        nodes, u = self.nodes, x @ self.basis
        outside = np.maximum(np.square(x).sum(1) - np.square(u).sum(1), 0.0)[:, None]
        outside = outside if self.basis.shape[1] < len(self.basis) else 0.0
        variance = nodes.size * (nodes.v * (np.square(u) @ nodes.inverse + 1 + 1 / self.weight) + outside)
        shrink = 1.0 if np.isinf(nodes.freedom) else (nodes.freedom - 2) / nodes.freedom
        return u @ self.means, np.sqrt(variance * shrink)

    def quantiles(self, x: Array, levels: Array) -> Array:
        """Compute quantiles of the labels of new rows by bisection.

        Args:
            x: Standardised features, [m, d].
            levels: Probabilities between 0 and 1, [L].

        Returns:
            The quantiles, [L, m].
        """
        from scipy.stats import norm, t

        law = norm if np.isinf(self.nodes.freedom) else t(self.nodes.freedom)
        used = self.nodes.chance > NEGLIGIBLE
        location, scale = (part[:, used] for part in self.components(x))
        chance = self.nodes.chance[used] / self.nodes.chance[used].sum()
        ends = [location + scale * law.ppf(level) for level in levels]  # each part's own quantile
        low, high = (np.array([extreme(end, axis=1) for end in ends]) for extreme in (np.min, np.max))
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            below = law.cdf((middle[:, :, None] - location) / scale) @ chance < levels[:, None]
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(0.5 * (low + high))

    def sample(self, x: Array, count: int, rng: np.random.Generator) -> Array:
        """Draw labels of new rows.

        Args:
            x: Standardised features, [m, d].
            count: How many for each row.
            rng: The random numbers.

        Returns:
            The labels, [m, count].
        """
        location, scale = self.components(x)
        node = rng.choice(len(self.nodes.chance), (len(x), count), p=self.nodes.chance)
        rows, freedom = np.arange(len(x))[:, None], self.nodes.freedom
        noise = rng.standard_normal(node.shape) if np.isinf(freedom) else rng.standard_t(freedom, node.shape)
        return np.asarray(location[rows, node] + scale[rows, node] * noise)


def _by_noise(found: ContextSpectrum, k: int, noise: Noise) -> _Nodes:
    """For label k, with a law of the noise level."""
    freedom = max(found.context - found.dim, 0)
    levels, prior = noise.quadrature(per_octave=min(12 + int(4 * np.sqrt(freedom)), FINEST))
    v, chance, inverse = (part[..., 0, :] for part in noise_posterior(found, np.array([k]), levels, prior))
    return _Nodes(chance, v, inverse, np.ones_like(v), np.ones_like(v), np.inf, np.nan)


def _by_share(found: ContextSpectrum, k: int, dim: int, r2_prior: tuple[float, float]) -> _Nodes:
    """For label k, with a beta distribution of R^2. The posterior of log v is sampled ever more closely at its peak."""
    from scipy.special import betaln, gammaln

    values, n = found.values[k, :, None], found.context  # n - 1 examples
    squares = found.c[k, :, None] ** 2 / values
    low, high, dim = -36.0 if dim else 36.0, 36.0, max(dim, 1)  # without features R^2 is 0
    for _ in range(ROUNDS):
        x = np.linspace(low, high, NODES)  # log (1 - R^2) / R^2
        v = dim * np.exp(x)
        tasks = np.exp(-np.logaddexp(0.0, x)) / dim  # R^2 / d
        inverse = 1 / (values + v)
        quadratic = (found.residual[k] / v + (squares * inverse).sum(0)) / tasks
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
    evidence, size = constant + score.max() + width, tasks * scale / (freedom - 2)
    return _Nodes(chance, v, inverse, size, np.sqrt(tasks) * root, freedom, float(evidence))
