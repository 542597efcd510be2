"""The base class of the laws of tasks, and the Gaussian law that ridge predictors assume."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.moments import Moments
from ridgeformer.problems.text import Described
from ridgeformer.values import Value

__all__ = ["Prior", "Tasks"]

Array = NDArray[np.float64]


@dataclass(eq=False)
class Prior(Value):
    """A Gaussian law of tasks, w = mean + factor g with g ~ N(0, I): what ridge predictors assume.

    Attributes:
        mean: [d], or None for 0.
        factor: [d, r], or None for the identity.
    """

    mean: Array | None = None
    factor: Array | None = None

    @property
    def is_standard(self) -> bool:
        """Whether w ~ N(0, I)."""
        return self.mean is None and self.factor is None

    def whiten(self, moments: Moments) -> Moments:
        """Return the moments of the same contexts in the coordinates g, in which tasks are N(0, I).

        Args:
            moments: The contexts.

        Returns:
            The moments, of dimension r.
        """
        if self.is_standard:
            return moments
        S, a, l = (x.astype(np.float64) for x in (moments.S, moments.b, moments.q))  # noqa: E741
        if self.mean is not None:
            Sm = S @ self.mean
            l = np.maximum(l - 2 * (a @ self.mean) + Sm @ self.mean, 0.0)  # noqa: E741
            a = a - Sm
        if self.factor is not None:
            S, a = self.factor.T @ S @ self.factor, a @ self.factor
        d = S.shape[1]
        gram = np.empty((len(S), d + 1, d + 1))
        gram[:, :d, :d], gram[:, d, d] = (S + np.swapaxes(S, 1, 2)) / 2, l
        gram[:, :d, d] = gram[:, d, :d] = a
        return Moments._trusted(gram, moments.context, moments.sigma)

    def back(self, weights: Array) -> Array:
        """Return weights from those in the coordinates g.

        Args:
            weights: Weights in the coordinates g, [B, r].

        Returns:
            Weights, [B, d].
        """
        tasks = weights if self.factor is None else weights @ self.factor.T
        return tasks if self.mean is None else tasks + self.mean


class Tasks(Described):
    """The law of the tasks."""

    @abstractmethod
    def prior(self, dim: int) -> Prior:
        """Return the Gaussian law that ridge predictors assume: the law itself, or its Gaussian part.

        Args:
            dim: The dimension d of the tasks.

        Returns:
            Mean and factor.

        Raises:
            InputError: The tasks do not fit the dimension.
        """

    def pool(self, dim: int) -> Array | None:
        """Return the tasks to choose among.

        Args:
            dim: The dimension d of the tasks.

        Returns:
            The tasks, [K, d], or None if there is no pool.
        """
        return None

    @property
    def new(self) -> float:
        """The probability that a task is a new one, not one of the pool."""
        return 1.0

    @property
    def is_gaussian(self) -> bool:
        """Whether w is Gaussian, so that the oracle is ridge regression."""
        return False

    def numbers(self, dim: int) -> int:
        """Return how many random numbers `drawn` makes a task of; 0 where engines draw the tasks.

        Args:
            dim: The dimension d of the tasks.

        Returns:
            The number.
        """
        return 0

    def drawn(self, u: Array) -> Array:
        """Make tasks of uniform random numbers, where engines do not draw them.

        Args:
            u: Random numbers in (0, 1), [B, numbers].

        Returns:
            The tasks, [B, d].
        """
        raise NotImplementedError(f"engines draw the tasks of {self}")

    def moments(self, dim: int, covariance: Array) -> tuple[Array, Array, Array, float, float]:
        """Compute moments of w and of q = w' Lambda w, over the Gaussian part and the pool.

        Args:
            dim: The dimension d of the tasks.
            covariance: The covariance Lambda of the features, [d, d].

        Returns:
            E w [d], E w w' [d, d], E w q [d], E q and E q^2.
        """
        prior, pool, new, L = self.prior(dim), self.pool(dim), self.new, covariance
        parts = []
        if new:
            mean = np.zeros(dim) if prior.mean is None else np.asarray(prior.mean)
            gamma = np.eye(dim) if prior.factor is None else prior.factor @ prior.factor.T
            q, seen = float((L * gamma).sum() + mean @ L @ mean), L @ gamma @ L
            q2 = q * q + 2 * float((L @ gamma * (L @ gamma).T).sum()) + 4 * float(mean @ seen @ mean)
            parts.append((new, mean, gamma + np.outer(mean, mean), q * mean + 2 * gamma @ L @ mean, q, q2))
        if pool is not None:
            each = np.einsum("ki,ij,kj->k", pool, L, pool)
            moments = pool.mean(0), pool.T @ pool / len(pool), each @ pool / len(pool), float(each.mean())
            parts.append((1 - new, *moments, float(np.square(each).mean())))
        return tuple(sum(part[0] * part[k] for part in parts) for k in range(1, 6))  # type: ignore[return-value]

    def second_moment(self, dim: int) -> Array:
        """Return E[w w'].

        Args:
            dim: The dimension d of the tasks.

        Returns:
            The matrix, [d, d].
        """
        prior = self.prior(dim)
        second = np.eye(dim) if prior.factor is None else prior.factor @ prior.factor.T
        if prior.mean is not None:
            second = second + np.outer(prior.mean, prior.mean)
        if (pool := self.pool(dim)) is None:
            return second
        return np.asarray(self.new * second + (1 - self.new) * pool.T @ pool / len(pool))

    def law(self, dim: int) -> dict[str, Any]:
        """See `Described.law`."""
        prior = self.prior(dim)
        return {"mean": prior.mean, "task_factor": prior.factor, "pool": self.pool(dim)}

    def choose(self, u: Array, dim: int) -> NDArray[np.int64] | None:
        """Return which task of the pool each sequence has.

        Args:
            u: Uniform random numbers in (0, 1), [B].
            dim: The dimension d of the tasks.

        Returns:
            Numbers of tasks, [B], or -1 for a new task; None if there is no pool.
        """
        pool = self.pool(dim)
        if pool is None:
            return None
        from_pool = (u - self.new) / (1 - self.new)
        chosen = np.minimum((from_pool * len(pool)).astype(np.int64), len(pool) - 1)
        return np.where(u < self.new, -1, chosen)
