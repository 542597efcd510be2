"""`ridgeformer problem` and `eval`: the losses of the library, as a table, as JSON, as CSV and as a picture."""

import csv
import json

import pytest

from commands import call
from ridgeformer import Diag, InputError, LinearTransformer, Problem, compare, evaluate, load, save
from ridgeformer.cli.evaluate import axis


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    save(LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10), path)
    return path


def test_baselines_as_a_table_and_as_json():
    arguments = ["problem", "--noise", "uniform(0,5)", "--sequences", "2000"]
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


def test_eval_prints_the_models_loss_by_either_estimator(model):
    arguments = ["eval", str(model), "--noise", "uniform(0,5)", "--sequences", "3000"]
    exact = json.loads(call(*arguments, "--json").stdout)["results"][0]
    problem = Problem(noise="uniform(0,5)")
    assert exact["loss"] == pytest.approx(evaluate(problem, load(model), sequences=3000).loss, rel=1e-12)
    query = json.loads(call(*arguments, "--estimator", "query", "--json").stdout)["results"][0]
    assert query["error"] > exact["error"]
    assert "model.safetensors" in call(*arguments).stdout
    missing = "--noise is missing. Add it, for example --noise 'uniform(0,5)'"
    assert missing in " ".join(call("eval", str(model)).stderr.split())


def test_losses_along_an_axis_as_a_table_a_picture_json_and_csv(model, tmp_path):
    arguments = ["eval", str(model), "zoo:diag/2/uniform(0,5)", "--noise", "uniform(0,5)", "--sequences", "200"]
    arguments += ["--over", "sigma=0,1,6", "--over", "layer=0,1"]
    for ending in ("png", "svg", "pdf"):
        done = call(*arguments, "--plot", str(tmp_path / f"profile.{ending}"), "--csv", str(tmp_path / "losses.csv"))
        assert (tmp_path / f"profile.{ending}").stat().st_size > 1000
    models = {"model.safetensors": load(model), "zoo:diag/2/uniform(0,5)": load("zoo:diag/2/uniform(0,5)")}
    over = {"sigma": [0, 1, 6], "layer": [0, 1]}
    losses = compare(Problem(noise="uniform(0,5)"), models, over, sequences=200)
    assert str(losses) in done.stdout
    rows = list(csv.DictReader((tmp_path / "losses.csv").read_text().splitlines()))
    assert [float(row["loss"]) for row in rows] == [row["loss"] for row in losses.rows()]
    record = json.loads(call(*arguments, "--json").stdout)
    assert record["axes"] == {"sigma": [0, 1, 6], "layer": [0, 1]}
    assert [row["loss"] for row in record["results"]] == [row["loss"] for row in losses.rows()]
    baselines = json.loads(call(*arguments[:2], *arguments[3:7], "--baselines", "--json").stdout)
    assert [row["name"] for row in baselines["results"]][:2] == ["model.safetensors", "OracleRR"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("layer", ("layer", None)),
        ("layer=1,3", ("layer", [1, 3])),
        ("sigma=0,0.5;2", None),
        ("context=1..40", ("context", "1..40")),
        ("context=5,10..20", ("context", [5, "10..20"])),
        ("noise=uniform(0,1),2", ("noise", ["uniform(0,1)", "2"])),
        ("features=isotropic();spectrum(1,2,3)", ("features", ["isotropic()", "spectrum(1,2,3)"])),
        ("query=none,powerlaw(1)", ("query", [None, "powerlaw(1)"])),
    ],
)
def test_axes_are_read(text, values):
    if values is None:
        with pytest.raises(InputError, match="the values of sigma must be numbers"):
            axis(text)
    else:
        assert axis(text) == values


def test_a_shipped_model_is_evaluated_on_what_it_was_trained_on():
    name = ["eval", "zoo:diag/6/uniform(0,0)", "--sequences", "500"]
    text = call(*name).stdout
    for words in ("d=10 n=20 uniform(0,0)", "zoo:diag/6/uniform(0,0)", "e-1"):  # 1e-10 is not shown as 0.00000
        assert words in text
    assert "d=10 n=30 fixed(1)" in call(*name, "--noise", "fixed(1)", "--context", "30").stdout
