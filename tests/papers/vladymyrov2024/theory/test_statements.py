"""The statements hold, and every misprint of the paper, planted, is seen."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeformer import Diag, Full, InputError, LinearTransformer, Moments, Problem
from ridgeformer.papers.vladymyrov2024.theory import (
    STATEMENTS,
    Bound,
    linear_model,
    momentum,
    random_model,
    relative_error,
    step_size,
    verify,
)
from support import draw

KINDS = st.sampled_from([("full", 1), ("full", 2), ("diag", 1), ("diag", 3), ("gdpp", 1)])
SHAPE = {"dim": st.integers(1, 5), "context": st.integers(1, 9), "layers": st.integers(1, 6)}


def failing(checks):
    return [check.what for check in checks if not check.passed]


# ---- checks ---------------------------------------------------------------------------------------------


def test_a_check_passes_within_its_bound_only():
    assert Bound("b", 1.0, 1.0).passed
    assert not Bound("b", 1.1, 1.0).passed
    assert not Bound("b", float("nan"), 1.0).passed
    assert not Bound("b", float("inf"), float("nan")).passed


def test_a_check_is_plain_data():
    facts = {"array": np.arange(2), "inner": {"x": np.float32(0.5)}, "bad": float("inf")}
    found = Bound("b", float("nan"), 1.0, facts, as_printed=float("inf")).as_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == {
        "statement": "",
        "what": "b",
        "error": None,
        "bound": 1.0,
        "passed": False,
        "facts": {"array": [0, 1], "inner": {"x": 0.5}, "bad": None},
        "as_printed": None,
    }


def test_relative_error_by_hand():
    assert relative_error([1.0, 2.0], [1.0, 4.0]) == 0.5
    assert relative_error([0.1, 0.0], [0.0, 0.0]) == 0.1
    # A row of size 1 that is wrong by 0.5, beside one of size 100.
    assert relative_error([[0.5, 0.0], [100.0, 0.0]], [[1.0, 0.0], [100.0, 0.0]], apart=1) == 0.5
    assert relative_error([[0.5, 0.0], [100.0, 0.0]], [[1.0, 0.0], [100.0, 0.0]]) == 0.005
    assert relative_error([np.nan], [1.0]) == relative_error([1.0], [np.inf]) == relative_error([1.0], 1.0) == np.inf


# ---- every layer keeps a linear model -------------------------------------------------------------------


@given(kind=KINDS, seed=st.integers(0, 99), **SHAPE)
def test_the_recursion_is_what_the_tokens_show(kind, dim, context, layers, seed):
    model = random_model(kind[0], dim=dim, context=context, layers=layers, heads=kind[1], seed=seed)
    s = Problem(dim, context, "uniform(0,1)").sequences(4, seed=seed)
    states = linear_model.follow(model, s.x, s.y)
    for recursive, plain, product in zip(
        states,
        linear_model.read_off(model, s.x, s.y),
        [getattr(model.trace(s.x, s.y), name) for name in states._fields],
        strict=True,
    ):
        assert relative_error(recursive, product, apart=2) < 1e-10
        assert relative_error(plain, product) < 1e-8  # read off by division by the sum of y^2, which may be small


def test_linear_model_holds_for_many_seeds():
    assert not any(failing(linear_model.check(seed)) for seed in range(10))


def test_the_paper_as_printed_fails():
    for found in linear_model.check():
        assert found.as_printed is None or found.as_printed > 1e-3


# ---- momentum -------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 99), heads=st.integers(1, 3), **SHAPE)
def test_the_momentum_form_is_the_model(dim, context, layers, heads, seed):
    """Also for n < d, where w* is the solution of least norm."""
    model = random_model("diag", dim=dim, context=context, layers=layers, heads=heads, seed=seed)
    moments = draw(dim, context, seed=seed).moments
    found, truth = momentum.terms(model, moments), model.trace(moments)
    scale = 1e-7  # S may be close to singular, and w* large
    for name in found.states._fields:
        assert relative_error(getattr(found.states, name), getattr(truth, name), apart=2) < scale, name
    change = np.diff(truth.w, axis=0)
    np.testing.assert_allclose(sum(found.parts().values()), change, atol=scale * max(1, np.abs(truth.w).max()))


def test_the_terms_of_one_layer_by_hand():
    """S = 2, a = 6, l = 20, so w* = 3 and rho = 2; M = 1, u = 0, w = 0, so F = 1 and g = 6."""
    model = LinearTransformer(Diag(omega=[[[0.1, 0.01], [-0.2, 0.03]]]), 1)
    found = momentum.terms(model, Moments.from_parts([[[2.0]]], [[6.0]], [20.0], 4))
    values = [float(part.ravel()[0]) for part in found[:6]]
    np.testing.assert_allclose(values, [-0.01 * 2 - 0.1 * 2, 0.01, 0.03 * 20, -0.2, -0.2 * 2, 6.0])
    np.testing.assert_allclose(found.states.w.ravel(), [0, 0.2 * 6])
    np.testing.assert_allclose(found.states.u.ravel(), [0, 0.01 * 6])


def test_momentum_holds_for_many_seeds():
    assert not any(failing(momentum.check(seed)) for seed in range(10))


@pytest.mark.parametrize("term", ["Lambda", "Gamma", "s", "Pi", "Phi"])
def test_every_term_matters(term):
    """With one term halved, u or w of the next layer is another one."""
    model = random_model("diag", dim=3, context=9, layers=3, heads=2, seed=1)
    moments = draw(3, 9).moments
    found, truth = momentum.terms(model, moments), model.trace(moments)

    def after(t):
        u, w, g = truth.u[-2], truth.w[-2], t.g[-1]
        times = lambda matrix, vector: np.einsum("bij,bj->bi", matrix[-1], vector)  # noqa: E731
        return (
            u - times(t.Lambda, u) + times(t.Gamma, g),
            w + t.s[-1][:, None] * w - times(t.Pi, g) - times(t.Phi, u),
        )

    assert max(map(relative_error, after(found), (truth.u[-1], truth.w[-1]))) < 1e-10
    broken = found._replace(**{term: getattr(found, term) / 2})
    assert max(map(relative_error, after(broken), (truth.u[-1], truth.w[-1]))) > 1e-4


# ---- step size ------------------------------------------------------------------------------------------


def test_step_size_holds_for_many_seeds():
    assert not any(failing(step_size.check(seed)) for seed in range(3))


def test_the_dropped_part_is_never_small_at_the_papers_size():
    """d = 10, n = 20: at least d / (n - d) = 1 times the kept one, at any noise."""
    ratios = [step_size.dropped_over_kept(10, 20, sigma) for sigma in (0.1, 1, 5, 100, 1e6)]
    assert min(ratios) >= 1
    assert sorted(ratios, reverse=True) == ratios


def test_the_documentation_has_the_numbers_that_are_measured():
    """The row of ratios, and the words about the least of them, the power and the far case."""
    text = (Path(__file__).parents[4] / "docs" / "papers" / "vladymyrov2024" / "theory.md").read_text()
    *_, ratios, power, far = step_size.check()
    row = next(line for line in text.splitlines() if line.startswith("| dropped over kept |"))
    assert row.split(" | ")[1:] == [*(f"{value:.3g}" for value in [*ratios.facts.values()][:-1]), "1.06 |"]
    assert f"{ratios.facts['sigma 20']:.3g}" == "1.06"
    assert f"It falls as sigma^{power.facts['order']:.2f} to its limit" in text
    assert f"the dropped part over the kept one is {far.error:.1g}" in " ".join(text.split())


# ---- verify ---------------------------------------------------------------------------------------------


def test_verify_runs_what_is_asked_in_order():
    seen = []
    found = verify(["momentum", "linear_model"], progress=lambda *state: seen.append(state))
    assert seen == [("linear_model", 0, 2), ("momentum", 1, 2)]
    assert {check.statement for check in found} == {"linear_model", "momentum"}
    assert verify("momentum", seed=3)[0].error != found[8].error


def test_every_statement_is_there_under_its_name():
    import importlib

    for name in STATEMENTS:
        assert callable(importlib.import_module(f"ridgeformer.papers.vladymyrov2024.theory.{name}").check)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: verify(["gravity"]), "a statement must be one of linear_model, quadratic"),
        (lambda: verify(["momentum"], seed=-1), "seed must be at least 0"),
        (
            lambda: momentum.terms(LinearTransformer(Full(np.ones((1, 1, 3, 3)), np.ones((1, 1, 3, 3)))), None),
            "for Diag and GD++",
        ),
        (lambda: step_size.dropped_over_kept(10, 10, 1.0), "residuals need n > d and noise"),
        (lambda: step_size.dropped_over_kept(10, 20, 0.0), "residuals need n > d and noise"),
        (lambda: linear_model.follow(random_model("diag", dim=2, context=3, layers=1), [[1.0]], [1.0]), "x must have"),
    ],
)
def test_bad_input_is_refused_in_words(make, words):
    with pytest.raises(InputError) as caught:
        make()
    assert words in str(caught.value)
