"""Noise that differs from token to token: the floor against quadrature over w, and what the Gram matrix can tell."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import exp1

from ridgeformer import AdaRR, BayesRR, ConstRR, LeastSquares, LinearTransformer, Problem, compare
from ridgeformer.engine import Key
from ridgeformer.errors import InputError
from ridgeformer.predictors import TokenBayes
from ridgeformer.problems import Prior


def uniform_density(r):
    """The density of sigma * xi with sigma uniform on (0, 2), by the integral over sigma in closed form."""
    return exp1(r**2 / 8) / (4 * np.sqrt(2 * np.pi))


DENSITIES = {
    "tokens(categorical(0.5,2))": lambda r: (stats.norm(0, 0.5).pdf(r) + stats.norm(0, 2).pdf(r)) / 2,
    "student(3,0.7)": lambda r: stats.t(3, scale=0.7).pdf(r),
    "tokens(uniform(0,2))": uniform_density,
}


@pytest.mark.parametrize("text", DENSITIES)
def test_the_floor_is_the_posterior_mean_by_quadrature(text):
    """One weight from N(0.3, 4), four tokens; the sampler is right up to 5 of its own standard errors."""
    problem = Problem(1, 4, text, tasks="gaussian(mean=[0.3],covariance=[[4]])")
    tokens, grid = problem.sequences(6, seed=1), np.linspace(-8, 8.6, 8001)
    sampler = TokenBayes(text, Prior(np.array([0.3]), np.array([[2.0]])), scans=800)
    found, spread = sampler.token_weights(tokens.x, tokens.y)[:, 0], sampler.errors(tokens.x, tokens.y)
    for b in range(6):
        parts = [DENSITIES[text](tokens.y[b, i] - grid * tokens.x[b, i, 0]) for i in range(4)]
        p = stats.norm(0.3, 2).pdf(grid) * np.prod(parts, axis=0)
        exact = (p * grid).sum() / p.sum()
        assert found[b] == pytest.approx(exact, abs=5 * np.sqrt(spread.mean()) + 0.01)


def test_the_stated_error_is_that_against_long_chains():
    problem = Problem(3, 8, "tokens(uniform(0,3))")
    tokens = problem.sequences(120, seed=2)
    short = TokenBayes("tokens(uniform(0,3))", scans=40)
    long = TokenBayes("tokens(uniform(0,3))", scans=500, seed=1).token_weights(tokens.x, tokens.y)
    actual = np.square(short.token_weights(tokens.x, tokens.y) - long).sum(1).mean()
    assert actual == pytest.approx(short.errors(tokens.x, tokens.y).mean(), rel=0.35)


@pytest.mark.parametrize("text", ["tokens(uniform(0,3))", "student(4,1)"])
def test_gram_matrices_have_the_law_of_one_level_for_each_sequence(text):
    problem = Problem(2, 5, text)
    other = problem.replace(noise=problem.noise.of_gram(5))
    one, two = problem.moments(8000, seed=3), other.moments(8000, seed=4)

    def facts(draw):
        m = draw.moments
        rest = m.l - np.einsum("bi,bij,bj->b", m.a, np.linalg.inv(m.S), m.a)
        return m.l, np.square(m.a).sum(1), rest, (m.a * draw.task).sum(1), np.square(m.a).sum(1) / m.l

    for left, right in zip(facts(one), facts(two), strict=True):
        assert stats.ks_2samp(left, right, method="asymp").pvalue > 1e-4
    wrong = problem.replace(noise=problem.noise.levels.second_moment**0.5).moments(8000, seed=4)
    assert stats.ks_2samp(facts(one)[2], facts(wrong)[2], method="asymp").pvalue < 1e-4


def test_the_gram_bound_lies_between_the_floor_and_all_that_see_the_gram_matrix_only():
    problem = Problem(3, 8, "tokens(categorical(0.2,3))")
    others = {"AdaRR": AdaRR(), "ConstRR": ConstRR(4.5), "LeastSquares": LeastSquares()}
    best = {"Gram bound": BayesRR(problem.noise), "Bayes floor": problem.best_predictor()}
    losses = compare(problem, others | best, sequences=1000)
    bound, least = losses["Gram bound"].loss, losses["Bayes floor"].loss
    assert least < 0.8 * bound
    assert all(bound <= losses[name].loss + losses[name].error for name in losses.names if name != "Bayes floor")


def test_moments_tokens_and_their_oracle_belong_together_whatever_is_asked_for():
    problem = Problem(3, "4..6", "student(5,1)", features="powerlaw(1)")
    draw, tokens = problem.moments(600, seed=1, tokens=True), problem.sequences(40, seed=1, first=500)
    np.testing.assert_array_equal(problem.moments(600, seed=1).moments.gram, draw.moments.gram)
    np.testing.assert_allclose(Problem.oracle(problem, tokens), draw.ridge[500:540])
    assert tokens.sigma.shape == (40, 6)
    X, y, s = draw.tokens.x[0], draw.tokens.y[0], draw.tokens.sigma[0]
    n = int(draw.moments.counts[0])
    X, y, s = X[:n], y[:n], s[:n]
    exact = np.linalg.solve(X.T @ (X / s[:, None] ** 2) + np.eye(3), X.T @ (y / s**2))
    np.testing.assert_allclose(draw.ridge[0], exact)
    assert BayesRR(problem.noise).weights(draw.moments).shape == (600, 3)


def test_models_take_steps_on_such_problems_and_prefixes_can_be_compared():
    problem = Problem(3, 6, "student(4,1)")
    model = LinearTransformer.random("diag", dim=3, layers=2, context=6, seed=0)
    evaluation = problem.step(model.kernel, 64, Key(0, 0, 0))
    assert np.isfinite(evaluation.loss)
    losses = compare(problem, {"model": model}, over={"context": [3, 6]}, sequences=64)
    assert losses.floor.shape == (2,)
    assert (losses.floor > 0).all()


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="for features that are not standardised; got standardised"):
        Problem(3, 6, "student(4,1)", features="standardised()")
    with pytest.raises(InputError, match=r"is for Gaussian tasks; got sparse\(1\)"):
        Problem(3, 6, "tokens(1)", tasks="sparse(1)")
    with pytest.raises(InputError, match="more than 2 degrees of freedom, and at most 1e6; got 2"):
        Problem(3, 6, "student(2,1)")
    with pytest.raises(InputError, match=r"the levels of tokens have a law of levels; got student\(3,1\)"):
        Problem(3, 6, "tokens(student(3,1))")
    with pytest.raises(InputError, match="this predictor is for noise that differs from token to token"):
        TokenBayes("uniform(0,1)")
    problem = Problem(3, 6, "student(4,1)")
    moments = problem.moments(2).moments
    with pytest.raises(InputError, match="this oracle needs tokens"):
        problem.oracle(moments)


@pytest.mark.parametrize("text", ["tokens(uniform(0,5))", "student(4,1)", "student(3,0.1)", "tokens(expon(scale=2))"])
def test_texts_are_read_back(text):
    problem = Problem(3, 6, text)
    assert str(problem.noise).startswith(text[:6])
    assert Problem.parse(str(problem)) == problem == Problem.from_dict(problem.as_dict())
    drawn = problem.noise.draw(200_000)
    assert np.mean(drawn**2) == pytest.approx(problem.noise.second_moment, rel=0.25)
    nodes, chances = problem.noise.quadrature()
    assert chances.sum() == pytest.approx(1, abs=1e-6)
    assert (chances * nodes**2).sum() == pytest.approx(problem.noise.second_moment, rel=5e-3)
