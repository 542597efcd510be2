"""Base class of the laws of tasks."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.problems.prior import Prior
from ridgeformer.problems.text import Described

__all__ = ["Tasks"]

Array = NDArray[np.float64]


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
