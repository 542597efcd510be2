"""The posterior mean of sparse tasks against sums over subsets and noise levels, one sequence after another."""

import itertools

import numpy as np
import pytest
from scipy import stats

from ridgeformer import Problem, compare
from ridgeformer.evaluation import floor
from ridgeformer.predictors import subsets as lists
from ridgeformer.predictors.discrete import SparseBayes, SparseOracle
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


# ---- Ridge regression on subsets: against one small system after another


def contexts(dim, count, examples=7, seed=0):
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((count, examples, dim)), rng.standard_normal((count, examples))
    return x, y, np.swapaxes(x, 1, 2) @ x, np.einsum("bnd,bn->bd", x, y), np.square(y).sum(1)


def ridge_by_hand(S, a, total, subset, c):
    """log det, residual and solution of one subset of one context."""
    g = np.flatnonzero(subset)
    inner = S[np.ix_(g, g)] + c * np.eye(len(g))
    w = np.zeros(len(a))
    w[g] = np.linalg.solve(inner, a[g])
    return np.linalg.slogdet(inner)[1], total - a @ w, w


SOME = np.array([[0, 1, 1, 0, 1], [1, 0, 0, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool)


@pytest.mark.parametrize("members", [lists.every_subset(5), lists.every_subset(5, 2, 3), SOME, np.ones((1, 5), bool)])
def test_every_subset_has_its_own_ridge_solution(members):
    _, _, S, a, total = contexts(5, 4)
    c = np.array([0.1, 1.0, 2.0, 5.0])
    solved = lists.SubsetTree(members).solve(S, a, total, c)
    solutions = np.empty((len(members), 4, 5))
    for (m, subset), b in itertools.product(enumerate(members), range(4)):
        log_det, residual, w = ridge_by_hand(S[b], a[b], total[b], subset, c[b])
        assert solved.log_det[m, b] == pytest.approx(log_det, abs=1e-12)
        assert solved.residual[m, b] == pytest.approx(residual, rel=1e-10)
        solutions[m, b] = w
    weights = np.random.default_rng(1).random((len(members), 4))
    np.testing.assert_allclose(solved.average(weights), np.einsum("mb,mbd->bd", weights, solutions), atol=1e-12)


def test_the_evidence_is_that_of_the_labels_under_a_normal_distribution():
    x, y, S, a, total = contexts(3, 2, examples=4)
    members, variance, t = lists.every_subset(3), np.array([0.5, 2.0]), 1.7
    solved = lists.SubsetTree(members).solve(S, a, total, variance / t)
    found = lists.gaussian_evidence(solved.log_det, solved.residual, variance, variance / t, 4, members.sum(1))
    for b in range(2):
        exact = [
            stats.multivariate_normal(np.zeros(4), t * x[b][:, g] @ x[b][:, g].T + variance[b] * np.eye(4)).logpdf(y[b])
            for g in members
        ]
        np.testing.assert_allclose(found[:, b] - found[0, b], np.array(exact) - exact[0], atol=1e-10)
        assert found[0, b] == pytest.approx(exact[0] + 2 * np.log(2 * np.pi))


def score(log_det, residual, size):
    """Weights from N(0, 1) with noise of variance 0.3, and features with probability 0.2 each."""
    odds = size * (np.log(0.2 / 0.8) + 0.5 * np.log(0.3))
    return odds - 0.5 * log_det - 0.5 * residual / 0.3


def test_a_wide_beam_is_the_whole_list_and_a_narrow_one_has_the_best_subsets():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((12, 8))
    y = x[:, 1] * 2 - x[:, 4] * 1.5 + 0.5 * rng.standard_normal(12)
    S, a, total = x.T @ x, x.T @ y, float(y @ y)
    whole = lists.every_subset(8)
    found, scores = lists.beam(S, a, total, 0.3, score, width=100)
    assert {tuple(row) for row in found} <= {tuple(row) for row in whole}
    assert len(np.unique(found, axis=0)) == len(found)
    assert len(lists.beam(S, a, total, 0.3, lambda log_det, residual, size: 0 * residual, width=100)[0]) == len(whole)

    def evidence(members):
        solved = lists.SubsetTree(members).solve(S, a, total, np.array([0.3]))
        sizes = np.arange(9)[:, None]
        by_size = np.array([score(solved.log_det[:, 0], solved.residual[:, 0], int(k)) for k in sizes[:, 0]])
        return by_size[members.sum(1), np.arange(len(members))]

    exact = evidence(whole)
    np.testing.assert_allclose(scores, evidence(found), rtol=1e-10)
    chances = np.exp(exact - exact.max()) / np.exp(exact - exact.max()).sum()
    narrow, _ = lists.beam(S, a, total, 0.3, score, width=5)
    kept = {tuple(row) for row in narrow}
    assert tuple(whole[np.argmax(exact)]) in kept
    mass = sum(p for row, p in zip(whole, chances, strict=True) if tuple(row) in kept)
    assert mass > 0.8
    assert mass > sum(np.sort(chances)[::-1][: len(kept)]) - 0.1  # not far from the best that so many can have


def test_second_moments_of_trees_and_lists_against_each_subset_by_hand():
    _, _, S, a, total = contexts(4, 1, examples=3)  # fewer examples than features
    members, penalty = lists.every_subset(4), np.array([0.5, 3.0])
    rng = np.random.default_rng(1)
    weights, variance = rng.random((2, len(members), 2))
    first, second = np.zeros((2, 4)), np.zeros((2, 4, 4))
    for m, subset in enumerate(members):
        g = np.flatnonzero(subset)
        for b, c in enumerate(penalty):
            inverse = np.linalg.inv(S[0][np.ix_(g, g)] + c * np.eye(len(g)))
            w = inverse @ a[0][g]
            first[b, g] += weights[m, b] * w
            second[b][np.ix_(g, g)] += weights[m, b] * (np.outer(w, w) + variance[m, b] * inverse)
    tree, listed = lists.SubsetTree(members), lists.ListedSubsets(members, S[0], a[0], total[0])
    solved, others = tree.solve(S[0], a[0], total[0], penalty), listed.solve(penalty)
    for found in (solved.second_moments(weights, variance), others.second_moments(weights, variance)):
        np.testing.assert_allclose(found[0], first, rtol=1e-10)
        np.testing.assert_allclose(found[1], second, rtol=1e-10, atol=1e-12)
    for name in ("log_det", "residual"):
        np.testing.assert_allclose(getattr(others, name), getattr(solved, name), rtol=1e-10, atol=1e-12)
