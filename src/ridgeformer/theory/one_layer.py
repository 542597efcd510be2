"""The best weights W a in closed form, and the risk of any such weights under any shift.

One layer predicts with w_hat = W a, a = sum y x. With features x ~ N(0, Lambda), tasks of second moment Gamma = E[w w']
and n examples, E[a w'] = n Lambda Gamma = M1 and

    E[a a'] = n (n + 1) Lambda Gamma Lambda + n (tr(Gamma Lambda) + E[sigma^2]) Lambda = M2,

because E[S B S] = n (n + 1) Lambda B Lambda + n tr(B Lambda) Lambda for symmetric B. The risk, 1/2 E <w_hat - w, x>^2
at a query x of covariance Lambda_q, is 1/2 tr(Lambda_q [W M2 W' - 2 W M1 + Gamma]), least for W = M1' M2^-1. Where n
varies, n and n (n + 1) are replaced by their means. Where tasks w and -w are equally likely, this is the best one-layer
model; otherwise a Full layer can gain a little by adding S v and l v for some vector v.

>>> from ridgeformer import Problem
>>> problem = Problem(dim=3, context=8, noise=1)
>>> optimum(problem).round(4).tolist()  # 1 / (n + d + 1 + sigma^2) times the identity
[[0.0769, 0.0, 0.0], [0.0, 0.0769, 0.0], [0.0, 0.0, 0.0769]]
>>> round(risk(optimum(problem), problem), 4)
0.5769
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import refuse
from ridgeformer.models.families import Full
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors.base import check_problem
from ridgeformer.problems import Problem
from ridgeformer.validation import array

__all__ = ["model_of", "optimum", "risk"]

Array = NDArray[np.float64]


def optimum(problem: Problem) -> Array:
    """Return the W of least risk on a problem.

    Args:
        problem: A problem whose features have the same covariance in all sequences.

    Returns:
        W, [d, d].

    Raises:
        InputError: The covariance of the features varies.
    """
    first, second, _ = _moments(problem)
    return np.asarray(np.linalg.solve(second, first).T)


def risk(problem: Problem, W: ArrayLike) -> float:
    """Return the unadjusted loss of the predictor w_hat = W a on a problem, which need not be the one W is best for.

    Args:
        problem: A problem whose features have the same covariance in all sequences.
        W: Any matrix, [d, d].

    Returns:
        The loss.

    Raises:
        InputError: W does not fit the problem, or the covariance of the features varies.
    """
    first, second, tasks = _moments(problem)
    W_ = array("W", W, (problem.dim, problem.dim)).astype(np.float64)
    inner = W_ @ second @ W_.T - W_ @ first - (W_ @ first).T + tasks
    return 0.5 * float((problem.query_covariance * inner).sum())


def model_of(W: ArrayLike) -> LinearTransformer:
    """Return the one-layer Full model that predicts with w_hat = W a.

    Args:
        W: Any matrix, [d, d].

    Returns:
        The model.
    """
    W_ = array("W", W, ("d", "d")).astype(np.float64)
    d = len(W_)
    P, Q = np.zeros((2, 1, 1, d + 1, d + 1))
    P[0, 0, d, d], Q[0, 0, :d, :d] = 1.0, -array("W", W_, (d, d)).T
    return LinearTransformer(Full(P, Q))


def _moments(problem: Problem) -> tuple[Array, Array, Array]:
    """M1 = E[a w'], M2 = E[a a'] and Gamma = E[w w'], each [d, d]."""
    features = check_problem(problem).features
    if not features.fixed:
        refuse("the closed form is for features with one covariance", features, "Evaluate a trained model instead.")
    covariance, tasks = features.mean_covariance(problem.dim), problem.tasks.second_moment(problem.dim)
    n = problem.lengths.values.astype(np.float64)
    power = float((covariance * tasks).sum()) + problem.noise.second_moment
    second = np.mean(n * (n + 1)) * covariance @ tasks @ covariance + n.mean() * power * covariance
    return n.mean() * covariance @ tasks, second, tasks
