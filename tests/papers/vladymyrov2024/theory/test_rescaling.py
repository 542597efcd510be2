"""Adaptive rescaling: two layers, two noise levels, the ridge solution in the limit."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ridgeformer import Moments
from ridgeformer.papers.vladymyrov2024.theory.rescaling import (
    limit_error,
    measure,
    rescaling_model,
    solve,
    theorem_moments,
)

levels = st.floats(0, 20)


@given(levels, levels)
def test_both_equations_hold(first, second):
    assume(first != second)
    yx, yy = solve(first, second)
    for sigma in (first, second):
        assert -(1 + sigma**2 * yy) * yx == pytest.approx(1 / (1 + sigma**2), rel=1e-9)


def plain_tokens(sigma, n, dim, count, rng):
    """The theorem's sequences as it says them: x ~ N(0, I/n), w ~ N(0, I), noise of level sigma."""
    w = rng.standard_normal((count, dim))
    x = rng.standard_normal((count, n, dim)) / math.sqrt(n)
    return w, x, np.einsum("bnd,bd->bn", x, w) + sigma * rng.standard_normal((count, n))


@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_predictions_of_tokens_are_ridge_predictions(sigma):
    """Token by token at n = 400, with the ridge solution from its own formula."""
    n, dim, rng = 400, 3, np.random.default_rng(5)
    _, x, y = plain_tokens(sigma, n, dim, 40, rng)
    model = rescaling_model(0.5, 2.0, n, dim)
    predicted = model.predict(x, y, np.broadcast_to(np.eye(dim), (40, dim, dim)))
    ridge = np.array([np.linalg.solve(a.T @ a + sigma**2 * np.eye(dim), a.T @ b) for a, b in zip(x, y, strict=True)])
    error = np.sqrt(np.mean(np.square(predicted - ridge).sum(1)))
    # 40 sequences and n = 400: within 40 % of the limit, where the wrong sign alone would be tens of times more.
    assert math.sqrt(n) * error == pytest.approx(math.sqrt(limit_error(sigma, 0.5, 2.0, dim)), rel=0.4)


def test_moments_have_the_law_of_the_theorems_tokens():
    n, dim, sigma, count = 30, 2, 1.5, 20_000
    draw = theorem_moments(sigma, n, dim, count, seed=2)
    w, x, y = plain_tokens(sigma, n, dim, count, np.random.default_rng(3))
    plain = Moments.from_tokens(x, y)
    for ours, theirs in ((draw.moments.gram, plain.gram), (draw.moments.gram**2, plain.gram**2)):
        spread = np.sqrt((ours.var(0) + theirs.var(0)) / count)
        assert (np.abs(ours.mean(0) - theirs.mean(0)) < 5 * spread).all()
    S, a = draw.moments.S, draw.moments.b
    ridge = np.linalg.solve(S + sigma**2 * np.eye(dim), a[:, :, None])[:, :, 0]
    np.testing.assert_allclose(draw.ridge, ridge, rtol=1e-9, atol=1e-12)
    # a - S w is noise of variance sigma^2 S: the task is the one that the labels were made of.
    rest = a - np.einsum("bij,bj->bi", S, draw.task)
    assert rest.var() == pytest.approx(sigma**2, rel=0.05)
    assert w.var() == pytest.approx(draw.task.var(), rel=0.05)


@pytest.mark.parametrize(("pair", "dim"), [((0.3, 4.0), 2), ((1.0, 1.2), 8)])
def test_the_limit_for_other_levels_and_dimensions(pair, dim):
    for sigma in pair:
        n = 1_000_000
        error = measure(rescaling_model(*pair, n, dim), sigma, n, seed=7)
        assert n * error**2 == pytest.approx(limit_error(sigma, *pair, dim), rel=0.05)
