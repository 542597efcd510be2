"""One layer pretrained on finitely many contexts: ridge regression of labels of queries on products of moments.

The layer predicts <W g, x> for a query x, with g = (d b / n, q / n), b = sum y x and q = sum y^2. Its prediction is
linear in W [d, d + 1], so pretraining with a penalty on |W|^2 is ridge regression with the features x_i g_j. Given the
task, q is (v + sigma^2) times a chi-squared number with n degrees of freedom, v = w' Lambda w, and given q

    b = Lambda w q / (v + sigma^2) + sqrt(q) N(0, Lambda - Lambda w w' Lambda / (v + sigma^2)),

so that contexts are drawn without their tokens. For d to infinity with n = alpha d, K = kappa d tasks in the pool, and
tau d^2 contexts, the error has a limit: see `limit`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve

from ridgeformer.errors import refuse
from ridgeformer.predictors.base import check_problem
from ridgeformer.problems import Problem
from ridgeformer.validation import Array, integer, number

BLOCK = 2048  # contexts at a time


class Contexts(NamedTuple):
    """Contexts as a layer sees them, each with one labelled query.

    Attributes:
        b: Sums of y x, [B, d].
        q: Sums of y^2, [B].
        query: The queries, [B, d].
        answer: Their labels, with noise, [B].
    """

    b: Array
    q: Array
    query: Array
    answer: Array


def sample(problem: Problem, count: int, rng: np.random.Generator) -> Contexts:
    """Draw contexts by the law of b and q, without tokens.

    Args:
        problem: A problem with one covariance of features and one context length.
        count: How many contexts.
        rng: The random numbers.

    Returns:
        The contexts.

    Raises:
        InputError: The covariance of the features varies.
    """
    features = check_problem(problem).features
    if not features.fixed or features.standardised:
        refuse("contexts are drawn without tokens for features with one covariance", features, "Use problem.moments.")
    d, n = problem.dim, problem.context
    C = np.linalg.cholesky(features.mean_covariance(d))
    w, variance = _tasks(problem, count, rng), problem.noise.quantile(rng.random(count)) ** 2
    u = w @ C  # C'w, of length sqrt(w'Lambda w)
    power = np.einsum("bd,bd->b", u, u) + variance
    q = power * rng.chisquare(n, count)
    u /= np.sqrt(power)[:, None]
    z, size = rng.standard_normal((count, d)), np.einsum("bd,bd->b", u, u)
    shrink = (1 - np.sqrt(np.maximum(1 - size, 0))) / np.maximum(size, 1e-300)
    z -= (shrink * np.einsum("bd,bd->b", u, z))[:, None] * u  # the root of I - u u'
    b = (u * (q / np.sqrt(power))[:, None] + np.sqrt(q)[:, None] * z) @ C.T
    query = rng.standard_normal((count, d)) @ np.linalg.cholesky(problem.query_covariance).T
    answer = np.einsum("bd,bd->b", w, query) + np.sqrt(variance) * rng.standard_normal(count)
    return Contexts(b, q, query, answer)


def _tasks(problem: Problem, count: int, rng: np.random.Generator) -> Array:
    """Tasks of a problem, [B, d]: from its pool, each equally often as far as that is possible, or new ones."""
    d, pool = problem.dim, problem.tasks.pool(problem.dim)
    prior = problem.prior
    if numbers := problem.tasks.numbers(d):
        return problem.tasks.drawn(rng.random((count, numbers)))
    new = rng.standard_normal((count, d if prior.factor is None else prior.factor.shape[1]))
    new = prior.back(new)
    if pool is None:
        return np.asarray(new)
    index = rng.permutation(np.arange(count) % len(pool))
    return np.where((rng.random(count) < problem.tasks.new)[:, None], new, pool[index])


def fit(problem: Problem, contexts: int, *, penalty: float, seed: int = 0, precision: str = "float64") -> Array:
    """Pretrain one layer by ridge regression on fresh contexts.

    Args:
        problem: A problem with one covariance of features and one context length.
        contexts: How many contexts.
        penalty: The factor of |W|^2, relative to contexts / d, as a sum over contexts has it.
        seed: The seed of the contexts; 0 by default.
        precision: What products of many contexts are summed in, `float64` or `float32`. The latter is enough where
            there are many more contexts than features of the regression, d (d + 1).

    Returns:
        The matrix for sums over the context, [d, d + 1]: w_hat = W (b, q), as `one_layer.risk` takes it.
    """
    rng, count, d = np.random.default_rng([seed, 11]), integer("contexts", contexts), problem.dim
    ridge, scale = count / d * number("penalty", penalty), np.append(np.full(d, d), 1.0) / problem.context
    drawn = sample(problem, count, rng)
    g = np.column_stack([drawn.b, drawn.q]) * scale
    if count < d * (d + 1):  # as many equations as contexts
        kernel = (drawn.query @ drawn.query.T) * (g @ g.T)
        kernel[np.diag_indices(count)] += ridge
        weights = np.linalg.solve(kernel, drawn.answer)
        return np.asarray((drawn.query * weights[:, None]).T @ g * scale)
    gram, right = _normal_equations(drawn, g, precision)
    gram[np.diag_indices(len(gram))] += ridge
    return np.asarray(solve(gram, right, assume_a="pos", overwrite_a=True).reshape(d, d + 1) * scale)


def _normal_equations(drawn: Contexts, g: Array, precision: str) -> tuple[Array, Array]:
    """The second moments of the products x_i g_j, and their products with the labels.

    E[x_i g_j x_k g_l] is symmetric in i and k and in j and l, so that a quarter of all entries is summed.
    """
    d = drawn.query.shape[1]
    places = [np.triu_indices(size) for size in (d, d + 1)]
    sums = np.zeros([len(first) for first, _ in places])
    for first in range(0, len(g), BLOCK):
        x, g_block = (np.ascontiguousarray(v[first : first + BLOCK].T, precision) for v in (drawn.query, g))
        sums += _pairs(x) @ _pairs(g_block).T
    where = [np.zeros((size, size), int) for size in (d, d + 1)]
    for at, (rows, columns) in zip(where, places, strict=True):
        at[rows, columns] = at[columns, rows] = np.arange(len(rows))
    gram = sums[where[0][:, None, :, None], where[1][None, :, None, :]].reshape(d * (d + 1), -1)
    return gram, np.einsum("bi,bj->ij", drawn.query * drawn.answer[:, None], g, optimize=True).ravel()


def _pairs(values: Array) -> Array:
    """The products of all pairs of rows, in the order of `np.triu_indices`."""
    return np.concatenate([values[i] * values[i:] for i in range(len(values))])


class Limit(NamedTuple):
    """Squared errors, with the noise of the query, in the limit of large d.

    Attributes:
        new: On new tasks.
        pool: On the tasks of the pool.
    """

    new: float
    pool: float


def limit(alpha: float, kappa: float, tau: float, rho: float) -> Limit:
    """Compute the limits of the errors for a penalty that goes to 0, features N(0, I / d) and tasks of length sqrt(d).

    Args:
        alpha: n / d.
        kappa: Tasks in the pool, over d.
        tau: Contexts over d^2; not 1, where the error is infinite.
        rho: The variance of the noise.

    Returns:
        The errors on new tasks and on the pool, as Lu and others derive them (lu2025).

    >>> round(limit(1, 0.5, 0.5, 0.01).new, 3), round(limit(2, 2, 3, 0.1).new, 3)
    (1.261, 0.772)
    """
    if tau == 1:
        refuse("the error is infinite at tau = 1", tau, "Pass another number of contexts.")
    x = (1 + rho) / alpha
    m, mu = _resolvent(x, kappa), x * _resolvent(x, kappa / tau)
    if tau > 1:
        k = 1 / (1 - kappa * (m / (kappa + m)) ** 2)
        new = (k - 1 / (tau - 1)) * (1 + x) * (x * m) ** 2 + (3 - 2 * tau) / (tau - 1) * m * x**2
        new += ((1 + rho) / (tau - 1) * m + 1) * x + rho * m / (tau - 1) + rho
        return Limit(new, tau * (rho + x * (1 - x * m)) / (tau - 1))
    new = tau * (1 + x) / (1 - tau) * (1 - tau * (1 - mu) ** 2 - (x - rho) / x * mu) - 2 * tau * (1 - mu) + rho + 1
    e = (1 - tau) * x / (tau * mu)
    c = 1 / (1 - kappa / (1 + kappa * e / (1 - tau)) ** 2)
    rest = (rho + x - 2 * x * (1 - tau) * (x / e + 1)) / (1 - tau - c * (1 - tau) ** 2)
    return Limit(new, tau * ((x + e) ** 2 / e + rest))


def _resolvent(x: float, ratio: float) -> float:
    """The limit of tr (R + x)^-1 / d, for R the second moments of a multiple of d random tasks of length sqrt(d)."""
    b = x + 1 - 1 / ratio
    return 2 / (b + math.sqrt(b * b + 4 * x / ratio))
