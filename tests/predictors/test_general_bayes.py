"""Bayes predictors of general problems against adaptive quadrature over sigma; nothing improves on them."""

import numpy as np
import pytest
from scipy import stats

import token_form as tf
from ridgeformer import BayesRR, ConstRR, Moments, OracleRR, Problem
from ridgeformer.noise import Categorical, Uniform
from ridgeformer.predictors import DMMSE
from ridgeformer.problems import Gaussian, LowRankTasks, Mixture, Pool, Prior
from support import each
from token_form import GAMMA, LAMBDA, MEAN, POOL, THIN

D, COUNT = 3, 3
GAUSSIAN = {
    "both": (Gaussian(MEAN, GAMMA), MEAN, GAMMA),
    "rank two": (Gaussian(MEAN, THIN @ THIN.T), MEAN, THIN @ THIN.T),
    "lowrank(1)": (LowRankTasks(1), np.zeros(D), np.diag([3.0, 0, 0])),
}
POOLS = {
    "pool": (Pool(POOL), 0.0, None, None),
    "mixture": (Mixture(Pool(POOL), 0.4, Gaussian(MEAN, GAMMA)), 0.4, MEAN, GAMMA),
    "thin": (Mixture(Pool(POOL), 0.2, LowRankTasks(1)), 0.2, np.zeros(D), np.diag([3.0, 0, 0])),
}
UNIFORM = ("uniform(0,2)", 2.0)
LEVELS = Categorical([0.5, 1, 3], [0.2, 0.5, 0.3])


def tokens(n, seed=0):
    noise = lambda rng, count: rng.choice([0.4, 1.5], count)  # noqa: E731
    features, tasks = tf.gaussian(LAMBDA), tf.gaussian_tasks(MEAN, np.linalg.cholesky(GAMMA))
    return tf.simulate(COUNT, D, [n], noise, features, tasks, seed=seed)


def by_sum(at, noise):
    """E[w | y] for sigma one of several levels."""
    logs, means = zip(*map(at, noise.levels), strict=True)
    return np.average(means, axis=0, weights=noise.weights * np.exp(np.array(logs) - max(logs)))


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("law", [*GAUSSIAN, *POOLS])
def test_laws_of_tasks_by_sums_and_quadrature_over_the_noise_level(law, n):
    t, (tasks, *parts) = tokens(n), (GAUSSIAN | POOLS)[law]
    moments = Moments.from_tokens(t.x, t.y)
    best = [BayesRR(of, tasks.prior(D)) if law in GAUSSIAN else DMMSE(tasks, of) for of in (UNIFORM[0], LEVELS)]
    uniform, several = (predictor.weights(moments) for predictor in best)
    for x, y, by_uniform, by_levels in zip(t.x, t.y, uniform, several, strict=True):
        at = tf.gaussian_posterior(x, y, *parts) if law in GAUSSIAN else tf.mixture_posterior(x, y, POOL, *parts)
        np.testing.assert_allclose(by_uniform, tf.by_quadrature(at, UNIFORM[1]), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(by_levels, by_sum(at, LEVELS), rtol=1e-9, atol=1e-9)


def test_contexts_of_several_lengths_are_taken_one_by_one():
    t = [tokens(n) for n in (2, 3, 7)]
    x = np.concatenate([np.pad(one.x, ((0, 0), (0, 7 - one.x.shape[1]), (0, 0))) for one in t])
    y = np.concatenate([np.pad(one.y, ((0, 0), (0, 7 - one.y.shape[1]))) for one in t])
    together = Moments.from_tokens(x, y, np.repeat([2, 3, 7], COUNT))
    order = np.random.default_rng(0).permutation(len(x))
    mixed = Moments(together.gram[order], together.counts[order])
    for predictor in (BayesRR("uniform(0,2)", Gaussian(MEAN, GAMMA).prior(D)), DMMSE(Pool(POOL), "uniform(0,2)")):
        alone = np.concatenate([predictor.weights(Moments.from_tokens(one.x, one.y)) for one in t])
        # DMMSE takes as many nodes as the longest context needs: the integrals agree, not their bits.
        np.testing.assert_allclose(predictor.weights(mixed), alone[order], rtol=1e-8, atol=1e-8)


PROBLEMS = {
    "covariance": Problem(D, 7, "uniform(0,3)", features=LAMBDA, tasks=Gaussian(MEAN, GAMMA)),
    "few tokens": Problem(D, 2, "categorical(0.5,3)", features="powerlaw(2)", tasks=Gaussian(MEAN, GAMMA)),
    "rotated": Problem(D, 6, "uniform(0,3)", features="rotated(2,0.7,0.2)"),
    "factors": Problem(D, 6, "categorical(0.5,3)", features="factors(1)", tasks="lowrank(2)"),
    "scales": Problem(D, "4..9", "uniform(0,3)", features="scales(0.5)"),
    "standardised": Problem(D, 8, "categorical(0.5,3)", features="standardised(factors(1))"),
    "query": Problem(D, 7, "uniform(0,3)", features=LAMBDA, query="spectrum(0.1,1,5)"),
    "pool": Problem(D, 5, "uniform(0,3)", tasks="pool(16,seed=3)"),
    "mixture": Problem(D, "4,8", "categorical(0.5,3)", features=LAMBDA, tasks="mixture(pool(4,seed=1),0.3)"),
}


DIRECTIONS = {
    "zero": lambda m: -ConstRR(1.0).weights(m),
    "fixed": lambda m: np.broadcast_to([0.5, -0.5, 0.2], (len(m), D)),
    "gradient": lambda m: m.b / m.counts[:, None],
    "noisy": lambda m: m.b / (1 + m.q[:, None]),
    "random": lambda m: np.random.default_rng(1).standard_normal((len(m), D)),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_best_error_is_orthogonal_to_all_that_is_known(name):
    """Sharper than any comparison of losses: E v' metric (w_best - w) = 0 for every function v of the context."""
    problem = PROBLEMS[name]
    drawn = problem.moments(5000, seed=8)
    error = problem.best_predictor().weights(drawn.moments) - drawn.ridge
    metric = np.broadcast_to(np.eye(D) if drawn.metric is None else drawn.metric, (len(error), D, D))
    weighed = np.einsum("bij,bj->bi", metric, error)
    for which, direction in DIRECTIONS.items():
        products = (direction(drawn.moments) * weighed).sum(1)
        assert abs(products.mean()) < 4.5 * products.std() / np.sqrt(len(products)), which
    wrong = ConstRR(4.0).weights(drawn.moments) - drawn.ridge  # and others' errors are not
    products = (DIRECTIONS["gradient"](drawn.moments) * np.einsum("bij,bj->bi", metric, wrong)).sum(1)
    assert abs(products.mean()) > 4.5 * products.std() / np.sqrt(len(products))


# ---- The posterior mean against SciPy's adaptive quadrature, sequence by sequence


def standard(x, y):
    """Of sigma: log p(y | sigma) and E[w | y, sigma] for w ~ N(0, I)."""
    return tf.gaussian_posterior(x, y, np.zeros(x.shape[1]), np.eye(x.shape[1]))


@each(
    (3, 8, "uniform(0,5)", lambda s: 0.2, 1e-9, 5),
    (3, 60, "uniform(0,5)", lambda s: 0.2, 1e-3, 5),
    (2, 400, "uniform(0,5)", lambda s: 0.2, 1e-2, 5),
    (2, 3, "uniform(0,2)", lambda s: 0.5, 1e-9, 2),
    (4, 4, "uniform(0,2)", lambda s: 0.5, 1e-9, 2),
    (5, 3, "uniform(0,2)", lambda s: 0.5, 1e-9, 2),
    (3, 8, "expon(scale=2)", stats.expon(scale=2).pdf, 1e-9, 80),
    (2, 9, "gamma(0.5)", stats.gamma(0.5).pdf, 1e-14, 40),
)
def test_posterior_mean_is_that_of_adaptive_quadrature(dim, context, noise, density, low, high):
    s = Problem(dim, context, noise).sequences(4, seed=1)
    mine = BayesRR(noise).weights(Moments.from_tokens(s.x, s.y))
    for b in range(4):
        exact = tf.by_quadrature(standard(s.x[b], s.y[b]), high, low, density)
        np.testing.assert_allclose(mine[b], exact, rtol=1e-8, atol=1e-8)


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
