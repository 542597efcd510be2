"""The posterior mean against SciPy's adaptive quadrature, sequence by sequence."""

import functools

import numpy as np
import pytest
from scipy import integrate, stats

from ridgeformer import BayesRR, LeastSquares, Moments, OracleRR, Problem
from ridgeformer.noise import Categorical, Uniform


@functools.lru_cache(maxsize=2)
def decomposed(x, y, dim):
    """The singular values of x, y in the basis of its columns' space and beside it, and its row space."""
    x, y = np.frombuffer(x).reshape(-1, dim), np.frombuffer(y)
    U, s, Vt = np.linalg.svd(x)
    return s, U.T @ y, Vt[: len(s)]


def log_likelihood(x, y, sigma):
    """log p(y | x, sigma) up to a constant, y ~ N(0, x x' + sigma^2 I), by the singular values of x itself."""
    s, turned, _ = decomposed(x.tobytes(), y.tobytes(), x.shape[1])
    variances = np.concatenate([s**2, np.zeros(len(y) - len(s))]) + sigma**2
    return -0.5 * (np.log(variances).sum() + (turned**2 / variances).sum())


def test_the_likelihood_used_here_is_scipys():
    s = Problem(3, 5, "fixed(1)").sequences(1)
    x, y = s.x[0], s.y[0]
    by_scipy = [stats.multivariate_normal(np.zeros(5), x @ x.T + v**2 * np.eye(5)).logpdf(y) for v in (0.5, 2)]
    assert np.diff(by_scipy) == pytest.approx(log_likelihood(x, y, 2) - log_likelihood(x, y, 0.5))


def ridge(x, y, sigma):
    s, turned, rows = decomposed(x.tobytes(), y.tobytes(), x.shape[1])
    return rows.T @ (s / (s**2 + sigma**2) * turned[: len(s)])


def posterior_mean(x, y, density, low, high):
    """By adaptive quadrature in log sigma, in tokens: nothing shared with BayesRR."""
    grid = np.linspace(np.log(low), np.log(high), 400)
    top = max(log_likelihood(x, y, np.exp(t)) + np.log(density(np.exp(t)) * np.exp(t)) for t in grid[:-1])

    def weight(t):
        s = np.exp(t)
        return density(s) * s * np.exp(log_likelihood(x, y, s) - top)

    peak = max(grid[:-1], key=weight)
    cuts = [t for t in (peak - 1, peak - 0.3, peak, peak + 0.3, peak + 1) if grid[0] < t < grid[-1]]

    def integral(f):
        return integrate.quad(f, grid[0], grid[-1], points=cuts, limit=500, epsabs=0, epsrel=1e-11)[0]

    mass = integral(weight)
    return np.array([integral(lambda t, i=i: weight(t) * ridge(x, y, np.exp(t))[i]) / mass for i in range(x.shape[1])])


@pytest.mark.parametrize(
    ("dim", "context", "noise", "density", "low", "high"),
    [
        (3, 8, "uniform(0,5)", lambda s: 0.2, 1e-9, 5),
        (3, 60, "uniform(0,5)", lambda s: 0.2, 1e-3, 5),
        (2, 400, "uniform(0,5)", lambda s: 0.2, 1e-2, 5),
        (2, 3, "uniform(0,2)", lambda s: 0.5, 1e-9, 2),
        (4, 4, "uniform(0,2)", lambda s: 0.5, 1e-9, 2),
        (5, 3, "uniform(0,2)", lambda s: 0.5, 1e-9, 2),
        (3, 8, "expon(scale=2)", stats.expon(scale=2).pdf, 1e-9, 80),
        (2, 9, "gamma(0.5)", stats.gamma(0.5).pdf, 1e-14, 40),
    ],
)
def test_posterior_mean_is_that_of_adaptive_quadrature(dim, context, noise, density, low, high):
    s = Problem(dim, context, noise).sequences(4, seed=1)
    mine = BayesRR(noise).weights(Moments.from_tokens(s.x, s.y))
    for b in range(4):
        exact = posterior_mean(s.x[b], s.y[b], density, low, high)
        np.testing.assert_allclose(mine[b], exact, rtol=1e-8, atol=1e-8)


def test_a_categorical_posterior_is_a_weighted_sum():
    noise = Categorical([0.5, 1, 3], [0.2, 0.5, 0.3])
    s = Problem(3, 6, noise).sequences(10)
    mine = BayesRR(noise).weights(Moments.from_tokens(s.x, s.y))
    for b in range(10):
        logs = np.array([log_likelihood(s.x[b], s.y[b], level) for level in noise.levels]) + np.log(noise.weights)
        p = np.exp(logs - logs.max())
        exact = sum(q * ridge(s.x[b], s.y[b], level) for q, level in zip(p / p.sum(), noise.levels, strict=True))
        np.testing.assert_allclose(mine[b], exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("dim", "context"), [(3, 8), (4, 4), (5, 2)])
def test_fixed_noise_makes_it_the_oracle(dim, context):
    d = Problem(dim, context, "fixed(1.5)").moments(50)
    np.testing.assert_allclose(BayesRR("fixed(1.5)").weights(d.moments), OracleRR().weights(d.moments), rtol=1e-10)


def test_a_point_at_zero_is_recognised_and_nothing_else_is_taken_for_it():
    """With n > d, residuals tell noiseless sequences apart for certain: the posterior is all on one side."""
    noise = Categorical([0, 2])
    d = Problem(3, 9, noise).moments(500, seed=4)
    np.testing.assert_allclose(BayesRR(noise).weights(d.moments), d.ridge, rtol=1e-6, atol=1e-6)
    assert 100 < (d.sigma == 0).sum() < 400
    single = Problem(3, 9, noise).moments(500, seed=4, dtype=np.float32)
    np.testing.assert_allclose(BayesRR(noise).weights(single.moments), d.ridge, atol=1e-2)


@pytest.mark.parametrize("noise", ["uniform(0,5)", "uniform(0,0)", "categorical(0,3)", "gamma(0.1)", "fixed(0)"])
@pytest.mark.parametrize(("dim", "context"), [(3, 8), (3, 3), (3, 1), (10, 2000)])
def test_it_stays_finite_where_sigma_or_the_residual_is_tiny(noise, dim, context):
    for level in (0.0, 1e-12, 1e-6, 1.0):
        d = Problem(dim, context, f"fixed({level})").moments(20)
        w = BayesRR(noise).weights(d.moments)
        assert np.isfinite(w).all()
        if level == 0 and context > dim:
            np.testing.assert_allclose(w, d.task, atol=1e-3)


def test_more_nodes_change_nothing(monkeypatch):
    d = Problem(10, 20, "uniform(0,5)").moments(2000)
    plain = BayesRR("uniform(0,5)").weights(d.moments)
    finer = BayesRR("uniform(0,5)")
    quadrature = Uniform.quadrature
    monkeypatch.setattr(Uniform, "quadrature", lambda self, per_octave: quadrature(self, 3 * per_octave, 1e-15))
    np.testing.assert_allclose(finer.weights(d.moments), plain, rtol=0, atol=1e-9)


def test_contexts_of_any_length_are_evaluated():
    """n = 100,000: the noise level is known to a thousandth, and the posterior mean is the ridge solution with it."""
    draw = Problem(2, 100_000, "uniform(0,1)").moments(4)
    np.testing.assert_allclose(BayesRR("uniform(0,1)").weights(draw.moments), draw.ridge, rtol=1e-6)


@pytest.mark.parametrize("context", [64_001, 10**6])
def test_long_contexts_have_a_floor(context):
    """The posterior of sigma is narrow: E 1/2 |w_Bayes - w_ridge|^2 is that of a sigma off by sigma / sqrt(2 n)."""
    problem = Problem(2, context, "uniform(1,3)")
    draw = problem.moments(400, seed=1)
    found = draw.losses(problem.best_predictor().weights(draw.moments), draw.ridge).mean()
    s2 = draw.sigma**2
    change = 2 * s2 / np.sqrt(2 * context) / context  # of the shrinkage sigma^2 / n, for one standard error of sigma
    assert found == pytest.approx(0.5 * (change**2 * np.square(draw.ridge).sum(1)).mean(), rel=0.5)


def test_contexts_of_any_length_have_a_floor():
    """With 200,000 examples the noise level is known to 0.2 %, so the posterior mean is nearly the oracle's."""
    problem = Problem(3, 200_000, "uniform(1,5)")
    draw = problem.moments(50)
    best, least = problem.best_predictor().weights(draw.moments), LeastSquares().weights(draw.moments)
    assert np.abs(best - draw.ridge).max() < 0.02 * np.abs(least - draw.ridge).max()
