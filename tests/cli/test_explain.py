"""The sections of explain: the numbers of the library as a table, as JSON, as CSV and as a picture."""

import csv
import json

import pytest

from ridgeformer import Problem, save
from ridgeformer.explanation import ablate, compare_algorithms, patch_noise
from support import tame_model

PROBLEM = Problem(3, 8, "uniform(0,2)")
OPTIONS = ["--noise", "uniform(0,2)", "--context", "8", "--sequences", "30", "--seed", "1"]


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    save(tame_model("diag", 3, 2, 1, 8), path)
    return path


def test_patching(call, model, tmp_path):
    patching = patch_noise(PROBLEM, tame_model("diag", 3, 2, 1, 8), low=0.5, high=1.5, sequences=30, seed=1)
    section = ["explain", model, "--section", "patching", *OPTIONS, "--low", "0.5", "--high", "1.5"]
    code, out, errors = call(*section, "--plot", tmp_path / "patch.png")
    assert errors.endswith(f"Drawn to {tmp_path / 'patch.png'}.\n")
    assert "Drawn" not in out
    assert code == 0
    assert str(patching) in out
    assert "model.safetensors on d=3 n=8 uniform(0,2)" in out
    assert (tmp_path / "patch.png").exists()
    code, out, _ = call(*section, "--json")
    assert json.loads(out)["restored"] == patching.as_dict()["restored"]


def test_algorithms(call, model, tmp_path):
    algorithms = compare_algorithms(PROBLEM, tame_model("diag", 3, 2, 1, 8), iterations=9, sequences=30, seed=1)
    section = ["explain", model, "--section", "algorithms", *OPTIONS, "--iterations", "9"]
    code, out, _ = call(*section, "--plot", tmp_path / "map.pdf")
    assert code == 0
    assert str(algorithms) in out
    assert (tmp_path / "map.pdf").exists()
    code, out, _ = call(*section, "--json")
    facts = json.loads(out)
    assert facts["relative_error"] == algorithms.as_dict()["relative_error"]
    assert facts["problem"] == "d=3 n=8 uniform(0,2)"


def test_ablation_as_csv_and_several_sections_as_json(call, model, tmp_path):
    losses = ablate(PROBLEM, tame_model("diag", 3, 2, 1, 8), sequences=30, seed=1)
    section = ["explain", model, "--section", "ablation", *OPTIONS]
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
