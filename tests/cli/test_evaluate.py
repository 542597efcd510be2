"""`ridgeformer problem` and `eval`: the losses of the library, as a table, as JSON, as CSV and as a picture."""

import csv
import json

import numpy as np
import pytest

from commands import call, refused_line
from ridgeformer import Diag, LinearTransformer, Problem, compare, evaluate, load, save
from ridgeformer.cli.evaluate import axis
from ridgeformer.explanation import ablate, compare_algorithms, patch_noise
from ridgeformer.loading import with_record
from support import each, refused, tame_model


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


@each(
    ("layer", ("layer", None)),
    ("layer=1,3", ("layer", [1, 3])),
    ("sigma=0,0.5;2", None),
    ("context=1..40", ("context", "1..40")),
    ("context=5,10..20", ("context", [5, "10..20"])),
    ("noise=uniform(0,1),2", ("noise", ["uniform(0,1)", "2"])),
    ("features=isotropic();spectrum(1,2,3)", ("features", ["isotropic()", "spectrum(1,2,3)"])),
    ("query=none,powerlaw(1)", ("query", [None, "powerlaw(1)"])),
)
def test_axes_are_read(text, values):
    if values is None:
        refused(lambda: axis(text), "the values of sigma must be numbers")
    else:
        assert axis(text) == values


def test_a_shipped_model_is_evaluated_on_what_it_was_trained_on():
    name = ["eval", "zoo:diag/6/uniform(0,0)", "--sequences", "500"]
    text = call(*name).stdout
    for words in ("d=10 n=20 uniform(0,0)", "zoo:diag/6/uniform(0,0)", "e-1"):  # 1e-10 is not shown as 0.00000
        assert words in text
    assert "d=10 n=30 fixed(1)" in call(*name, "--noise", "fixed(1)", "--context", "30").stdout


# ---- `ridgeformer edit`: the same models as in Python, stored with their problem, and errors in word


NAME, OTHER = "zoo:diag/3/uniform(0,2)", "zoo:gdpp/2/uniform(0,2)"
FEW = ["--sequences", "300", "--seed", "4"]
PROBLEM = Problem(noise="uniform(0,2)")
MODEL = load("zoo:diag/3/uniform(0,2)")
STACKED = load("zoo:gdpp/2/uniform(0,2)")
OMEGA = "2.omega=[[0,0],[-0.03,0]]"


@each(
    (["--set", "3.omega_yy=0"], MODEL.edit(2, omega_yy=0)),
    (["--set", "1.omega_xy=1e-3", "--set", "1.omega_yy=0"], MODEL.edit(0, omega_xy=1e-3, omega_yy=0)),
    (["--set", "3.omega_yy=0", "--set", OMEGA], MODEL.edit(2, omega_yy=0).edit(1, omega=[[0, 0], [-0.03, 0]])),
    (["--set", "2.P=0"], MODEL.edit(1, P=0)),
    (["--without", "2"], MODEL.without(1)),
    (["--without", "1", "--without", "3"], MODEL.without(2).without(0)),
    (["--truncate", "2"], MODEL.truncate(2)),
    (["--truncate", "2", "--without", "1"], MODEL.truncate(2).without(0)),
    (["--stack", OTHER], MODEL.stack(STACKED)),
    (
        ["--set", "3.omega_yy=0", "--without", "1", "--stack", OTHER],
        MODEL.edit(2, omega_yy=0).without(0).stack(STACKED),
    ),
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_edits_are_those_of_python(options, expected, tmp_path):
    """All options count layers of the original from 1. The stored model is the same to the bit.

    Losses are compared to rounding: means over one and over several predictors are summed in another order.
    """
    path = tmp_path / "edited.safetensors"
    done = call("edit", NAME, *FEW, *options, "--out", str(path), "--json")
    assert done.returncode == 0, done.stderr
    stored, record = with_record(path)
    assert stored.family.name == expected.family.name
    for name, value in expected.family.arrays.items():
        assert np.array_equal(stored.family.arrays[name], value)
    facts = json.loads(done.stdout)
    assert record["edited"] == {"model": NAME, "edits": facts["edits"]}
    original, edited = facts["results"]
    assert (facts["problem"], facts["out"]) == (str(PROBLEM), str(path))
    assert (original["name"], edited["name"]) == (NAME, "edited")
    assert original["loss"] == pytest.approx(evaluate(PROBLEM, MODEL, sequences=300, seed=4).loss, rel=1e-12)
    assert edited["loss"] == pytest.approx(evaluate(PROBLEM, expected, sequences=300, seed=4).loss, rel=1e-12)
    (again,) = json.loads(call("eval", str(path), *FEW, "--json").stdout)["results"]
    assert again["loss"] == pytest.approx(edited["loss"], rel=1e-12)


def test_the_table_names_both_models_and_the_edits():
    text = call("edit", NAME, *FEW, "--set", "3.omega_yy=0", "--truncate", "3").stdout
    assert [line.split()[0] for line in text.splitlines() if line.startswith((NAME, "edited "))] == [NAME, "edited"]
    assert "layers=3, heads=2); 3.omega_yy=0; truncate 3." in text
    assert "Add --out edited.safetensors to store" in text


@each(
    ([], "an edit needs at least one of --set, --without, --truncate and --stack; got none. Add --set"),
    (["--set", "omega_yy=0"], "--set takes LAYER.NAME=VALUE, with layers from 1; got 'omega_yy=0'. Write 4.omega"),
    (["--set", "0.omega_yy=0"], "a layer must be a number from 1 to 3, the layers of the model; got 0"),
    (["--set", "1.omega_yy=a"], "the value of a parameter must be a number or a list of numbers; got 'a'"),
    (["--set", "1.omega_yy=" + "[" * 100_000], "must be a number or a list of numbers; got '[[["),
    (["--set", "2.omega=[[0,0],[1]]"], "omega must be a rectangular array; got [[0, 0], [1]]. Pass rows of equal"),
    (["--set", "1.omega_yy=0", "--set", "1.omega_yy=1"], "each parameter of a layer once; got 1.omega_yy twice"),
    (["--set", "1.omega_yy=0", "--set", "1.P=0"], "an edit is of the omegas, of P and Q"),
    (["--without", "x"], "Invalid value for '--without': 'x' is not a valid integer"),
    (["--truncate", "1", "--without", "1"], "a model needs at least one layer"),
    (["--truncate", "2", "--set", "3.omega_yy=0"], "--set must change a layer that stays; got layer 3 with"),
    (["--without", "3", "--set", "3.omega_yy=0"], "a layer that stays; got layer 3 with --without 3. Leave out"),
    (["--stack", "/nonexistent"], "there is no file '/nonexistent'"),
    (["--without", "1", "--out", ""], "'--out': a path must not be empty"),
    (["--without", "1", "--out", "/nonexistent/x.safetensors"], "a file needs a writable folder; /nonexistent"),
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_bad_edits_are_refused_in_one_line(options, words):
    refused_line(words, "edit", NAME, *FEW, *options)


# ---- The sections of explain: the numbers of the library as a table, as JSON, as CSV and as a pictur


READ = Problem(3, 8, "uniform(0,2)")
OPTIONS = ["--noise", "uniform(0,2)", "--context", "8", "--sequences", "30", "--seed", "1"]


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "model.safetensors"
    save(tame_model("diag", 3, 2, 1, 8), path)
    return path


@each(
    ("patching", patch_noise, {"low": 0.5, "high": 1.5}, "png", "restored"),
    ("algorithms", compare_algorithms, {"iterations": 9}, "pdf", "relative_error"),
)
def test_sections_are_those_of_python(section, measure, settings, ending, numbers, call, small, tmp_path):
    result = measure(READ, tame_model("diag", 3, 2, 1, 8), **settings, sequences=30, seed=1)
    plot = tmp_path / f"section.{ending}"
    settings = [word for name, value in settings.items() for word in (f"--{name}", value)]
    arguments = ["explain", small, "--section", section, *OPTIONS, *settings]
    code, out, errors = call(*arguments, "--plot", plot)
    assert code == 0
    assert errors.endswith(f"Drawn to {plot}.\n")
    assert "Drawn" not in out
    assert str(result) in out
    assert "model.safetensors on d=3 n=8 uniform(0,2)" in out
    assert plot.exists()
    facts = json.loads(call(*arguments, "--json")[1])
    assert facts[numbers] == result.as_dict()[numbers]
    assert facts["problem"] == "d=3 n=8 uniform(0,2)"


def test_ablation_as_csv_and_several_sections_as_json(call, small, tmp_path):
    losses = ablate(READ, tame_model("diag", 3, 2, 1, 8), sequences=30, seed=1)
    section = ["explain", small, "--section", "ablation", *OPTIONS]
    code, out, _ = call(*section, "--csv", tmp_path / "ablation.csv")
    assert code == 0
    assert "nothing" in out
    rows = list(csv.DictReader((tmp_path / "ablation.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == [row["name"] for row in losses.rows()]
    assert [float(row["loss"]) for row in rows] == [row["loss"] for row in losses.rows()]
    assert [int(row["exploded"]) for row in rows] == [row["exploded"] for row in losses.rows()]
    code, out, _ = call(*section, "--csv", "-")
    assert out == (tmp_path / "ablation.csv").read_text()
    code, out, _ = call(*section, "--section", "patching", "--json")
    assert json.loads(out).keys() == {"ablation", "patching"}
