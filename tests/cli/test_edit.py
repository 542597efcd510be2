"""`ridgeformer edit`: the same models as in Python, stored with their problem, and errors in words."""

import json

import numpy as np
import pytest

from commands import call
from ridgeformer import Problem, evaluate, load
from ridgeformer.loading import load_with_record

NAME, OTHER = "zoo:diag/3/uniform(0,2)", "zoo:gdpp/2/uniform(0,2)"
FEW = ["--sequences", "300", "--seed", "4"]
PROBLEM = Problem(noise="uniform(0,2)")
MODEL = load("zoo:diag/3/uniform(0,2)")
STACKED = load("zoo:gdpp/2/uniform(0,2)")
OMEGA = "2.omega=[[0,0],[-0.03,0]]"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
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
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_edits_are_those_of_python(tmp_path, options, expected):
    """All options count layers of the original from 1. The stored model is the same to the bit.

    Losses are compared to rounding: means over one and over several predictors are summed in another order.
    """
    path = tmp_path / "edited.safetensors"
    done = call("edit", NAME, *FEW, *options, "--out", str(path), "--json")
    assert done.returncode == 0, done.stderr
    stored, record = load_with_record(path)
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


@pytest.mark.parametrize(
    ("options", "words"),
    [
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
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_bad_edits_are_refused_in_one_line(options, words):
    done = call("edit", NAME, *FEW, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ridgeformer: error: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
