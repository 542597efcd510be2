"""Sampled moments, whole sequences and metrics against sequences simulated token by token (tests/token_form.py).

Two samples of 8,000 sequences are compared. A fixed seed makes each comparison a yes or no; at a level of 1e-4 for
Kolmogorov-Smirnov tests and 5 standard errors for means, a correct sampler fails hardly ever, and those of
`test_these_tests_can_fail` do at once.
"""

import numpy as np
import pytest
from scipy import stats

import token_form as tf
from ridgeformer import Problem
from support import each
from token_form import GAMMA, LAMBDA, OTHER

COUNT, D = 8_000, 3
LEVEL, ERRORS = 1e-4, 5.0
MEAN, POOL = tf.MEAN.tolist(), tf.POOL.tolist()
POWER = 3 * np.array([1, 1 / 2, 1 / 3]) / (1 + 1 / 2 + 1 / 3)
ISOTROPIC = tf.gaussian(np.eye(D))

FEATURES = {
    "isotropic()": ISOTROPIC,
    "covariance": tf.gaussian(LAMBDA),
    "spectrum(2,0.7,0.2)": tf.gaussian(np.diag([2, 0.7, 0.2])),
    "powerlaw(1)": tf.gaussian(np.diag(POWER)),
    "rotated(2,0.7,0.2)": tf.rotated([2, 0.7, 0.2]),
    "factors(1)": tf.factors(1, 0.5),
    "factors(2,unique=0.1)": tf.factors(2, 0.1),
    "scales(0.3)": tf.scaled(0.3, ISOTROPIC),
    "scales(0.3,factors(2))": tf.scaled(0.3, tf.factors(2, 0.5)),
    "scales(0.3,rotated(2,0.7,0.2))": tf.scaled(0.3, tf.rotated([2, 0.7, 0.2])),
    "standardised()": tf.standardised(ISOTROPIC),
    "standardised(factors(1))": tf.standardised(tf.factors(1, 0.5)),
    "standardised(scales(0.3,factors(2)))": tf.standardised(tf.scaled(0.3, tf.factors(2, 0.5))),
    "standardised(rotated(2,0.7,0.2))": tf.standardised(tf.rotated([2, 0.7, 0.2])),
}
STANDARD = tf.gaussian_tasks(np.zeros(D), np.eye(D))
TASKS = {
    "gaussian()": STANDARD,
    "mean": tf.gaussian_tasks(MEAN, np.eye(D)),
    "mean and covariance": tf.gaussian_tasks(MEAN, np.linalg.cholesky(GAMMA)),
    "lowrank(2)": tf.gaussian_tasks(np.zeros(D), np.sqrt(1.5) * np.eye(D)[:, :2]),
    "rank one": tf.gaussian_tasks(MEAN, [[1.0], [-2.0], [0.5]]),
    "pool": tf.pool_tasks(POOL),
    "mixture": tf.mixed_tasks(POOL, 0.3, tf.gaussian_tasks(MEAN, np.linalg.cholesky(GAMMA))),
    "sparse(2)": tf.sparse_tasks(lambda rng, count: np.full(count, 2), 1),
    "sparse(p=0.3,variance=2)": tf.sparse_tasks(lambda rng, count: rng.binomial(3, 0.3, count), 2),
    "sparse(beta=[1,2])": tf.sparse_tasks(lambda rng, count: rng.binomial(3, rng.beta(1, 2, count)), 1),
}
ONE = np.array([1.0, -2.0, 0.5])
GIVEN = {
    "covariance": LAMBDA,
    "mean": f"gaussian(mean={MEAN})",
    "mean and covariance": f"gaussian(mean={MEAN},covariance={GAMMA.tolist()})",
    "rank one": f"gaussian(mean={MEAN},covariance={np.outer(ONE, ONE).tolist()})",
    "pool": f"pool({POOL})",
    "mixture": f"mixture(pool({POOL}),0.3,gaussian(mean={MEAN},covariance={GAMMA.tolist()}))",
}
LENGTHS = {2: [2], 3: [3], 7: [7], "2..6": [2, 3, 4, 5, 6], "2,9": [2, 9]}
# Each kind of features with fewer, as many and more tokens than dimensions; then each kind of tasks and of lengths.
CASES = [(features, "gaussian()", n) for features in FEATURES for n in (2, 3, 7)]
CASES += [("covariance", tasks, n) for tasks in TASKS for n in (2, 7)]
CASES += [(features, "mean and covariance", n) for features in FEATURES for n in ("2..6", "2,9")]
CASES += [
    ("factors(1)", "mixture", "2..6"),
    ("standardised(factors(1))", "pool", 7),
    ("rotated(2,0.7,0.2)", "rank one", 3),
    ("rotated(2,0.7,0.2)", "sparse(2)", "2..6"),
]


def pair(features, tasks, context, queries=1, query=None, seed=1):
    """The problem, and independent sequences of it."""
    made = Problem(
        D, context, "uniform(0,1.5)", features=GIVEN.get(features, features), tasks=GIVEN.get(tasks, tasks), query=query
    )
    law = FEATURES[features] if query is None else tf.other_queries(FEATURES[features], query)
    noise = lambda rng, count: 1.5 * rng.random(count)  # noqa: E731
    return made, tf.simulate(COUNT, D, LENGTHS.get(context, [context]), noise, law, TASKS[tasks], queries, seed)


def statistics(gram, sums, task, sigma, n):
    """Marginals of all that the law has: moments, eigenvalues, sums, and how they go with the task, sigma and n."""
    S, a, total = gram[:, :D, :D], gram[:, :D, D], gram[:, D, D]
    values, whole = np.linalg.eigvalsh(S), np.linalg.eigvalsh(gram)
    wSw, aw = np.einsum("bi,bij,bj->b", task, S, task), np.einsum("bi,bi->b", a, task)
    found = {
        "smallest eigenvalue of S": values[:, 0],
        "largest eigenvalue of S": values[:, -1],
        "smallest eigenvalue of G": whole[:, 0],
        "l": total,
        "|a|^2": np.square(a).sum(1),
        "w'Sw": wSw,
        "noise": total - 2 * aw + wSw,
        "noise with task": aw - wSw,
        "l over n": total / n,
        "sigma": sigma,
        "task": task @ [1.0, 0.3, -2.0],
        "S01": S[:, 0, 1],
        "S22": S[:, 2, 2],
        "sum of x0": sums[:, 0],
        "sum of x": sums[:, :D] @ [1.0, -0.5, 0.3],
        "sum of y": sums[:, D],
        "sums with moments": sums[:, 0] * sums[:, D] - a[:, 0],
        "sums with sums": sums[:, 1] * sums[:, 2],
        "sum of y with task": sums[:, D] - np.einsum("bi,bi->b", sums[:, :D], task),
    }
    return {name: np.round(value, 8) for name, value in found.items()}  # what cancels leaves only rounding


def same(left, right):
    """Whether two samples can have one law. The asymptotic p-value, because SciPy's exact one fails on ties."""
    return stats.ks_2samp(left, right, method="asymp").pvalue > LEVEL


def assert_same_law(drawn, tokens):
    """What the package drew against simulated tokens, in all statistics."""
    m = drawn.moments
    left = statistics(np.asarray(m.gram), m.sums, drawn.task, drawn.sigma, m.counts)
    right = statistics(tokens.gram, tokens.sums, tokens.task, tokens.sigma, tokens.n)
    for name, value in left.items():
        assert same(value, right[name]), name


def assert_same_mean(left, right):
    """Means of columns, [B, K] each, within 5 standard errors of their difference."""
    error = np.sqrt(left.var(0) / len(left) + right.var(0) / len(right))
    gap = np.abs(left.mean(0) - right.mean(0))
    assert (gap <= ERRORS * error + 1e-9).all(), (gap / np.maximum(error, 1e-300)).max()


def assert_same_moments(left, right):
    """Means and covariances of columns within 5 standard errors."""
    assert_same_mean(left, right)
    centred = [one - one.mean(0) for one in (left, right)]
    i, j = np.tril_indices(left.shape[1])
    assert_same_mean(*(one[:, i] * one[:, j] for one in centred))


def entries(gram, task):
    """The different entries of G, and the task."""
    i, j = np.tril_indices(D + 1)
    return np.concatenate([gram[:, i, j], task], 1)


@pytest.mark.parametrize(("features", "tasks", "context"), CASES)
def test_sampled_moments_have_the_law_of_tokens(features, tasks, context):
    problem, tokens = pair(features, tasks, context)
    drawn = problem.moments(COUNT, seed=2, sums=True)
    m = drawn.moments
    assert_same_law(drawn, tokens)
    assert_same_moments(entries(m.gram, drawn.task), entries(tokens.gram, tokens.task))
    np.testing.assert_array_equal(np.unique(m.counts), np.unique(tokens.n))
    assert_same_mean(1.0 * (m.counts[:, None] == np.unique(tokens.n)), 1.0 * (tokens.n[:, None] == np.unique(tokens.n)))


@pytest.mark.parametrize(("features", "tasks", "context"), CASES[::3] + CASES[-3:])
def test_whole_sequences_have_it_too(features, tasks, context):
    problem, tokens = pair(features, tasks, context)
    s = problem.sequences(COUNT, seed=3, queries=1)
    assert_same_law(s, tokens)
    np.testing.assert_allclose(s.answers, np.einsum("bmd,bd->bm", s.queries, s.task), atol=1e-12)
    for i in range(D):  # each query feature alone, and beside the context's
        mine, other = s.queries[:, 0, i], tokens.queries[:, 0, i]
        assert same(mine, other)
        assert same(mine * s.x[:, 0, 0], other * tokens.x[:, 0, 0])


@pytest.mark.parametrize("context", [3, "2..6"])
def test_the_order_of_drawing_sums_changes_no_moments(context):
    """`sums=True` adds the sums; the moments are those of the same sequences."""
    problem = Problem(D, context, "uniform(0,1)", features="factors(1)")
    plain, more = problem.moments(50, seed=4), problem.moments(50, seed=4, sums=True)
    assert plain.moments.sums is None
    np.testing.assert_allclose(more.moments.gram, plain.moments.gram, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(more.ridge, plain.ridge, rtol=1e-9, atol=1e-9)


def quadratic(e, matrix):
    return np.einsum("bi,bij,bj->b", e, np.broadcast_to(matrix, (len(e), D, D)), e)


def errors_of(gram, task):
    """Errors of weights: of none, of a fixed direction, of a step of gradient descent, of a ridge solution."""
    S, a = gram[:, :D, :D], gram[:, :D, D]
    solved = np.linalg.solve(S + np.eye(D), a[..., None])[..., 0]
    return {
        "task": task,
        "fixed": np.broadcast_to([1.0, -1.0, 0.5], task.shape),
        "gradient": 0.05 * a - task,
        "ridge": solved - task,
    }


# At 12 tokens the variance of a standardised query's square exists: 1 / s^4 has a mean only if n - 1 > 4.
@each(
    *((features, None) for features in FEATURES), ("covariance", OTHER), ("factors(1)", OTHER), ("isotropic()", OTHER)
)
def test_the_metric_is_that_of_sampled_queries(features, query):
    """E <e, x_q>^2 over queries is e' metric e, also for errors e that depend on the context."""
    problem, tokens = pair(features, "mean and covariance", 12, queries=4, query=query, seed=5)
    drawn = problem.moments(COUNT, seed=6)
    metric = np.eye(D) if drawn.metric is None else drawn.metric
    assert (metric.ndim == 3) == (not problem.features.fixed and query is None)
    mine, theirs = errors_of(drawn.moments.gram, drawn.task), errors_of(tokens.gram, tokens.task)
    for name, e in mine.items():
        expected = quadratic(e, metric)
        squares = np.square(np.einsum("bi,bmi->bm", theirs[name], tokens.queries)).mean(1)
        assert_same_mean(expected[:, None], squares[:, None])
        # Its law, not only its mean: the second moment of queries, given the sequence, is known in the simulation.
        assert same(np.round(expected, 8), np.round(quadratic(theirs[name], tokens.second), 8))


def test_queries_of_whole_sequences_have_their_metric():
    """Of standardised features, whose queries are centred by the mean of the context: 1 / 8 more. Errors are 2 %."""
    s = Problem(3, 8, 1, features="standardised()").sequences(4000, seed=1, queries=16)
    found, expected = np.square(s.queries).mean(), np.einsum("bii->b", s.metric).mean() / 3
    assert found == pytest.approx(expected, rel=0.05)


def test_these_tests_can_fail():
    """One token too many, a scale of features that is a little too wide, a mean that is forgotten."""
    for wrong, right in (
        (("covariance", "gaussian()", 8), ("covariance", "gaussian()", 7)),
        (("standardised()", "gaussian()", 7), ("isotropic()", "gaussian()", 7)),
        (("covariance", "gaussian()", 7), ("covariance", "mean", 7)),
        (("factors(1)", "gaussian()", 7), ("factors(2,unique=0.1)", "gaussian()", 7)),
    ):
        drawn = pair(*wrong)[0].moments(COUNT, seed=2, sums=True)
        with pytest.raises(AssertionError):
            assert_same_law(drawn, pair(*right)[1])
