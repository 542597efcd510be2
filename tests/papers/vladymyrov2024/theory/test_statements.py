"""The statements hold, and every misprint of the paper, planted, is seen."""

import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from ridgeformer import ConstRR, Diag, GDpp, LinearTransformer, Moments, Problem, compare
from ridgeformer.exact import least_excess_loss
from ridgeformer.papers.vladymyrov2024.theory import fixed_noise, heads, momentum, quadratic, rescaling, step_size
from ridgeformer.papers.vladymyrov2024.theory.verification import Bound, random_model, relative_error, verify
from support import draw

SHAPE = {"dim": st.integers(1, 5), "context": st.integers(1, 9), "layers": st.integers(1, 6)}


def test_a_check_passes_within_its_bound_only():
    assert Bound("b", 1.0, 1.0).passed
    assert not Bound("b", 1.1, 1.0).passed
    assert not Bound("b", float("nan"), 1.0).passed
    assert not Bound("b", float("inf"), float("nan")).passed


def test_a_check_is_plain_data():
    facts = {"array": np.arange(2), "inner": {"x": np.float32(0.5)}, "bad": float("inf")}
    found = Bound("b", float("nan"), 1.0, facts, as_printed=float("inf")).as_dict()
    plain = {"statement": "", "what": "b", "error": None, "bound": 1.0, "passed": False, "as_printed": None}
    plain["facts"] = {"array": [0, 1], "inner": {"x": 0.5}, "bad": None}
    assert json.loads(json.dumps(found, allow_nan=False)) == plain


def test_relative_error_by_hand():
    assert relative_error([1.0, 2.0], [1.0, 4.0]) == 0.5
    assert relative_error([0.1, 0.0], [0.0, 0.0]) == 0.1
    # A row of size 1 that is wrong by 0.5, beside one of size 100.
    assert relative_error([[0.5, 0.0], [100.0, 0.0]], [[1.0, 0.0], [100.0, 0.0]], apart=1) == 0.5
    assert relative_error([[0.5, 0.0], [100.0, 0.0]], [[1.0, 0.0], [100.0, 0.0]]) == 0.005
    assert relative_error([np.nan], [1.0]) == relative_error([1.0], [np.inf]) == relative_error([1.0], 1.0) == np.inf


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


def test_the_documentation_has_the_numbers_that_are_measured():
    """The row of ratios, and the words about the least of them, the power and the far case."""
    text = (Path(__file__).parents[4] / "docs" / "papers" / "vladymyrov2024" / "theory.md").read_text()
    *_, ratios, power, far = step_size.check()
    row = next(line for line in text.splitlines() if line.startswith("| dropped over kept |"))
    assert row.split(" | ")[1:] == [*(f"{value:.3g}" for value in [*ratios.facts.values()][:-1]), "1.06 |"]
    assert f"{ratios.facts['sigma 20']:.3g}" == "1.06"
    assert f"It falls as sigma^{power.facts['order']:.2f} to its limit" in text
    assert f"the dropped part over the kept one is {far.error:.1g}" in " ".join(text.split())


def test_verify_runs_what_is_asked_in_order():
    seen = []
    found = verify(["momentum", "linear_model"], progress=lambda *state: seen.append(state))
    assert seen == [("linear_model", 0, 2), ("momentum", 1, 2)]
    assert {check.statement for check in found} == {"linear_model", "momentum"}
    assert verify("momentum", seed=3)[0].error != found[8].error


# ---- Statements about random sequences and trained models; each check fails when its statement is br


def failing(checks):
    return [check.what for check in checks if not check.passed]


def test_largest_square_is_the_best_regression():
    """1 - R^2 is what least squares leaves of x(1)^2; and no other weights come closer."""
    s = Problem(3, 12, "fixed(1)").sequences(4)
    goal = s.x[:, :, 0] ** 2
    for y in (None, s.y):
        for i, found in enumerate(quadratic.largest_square(s.x, y)):
            columns = s.x[i] if y is None else np.column_stack([s.x[i], s.y[i]])
            left = np.linalg.lstsq(columns, goal[i], rcond=None)[1][0]
            assert 1 - found == pytest.approx(left / (goal[i] @ goal[i]), rel=1e-9)


def test_the_length_for_a_tenth_by_simulation():
    """n R^2 tends to 5 chi2(1) + chi2(d - 1)."""
    rng = np.random.default_rng(0)
    for dim in (1, 2, 10):
        rest = rng.chisquare(dim - 1, 400_000) if dim > 1 else 0.0
        quantile = np.quantile(5 * rng.chisquare(1, 400_000) + rest, 0.99)
        assert quadratic.context_for(dim) == pytest.approx(quantile / 0.01, rel=0.02)
    assert quadratic.context_for(2, cosine=0.2) == pytest.approx(quadratic.context_for(2) / 4, abs=1)


@pytest.mark.long
def test_a_second_head_gains():
    found = heads.second_head(Problem(noise="categorical(1,3)"))
    assert found["departure, one head"] < 1e-12
    assert found["departure, two heads"] > 0.1
    assert found["gain"] > 3 * found["standard error"]


@pytest.mark.long
def test_everything_holds():
    assert not failing(verify(seed=1))


def test_the_risk_of_one_layer_by_hand():
    """w = c a: 1/2 E sum ((1 - c l)^2 + v c^2 l) = d/2 (1 - 2 c n + c^2 n (n + d + 1 + v))."""
    d, n, c, v = 4, 9, 0.05, 2.5
    model = LinearTransformer(GDpp(omega=[[0.3, -c]]), d)
    expected = d / 2 * (1 - 2 * c * n + c**2 * n * (n + d + 1 + v))
    assert fixed_noise.risk(Problem(d, n, "fixed(1)"), model, v) == pytest.approx(expected, rel=1e-10)


def test_the_filter_is_what_the_model_does_along_an_eigenvector():
    model = LinearTransformer.random("gdpp", dim=3, layers=3, context=8, scale=0.5)
    m = draw(3, 8).moments
    values, vectors = np.linalg.eigh(m.S[0])
    weights = vectors @ (fixed_noise.filtered(model, values) * (vectors.T @ np.linalg.solve(m.S[0], m.b[0])))
    np.testing.assert_allclose(weights, model.weights(m)[0], rtol=1e-9)


def test_one_rescaling_layer_is_enough_to_beat_constrr():
    """The bound is GD++'s alone: its best model, then one layer of omega_yy, which sees the noise, is far below it."""
    problem = Problem(noise="categorical(1,3)")
    best = least_excess_loss(problem, 3).to_diag().omega
    rescaled = Diag(omega=np.concatenate([best, [[[0, 0], [0, -4e-4]]]]))
    chosen = {"const": ConstRR.tune(problem), "gdpp": LinearTransformer(Diag(omega=best), 10)}
    found = compare(problem, {**chosen, "rescaled": LinearTransformer(rescaled, 10)}, sequences=10_000)
    assert found.difference("gdpp", "const")[0] > 0
    gain, error = found.difference("const", "rescaled")
    assert gain > 10 * error


def test_the_command_prints_a_table_and_json(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    code, text, _ = call("papers", "verify", "--only", "momentum")
    assert code == 0
    assert "All 6 claims hold" in text
    assert "Diagonal layers are gradient descent with momentum" in text
    assert text.count("holds") == 6
    code, text, _ = call("papers", "verify", "--only", "momentum", "--json")
    record = json.loads(text)
    assert code == 0
    assert record["passed"] is True
    assert [check["passed"] for check in record["checks"]] == [True] * 6
    assert record["checks"][0]["as_printed"] > 1e-3


def test_a_failing_claim_is_exit_code_one(call, monkeypatch):
    class Broken:
        @staticmethod
        def check(seed):
            return [Bound("one thing", 0.5, 0.1), Bound("another", 0.0, 0.1)]

    monkeypatch.setattr(importlib, "import_module", lambda name: Broken)
    code, text, _ = call("papers", "verify", "--only", "momentum")
    assert code == 1
    assert "1 of 2 claims fail" in text
    assert text.count("FAILS") == 1
    assert json.loads(call("papers", "verify", "--only", "momentum", "--json")[1])["passed"] is False


# ---- Adaptive rescaling: two layers, two noise levels, the ridge solution in the limit


levels = st.floats(0, 20)


@given(levels, levels)
def test_both_equations_hold(first, second):
    assume(first != second)
    yx, yy = rescaling.solve(first, second)
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
    model = rescaling.rescaling_model(0.5, 2.0, n, dim)
    predicted = model.predict(x, y, np.broadcast_to(np.eye(dim), (40, dim, dim)))
    ridge = np.array([np.linalg.solve(a.T @ a + sigma**2 * np.eye(dim), a.T @ b) for a, b in zip(x, y, strict=True)])
    error = np.sqrt(np.mean(np.square(predicted - ridge).sum(1)))
    # 40 sequences and n = 400: within 40 % of the limit, where the wrong sign alone would be tens of times more.
    assert math.sqrt(n) * error == pytest.approx(math.sqrt(rescaling.limit_error(sigma, 0.5, 2.0, dim)), rel=0.4)


def test_moments_have_the_law_of_the_theorems_tokens():
    n, dim, sigma, count = 30, 2, 1.5, 20_000
    draw = rescaling.theorem_moments(sigma, n, dim, count, seed=2)
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
        error = rescaling.measure(rescaling.rescaling_model(*pair, n, dim), sigma, n, seed=7)
        assert n * error**2 == pytest.approx(rescaling.limit_error(sigma, *pair, dim), rel=0.05)
