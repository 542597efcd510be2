"""Sequences drawn token by token and moments drawn by Bartlett's decomposition have the same law."""

import numpy as np
import pytest
from scipy import stats

from ridgeformer import InputError, Moments, Problem

COUNT = 20_000
# A fixed seed makes each test a yes or no; with about 400 comparisons, a level of 1e-5 means that a correct sampler
# fails one time in 250 seeds, and a wrong one (see test_these_tests_can_fail) fails at once.
LEVEL = 1e-5
SHAPES = [(10, 20), (3, 4), (3, 3), (4, 2), (6, 1), (1, 1), (1, 2), (2, 7)]


def features(problem, gram, task, sigma):
    """Marginals of everything that the law has: moments, their eigenvalues, and how they go with w and sigma."""
    d = problem.dim
    S, a, lam = gram[:, :d, :d], gram[:, :d, d], gram[:, d, d]
    eigenvalues = np.linalg.eigvalsh(S)[:, -min(d, problem.context) :]
    whole = np.linalg.eigvalsh(gram)[:, -min(d + 1, problem.context) :]
    table = {"S00": S[:, 0, 0], "S last": S[:, -1, -1], "a0": a[:, 0], "a last": a[:, -1], "l": lam}
    table |= {f"eigenvalue {i} of S": eigenvalues[:, i] for i in range(eigenvalues.shape[1])}
    table |= {f"eigenvalue {i} of G": whole[:, i] for i in range(whole.shape[1])}
    table |= {
        "a.w": (a * task).sum(1),
        "w S w": np.einsum("bi,bij,bj->b", task, S, task),
        "l - w.a": lam - (a * task).sum(1),
    }
    table |= {"sigma": sigma, "l given sigma": lam / (1 + sigma**2)}
    if d > 1:
        table |= {
            "S10": S[:, 1, 0],
            "trace S": np.trace(S, axis1=1, axis2=2),
            "a S a": np.einsum("bi,bij,bj->b", a, S, a),
        }
    return {name: np.round(value, 9) for name, value in table.items()}  # sums that cancel leave only rounding


def flat(gram, task):
    lower = np.tril_indices(gram.shape[1])
    return np.concatenate([gram[:, lower[0], lower[1]], task], axis=1)


@pytest.mark.parametrize(("dim", "context"), SHAPES)
@pytest.mark.parametrize("noise", ["uniform(0,2)", "categorical(0,3)"])
def test_moments_and_tokens_have_the_same_law(dim, context, noise):
    problem = Problem(dim, context, noise)
    tokens = problem.sequences(COUNT, seed=11)
    summed = Moments.from_tokens(tokens.x, tokens.y).gram
    drawn = problem.moments(COUNT, seed=12)
    left = features(problem, summed, tokens.task, tokens.sigma)
    right = features(problem, drawn.moments.gram, drawn.task, drawn.sigma)
    for name in left:
        assert stats.ks_2samp(left[name], right[name]).pvalue > LEVEL, name

    a, b = flat(summed, tokens.task), flat(drawn.moments.gram, drawn.task)
    mean_error = np.sqrt(a.var(0) / COUNT + b.var(0) / COUNT)
    assert (np.abs(a.mean(0) - b.mean(0)) < 5 * mean_error + 1e-12).all()
    # Covariances: the standard error of a sample covariance, from the fourth moments.
    a, b = a - a.mean(0), b - b.mean(0)
    error = np.sqrt(((a**2).T @ a**2 + (b**2).T @ b**2) / COUNT) / np.sqrt(COUNT)
    assert (np.abs(a.T @ a - b.T @ b) / COUNT < 5.5 * error + 1e-12).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("context", [1, 5, 10**6])
def test_closed_forms_at_any_context_length(context, dtype):
    """E S = n I, E a a' and E l = n (d + sigma^2), and S_00 ~ chi2(n), also at n = 10^6 where no tokens fit."""
    problem = Problem(4, context, "fixed(2)")
    m = problem.moments(COUNT, seed=5, dtype=dtype).moments
    for i in range(4):
        assert stats.kstest(m.S[:, i, i].astype(float), stats.chi2(context).cdf).pvalue > LEVEL
    assert m.S.mean(0, dtype=float) == pytest.approx(context * np.eye(4), abs=5 * np.sqrt(2 * context / COUNT))
    assert m.q.mean(dtype=float) == pytest.approx(context * 8, rel=5 * np.sqrt(10 / COUNT))


def test_these_tests_can_fail():
    """One degree of freedom too many, at the size used above, is found out."""
    right, wrong = Problem(3, 20, "fixed(1)"), Problem(3, 21, "fixed(1)")
    a, b = right.moments(COUNT, seed=1), wrong.moments(COUNT, seed=2)
    assert stats.ks_2samp(a.moments.q, b.moments.q).pvalue < LEVEL


@pytest.mark.parametrize(("dim", "context"), SHAPES)
def test_ridge_is_the_ridge_solution(dim, context, any_engine):
    drawn = Problem(dim, context, "uniform(0.5,2)").moments(200, seed=3, engine=any_engine)
    for b in range(200):
        S, a = drawn.moments.S[b], drawn.moments.b[b]
        solved = np.linalg.solve(S + drawn.sigma[b] ** 2 * np.eye(dim), a)
        np.testing.assert_allclose(drawn.ridge[b], solved, rtol=1e-9, atol=1e-9)


def test_ridge_without_noise(any_engine):
    """The task itself when n >= d, exactly; the shortest solution of X w = y when n < d."""
    drawn = Problem(5, 5, "fixed(0)").moments(100, engine=any_engine)
    np.testing.assert_array_equal(drawn.ridge, drawn.task)
    drawn = Problem(5, 3, "fixed(0)").moments(100, engine=any_engine)
    for b in range(100):
        shortest = np.linalg.pinv(drawn.moments.S[b], rcond=1e-9) @ drawn.moments.b[b]
        np.testing.assert_allclose(
            drawn.ridge[b], shortest, rtol=1e-5, atol=1e-6
        )  # pinv sees S, whose condition is squared


def test_sequences_are_what_they_say():
    s = Problem(3, 4, "fixed(0)").sequences(10, queries=2)
    np.testing.assert_allclose(s.y, np.einsum("bnd,bd->bn", s.x, s.task))
    np.testing.assert_allclose(s.answers, np.einsum("bnd,bd->bn", s.queries, s.task))
    assert (s.x.shape, s.queries.shape) == ((10, 4, 3), (10, 2, 3))


def test_streams_are_independent_and_reproducible():
    problem = Problem(3, 5, "uniform(0,1)")
    base = problem.moments(50, seed=1, stream=2, step=3).moments.gram
    np.testing.assert_array_equal(base, problem.moments(50, seed=1, stream=2, step=3).moments.gram)
    for other in ({"seed": 2}, {"stream": 3}, {"step": 4}, {"seed": 1 + 2**40}, {"step": 3 + 2**40}):
        changed = problem.moments(50, **({"seed": 1, "stream": 2, "step": 3} | other)).moments.gram
        assert abs(np.corrcoef(base[:, 0, 0], changed[:, 0, 0])[0, 1]) < 0.6
        assert not np.isin(changed, base).any()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Problem(0, 5, "fixed(1)"), "dim must be at least 1; got 0"),
        (lambda: Problem(10**9, 3, "fixed(1)"), "dim must be at most 4096"),
        (lambda: Problem(5, 5), "needs a noise distribution"),
        (lambda: Problem(5, 5, "fixed(1)").moments(0), "number of sequences must be at least 1; got 0"),
        (lambda: Problem(5, 5, "fixed(1)").moments(2**33), "number of sequences must be at most"),
        (lambda: Problem(5, 5, "fixed(1)").moments(1, seed=2**64), "seed must be at most"),
        (lambda: Problem(5, 5, "fixed(1)").moments(2, first=2**32 - 1), "number of sequences must be at most 1"),
        (lambda: Problem(5, 5, "fixed(1)").moments(1, dtype=np.float16), "float64; got <class 'numpy.float16'>"),
    ],
)
def test_bad_problems_are_refused_in_words(make, words):
    with pytest.raises(InputError) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.parametrize("features", ["standardised()", "standardised(scales(0.5))", "standardised(factors(2))"])
@pytest.mark.parametrize("context", [12, "10..30"])
def test_the_signal_of_standardised_features_counts_how_queries_are_standardised(features, context):
    """Queries are shifted and scaled by other examples, so that their variance is (n + 1) / (n - 3), more than 1."""
    problem = Problem(4, context, 1.0, features=features)
    squares = np.square(problem.sequences(40_000, seed=1).answers)
    assert problem.signal == pytest.approx(squares.mean(), abs=4 * squares.std() / np.sqrt(squares.size))
