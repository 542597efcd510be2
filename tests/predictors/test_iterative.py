"""IterativeRR against AdaRR, and filters of classical algorithms against the algorithms themselves, in matrices."""

import itertools

import numpy as np

from ridgeformer import AdaRR, Problem
from ridgeformer.predictors.iterative import IterativeRR, heavy_ball, newton, ridge_path
from support import draw


def test_iterative_converges_to_ada_without_an_inversion():
    """The paper: about 100 iterations. In float64 it goes on until the two are the same."""
    d = Problem(10, 20, "uniform(0,5)").moments(2000)
    exact = AdaRR().weights(d.moments)
    trace = IterativeRR(3000).weights_by_step(d.moments[:200])
    gap = [np.square(trace[k] - exact[:200]).sum(1).mean() for k in (0, 10, 100, 1000, 3000)]
    assert (np.diff(gap) < 0).all()
    assert gap[2] < 0.05 * gap[1]
    assert gap[-1] < 1e-5
    assert (trace[0] == 0).all()
    np.testing.assert_array_equal(IterativeRR(10).weights(d.moments[:200]), trace[10])


def test_iterative_is_the_algorithm_it_claims_to_be():
    """Two plain gradient descents on one context, written with matrices."""
    m = draw(3, 7, 1, noise="fixed(1)").moments
    S, a, total = m.S[0], m.b[0], m.q[0]
    largest = np.abs(S).sum(1).max()
    w, v = np.zeros(3), np.zeros(3)
    for _ in range(5):
        variance = (total - 2 * w @ a + w @ S @ w) / (7 - 3)
        w, v = w - (S @ w - a) / largest, v - (S @ v + variance * v - a) / (largest + variance)
    np.testing.assert_allclose(IterativeRR(5).weights(m)[0], v, rtol=1e-10)


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
