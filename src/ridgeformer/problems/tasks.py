"""Tasks w: Gaussian, of any mean and covariance; one of a finite pool; a mixture of both; or sparse.

Given the noise level, each law of tasks has an evidence, p(context | sigma), and a posterior mean, E[w | context,
sigma]: what an oracle predicts with, and what the Bayes predictor averages over sigma. `Prior` is the Gaussian law that
ridge predictors assume.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import refuse, shown
from ridgeformer.moments import Moments, bordered
from ridgeformer.problems.parts import PartOfProblem
from ridgeformer.validation import Array, array, check_covariance, choice, fitting, integer, number, real
from ridgeformer.values import Value

MOST_POOL = 1 << 24


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
        gram = bordered((S + np.swapaxes(S, 1, 2)) / 2, a, l)
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


class Tasks(PartOfProblem):
    """The law of the tasks.

    Attributes:
        new: The probability that a task is a new one, not one of the pool.
        is_gaussian: Whether w is Gaussian, so that the oracle is ridge regression.
    """

    plural, usual = "tasks", "gaussian"
    examples = (
        "Write gaussian(), gaussian(signal=1), gaussian(mean=[1,0],covariance=[[1,0],[0,2]]), lowrank(3), pool(64), "
        "pool(64,seed=1,law='sphere'), pool([[1,0],[0,1]]), mixture(pool(64),0.1), sparse(3), sparse(p=0.2) or "
        "sparse(beta=[1,4])."
    )
    known: ClassVar[dict[str, Any]] = {}
    new: float = 1.0
    is_gaussian: ClassVar[bool] = False

    @classmethod
    def from_covariance(cls, value: object) -> Tasks:
        """See `PartOfProblem.from_covariance`."""
        if not isinstance(value, list | tuple | np.ndarray):
            refuse("tasks must be a law of tasks, its text or a covariance matrix", shown(value), cls.examples)
        covariance = real("the covariance of tasks", value)
        return Gaussian(covariance=np.diag(covariance) if covariance.ndim == 1 else covariance)

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

    def choose(self, u: Array, dim: int) -> NDArray[np.int64]:
        """Return which task of the pool, of which there must be one, each sequence has.

        Args:
            u: Uniform random numbers in (0, 1), [B].
            dim: The dimension d of the tasks.

        Returns:
            Numbers of tasks, [B], or -1 for a new task.
        """
        pool = self.pool(dim)
        assert pool is not None
        from_pool = (u - self.new) / (1 - self.new)
        index = np.minimum((from_pool * len(pool)).astype(np.int64), len(pool) - 1)
        return np.where(u < self.new, -1, index)


class Gaussian(Tasks):
    """w ~ N(mean, covariance).

    Args:
        mean: [d]; None for 0.
        covariance: [d, d], symmetric, with no negative eigenvalue; None for the identity. It may have low rank.
        signal: E |w|^2, the same for every dimension: the covariance is I times signal / d. None for E |w|^2 = d.

    Raises:
        InputError: An argument is not allowed, or both a covariance and a signal are given.
    """

    name = "gaussian"
    named = ("mean", "covariance", "signal")
    is_gaussian = True
    words = "w is N(0, I)"

    def __init__(
        self, mean: ArrayLike | None = None, covariance: ArrayLike | None = None, signal: float | None = None
    ) -> None:
        self.signal = None if signal is None else number("the signal of tasks", signal)
        if self.signal is not None and (covariance is not None or not 0 < self.signal < np.inf):
            received = f"signal={signal}" + (" and a covariance" if covariance is not None else "")
            refuse("the signal of tasks is positive and takes the place of a covariance", received, "Pass signal=1.")
        self.mean = None if mean is None else array("the mean of tasks", mean, ("d",)).astype(np.float64)
        self.covariance = None if covariance is None else check_covariance("the covariance of tasks", covariance)
        if self.covariance is not None and not self.covariance.any():
            refuse("tasks must vary in at least one direction", "a covariance of 0", "Use pool([w]) for one task.")

    def prior(self, dim: int) -> Prior:
        """See `Tasks.prior`."""
        for name, value in (("mean", self.mean), ("covariance", self.covariance)):
            if value is not None:
                fitting(f"the {name} of tasks", value, dim)
        if self.signal is not None:
            return Prior(self.mean, np.sqrt(self.signal / dim) * np.eye(dim))
        return Prior(self.mean, None if self.covariance is None else _factor(self.covariance))

    def describe(self, dim: int) -> str:
        """See `PartOfProblem.describe`."""
        if self.mean is None and self.covariance is None and self.signal is None:
            return self.words
        mean = "mean 0" if self.mean is None else "a given mean"
        if self.signal is not None:
            return f"w is Gaussian with {mean} and covariance I times {self.signal:g} / d, here {self.signal / dim:.4g}"
        return f"w is Gaussian with {mean} and {'covariance I' if self.covariance is None else 'a given covariance'}"


STANDARD = Gaussian()


class LowRankTasks(Tasks):
    """Tasks w ~ N(0, covariance) with variance d / rank in the first `rank` coordinates, and 0 in the others.

    Args:
        rank: The rank, 1 to d.
    """

    name = "lowrank"
    is_gaussian = True
    words = "w is Gaussian in the first {rank} coordinates, with variance d / {rank}, and 0 in the others"

    def __init__(self, rank: int) -> None:
        self.rank = integer("the rank of tasks", rank, 1, 4096)

    def prior(self, dim: int) -> Prior:
        """See `Tasks.prior`."""
        if self.rank > dim:
            refuse(f"the rank of tasks can be at most d = {dim}", self.rank, "Pass a smaller rank.")
        return Prior(None, np.sqrt(dim / self.rank) * np.eye(dim)[:, : self.rank])


class Pool(Tasks):
    """w uniformly from a finite pool.

    Args:
        tasks: The vectors, [K, d]; or K, for random ones.
        seed: Seed of random ones.
        law: `gaussian`, N(0, I), or `sphere`, uniform on the sphere of radius sqrt(d).
    """

    name = "pool"
    new = 0.0
    words = "w is drawn from a pool of {count} vectors, which are themselves drawn from {law} with seed {seed}"

    def __init__(self, tasks: int | ArrayLike, *, seed: int = 0, law: str = "gaussian") -> None:
        self.seed = integer("the seed of a pool", seed, 0, (1 << 63) - 1)
        self._law = choice("the law of a pool", law, ("gaussian", "sphere"))
        self.vectors: Array | None = None
        if isinstance(tasks, Real | str):
            self.tasks: int | Array = integer("the number of tasks in a pool", tasks, 1, MOST_POOL)
            self.count = self.tasks
        else:
            if isinstance(tasks, list | tuple | np.ndarray) and len(tasks) == 0:
                refuse("a pool must have at least one task", "none", "List vectors of length d: [[1, 0], [0, 1]].")
            # Zero without a sign, so that equal pools have equal texts.
            self.vectors = array("the tasks of a pool", tasks, ("K", "d")).astype(np.float64) + 0.0
            self.tasks, self.count = self.vectors, len(self.vectors)

    def prior(self, dim: int) -> Prior:
        """See `Tasks.prior`: N(0, I) for random tasks, and the mean and covariance of given ones."""
        if self.vectors is None:
            return Prior()
        pool = self._fitting(dim)
        covariance = np.cov(pool.T, bias=True).reshape(dim, dim)
        # One task, or several that span little: ridge predictors must not divide by zero.
        return Prior(pool.mean(0), _factor(covariance + 1e-6 * np.eye(dim) * max(np.square(pool).mean(), 1e-300)))

    def pool(self, dim: int) -> Array:
        """See `Tasks.pool`."""
        if self.vectors is not None:
            return self._fitting(dim)
        drawn = np.random.default_rng([self.seed, 7]).standard_normal((self.count, dim))
        if self._law == "sphere":
            drawn *= np.sqrt(dim) / np.linalg.norm(drawn, axis=1, keepdims=True)
        return drawn

    def _fitting(self, dim: int) -> Array:
        assert self.vectors is not None
        if self.vectors.shape[1] != dim:
            rule = f"the tasks of a pool must have dimension {dim}"
            refuse(rule, f"dimension {self.vectors.shape[1]}", f"Use dim={self.vectors.shape[1]}.")
        return self.vectors

    def describe(self, dim: int) -> str:
        """See `PartOfProblem.describe`."""
        law = "N(0, I)" if self._law == "gaussian" else "the sphere of radius sqrt(d)"
        listed = f"w is drawn from a pool of {self.count} given vectors"
        return self.words.format(count=self.count, law=law, seed=self.seed) if self.vectors is None else listed


class Mixture(Tasks):
    """Tasks of a pool, and with probability `new` new ones.

    Args:
        pool: The pool.
        new: The share of new tasks, between 0 and 1.
        prior: The law of the new tasks.
    """

    name = "mixture"
    words = "w is new with probability {new:g}, and otherwise from a pool: {_pool}"

    def __init__(self, pool: Pool, new: float, prior: Tasks = STANDARD) -> None:
        self.new, self._pool, self._prior = number("the share of new tasks", new), pool, Tasks.of(prior)
        if not isinstance(pool, Pool) or not self._prior.is_gaussian:
            refuse("a mixture is of a pool and a Gaussian law", f"{pool} and {self._prior}", self.examples)
        if not 0 < self.new < 1:
            refuse("the share of new tasks must lie between 0 and 1", self.new, "Use the pool or the law alone.")

    def prior(self, dim: int) -> Prior:
        """See `Tasks.prior`."""
        return self._prior.prior(dim)

    def pool(self, dim: int) -> Array | None:
        """See `Tasks.pool`."""
        return self._pool.pool(dim)


def _factor(covariance: Array) -> Array | None:
    """F [d, r] with F F' = covariance and as few columns as that needs; None for the identity."""
    if np.array_equal(covariance, np.eye(len(covariance))):
        return None
    values, vectors = np.linalg.eigh(covariance)
    positive = values > 1e-12 * values[-1]
    return np.asarray(vectors[:, positive] * np.sqrt(values[positive]))
