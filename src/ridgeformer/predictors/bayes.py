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
from ridgeformer.errors import kind_of, refuse
from ridgeformer.moments import ZERO, ContextSpectrum, Moments
from ridgeformer.noise import Noise, as_noise
from ridgeformer.noise.base import MOST_NODES
from ridgeformer.predictors.base import by_length
from ridgeformer.predictors.ridge import Ridge
from ridgeformer.problems import Prior, Tasks
from ridgeformer.problems.posterior import TINY, Posterior
from ridgeformer.problems.tasks import as_tasks

__all__ = ["DMMSE", "BayesRR", "noise_posterior"]

Array = NDArray[np.float64]
CHUNK = 512  # contexts at a time
MOST = 1 << 24  # numbers in one array: fewer contexts at a time where a distribution needs many nodes
TOGETHER = 8  # factors lambda + v that one logarithm is taken of
WEAK = 0.01  # of the largest noise variance: a smaller eigenvalue of S leaves its example to the noise
NEGLIGIBLE = 80.0  # e^-80 of the largest term, whatever the two bounded sums add


class BayesRR(Ridge):
    """The posterior mean of w under a distribution of noise levels and Gaussian tasks, given the Gram matrix.

    Where noise differs from token to token, tokens tell more than their Gram matrix does, and this is the best that
    can be made of the Gram matrix alone: no linear transformer can beat it. See `TokenBayes` for the floor.

    Args:
        noise: The distribution of noise levels, as `Problem` takes it.
        prior: The law of the tasks; None for N(0, I).
        threads: How many threads; None for the default.
    """

    def __init__(self, noise: Noise | str | float, prior: Prior | None = None, *, threads: int | None = None) -> None:
        super().__init__(prior)
        self.noise, self.threads = as_noise(noise), threads

    def _weights(self, moments: Moments) -> Array:
        """E[w | context], [B, r]."""
        spectrum = moments.spectrum
        noise = self.noise.of_gram(int(spectrum.context))
        # A posterior over log sigma has a width of about 1 / sqrt(2 (n - k)), where k directions have a signal that is
        # not far below the noise: so many nodes an octave resolve it.
        strong = int((spectrum.values.mean(0) > WEAK * noise.upper**2).sum())
        freedom = max(spectrum.context - strong, 0)
        nodes, prior = noise.quadrature(per_octave=min(12 + int(4 * np.sqrt(freedom)), MOST_NODES))
        shrunk = np.empty_like(spectrum.c)
        order = np.argsort(spectrum.residual)
        size = max(1, min(CHUNK, MOST // (len(nodes) * spectrum.c.shape[1])))

        def work(start: int) -> None:
            part = order[start : start + size]
            shrunk[part] = _shrinkage(spectrum, part, nodes, prior) * spectrum.c[part]

        with one_blas_thread(), ThreadPoolExecutor(self.threads or default_threads()) as pool:
            list(pool.map(work, range(0, len(order), size)))
        return spectrum.back(shrunk)

    def __repr__(self) -> str:
        return self._text(str(self.noise))


class DMMSE:
    """The posterior mean of w for tasks of a pool, or of a mixture of a pool and a Gaussian law, with unknown noise.

    The name is that of Raventos et al.: the discrete minimum mean squared error predictor.

    Args:
        tasks: The law of the tasks, which must have a pool.
        noise: The distribution of noise levels, as `Problem` takes it.
        threads: How many threads; None for the default.

    Raises:
        InputError: The tasks have no pool.
    """

    def __init__(self, tasks: Tasks | str, noise: Noise | str | float, threads: int | None = None) -> None:
        self.tasks, self.noise, self.threads = as_tasks(tasks), as_noise(noise), threads
        if self.tasks.new == 1:
            refuse("DMMSE is for tasks of a pool", self.tasks, "Use BayesRR for Gaussian tasks.")

    def weights(self, moments: Moments) -> Array:
        """Return E[w | context], [B, d].

        Args:
            moments: The contexts, which may differ in their number of examples.

        Returns:
            The weights.
        """
        if not isinstance(moments, Moments):
            refuse("a predictor takes Moments", kind_of(moments), "Use draw.moments.")
        if self.noise.per_token:  # whatever has the same Gram matrices
            made = {n: DMMSE(self.tasks, self.noise.of_gram(n)) for n in set(moments.counts.tolist())}
            return np.asarray(by_length(moments, lambda part: made[int(part.counts[0])].weights(part)))
        freedom = int(moments.counts.max())  # of the noise, given the task
        nodes, prior = self.noise.quadrature(per_octave=min(12 + int(4 * np.sqrt(freedom)), MOST_NODES))
        nodes, prior = nodes[prior > 0], prior[prior > 0]
        pool = self.tasks.pool(moments.dim)
        assert pool is not None
        means = np.empty((len(moments), moments.dim))
        size = max(1, min(CHUNK, (1 << 22) // len(pool)))
        parts = [slice(start, start + size) for start in range(0, len(moments), size)]
        order = np.arange(len(moments))
        if len(nodes) > 1:  # contexts of similar residuals need the same noise levels
            order = np.argsort(np.concatenate([Posterior(self.tasks, moments[part]).least for part in parts]))

        def work(part: slice) -> None:
            index = order[part]
            posterior = Posterior(self.tasks, moments.chosen(index))
            kept = _levels_that_matter(posterior, nodes, prior)
            means[index] = self._average(posterior, nodes[kept], prior[kept])

        with one_blas_thread(), ThreadPoolExecutor(self.threads or default_threads()) as workers:
            list(workers.map(work, parts))
        return means

    def _average(self, posterior: Posterior, nodes: Array, prior: Array) -> Array:
        """The posterior means at each noise level, averaged with the posterior of the noise level."""
        best: Array | None = None
        total = mean = np.zeros(0)
        for sigma, chance in zip(nodes, prior, strict=True):
            evidence, weights = posterior.at(float(sigma))
            evidence = evidence + np.log(chance)
            if best is None:
                best, total, mean = evidence, np.ones(len(evidence)), weights
                continue
            top = np.maximum(best, evidence)
            old, new = np.exp(best - top), np.exp(evidence - top)
            mean = mean * old[:, None] + weights * new[:, None]
            total, best = total * old + new, top
        return mean / total[:, None]

    def __repr__(self) -> str:
        return f"DMMSE({self.tasks}, {self.noise})"


def _levels_that_matter(posterior: Posterior, nodes: Array, prior: Array) -> NDArray[np.bool_]:
    """Which noise levels can have a posterior that is not negligible, for any of the contexts.

    With K tasks, the evidence of a pool lies between 1/K and 1 times that of its best task.
    """
    if posterior.new:
        return np.ones(len(nodes), bool)
    v = np.maximum(nodes[:, None] ** 2, TINY * posterior.total / posterior.count + 1e-300)  # [K, b]
    score = np.log(prior)[:, None] - 0.5 * posterior.count * np.log(v) - 0.5 * posterior.least / v
    return np.asarray((score > score.max(0) - np.log(len(posterior.pool)) - NEGLIGIBLE).any(1))


def _shrinkage(spectrum: ContextSpectrum, part: NDArray[np.intp], nodes: Array, prior: Array) -> Array:
    """E[1 / (lambda_i + sigma^2) | context] of some contexts with similar residuals, [b, m]."""
    if len(nodes) == 1:
        return np.asarray(1 / (spectrum.values[part] + nodes[0] ** 2))
    _, posterior, inverse = noise_posterior(spectrum, part, nodes, prior)
    return np.asarray(np.einsum("bk,mbk->bm", posterior, inverse))


def noise_posterior(
    spectrum: ContextSpectrum, part: NDArray[np.intp], nodes: Array, prior: Array
) -> tuple[Array, Array, Array]:
    """Compute p(sigma | context) of some contexts, best with similar residuals, on the nodes of a quadrature rule.

    Args:
        spectrum: The contexts in the eigenbases of S.
        part: Which contexts, [b].
        nodes: Noise levels.
        prior: Their probabilities.

    Returns:
        For the K nodes that matter: the noise variances v [b, K], their posterior probabilities [b, K], and
        1 / (lambda_i + v) [m, b, K].
    """
    residual, values, c = spectrum.residual[part], spectrum.values[part], spectrum.c[part]
    freedom = spectrum.context - values.shape[1]
    # Below this variance the data cannot tell noise from rounding; it also gives a point at sigma = 0 a likelihood.
    least = spectrum.rounding * spectrum.total[part] / spectrum.context + 1e-300
    chosen = prior > 0
    if (values > ZERO).all():
        chosen = _relevant(nodes, prior, residual, freedom, float(least.min()))
    v = np.maximum(nodes[chosen] ** 2, least[:, None])  # [b, K]
    weighted, inverse = c**2 / values, np.empty((values.shape[1], *v.shape))  # one eigenvalue after another: [m, b, K]
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
    log_posterior = np.log(prior[chosen]) - 0.5 * score
    posterior = np.exp(log_posterior - log_posterior.max(1, keepdims=True))
    posterior /= posterior.sum(1, keepdims=True)
    return v, posterior, inverse


def _relevant(nodes: Array, prior: Array, residual: Array, freedom: float, least: float) -> NDArray[np.bool_]:
    """Nodes that matter to any context whose residual lies between the smallest and the largest given."""
    if freedom <= 0 or len(nodes) < 32:
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
