"""Sparse tasks: the oracle and the best predictor, averages over all subsets of the features that the law allows.

Where there are more than 8,192 subsets, a Gibbs sampler moves between them; see `gibbs`.

Given a noise level, each subset has an evidence and a ridge solution; see `subsets`. The oracle averages the solutions
with the posterior probabilities of the subsets, and the best predictor averages over noise levels, too.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import default_threads, one_blas_thread
from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise, as_noise
from ridgeformer.noise.base import MOST_NODES
from ridgeformer.predictors.base import by_length, check_moments
from ridgeformer.predictors.gibbs import OfSequences, conditional, error_of, two_chains
from ridgeformer.predictors.pools import TINY
from ridgeformer.predictors.subsets import RANK, SubsetTree, count_subsets, every_subset, gaussian_evidence
from ridgeformer.problems import Sparse, Tasks
from ridgeformer.problems.tasks import as_tasks
from ridgeformer.validation import integer

__all__ = ["MOST_LISTED", "SparseBayes", "SparseOracle", "SubsetPosterior"]

Array = NDArray[np.float64]
MOST_LISTED = 1 << 13  # subsets that are averaged over one by one
SCANS = 150  # of a Gibbs sampler, beyond
CELLS = 1 << 19  # subsets times contexts at a time
NEGLIGIBLE = 25.0  # e^-25 of the largest term


class SubsetPosterior:
    """Evidence and posterior mean of a batch of contexts under a law of sparse tasks.

    Args:
        tasks: The law of the tasks.
        moments: The contexts.
    """

    def __init__(self, tasks: Sparse, moments: Moments) -> None:
        self.tasks, self.count = tasks, moments.counts.astype(np.float64)
        self.S, self.a, self.total = (np.asarray(x, np.float64) for x in (moments.S, moments.b, moments.q))
        self.tree, self.log_chances = _listed(tasks, moments.dim)
        # A smaller variance of the noise cannot be told from rounding; labels may be 0, as those of no weights are.
        labels = np.maximum(self.total, tasks.variance * np.einsum("bii->b", self.S) / moments.dim)
        self.faint = np.maximum(TINY * labels / self.count, 1e-300)

    @cached_property
    def least(self) -> Array:
        """The residual sums of squares of least squares, [B]: no subset has a smaller one."""
        values, vectors = np.linalg.eigh(
            self.S
        )  # a'S^-1 a from the matrix S^-1 would lose what S is ill-conditioned by
        there = values > RANK * values[:, -1:]
        explained = np.einsum("bij,bi->bj", vectors, self.a) ** 2 / np.where(there, values, 1.0)
        return np.asarray(np.maximum(self.total - np.where(there, explained, 0.0).sum(1), 0.0))

    def at(self, index: NDArray[np.intp], sigma: Array) -> tuple[Array, Array]:
        """Compute the evidence and the posterior mean of some contexts, each at a noise level.

        Args:
            index: The numbers of the contexts, [b].
            sigma: The noise levels, [b].

        Returns:
            log p(context | sigma), [b], up to a constant, and E[w | context, sigma], [b, d].
        """
        evidence, mean = np.empty(len(index)), np.empty((len(index), self.a.shape[1]))
        size = max(1, CELLS // len(self.tree))
        for start in range(0, len(index), size):
            part = slice(start, start + size)
            evidence[part], mean[part] = self._some(index[part], sigma[part])
        return evidence, mean

    def _some(self, index: NDArray[np.intp], sigma: Array) -> tuple[Array, Array]:
        variance = np.maximum(sigma**2, self.faint[index])
        penalty = variance / self.tasks.variance
        count, sizes = self.count[index], self.tree.sizes
        solved = self.tree.solve(self.S[index], self.a[index], self.total[index], penalty)
        score = gaussian_evidence(solved.log_det, solved.residual, variance, penalty, count, sizes)
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
        if moments.sigma is None:
            refuse("an oracle needs to know the noise levels", "moments without sigma", "Use moments of a problem.")
        if not _is_short(self.tasks, moments.dim):
            return np.asarray(_sampled(self.tasks, None, moments, SCANS).mean(0))
        means, size = np.empty((len(moments), moments.dim)), CELLS // 64
        posterior = SubsetPosterior(self.tasks, moments)

        def work(start: int) -> None:
            index = np.arange(start, min(start + size, len(moments)))
            means[index] = posterior.at(index, np.asarray(moments.sigma)[index])[1]

        with one_blas_thread(), ThreadPoolExecutor(default_threads()) as workers:
            list(workers.map(work, range(0, len(moments), size)))
        return means

    def __repr__(self) -> str:
        return f"SparseOracle({self.tasks})"


class SparseBayes:
    """The posterior mean of sparse tasks under a distribution of noise levels.

    Args:
        tasks: The law of the tasks, which must be sparse.
        noise: The distribution of noise levels, as `Problem` takes it. Where noise differs from token to token, this is
            the best that can be made of the Gram matrix.
        threads: How many threads; None for the default.
        scans: How many scans each of two chains makes where there are too many subsets.

    Raises:
        InputError: The tasks are not sparse.
    """

    def __init__(
        self, tasks: Tasks | str, noise: Noise | str | float, threads: int | None = None, *, scans: int = SCANS
    ) -> None:
        self.tasks, self.noise, self.threads = _sparse(tasks), as_noise(noise), threads
        self.scans = integer("scans", scans, 10)

    def weights(self, moments: Moments) -> Array:
        """Return E[w | context], [B, d].

        Args:
            moments: The contexts, which may differ in their number of examples.

        Returns:
            The weights.
        """
        check_moments(moments)
        if self.noise.per_token:  # whatever has the same Gram matrices
            return by_length(moments, lambda part: self._of_gram(int(part.context)).weights(part))
        if not _is_short(self.tasks, moments.dim):
            return np.asarray(self._chains(moments).mean(0))
        # A posterior over log sigma has a width of about 1 / sqrt(2 n): the nodes of an octave resolve it.
        order = min(max(6, int(np.ceil(1.5 * np.sqrt(float(moments.counts.max()))))), MOST_NODES)
        nodes, prior = self.noise.quadrature(per_octave=order)
        nodes, prior = nodes[prior > 0], prior[prior > 0]
        means, posterior = np.empty((len(moments), moments.dim)), SubsetPosterior(self.tasks, moments)
        size = max(1, 4 * CELLS // len(posterior.tree) // len(nodes))

        def work(start: int) -> None:
            index = np.arange(start, min(start + size, len(moments)))
            means[index] = _average(posterior, index, nodes, prior)

        with one_blas_thread(), ThreadPoolExecutor(self.threads or default_threads()) as workers:
            list(workers.map(work, range(0, len(moments), size)))
        return means

    def _of_gram(self, context: int) -> SparseBayes:
        return SparseBayes(self.tasks, self.noise.of_gram(context), self.threads, scans=self.scans)

    def _chains(self, moments: Moments) -> Array:
        return _sampled(self.tasks, self.noise, moments, self.scans, self.threads)

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
        if self.noise.per_token:
            return by_length(moments, lambda part: self._of_gram(int(part.context)).errors(part))
        return error_of(self._chains(moments))

    def __repr__(self) -> str:
        return f"SparseBayes({self.tasks}, {self.noise})"


def _average(posterior: SubsetPosterior, index: NDArray[np.intp], nodes: Array, prior: Array) -> Array:
    """The posterior means at the noise levels that matter, averaged with the posterior of the noise level.

    With R the residual of least squares, every subset has -2 log p >= n log v + R / v. A level matters unless this
    bound is far below the evidence at one level, that of the best bound.
    """
    if len(nodes) == 1:
        return posterior.at(index, np.full(len(index), nodes[0]))[1]
    n, log_prior = posterior.count[index, None], np.log(prior)
    v = np.maximum(nodes**2, posterior.faint[index, None])
    bound = log_prior - 0.5 * (n * np.log(v) + posterior.least[index, None] / v)
    best = bound.argmax(1)
    reached = posterior.at(index, nodes[best])[0] + log_prior[best]
    which, node = np.nonzero(bound > reached[:, None] - NEGLIGIBLE)
    evidence, means = posterior.at(index[which], nodes[node])
    evidence += log_prior[node]
    top = np.full(len(index), -np.inf)
    np.maximum.at(top, which, evidence)
    weights = np.exp(evidence - top[which])
    total, mean = np.zeros(len(index)), np.zeros((len(index), means.shape[1]))
    np.add.at(total, which, weights)
    np.add.at(mean, which, weights[:, None] * means)
    return mean / total[:, None]


@lru_cache(maxsize=8)
def _listed(tasks: Sparse, dim: int) -> tuple[SubsetTree, Array]:
    """All subsets that a law allows, and the logarithms of their probabilities, [M]."""
    tree = SubsetTree(every_subset(dim, *tasks.sizes(dim)))
    return tree, tasks.log_chances(dim)[tree.sizes]


def _is_short(tasks: Sparse, dim: int) -> bool:
    """Whether subsets are few enough to list them."""
    return count_subsets(dim, *tasks.sizes(dim)) <= MOST_LISTED


def _sampled(tasks: Sparse, noise: Noise | None, moments: Moments, scans: int, threads: int | None = None) -> Array:
    """Estimates of E[w | context] by two chains, [2, B, d]; given the noise levels if there is no law of them."""
    given = conditional(tasks, moments.dim)

    def run(part: slice, rng: np.random.Generator) -> Array:
        return OfSequences(noise, moments[part]).chains(given, scans, rng)

    return two_chains(run, len(moments), 0, threads)


def _sparse(tasks: Tasks | str) -> Sparse:
    given = as_tasks(tasks)
    if not isinstance(given, Sparse):
        refuse("this predictor is for sparse tasks", given, "Use BayesRR for Gaussian tasks, and DMMSE for pools.")
    return given
