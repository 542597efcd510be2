"""Sparse tasks: the oracle and the best predictor, averages over all subsets of the features that the law allows.

Where there are more than 8,192 subsets, a Gibbs sampler moves between them; see `gibbs`.

Given a noise level, each subset has an evidence and a ridge solution; see `subsets`. The oracle averages the solutions
with the posterior probabilities of the subsets, and the best predictor averages over noise levels, too.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise
from ridgeformer.noise.base import MOST_NODES
from ridgeformer.predictors.base import by_length, check_moments
from ridgeformer.predictors.gibbs import OfSequences, conditional, error_of, two_chains
from ridgeformer.predictors.levels import TINY, Index, OverLevels, TaskPosterior, at_known_levels
from ridgeformer.predictors.subsets import RANK, SubsetTree, count_subsets, every_subset, gaussian_evidence
from ridgeformer.problems import Sparse, Tasks
from ridgeformer.validation import Array, integer

MOST_LISTED = 1 << 13  # subsets that are averaged over one by one
SCANS = 150  # of a Gibbs sampler, beyond


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
        return at_known_levels(moments, lambda part: SubsetPosterior(self.tasks, part))

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

    def __init__(self, tasks: Tasks | str, noise: Noise | str | float, *, scans: int = SCANS) -> None:
        super().__init__(_sparse(tasks), noise)
        self.scans = integer("scans", scans, 10)

    def _posterior(self, moments: Moments) -> SubsetPosterior:
        return SubsetPosterior(self.tasks, moments)

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
    given = conditional(tasks, moments.dim)

    def run(part: slice, rng: np.random.Generator) -> Array:
        return OfSequences(noise, moments[part]).chains(given, scans, rng)

    return two_chains(run, len(moments), 0)


def _sparse(tasks: Tasks | str) -> Sparse:
    given = Tasks.of(tasks)
    if not isinstance(given, Sparse):
        refuse("this predictor is for sparse tasks", given, "Use BayesRR for Gaussian tasks, and DMMSE for pools.")
    return given
