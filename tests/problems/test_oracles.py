"""Oracles against Gaussian conditioning and sums over tasks, sequence by sequence, from tokens."""

import itertools

import numpy as np
import pytest

import token_form as tf
from ridgeformer import Moments, OracleRR, Problem
from ridgeformer.predictors import DMMSE
from ridgeformer.problems import Gaussian, LowRankTasks, Mixture, Pool, Prior
from support import each
from token_form import GAMMA, LAMBDA, MEAN, POOL, THIN

D, COUNT = 3, 12
LAWS = {
    "standard": (Gaussian(), np.zeros(D), np.eye(D)),
    "mean": (Gaussian(mean=MEAN), MEAN, np.eye(D)),
    "covariance": (Gaussian(covariance=GAMMA), np.zeros(D), GAMMA),
    "both": (Gaussian(MEAN, GAMMA), MEAN, GAMMA),
    "rank two": (Gaussian(MEAN, THIN @ THIN.T), MEAN, THIN @ THIN.T),
    "lowrank(1)": (LowRankTasks(1), np.zeros(D), np.diag([3.0, 0, 0])),
}
FEATURES = {"covariance": tf.gaussian(LAMBDA), "standardised": tf.standardised(tf.factors(1, 0.5))}
EVERY_KIND = [
    None,
    LAMBDA,
    "spectrum(2,0.7,0.2)",
    "powerlaw(1)",
    "rotated(2,0.7,0.2)",
    "factors(2)",
    "scales(0.5)",
    "scales(0.5,factors(1))",
    "standardised()",
    "standardised(factors(1))",
]


def tokens(features, mean, covariance, lengths, sigma, seed=0):
    root = np.linalg.cholesky(covariance + 1e-18 * np.eye(D))
    noise = lambda rng, count: rng.choice(sigma, count)  # noqa: E731
    return tf.simulate(COUNT, D, lengths, noise, FEATURES[features], tf.gaussian_tasks(mean, root), seed=seed)


def moments_of(t, lengths):
    """The moments of simulated tokens, with the noise levels that an oracle sees."""
    found = Moments.from_tokens(t.x, t.y, t.n if len(lengths) > 1 else None)
    return Moments(found.gram, found.context, t.sigma, found.sums)


def conditioned(x, y, sigma, mean, covariance):
    """E[w | y] of the joint Gaussian of (w, y) given the features."""
    cross = covariance @ x.T
    spread = x @ cross + sigma**2 * np.eye(len(y))
    solve = np.linalg.pinv(spread, rcond=1e-10, hermitian=True)  # singular without noise where n is above the rank
    return mean + cross @ solve @ (y - x @ mean)


@each(
    ("covariance", [0.3, 1.0, 2.5], 1e-9),
    ("standardised", [0.3, 1.0, 2.5], 1e-9),
    ("covariance", [0.0], 1e-5),
    ids=["covariance", "standardised", "without noise"],
)
@pytest.mark.parametrize("law", LAWS)
def test_the_oracle_is_gaussian_conditioning(features, sigma, error, law):
    """Without noise, moments square the condition of the tokens, up to about 1e8: half of the digits are left."""
    tasks, mean, covariance = LAWS[law]
    for lengths in ([2], [3], [4], [6], [2, 3, 6]):
        t = tokens(features, mean, covariance, lengths, sigma)
        found = OracleRR(tasks.prior(D)).weights(moments_of(t, lengths))
        for b, n in enumerate(t.n):
            exact = conditioned(t.x[b, :n], t.y[b, :n], t.sigma[b], mean, covariance)
            np.testing.assert_allclose(found[b], exact, rtol=error, atol=error / 10, err_msg=f"n = {lengths}")


@pytest.mark.parametrize("features", EVERY_KIND, ids=str)
@pytest.mark.parametrize("law", LAWS)
def test_engines_compute_the_same_oracle(features, law, any_engine):
    """That of the engine's sampler, from Bartlett's factor, is that of the moments, and of the normal equations."""
    tasks, mean, covariance = LAWS[law]
    left, values, _ = np.linalg.svd(covariance)
    F = (left * np.sqrt(values))[:, values > 1e-12]  # the coordinates of the prior
    for context in (2, 3, 7, "2..6"):
        problem = Problem(D, context, "uniform(0.5,2)", features=features, tasks=tasks)
        drawn = problem.moments(40, seed=3, engine=any_engine)
        np.testing.assert_allclose(drawn.ridge, OracleRR(problem.prior).weights(drawn.moments), rtol=1e-9, atol=1e-9)
        S, a = np.asarray(drawn.moments.S), np.asarray(drawn.moments.b)
        noise = drawn.sigma[:, None, None] ** 2 * np.eye(F.shape[1])
        g = np.linalg.solve(F.T @ S @ F + noise, F.T @ (a - S @ mean)[..., None])
        np.testing.assert_allclose(drawn.ridge, mean + (F @ g)[..., 0], rtol=1e-8, atol=1e-9, err_msg=f"n = {context}")


@pytest.mark.parametrize("features", [None, LAMBDA, "factors(2)"], ids=str)
@pytest.mark.parametrize("tasks", ["lowrank(2)", f"gaussian(mean={MEAN.tolist()},covariance={GAMMA.tolist()})"])
def test_the_oracle_of_a_draw_without_noise_predicts_what_was_seen(features, tasks, any_engine):
    """S w = a exactly, and the task itself where the context determines it."""
    for context, known in ((2, tasks == "lowrank(2)"), (5, True)):
        problem = Problem(D, context, "fixed(0)", features=features, tasks=tasks)
        drawn = problem.moments(50, seed=4, engine=any_engine)
        fitted = np.einsum("bij,bj->bi", drawn.moments.S, drawn.ridge)
        np.testing.assert_allclose(fitted, drawn.moments.b, rtol=1e-6, atol=1e-6)
        if known:  # half of the digits, as above
            np.testing.assert_allclose(drawn.ridge, drawn.task, rtol=1e-5, atol=1e-5)
        else:
            assert np.abs(drawn.ridge - drawn.task).max() > 0.1


MIXTURES = {
    "pool": (Pool(POOL), (0.0, None, None)),
    "mixture": (Mixture(Pool(POOL), 0.3), (0.3, np.zeros(D), np.eye(D))),
    "general": (Mixture(Pool(POOL), 0.6, Gaussian(MEAN, GAMMA)), (0.6, MEAN, GAMMA)),
    "thin": (Mixture(Pool(POOL), 0.5, Gaussian(MEAN, THIN @ THIN.T)), (0.5, MEAN, THIN @ THIN.T)),
}


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("law", MIXTURES)
def test_the_posterior_mean_is_the_sum_over_tasks(features, law):
    tasks, mixture = MIXTURES[law]
    for lengths, sigma in itertools.product(([2], [3], [6], [2, 3, 6]), (0.4, 1.5)):
        t = tokens(features, MEAN, GAMMA, lengths, [sigma])
        found = DMMSE(tasks, sigma).weights(moments_of(t, lengths))
        for b, n in enumerate(t.n):
            _, exact = tf.mixture_posterior(t.x[b, :n], t.y[b, :n], POOL, *mixture)(sigma)
            np.testing.assert_allclose(found[b], exact, rtol=1e-9, atol=1e-10, err_msg=f"n = {lengths}")


@pytest.mark.parametrize("features", EVERY_KIND, ids=str)
@pytest.mark.parametrize("law", MIXTURES)
def test_draws_of_a_pool_carry_that_oracle(features, law):
    """From the draw's own moments, which determine features up to a rotation of the tokens: any root of G serves."""
    tasks, mixture = MIXTURES[law]
    problem = Problem(D, 6, "uniform(0.5,2)", features=features, tasks=tasks)
    drawn = problem.moments(30, seed=5)
    for b in range(30):
        values, vectors = np.linalg.eigh(drawn.moments.gram[b])
        root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T  # [4, 4], tokens of the same Gram matrix
        e = np.concatenate([root, np.zeros((2, D + 1))])  # as many as there were: sigma^-n
        _, exact = tf.mixture_posterior(e[:, :D], e[:, D], POOL, *mixture)(drawn.sigma[b])
        np.testing.assert_allclose(drawn.ridge[b], exact, rtol=1e-8, atol=1e-9)


def test_without_noise_the_pool_is_recognised():
    """One example tells the tasks of this pool apart; the oracle then knows the task, and a new one by its misfit."""
    drawn = Problem(D, 2, "fixed(0)", tasks=Pool(POOL)).moments(200, seed=6)
    np.testing.assert_allclose(drawn.ridge, drawn.task, atol=1e-9)
    drawn = Problem(D, 5, "fixed(0)", tasks=Mixture(Pool(POOL), 0.5)).moments(200, seed=6)
    np.testing.assert_allclose(drawn.ridge, drawn.task, atol=1e-5)


def test_a_prior_of_full_rank_is_a_change_of_coordinates():
    """`whiten` and `back` against the tokens of the other coordinates: z = F'x, y - <mean, x>."""
    prior = Prior(MEAN, np.linalg.cholesky(GAMMA))
    t = tokens("covariance", MEAN, GAMMA, [5], [0.7])
    white = prior.whiten(moments_of(t, [5]))
    np.testing.assert_allclose(white.gram, Moments.from_tokens(t.x @ prior.factor, t.y - t.x @ MEAN).gram, atol=1e-9)
    g = np.random.default_rng(0).standard_normal((4, D))
    np.testing.assert_allclose(prior.back(g), MEAN + g @ prior.factor.T)
