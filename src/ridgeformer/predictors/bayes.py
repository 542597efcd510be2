"""The best predictor that can exist: the posterior mean of w, which no other can beat on average.

Given sigma, E[w | context, sigma] is the ridge solution; it is averaged with the posterior p(sigma | context). In the
eigenbasis of S, with v = sigma^2, m = min(n, d) and R the residual sum of squares, -2 log p(context | sigma) is

    sum_i log(lambda_i + v) + (n - m) log v + R / v + sum_i c_i^2 / (lambda_i (lambda_i + v)).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import kind_of, refuse
from ridgeformer.moments import ZERO, ContextSpectrum, Moments, explained
from ridgeformer.noise import Noise, as_noise
from ridgeformer.predictors.base import by_length, check_moments, in_chunks
from ridgeformer.predictors.discrete import DMMSE, SparseBayes
from ridgeformer.predictors.gibbs import TokenBayes
from ridgeformer.problems import Prior, Problem
from ridgeformer.validation import Array, keywords

CHUNK = 512  # contexts at a time
MOST = 1 << 24  # numbers in one array: fewer contexts at a time where a distribution needs many nodes
TOGETHER = 8  # factors lambda + v that one logarithm is taken of
WEAK = 0.01  # of the largest noise variance: a smaller eigenvalue of S leaves its example to the noise
NEGLIGIBLE = 80.0  # e^-80 of the largest term, whatever the two bounded sums add


def in_whitened(moments: Moments, prior: Prior) -> Moments:
    """Return moments in coordinates in which tasks are N(0, I). The result is kept with the given moments.

    Args:
        moments: The contexts.
        prior: The law of the tasks.

    Returns:
        The moments in these coordinates.
    """
    if prior.is_standard:
        return moments
    cached = vars(moments).get("_whitened")
    if cached is None or cached[0] is not prior:
        cached = vars(moments)["_whitened"] = prior, prior.whiten(moments)
    return cached[1]


class Ridge(ABC):
    """Ridge regression in some form: the posterior mean of w under a Gaussian prior, for some estimate of the noise.

    Args:
        prior: The law of the tasks; None for N(0, I). Tasks are N(0, I) in other coordinates, where the computation is
            done.
    """

    def __init__(self, prior: Prior | None = None) -> None:
        if prior is not None and not isinstance(prior, Prior):
            refuse("the prior of a ridge predictor must be a Prior", kind_of(prior), "Pass problem.prior, or None.")
        self.prior = Prior() if prior is None else prior

    def weights(self, moments: Moments) -> Array:
        """Return w_hat.

        Args:
            moments: The contexts, which may differ in their number of examples.

        Returns:
            The weights, [B, d].

        Raises:
            InputError: This is not `Moments`, or the predictor cannot be used on them.
        """
        check_moments(moments)
        white = in_whitened(moments, self.prior)
        return self.prior.back(by_length(white, self._weights))

    @abstractmethod
    def _weights(self, moments: Moments) -> Array:
        """Weights in coordinates in which tasks are N(0, I), of contexts with one number of examples, [B, r]."""

    def _text(self, *arguments: str) -> str:
        """The predictor as text; a prior other than N(0, I) is mentioned."""
        prior = [] if self.prior.is_standard else ["prior"]
        return f"{type(self).__name__}({', '.join([*arguments, *prior])})"

    def __repr__(self) -> str:
        return self._text()


@keywords()
class BayesRR(Ridge):
    """The posterior mean of w under a distribution of noise levels and Gaussian tasks, given the Gram matrix.

    Where noise differs from token to token, tokens tell more than their Gram matrix does, and this is the best that
    can be made of the Gram matrix alone: no linear transformer can beat it. See `TokenBayes` for the floor.

    Args:
        noise: The distribution of noise levels, as `Problem` takes it.
        prior: The law of the tasks; None for N(0, I).
    """

    def __init__(self, noise: Noise | str | float, prior: Prior | None = None) -> None:
        super().__init__(prior)
        self.noise = as_noise(noise)

    def _weights(self, moments: Moments) -> Array:
        """E[w | context], [B, r]."""
        spectrum = moments.spectrum
        noise = self.noise.of_gram(int(spectrum.context))
        # Directions whose signal is not far below the noise tell nothing of the noise.
        strong = int((spectrum.values.mean(0) > WEAK * noise.upper**2).sum())
        nodes, prior = noise.fine_quadrature(max(spectrum.context - strong, 0))
        order, factors = np.argsort(spectrum.residual), np.empty_like(spectrum.c)
        size = max(1, min(CHUNK, MOST // (len(nodes) * spectrum.c.shape[1])))
        factors[order] = in_chunks(lambda part: _shrinkage(spectrum, order[part], nodes, prior), len(order), size)
        return spectrum.back(factors * spectrum.c)

    def __repr__(self) -> str:
        return self._text(str(self.noise))


def _shrinkage(spectrum: ContextSpectrum, part: NDArray[np.intp], nodes: Array, prior: Array) -> Array:
    """E[1 / (lambda_i + sigma^2) | context] of some contexts with similar residuals, [b, m]."""
    if len(nodes) == 1:
        return np.asarray(1 / (spectrum.values[part] + nodes[0] ** 2))
    residual, values, c = spectrum.residual[part], spectrum.values[part], spectrum.c[part]
    freedom = spectrum.context - values.shape[1]
    # Below this variance the data cannot tell noise from rounding; it also gives a point at sigma = 0 a likelihood.
    least = spectrum.rounding * spectrum.total[part] / spectrum.context + 1e-300
    relevant = np.ones(len(nodes), bool)
    if freedom > 0 and len(nodes) >= 32 and (values > ZERO).all():
        relevant = _relevant(nodes, prior, residual, freedom, float(least.min()))
    v = np.maximum(nodes[relevant] ** 2, least[:, None])  # [b, K]
    weighted, inverse = explained(c, values), np.empty((values.shape[1], *v.shape))  # [m, b, K]
    smallest, largest = float(v.min() + values.min(initial=np.inf)), float(v.max() + values.max(initial=0.0))
    together = TOGETHER if smallest > 1e-300 ** (1 / TOGETHER) and largest < 1e300 ** (1 / TOGETHER) else 1
    score, product, shifted = residual[:, None] / v, np.ones_like(v), np.empty_like(v)  # score is -2 log p
    for i, value in enumerate(values.T):
        np.add(v, value[:, None], out=shifted)
        np.divide(1.0, shifted, out=inverse[i])
        product *= shifted
        if i % together == together - 1:
            score += np.log(product)
            product[:] = 1.0
        score += np.multiply(inverse[i], weighted[:, i, None], out=shifted)
    score += np.log(product)
    if freedom:
        score += freedom * np.log(v)
    log_posterior = np.log(prior[relevant]) - 0.5 * score
    posterior = np.exp(log_posterior - log_posterior.max(1, keepdims=True))
    posterior /= posterior.sum(1, keepdims=True)
    return np.asarray(np.einsum("bk,mbk->bm", posterior, inverse))


def _relevant(nodes: Array, prior: Array, residual: Array, freedom: float, least: float) -> NDArray[np.bool_]:
    """Nodes that matter to any context whose residual lies between the smallest and the largest given."""
    v = np.maximum(nodes**2, least)
    base = np.log(prior) - 0.5 * freedom * np.log(v)
    relevant = np.zeros(len(nodes), bool)
    for extreme in (residual.min(), residual.max()):
        score = base - 0.5 * extreme / v
        relevant |= score > score.max() - NEGLIGIBLE
    where = np.flatnonzero(relevant)
    relevant[where[0] : where[-1] + 1] = True
    return relevant


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
