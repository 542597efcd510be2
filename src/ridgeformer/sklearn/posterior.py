"""The posterior of weights and noise level, given sums over rows.

Features are standardised, and labels are scaled to a standard deviation of sqrt(d + E sigma^2): that of a problem with
d standardised features and tasks N(0, I). A flat prior on the intercept takes one example: n - 1 are left. Given
v = sigma^2, the weights are normal with the covariance v (S + v)^-1; the noise level is averaged over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import one_blas_thread
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise, Uniform
from ridgeformer.predictors.bayes import noise_posterior
from ridgeformer.sklearn.sums import Sums
from ridgeformer.spectrum import Spectrum
from ridgeformer.values import Value

__all__ = ["Posterior", "Standardised", "default_noise"]

Array = NDArray[np.float64]
RANK = 1e-12  # of the largest eigenvalue: what is smaller is 0 with rounding
FINEST = 1024  # nodes per factor of two of the noise level


def default_noise(dim: int) -> Uniform:
    """Return the law of the noise level where none is given: uniform(0,5) for ten features, as in the seed paper.

    In general sigma is uniform up to sqrt(2.5 d), because the labels of the standardised problem have a variance of
    d + E sigma^2. So labels that do not depend on the features at all are possible for every d.

    Args:
        dim: The number of features d.

    Returns:
        The distribution.
    """
    return Uniform(0.0, float(np.sqrt(2.5 * dim)))


class Standardised(Value):
    """Sums in the units of the problem that the prior is for; constant features are left out.

    Args:
        sums: The sums over the rows.
        noise: The law of the noise level; None for `default_noise`.
    """

    def __init__(self, sums: Sums, noise: Noise | None = None) -> None:
        scale = sums.x_scale
        self.kept = np.flatnonzero(scale > 0)
        self.dim, self.weight, self.x_scale = len(self.kept), sums.weight, scale[self.kept]
        self.noise = default_noise(max(self.dim, 1)) if noise is None else noise
        target = np.sqrt(self.dim + self.noise.second_moment)
        self.unit = sums.y_scale / (target or 1.0)  # what 1 is in units of the labels, [q]
        inner = np.where(self.unit > 0, self.unit, np.inf)  # constant labels become 0
        self.S = sums.xx[np.ix_(self.kept, self.kept)] / np.outer(self.x_scale, self.x_scale)
        self.a = (sums.xy[self.kept] / self.x_scale[:, None] / inner).T  # [q, d]
        self.total = sums.yy / inner**2  # [q]

    def spectrum(self) -> Spectrum:
        """The eigendecomposition, one for all labels, of rank r: directions in which rows do not differ are left out.

        The residuals of least squares belong to `weight` - 1 examples.
        """
        with one_blas_thread():
            values, vectors = np.linalg.eigh(self.S)
        kept = values > RANK * max(values.max(initial=0.0), 0.0)
        values, vectors, q = values[kept], vectors[:, kept], len(self.total)
        c, rank = self.a @ vectors, int(kept.sum())
        residual = np.maximum(self.total - (c**2 / values).sum(1), 0.0)
        values = np.broadcast_to(values, (q, rank))
        vectors = np.broadcast_to(vectors, (q, self.dim, rank))
        return Spectrum(values, c, vectors, residual, self.total, self.weight - 1, rank, 1e-14)

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
        found, share, total = self.spectrum(), 1.0, self.total
        freedom = found.context - found.dim
        if context is not None and freedom > 0 and context > found.dim:
            share = context / self.weight
            explained = self.total - found.residual
            total = share * (explained + found.residual * (context - found.dim) / freedom)
        gram = np.zeros((len(total), dim + 1, dim + 1))
        gram[:, : self.dim, : self.dim] = share * self.S
        gram[:, : self.dim, dim] = gram[:, dim, : self.dim] = share * self.a
        gram[:, dim, dim] = total
        return Moments(gram, context if share != 1.0 and context else max(1, round(self.weight)))


@dataclass(eq=False)
class Posterior(Value):
    """The posterior under the prior, in the units of the standardised problem.

    Attributes:
        weights: The mean of the weights, [q, d].
        covariance: Their covariance, [q, d, d], averaged over the noise level, that of the means included.
        sigma: The mean of the noise level, [q].
        variance: The mean of its square, [q].
    """

    weights: Array
    covariance: Array
    sigma: Array
    variance: Array

    @classmethod
    def of(cls, given: Standardised) -> Posterior:
        """Compute it.

        Args:
            given: The sums in the units of the problem.

        Returns:
            The posterior.
        """
        found, dim, q = given.spectrum(), given.dim, len(given.total)
        freedom = max(found.context - found.dim, 0)
        nodes, prior = given.noise.quadrature(per_octave=min(12 + int(4 * np.sqrt(freedom)), FINEST))
        weights, covariance, (sigma, variance) = np.empty((q, dim)), np.empty((q, dim, dim)), np.empty((2, q))
        for k in range(q):
            basis = found.vectors[k]
            v, chance, inverse = (array[..., 0, :] for array in noise_posterior(found, np.array([k]), nodes, prior))
            means = found.c[k, :, None] * inverse  # [r, K]
            mean = means @ chance
            spread = (means - mean[:, None]) * np.sqrt(chance)
            inner = spread @ spread.T + np.diag(inverse @ (chance * v))
            weights[k] = basis @ mean
            covariance[k] = basis @ (inner - np.eye(len(mean))) @ basis.T + np.eye(dim)  # the prior's in the rest
            sigma[k], variance[k] = chance @ np.sqrt(v), chance @ v
        return cls(weights, covariance, sigma, variance)
