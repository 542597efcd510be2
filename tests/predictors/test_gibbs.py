"""Gibbs samplers against enumeration and quadrature, their stated errors, and what the Gram matrix can tell."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.special import exp1

from ridgeformer import AdaRR, BayesRR, ConstRR, LeastSquares, LinearTransformer, Problem, compare
from ridgeformer.predictors import DMMSE, SparseBayes, SparseOracle, TokenBayes, baselines, discrete
from ridgeformer.problems import problem_from_dict
from ridgeformer.problems.tasks import Tasks
from support import each


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
    sampler = TokenBayes(text, problem.tasks, scans=300)
    found, spread = sampler.token_weights(tokens.x, tokens.y)[:, 0], sampler.errors(tokens.x, tokens.y)
    for b in range(6):
        parts = [DENSITIES[text](tokens.y[b, i] - grid * tokens.x[b, i, 0]) for i in range(4)]
        p = stats.norm(0.3, 2).pdf(grid) * np.prod(parts, axis=0)
        exact = (p * grid).sum() / p.sum()
        assert found[b] == pytest.approx(exact, abs=5 * np.sqrt(spread.mean()) + 0.01)


MIXTURE = "mixture(pool(6),0.4,gaussian(mean=[2,0,-1]))"


def parts_of(tasks, dim):
    """The Gaussian parts that a law of tasks is a mixture of: logarithms of probabilities, means and factors."""
    zero, pool = np.zeros(dim), tasks.pool(dim)
    if tasks.is_gaussian:
        return [(0.0, zero, np.eye(dim))]
    if pool is not None:
        mean = tasks.prior(dim).mean
        new = [(np.log(tasks.new), zero if mean is None else mean, np.eye(dim))] if tasks.new else []
        return new + [(np.log((1 - tasks.new) / len(pool)), w, np.zeros((dim, dim))) for w in pool]
    chances, subsets = tasks.log_chances(dim), np.array(list(product([0.0, 1.0], repeat=dim)))
    return [(chances[int(g.sum())], zero, np.diag(g)) for g in subsets if np.isfinite(chances[int(g.sum())])]


def enumerated(problem, tokens):
    """E[w | tokens] as a sum over all levels of all tokens and all parts of the law of tasks."""
    levels = np.array(list(product(problem.noise.nodes[0], repeat=tokens.y.shape[1])))
    means = []
    for x, y in zip(tokens.x, tokens.y, strict=True):
        scores, parts = [], []
        for log_chance, mean, factor in parts_of(problem.tasks, problem.dim):
            left, seen = y - x @ mean, x @ factor
            inner = seen @ seen.T + np.eye(len(y)) * np.square(levels)[:, :, None]
            dual = np.linalg.solve(inner, np.broadcast_to(left, levels.shape)[..., None])[..., 0]
            scores.append(log_chance - 0.5 * (np.linalg.slogdet(inner)[1] + dual @ left))
            parts.append(mean + dual @ seen @ factor.T)
        score = np.concatenate(scores)
        weights = np.exp(score - score.max())
        means.append(weights @ np.concatenate(parts) / weights.sum())
    return np.array(means)


@each(*((tasks, None) for tasks in (None, "sparse(2)", "sparse(p=0.3)", "pool(6)", MIXTURE)), (None, "standardised()"))
def test_the_floor_and_its_error_are_those_of_enumeration(tasks, features):
    """Levels that are far apart, and seven tokens: the error is as stated, and below 6 % of the adjusted loss."""
    problem = Problem(3, 7, "tokens(categorical(0.3,3))", tasks=tasks, features=features)
    tokens = problem.sequences(30, seed=1)
    exact, best = enumerated(problem, tokens), problem.best_predictor()
    assert isinstance(best, TokenBayes)
    sampler = TokenBayes(problem.noise, problem.tasks, scans=250)
    one, two = sampler.chains(tokens.x, tokens.y)
    actual, stated = np.square((one + two) / 2 - exact).sum(1).mean(), np.square(one - two).sum(1).mean() / 4
    assert stated / 3 <= actual + 1e-25 <= 3 * stated + 1e-12
    assert actual < 0.06 * np.square(exact - problem.oracle(tokens)).sum(1).mean()
    assert ("Gram bound" in baselines(problem)[0]) == (features is None)


def test_the_oracle_of_tokens_is_the_sum_over_parts_given_the_levels():
    problem = Problem(3, 5, "tokens(uniform(0.1,2))", tasks="sparse(p=0.4)")
    tokens = problem.sequences(6, seed=2)
    oracle = problem.oracle(tokens)
    scaled = replace(tokens, x=tokens.x / tokens.sigma[..., None], y=tokens.y / tokens.sigma)
    np.testing.assert_allclose(oracle, enumerated(problem.replace(noise="tokens(1)"), scaled), rtol=1e-6)


@each(
    (8, 12, "uniform(0,1)", "sparse(3)"),
    (8, 12, "uniform(0,1)", "sparse(p=0.3,variance=3)"),
    (10, 12, 0.1, "sparse(3)"),
)
def test_where_subsets_are_too_many_the_sampler_agrees_with_the_average(dim, context, noise, tasks, monkeypatch):
    problem = Problem(dim, context, noise, tasks=tasks)
    draw = problem.moments(60, seed=2)
    exact, known = SparseBayes(tasks, noise).weights(draw.moments), SparseOracle(tasks).weights(draw.moments)
    assert not SparseBayes(tasks, noise).errors(draw.moments).any()
    monkeypatch.setattr(discrete, "MOST_LISTED", 1)
    sampler = SparseBayes(tasks, noise, scans=100)
    actual = np.square(sampler.weights(draw.moments) - exact).sum(1).mean()
    stated = sampler.errors(draw.moments).mean()
    assert stated / 3 - 1e-5 < actual < 3 * stated + 1e-5
    floor = np.square(exact - draw.task).sum(1).mean()
    assert actual < 0.02 * floor
    assert np.square(SparseOracle(tasks).weights(draw.moments) - known).sum(1).mean() < 0.02 * floor


def test_errors_of_the_gram_bound_are_those_of_its_own_posterior(monkeypatch):
    """Under token noise the sampler takes the law of levels with the same Gram matrices; so must its stated error."""
    monkeypatch.setattr(discrete, "MOST_LISTED", 1)
    moments = Problem(6, "8,10", 1, tasks="sparse(2)").moments(20).moments
    bound = SparseBayes("sparse(2)", "tokens(uniform(0,3))", scans=20)
    expected = np.empty(20)
    for index, part in moments.by_length():
        law = bound.noise.of_gram(int(part.context))
        expected[index] = SparseBayes("sparse(2)", law, scans=20).errors(part)
    np.testing.assert_array_equal(bound.errors(moments), expected)


def test_the_nearest_task_of_a_pool_wins_however_far_away_all_are():
    """At 1,000 standard deviations every density is 0 in floating point; their logarithms still differ."""
    tasks = Tasks.of("pool(6)")
    x, pool = np.random.default_rng(0).normal(size=(1, 8, 3)), tasks.pool(3)
    y = x @ (pool[4] + 0.1 * (pool[4] - pool.mean(0)))
    nearest = np.square(x[0] @ (pool.T) - y.T).sum(0).argmin()
    weights = TokenBayes("tokens(categorical(0.001,0.002))", tasks).token_weights(x, y)
    np.testing.assert_allclose(weights[0], pool[nearest], atol=1e-9)


def test_many_subsets_have_a_floor():
    problem = Problem(24, 30, 0.2, tasks="sparse(p=0.1)")  # 2^24 subsets
    draw = problem.moments(24, seed=1)
    errors = np.square(problem.best_predictor().weights(draw.moments) - draw.task).sum(1)
    assert errors.mean() < 0.2 * np.square(BayesRR(0.2, problem.prior).weights(draw.moments) - draw.task).sum(1).mean()


@pytest.mark.parametrize("text", ["tokens(uniform(0,3))", "student(4,1)"])
def test_gram_matrices_have_the_law_of_one_level_for_each_sequence(text):
    problem = Problem(2, 5, text)
    other = problem.replace(noise=problem.noise.of_gram(5))
    one, two = problem.moments(8000, seed=3), other.moments(8000, seed=4)

    def facts(draw):
        m = draw.moments
        rest = m.q - np.einsum("bi,bij,bj->b", m.b, np.linalg.inv(m.S), m.b)
        return m.q, np.square(m.b).sum(1), rest, (m.b * draw.task).sum(1), np.square(m.b).sum(1) / m.q

    for left, right in zip(facts(one), facts(two), strict=True):
        assert stats.ks_2samp(left, right, method="asymp").pvalue > 1e-4
    wrong = problem.replace(noise=problem.noise.levels.second_moment**0.5).moments(8000, seed=4)
    assert stats.ks_2samp(facts(one)[2], facts(wrong)[2], method="asymp").pvalue < 1e-4


def test_the_gram_bound_lies_between_the_floor_and_all_that_see_the_gram_matrix_only():
    problem = Problem(3, 8, "tokens(categorical(0.2,3))")
    others = {"AdaRR": AdaRR(), "ConstRR": ConstRR(4.5), "LeastSquares": LeastSquares()}
    best = {"Gram bound": BayesRR(problem.noise), "Bayes floor": problem.best_predictor()}
    losses = compare(problem, others | best, sequences=400)
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


@pytest.mark.parametrize(("tasks", "bound"), [("pool(4)", DMMSE), ("sparse(1)", SparseBayes)])
def test_gram_bounds_of_pools_and_sparse_tasks_are_those_of_the_law_with_the_same_gram_matrices(tasks, bound):
    problem = Problem(3, "5..6", "tokens(categorical(0.2,3))", tasks=tasks)
    moments = problem.moments(40).moments
    weights = bound(tasks, problem.noise).weights(moments)
    for index, part in moments.by_length():
        other = bound(tasks, problem.noise.of_gram(int(part.context)))
        np.testing.assert_allclose(weights[index], other.weights(part))


def test_models_take_steps_on_such_problems_and_prefixes_can_be_compared():
    problem = Problem(3, 6, "student(4,1)")
    model = LinearTransformer.random("diag", dim=3, layers=2, context=6, seed=0)
    evaluation = model.step(problem, 64)
    assert np.isfinite(evaluation.loss)
    losses = compare(problem, {"model": model}, over={"context": [3, 6]}, sequences=64)
    assert losses.floor.shape == (2,)
    assert (losses.floor > 0).all()


@pytest.mark.parametrize("text", ["tokens(uniform(0,5))", "student(4,1)", "student(3,0.1)", "tokens(expon(scale=2))"])
def test_texts_are_read_back(text):
    problem = Problem(3, 6, text)
    assert str(problem.noise).startswith(text[:6])
    assert Problem.parse(str(problem)) == problem == problem_from_dict(problem.as_dict())
    drawn = problem.noise.draw(200_000)
    assert np.mean(drawn**2) == pytest.approx(problem.noise.second_moment, rel=0.25)
    nodes, chances = problem.noise.quadrature()
    assert chances.sum() == pytest.approx(1, abs=1e-6)
    assert (chances * nodes**2).sum() == pytest.approx(problem.noise.second_moment, rel=5e-3)
