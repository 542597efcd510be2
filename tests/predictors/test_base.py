"""Estimators of scikit-learn as predictors."""

import numpy as np
import pytest

from ridgeformer import Problem, compare
from ridgeformer.predictors import Fitted, huber, lasso, matching_pursuit

linear = pytest.importorskip("sklearn.linear_model")


def test_each_context_has_a_fit_of_its_own_and_losses_need_no_sampled_queries():
    problem = Problem(4, 12, 0.3, tasks="sparse(1)")
    tokens = problem.sequences(5)
    weights = lasso(0.05).token_weights(tokens.x, tokens.y)
    exact = [linear.Lasso(0.05, fit_intercept=False).fit(tokens.x[b], tokens.y[b]).coef_ for b in range(5)]
    np.testing.assert_allclose(weights, exact)
    predictions = lasso(0.05).predict(tokens.x, tokens.y, tokens.queries)
    np.testing.assert_allclose(predictions, np.einsum("bmd,bd->bm", tokens.queries, exact))
    pursuit = matching_pursuit(1)
    losses = compare(
        problem, {"pursuit": pursuit, "ridge": Fitted(linear.Ridge(0.1, fit_intercept=False))}, sequences=200
    )
    assert losses["pursuit"].unadjusted < losses["ridge"].unadjusted  # it knows that there is one weight
    assert ((matching_pursuit(1).token_weights(tokens.x, tokens.y) != 0).sum(1) == 1).all()


def test_huber_regression_withstands_outliers():
    problem = Problem(2, 15, "student(2.1,0.5)")
    ridge = Fitted(linear.Ridge(1.0, fit_intercept=False))
    losses = compare(problem, {"huber": huber(), "ridge": ridge}, sequences=200, with_floor=False)
    assert losses["huber"].unadjusted < losses["ridge"].unadjusted
