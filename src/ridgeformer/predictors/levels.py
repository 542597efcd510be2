"""Averages over noise levels, for laws of tasks that are not Gaussian: pools and sparse tasks.

Given a noise level, a law of tasks has an evidence p(context | sigma) and a posterior mean E[w | context, sigma]. The
oracle knows the level. The best predictor averages over levels with the posterior p(sigma | context).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise, as_noise
from ridgeformer.predictors.base import by_length, check_moments, in_chunks
from ridgeformer.problems import Tasks
from ridgeformer.validation import Array

Index = NDArray[np.intp]
TINY = 1e-12  # of the mean square of the labels: a smaller variance of the noise cannot be told from rounding
CELLS = 1 << 19  # contexts times tasks, or subsets, at a time
CHUNK, MOST = 512, 1 << 22  # contexts at a time; contexts times tasks in one array
NEGLIGIBLE = 30.0  # e^-30 of the largest term


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

    def at_own_levels(self) -> Array:
        """Return E[w | context, sigma] at the noise levels that the moments have, [B, d]."""
        return self.at(np.arange(len(self.count)), np.asarray(self.moments.sigma))[1]

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


class OverLevels(ABC):
    """The posterior mean of tasks under a distribution of noise levels.

    Args:
        tasks: The law of the tasks.
        noise: The distribution of noise levels, as `Problem` takes it. Where noise differs from token to token, this is
            the best that can be made of the Gram matrix.
    """

    def __init__(self, tasks: Tasks | str, noise: Noise | str | float) -> None:
        self.tasks, self.noise = Tasks.of(tasks), as_noise(noise)

    @abstractmethod
    def _posterior(self, moments: Moments) -> TaskPosterior:
        """The posterior of contexts given noise levels."""

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
        return _in_chunks(moments, self._posterior, lambda posterior: posterior.average(nodes, prior))

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
    return _in_chunks(moments, posterior, TaskPosterior.at_own_levels)


def _in_chunks(
    moments: Moments, posterior: Callable[[Moments], TaskPosterior], weights: Callable[[TaskPosterior], Array]
) -> Array:
    size = max(1, min(CHUNK, MOST // posterior(moments[:1]).size))
    return in_chunks(lambda part: weights(posterior(moments[part])), len(moments), size)
