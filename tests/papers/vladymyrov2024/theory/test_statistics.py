"""Statements about random sequences and trained models; each check fails when its statement is broken on purpose."""

import json

import numpy as np
import pytest

from ridgeformer import ConstRR, Diag, GDpp, LinearTransformer, Problem, cli, compare
from ridgeformer.exact import least_excess_loss
from ridgeformer.papers.vladymyrov2024 import theory
from ridgeformer.papers.vladymyrov2024.theory import Bound, fixed_noise, heads, quadratic
from support import draw


def failing(checks):
    return [check.what for check in checks if not check.passed]


# ---- no quadratic ---------------------------------------------------------------------------------------


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


# ---- heads ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_second_head_gains():
    found = heads.second_head(Problem(noise="categorical(1,3)"))
    assert found["departure, one head"] < 1e-12
    assert found["departure, two heads"] > 0.1
    assert found["gain"] > 3 * found["standard error"]


@pytest.mark.long
def test_everything_holds():
    assert not failing(theory.verify(seed=1))


# ---- GD++ and the noise ---------------------------------------------------------------------------------


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


# ---- the command ----------------------------------------------------------------------------------------


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        cli.main(["papers", "verify", *arguments])
    return caught.value.code, capsys.readouterr()


def test_the_command_prints_a_table(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    code, out = run(capsys, "--only", "momentum")
    assert code == 0
    assert "All 6 claims hold" in out.out
    assert "Diagonal layers are gradient descent with momentum" in out.out
    assert out.out.count("holds") == 6


def test_the_command_prints_json(capsys):
    code, out = run(capsys, "--only", "momentum", "--json")
    record = json.loads(out.out)
    assert code == 0
    assert record["passed"] is True
    assert [check["passed"] for check in record["checks"]] == [True] * 6
    assert record["checks"][0]["as_printed"] > 1e-3


def test_a_failing_claim_is_exit_code_one(capsys, monkeypatch):
    class Broken:
        @staticmethod
        def check(seed):
            return [Bound("one thing", 0.5, 0.1), Bound("another", 0.0, 0.1)]

    monkeypatch.setattr(theory.importlib, "import_module", lambda name: Broken)
    code, out = run(capsys, "--only", "momentum")
    assert code == 1
    assert "1 of 2 claims fail" in out.out
    assert out.out.count("FAILS") == 1
    assert json.loads(run(capsys, "--only", "momentum", "--json")[1].out)["passed"] is False


def test_an_unknown_statement_is_refused(capsys):
    code, out = run(capsys, "--only", "gravity")
    assert code == 2
    assert "a statement must be one of linear_model" in out.err
