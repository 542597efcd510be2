import json
import os
import subprocess
import sys

import pytest

from ridgeformer import __version__, cli, engine


def call(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "ridgeformer", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", **environment},
        timeout=300,
    )


def test_help_has_examples():
    for arguments in (["--help"], ["-h"], ["info", "--help"], ["bench", "--help"]):
        done = call(*arguments)
        assert done.returncode == 0
        assert "Example" in done.stdout
        assert "  ridgeformer " in done.stdout


def test_info_says_version_features_and_threads():
    done = call("info", "--json", RIDGEFORMER_THREADS="3")
    facts = json.loads(done.stdout)
    assert facts["version"] == __version__
    assert facts["engine"] == engine.available()[0]
    assert facts["engines"] == list(engine.available())
    assert facts["threads"] == 3
    text = call("info").stdout
    assert __version__ in text
    assert "threads" in text


def test_version():
    assert call("--version").stdout == f"ridgeformer {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["nonsense"], {}, "No such command"),
        (["--nonsense"], {}, "No such option"),
        (["bench", "--only", "colour"], {}, "--only must name one of frameworks"),
        (["bench", "--threads", "0"], {}, "Invalid value for '--threads'"),
        (["bench", "--out", "/nonexistent/x.json"], {}, "writable folder"),
        (["info"], {"RIDGEFORMER_ENGINE": "mmx"}, "RIDGEFORMER_ENGINE must be one of"),
        (["info"], {"RIDGEFORMER_THREADS": "many"}, "RIDGEFORMER_THREADS must be a whole number"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(arguments, environment, words):
    done = call(*arguments, **environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("ridgeformer: error: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_no_command_shows_the_help():
    done = call()
    assert "Usage: ridgeformer" in done.stdout + done.stderr


def test_bench_prints_figures_as_json_and_writes_them(tmp_path):
    out = tmp_path / "speed.json"
    done = call("bench", "--quick", "--only", "import", "--only", "context", "--json", "--out", str(out))
    record = json.loads(done.stdout)
    assert record == json.loads(out.read_text())
    names = [figure["name"] for figure in record["figures"]]
    assert names == ["import of the package", "time at n = 2000 over n = 20"]
    assert all(figure["value"] > 0 for figure in record["figures"])
    assert record["machine"]["version"] == __version__


def test_bench_table_is_readable_at_100_columns():
    done = call("bench", "--quick", "--only", "import")
    assert "import of the package" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_interruption_is_one_line(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.cli, "main", interrupted)
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "ridgeformer: interrupted\n"
