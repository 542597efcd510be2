"""`ridgeformer train` and `runs`."""

import json
import re
import signal
import time

from commands import call, interruptible
from ridgeformer import load_run
from support import LONGEST


def test_runs_lists_the_best_of_a_problem_first(tmp_path):
    for noise, layers in (("uniform(0,1)", "1"), ("uniform(0,1)", "2"), ("fixed(2)", "2")):
        small = ["--dim", "2", "--context", "4", "--family", "gdpp", "--sequences", "500"]
        call("train", *small, "--noise", noise, "--layers", layers, "--out", str(tmp_path))
    listed = [line.split()[-1] for line in call("runs", str(tmp_path)).stdout.splitlines()[1:]]
    kinds = [re.match(r"gdpp-(\d)x1-(fixed|uniform)", name).groups() for name in listed]
    assert kinds == [("2", "fixed"), ("1", "fixed"), ("2", "uniform"), ("1", "uniform")]


TRAIN = ["train", "--family", "diag", "--layers", "2", "--noise", "uniform(0,3)", "--dim", "3", "--context", "6"]
TRAIN += ["--sequences", "5000", "--effort", "0.2"]


def test_training_and_showing(tmp_path):
    done = call(*TRAIN, "--out", str(tmp_path / "runs"), "--plot", str(tmp_path / "curve.png"))
    assert done.returncode == 0, done.stderr
    assert "diag, 2 layers, d=3 n=6 uniform(0,3), seed 0" in done.stdout
    for word in ("status", "; ratio: ", "exploded: 0 of 5,000", "with the models that it was grown from", "stored in"):
        assert word in done.stdout
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    again = json.loads(call(*TRAIN, "--out", str(tmp_path / "runs"), "--json").stdout)
    assert again["spec"]["layers"] == 2
    assert f"{again['result']['loss']:.5g}" in done.stdout
    shown = call("runs", again["folder"])
    assert shown.stdout == done.stdout
    assert json.loads(call("runs", again["folder"], "--json").stdout) == again
    listed = call("runs", str(tmp_path / "runs")).stdout.splitlines()
    assert len(listed) == 5
    assert listed[0].split() == ["loss", "ratio", "exploded", "status", "actual", "protocol", "run", "details"]
    assert all("  search effort=0.2  " in line for line in listed[1:])
    assert any(again["folder"].split("/")[-1] in line for line in listed)
    assert len(json.loads(call("runs", str(tmp_path / "runs"), "--json").stdout)) == 4
    model = str(tmp_path / again["folder"] / "model.safetensors")
    problem = ["--noise", "uniform(0,3)", "--dim", "3", "--context", "6", "--sequences", "5000"]
    found = json.loads(call("eval", model, *problem, "--json").stdout)
    assert found["results"][0]["loss"] == again["result"]["loss"]
    (tmp_path / again["folder"] / "record.json").write_text("")
    damaged = call("runs", str(tmp_path / "runs"))
    assert damaged.returncode == 1
    assert len(damaged.stdout.splitlines()) == 4
    assert "damaged: diag-2x1" in damaged.stderr


def test_ctrl_c_says_how_to_go_on(tmp_path):
    options = ["--layers", "2", "--noise", "fixed(1)", "--protocol", "paper", "--out", str(tmp_path)]
    with interruptible("train", *options) as process:
        while process.poll() is None and not list(tmp_path.glob("*/journal*")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=LONGEST)
    assert process.returncode == 130
    assert "interrupted; the work so far is stored in" in message
    assert "Give the same command again to resume" in message
    unfinished = call("runs", str(tmp_path))
    (folder,) = tmp_path.iterdir()
    (row,) = (line.split() for line in unfinished.stdout.splitlines() if folder.name in line)
    assert row[row.index("unfinished") :][-2:] == ["paper", folder.name]
    assert "To resume an unfinished run, give the command that started it again" in unfinished.stdout


def test_a_training_shows_explosions_caution_and_what_the_model_really_is(tmp_path):
    """Diag with one layer is GD++; the same numbers as in Python."""
    small = ["--dim", "3", "--context", "6", "--layers", "1", "--noise", "uniform(0,3)", "--sequences", "500"]
    options = ["--effort", "0.1", "--tolerated", "1e-3", "--out", str(tmp_path)]
    text = call("train", *small, *options, "--explosions").stdout
    record = json.loads(call("train", *small, *options, "--explosions", "--json").stdout)
    run = load_run(record["folder"])
    assert f"explodes   with probability {run.explosions}" in text
    assert record["explosions"] == run.explosions.as_dict()
    assert run.spec.protocol.tolerated == 1e-3
    assert "actual     gdpp, 1 layer\n" in text
    assert f"caution    {run.price}" in text
