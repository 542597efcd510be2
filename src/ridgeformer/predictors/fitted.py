"""Estimators of scikit-learn as predictors, fitted anew to the tokens of every context: Lasso, matching pursuit, Huber.

They are baselines where ridge regression has the wrong prior or the wrong noise, and need scikit-learn.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import kind_of, refuse
from ridgeformer.predictors.base import Float, LinearTokenPredictor
from ridgeformer.validation import integer, number

__all__ = ["Fitted", "huber", "lasso", "matching_pursuit"]

Array = NDArray[np.float64]


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

    def token_weights(self, x: Float, y: Float) -> Array:
        """Fit the estimator to each context.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].

        Returns:
            The weights, [B, d].
        """
        from sklearn.base import clone

        found = np.empty((len(x), x.shape[2]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fits that stop early, which are still predictions
            for row, features, labels in zip(found, x, y, strict=True):
                row[:] = np.ravel(clone(self.estimator).fit(features, labels).coef_)
        return found

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
