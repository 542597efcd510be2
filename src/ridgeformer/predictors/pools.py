"""Tasks of a pool: the posterior of the task given a context, and the predictor that averages over it.

With Q_k = l - 2 a'w_k + w_k'S w_k the residual sum of squares of task k of a pool, -2 log p(context | w_k, sigma) is
n log sigma^2 + Q_k / sigma^2 up to a constant. For Gaussian tasks, in coordinates in which they are N(0, I), it is
n log sigma^2 + log det(I + S / sigma^2) + (l - a'(S + sigma^2)^-1 a) / sigma^2.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import default_threads, one_blas_thread
from ridgeformer.errors import kind_of, refuse
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise, as_noise
from ridgeformer.noise.base import MOST_NODES
from ridgeformer.predictors.base import by_length
from ridgeformer.problems.tasks import Prior, Tasks, as_tasks

Array = NDArray[np.float64]
TINY = 1e-12  # of l / n: a smaller variance cannot be told from rounding
FLAT = 1e-13  # of the largest eigenvalue: a direction with a smaller one is not in the context
CELLS = 1 << 18  # contexts times tasks of a pool at a time: few enough for the processor's cache
CHUNK = 512  # contexts at a time
NEGLIGIBLE = 80.0  # e^-80 of the largest term: a noise level with less evidence is left out
SMALLEST = -100.0  # logarithm of a weight relative to the largest; smaller ones do not change a sum of 2^53


class PoolPosterior:
    """Evidence and posterior mean of a batch of contexts under a law of tasks with a pool.

    Args:
        tasks: The law of the tasks.
        moments: The contexts.
    """

    def __init__(self, tasks: Tasks, moments: Moments) -> None:
        pool = tasks.pool(moments.dim)
        assert pool is not None
        self.pool, self.new, self.count = pool, tasks.new, moments.counts
        S, a, self.total = (x.astype(np.float64) for x in (moments.S, moments.b, moments.q))
        rows, columns = np.tril_indices(moments.dim)
        double = np.where(rows == columns, 1.0, 2.0)
        self.residual = (S[:, rows, columns] * double) @ (pool[:, rows] * pool[:, columns]).T  # [B, K]
        self.residual -= 2 * a @ pool.T
        self.residual += self.total[:, None]
        np.maximum(self.residual, 0.0, out=self.residual)
        self.least = self.residual.min(1)  # [B]
        self.gaussian = _Gaussian(tasks.prior(moments.dim), moments) if self.new else None

    def at(self, sigma: Array | float) -> tuple[Array, Array]:
        """Compute the evidence and the posterior mean at a noise level.

        Args:
            sigma: The noise level, one for all contexts or [B].

        Returns:
            log p(context | sigma), [B], up to a constant, and E[w | context, sigma], [B, d].
        """
        variance = np.maximum(np.broadcast_to(np.square(sigma), self.total.shape), TINY * self.total / self.count)
        variance = np.maximum(variance, 1e-300)
        weights = self.least[:, None] - self.residual
        weights /= 2 * variance[:, None]
        np.maximum(weights, SMALLEST, out=weights)  # numbers below the normal ones are slow
        np.exp(weights, out=weights)
        mass = weights.sum(1)
        mean = weights @ self.pool / mass[:, None]
        top = -self.least / (2 * variance)
        evidence = np.log(mass) + top - np.log(len(self.pool)) - 0.5 * self.count * np.log(variance)
        if self.gaussian is None:
            return evidence, mean
        other, other_mean = self.gaussian.at(variance)
        log_odds = np.log(self.new) + other - np.log1p(-self.new) - evidence
        share = 1 / (1 + np.exp(-np.clip(log_odds, -700, 700)))[:, None]
        both = np.logaddexp(np.log(self.new) + other, np.log1p(-self.new) + evidence)
        return both, share * other_mean + (1 - share) * mean


class _Gaussian:
    """The same for Gaussian tasks."""

    def __init__(self, prior: Prior, moments: Moments) -> None:
        self.prior, white = prior, prior.whiten(moments)
        self.values, self.vectors = np.linalg.eigh(white.S.astype(np.float64))
        self.values, self.count = np.maximum(self.values, 0.0), moments.counts
        seen = self.values > FLAT * self.values.max(1, keepdims=True)  # directions that the context has
        self.values = np.where(seen, self.values, 0.0)
        self.c = np.where(seen, np.einsum("bij,bi->bj", self.vectors, white.b.astype(np.float64)), 0.0)
        self.inverse = np.divide(1.0, self.values, out=np.zeros_like(self.values), where=seen)
        left = white.q.astype(np.float64) - (self.c**2 * self.inverse).sum(1)
        self.left = np.where(seen.sum(1) >= self.count, 0.0, np.maximum(left, 0.0))  # beyond the features' span

    def at(self, variance: Array) -> tuple[Array, Array]:
        # (l - c'(S + v)^-1 c) / v = R / v + c' S^-1 (S + v)^-1 c: the difference would be rounding for small v.
        shifted = self.values + variance[:, None]
        scaled = self.c / shifted
        fit = self.left / variance + (self.c * self.inverse * scaled).sum(1)
        score = (self.count - self.values.shape[1]) * np.log(variance) + np.log(shifted).sum(1) + fit
        return -0.5 * score, self.prior.back(np.einsum("bij,bj->bi", self.vectors, scaled))


def oracle_of_pool(tasks: Tasks, moments: Moments) -> Array:
    """Compute E[w | context, sigma] for tasks of a pool.

    Args:
        tasks: The law of the tasks.
        moments: The contexts, with their noise levels.

    Returns:
        The weights, [B, d].
    """
    pool, sigma = tasks.pool(moments.dim), moments.sigma
    assert pool is not None
    assert sigma is not None
    means, size = np.empty((len(moments), moments.dim)), max(1, CELLS // len(pool))
    for start in range(0, len(moments), size):
        part = slice(start, start + size)
        means[part] = PoolPosterior(tasks, moments[part]).at(np.asarray(sigma[part]))[1]
    return means


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
            order = np.argsort(np.concatenate([PoolPosterior(self.tasks, moments[part]).least for part in parts]))

        def work(part: slice) -> None:
            index = order[part]
            posterior = PoolPosterior(self.tasks, moments.chosen(index))
            kept = _levels_that_matter(posterior, nodes, prior)
            means[index] = self._average(posterior, nodes[kept], prior[kept])

        with one_blas_thread(), ThreadPoolExecutor(self.threads or default_threads()) as workers:
            list(workers.map(work, parts))
        return means

    def _average(self, posterior: PoolPosterior, nodes: Array, prior: Array) -> Array:
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


def _levels_that_matter(posterior: PoolPosterior, nodes: Array, prior: Array) -> NDArray[np.bool_]:
    """Which noise levels can have a posterior that is not negligible, for any of the contexts.

    With K tasks, the evidence of a pool lies between 1/K and 1 times that of its best task.
    """
    if posterior.new:
        return np.ones(len(nodes), bool)
    v = np.maximum(nodes[:, None] ** 2, TINY * posterior.total / posterior.count + 1e-300)  # [K, b]
    score = np.log(prior)[:, None] - 0.5 * posterior.count * np.log(v) - 0.5 * posterior.least / v
    return np.asarray((score > score.max(0) - np.log(len(posterior.pool)) - NEGLIGIBLE).any(1))
