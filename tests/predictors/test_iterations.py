"""Filters of classical algorithms against the algorithms themselves, in matrices."""

import itertools

import numpy as np

from ridgeformer.predictors.iterations import heavy_ball, newton, ridge_path


def example():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9, 4))
    S, a = x.T @ x, x.T @ rng.standard_normal(9)
    values, vectors = np.linalg.eigh(S)
    return S, a, values, lambda e: vectors @ ((1 - e) * (vectors.T @ np.linalg.solve(S, a)))


def test_heavy_ball_and_gradient_descent():
    S, a, values, weights = example()
    for momentum in (0.0, 0.4):
        before = w = np.zeros(4)
        for e in itertools.islice(heavy_ball(values, 0.02, momentum), 12):
            np.testing.assert_allclose(weights(e), w, atol=1e-13)
            before, w = w, w + 0.02 * (a - S @ w) + momentum * (w - before)


def test_newton():
    S, a, values, weights = example()
    X = 1e-3 * S
    for e in itertools.islice(newton(values, 1e-3), 16):
        np.testing.assert_allclose(weights(e), X @ a, atol=1e-12)
        X = X @ (2 * np.eye(4) - S @ X)
    np.testing.assert_allclose(X, np.linalg.inv(S), rtol=1e-8)


def test_ridge():
    S, a, values, weights = example()
    for e, penalty in zip(ridge_path(values, [3.0, 0.1, 0.0]), [3.0, 0.1, 0.0], strict=True):
        np.testing.assert_allclose(weights(e), np.linalg.solve(S + penalty * np.eye(4), a), atol=1e-13)


def test_numbers_may_be_arrays():
    values = np.array([1.0, 2.0, 5.0])
    steps = np.array([[0.1], [0.2]])
    together = list(itertools.islice(heavy_ball(values, steps, 0.3), 5))
    for row, step in enumerate((0.1, 0.2)):
        alone = list(itertools.islice(heavy_ball(values, step, 0.3), 5))
        assert all(np.array_equal(both[row], one) for both, one in zip(together, alone, strict=True))
