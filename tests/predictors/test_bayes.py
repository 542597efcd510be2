"""The posterior mean against SciPy's adaptive quadrature, sequence by sequence."""

import numpy as np
import pytest
from scipy import stats

import token_form as tf
from ridgeformer import BayesRR, Moments, OracleRR, Problem
from ridgeformer.noise import Categorical, Uniform
from ridgeformer.problems import Prior


def standard(x, y):
    """Of sigma: log p(y | sigma) and E[w | y, sigma] for w ~ N(0, I)."""
    return tf.gaussian_posterior(x, y, np.zeros(x.shape[1]), np.eye(x.shape[1]))


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
        exact = tf.by_quadrature(standard(s.x[b], s.y[b]), high, low, density)
        np.testing.assert_allclose(mine[b], exact, rtol=1e-8, atol=1e-8)


def test_a_categorical_posterior_is_a_weighted_sum():
    noise = Categorical([0.5, 1, 3], [0.2, 0.5, 0.3])
    s = Problem(3, 6, noise).sequences(10)
    mine = BayesRR(noise).weights(Moments.from_tokens(s.x, s.y))
    for b in range(10):
        evidence, means = zip(*map(standard(s.x[b], s.y[b]), noise.levels), strict=True)
        exact = np.average(means, axis=0, weights=noise.weights * np.exp(np.array(evidence) - max(evidence)))
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


@pytest.mark.parametrize("unit", [1e-100, 1e-3, 1e11])
def test_weights_have_the_unit_of_the_labels(unit):
    """To rounding: sums of squares in such units must neither underflow nor be taken for rounding."""
    moments = Problem(3, 6, "uniform(0,1)").moments(200).moments
    gram = moments.gram * np.outer([1, 1, 1, unit], [1, 1, 1, unit])
    weights = BayesRR(f"uniform(0,{unit})", Prior(None, unit * np.eye(3))).weights(Moments(gram, 6))
    np.testing.assert_allclose(weights / unit, BayesRR("uniform(0,1)").weights(moments), rtol=1e-9)


@pytest.mark.parametrize("context", [64_001, 10**6])
def test_long_contexts_have_a_floor(context):
    """The posterior of sigma is narrow: E 1/2 |w_Bayes - w_ridge|^2 is that of a sigma off by sigma / sqrt(2 n)."""
    problem = Problem(2, context, "uniform(1,3)")
    draw = problem.moments(400, seed=1)
    found = draw.losses(problem.best_predictor().weights(draw.moments), draw.ridge).mean()
    s2 = draw.sigma**2
    change = 2 * s2 / np.sqrt(2 * context) / context  # of the shrinkage sigma^2 / n, for one standard error of sigma
    assert found == pytest.approx(0.5 * (change**2 * np.square(draw.ridge).sum(1)).mean(), rel=0.5)
