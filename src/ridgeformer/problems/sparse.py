"""Sparse tasks: most weights are 0."""

from __future__ import annotations

from math import lgamma
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ridgeformer.errors import refuse
from ridgeformer.problems.tasks import Prior, Tasks
from ridgeformer.validation import Array, array, integer, number, positive

EXAMPLES = "Write sparse(3), sparse(p=0.2) or sparse(beta=[1,4])."


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
        self, size: int | None = None, *, p: float | None = None, beta: ArrayLike | None = None, variance: float = 1.0
    ) -> None:
        options = {name: value for name, value in (("size", size), ("p", p), ("beta", beta)) if value is not None}
        if len(options) != 1:
            refuse("sparse tasks have a size, p or beta", " and ".join(options) or "none of them", EXAMPLES)
        self.size = None if size is None else integer("the number of weights of sparse tasks", size, 1, 4096)
        self.p = None if p is None else number("the probability p of a weight", p)
        if self.p is not None and not 0 < self.p < 1:
            refuse("the probability p of a weight must lie between 0 and 1", self.p, "Use gaussian() for all weights.")
        self.beta = None if beta is None else array("the parameters of beta", beta, (2,)).astype(np.float64)
        if self.beta is not None and not (self.beta > 0).all():
            refuse("the parameters of beta must be positive", self.beta.tolist(), "Pass [1, 4], for example.")
        self.variance = positive("the variance of sparse tasks", variance, 1)

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
            log_beta = _log_gamma(a + k) + _log_gamma(b + dim - k) - lgamma(a + b + dim)
            return log_beta - lgamma(a) - lgamma(b) + lgamma(a + b)
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
        """See `PartOfProblem.law`: the tasks are drawn in Python, and engines take them as a pool."""
        self.sizes(dim)
        return {}

    def numbers(self, dim: int) -> int:
        """See `Tasks.numbers`: one number for the size, and two for each weight."""
        return 2 * dim + 1

    def drawn(self, u: Array) -> Array:
        """See `Tasks.drawn`."""
        from scipy.special import ndtri

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
        square, product = self.variance * self._share(dim), 0.0
        if dim > 1:  # E of the product of the squares of two weights
            product = self.variance**2 * float(chances @ (k * (k - 1))) / (dim * (dim - 1))
        diagonal, trace = np.square(np.diag(L)).sum(), float(np.trace(L))
        pairs = trace**2 - diagonal + 2 * (np.square(L).sum() - diagonal)
        q2 = 3 * self.variance * square * diagonal + product * pairs
        return np.zeros(dim), square * np.eye(dim), np.zeros(dim), square * trace, float(q2)

    def _share(self, dim: int) -> float:
        """The mean share of weights that are there."""
        return float(self.chances(dim) @ np.arange(dim + 1.0)) / dim

    def describe(self, dim: int) -> str:
        """See `PartOfProblem.describe`."""
        if self.size is not None:
            how = f"{self.size} weight{'s' * (self.size > 1)}, those of a random subset of the features"
        elif self.p is not None:
            how = f"each weight with probability {self.p:g}"
        else:
            a, b = np.asarray(self.beta)
            how = f"each weight with a probability that every sequence draws from the beta distribution ({a:g}, {b:g})"
        return self.words.format(how=how, variance=self.variance)


def _log_gamma(x: Array) -> Array:
    return np.array([lgamma(value) for value in x])


def _log_binomial(dim: int, k: Array) -> Array:
    return lgamma(dim + 1) - _log_gamma(k + 1) - _log_gamma(dim - k + 1)
