import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
import warnings
from pathlib import Path
from unittest import mock

import click
import pytest

from ridgeformer import (
    Diag,
    InputError,
    LinearTransformer,
    OracleRR,
    Problem,
    __version__,
    cli,
    engine,
    evaluate,
    load,
    save,
    zoo,
)
from support import LONGEST, unmeasured, write_record


def call(*arguments, **environment):
    """Run a command: in this process, which is much faster, or in one of its own where its environment matters."""
    if environment:
        return process(*arguments, **environment)
    out, err, code = io.StringIO(), io.StringIO(), 0
    columns = mock.patch.dict(os.environ, COLUMNS="100")
    with columns, warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        warnings.simplefilter("default")
        try:
            cli.main(list(arguments))
        except SystemExit as stopped:
            code = stopped.code or 0
    return types.SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def process(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "ridgeformer", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", **environment},
        timeout=LONGEST,
    )


@contextlib.contextmanager
def interruptible(*arguments):
    """A command in another process that a test interrupts; it is killed if the test ends before it."""
    command = [sys.executable, "-m", "ridgeformer", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=unmeasured())
    with process:
        try:
            yield process
        finally:
            process.kill()


def commands(group=cli.cli, path=""):
    """All commands by the words that call them, the program itself as the empty text."""
    found = {path.strip(): group}
    for name, command in getattr(group, "commands", {}).items():
        found |= commands(command, f"{path} {name}")
    return found


def test_help_has_examples():
    """Every command, also those of groups; and every option and argument says what it is."""
    for arguments in (["-h"], *(path.split() for path in commands())):
        done = call(*arguments, "--help")
        assert done.returncode == 0
        assert "Examples:" in done.stdout
        assert "  ridgeformer " in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 100


def test_every_option_has_a_help_text():
    for path, command in commands().items():
        for parameter in command.params:
            if isinstance(parameter, click.Option) and parameter.name != "version":
                assert parameter.help, (path, parameter.name)
                assert parameter.help.endswith((".", "]")), (path, parameter.help)
        assert (command.help or "").split("\n")[0].endswith("."), path


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
    assert process("--version").stdout == f"ridgeformer {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["nonsense"], {}, "No such command"),
        (["--nonsense"], {}, "No such option"),
        (["train", "--noise", "fixed(1)", "--threads", "0"], {}, "Invalid value for '--threads'"),
        (["bench"], {}, "No such command 'bench'"),  # `python -m benchmarks` measures speed
        (["baselines"], {}, "Missing option '--noise'"),
        (["train"], {}, "Missing option '--noise'"),
        (["train", "--noise", "fixed(1)", "--family", "mlp"], {}, "Invalid value for '--family'"),
        (["train", "--noise", "fixed(1)", "--layers", "0"], {}, "layers must be at least 1; got 0"),
        (
            ["train", "--noise", "fixed(1)", "--steps", "5"],
            {},
            "--protocol search takes --effort, --caution, --precision, --seconds; got --steps",
        ),
        (
            ["train", "--noise", "fixed(1)", "--protocol", "paper", "--effort", "2"],
            {},
            "--protocol paper takes --steps, --batch, --rate; got --effort",
        ),
        (["train", "--noise", "fixed(1)", "--effort", "0"], {}, "effort must lie in (0, 1000]"),
        (["train", "--noise", "fixed(1)", "--out", __file__], {}, "is a file. Choose another place"),
        (["train", "--noise", "fixed(1)", "--plot", "curve.doc"], {}, "must end in .png, .pdf or .svg"),
        (["show", "/nonexistent"], {}, "a run is a folder; /nonexistent is not there"),
        (["show", __file__], {}, "a run is a folder; "),
        (["baselines", "--noise", "loud(3)"], {}, "known distribution; got 'loud'"),
        (["baselines", "--noise", "uniform(0,-5)"], {}, "must not be negative"),
        (["baselines", "--noise", "fixed(1)", "--sequences", "0"], {}, "sequences must be at least 2"),
        (["baselines", "--noise", "fixed(1)", "--dim", "0"], {}, "dim must be at least 1"),
        (["eval", "/nonexistent", "--noise", "fixed(1)"], {}, "must be a file that exists"),
        (["eval", __file__, "--noise", "fixed(1)"], {}, "must be one that ridgeformer saved"),
        (["profile", "/nonexistent", "--noise", "fixed(1)"], {}, "must be a file that exists"),
        (["info"], {"RIDGEFORMER_ENGINE": "mmx"}, "(RIDGEFORMER_ENGINE) must be one of"),
        (["info"], {"RIDGEFORMER_THREADS": "many"}, "RIDGEFORMER_THREADS must be a whole number"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(arguments, environment, words):
    done = call(*arguments, **environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("ridgeformer: error: ")
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 600
    assert words in done.stderr


DIGITS, LONG = "9" * 5000, "x" * 5000
SMALL = ["--noise", "fixed(1)", "--dim", "2", "--context", "4", "--family", "gdpp", "--layers", "1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", *SMALL, "--seed", "1e400"], "'--seed': '1e400' is not a valid integer."),
        (["train", *SMALL, "--seed", DIGITS], "'--seed': '9999"),
        (["train", *SMALL, "--seed", DIGITS[:300]], "it must be at most 9223372036854775807; got 9999"),
        (["train", *SMALL, "--seed", "-1"], "seed must be at least 0; got -1"),
        (["train", *SMALL, "--dim", DIGITS[:300]], "dim must be at most 4096; got 9999"),
        (["train", *SMALL, "--context", DIGITS[:30]], "context must be at most 4503599627370496; got 9999"),
        (["train", *SMALL, "--sequences", "-1"], "sequences must be at least 2; got -1"),
        (["train", *SMALL, "--sequences", DIGITS[:15]], "it must be at most 4294967296; got 9999"),
        (["train", *SMALL, "--layers", DIGITS[:300]], "layers must be at most 1000; got 9999"),
        (["train", *SMALL, "--heads", "65"], "heads must be at most 64; got 65"),
        (["train", *SMALL, "--threads", DIGITS], "Invalid value for '--threads': '9999"),
        (["train", *SMALL, "--noise", ""], "noise must be written as name(numbers); got ''"),
        (["train", *SMALL, "--noise", "(" * 5000], "noise must be written as name(numbers); got '((("),
        (["train", *SMALL, "--noise", "\x1b[2Jx(1)"], r"got '\x1b[2Jx(1)'"),
        (
            ["train", *SMALL, "--noise", "poisson(" + DIGITS[:400] + ")"],
            "from 1e-06 to 1e+06; got 9999",
        ),
        (["train", *SMALL, "--effort", "1e400"], "effort must lie in (0, 1000]; got inf"),
        (["train", *SMALL, "--seconds", "nan"], "seconds must be at least 0; got nan"),
        (["train", *SMALL, "--protocol", "paper", "--rate", "nan"], "rate must be at least 0; got nan"),
        (["train", *SMALL, "--protocol", "paper", "--steps", DIGITS[:400]], "too large"),
        (["train", *SMALL, "--out", ""], "'--out': a path must not be empty"),
        (["train", *SMALL, "--out", "/dev/null"], "runs need a folder; /dev/null is a file"),
        (["train", *SMALL, "--out", __file__ + "/runs"], "runs need a folder that can be made"),
        (["train", *SMALL, "--out", "/proc/runs"], "runs need a folder that can be made"),
        (["train", *SMALL, "--out", LONG], "'--out': a path must not be too long; got xxx"),
        (["train", *SMALL, "--plot", LONG + ".png"], "'--plot': a path must not be too long; got xxx"),
        (
            ["train", *SMALL, "--plot", "/nonexistent/curve.png"],
            "a plot needs a writable folder; /nonexistent does not exist. Create it",
        ),
        (["train", *SMALL, "--plot", "/proc/curve.png"], "a plot needs a writable folder; /proc is not writable"),
        (["train", *SMALL, "--plot", "/"], "File '/' is a directory"),
        (
            ["eval", "zoo:"],
            "a model of the zoo is named zoo:FAMILY/LAYERS/NOISE or zoo:FAMILY/LAYERS/NOISE/SEED; got 'zoo:'",
        ),
        (["eval", "zoo:diag/" + DIGITS[:100] + "/uniform(0,1)"], "a model of the zoo is named zoo:FAMILY"),
        (["eval", "zoo:diag/\u00b2/uniform(0,1)"], "a model of the zoo is named zoo:FAMILY"),
        (["eval", "zoo:mlp/2/uniform(0,1)"], "family must be one of"),
        (["eval", "zoo:diag/99/uniform(0,1)"], "layers must be one of 1, 2"),
        (["eval", "zoo:diag/2/uniform(0,1)/99"], "the seed must be one of"),
        (["eval", "diag/7/uniform(0,5)"], "For a model of the zoo, write 'zoo:diag/7/uniform(0,5)'"),
        (["profile", "zoo:diag/2/uniform(0,1)", "--sigma", "1;x"], "--sigma must be a list of numbers; got '1;x'"),
        (
            ["shifts", "zoo:diag/2/uniform(0,1)", "--to-noise", "uniform(0,3),uniform(0,7)"],
            "values are separated by semicolons; got --to-noise 'uniform(0,3),uniform(0,7)'",
        ),
        (["train", *SMALL, "--family", "channels(1)"], "channels must be given as in channels(1,3); got 'channels(1)'"),
        (["eval", ""], "'MODEL': a path must not be empty"),
        (["eval", LONG], "'MODEL': a path must not be too long"),
        (["eval", "/"], "MODEL must be a model file or the folder of a run; / is another folder"),
        (["eval", "zoo:diag/2/uniform(0,1)", "--sequences", DIGITS[:300]], "it must be at most 4294967296; got 9999"),
        (["eval", "zoo:diag/2/uniform(0,1)", "--dim", "3"], "of the same dimension"),
        (["baselines", "--noise", "fixed(1)", "--sequences", DIGITS[:15]], "it must be at most 4294967296; got 9999"),
        (["profile", "zoo:diag/2/uniform(0,1)", "--plot", "x.gif"], "must end in .png, .pdf or .svg"),
        (["export", "zoo:diag/2/uniform(0,1)", "--out", ""], "'--out': a path must not be empty"),
        (["export", "zoo:diag/2/uniform(0,1)", "--out", LONG], "'--out': a path must not be too long"),
        (["show", ""], "'RUN': a path must not be empty"),
        (["show", LONG], "'RUN': a path must not be too long"),
        (["show", "\x1b[2J"], "[2J is not there"),
        (["sweep", "/dev/null", "--out", "runs"], "a grid must be a readable text file; /dev/null is not"),
        (["sweep", __file__, "--out", "runs"], "a grid must be TOML"),
        (["table1", "--seed", DIGITS[:300]], "it must be at most 9223372036854775807; got 9999"),
        (["table1", "--sequences", DIGITS[:300]], "it must be at most 4294967296; got 9999"),
        (["table1", "--dask", ""], "--workers and --dask are for --retrain, which is missing"),
        (["figures", "--only", DIGITS], "Invalid value for '--only': '9999"),
        (["figures", "--out", LONG], "'--out': a path must not be too long"),
        (["nonsense" * 1000], "No such command 'nonsense"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_bad_command_lines(arguments, words, monkeypatch, capsys, tmp_path):
    """Refused at once, before anything is computed, in one line that fits on a screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which main replaces
    start = time.process_time()
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert time.process_time() - start < 10
    out, message = capsys.readouterr()
    assert stopped.value.code == 2
    assert out == ""
    assert message.startswith("ridgeformer: error: ")
    assert message.count("\n") == 1
    assert len(message) < 600
    assert words in message
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    tmp_path.chmod(0o555)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", *SMALL, "--out", str(tmp_path)])
    assert stopped.value.code == 2
    assert "runs need a writable folder" in capsys.readouterr().err


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    save(LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10), path)
    return path


def test_baselines_as_a_table_and_as_json():
    arguments = ["baselines", "--noise", "uniform(0,5)", "--sequences", "2000"]
    done = call(*arguments)
    table = done.stdout
    assert done.stderr == ""  # OracleRR is below the floor by definition
    record = json.loads(call(*arguments, "--json").stdout)
    assert record["problem"] == "d=10 n=20 uniform(0,5)"
    names = [result["name"] for result in record["results"]]
    assert names == ["OracleRR", "ConstRR", "LeastSquares", "AdaRR", "TunedRR", "IterativeRR(100)", "Bayes floor"]
    for result in record["results"]:
        assert result["name"] in table
        line = next(line for line in table.splitlines() if line.startswith(result["name"]))
        shown = "0" if result["name"] == "OracleRR" else f"{result['loss']:#.4g}"
        assert line.removeprefix(result["name"]).split()[0] == shown
    assert max(map(len, table.splitlines())) <= 100


def test_a_loss_below_the_floor_is_a_warning_of_one_line(monkeypatch, capsys):
    class Cheater:
        def __init__(self, prior):
            self.oracle = OracleRR(prior)

        def weights(self, moments):
            return self.oracle.weights(moments)

    monkeypatch.setattr("ridgeformer.predictors.choice.AdaRR", Cheater)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(SystemExit) as ended:
            cli.main(["baselines", "--noise", "uniform(0,5)", "--sequences", "2000", "--json"])
    assert ended.value.code == 0
    out, error = capsys.readouterr()
    assert json.loads(out)["results"]
    (line,) = error.splitlines()  # OracleRR, which knows sigma and says so, is none
    assert line.startswith(
        "ridgeformer: warning: no predictor can have an expected loss below the Bayes floor; AdaRR has"
    )


def test_a_stored_run_below_its_floor_is_a_warning(tmp_path):
    small = ["--dim", "2", "--context", "4", "--family", "gdpp", "--layers", "1", "--sequences", "500"]
    trained = call("train", *small, "--noise", "uniform(0,1)", "--out", str(tmp_path), "--json")
    assert trained.stderr == ""
    record = json.loads(trained.stdout)
    path = tmp_path / record["folder"] / "record.json"
    stored = json.loads(path.read_text())
    stored["result"]["loss"] = stored["result"]["error"] = 0.0
    write_record(path.parent, stored)
    shown = call("show", record["folder"])
    assert shown.returncode == 0
    assert shown.stderr.startswith("ridgeformer: warning: no predictor can have an expected loss below the Bayes floor")
    assert shown.stderr.count("\n") == 1


def test_baselines_without_enough_examples_say_what_is_left_out():
    table = call("baselines", "--noise", "fixed(1)", "--context", "5", "--sequences", "500").stdout
    assert "needs n > 10 examples, and n is 5." in table
    assert "Bayes floor" in table
    assert "TunedRR  " not in table


def test_eval_prints_the_models_loss_by_either_estimator(model):
    arguments = ["eval", str(model), "--noise", "uniform(0,5)", "--sequences", "3000"]
    exact = json.loads(call(*arguments, "--json").stdout)["results"][0]
    problem = Problem(noise="uniform(0,5)")
    assert exact["loss"] == pytest.approx(evaluate(load(model), problem, sequences=3000).loss, rel=1e-12)
    assert "times smaller" in call(*arguments, "--estimator", "query").stdout
    assert "model.safetensors" in call(*arguments).stdout


def test_a_shipped_model_is_evaluated_on_what_it_was_trained_on():
    done = call("eval", "zoo:diag/6/uniform(0,0)", "--sequences", "500").stdout
    assert "d=10 n=20 uniform(0,0)" in done
    assert "zoo:diag/6/uniform(0,0)" in done
    assert "e-1" in done  # a loss near 1e-10 is not shown as 0.00000
    other = call("eval", "zoo:diag/6/uniform(0,0)", "--sequences", "500", "--noise", "fixed(1)", "--context", "30")
    assert "d=10 n=30 fixed(1)" in other.stdout
    assert "d=10 n=20 uniform(0,1)" in call("profile", "zoo:diag/2/uniform(0,1)", "--sequences", "50").stdout


def test_a_model_that_does_not_know_its_problem_needs_noise(model):
    failed = call("eval", str(model))
    assert failed.returncode == 2
    assert "--noise is missing. Add it, for example --noise 'uniform(0,5)'" in " ".join(failed.stderr.split())


def test_show_lists_the_best_of_a_problem_first(tmp_path):
    for noise, layers in (("uniform(0,1)", "1"), ("uniform(0,1)", "2"), ("fixed(2)", "2")):
        small = ["--dim", "2", "--context", "4", "--family", "gdpp", "--sequences", "500"]
        call("train", *small, "--noise", noise, "--layers", layers, "--out", str(tmp_path))
    listed = [line.split()[-1] for line in call("show", str(tmp_path)).stdout.splitlines()[1:]]
    kinds = [re.match(r"gdpp-(\d)x1-(fixed|uniform)", name).groups() for name in listed]
    assert kinds == [("2", "fixed"), ("1", "fixed"), ("2", "uniform"), ("1", "uniform")]


def test_profile_prints_and_draws(model, tmp_path):
    arguments = ["profile", str(model), "--noise", "uniform(0,5)", "--sequences", "200"]
    for ending in ("png", "svg", "pdf"):
        done = call(*arguments, "--plot", str(tmp_path / f"profile.{ending}"), "--json")
        assert (tmp_path / f"profile.{ending}").stat().st_size > 1000
    record = json.loads(done.stdout)
    assert len(record["sigma"]) == len(record["loss"]) == len(record["bayes"]) == 42
    assert record["sigma"][-1] == 6
    assert record["sequences"] == 200
    text = call(*arguments).stdout
    assert [line.split()[-1] for line in text.splitlines() if line.lstrip().startswith(("5.000", "6.000"))] == [
        "yes",
        "no",
    ]
    assert "They raise the mean" not in text
    wild = call("profile", "zoo:full/7/uniform(0,1)", "--sequences", "200").stdout
    assert "noise levels at least one of 200 sequences exploded (a loss above 1000)" in wild


def test_zoo_list():
    text = call("zoo", "list").stdout
    assert text.count("zoo:") == 211  # every cell, and the example at the end
    (line,) = [line for line in text.splitlines() if line.startswith("zoo:full/7/categorical(1,3)")]
    made = zoo.record("full", layers=7, noise="categorical(1,3)")
    assert line.split()[1:] == [
        f"{made.loss:.4g}",
        f"{made.floor:.4g}",
        f"{made.loss / made.floor:.3f}",
        str(made.spec["seed"]),
    ]
    some = json.loads(call("zoo", "list", "--family", "diag", "--noise", "uniform(0, 0)", "--json").stdout)
    assert [entry["layers"] for entry in some] == [1, 2, 3, 4, 5, 6, 7]
    assert {entry["ratio"] for entry in some} == {None}  # the floor is 0
    failed = call("zoo", "list", "--layers", "9")
    assert failed.returncode == 2
    assert "1 to 7 layers" in failed.stderr


@pytest.mark.parametrize("name", ["diag/7/uniform(0,5)", "zoo:diag/7/uniform(0,5)/2"])
def test_zoo_show(name):
    seed = 2 if name.endswith("/2") else None
    made = zoo.record("diag", layers=7, noise="uniform(0,5)", seed=seed)
    text = call("zoo", "show", name).stdout
    for words in ("d = 10, n = 20, noise uniform(0,5)", "diag, 28 parameters", f"{made.loss:.5g} +- ", made.message):
        assert words in text
    found = json.loads(call("zoo", "show", name, "--json").stdout)
    assert found["name"] == "zoo:" + name.removeprefix("zoo:")
    assert found["loss"] == made.loss
    assert found["ratio"] == made.loss / made.floor
    assert found["seed"] == made.spec["seed"]
    assert found["protocol"]["name"] == "search"
    assert found["seeds_with_weights"] == [0, 1, 2, 3, 4]


def test_zoo_show_of_a_seed_whose_weights_are_not_in_the_package():
    seed = next(number for number in range(5) if number != zoo.shipped().best("full", 3, "categorical(1,3)"))
    found = call("zoo", "show", f"full/3/categorical(1,3)/{seed}").stdout
    assert "weights    not shipped for this seed; only for seed " in found
    assert "the seed must be one of" in call("zoo", "show", "full/3/categorical(1,3)/9").stderr


def test_no_command_shows_the_help():
    done = call()
    assert done.stdout.startswith("Usage: ridgeformer")
    assert (done.returncode, done.stderr) == (0, "")


def test_interruption_is_one_line(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.cli, "main", interrupted)
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "ridgeformer: interrupted\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RecursionError("maximum recursion depth exceeded"), "is nested too deeply. Use fewer layers"),
        (MemoryError(), "not enough memory"),
        (OverflowError("int too large"), "a number is too large to compute with (int too large)"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "all text must be UTF-8; some is not"),
        (InputError("a rule;\n got\x1b[2J " + "x" * 5000), r"a rule; got\x1b[2J xxx"),
        (ConnectionError("the scheduler is gone"), "the scheduler is gone"),
        (OSError(28, "No space left on device", "here"), "here: No space left on device"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_no_error_of_input_or_machine_is_a_traceback(monkeypatch, capsys, error, words):
    def fail(**_):
        raise error

    monkeypatch.setattr(cli.cli, "main", fail)
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("ridgeformer: error: ")
    assert words in message
    assert message.count("\n") == 1
    assert len(message) < 300


def test_a_thousand_layers_are_no_traceback(tmp_path):
    """As many layers as are allowed: training begins with the shallow models, and Ctrl-C ends it."""
    with interruptible("train", *SMALL, "--layers", "1000", "--out", str(tmp_path)) as process:
        while process.poll() is None and not list(tmp_path.glob("*/record.json")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LONGEST)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr


TRAIN = ["train", "--family", "diag", "--layers", "2", "--noise", "uniform(0,3)", "--dim", "3", "--context", "6"]
TRAIN += ["--sequences", "5000", "--effort", "0.2"]


def test_training_and_showing(tmp_path):
    done = call(*TRAIN, "--out", str(tmp_path / "runs"), "--plot", str(tmp_path / "curve.png"))
    assert done.returncode == 0, done.stderr
    assert "diag, 2 layers, d=3 n=6 uniform(0,3), seed 0" in done.stdout
    for word in (
        "status",
        "; ratio: ",
        "exploded: 0 of 5,000",
        "with the models that it was grown from",
        "stored in",
    ):
        assert word in done.stdout
    assert (tmp_path / "curve.png").stat().st_size > 10_000
    again = json.loads(call(*TRAIN, "--out", str(tmp_path / "runs"), "--json").stdout)
    assert again["spec"]["layers"] == 2
    assert f"{again['result']['loss']:.5g}" in done.stdout
    shown = call("show", again["folder"])
    assert shown.stdout == done.stdout
    assert json.loads(call("show", again["folder"], "--json").stdout) == again
    listed = call("show", str(tmp_path / "runs")).stdout.splitlines()
    assert len(listed) == 5
    assert listed[0].split() == ["loss", "ratio", "exploded", "status", "protocol", "run"]
    assert all("  search effort=0.2  " in line for line in listed[1:])
    assert any(again["folder"].split("/")[-1] in line for line in listed)
    assert len(json.loads(call("show", str(tmp_path / "runs"), "--json").stdout)) == 4
    model = str(tmp_path / again["folder"] / "model.safetensors")
    problem = ["--noise", "uniform(0,3)", "--dim", "3", "--context", "6", "--sequences", "5000"]
    found = json.loads(call("eval", model, *problem, "--json").stdout)
    assert found["results"][0]["loss"] == again["result"]["loss"]
    (tmp_path / again["folder"] / "record.json").write_text("")
    damaged = call("show", str(tmp_path / "runs"))
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
    unfinished = call("show", str(tmp_path))
    (folder,) = tmp_path.iterdir()
    assert f"unfinished      paper     {folder.name}" in unfinished.stdout
    assert "To resume an unfinished run, give the command that started it again" in unfinished.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_those_of_docs_completion(shell):
    done = call(_RIDGEFORMER_COMPLETE=f"{shell}_source")
    assert done.returncode == 0
    assert f"_RIDGEFORMER_COMPLETE={shell}_complete" in done.stdout
    documented = (Path(__file__).parents[2] / "docs" / "completion.md").read_text()
    assert f"_RIDGEFORMER_COMPLETE={shell}_source ridgeformer" in documented


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ridgeformer tr", "train"),
        ("ridgeformer train --fam", "--family"),
        ("ridgeformer train --family di", "diag"),
    ],
)
def test_completion_of_commands_options_and_values(words, expected):
    """What Bash asks for when Tab is pressed after `words`; answers are lines `type,value`."""
    count = str(len(words.split()) - 1)
    done = call(_RIDGEFORMER_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=count)
    assert f"plain,{expected}" in done.stdout.splitlines()
