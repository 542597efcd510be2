"""Tasks with a discrete part, from a pool or sparse: their oracles and best predictors.

Given a noise level, a law of tasks has an evidence p(context | sigma) and a posterior mean E[w | context, sigma]. The
oracle knows the level. The best predictor averages over levels with the posterior p(sigma | context).

With Q_k = l - 2 a'w_k + w_k'S w_k the residual sum of squares of task k of a pool, -2 log p(context | w_k, sigma) is
n log sigma^2 + Q_k / sigma^2 up to a constant. For Gaussian tasks, in coordinates in which they are N(0, I), it is
n log sigma^2 + log det(I + S / sigma^2) + (l - a'(S + sigma^2)^-1 a) / sigma^2.

For sparse tasks each subset of the features has an evidence and a ridge solution; see `subsets`. Where there are more
than 8,192 subsets, a Gibbs sampler moves between them; see `gibbs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise, as_noise
from ridgeformer.noise.base import MOST_NODES
from ridgeformer.predictors.base import TINY, by_length, check_moments, in_chunks
from ridgeformer.predictors.gibbs import OfSequences, conditional, error_of, two_chains
from ridgeformer.predictors.subsets import RANK, SubsetTree, count_subsets, every_subset, gaussian_evidence
from ridgeformer.problems import Prior, Sparse, Tasks
from ridgeformer.validation import Array, integer

Index = NDArray[np.intp]
CELLS = 1 << 19  # contexts times tasks, or subsets, at a time
CHUNK, MOST = 512, 1 << 22  # contexts at a time; contexts times tasks in one array
NEGLIGIBLE = 30.0  # e^-30 of the largest term
FLAT = 1e-13  # of the largest eigenvalue: a direction with a smaller one is not in the context
ROUNDED = 1e-14  # of the squares that are summed: a smaller residual may be 0 but for rounding
SMALLEST = -100.0  # logarithm of a weight relative to the largest; smaller ones do not change a sum of 2^53
MOST_LISTED = 1 << 13  # subsets that are averaged over one by one
SCANS = 150  # of a Gibbs sampler, beyond


class TaskPosterior(ABC):
    """Evidence and posterior mean of a batch of contexts under a law of tasks.

    Attributes:
        moments: The contexts.
        count: Their numbers of examples, [B].
        total: The sums y'y, [B].
        faint: The least variances of the noise, [B]: a smaller one cannot be told from rounding.
        least: Residual sums of squares, [B]: no task has a smaller one.
        size: How many tasks, or subsets, are averaged over.
    """

    least: Array
    size: int

    def __init__(self, moments: Moments) -> None:
        self.moments, self.count = moments, moments.counts.astype(np.float64)
        self.S, self.a, self.total = (np.asarray(part, np.float64) for part in (moments.S, moments.b, moments.q))
        self.faint = np.maximum(TINY * self.total / self.count, 1e-300)

    def at(self, index: Index, sigma: Array) -> tuple[Array, Array]:
        """Compute the evidence and the posterior mean of some contexts, each at a noise level.

        Args:
            index: The numbers of the contexts, [b].
            sigma: The noise levels, [b].

        Returns:
            log p(context | sigma), [b], up to a constant, and E[w | context, sigma], [b, d].
        """
        evidence, mean, size = np.empty(len(index)), np.empty((len(index), self.a.shape[1])), CELLS // self.size + 1
        for start in range(0, len(index), size):
            part = slice(start, start + size)
            evidence[part], mean[part] = self._some(index[part], np.maximum(sigma[part] ** 2, self.faint[index[part]]))
        return evidence, mean

    @abstractmethod
    def _some(self, index: Index, variance: Array) -> tuple[Array, Array]:
        """The same for few contexts, given variances of the noise."""

    def average(self, nodes: Array, prior: Array) -> Array:
        """Average the posterior means at the noise levels that matter with the posterior of the noise level.

        With R the least residual, every task has -2 log p >= n log v + R / v. A level matters unless this bound is far
        below the evidence at one level, that of the best bound.

        Args:
            nodes: Noise levels, [K].
            prior: Their probabilities, [K].

        Returns:
            E[w | context], [B, d].
        """
        index = np.arange(len(self.count))
        if len(nodes) == 1:
            return self.at(index, np.full(len(index), nodes[0]))[1]
        log_prior, v = np.log(prior), np.maximum(nodes**2, self.faint[:, None])
        bound = log_prior - 0.5 * (self.count[:, None] * np.log(v) + self.least[:, None] / v)
        best = bound.argmax(1)
        reached = self.at(index, nodes[best])[0] + log_prior[best]
        which, node = np.nonzero(bound > reached[:, None] - NEGLIGIBLE)
        evidence, means = self.at(which, nodes[node])
        evidence += log_prior[node]
        top = np.full(len(index), -np.inf)
        np.maximum.at(top, which, evidence)
        weights = np.exp(evidence - top[which])
        total, mean = np.zeros(len(index)), np.zeros((len(index), means.shape[1]))
        np.add.at(total, which, weights)
        np.add.at(mean, which, weights[:, None] * means)
        return mean / total[:, None]


class OverLevels:
    """The posterior mean of tasks under a distribution of noise levels.

    Args:
        tasks: The law of the tasks.
        noise: The distribution of noise levels, as `Problem` takes it. Where noise differs from token to token, this is
            the best that can be made of the Gram matrix.

    Attributes:
        posterior: Makes the posterior of contexts given noise levels, of the law of the tasks and the contexts.
    """

    posterior: Callable[[Any, Moments], TaskPosterior]

    def __init__(self, tasks: Tasks | str, noise: Noise | str | float) -> None:
        self.tasks, self.noise = Tasks.of(tasks), as_noise(noise)

    def weights(self, moments: Moments) -> Array:
        """Return E[w | context], [B, d].

        Args:
            moments: The contexts, which may differ in their number of examples.

        Returns:
            The weights.
        """
        check_moments(moments)
        return by_length(moments, self._weights)

    def _weights(self, moments: Moments) -> Array:
        """The weights of contexts with one number of examples."""
        n = int(moments.counts[0])
        nodes, prior = self._levels(self.noise.of_gram(n), n)
        return _in_chunks(moments, partial(self.posterior, self.tasks), lambda solved: solved.average(nodes, prior))

    def _levels(self, noise: Noise, count: int) -> tuple[Array, Array]:
        """The noise levels that are averaged over, and their probabilities."""
        return noise.fine_quadrature(count)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.tasks}, {self.noise})"


def at_known_levels(moments: Moments, posterior: Callable[[Moments], TaskPosterior]) -> Array:
    """Compute what an oracle predicts with, E[w | context, sigma].

    Args:
        moments: The contexts, with their noise levels.
        posterior: Makes the posterior of contexts given noise levels.

    Returns:
        The weights, [B, d].

    Raises:
        InputError: The moments have no noise levels.
    """
    check_moments(moments)
    if moments.sigma is None:
        refuse("an oracle needs to know the noise levels", "moments without sigma", "Use moments of a problem.")

    def weights(solved: TaskPosterior) -> Array:
        return solved.at(np.arange(len(solved.count)), np.asarray(solved.moments.sigma))[1]

    return _in_chunks(moments, posterior, weights)


def _in_chunks(
    moments: Moments, posterior: Callable[[Moments], TaskPosterior], weights: Callable[[TaskPosterior], Array]
) -> Array:
    size = max(1, min(CHUNK, MOST // posterior(moments[:1]).size))
    return in_chunks(lambda part: weights(posterior(moments[part])), len(moments), size)


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
        summed = np.einsum("bii->b", self.S) * np.square(pool).sum(1)[self.residual.argmin(1)]
        self.faint = np.maximum(self.faint, ROUNDED * summed / self.count)  # where labels are all 0
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
        new_evidence, new_mean = self.gaussian.at(index, variance)
        log_odds = np.log(self.new) + new_evidence - np.log1p(-self.new) - evidence
        share = 1 / (1 + np.exp(-np.clip(log_odds, -700, 700)))[:, None]
        both = np.logaddexp(np.log(self.new) + new_evidence, np.log1p(-self.new) + evidence)
        return both, share * new_mean + (1 - share) * mean


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

    posterior = PoolPosterior

    def __init__(self, tasks: Tasks | str, noise: Noise | str | float) -> None:
        super().__init__(tasks, noise)
        if self.tasks.new == 1:
            refuse("DMMSE is for tasks of a pool", self.tasks, "Use BayesRR for Gaussian tasks.")


class SubsetPosterior(TaskPosterior):
    """Evidence and posterior mean of a batch of contexts under a law of sparse tasks.

    Args:
        tasks: The law of the tasks.
        moments: The contexts.
    """

    def __init__(self, tasks: Sparse, moments: Moments) -> None:
        super().__init__(moments)
        self.tree, self.log_chances = _listed(tasks, moments.dim)
        self.size, self.variance = len(self.tree), tasks.variance
        # Labels may be 0, as those of no weights are.
        labels = np.maximum(self.total, tasks.variance * np.einsum("bii->b", self.S) / moments.dim)
        self.faint = np.maximum(TINY * labels / self.count, 1e-300)

    @cached_property
    def least(self) -> Array:  # type: ignore[override]
        """The residual sums of squares of least squares, [B]."""
        values, vectors = np.linalg.eigh(self.S)  # the matrix S^-1 would lose what S is ill-conditioned by
        there = values > RANK * values[:, -1:]
        explained = np.einsum("bij,bi->bj", vectors, self.a) ** 2 / np.where(there, values, 1.0)
        return np.asarray(np.maximum(self.total - np.where(there, explained, 0.0).sum(1), 0.0))

    def _some(self, index: Index, variance: Array) -> tuple[Array, Array]:
        """See `TaskPosterior`."""
        penalty, count = variance / self.variance, self.count[index]
        solved = self.tree.solve(self.S[index], self.a[index], self.total[index], penalty)
        score = gaussian_evidence(solved.log_det, solved.residual, variance, penalty, count, self.tree.sizes)
        score += self.log_chances[:, None]
        top = score.max(0)
        weights = np.exp(score - top)
        mass = weights.sum(0)
        return np.log(mass) + top, solved.average(weights / mass)


class SparseOracle:
    """The posterior mean of sparse tasks when the noise level is known: what losses are adjusted by.

    Args:
        tasks: The law of the tasks, which must be sparse.

    Raises:
        InputError: The tasks are not sparse.
    """

    knows_sigma = True

    def __init__(self, tasks: Tasks | str) -> None:
        self.tasks = _sparse(tasks)

    def weights(self, moments: Moments) -> Array:
        """Return E[w | context, sigma], [B, d].

        Args:
            moments: The contexts, with their noise levels.

        Returns:
            The weights.

        Raises:
            InputError: The moments have no noise levels.
        """
        check_moments(moments)
        if moments.sigma is not None and not _is_short(self.tasks, moments.dim):
            return np.asarray(_sampled(self.tasks, None, moments, SCANS).mean(0))
        return at_known_levels(moments, partial(SubsetPosterior, self.tasks))

    def __repr__(self) -> str:
        return f"SparseOracle({self.tasks})"


class SparseBayes(OverLevels):
    """The posterior mean of sparse tasks under a distribution of noise levels.

    Args:
        tasks: The law of the tasks, which must be sparse.
        noise: The distribution of noise levels, as `Problem` takes it. Where noise differs from token to token, this is
            the best that can be made of the Gram matrix.
        scans: How many scans each of two chains makes where there are too many subsets.

    Raises:
        InputError: The tasks are not sparse.
    """

    tasks: Sparse
    posterior = SubsetPosterior

    def __init__(self, tasks: Tasks | str, noise: Noise | str | float, *, scans: int = SCANS) -> None:
        super().__init__(_sparse(tasks), noise)
        self.scans = integer("scans", scans, 10)

    def _levels(self, noise: Noise, count: int) -> tuple[Array, Array]:
        """See `OverLevels`: subsets are slow, so nodes are as few as resolve a posterior of width 1 / sqrt(2 n)."""
        nodes, prior = noise.quadrature(per_octave=min(max(6, int(np.ceil(1.5 * np.sqrt(count)))), MOST_NODES))
        return nodes[prior > 0], prior[prior > 0]

    def _weights(self, moments: Moments) -> Array:
        """See `OverLevels`: where there are too many subsets, two chains sample them."""
        if _is_short(self.tasks, moments.dim):
            return super()._weights(moments)
        return np.asarray(self._chains(moments).mean(0))

    def _chains(self, moments: Moments) -> Array:
        noise = self.noise.of_gram(int(moments.counts[0]))
        return _sampled(self.tasks, noise, moments, self.scans)

    def errors(self, moments: Moments) -> Array:
        """Estimate by how much the squared error of the weights exceeds that of the exact posterior mean.

        Args:
            moments: The contexts.

        Returns:
            Estimates of |w - E[w | context]|^2, whose mean has no bias, [B]; 0 where all subsets are averaged over.
        """
        check_moments(moments)
        if _is_short(self.tasks, moments.dim):
            return np.zeros(len(moments))
        return by_length(moments, lambda part: error_of(self._chains(part)))


@lru_cache(maxsize=8)
def _listed(tasks: Sparse, dim: int) -> tuple[SubsetTree, Array]:
    """All subsets that a law allows, and the logarithms of their probabilities, [M]."""
    tree = SubsetTree(every_subset(dim, *tasks.sizes(dim)))
    return tree, tasks.log_chances(dim)[tree.sizes]


def _is_short(tasks: Sparse, dim: int) -> bool:
    """Whether subsets are few enough to list them."""
    return count_subsets(dim, *tasks.sizes(dim)) <= MOST_LISTED


def _sampled(tasks: Sparse, noise: Noise | None, moments: Moments, scans: int) -> Array:
    """Estimates of E[w | context] by two chains, [2, B, d]; given the noise levels if there is no law of them."""
    law = conditional(tasks, moments.dim)

    def run(part: slice, rng: np.random.Generator) -> Array:
        return OfSequences(noise, moments[part]).chains(law, scans, rng)

    return two_chains(run, len(moments), 0)


def _sparse(tasks: Tasks | str) -> Sparse:
    law = Tasks.of(tasks)
    if not isinstance(law, Sparse):
        refuse("this predictor is for sparse tasks", law, "Use BayesRR for Gaussian tasks, and DMMSE for pools.")
    return law
