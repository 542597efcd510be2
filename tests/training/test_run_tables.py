"""`ridgeformer runs` and `Runs.load` on folders in which runs are damaged: the others are listed, the damaged named."""

import dataclasses
import json
import math
import os
import re
import shutil

import numpy as np
import pytest

from commands import call
from own_problems import Varying
from ridgeformer import InputError, Problem, train, train_many
from ridgeformer.losses import BelowFloorWarning
from ridgeformer.training import Runs, Search
from support import refused, write_record


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two small runs."""
    out = tmp_path_factory.mktemp("trained")
    for noise in ("fixed(1)", "fixed(2)"):
        train(Problem(2, 4, noise), "gdpp", 1, sequences=500, out=out)
    return out


@pytest.fixture
def runs(trained, tmp_path):
    """A copy of them, and the folders of the first, which tests damage, and of the second."""
    shutil.copytree(trained, tmp_path / "runs")
    return (tmp_path / "runs", *sorted((tmp_path / "runs").iterdir()))


def replace(path, content):
    path.unlink()
    path.write_bytes(content)


def change(path, *keys, value):
    record = json.loads(path.read_text())
    inner = record
    for key in keys[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    write_record(path.parent, record)  # a record that is whole but makes no sense


def nest(path, depth):
    text = path.read_text().rstrip().removesuffix("}")
    path.write_text(f'{text}, "more": {"[" * depth}{"]" * depth}}}')


def make_folder(path):
    path.unlink()
    path.mkdir()


def make_pipe(path):
    path.unlink()
    os.mkfifo(path)


def grow(path):
    with path.open("ab") as file:
        file.truncate(5_000_000_000)


def point_nowhere(path):
    path.unlink()
    path.symlink_to("nowhere")


RECORD = "record.json"
DAMAGES = {
    "garbage": (lambda run: replace(run / RECORD, bytes(range(256))), "must hold JSON"),
    "a list": (lambda run: replace(run / RECORD, b"[]"), "must hold a JSON object"),
    "deep": (lambda run: replace(run / RECORD, b"[" * 100_000), "RecursionError|must hold JSON"),
    "rather deep": (lambda run: nest(run / RECORD, 900), "RecursionError|must hold JSON"),
    "a folder": (lambda run: make_folder(run / RECORD), "a record must be a file; .*record.json is a folder"),
    "a pipe": (lambda run: make_pipe(run / RECORD), "a record must be an ordinary file; .*is a pipe"),
    "huge": (lambda run: grow(run / RECORD), "may have 16,777,216 bytes; .* has 5,000,000,"),
    "a broken link": (lambda run: point_nowhere(run / RECORD), "has a record.json; .* has none yet"),
    "of another program": (lambda run: replace(run / RECORD, b"{}"), "must be one that ridgeformer wrote"),
    "of the future": (lambda run: change(run / RECORD, "version", value=99), "a newer ridgeformer"),
    "no result": (lambda run: change(run / RECORD, "result", value=KeyError), "KeyError: 'result'"),
    "loss nan": (
        lambda run: change(run / RECORD, "result", "loss", value=math.nan),
        "loss .* finite number; it is nan",
    ),
    "loss huge": (lambda run: change(run / RECORD, "result", "loss", value=10**400), "OverflowError|finite number"),
    "dim text": (lambda run: change(run / RECORD, "spec", "dim", value="2"), "several dimensions; it is '2'"),
    "dim huge": (lambda run: change(run / RECORD, "spec", "dim", value=f"1..{10**15}"), "dim must be at most 4096"),
    "noise a list": (lambda run: change(run / RECORD, "spec", "noise", value=[]), "noise must be of type str"),
    "no noise": (lambda run: change(run / RECORD, "spec", "noise", value=KeyError), "KeyError: 'noise'"),
    "protocol a list": (
        lambda run: change(run / RECORD, "spec", "protocol", value=[]),
        "protocol must be of type dict",
    ),
    "no model": (
        lambda run: (run / "model.safetensors").unlink(),
        "a finished run has a model; model.safetensors is no file",
    ),
    "a folder as model": (
        lambda run: make_folder(run / "model.safetensors"),
        "a finished run has a model; model.safetensors is no file",
    ),
    "unfinished, spec garbage": (
        lambda run: [(run / RECORD).unlink(), replace(run / "spec.json", b"{")],
        "a spec must hold JSON",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_named_and_the_others_are_listed(runs, damage):
    folder, first, second = runs
    spoil, words = DAMAGES[damage]
    spoil(first)
    good, bad = Runs.load(folder).entries
    assert (good.folder, bad.folder) == (second, first)
    assert good.loss < math.inf
    assert bad.status == "damaged"
    with pytest.raises(InputError, match=words):
        raise InputError(bad.damage)
    assert len(bad.damage) <= 500
    assert "\n" not in bad.damage


def show(*arguments):
    return call("runs", *map(str, arguments))


@pytest.mark.parametrize("damage", ["garbage", "deep", "a folder", "a pipe", "loss nan", "no model"])
def test_show_names_damaged_runs(runs, damage):
    folder, first, second = runs
    DAMAGES[damage][0](first)
    listed = show(folder)
    assert listed.returncode == 1
    assert second.name in listed.stdout
    assert first.name not in listed.stdout
    assert listed.stderr.startswith(f"damaged: {first.name}: ")
    assert listed.stderr.count("\n") == 1
    record, damaged = json.loads(show(folder, "--json").stdout)
    assert record["spec"]["noise"] == "fixed(2)"
    assert damaged["folder"] == str(first)
    assert damaged["damaged"] in listed.stderr
    alone = show(first)
    assert (alone.returncode, alone.stdout, alone.stderr.count("\n")) == (2, "", 1)
    assert alone.stderr.startswith("ridgeformer: error: ")
    assert f"{first.name}: " in alone.stderr  # the start of a long path is cut


def test_a_finished_run_is_listed_without_its_spec_file(runs):
    folder, first, second = runs
    (first / "spec.json").unlink()
    (folder / "notes").mkdir()
    assert [entry.folder for entry in Runs.load(folder).entries] == [first, second]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look anywhere")
def test_a_run_that_may_not_be_looked_into_is_named(runs):
    folder, first, second = runs
    first.chmod(0)
    good, bad = Runs.load(folder).entries
    first.chmod(0o755)
    assert (good.folder, bad.folder) == (second, first)
    assert "Change its permissions" in bad.damage


def test_unfinished_runs_come_last_and_are_no_damage(runs):
    folder, first, second = runs
    (first / RECORD).unlink()
    entries = Runs.load(folder).entries
    assert [entry.folder for entry in entries] == [second, first]
    assert (entries[1].status, entries[1].loss) == ("unfinished", math.inf)
    table = Runs.load(folder)
    assert (len(table), len(table.rows()), [run.folder for run in table.finished]) == (2, 2, [second])
    refused(lambda: table[1], "a training is a finished run; got unfinished")
    listed = show(folder)
    assert listed.returncode == 0
    protocol = re.escape(entries[1].row()["protocol"])
    pattern = rf"^ +- +- +-  unfinished +{protocol} +{first.name}$"
    assert re.search(pattern, listed.stdout, re.MULTILINE)


def test_what_is_infinite_is_null_in_json(runs):
    """`Infinity` is no JSON, and most readers refuse it."""
    folder, first, _ = runs
    change(first / RECORD, "result", "largest", value=math.inf)
    for place in (folder, first):
        text = show(place, "--json").stdout
        assert "Infinity" not in text
        assert '"largest": null' in text


def test_a_listed_loss_below_its_floor_is_a_warning(runs):
    """In the list, too, where many losses are read at a glance."""
    folder, first, _ = runs
    result = json.loads((first / RECORD).read_text())["result"]
    change(first / RECORD, "result", value={**result, "loss": 0.1, "error": 0.01, "floor": 0.3, "floor_error": 0.02})
    words = f"below the Bayes floor; {first.name} has 0.1 .*the floor is 0.3"
    with pytest.warns(BelowFloorWarning, match=words) as seen:
        assert len(Runs.load(folder).entries) == 2
    assert len(seen) == 1
    listed = show(folder)
    assert listed.returncode == 0
    assert listed.stderr.startswith(
        "ridgeformer: warning: no predictor can have an expected loss below the Bayes floor"
    )
    assert listed.stderr.count("\n") == 1
    change(first / RECORD, "result", "error", value=10**400)  # nothing to compare with, and no error
    assert len(Runs.load(folder).entries) == 2


def test_what_is_no_folder_of_runs(tmp_path):
    refused(lambda: Runs.load(tmp_path / "nothing"), "runs are stored in a folder; ... cannot be read as one (No such")
    assert Runs.load(tmp_path).entries == ()
    assert (
        "is not the folder of a run, and there are no runs in it. Name the folder that was given to --out"
        in show(tmp_path).stderr
    )


PROBLEM = Problem(3, 6, "uniform(0,2)")


def test_train_many_returns_a_table(tmp_path):
    """Lines, iteration, selection and the picture; stored runs give the same lines."""
    how = {"protocol": Search(effort=0.1), "sequences": 1000}
    runs = train_many(PROBLEM, ["gdpp", "diag"], [1, 2], seeds=[0, 1], out=tmp_path, **how)
    assert [run.spec.seed for run in runs] == [0] * 4 + [1] * 4
    assert (len(runs), len(runs[:3]), runs[-1].spec.layers) == (8, 3, 2)
    rows = runs.rows()
    assert [row["loss"] for row in rows] == [run.loss for run in runs]
    assert {row["actual"] for row in rows if row["layers"] == 1} == {"gdpp, 1 layer"}
    stored = Runs.load(tmp_path)
    by_name = {row["run"]: row for row in stored.rows()}
    assert all(by_name[row["run"]] == row for row in rows)
    assert "diag" in str(runs)
    assert runs.to_pandas().groupby("family")["loss"].count().tolist() == [4, 4]
    axis = runs.plot(baselines={"mine": 0.5}).axes[0]
    line, shallow = axis.get_lines()[0], [row["loss"] for row in rows if (row["family"], row["layers"]) == ("gdpp", 1)]
    assert line.get_label() == "gdpp"
    assert line.get_ydata()[0] == pytest.approx(np.mean(shallow))
    refused(lambda: runs.plot(x="status"), "x must be a column of numbers; got 'status'")


def test_a_problem_without_a_name_has_a_table_too():
    runs = train_many(Varying(), ["gdpp"], [1], protocol=Search(effort=0.1), sequences=500)
    assert "Varying at 0x" in runs.rows()[0]["problem"]
    assert "gdpp" in str(runs)


def test_runs_of_one_problem_are_selected(runs):
    """By all words of the problem, or by some."""
    folder, *_ = runs
    table = Runs.load(folder)
    words = "a picture of runs shows those of one problem; got 2 problems (d=2 n=4 fixed(1); d=2 n=4 fixed(2)). Select"
    refused(table.plot, words)
    assert words in " ".join(show(folder, "--plot", folder / "a.png").stderr.split())
    for name in ("d=2 n=4 fixed(2)", "fixed(2)", "fixed(2) d=2"):
        assert [run.spec.problem for run in table.of_problem(name)] == [Problem(2, 4, "fixed(2)")]
    drawn = show(folder, "--problem", "fixed(2)", "--plot", folder / "a.png", "--csv", "-")
    assert "d=2 n=4 fixed(2)" in drawn.stdout
    assert "fixed(1)" not in drawn.stdout
    assert (folder / "a.png").exists()
    problems = "the problems of these runs are d=2 n=4 fixed(1); d=2 n=4 fixed(2); got 'fixed(3)'"
    refused(lambda: table.of_problem("fixed(3)"), problems)
    assert "--problem selects runs of a folder" in show(table.entries[0].folder, "--problem", "fixed(1)").stderr


def test_a_run_that_lost_against_another_seed_did_not_converge():
    run = train(PROBLEM, "gdpp", 1, sequences=1000)
    other, result = dataclasses.replace(run.spec, seed=1), dataclasses.replace(run.result, loss=2 * run.loss)
    worse = dataclasses.replace(run, spec=other, result=result)
    runs = Runs.of([run, worse])
    assert [(row["status"], row["remark"]) for row in runs.rows()] == [
        ("converged", ""),
        ("converged", "local minimum"),
    ]
    assert "local minimum" in str(runs)
    assert "remark" not in str(runs[:1])
