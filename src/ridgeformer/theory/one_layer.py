"""The best weights W b in closed form, and the risk of any such weights under any shift.

One layer predicts with w_hat = W b, b = sum y x. With features x ~ N(0, Lambda), tasks of second moment Gamma = E[w w']
and n examples, E[b w'] = n Lambda Gamma = M1 and

    E[b b'] = n (n + 1) Lambda Gamma Lambda + n (tr(Gamma Lambda) + E[sigma^2]) Lambda = M2,

because E[S B S] = n (n + 1) Lambda B Lambda + n tr(B Lambda) Lambda for symmetric B. The risk, 1/2 E <w_hat - w, x>^2
at a query x of covariance Lambda_q, is 1/2 tr(Lambda_q [W M2 W' - 2 W M1 + Gamma]), least for W = M1' M2^-1. Where n
varies, n and n (n + 1) are replaced by their means. Where tasks w and -w are equally likely, this is the best one-layer
model; otherwise a Full layer can gain a little by adding S v and q v for some vector v. `risk` also takes W [d, d + 1],
which multiplies (b, q).

>>> from ridgeformer import Problem
>>> problem = Problem(dim=3, context=8, noise=1)
>>> optimum(problem).round(4).tolist()  # 1 / (n + d + 1 + sigma^2) times the identity
[[0.0769, 0.0, 0.0], [0.0, 0.0769, 0.0], [0.0, 0.0, 0.0769]]
>>> round(risk(problem, optimum(problem)), 4)
0.5769
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ridgeformer.errors import refuse
from ridgeformer.models.families import Full
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors.base import check_problem
from ridgeformer.problems import Problem
from ridgeformer.validation import Array, array, axes


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
        W: Any matrix, [d, d]; or [d, d + 1] for the predictor W (b, q).

    Returns:
        The loss.

    Raises:
        InputError: W does not fit the problem, or the covariance of the features varies.
    """
    problem = check_problem(problem)
    wide = axes(W) == 2 and np.shape(W)[1] == problem.dim + 1
    first, second, tasks = _moments(problem, squares=wide)
    W_ = array("W", W, (problem.dim, len(second))).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        inner = W_ @ second @ W_.T - W_ @ first - (W_ @ first).T + tasks
        value = 0.5 * float((problem.query_covariance * inner).sum())
    return value if np.isfinite(value) else np.inf


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


def matrix_of(model: LinearTransformer) -> Array:
    """Return the W of a one-layer model, the inverse of `model_of`.

    A layer may also add S v, and multiples of q, to w_hat = W b; see `population`.

    Args:
        model: A model with one layer and tokens (x, y).

    Returns:
        W, [d, d].

    Raises:
        InputError: The model has more than one layer.
    """
    if model.layers != 1:
        refuse("the matrix W is that of one layer", f"{model.layers} layers", "Pass a model with one layer.")
    d = model.dim
    P, Q = (np.asarray(value, np.float64)[0] for value in model.family.dense(d))
    # w_hat_i = -sum_ab p_a Q_bi G_ab: the entries with one of a, b the label.
    label_in_P = np.einsum("h,hji->ij", P[:, d, d], Q[:, :d, :d])
    label_in_Q = np.einsum("hj,hi->ij", P[:, d, :d], Q[:, d, :d])
    return np.asarray(-(label_in_P + label_in_Q))


def _moments(problem: Problem, squares: bool = False) -> tuple[Array, Array, Array]:
    """M1 = E[b w'], M2 = E[a a'] and Gamma = E[w w'], each [d, d]; with squares, of (a, l) instead of a."""
    features = check_problem(problem).features
    if not features.fixed:
        refuse("the closed form is for features with one covariance", features, "Evaluate a trained model instead.")
    covariance, tasks = features.mean_covariance(problem.dim), problem.tasks.second_moment(problem.dim)
    n = problem.lengths.values.astype(np.float64)
    power = float((covariance * tasks).sum()) + problem.noise.second_moment
    second = np.mean(n * (n + 1)) * covariance @ tasks @ covariance + n.mean() * power * covariance
    first = n.mean() * covariance @ tasks
    if not squares:
        return first, second, tasks
    mean, _, cubic, q, q2 = problem.tasks.moments(problem.dim, covariance)
    s2, s4 = problem.noise.second_moment, problem.noise.fourth_moment
    pairs, odd = np.mean(n * (n + 2)), cubic + s2 * mean  # E[w (q + sigma^2)], with q = w' Lambda w
    wide = np.zeros((len(tasks) + 1,) * 2)
    wide[:-1, :-1], wide[-1, -1] = second, pairs * (q2 + 2 * q * s2 + s4)
    wide[-1, :-1] = wide[:-1, -1] = pairs * covariance @ odd
    return np.vstack([first, n.mean() * odd]), wide, tasks
