"""Tasks w: Gaussian, of any mean and covariance; one of a finite pool; a mixture of both; or sparse.

Given the noise level, each law of tasks has an evidence, p(context | sigma), and a posterior mean, E[w | context,
sigma]: what an oracle predicts with, and what the Bayes predictor averages over sigma.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, gammaln, ndtri

from ridgeformer.errors import refuse, shown
from ridgeformer.problems.matrices import check_covariance, fitting
from ridgeformer.problems.prior import Prior
from ridgeformer.problems.text import Described, parse_call
from ridgeformer.validation import array, choice, integer, number, real

__all__ = ["Gaussian", "LowRankTasks", "Mixture", "Pool", "Sparse", "Tasks", "as_tasks", "parse_tasks"]

Array = NDArray[np.float64]
EXAMPLES = (
    "Write gaussian(), gaussian(mean=[1,0],covariance=[[1,0],[0,2]]), lowrank(3), pool(64), "
    "pool(64,seed=1,law='sphere'), pool([[1,0],[0,1]]), mixture(pool(64),0.1), sparse(3), sparse(p=0.2) or "
    "sparse(beta=[1,4])."
)
MOST_POOL = 1 << 24


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
        found = np.eye(dim) if prior.factor is None else prior.factor @ prior.factor.T
        if prior.mean is not None:
            found = found + np.outer(prior.mean, prior.mean)
        if (pool := self.pool(dim)) is None:
            return found
        return np.asarray(self.new * found + (1 - self.new) * pool.T @ pool / len(pool))

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
        found = np.minimum((from_pool * len(pool)).astype(np.int64), len(pool) - 1)
        return np.where(u < self.new, -1, found)


class Gaussian(Tasks):
    """w ~ N(mean, covariance).

    Args:
        mean: [d]; None for 0.
        covariance: [d, d], symmetric, with no negative eigenvalue; None for the identity. It may have low rank.
    """

    name = "gaussian"
    words = "w is N(0, I)"

    def __init__(self, mean: ArrayLike | None = None, covariance: ArrayLike | None = None) -> None:
        self.mean = None if mean is None else array("the mean of tasks", mean, ("d",)).astype(np.float64)
        self.covariance = None if covariance is None else check_covariance("the covariance of tasks", covariance, False)
        if self.covariance is not None and not self.covariance.any():
            refuse("tasks must vary in at least one direction", "a covariance of 0", "Use pool([w]) for one task.")

    @property
    def is_gaussian(self) -> bool:
        """See `Tasks.is_gaussian`."""
        return True

    def prior(self, dim: int) -> Prior:
        """See `Tasks.prior`."""
        for name, value in (("mean", self.mean), ("covariance", self.covariance)):
            if value is not None:
                fitting(f"the {name} of tasks", value, dim)
        return Prior(self.mean, None if self.covariance is None else _factor(self.covariance))

    def describe(self, dim: int) -> str:
        """See `Described.describe`."""
        if self.mean is None and self.covariance is None:
            return self.words
        mean = "mean 0" if self.mean is None else "a given mean"
        return f"w is Gaussian with {mean} and {'covariance I' if self.covariance is None else 'a given covariance'}"

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        named = {"mean": self.mean, "covariance": self.covariance}
        return [], {name: value for name, value in named.items() if value is not None}


class LowRankTasks(Tasks):
    """Tasks w ~ N(0, covariance) with variance d / rank in the first `rank` coordinates, and 0 in the others.

    Args:
        rank: The rank, 1 to d.
    """

    name = "lowrank"
    words = "w is Gaussian in the first {rank} coordinates, with variance d / {rank}, and 0 in the others"

    def __init__(self, rank: int) -> None:
        self.rank = integer("the rank of tasks", rank, 1, 4096)

    @property
    def is_gaussian(self) -> bool:
        """See `Tasks.is_gaussian`."""
        return True

    def prior(self, dim: int) -> Prior:
        """See `Tasks.prior`."""
        if self.rank > dim:
            refuse(f"the rank of tasks can be at most d = {dim}", self.rank, "Pass a smaller rank.")
        return Prior(None, np.sqrt(dim / self.rank) * np.eye(dim)[:, : self.rank])

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        return [self.rank], {}


class Pool(Tasks):
    """w uniformly from a finite pool.

    Args:
        tasks: The vectors, [K, d]; or K, for random ones.
        seed: Seed of random ones.
        law: `gaussian`, N(0, I), or `sphere`, uniform on the sphere of radius sqrt(d).
    """

    name = "pool"
    words = "w is drawn from a pool of {count} vectors, which are themselves drawn from {law} with seed {seed}"

    def __init__(self, tasks: int | ArrayLike, *, seed: int = 0, law: str = "gaussian") -> None:
        self.seed, self.kind = integer("the seed of a pool", seed, 0, (1 << 63) - 1), law
        choice("the law of a pool", law, ("gaussian", "sphere"))
        self.vectors: Array | None = None
        if isinstance(tasks, Real | str):
            self.count = integer("the number of tasks in a pool", tasks, 1, MOST_POOL)
        else:
            if isinstance(tasks, list | tuple | np.ndarray) and len(tasks) == 0:
                refuse("a pool must have at least one task", "none", "List vectors of length d: [[1, 0], [0, 1]].")
            # Zero without a sign, so that equal pools have equal texts.
            self.vectors = array("the tasks of a pool", tasks, ("K", "d")).astype(np.float64) + 0.0
            self.count = len(self.vectors)

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
        if self.kind == "sphere":
            drawn *= np.sqrt(dim) / np.linalg.norm(drawn, axis=1, keepdims=True)
        return drawn

    @property
    def new(self) -> float:
        """See `Tasks.new`."""
        return 0.0

    def _fitting(self, dim: int) -> Array:
        assert self.vectors is not None
        if self.vectors.shape[1] != dim:
            refuse(
                f"the tasks of a pool must have dimension {dim}",
                f"dimension {self.vectors.shape[1]}",
                f"Use dim={self.vectors.shape[1]}.",
            )
        return self.vectors

    def describe(self, dim: int) -> str:
        """See `Described.describe`."""
        law = "N(0, I)" if self.kind == "gaussian" else "the sphere of radius sqrt(d)"
        given = f"w is drawn from a pool of {self.count} given vectors"
        return self.words.format(count=self.count, law=law, seed=self.seed) if self.vectors is None else given

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        if self.vectors is not None:
            return [self.vectors], {}
        named = {"seed": self.seed} if self.seed else {}
        return [self.count], {**named, **({} if self.kind == "gaussian" else {"law": self.kind})}


class Mixture(Tasks):
    """Tasks of a pool, and with probability `new` new ones.

    Args:
        pool: The pool.
        new: The share of new tasks, between 0 and 1.
        prior: The law of the new tasks.
    """

    name = "mixture"
    words = "w is new with probability {_new:g}, and otherwise from a pool: {_pool}"

    def __init__(self, pool: Pool, new: float, prior: Tasks | None = None) -> None:
        self._new, self._prior = number("the share of new tasks", new), prior or Gaussian()
        if not isinstance(pool, Pool) or not isinstance(self._prior, Gaussian | LowRankTasks):
            refuse("a mixture is of a pool and a Gaussian law", f"{pool} and {self._prior}", EXAMPLES)
        if not 0 < self._new < 1:
            refuse("the share of new tasks must lie between 0 and 1", self._new, "Use the pool or the law alone.")
        self._pool = pool

    def prior(self, dim: int) -> Prior:
        """See `Tasks.prior`."""
        return self._prior.prior(dim)

    def pool(self, dim: int) -> Array | None:
        """See `Tasks.pool`."""
        return self._pool.pool(dim)

    @property
    def new(self) -> float:
        """See `Tasks.new`."""
        return self._new

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        rest = [] if self._prior == Gaussian() else [self._prior]
        return [self._pool, self._new, *rest], {}


class Sparse(Tasks):
    """Tasks of which few weights are not zero: those of a random subset of the features, from N(0, variance).

    All subsets of one size are equally likely. With `size`, there are always that many weights, as in Garg et al.
    (2022). With `p`, each weight is there with that probability. With `beta`, each sequence first draws such a
    probability from a beta distribution, so that the number of weights is beta-binomial.

    Args:
        size: The number of weights that are not zero, 1 to d.
        p: The probability of each weight to be there, between 0 and 1.
        beta: The two parameters of the beta distribution of that probability, positive.
        variance: The variance of the weights that are there.

    Raises:
        InputError: Not exactly one of `size`, `p` and `beta` is given, or a number is out of range.
    """

    name = "sparse"
    words = "w has {how}; these are from N(0, {variance:g}), and the others are 0"

    def __init__(
        self,
        size: int | None = None,
        *,
        p: float | None = None,
        beta: ArrayLike | None = None,
        variance: float = 1.0,
    ) -> None:
        given = {name: value for name, value in (("size", size), ("p", p), ("beta", beta)) if value is not None}
        if len(given) != 1:
            refuse("sparse tasks have a size, p or beta", " and ".join(given) or "none of them", EXAMPLES)
        self.size = None if size is None else integer("the number of weights of sparse tasks", size, 1, 4096)
        self.p = None if p is None else number("the probability p of a weight", p)
        if self.p is not None and not 0 < self.p < 1:
            refuse("the probability p of a weight must lie between 0 and 1", self.p, "Use gaussian() for all weights.")
        self.beta = None if beta is None else array("the parameters of beta", beta, (2,)).astype(np.float64)
        if self.beta is not None and not (self.beta > 0).all():
            refuse("the parameters of beta must be positive", self.beta.tolist(), "Pass [1, 4], for example.")
        self.variance = number("the variance of sparse tasks", variance)
        if not 0 < self.variance < np.inf:
            refuse("the variance of sparse tasks must be positive and finite", self.variance, "Pass 1, for example.")

    def sizes(self, dim: int) -> tuple[int, int]:
        """Return the least and the largest number of weights.

        Args:
            dim: The dimension d of the tasks.

        Returns:
            The two numbers.

        Raises:
            InputError: There are more weights than dimensions.
        """
        if self.size is None:
            return 0, dim
        if self.size > dim:
            refuse(f"sparse tasks can have at most d = {dim} weights", self.size, "Pass a smaller number.")
        return self.size, self.size

    def log_chances(self, dim: int) -> Array:
        """Return the logarithm of the probability of every single subset, by its size.

        Args:
            dim: The dimension d of the tasks.

        Returns:
            The logarithms, [d + 1]; subsets of k features have the same probability.
        """
        k = np.arange(dim + 1.0)
        if self.beta is not None:
            a, b = self.beta
            return np.asarray(betaln(a + k, b + dim - k) - betaln(a, b))
        if self.p is not None:
            return np.asarray(k * np.log(self.p) + (dim - k) * np.log1p(-self.p))
        least, _ = self.sizes(dim)
        return np.where(k == least, -_log_binomial(dim, k), -np.inf)

    def chances(self, dim: int) -> Array:
        """Return the probability of every number of weights.

        Args:
            dim: The dimension d of the tasks.

        Returns:
            The probabilities, [d + 1].
        """
        return np.exp(self.log_chances(dim) + _log_binomial(dim, np.arange(dim + 1.0)))

    def prior(self, dim: int) -> Prior:
        """See `Tasks.prior`: the Gaussian law with the same second moments."""
        return Prior(None, np.sqrt(self.variance * self._share(dim)) * np.eye(dim))

    def law(self, dim: int) -> dict[str, Any]:
        """See `Described.law`: the tasks are drawn in Python, and engines take them as a pool."""
        self.sizes(dim)
        return {}

    def numbers(self, dim: int) -> int:
        """See `Tasks.numbers`: one number for the size, and two for each weight."""
        return 2 * dim + 1

    def drawn(self, u: Array) -> Array:
        """See `Tasks.drawn`."""
        dim = u.shape[1] // 2
        edges = np.cumsum(self.chances(dim))[:-1]
        size = np.searchsorted(edges, u[:, 0] * (1 - 1e-12), side="right")
        if self.size is not None:
            size = np.full(len(u), self.size)
        rank = np.argsort(np.argsort(u[:, 1 : dim + 1], axis=1), axis=1)
        return np.where(rank < size[:, None], np.sqrt(self.variance) * ndtri(u[:, dim + 1 :]), 0.0)

    def moments(self, dim: int, covariance: Array) -> tuple[Array, Array, Array, float, float]:
        """See `Tasks.moments`: odd moments are 0."""
        k, chances, L = np.arange(dim + 1.0), self.chances(dim), covariance
        one, two = self.variance * self._share(dim), 0.0
        if dim > 1:  # E of the product of the squares of two weights
            two = self.variance**2 * float(chances @ (k * (k - 1))) / (dim * (dim - 1))
        own, trace = np.square(np.diag(L)).sum(), float(np.trace(L))
        pairs = trace**2 - own + 2 * (np.square(L).sum() - own)
        q2 = 3 * self.variance * one * own + two * pairs
        return np.zeros(dim), one * np.eye(dim), np.zeros(dim), one * trace, float(q2)

    def _share(self, dim: int) -> float:
        """The mean share of weights that are there."""
        return float(self.chances(dim) @ np.arange(dim + 1.0)) / dim

    @property
    def how(self) -> str:
        """How many weights there are, in words."""
        if self.size is not None:
            return f"{self.size} weight{'s' * (self.size > 1)}, those of a random subset of the features"
        if self.p is not None:
            return f"each weight with probability {self.p:g}"
        a, b = np.asarray(self.beta)
        return f"each weight with a probability that every sequence draws from the beta distribution ({a:g}, {b:g})"

    def describe(self, dim: int) -> str:
        """See `Described.describe`."""
        return self.words.format(how=self.how, variance=self.variance)

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        named = {"p": self.p, "beta": self.beta, "variance": None if self.variance == 1 else self.variance}
        given = {name: value for name, value in named.items() if value is not None}
        return [] if self.size is None else [self.size], given


KNOWN: dict[str, Callable[..., Tasks]] = {kind.name: kind for kind in (Gaussian, LowRankTasks, Pool, Mixture, Sparse)}


def parse_tasks(text: str) -> Tasks:
    """Return the law of tasks that a text names; the inverse of `str`.

    Args:
        text: Such as `lowrank(3)` or `pool(64)`.

    Returns:
        The law.

    Raises:
        InputError: The text names no law of tasks.
    """
    return parse_call(text, "tasks", KNOWN, EXAMPLES)


def as_tasks(value: object) -> Tasks:
    """Return tasks in any of the forms that `Problem` takes.

    Args:
        value: Tasks, their text, a covariance matrix [d, d], variances [d], or None for N(0, I).

    Returns:
        The tasks.

    Raises:
        InputError: It describes no tasks.
    """
    if value is None:
        return Gaussian()
    if isinstance(value, Tasks):
        return value
    if isinstance(value, str):
        return parse_tasks(value)
    if not isinstance(value, list | tuple | np.ndarray):
        refuse("tasks must be a law of tasks, its text or a covariance matrix", shown(value), EXAMPLES)
    given = real("the covariance of tasks", value)
    return Gaussian(covariance=np.diag(given) if given.ndim == 1 else given)


def _factor(covariance: Array) -> Array | None:
    """F [d, r] with F F' = covariance and as few columns as that needs; None for the identity."""
    if np.array_equal(covariance, np.eye(len(covariance))):
        return None
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-12 * values[-1]
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def _log_binomial(dim: int, k: Array) -> Array:
    return np.asarray(gammaln(dim + 1) - gammaln(k + 1) - gammaln(dim - k + 1))
