"""The interface of predictors, the checks that they share, and estimators of scikit-learn behind that interface.

Lasso, matching pursuit and Huber regression are baselines where ridge regression has the wrong prior or the wrong
noise. They are fitted anew to the tokens of every context, and need scikit-learn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import default_threads, one_blas_thread
from ridgeformer.errors import kind_of, refuse
from ridgeformer.moments import Moments
from ridgeformer.problems import Problem
from ridgeformer.problems.base import check_any_problem
from ridgeformer.validation import Float, integer, number

TINY = 1e-12  # of the mean square of the labels: a smaller variance of the noise cannot be told from rounding


@runtime_checkable
class Predictor(Protocol):
    """An object that maps moments to weights: a model or a baseline.

    A predictor that uses `moments.sigma`, which no predictor can know, declares it with `knows_sigma = True`. Its loss
    may then be below the Bayes floor without a warning.
    """

    def weights(self, moments: Moments) -> Float:
        """Return w_hat: the prediction for a query x is <w_hat, x>.

        Args:
            moments: The contexts.

        Returns:
            The weights, [B, d].
        """


@runtime_checkable
class TokenPredictor(Protocol):
    """An object that predicts from tokens alone, such as a transformer with softmax.

    It is judged through sampled queries. What has both methods is judged by its weights.
    """

    def predict(self, x: Float, y: Float, queries: Float) -> Float:
        """Predict the labels of queries.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].
            queries: Features of the queries, [B, m, d].

        Returns:
            The predictions, [B, m].
        """


@runtime_checkable
class LinearTokenPredictor(TokenPredictor, Protocol):
    """An object that makes weights of tokens: its predictions are linear in the query, so no queries are sampled."""

    def token_weights(self, x: Float, y: Float) -> Float:
        """Return w_hat: the prediction for a query x is <w_hat, x>.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].

        Returns:
            The weights, [B, d].
        """

    def predict(self, x: Float, y: Float, queries: Float) -> Float:
        """Predict the labels of queries.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].
            queries: Features of the queries, [B, m, d].

        Returns:
            The predictions, [B, m].
        """
        return np.asarray(np.einsum("bmd,bd->bm", queries, self.token_weights(x, y)))


class Fitted(LinearTokenPredictor):
    """A linear estimator without intercept, fitted to each context.

    Args:
        estimator: An estimator of scikit-learn with `coef_`, such as `Lasso(0.1, fit_intercept=False)`.

    Raises:
        InputError: It has no method `fit`, or it fits an intercept.
    """

    def __init__(self, estimator: Any) -> None:
        if not hasattr(estimator, "fit") or getattr(estimator, "fit_intercept", False):
            what = "one with an intercept" if hasattr(estimator, "fit") else kind_of(estimator)
            refuse("a fitted predictor needs a linear estimator without intercept", what, "Pass fit_intercept=False.")
        self.estimator = estimator

    def token_weights(self, x: Float, y: Float) -> Float:
        """See `LinearTokenPredictor.token_weights`."""
        from sklearn.base import clone

        weights = np.empty((len(x), x.shape[2]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fits that stop early, which are still predictions
            for row, features, labels in zip(weights, x, y, strict=True):
                row[:] = np.ravel(clone(self.estimator).fit(features, labels).coef_)
        return weights

    def __repr__(self) -> str:
        return f"Fitted({self.estimator})"


def lasso(alpha: float = 0.1) -> Fitted:
    """Return the Lasso, which has few weights that are not zero.

    Args:
        alpha: The penalty of the sum of absolute weights, in units of the mean squared error / 2.

    Returns:
        The predictor.
    """
    from sklearn.linear_model import Lasso

    return Fitted(Lasso(number("alpha", alpha), fit_intercept=False))


def matching_pursuit(size: int) -> Fitted:
    """Return orthogonal matching pursuit, which knows how many weights are not zero.

    Args:
        size: The number of weights.

    Returns:
        The predictor.
    """
    from sklearn.linear_model import OrthogonalMatchingPursuit

    return Fitted(OrthogonalMatchingPursuit(n_nonzero_coefs=integer("size", size), fit_intercept=False))


def huber(alpha: float = 1.0) -> Fitted:
    """Return Huber regression, on which single tokens with much noise have little influence.

    Args:
        alpha: The penalty of the sum of squared weights.

    Returns:
        The predictor.
    """
    from sklearn.linear_model import HuberRegressor

    return Fitted(HuberRegressor(alpha=number("alpha", alpha), fit_intercept=False))


def in_chunks(
    work: Callable[[slice], NDArray[np.float64]], count: int, size: int, axis: int = 0
) -> NDArray[np.float64]:
    """Compute arrays for some contexts at a time, in threads.

    Args:
        work: Computes the array of the contexts in a slice.
        count: The number of contexts.
        size: How many contexts at a time.
        axis: Which axis of the arrays is that of the contexts.

    Returns:
        The array of all contexts.
    """
    with one_blas_thread(), ThreadPoolExecutor(default_threads()) as workers:
        parts = workers.map(work, (slice(start, start + size) for start in range(0, count, size)))
        return np.concatenate(list(parts), axis)


def by_length(moments: Moments, weights: Callable[[Moments], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Compute weights, or one number for each context, for contexts of one length at a time.

    Args:
        moments: The contexts, which may differ in their number of examples.
        weights: Computes the weights of contexts with the same number of examples.

    Returns:
        The weights, [B, d], or the numbers, [B].
    """
    parts = [(index, weights(part)) for index, part in moments.by_length()]
    together = np.empty((len(moments), *parts[0][1].shape[1:]))
    for index, some in parts:
        together[index] = some
    return together


def check_problem(problem: object) -> Problem:
    """Return a `Problem`, and refuse anything else, custom problems included.

    Args:
        problem: What was given.

    Returns:
        The problem.

    Raises:
        InputError: It is not a `Problem`.
    """
    if check_any_problem(problem).has_known_laws:
        return cast("Problem", problem)
    rule = "the problem must be a built-in Problem here, with one noise level for each sequence"
    received = problem if isinstance(problem, Problem) else kind_of(problem)
    refuse(rule, received, "Use evaluate and compare, which take problems of your own and noise levels per token.")


def check_moments(moments: object) -> None:
    """Refuse what is no `Moments`.

    Args:
        moments: What was given.

    Raises:
        InputError: It is something else.
    """
    if not isinstance(moments, Moments):
        refuse("a predictor takes Moments", kind_of(moments), "Use draw.moments or Moments.from_tokens.")


def check_enough(moments: Moments) -> None:
    """Refuse moments from which the noise cannot be estimated.

    Args:
        moments: The contexts.

    Raises:
        InputError: These are no moments, they have no more examples than dimensions, or their numbers of examples
            differ.
    """
    check_moments(moments)
    if not isinstance(moments.context, int):
        refuse("this takes contexts of one length", repr(moments), "Split them with moments.by_length().")
    dim = int((np.einsum("bii->bi", moments.S) > 0).sum(1).max(initial=0))  # where d varies, further features are 0
    if moments.counts[0] <= dim:
        rule = "estimating the noise needs more examples than dimensions, n > d"
        refuse(rule, f"n = {moments.counts[0]}, d = {dim}", "Use ConstRR or BayesRR here.")
