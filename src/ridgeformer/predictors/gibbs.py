"""Gibbs samplers of the posterior of a task: where noise differs from token to token, and where subsets are too many.

Given noise levels and, for sparse tasks and pools, a subset or a member of the pool, a task is Gaussian. It is
integrated out: levels of tokens, features of the subset and members of the pool are drawn one after another given all
others. The average of E[w | context, all that] over many scans is E[w | context]. Two chains for each context give an
estimate whose squared error is |w_1 - w_2|^2 / 4 on average, where the chains have forgotten their start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise, as_noise
from ridgeformer.noise.tokens import Tokens
from ridgeformer.predictors.base import TINY, LinearTokenPredictor, in_chunks
from ridgeformer.problems import Prior, Sparse, Tasks
from ridgeformer.validation import Array, Float, array, integer

Rng = np.random.Generator
BLOCK = 256  # contexts at a time
BURN = 0.2  # of the scans are left out at the start, in which chains anneal
ANNEALED = 9.0  # the logarithm of the ratio of the extra variances at the start and at the end of that
PER_OCTAVE = 8  # nodes of the level of a sequence


class Conditional(ABC):
    """The posterior of tasks given levels, in units in which the noise is 1."""

    def start(self, count: int, dim: int, rng: Rng) -> Any:
        """Return the discrete state of chains.

        Args:
            count: How many chains, C.
            dim: The dimension d.
            rng: The random numbers.

        Returns:
            An array whose first axis is that of the chains.
        """
        return np.zeros((count, 0))

    @abstractmethod
    def given(self, S: Array, a: Array, state: Any, rng: Rng) -> tuple[Array, Array, Array]:
        """Draw the discrete state, in place.

        Args:
            S: The matrices sum x x' / sigma^2, [C, d, d].
            a: The vectors sum y x / sigma^2, [C, d].
            state: The state.
            rng: The random numbers.

        Returns:
            Means of the tasks, [C, d], which may be averaged over the state; and given the state, means [C, d] and
            covariances [C, d, d].
        """


class GaussianTasks(Conditional):
    """Gaussian tasks.

    Args:
        prior: Their law.
    """

    def __init__(self, prior: Prior) -> None:
        self.prior = prior

    def given(self, S: Array, a: Array, state: Any, rng: Rng) -> tuple[Array, Array, Array]:
        """See `Conditional.given`."""
        mean, covariance, _ = self.solved(S, a)
        return mean, mean, covariance

    def solved(self, S: Array, a: Array) -> tuple[Array, Array, Array]:
        """Solve the Gaussian problem.

        Args:
            S: As in `given`.
            a: As in `given`.

        Returns:
            Means, covariances, and the logarithm of E exp(a'w - w'S w / 2), the evidence, [C].
        """
        prior, dim = self.prior, a.shape[1]
        centre = np.zeros(dim) if prior.mean is None else np.asarray(prior.mean)
        factor = np.eye(dim) if prior.factor is None else np.asarray(prior.factor)
        right = (a - S @ centre) @ factor
        inverse = np.linalg.inv(factor.T @ S @ factor + np.eye(factor.shape[1]))
        white = (inverse @ right[..., None])[..., 0]
        log_evidence = 0.5 * ((right * white).sum(1) + np.linalg.slogdet(inverse)[1])
        log_evidence += a @ centre - 0.5 * (S @ centre) @ centre
        return centre + white @ factor.T, factor @ inverse @ factor.T, log_evidence


class PoolTasks(GaussianTasks):
    """Tasks of a pool, or of a mixture of a pool and a Gaussian law.

    Args:
        tasks: Their law.
        dim: The dimension d.
    """

    def __init__(self, tasks: Tasks, dim: int) -> None:
        super().__init__(tasks.prior(dim))
        pool = tasks.pool(dim)
        assert pool is not None
        self.pool, self.new = pool, tasks.new

    def given(self, S: Array, a: Array, state: Any, rng: Rng) -> tuple[Array, Array, Array]:
        """See `Conditional.given`."""
        pool, new = self.pool, self.new
        score = a @ pool.T - 0.5 * np.einsum("kd,bdk->bk", pool, S @ pool.T)
        if new:
            new_mean, spread, evidence = self.solved(S, a)
            score += np.log((1 - new) / new / len(pool))
            score = np.concatenate([score, evidence[:, None]], 1)
        index, chance = _chosen(score, rng), np.exp(score - score.max(1, keepdims=True))
        chance /= chance.sum(1, keepdims=True)
        centre, mean = chance[:, : len(pool)] @ pool, pool[np.minimum(index, len(pool) - 1)]
        if not new:
            return centre, mean, np.zeros_like(S)
        fresh = index == len(pool)
        mean = np.where(fresh[:, None], new_mean, mean)
        return centre + chance[:, -1:] * new_mean, mean, np.where(fresh[:, None, None], spread, 0.0)


class SparseTasks(Conditional):
    """Sparse tasks, whose state is the subset of the features.

    With a fixed number of weights, one after another is taken out, and another one comes in with the probability that
    belongs to it given the rest. Otherwise features are taken in or out one by one. Weights are integrated out.

    Args:
        tasks: Their law.
        dim: The dimension d.
    """

    def __init__(self, tasks: Sparse, dim: int) -> None:
        self.size, self.precision = tasks.size, 1 / tasks.variance
        self.log_chances, self.chances = tasks.log_chances(dim), tasks.chances(dim)

    def start(self, count: int, dim: int, rng: Rng) -> NDArray[np.bool_]:
        """See `Conditional.start`: random subsets."""
        size = self.size or rng.choice(dim + 1, (count, 1), p=self.chances / self.chances.sum())
        return np.asarray(np.argsort(np.argsort(rng.random((count, dim)), 1), 1) < size)

    def given(self, S: Array, a: Array, state: Any, rng: Rng) -> tuple[Array, Array, Array]:
        """See `Conditional.given`."""
        count, d = a.shape
        table = _swept(S + self.precision * np.eye(d), a, state)
        rows = np.arange(count)
        for step in range(self.size or d):
            if self.size:
                out = np.argmax(np.where(state, rng.random(state.shape), -1.0), 1)
                _sweep(table, state, rows, out)
                _sweep(table, state, rows, _chosen(np.where(state, -np.inf, self._gain(table, state)), rng))
            else:
                has, sizes = state[:, step], state.sum(1)
                gain = self._gain(table, state, step)
                odds = gain + self.log_chances[sizes - has + 1] - self.log_chances[sizes - has]
                flip = np.flatnonzero((rng.logistic(size=count) < odds) != has)
                _sweep(table, state, flip, np.full(len(flip), step))
        mean = np.where(state, table[:, :d, d], 0.0)
        return mean, mean, np.where(state[:, :, None] & state[:, None], -table[:, :d, :d], 0.0)

    def _gain(self, table: Array, state: Any, feature: int | slice = slice(None)) -> Array:
        """The logarithm of the evidence with a feature over that without it."""
        d = state.shape[1]
        diagonal = np.einsum("bii->bi", table)[:, :d][:, feature]
        right, has = table[:, :d, d][:, feature], state[:, feature]
        pivot = np.where(has, -1 / diagonal, diagonal)
        explained = np.where(has, right**2 * pivot, right**2 / pivot)
        return np.asarray(0.5 * (explained + np.log(self.precision / pivot)))


def _swept(K: Array, a: Array, state: Any) -> Array:
    """The symmetric tableau of K and a, [C, d + 1, d + 1], with the features of subsets swept in."""
    count, d = a.shape
    table, has = np.zeros((count, d + 1, d + 1)), np.zeros((count, d + 1), bool)
    table[:, :d, :d], table[:, :d, d], table[:, d, :d], has[:, :d] = K, a, a, state
    both = has[:, :, None] & has[:, None]
    inverse = np.where(both, np.linalg.inv(np.where(both, table, np.eye(d + 1))), 0.0)
    slopes = inverse @ table
    complement = table - table @ slopes
    crossed = np.where(has[:, :, None], slopes, np.swapaxes(slopes, 1, 2))
    return np.where(both, -inverse, np.where(has[:, :, None] | has[:, None], crossed, complement))


def _sweep(table: Array, state: Any, rows: NDArray[np.intp], feature: NDArray[np.intp]) -> None:
    """Take one feature of some chains in, or out."""
    part, column = table[rows], table[rows, feature]
    pivot, sign = table[rows, feature, feature], np.where(state[rows, feature], -1.0, 1.0)
    part -= column[:, :, None] * (column / pivot[:, None])[:, None]
    new, here = column * (sign / pivot)[:, None], np.arange(len(rows))
    part[here, feature] = part[here, :, feature] = new
    part[here, feature, feature] = -1 / pivot
    table[rows] = part
    state[rows, feature] ^= True


def conditional(tasks: Tasks, dim: int) -> Conditional:
    """Return the posterior of tasks given levels.

    Args:
        tasks: The law of the tasks.
        dim: The dimension d.

    Returns:
        The posterior.
    """
    if isinstance(tasks, Sparse):
        return SparseTasks(tasks, dim)
    return GaussianTasks(tasks.prior(dim)) if tasks.is_gaussian else PoolTasks(tasks, dim)


class Levels(ABC):
    """Noise levels of two chains for each of some contexts, and what they say about the task.

    Attributes:
        count: The number of contexts B.
        dim: The dimension d.
        extra: The share of the mean square of the labels that is added to the variances of the noise while chains
            anneal.
    """

    count: int
    dim: int
    extra: float

    @abstractmethod
    def sums(self) -> tuple[Array, Array]:
        """Return sum x x' / sigma^2, [2 B, d, d], and sum y x / sigma^2, [2 B, d]."""

    @abstractmethod
    def draw(self, mean: Array, covariance: Array, rng: Rng) -> None:
        """Draw new levels.

        Args:
            mean: The means of the tasks, given the levels, [2 B, d].
            covariance: Their covariances, [2 B, d, d].
            rng: The random numbers.
        """

    def chains(self, tasks: Conditional, scans: int, rng: Rng) -> Array:
        """Run the chains.

        Args:
            tasks: The posterior of tasks given levels.
            scans: How many scans each chain makes; a fifth of them is left out.
            rng: The random numbers.

        Returns:
            The estimates of E[w | context] by each chain, [2, B, d].
        """
        state, total = tasks.start(2 * self.count, self.dim, rng), np.zeros((2 * self.count, self.dim))
        burn = max(1, int(BURN * scans))
        for scan in range(scans):
            self.extra = np.exp(-ANNEALED * scan / burn) if scan < burn else 0.0
            centre, mean, covariance = tasks.given(*self.sums(), state, rng)
            if scan >= burn:
                total += centre
            self.draw(mean, covariance, rng)
        return (total / (scans - burn)).reshape(2, self.count, self.dim)


class OfTokens(Levels):
    """One level for each token.

    Args:
        noise: The law of the levels.
        x: Features, [B, n, d].
        y: Labels, [B, n].
        rng: The random numbers.
    """

    def __init__(self, noise: Tokens, x: Array, y: Array, rng: Rng) -> None:
        self.count, self.dim, self.x, self.y = len(x), x.shape[2], np.concatenate([x, x]), np.concatenate([y, y])
        self.nodes, prior = noise.nodes
        self.log_prior, self.square = np.log(prior), np.square(self.y).mean(1)
        self.level = rng.choice(len(prior), self.y.shape, p=prior / prior.sum())

    @property
    def variances(self) -> Array:
        """The variances of the noise at the nodes, [2 B, K]."""
        return np.asarray(self.nodes**2 + self.extra * self.square[:, None])

    def sums(self) -> tuple[Array, Array]:
        """See `Levels.sums`."""
        weighted = np.swapaxes(self.x, 1, 2) / np.take_along_axis(self.variances, self.level, 1)[:, None, :]
        return weighted @ self.x, (weighted @ self.y[..., None])[..., 0]

    def draw(self, mean: Array, covariance: Array, rng: Rng) -> None:
        """See `Levels.draw`: one level after another is drawn given all others.

        A token of precision p whose prediction has the mean m and the variance q is predicted from the others with the
        variance q / (1 - p q) and the mean (m - p q y) / (1 - p q).
        """
        variances, mean, covariance = self.variances, mean.copy(), covariance.copy()
        rows = np.arange(len(variances))
        for i in rng.permutation(self.y.shape[1]):
            x, y, p = self.x[:, i], self.y[:, i], 1 / variances[rows, self.level[:, i]]
            v = (covariance @ x[..., None])[..., 0]
            q, m = (x * v).sum(1), (x * mean).sum(1)
            downdate = np.maximum(1 - p * q, 1e-12)
            variance = variances + np.maximum(q / downdate, 0.0)[:, None]
            score = ((y - m) / downdate)[:, None] ** 2 / variance
            self.level[:, i] = _chosen(self.log_prior - 0.5 * (score + np.log(variance)), rng)
            change = 1 / variances[rows, self.level[:, i]] - p
            gain = change / (1 + change * q)
            covariance -= (gain[:, None] * v)[:, :, None] * v[:, None]
            mean += (gain * (y - m))[:, None] * v


class OfSequences(Levels):
    """One level for each sequence, for which moments are enough.

    Args:
        noise: The law of the levels; None where moments have them and they are known.
        moments: The contexts.
    """

    def __init__(self, noise: Noise | None, moments: Moments) -> None:
        self.count, self.dim = len(moments), moments.dim
        parts = moments.S, moments.b, moments.q, moments.counts
        self.S, self.a, self.total, self.n = (np.concatenate([part, part]).astype(np.float64) for part in parts)
        least = np.maximum(np.sqrt(TINY * self.total / self.n), 1e-150)[:, None]
        if noise is None:
            sigma = np.asarray(moments.sigma, np.float64)
            nodes, prior = np.concatenate([sigma, sigma])[:, None], np.ones(1)
        else:
            nodes, prior = noise.quadrature(per_octave=PER_OCTAVE)
        self.nodes, self.log_prior = np.maximum(nodes[..., prior > 0], least), np.log(prior[prior > 0])
        self.sigma = self.nodes[:, -1]  # the largest, at which all subsets are likely

    def sums(self) -> tuple[Array, Array]:
        """See `Levels.sums`."""
        variance = (self.sigma**2 + self.extra * self.total / self.n)[:, None]
        return self.S / variance[..., None], self.a / variance

    def draw(self, mean: Array, covariance: Array, rng: Rng) -> None:
        """See `Levels.draw`: tasks are drawn, and levels given tasks."""
        if self.nodes.shape[1] == 1:
            return
        largest = np.einsum("bii->bi", covariance).max(1) + 1e-300
        root = np.linalg.cholesky(covariance + 1e-10 * largest[:, None, None] * np.eye(self.dim))
        task = mean + np.einsum("bij,bj->bi", root, rng.standard_normal(mean.shape))
        squares = self.total + np.einsum("bi,bi->b", task, (self.S @ task[..., None])[..., 0] - 2 * self.a)
        variances = self.nodes**2 + (self.extra * self.total / self.n)[:, None]
        fit = 0.5 * (self.n[:, None] * np.log(variances) + np.maximum(squares, 0.0)[:, None] / variances)
        self.sigma = self.nodes[np.arange(len(fit)), _chosen(self.log_prior - fit, rng)]


def _chosen(score: Array, rng: Rng) -> NDArray[np.intp]:
    """Draw a column of each row, with probabilities of which the logarithms are given up to a constant."""
    below = np.cumsum(np.exp(score - score.max(1, keepdims=True)), 1)
    column = (below < rng.random((len(below), 1)) * below[:, -1:]).sum(1)
    return np.asarray(np.minimum(column, score.shape[1] - 1))


def two_chains(run: Callable[[slice, Rng], Array], count: int, seed: int) -> Array:
    """Run two chains for every context, block by block.

    Args:
        run: Runs the chains of the contexts in a slice and returns [2, b, d].
        count: The number of contexts B.
        seed: The seed of the random numbers.

    Returns:
        The estimates of E[w | context] by each chain, [2, B, d].
    """
    return in_chunks(lambda part: run(part, np.random.default_rng([seed, part.start, 11])), count, BLOCK, axis=1)


def error_of(chains: Array) -> Array:
    """Estimate the squared error of the mean of two chains.

    Args:
        chains: The estimates of E[w | context] by each chain, [2, B, d].

    Returns:
        Estimates of the squared distance from E[w | context], whose mean has no bias, [B].
    """
    return np.asarray(np.square(chains[0] - chains[1]).sum(1) / 4)


class TokenBayes(LinearTokenPredictor):
    """The posterior mean of tasks where each token has a noise level of its own, which it needs tokens for.

    Its loss exceeds the floor by the error of two chains, which `errors` estimates: one or two per cent of the adjusted
    loss.

    Args:
        noise: The law of the levels: `Tokens`, `Student`, or their text.
        tasks: The law of the tasks, as `Problem` takes it; None for N(0, I).
        scans: How many scans each of two chains makes; a fifth of them is left out.
        seed: Seed of the sampler.

    Raises:
        InputError: The noise has one level for each sequence.
    """

    def __init__(
        self, noise: Noise | str, tasks: Tasks | str | None = None, *, scans: int = 100, seed: int = 0
    ) -> None:
        law = as_noise(noise)
        if not isinstance(law, Tokens):
            refuse("this predictor is for noise that differs from token to token", law, "Use BayesRR instead.")
        self.noise, self.tasks = law, Tasks.of(tasks)
        self.scans, self.seed = integer("scans", scans, 10), integer("seed", seed, 0)

    def chains(self, x: Float, y: Float) -> Array:
        """Run two chains.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].

        Returns:
            The estimates of E[w | tokens] by each chain, [2, B, d].
        """
        tokens = array("x", x, ("B", "n", "d")).astype(np.float64)
        labels = array("y", y, tokens.shape[:2]).astype(np.float64)
        dim = tokens.shape[2]
        tasks, pool = conditional(self.tasks, dim), self.tasks.pool(dim)

        def run(part: slice, rng: Rng) -> Array:
            if pool is not None and self.tasks.new == 0:  # exact, whatever the chain
                return np.stack([self._of_pool(tokens[part], labels[part], pool)] * 2)
            return OfTokens(self.noise, tokens[part], labels[part], rng).chains(tasks, self.scans, rng)

        return two_chains(run, len(x), self.seed)

    def token_weights(self, x: Float, y: Float) -> Array:
        """See `LinearTokenPredictor.token_weights`: an estimate of E[w | tokens]."""
        return np.asarray(self.chains(x, y).mean(0))

    def _of_pool(self, x: Array, y: Array, pool: Array) -> Array:
        """The posterior mean of tasks of a pool, given which tokens are independent, [b, d]."""
        residual = np.square(y[:, None] - np.einsum("kd,bnd->bkn", pool, x))
        density = np.full_like(residual, -np.inf)  # logarithms: no task may be so far away that its density is 0
        for sigma, chance in zip(*self.noise.nodes, strict=True):
            density = np.logaddexp(density, np.log(chance / sigma) - 0.5 * residual / sigma**2)
        score = density.sum(2)
        chance = np.exp(score - score.max(1, keepdims=True))
        return np.asarray(chance @ pool / chance.sum(1, keepdims=True))

    def errors(self, x: Array, y: Array) -> Array:
        """Estimate by how much the squared error of the weights exceeds that of the exact posterior mean.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].

        Returns:
            Estimates of |w - E[w | tokens]|^2, whose mean has no bias, [B].
        """
        return error_of(self.chains(x, y))

    def __repr__(self) -> str:
        return f"TokenBayes({self.noise})"
