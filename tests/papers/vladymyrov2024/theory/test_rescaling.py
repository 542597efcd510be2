"""Adaptive rescaling: two layers, two noise levels, the ridge solution in the limit."""

import json
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ridgeformer import InputError, Moments
from ridgeformer.papers.vladymyrov2024.theory.rescaling import (
    check,
    decay,
    limit_error,
    measure,
    printed_solve,
    rescaling_model,
    solve,
    theorem_moments,
)

levels = st.floats(0, 20)


@pytest.mark.parametrize("seed", range(3))
def test_every_claim_holds(seed):
    for claim in check(seed):
        assert claim.passed, claim
        assert claim.as_printed > claim.bound
        assert json.dumps(claim.as_dict())


@pytest.mark.parametrize(
    "broken",
    [
        printed_solve,
        lambda s, t: (solve(s, t)[0], -solve(s, t)[1]),  # a second layer that enlarges
        lambda s, t: (solve(s, t)[0], 0.0),  # no second layer
        lambda s, t: (solve(s, t)[0], solve(s, 1.1 * t)[1]),  # another level
    ],
)
def test_broken_parameters_turn_the_claims_red(broken):
    """Save at sigma = 0, where l_1 / n vanishes and the second layer does nothing."""
    for claim in check(0, broken)[1:]:
        if "at 0:" not in claim.what or broken is printed_solve:
            assert not claim.passed, claim


@given(levels, levels)
def test_both_equations_hold(first, second):
    assume(first != second)
    yx, yy = solve(first, second)
    for sigma in (first, second):
        assert -(1 + sigma**2 * yy) * yx == pytest.approx(1 / (1 + sigma**2), rel=1e-9)


def test_only_yx_then_only_yy():
    omega = rescaling_model(1, 3, context=50, dim=4).family.omega
    assert np.argwhere(omega).tolist() == [[0, 1, 0], [1, 1, 1]]


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


def test_between_the_levels_nothing_converges():
    fit = decay(1.0, 0.5, 2.0, contexts=(1000, 10_000, 100_000))
    assert abs(fit.power) < 0.1
    assert fit.errors[-1] > 0.1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1.0, 1.0, 10, 3), "the two noise levels must differ; got 1.0"),
        ((-1.0, 1.0, 10, 3), "sigma_1 must be at least 0; got -1.0"),
        ((1.0, -0.1, 10, 3), "sigma_2 must be at least 0; got -0.1"),
        ((math.nan, 1.0, 10, 3), "sigma_1 must be at least 0; got nan"),
        ((math.inf, 1.0, 10, 3), "noise levels must be finite"),
        ((1.0, "2", 10, 3), "sigma_2 must be a number"),
        ((1.0, 2.0, 0, 3), "the context n must be at least 1; got 0"),
        ((1.0, 2.0, 1.5, 3), "the context n must be a whole number; got 1.5"),
        ((1.0, 2.0, 10, 0), "dim must be at least 1"),
    ],
)
def test_bad_input_is_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        rescaling_model(*arguments)


def test_a_power_needs_three_contexts():
    with pytest.raises(InputError, match="three contexts at least; got 2"):
        decay(1.0, 1.0, 2.0, contexts=(10, 100))
