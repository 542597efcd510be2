"""The best predictor that can exist: the posterior mean of w, which no other can beat on average.

Given sigma, E[w | context, sigma] is the ridge solution; it is averaged with the posterior p(sigma | context). In the
eigenbasis of S, with v = sigma^2, m = min(n, d) and R the residual sum of squares, -2 log p(context | sigma) is

    sum_i log(lambda_i + v) + (n - m) log v + R / v + sum_i c_i^2 / (lambda_i (lambda_i + v)).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import default_threads, one_blas_thread
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise, as_noise
from ridgeformer.predictors.ridge import spectrum_of
from ridgeformer.spectrum import Spectrum

__all__ = ["BayesRR"]

Array = NDArray[np.float64]
CHUNK = 512  # contexts at a time
MOST = 1 << 24  # numbers in one array: fewer contexts at a time where a distribution needs many nodes
TOGETHER = 8  # factors lambda + v that one logarithm is taken of
NEGLIGIBLE = 80.0  # e^-80 of the largest term, whatever the two bounded sums add


class BayesRR:
    """The posterior mean of w under a distribution of noise levels."""

    def __init__(self, noise: Noise | str | float) -> None:
        self.noise = as_noise(noise)

    def weights(self, moments: Moments, *, threads: int | None = None) -> Array:
        """E[w | context], [B, d]."""
        found = spectrum_of(moments)
        # A posterior over log sigma has a width of about 1 / sqrt(2 (n - d)): so many nodes an octave resolve it.
        freedom = max(found.context - found.dim, 0)
        nodes, prior = self.noise.quadrature(per_octave=12 + int(4 * np.sqrt(freedom)))
        shrunk = np.empty_like(found.c)
        order = np.argsort(found.residual)
        size = max(1, min(CHUNK, MOST // (len(nodes) * found.c.shape[1])))

        def work(start: int) -> None:
            part = order[start : start + size]
            shrunk[part] = _shrinkage(found, part, nodes, prior) * found.c[part]

        with one_blas_thread(), ThreadPoolExecutor(threads or default_threads()) as pool:
            list(pool.map(work, range(0, len(order), size)))
        return found.back(shrunk)

    def __repr__(self) -> str:
        return f"BayesRR({self.noise})"


def _shrinkage(found: Spectrum, part: NDArray[np.intp], nodes: Array, prior: Array) -> Array:
    """E[1 / (lambda_i + sigma^2) | context] of some contexts with similar residuals, [b, m]."""
    residual, values, c = found.residual[part], found.values[part], found.c[part]
    freedom = max(found.context - found.dim, 0)
    if len(nodes) == 1:
        return np.asarray(1 / (values + nodes[0] ** 2))
    # Below this variance the data cannot tell noise from rounding; it also gives a point at sigma = 0 a likelihood.
    least = found.rounding * found.total[part] / found.context + 1e-300
    chosen = _relevant(nodes, prior, residual, freedom, float(least.min()))
    v = np.maximum(nodes[chosen] ** 2, least[:, None])  # [b, K]
    weighted, inverse = c**2 / values, np.empty((values.shape[1], *v.shape))  # one eigenvalue after another: [m, b, K]
    score, product, shifted = residual[:, None] / v, np.ones_like(v), np.empty_like(v)  # score is -2 log p
    for i, value in enumerate(values.T):
        np.add(v, value[:, None], out=shifted)
        np.divide(1.0, shifted, out=inverse[i])
        product *= shifted
        if i % TOGETHER == TOGETHER - 1:
            score += np.log(product)
            product[:] = 1.0
        score += np.multiply(inverse[i], weighted[:, i, None], out=shifted)
    score += np.log(product)
    if freedom:
        score += freedom * np.log(v)
    log_posterior = np.log(prior[chosen]) - 0.5 * score
    posterior = np.exp(log_posterior - log_posterior.max(1, keepdims=True))
    posterior /= posterior.sum(1, keepdims=True)
    return np.asarray(np.einsum("bk,mbk->bm", posterior, inverse))


def _relevant(nodes: Array, prior: Array, residual: Array, freedom: int, least: float) -> NDArray[np.bool_]:
    """Nodes that matter to any context whose residual lies between the smallest and the largest given."""
    if not freedom or len(nodes) < 32:
        return prior > 0
    v = np.maximum(nodes**2, least)
    with np.errstate(divide="ignore"):
        base = np.log(prior) - 0.5 * freedom * np.log(v)
    kept = np.zeros(len(nodes), bool)
    for extreme in (residual.min(), residual.max()):
        score = base - 0.5 * extreme / v
        kept |= score > score.max() - NEGLIGIBLE
    where = np.flatnonzero(kept)
    kept[where[0] : where[-1] + 1] = True
    return kept & (prior > 0)
