"""Tasks of a pool: the posterior of the task given a context, and the predictor that averages over it.

With Q_k = l - 2 a'w_k + w_k'S w_k the residual sum of squares of task k of a pool, -2 log p(context | w_k, sigma) is
n log sigma^2 + Q_k / sigma^2 up to a constant. For Gaussian tasks, in coordinates in which they are N(0, I), it is
n log sigma^2 + log det(I + S / sigma^2) + (l - a'(S + sigma^2)^-1 a) / sigma^2.
"""

from __future__ import annotations

import numpy as np

from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise
from ridgeformer.predictors.levels import Index, OverLevels, TaskPosterior
from ridgeformer.problems import Prior, Tasks
from ridgeformer.validation import Array

FLAT = 1e-13  # of the largest eigenvalue: a direction with a smaller one is not in the context
SMALLEST = -100.0  # logarithm of a weight relative to the largest; smaller ones do not change a sum of 2^53


class PoolPosterior(TaskPosterior):
    """Evidence and posterior mean of a batch of contexts under a law of tasks with a pool.

    Args:
        tasks: The law of the tasks.
        moments: The contexts.
    """

    def __init__(self, tasks: Tasks, moments: Moments) -> None:
        super().__init__(moments)
        pool = tasks.pool(moments.dim)
        assert pool is not None
        self.pool, self.new, self.size = pool, tasks.new, len(pool)
        rows, columns = np.tril_indices(moments.dim)
        double = np.where(rows == columns, 1.0, 2.0)
        self.residual = (self.S[:, rows, columns] * double) @ (pool[:, rows] * pool[:, columns]).T  # [B, K]
        self.residual -= 2 * self.a @ pool.T
        self.residual += self.total[:, None]
        np.maximum(self.residual, 0.0, out=self.residual)
        self.gaussian = _Gaussian(tasks.prior(moments.dim), moments) if self.new else None
        self.best = self.residual.min(1)
        self.least = self.best if self.gaussian is None else np.minimum(self.best, self.gaussian.left)

    def _some(self, index: Index, variance: Array) -> tuple[Array, Array]:
        """See `TaskPosterior`."""
        best, count = self.best[index], self.count[index]
        weights = best[:, None] - self.residual[index]
        weights /= 2 * variance[:, None]
        np.maximum(weights, SMALLEST, out=weights)  # numbers below the normal ones are slow
        np.exp(weights, out=weights)
        mass = weights.sum(1)
        mean = weights @ self.pool / mass[:, None]
        evidence = np.log(mass) - best / (2 * variance) - np.log(self.size) - 0.5 * count * np.log(variance)
        if self.gaussian is None:
            return evidence, mean
        other, other_mean = self.gaussian.at(index, variance)
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

    def at(self, index: Index, variance: Array) -> tuple[Array, Array]:
        # (l - c'(S + v)^-1 c) / v = R / v + c' S^-1 (S + v)^-1 c: the difference would be rounding for small v.
        shifted = self.values[index] + variance[:, None]
        solution = self.c[index] / shifted
        fit = self.left[index] / variance + ((self.c * self.inverse)[index] * solution).sum(1)
        score = (self.count[index] - shifted.shape[1]) * np.log(variance) + np.log(shifted).sum(1) + fit
        return -0.5 * score, self.prior.back(np.einsum("bij,bj->bi", self.vectors[index], solution))


class DMMSE(OverLevels):
    """The posterior mean of w for tasks of a pool, or of a mixture of a pool and a Gaussian law, with unknown noise.

    The name is that of Raventos et al.: the discrete minimum mean squared error predictor.

    Args:
        tasks: The law of the tasks, which must have a pool.
        noise: The distribution of noise levels, as `Problem` takes it. Where noise differs from token to token, this is
            the best that can be made of the Gram matrix.

    Raises:
        InputError: The tasks have no pool.
    """

    def __init__(self, tasks: Tasks | str, noise: Noise | str | float) -> None:
        super().__init__(tasks, noise)
        if self.tasks.new == 1:
            refuse("DMMSE is for tasks of a pool", self.tasks, "Use BayesRR for Gaussian tasks.")

    def _posterior(self, moments: Moments) -> PoolPosterior:
        return PoolPosterior(self.tasks, moments)
