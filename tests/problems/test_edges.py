"""Laws at their edges, against brute force: contexts of low rank, no noise, heavy tails, weak features."""

import numpy as np
import pytest

from ridgeformer import LeastSquares, Moments, Problem, evaluate
from ridgeformer.engine import Key, Omegas
from ridgeformer.noise import parse
from ridgeformer.population import Quadratic
from ridgeformer.predictors import DMMSE, AdaRR, BayesRR, ConstRR
from ridgeformer.problems import Covariance, Factors, Scales, Sequences, Standardised
from support import refused


def posterior_mean(x, y, levels):
    """E[w | context] of one context for w ~ N(0, I) and equally likely noise levels, from the density of y."""
    values, basis = np.linalg.eigh(x @ x.T)  # y is N(0, x x' + sigma^2)
    c, variances = basis.T @ y, np.maximum(values, 0.0) + np.square(levels)[:, None]
    logs = -0.5 * (np.log(variances) + c**2 / variances).sum(1)
    weights = np.exp(logs - logs.max())
    return x.T @ basis @ (weights / weights.sum() @ (c / variances))


@pytest.mark.parametrize("context", [4, 8, 10, 12, "6..12"])
def test_the_best_predictor_of_standardised_features_is_the_posterior_mean(context):
    """Standardised features span n - 1 directions at most: also for n <= d the mean of the noise can be seen."""
    problem = Problem(10, context, "uniform(0.2,5)", features="standardised()")
    s = problem.sequences(20, seed=1)
    n = np.full(20, s.x.shape[1]) if s.context is None else s.context
    levels = np.linspace(0.2, 5, 4001)
    by_hand = [posterior_mean(x[:k], y[:k], levels) for x, y, k in zip(s.x, s.y, n, strict=True)]
    # A sum over 4,001 levels has an error of 1e-3 of its width; that of the package is far smaller.
    np.testing.assert_allclose(problem.best_predictor().weights(s.moments), by_hand, atol=2e-3)


@pytest.mark.parametrize("columns", [5, 20])
def test_least_squares_is_of_least_norm_where_features_depend_on_each_other(columns):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 12, columns)), rng.standard_normal((30, 12))
    x[:, :, 4], x[:10, :, 3] = x[:, :, 0] - 2 * x[:, :, 1], 0.0
    exact = (np.linalg.pinv(x) @ y[..., None])[..., 0]
    moments = Moments.from_tokens(x, y)
    np.testing.assert_allclose(LeastSquares().weights(moments), exact, atol=1e-10)
    np.testing.assert_allclose(ConstRR(0.0).weights(moments), exact, atol=1e-10)
    if columns == 5:
        left = np.square(y - np.einsum("bnd,bd->bn", x, exact)).sum(1)
        rank = np.linalg.matrix_rank(x)
        shrunk = np.linalg.solve(
            np.swapaxes(x, 1, 2) @ x + (left / (12 - rank))[:, None, None] * np.eye(5), moments.b[..., None]
        )
        np.testing.assert_allclose(AdaRR().weights(moments), shrunk[..., 0], atol=1e-9)


@pytest.mark.parametrize("noise", ["fixed(0)", "categorical(0,1)"])
@pytest.mark.parametrize("engine", [None, "numpy"])
def test_oracles_of_low_rank_tasks_without_noise(noise, engine):
    """Contexts may have fewer or more examples than the tasks have directions."""
    problem = Problem(5, "1..8", noise, tasks="lowrank(2)")
    draw = problem.moments(500, engine=engine)
    exact = draw.losses(draw.ridge, draw.task)[(draw.moments.counts >= 2) & (draw.sigma == 0)]
    assert exact.max() < 1e-15
    s = problem.sequences(200, seed=2)
    with_noise = s.sigma > 0
    np.testing.assert_allclose(problem.oracle(s)[~with_noise], s.ridge(problem.prior)[~with_noise], atol=1e-6)
    np.testing.assert_allclose(problem.oracle(s)[with_noise], s.ridge(problem.prior)[with_noise], atol=1e-9)
    assert evaluate(problem, ConstRR.tune(problem), sequences=500).loss < 10


def test_engines_do_not_pass_off_a_wrong_oracle(any_engine):
    """What they cannot compute is NaN or refused; with noise, it is E[w | context, sigma]."""
    problem = Problem(5, "1..8", "categorical(0,1)", tasks="lowrank(2)")
    choices = problem.choices(200)
    drawn = any_engine.sample(problem.law, choices, Key())
    assert np.isnan(drawn.ridge[choices.sigma == 0]).all()
    moments = Moments(drawn.gram, choices.counts, choices.sigma)
    np.testing.assert_allclose(drawn.ridge[choices.sigma > 0], problem.oracle(moments)[choices.sigma > 0], atol=1e-9)
    kernel = Omegas(np.zeros((1, 2, 2)))
    refused(lambda: any_engine.step(kernel, problem.law, choices, Key()), "n may be below and above the rank")
    assert np.isfinite(any_engine.step(kernel, problem.law, choices, Key(), target="task").losses).all()


def test_the_oracle_of_tokens_with_noise_levels_of_their_own():
    """Weighted least squares with a prior, solved in the space of weights."""
    rng = np.random.default_rng(3)
    x, sigma, factor = rng.standard_normal((6, 9, 4)), rng.uniform(0.1, 2, (6, 9)), rng.standard_normal((4, 4))
    mean, Gamma = rng.standard_normal(4), factor @ factor.T
    y = rng.standard_normal((6, 9))
    prior = Problem(4, 9, 1, tasks=f"gaussian(mean={mean.tolist()},covariance={Gamma.tolist()})".replace(" ", "")).prior
    s = Sequences(x, y, x[:, :1], y[:, :1], sigma=sigma)
    inverse = np.linalg.inv(Gamma)
    for b in range(6):
        left = (x[b].T / sigma[b] ** 2) @ x[b] + inverse
        exact = np.linalg.solve(left, (x[b].T / sigma[b] ** 2) @ y[b] + inverse @ mean)
        np.testing.assert_allclose(s.ridge(prior)[b], exact, rtol=1e-7)


def test_posteriors_of_weak_features_are_resolved():
    """All examples then tell the noise level, whatever the dimension; the quadrature needs nodes for that."""
    problem = Problem(200, 200, "uniform(0.1,5)", features=np.full(200, 1e-6))
    s = problem.sequences(4, seed=1)
    by_hand = [posterior_mean(x, y, np.linspace(0.1, 5, 6001)) for x, y in zip(s.x, s.y, strict=True)]
    found = BayesRR("uniform(0.1,5)").weights(s.moments)
    np.testing.assert_allclose(found, by_hand, rtol=0, atol=1e-4 * np.abs(by_hand).max())


def test_posteriors_of_pools_are_resolved():
    rng = np.random.default_rng(0)
    pool, n = rng.standard_normal((3, 40)) * 0.01, 400
    x = rng.standard_normal((2, n, 40))
    y = np.einsum("bnd,d->bn", x, pool[0]) + 2.0 * rng.standard_normal((2, n))
    levels = np.linspace(0.5, 5, 20001)[:, None]
    found = DMMSE(f"pool({pool.tolist()})".replace(" ", ""), "uniform(0.5,5)").weights(Moments.from_tokens(x, y))
    for b in range(2):
        squares = np.square(y[b][:, None] - x[b] @ pool.T).sum(0)
        logs = -n * np.log(levels) - squares / (2 * levels**2)
        weights = np.exp(logs - logs.max()).sum(0)
        np.testing.assert_allclose(found[b], weights @ pool / weights.sum(), atol=1e-6)


@pytest.mark.parametrize(("text", "exact"), [("lognorm(2)", np.exp(32)), ("pareto(5)", 5.0), ("expon(scale=2)", 384.0)])
def test_fourth_moments_of_heavy_tails(text, exact):
    """E sigma^4 of a lognormal law with s = 2 is e^(16 * 4 / 2), of a Pareto law with b = 5 it is 5 / (5 - 4)."""
    assert parse(text).fourth_moment == pytest.approx(exact, rel=1e-9)
    problem = Problem(2, 4, text)
    quadratic = Quadratic.of_problem(problem).second.reshape(3, 3, 3, 3)
    # E l^2 for l = sum y^2: n (n + 2) E (|w|^2 + sigma^2)^2.
    assert quadratic[2, 2, 2, 2] == pytest.approx(24 * (8 + 4 * problem.noise.second_moment + exact), rel=1e-9)


def test_the_signal_of_standardised_features():
    """Correlations count, and random scales do not; 2 x 10^5 queries have an error of half a percent here."""
    matrix = np.full((4, 4), 0.9) + 0.1 * np.eye(4)
    for features in (Standardised(Covariance(matrix)), f"standardised(scales(0.8,{Covariance(matrix)}))"):
        problem = Problem(4, 12, 1, features=features, tasks=np.ones((4, 4)) + 0.1 * np.eye(4))
        draw = problem.moments(200_000, seed=1)
        measured = 2 * draw.losses(np.zeros_like(draw.task), draw.task)
        assert abs(measured.mean() - problem.signal) < 5 * measured.std() / np.sqrt(len(measured))
    assert problem.signal > 17  # 14.6 without the correlations of the deviations


def test_labels_of_problems_have_no_matrices():
    problem = Problem(8, [4, 8], 1, features=np.eye(8) * 2, tasks=np.eye(8) * 3, query=np.arange(1.0, 9))
    assert problem.label == (
        "d=8 n=4,8 fixed(1) features=covariance(8 x 8) tasks=gaussian(covariance=8 x 8) query=spectrum(8 values)"
    )
    assert Problem.parse(str(problem)) == problem
    assert Problem(3, 6, 1, tasks=[1, 2, 3]) == Problem(3, 6, 1, tasks=np.diag([1, 2, 3]))


@pytest.mark.parametrize("text", ["spectrum(1,2)", "covariance([[1,-0.0],[-0.0,1]])"])
def test_texts_of_zeros_with_a_sign_are_read_back(text):
    problem = Problem(2, 4, 1, features=text, tasks="gaussian(mean=[-0.0,1])")
    assert "-0" not in str(problem)
    assert Problem.parse(str(problem)) == problem


@pytest.mark.parametrize("law", [Scales(0.6, Covariance(np.full((3, 3), 0.7) + 0.3 * np.eye(3))), Factors(2, 0.3)])
def test_the_mean_covariance_of_features_is_that_of_their_covariances(law):
    """Within five standard errors; random scales weaken correlations by the square of their mean."""
    drawn = law.covariances(3, 100_000, np.random.default_rng(0))
    error = drawn.std(0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(0) - law.mean_covariance(3)) <= 5 * error + 1e-12).all()
