"""The posterior mean of sparse tasks against sums over subsets and noise levels, one sequence after another."""

import itertools

import numpy as np
import pytest
from scipy import stats

from ridgeformer import Problem, compare
from ridgeformer.evaluation import floor
from ridgeformer.predictors.sparse import SparseBayes, SparseOracle
from ridgeformer.problems.tasks import Tasks

LAWS = {
    "sparse(2)": lambda size: size == 2,
    "sparse(p=0.3,variance=2)": lambda size: 0.3**size * 0.7 ** (4 - size),
    "sparse(beta=[1,2])": lambda size: stats.betabinom(4, 1, 2).pmf(size) / stats.binom(4, 0.5).pmf(size) / 16,
}


def by_hand(x, y, sigmas, chances, law, variance):
    """E[w | context], with the density of the labels for every subset and noise level by SciPy."""
    total, mean = 0.0, np.zeros(x.shape[1])
    for sigma, chance in zip(sigmas, chances, strict=True):
        for subset in itertools.product([0, 1], repeat=x.shape[1]):
            g = np.flatnonzero(subset)
            covariance = variance * x[:, g] @ x[:, g].T + sigma**2 * np.eye(len(y))
            p = chance * law(len(g)) * stats.multivariate_normal(np.zeros(len(y)), covariance).pdf(y)
            total += p
            mean[g] += p * variance * x[:, g].T @ np.linalg.solve(covariance, y)
    return mean / total


@pytest.mark.parametrize("text", LAWS)
@pytest.mark.parametrize("n", [3, 7])
def test_oracle_and_best_predictor_average_over_subsets_and_noise_levels(text, n):
    problem = Problem(4, n, "categorical(0.4,1.5,weights=(0.3,0.7))", tasks=text)
    tokens, tasks = problem.sequences(3, seed=1), problem.tasks
    oracle, best = problem.oracle(tokens), problem.best_predictor().weights(tokens.moments)
    for b in range(3):
        x, y, law = tokens.x[b], tokens.y[b], LAWS[text]
        exact = by_hand(x, y, tokens.sigma[b : b + 1], [1.0], law, tasks.variance)
        np.testing.assert_allclose(oracle[b], exact, atol=1e-9)
        np.testing.assert_allclose(best[b], by_hand(x, y, [0.4, 1.5], [0.3, 0.7], law, tasks.variance), atol=1e-9)


@pytest.mark.parametrize("text", LAWS)
@pytest.mark.parametrize("sigma", [0.0, 1e-3])
def test_subsets_with_more_features_than_examples_and_labels_that_are_zero(text, sigma):
    """By hand with sigma = 1e-3 also where it is 0: with one example, both means agree to a part in 10^6 or so.

    Without weights and without noise, labels are exactly 0, and so is the mean.
    """
    problem = Problem(4, 1, sigma, tasks=text)
    tokens, tasks = problem.sequences(40, seed=1), problem.tasks
    found = problem.best_predictor().weights(tokens.moments)
    for b in range(40):
        x, y = tokens.x[b], tokens.y[b]
        exact = by_hand(x, y, [1e-3], [1.0], LAWS[text], tasks.variance) if y.any() else np.zeros(4)
        np.testing.assert_allclose(found[b], exact, atol=1e-3 if sigma else 5e-3, rtol=1e-2)
    assert floor(Problem(4, "1..3", "categorical(0,1)", tasks=text), sequences=400).unadjusted < 2 * problem.signal


def test_continuous_noise_levels_are_integrated_over():
    problem = Problem(3, 6, "uniform(0,2)", tasks="sparse(p=0.4)")
    tokens = problem.sequences(2, seed=3)
    sigmas = (np.arange(600) + 0.5) / 300
    found = SparseBayes("sparse(p=0.4)", "uniform(0,2)").weights(tokens.moments)
    law = lambda size: 0.4**size * 0.6 ** (3 - size)  # noqa: E731
    for b in range(2):
        exact = by_hand(tokens.x[b], tokens.y[b], sigmas, np.ones(600), law, 1.0)
        np.testing.assert_allclose(found[b], exact, atol=2e-5)


def test_the_oracle_of_drawn_moments_is_that_of_their_noise_levels_and_no_predictor_is_below_the_floor():
    problem = Problem(4, 8, "uniform(0,1)", tasks="sparse(1)")
    draw = problem.moments(50, seed=2)
    np.testing.assert_array_equal(draw.ridge, SparseOracle("sparse(1)").weights(draw.moments))
    assert ((draw.task != 0).sum(1) == 1).all()
    again = problem.moments(20, seed=2, first=30)
    np.testing.assert_allclose(again.task, draw.task[30:], atol=0)
    losses = compare(problem, {"floor": problem.best_predictor()}, sequences=300)
    assert losses["floor"].loss == pytest.approx(floor(problem, sequences=300).loss)
    assert losses["floor"].loss > 0


def test_with_all_weights_sparse_tasks_are_gaussian():
    sparse, gaussian = (Problem(3, 5, "uniform(0,2)", tasks=tasks) for tasks in ("sparse(3)", None))
    moments = gaussian.moments(20).moments
    np.testing.assert_allclose(
        sparse.best_predictor().weights(moments), gaussian.best_predictor().weights(moments), atol=1e-5
    )


@pytest.mark.parametrize("text", LAWS)
def test_moments_of_tasks_are_those_of_drawn_ones(text):
    tasks, L = Tasks.of(text), np.diag([1.0, 2.0, 0.5, 1.0]) + 0.2
    w = tasks.drawn(np.random.default_rng(0).random((400_000, tasks.numbers(4))))
    q = np.einsum("bi,ij,bj->b", w, L, w)
    mean, second, cubic, one, two = tasks.moments(4, L)
    assert one == pytest.approx(q.mean(), rel=0.02)
    assert two == pytest.approx((q**2).mean(), rel=0.05)
    np.testing.assert_allclose(second, w.T @ w / len(w), atol=0.02)
    np.testing.assert_allclose([mean, cubic], 0, atol=0)
    np.testing.assert_allclose(tasks.second_moment(4), second)


def test_the_floor_where_labels_may_be_exact_and_the_features_are_nearly_dependent():
    problem = Problem(3, 3, "categorical(0,1)", tasks="sparse(p=0.3)")
    tokens = problem.sequences(4, seed=964583)
    x, y = np.asarray(tokens.x[3]), np.asarray(tokens.y[3])  # sigma = 0, and x has a condition number of 1,600
    subsets = [np.diag(one) for one in itertools.product([0.0, 1.0], repeat=3)]
    laws = [(0.3 ** one.sum() * 0.7 ** (3 - one.sum()), x @ one @ x.T + np.eye(3), one) for one in subsets]
    laws.append((0.027, x @ x.T, np.eye(3)))  # without noise, only all three weights fit
    chances = [share * stats.multivariate_normal(np.zeros(3), K).pdf(y) for share, K, _ in laws]
    truth = np.average([one @ x.T @ np.linalg.solve(K, y) for _, K, one in laws], axis=0, weights=chances)
    # the least residual is known to 1e-15 of l, 1e-3 of its variance
    np.testing.assert_allclose(problem.best_predictor().weights(tokens.moments)[3], truth, rtol=1e-4)
