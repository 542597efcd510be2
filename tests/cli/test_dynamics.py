"""Protocols of descents on the command line, and the pictures that `descend` and `runs` draw of them."""

import json

import pytest

from ridgeformer import LinearTransformer, load_run, save
from ridgeformer.cli.training import protocol_of
from ridgeformer.training import SGD, Adam, GradientDescent, GradientFlow, Paper

SMALL = ["--noise", "uniform(0,2)", "--dim", "3", "--context", "6", "--layers", "1", "--sequences", "300"]
DESCENT = ["--steps", "20", "--rate", "1e-3", "--scale", "0.1"]


@pytest.mark.parametrize(
    ("name", "options", "protocol"),
    [
        (
            "descent",
            {"record": "5", "snapshots": "0,10", "batch": "sample(64)"},
            GradientDescent(record=5, snapshots=(0, 10), batch="sample(64)"),
        ),
        (
            "sgd",
            {"batch": "64", "schedule": "0:1,100:0.5", "momentum": 0.5},
            SGD(batch=64, schedule=((0, 1.0), (100, 0.5)), momentum=0.5),
        ),
        ("adam", {"schedule": "cosine", "warmup": 10, "clip": 2.0}, Adam(schedule="cosine", warmup=10, clip=2.0)),
        ("flow", {"time": 5.0, "record": "7"}, GradientFlow(time=5, record=7)),
        ("paper", {"batch": "64"}, Paper(batch=64)),
    ],
)
def test_options_become_a_protocol(name, options, protocol):
    assert protocol_of(name, {**options, "effort": None}) == protocol


@pytest.mark.slow
def test_a_descent_is_trained_stored_and_drawn(call, tmp_path):
    runs = tmp_path / "runs"
    code, out, _ = call("descend", *SMALL, "--family", "full", *DESCENT, "--out", runs, "--plot", tmp_path / "a.png")
    assert code == 0
    assert "20 steps" in out
    (folder,) = runs.iterdir()
    assert load_run(folder).history.step[-1] == 20
    assert call("runs", folder, "--picture", "trajectories", "--plot", tmp_path / "b.svg")[0] == 0
    assert call("runs", folder, "--plot", tmp_path / "c.pdf")[0] == 0
    code, out, errors = call("runs", folder, "--plot", tmp_path / "d.html", "--json")
    assert code == 0
    assert json.loads(out)
    assert errors == f"Drawn to {tmp_path / 'd.html'}.\n"
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "a.png", "b.svg", "c.pdf", "d.html"}
    record = json.loads(call("runs", folder, "--json")[1])
    assert record["course"]["loss"] == load_run(folder).history.loss.tolist()


def test_a_run_starts_from_a_model(call, tmp_path):
    save(LinearTransformer.random("diag", dim=3, layers=1, seed=5), tmp_path / "start.safetensors")
    code, out, _ = call(
        "descend", *SMALL, *DESCENT, "--init", tmp_path / "start.safetensors", "--out", tmp_path, "--json"
    )
    assert code == 0
    assert "init" in json.loads(out)["spec"]
    code, _, errors = call("descend", *SMALL, "--heads", "2", "--init", tmp_path / "start.safetensors")
    assert code != 0
    assert "heads 1, not 2" in errors
