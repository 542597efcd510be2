"""The commands patch and algorithms: the numbers of the library, as a table, as JSON and as a picture."""

import json

import pytest

from ridgeformer import Problem, compare_algorithms, save
from ridgeformer.explanation import patch_noise
from support import tame_model

PROBLEM = Problem(3, 8, "uniform(0,2)")
OPTIONS = ["--noise", "uniform(0,2)", "--context", "8", "--sequences", "30", "--seed", "1"]


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    save(tame_model("diag", 3, 2, 1, 8), path)
    return path


def test_patch(call, model, tmp_path):
    found = patch_noise(PROBLEM, tame_model("diag", 3, 2, 1, 8), low=0.5, high=1.5, sequences=30, seed=1)
    levels = ["--low", "0.5", "--high", "1.5"]
    code, out, errors = call("patch", model, *OPTIONS, *levels, "--plot", tmp_path / "patch.png")
    assert errors.endswith(f"Drawn to {tmp_path / 'patch.png'}.\n")
    assert "Drawn" not in out
    assert code == 0
    assert str(found) in out
    assert "model.safetensors on d=3 n=8 uniform(0,2)" in out
    assert (tmp_path / "patch.png").exists()
    code, out, _ = call("patch", model, *OPTIONS, *levels, "--json")
    assert json.loads(out)["restored"] == found.as_dict()["restored"]


def test_algorithms(call, model, tmp_path):
    found = compare_algorithms(PROBLEM, tame_model("diag", 3, 2, 1, 8), iterations=9, sequences=30, seed=1)
    code, out, _ = call("algorithms", model, *OPTIONS, "--iterations", "9", "--plot", tmp_path / "map.pdf")
    assert code == 0
    assert str(found) in out
    assert (tmp_path / "map.pdf").exists()
    code, out, _ = call("algorithms", model, *OPTIONS, "--iterations", "9", "--json")
    facts = json.loads(out)
    assert facts["relative_error"] == found.as_dict()["relative_error"]
    assert facts["problem"] == "d=3 n=8 uniform(0,2)"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["patch", "--low", "2", "--high", "1"],
            "below the higher one; got 2 and 1. Pass low=1 and high=4, for example; on the command line --low 1",
        ),
        (["patch", "--plot", "x.gif"], "must end in .png, .pdf or .svg"),
        (["algorithms", "--iterations", "0"], "iterations must be at least 1; got 0"),
        (["algorithms", "--dim", "4"], "dimension"),
    ],
)
def test_bad_input_is_one_line(call, model, arguments, words):
    code, _, message = call(arguments[0], model, *OPTIONS, *arguments[1:])
    assert code == 2
    assert words in message
    assert message.count("\n") == 1


@pytest.mark.parametrize("command", ["patch", "algorithms"])
def test_help_has_examples(call, command):
    code, out, _ = call(command, "--help")
    assert code == 0
    assert "Examples:" in out
    assert f"ridgeformer {command} 'zoo:" in out
