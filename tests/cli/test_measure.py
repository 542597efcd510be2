"""`ridgeformer baselines`, `eval` and `profile`."""

import json
import warnings

import pytest

from commands import call
from ridgeformer import Diag, LinearTransformer, OracleRR, Problem, cli, evaluate, load, save


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    save(LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10), path)
    return path


def test_baselines_as_a_table_and_as_json():
    arguments = ["baselines", "--noise", "uniform(0,5)", "--sequences", "2000"]
    done = call(*arguments)
    table = done.stdout
    assert done.stderr == ""  # OracleRR is below the floor by definition
    record = json.loads(call(*arguments, "--json").stdout)
    assert record["problem"] == "d=10 n=20 uniform(0,5)"
    names = [result["name"] for result in record["results"]]
    assert names == ["OracleRR", "ConstRR", "LeastSquares", "AdaRR", "TunedRR", "IterativeRR(100)", "Bayes floor"]
    for result in record["results"]:
        assert result["name"] in table
        line = next(line for line in table.splitlines() if line.startswith(result["name"]))
        shown = "0" if result["name"] == "OracleRR" else f"{result['loss']:#.4g}"
        assert line.removeprefix(result["name"]).split()[0] == shown
    assert max(map(len, table.splitlines())) <= 100


def test_a_loss_below_the_floor_is_a_warning_of_one_line(monkeypatch, capsys):
    class Cheater:
        def __init__(self, prior):
            self.oracle = OracleRR(prior)

        def weights(self, moments):
            return self.oracle.weights(moments)

    monkeypatch.setattr("ridgeformer.predictors.choice.AdaRR", Cheater)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(SystemExit) as ended:
            cli.main(["baselines", "--noise", "uniform(0,5)", "--sequences", "2000", "--json"])
    assert ended.value.code == 0
    out, error = capsys.readouterr()
    assert json.loads(out)["results"]
    (line,) = error.splitlines()  # OracleRR, which knows sigma and says so, is none
    assert line.startswith(
        "ridgeformer: warning: no predictor can have an expected loss below the Bayes floor; AdaRR has"
    )


def test_baselines_without_enough_examples_say_what_is_left_out():
    table = call("baselines", "--noise", "fixed(1)", "--context", "5", "--sequences", "500").stdout
    assert "needs n > 10 examples, and n is 5." in table
    assert "Bayes floor" in table
    assert "TunedRR  " not in table


def test_eval_prints_the_models_loss_by_either_estimator(model):
    arguments = ["eval", str(model), "--noise", "uniform(0,5)", "--sequences", "3000"]
    exact = json.loads(call(*arguments, "--json").stdout)["results"][0]
    problem = Problem(noise="uniform(0,5)")
    assert exact["loss"] == pytest.approx(evaluate(problem, load(model), sequences=3000).loss, rel=1e-12)
    assert "times smaller" in call(*arguments, "--estimator", "query").stdout
    assert "model.safetensors" in call(*arguments).stdout


def test_profile_prints_and_draws(model, tmp_path):
    arguments = ["profile", str(model), "--noise", "uniform(0,5)", "--sequences", "200"]
    for ending in ("png", "svg", "pdf"):
        done = call(*arguments, "--plot", str(tmp_path / f"profile.{ending}"), "--json")
        assert (tmp_path / f"profile.{ending}").stat().st_size > 1000
    record = json.loads(done.stdout)
    assert len(record["sigma"]) == len(record["loss"]) == len(record["bayes"]) == 42
    assert record["sigma"][-1] == 6
    assert record["sequences"] == 200
    text = call(*arguments).stdout
    ends = [line.split() for line in text.splitlines() if line.lstrip().startswith(("5.000", "6.000"))]
    assert [end[-1] for end in ends] == ["yes", "no"]
    assert "They raise the mean" not in text
    wild = call("profile", "zoo:full/7/uniform(0,1)", "--sequences", "200").stdout
    assert "noise levels at least one of 200 sequences exploded (a loss above 1000)" in wild
