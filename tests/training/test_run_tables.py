"""`ridgeformer runs` and `Runs.load` on folders in which runs are damaged: the others are listed, the damaged named."""

import dataclasses
import functools
import json
import math
import operator
import os
import re
import shutil

import numpy as np
import pytest

from commands import call
from own_problems import Varying
from ridgeformer import Problem, train, train_many
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


def changed(*keys, value):
    """A function that writes another value into a record, which stays whole but makes no sense."""

    def change(path):
        record = json.loads(path.read_text())
        inner = functools.reduce(operator.getitem, keys[:-1], record)
        if value is KeyError:
            del inner[keys[-1]]
        else:
            inner[keys[-1]] = value
        write_record(path.parent, record)

    return change


def written(content):
    """A function that writes something else into a file."""
    return lambda path: path.write_bytes(content)


def nest(path):
    text = path.read_text().rstrip().removesuffix("}")
    path.write_text(f'{text}, "more": {"[" * 900}{"]" * 900}}}')


def anew(make):
    """A function that makes something else in the place of a file."""
    return lambda path: [path.unlink(), make(path)]


NO_MODEL = "a finished run has a model; model.safetensors is no file"
RECORD, MODEL = "record.json", "model.safetensors"
DAMAGES = {
    "garbage": (written(bytes(range(256))), "must hold JSON"),
    "a list": (written(b"[]"), "must hold a JSON object"),
    "deep": (written(b"[" * 100_000), "RecursionError|must hold JSON"),
    "rather deep": (nest, "RecursionError|must hold JSON"),
    "a folder": (anew(os.mkdir), "a record must be a file; .*record.json is a folder"),
    "a pipe": (anew(os.mkfifo), "a record must be an ordinary file; .*is a pipe"),
    "huge": (lambda record: os.truncate(record, 5_000_000_000), "may have 16,777,216 bytes; .* has 5,000,000,"),
    "a broken link": (anew(lambda record: record.symlink_to("nowhere")), "has a record.json; .* has none yet"),
    "of another program": (written(b"{}"), "must be one that ridgeformer wrote"),
    "of the future": (changed("version", value=99), "a newer ridgeformer"),
    "no result": (changed("result", value=KeyError), "KeyError: 'result'"),
    "loss nan": (changed("result", "loss", value=math.nan), "loss .* finite number; it is nan"),
    "loss huge": (changed("result", "loss", value=10**400), "OverflowError|finite number"),
    "dim text": (changed("spec", "dim", value="2"), "several dimensions; it is '2'"),
    "dim huge": (changed("spec", "dim", value=f"1..{10**15}"), "dim must be at most 4096"),
    "noise a list": (changed("spec", "noise", value=[]), "noise must be of type str"),
    "no noise": (changed("spec", "noise", value=KeyError), "KeyError: 'noise'"),
    "protocol a list": (changed("spec", "protocol", value=[]), "protocol must be of type dict"),
    "no model": (lambda record: record.with_name(MODEL).unlink(), NO_MODEL),
    "a folder as model": (lambda record: anew(os.mkdir)(record.with_name(MODEL)), NO_MODEL),
    "unfinished, spec garbage": (
        lambda record: [record.unlink(), record.with_name("spec.json").write_text("{")],
        "a spec must hold JSON",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_named_and_the_others_are_listed(runs, damage):
    folder, first, second = runs
    spoil, words = DAMAGES[damage]
    spoil(first / RECORD)
    good, bad = Runs.load(folder).entries
    assert (good.folder, bad.folder, bad.status) == (second, first, "damaged")
    assert good.loss < math.inf
    assert re.search(words, bad.damage)
    assert len(bad.damage) <= 500
    assert "\n" not in bad.damage


def show(*arguments):
    return call("runs", *map(str, arguments))


@pytest.mark.parametrize("damage", ["garbage", "deep", "a folder", "a pipe", "loss nan", "no model"])
def test_show_names_damaged_runs(runs, damage):
    folder, first, second = runs
    DAMAGES[damage][0](first / RECORD)
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
    changed("result", "largest", value=math.inf)(first / RECORD)
    for place in (folder, first):
        text = show(place, "--json").stdout
        assert "Infinity" not in text
        assert '"largest": null' in text


def test_a_listed_loss_below_its_floor_is_a_warning(runs):
    """In the list, too, where many losses are read at a glance."""
    folder, first, _ = runs
    for name, value in {"loss": 0.1, "error": 0.01, "floor": 0.3, "floor_error": 0.02}.items():
        changed("result", name, value=value)(first / RECORD)
    words = f"below the Bayes floor; {first.name} has 0.1 .*the floor is 0.3"
    with pytest.warns(BelowFloorWarning, match=words) as seen:
        assert len(Runs.load(folder).entries) == 2
    assert len(seen) == 1
    listed = show(folder)
    assert listed.returncode == 0
    words = "ridgeformer: warning: no predictor can have an expected loss below the Bayes floor.*\n"
    assert re.fullmatch(words, listed.stderr)
    changed("result", "error", value=10**400)(first / RECORD)  # nothing to compare with, and no error
    assert len(Runs.load(folder).entries) == 2


def test_what_is_no_folder_of_runs(tmp_path):
    refused(lambda: Runs.load(tmp_path / "nothing"), "runs are stored in a folder; ... cannot be read as one (No such")
    assert Runs.load(tmp_path).entries == ()
    words = "is not the folder of a run, and there are no runs in it. Name the folder that was given to --out"
    assert words in show(tmp_path).stderr


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
    assert [row["status"] for row in runs.rows()] == ["converged"] * 2
    assert [row["remark"] for row in runs.rows()] == ["", "local minimum"]
    assert "local minimum" in str(runs)
    assert "remark" not in str(runs[:1])
