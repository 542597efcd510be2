"""Bayes predictors of general problems against adaptive quadrature over sigma; nothing improves on them."""

import numpy as np
import pytest

import token_form as tf
from ridgeformer import BayesRR, ConstRR, Moments, Problem
from ridgeformer.predictors import DMMSE
from ridgeformer.problems import Gaussian, LowRankTasks, Mixture, Pool
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
LEVELS = ("categorical(0.5,1,3)", [0.5, 1.0, 3.0])


def tokens(n, seed=0):
    noise = lambda rng, count: rng.choice([0.4, 1.5], count)  # noqa: E731
    features, tasks = tf.gaussian(LAMBDA), tf.gaussian_tasks(MEAN, np.linalg.cholesky(GAMMA))
    return tf.simulate(COUNT, D, [n], noise, features, tasks, seed=seed)


def posterior(x, y, pool, new, mean, covariance):
    """A function of sigma: log p(y | sigma) and E[w | y, sigma] of a mixture of a pool and a Gaussian law."""
    gaussian = tf.gaussian_posterior(x, y, mean, covariance) if new else None

    def at(sigma):
        parts = []
        if new:
            evidence, w = gaussian(sigma)
            parts.append((np.log(new) + evidence, w))
        for w in pool:
            fit = -len(y) * np.log(sigma) - np.square(y - x @ w).sum() / (2 * sigma**2)
            parts.append((np.log((1 - new) / len(pool)) + fit, w))
        logs = np.array([one[0] for one in parts])
        weights = np.exp(logs - logs.max())
        return logs.max() + np.log(weights.sum()), np.average([one[1] for one in parts], axis=0, weights=weights)

    return at


def by_sum(at, levels):
    """E[w | y] for sigma one of several levels."""
    found = [at(level) for level in levels]
    logs = np.array([one[0] for one in found])
    return np.average([one[1] for one in found], axis=0, weights=np.exp(logs - logs.max()))


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("law", GAUSSIAN)
def test_gaussian_tasks(law, n):
    tasks, mean, covariance = GAUSSIAN[law]
    t = tokens(n)
    moments = Moments.from_tokens(t.x, t.y)
    uniform = BayesRR(UNIFORM[0], tasks.prior(D)).weights(moments)
    several = BayesRR(LEVELS[0], tasks.prior(D)).weights(moments)
    for b in range(COUNT):
        at = tf.gaussian_posterior(t.x[b], t.y[b], mean, covariance)
        np.testing.assert_allclose(uniform[b], tf.by_quadrature(at, UNIFORM[1]), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(several[b], by_sum(at, LEVELS[1]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [2, 7])
@pytest.mark.parametrize("law", POOLS)
def test_pools_and_mixtures(law, n):
    tasks, *rest = POOLS[law]
    t = tokens(n, seed=1)
    moments = Moments.from_tokens(t.x, t.y)
    uniform, several = DMMSE(tasks, UNIFORM[0]).weights(moments), DMMSE(tasks, LEVELS[0]).weights(moments)
    for b in range(COUNT):
        at = posterior(t.x[b], t.y[b], POOL, *rest)
        np.testing.assert_allclose(uniform[b], tf.by_quadrature(at, UNIFORM[1]), rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(several[b], by_sum(at, LEVELS[1]), rtol=1e-9, atol=1e-9)


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


# ---- nothing beats it ----------------------------------------------------------------------------------

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
