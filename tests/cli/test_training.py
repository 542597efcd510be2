"""`ridgeformer train` and `runs`."""

import json
import os
import re
import signal
import time

import click
import pytest
import threadpoolctl

from commands import call, interruptible
from ridgeformer import LinearTransformer, Training, cli, engine, save
from ridgeformer.cli.training import protocol_of
from ridgeformer.training import SGD, Adam, GradientDescent, GradientFlow, PaperProtocol
from support import LONGEST, each


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
    run = Training.load(record["folder"])
    assert f"explodes   with probability {run.explosions}" in text
    assert record["explosions"] == run.explosions.as_dict()
    assert run.spec.protocol.tolerated == 1e-3
    assert "actual     gdpp, 1 layer\n" in text
    assert f"caution    {run.price}" in text


# ---- Protocols of descents on the command line, and the pictures that `descend` and `runs` draw of t


SMALL = ["--noise", "uniform(0,2)", "--dim", "3", "--context", "6", "--layers", "1", "--sequences", "300"]
DESCENT = ["--steps", "20", "--rate", "1e-3", "--scale", "0.1"]


@each(
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
    ("paper", {"batch": "64"}, PaperProtocol(batch=64)),
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
    assert Training.load(folder).history.step[-1] == 20
    assert call("runs", folder, "--picture", "trajectories", "--plot", tmp_path / "b.svg")[0] == 0
    assert call("runs", folder, "--plot", tmp_path / "c.pdf")[0] == 0
    code, out, errors = call("runs", folder, "--plot", tmp_path / "d.html", "--json")
    assert code == 0
    assert json.loads(out)
    assert errors == f"Drawn to {tmp_path / 'd.html'}.\n"
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "a.png", "b.svg", "c.pdf", "d.html"}
    record = json.loads(call("runs", folder, "--json")[1])
    assert record["course"]["loss"] == Training.load(folder).history.loss.tolist()


def test_a_run_starts_from_a_model(call, tmp_path):
    start = tmp_path / "start.safetensors"
    save(LinearTransformer.random("diag", dim=3, layers=1, seed=5), start)
    code, out, _ = call("descend", *SMALL, *DESCENT, "--init", start, "--out", tmp_path, "--json")
    assert code == 0
    assert "init" in json.loads(out)["spec"]
    code, _, errors = call("descend", *SMALL, "--heads", "2", "--init", start)
    assert code != 0
    assert "heads 1, not 2" in errors


# ---- Options that several commands share: `--threads`


def blas_threads():
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def seen(monkeypatch):
    """What a command that is added for the test sees when it runs: our threads, and those of BLAS."""
    found = []

    @click.command()
    @cli.options.THREADS
    def look():
        found.append((engine.default_threads(), blas_threads()))

    monkeypatch.setitem(cli.cli.commands, "look", look)
    return found


@each((None, ["--threads", "1"]), ("2", ["--threads", "1"]), ("1", []))
def test_threads_are_limited_until_the_command_ends(before, options, seen, monkeypatch):
    """Those of BLAS too; by the option, or by the variable."""
    monkeypatch.delenv("RIDGEFORMER_THREADS", raising=False)
    if before is not None:
        monkeypatch.setenv("RIDGEFORMER_THREADS", before)
    others = blas_threads()
    assert call("look", *options).returncode == 0
    assert seen == [(1, {1})]
    assert os.environ.get("RIDGEFORMER_THREADS") == before
    assert blas_threads() == others
