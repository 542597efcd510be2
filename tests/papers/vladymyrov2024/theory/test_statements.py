"""The statements hold, and every misprint of the paper, planted, is seen."""

import json
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ridgeformer import Diag, LinearTransformer, Moments, Problem
from ridgeformer.papers.vladymyrov2024.theory import (
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


# ---- step size ------------------------------------------------------------------------------------------


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
