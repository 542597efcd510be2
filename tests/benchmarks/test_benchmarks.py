"""`python -m benchmarks`: it measures, prints, stores, and refuses what it cannot do before it measures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks.__main__
import ridgeformer
from benchmarks import Measurement
from support import LONGEST, each

ROOT = Path(__file__).parents[2]


def call(*arguments):
    command, environment = [sys.executable, "-m", "benchmarks", *arguments], {**os.environ, "COLUMNS": "100"}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=LONGEST, env=environment)


def test_measurements_are_printed_as_json_and_written(tmp_path):
    out = tmp_path / "speed.json"
    done = call("--quick", "--only", "import", "--only", "context", "--json", "--out", str(out))
    record = json.loads(done.stdout)
    assert record == json.loads(out.read_text())
    names = [one["name"] for one in record["measurements"]]
    assert names == ["import of the package", "time at n = 2000 over n = 20"]
    assert all(one["value"] > 0 for one in record["measurements"])
    assert record["machine"]["version"] == ridgeformer.__version__


def test_what_is_required_is_checked_on_request():
    good, bad = Measurement("good", 2.0, "x", required=1.5), Measurement("bad", 2.0, "s", required=1.5, higher=False)
    assert good.passed
    assert not bad.passed
    assert Measurement("free", 2.0, "s").passed
    assert good.as_dict() == {"name": "good", "value": 2.0, "unit": "x", "detail": ""}


def test_missed_requirements_are_named(monkeypatch, capsys):
    monkeypatch.setattr(benchmarks.__main__, "run", lambda **_: [Measurement("slow", 2.0, "s", 1.5, higher=False)])
    with pytest.raises(SystemExit) as ended:
        benchmarks.__main__.main(["--check", "--json"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "missed: slow: 2 s, at most 1.5 is required\n"


@each(
    (["--only", "colour"], "--only must name one of frameworks"),
    (["--threads", "0"], "Invalid value for '--threads'"),
    (["--out", "/nonexistent/x.json"], "--out must be in a writable folder; /nonexistent is not"),
)
def test_bad_arguments_are_refused_at_once(arguments, words):
    done = call(*arguments)
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_no_more_files_than_today_lie_between_the_command_and_the_native_core():
    """A reader who follows a training meets them all; in a process of its own, for it patches the core."""
    pytest.importorskip("ridgeformer._core")
    done = subprocess.run([sys.executable, "-m", "benchmarks.walk"], capture_output=True, text=True, cwd=ROOT, check=1)
    *files, count = done.stdout.splitlines()
    assert files[0] == "cli/options.py"
    assert "engine/native.py" in files
    assert len(files) == int(count.split()[0]) <= 50


def test_the_walk_from_the_command_to_the_core_is_as_short_as_the_architecture_says():
    walk = subprocess.run(
        [sys.executable, "-m", "benchmarks.walk"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    *files, last = walk.stdout.splitlines()
    assert last == f"{len(files)} files"
    page = (ROOT / "docs/project/architecture.md").read_text()
    assert len(files) <= 30
    assert f"**`ridgeformer train`**, {len(files)} files up to the first native call" in page
    assert all(Path(file).name in page or Path(file).parent.name in page for file in files)
