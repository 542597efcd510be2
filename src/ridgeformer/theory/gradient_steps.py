"""Steps of gradient descent, plain or preconditioned: exact losses, the best rate, and models of them.

On an isotropic problem, k steps w <- w + rate (a - S w) from w = 0 leave e = (1 - rate lambda)^k of the task along an
eigenvector of S with the eigenvalue lambda, and (1 - e)^2 sigma^2 / lambda of the noise. The expectation is an integral
over the eigenvalues (see `exact`). One step has the best rate 1 / (n + d + 1 + E sigma^2), as `one_layer` says.

>>> from ridgeformer import Problem
>>> problem = Problem(dim=10, context=20, noise=0)
>>> round(1 / best_rate(problem, 1), 4), round(expected_loss(problem, 1, 1 / 31), 4)
(31.0, 1.7742)

With many steps the expectation is decided by rare contexts with a huge eigenvalue. A mean over a sample leaves most of
them out; `rare` does the same.

Steps that are preconditioned by Lambda^-1 are plain steps in whitened coordinates: `whitened` moves a GD++ model there,
and `distances` says how far the layers of another model are from such steps.
"""

from __future__ import annotations

import functools
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ridgeformer.errors import refuse
from ridgeformer.exact import eigenvalues
from ridgeformer.models.families import GDpp
from ridgeformer.models.structured import Looped, Preconditioned
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors.base import check_problem
from ridgeformer.predictors.iterative import heavy_ball
from ridgeformer.problems import Problem
from ridgeformer.validation import Array, integer, number


def expected_loss(problem: Problem, steps: int, rate: float, rare: float = 0.0) -> float:
    """Compute the expected unadjusted loss of gradient descent on least squares.

    Args:
        problem: An isotropic problem.
        steps: How many steps, at least 0.
        rate: The rate, for the gradient S w - a, a sum over the context.
        rare: Eigenvalues beyond the one that this share of contexts exceeds do not count; 0, the default, for all.

    Returns:
        Half the expected squared error.

    Raises:
        InputError: The problem is not isotropic.
    """
    if not check_problem(problem).is_isotropic:
        refuse("the loss of gradient descent is known for isotropic problems", problem, "Use evaluate for others.")
    steps, rate = integer("steps", steps, 0), number("rate", rate)
    values, weights = eigenvalues(problem.dim, problem.context)
    with np.errstate(over="ignore"):
        weights = np.where(np.cumsum(weights[::-1])[::-1] - weights >= rare, weights, 0.0)
        e = next(islice(heavy_ball(values, rate), steps, None))
        each = e**2 + (1 - e) ** 2 * problem.noise.second_moment / values
        unseen = max(problem.dim - problem.context, 0)  # directions without examples
        return 0.5 * (float(weights @ each) + unseen)


@functools.lru_cache(maxsize=256)
def best_rate(problem: Problem, steps: int, rare: float = 0.0) -> float:
    """Find the constant rate with the least expected loss.

    Args:
        problem: An isotropic problem.
        steps: How many steps, at least 1.
        rare: As for `expected_loss`.

    Returns:
        The rate.

    Raises:
        InputError: The problem is not isotropic.
    """
    from scipy.optimize import minimize_scalar

    most = 2 / (problem.context + problem.dim)
    grid = np.geomspace(1e-3 * most, 4 * most, 200)
    losses = [expected_loss(problem, integer("steps", steps), rate, rare) for rate in grid]
    at = int(np.argmin(losses))
    bracket = (grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)])

    def loss(rate: float) -> float:
        return expected_loss(problem, steps, rate, rare)

    return float(minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-10}).x)


def model_of(steps: int, rate: float, dim: int | None = None) -> LinearTransformer:
    """Return one layer, applied several times, that makes these steps of gradient descent.

    Args:
        steps: How many steps, at least 1.
        rate: The rate.
        dim: The dimension d; None for any.

    Returns:
        A looped GD++ model: every pass leaves the features as they are and makes one step.
    """
    arrays: dict[str, Any] = {"p": np.array([[[0.0, -number("rate", rate)]]]), "q": np.ones((1, 1))}
    return LinearTransformer(Looped(GDpp, integer("steps", steps))(**arrays), dim)


def power(Lambda: ArrayLike, exponent: float) -> Array:
    """Return a power of a covariance.

    Args:
        Lambda: The covariance, [d, d].
        exponent: The exponent, such as -1/2.

    Returns:
        The power, [d, d].
    """
    values, vectors = np.linalg.eigh(np.asarray(Lambda, np.float64))
    return np.asarray(vectors * values**exponent @ vectors.T)


def whitened(model: LinearTransformer, Lambda: ArrayLike) -> LinearTransformer:
    """Return what an isotropic GD++ model is in the coordinates of features with a covariance.

    Args:
        model: A GD++ model.
        Lambda: The covariance, [d, d].

    Returns:
        The model of the sparse family: A = q Lambda^-1 and B = b I, with the same predictions for x as for
        Lambda^-1/2 x.
    """
    dim = len(np.asarray(Lambda))
    P, Q = (np.asarray(value, np.float64) for value in model.family.dense(dim))
    last = P[..., -1, -1]
    A = (last * Q[..., 0, 0])[..., None, None] * power(Lambda, -1)
    B = (P[..., 0, 0] / last)[..., None, None] * np.eye(dim)
    return LinearTransformer(Preconditioned(A, B))


def distances(model: LinearTransformer, Lambda: ArrayLike) -> Array:
    """Return how far every A of a sparse model is from the nearest multiple of Lambda^-1.

    Args:
        model: A model of the family `preconditioned`.
        Lambda: The covariance of the features, [d, d].

    Returns:
        |M - c I| / |M| for M = Lambda^1/2 A Lambda^1/2 and the best c, one for each layer and head, [L, H].
    """
    root = power(Lambda, 0.5)
    M = root @ np.asarray(model.family.arrays["A"], np.float64) @ root
    nearest = np.trace(M, axis1=-2, axis2=-1)[..., None, None] / len(root) * np.eye(len(root))
    return np.asarray(np.linalg.norm(M - nearest, axis=(-2, -1)) / np.linalg.norm(M, axis=(-2, -1)))
