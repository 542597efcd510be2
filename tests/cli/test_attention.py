"""`ridgeformer attention`: trains, compares, draws and resumes."""

import json

import pytest

pytest.importorskip("torch")

SMALL = ["--dim", "2", "--context", "6", "--noise", "uniform(0,1)", "--layers", "1", "--width", "8", "--steps", "6"]
SMALL += ["--batch", "16", "--sequences", "200"]


def test_attention_compares_with_the_floor_draws_and_resumes(call, tmp_path):
    options = ["attention", *SMALL, "--out", str(tmp_path / "runs"), "--plot", str(tmp_path / "plot.png")]
    code, out, _ = call(*options)
    assert code == 0
    assert "1 layer, 6 steps of 16 sequences of d=2 n=6 uniform(0,1)" in out
    for name in ("softmax", "linear", "Full, in moment form", "ConstRR", "best predictor", "ratio"):
        assert name in out
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["linear.safetensors", "softmax.safetensors"]
    code, out, _ = call(*options[:-2], "--json")
    found = json.loads(out)
    assert found["steps"] == 6
    assert found["attention"] == ["softmax", "linear"]
    assert found["results"]["softmax"]["floor"] > 0
    code, _, err = call(*options[:-2], "--rate", "0.1")
    assert (code, "a checkpoint must belong to the same training" in err) == (2, True)


def test_odd_options_are_refused_in_words(call):
    code, _, err = call("attention", *SMALL, "--heads", "3")
    assert code == 2
    assert "heads must divide the width; got 3 heads, width 8" in err
    code, _, err = call("attention", *SMALL, "--plot", "plot.txt")
    assert "must end in .png, .pdf or .svg" in err
