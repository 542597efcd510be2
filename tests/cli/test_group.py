"""All commands: their help, their errors, interruptions, and completion in shells."""

import json
import time
from pathlib import Path

import click
import pytest

from commands import SMALL, call, process, refused_line
from ridgeformer import InputError, __version__, cli, engine
from ridgeformer.cli.options import ORDER, one_line
from support import each


def commands(group=cli.cli, path=""):
    """All commands by the words that call them, the program itself as the empty text."""
    found = {path.strip(): group}
    for name, command in getattr(group, "commands", {}).items():
        found |= commands(command, f"{path} {name}")
    return found


def test_there_are_thirteen_commands_at_most():
    """The order in which help lists them is that of the group; `play` may come from another module."""
    assert list(cli.cli.list_commands(None)) == [name for name in ORDER if name in cli.cli.commands]
    assert len(ORDER) <= 13


COMPUTING = {"problem", "train", "descend", "eval", "explain", "edit", "papers run", "papers table1", "papers verify"}


def test_commands_that_print_a_table_write_csv_and_json_and_those_that_compute_take_threads():
    for path, command in commands().items():
        if path not in ("", "play") and not hasattr(command, "commands"):
            options = {parameter.name for parameter in command.params}
            assert "as_json" in options, path
            assert "csv_file" in options or path in ("export", "papers report"), path
            assert "threads" in options or path not in COMPUTING, path


def test_help_has_examples():
    """Every command, also those of groups; without a command there is help too."""
    assert call().stdout.startswith("Usage: ridgeformer")
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


def test_wrong_variables_are_errors_of_one_line():
    for words, variable in (
        ("(RIDGEFORMER_ENGINE) must be one of", {"RIDGEFORMER_ENGINE": "mmx"}),
        ("RIDGEFORMER_THREADS must be a whole number", {"RIDGEFORMER_THREADS": "many"}),
    ):
        done = call("info", **variable)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert words in done.stderr


DESCEND = ["descend", *SMALL, "--steps", "20", "--rate", "1e-3", "--scale", "0.1"]
EXPLAIN = ["explain", "zoo:diag/2/uniform(0,1)"]
DIGITS, LONG = "9" * 5000, "x" * 5000


@each(
    (["nonsense"], "No such command"),
    (["--nonsense"], "No such option"),
    (["train", "--noise", "fixed(1)", "--threads", "0"], "Invalid value for '--threads'"),
    (["problem"], "Missing option '--noise'. Write --noise 'uniform(0,5)', for example."),
    (["train"], "Missing option '--noise'. Write --noise 'uniform(0,5)', for example."),
    (["train", "--noise", "fixed(1)", "--steps", "5"], "search takes --effort, --caution, --precision,"),
    (["train", "--noise", "fixed(1)", "--protocol", "paper", "--effort", "2"], "paper takes --steps, --batch,"),
    (["train", "--noise", "fixed(1)", "--plot", "curve.doc"], "must end in .png, .pdf or .svg"),
    (["runs", "/nonexistent"], "a run is a folder; /nonexistent is not there"),
    (["runs", __file__], "a run is a folder; "),
    (["problem", "--noise", "uniform(0,-5)"], "upper noise level must be at least 0"),
    (["eval", "/nonexistent", "--noise", "fixed(1)"], "there is no file '/nonexistent'. Give a .safetensors"),
    (["eval", __file__, "--noise", "fixed(1)"], "must be one that ridgeformer saved"),
    (["train", *SMALL, "--seed", "1e400"], "'--seed': '1e400' is not a valid integer."),
    (["train", *SMALL, "--seed", DIGITS], "'--seed': '9999"),
    (["train", *SMALL, "--seed", DIGITS[:300]], "it must be at most 9223372036854775807; got 9999"),
    (["train", *SMALL, "--sequences", DIGITS[:15]], "it must be at most 4294967296; got 9999"),
    (["train", *SMALL, "--noise", "\x1b[2Jx(1)"], r"got '\x1b[2Jx(1)'"),
    (["train", *SMALL, "--protocol", "paper", "--steps", DIGITS[:400]], "at most 18446744073709551615; got 9999"),
    (["train", *SMALL, "--out", ""], "'--out': a path must not be empty"),
    (["train", *SMALL, "--out", "/dev/null"], "runs need a folder; /dev/null is a file"),
    (["train", *SMALL, "--out", __file__ + "/runs"], "runs need a folder that can be made"),
    (["train", *SMALL, "--out", LONG], "'--out': a path must not be too long; got xxx"),
    (["train", *SMALL, "--plot", "/nonexistent/curve.png"], "a plot needs a writable folder; /nonexistent does"),
    (["train", *SMALL, "--plot", "/"], "File '/' is a directory"),
    (["eval", "zoo:"], "a model of the zoo is named zoo:FAMILY/LAYERS/NOISE or zoo:FAMILY/LAYERS/NOISE/SEED; got"),
    (["eval", "zoo:diag/\u00b2/uniform(0,1)"], "a model of the zoo is named zoo:FAMILY"),
    (["eval", "diag/7/uniform(0,5)"], "there is no file 'diag/7/uniform(0,5)'. Give a .safetensors file"),
    (["eval", "zoo:diag/2/uniform(0,1)", "--over", "sigma=1,,2"], "--over takes AXIS=VALUE,VALUE,...; got"),
    (["eval", "zoo:diag/2/uniform(0,1)", "--csv", "/nonexistent/x.csv"], "a table needs a writable folder"),
    (["eval", ""], "'MODEL...': a path must not be empty"),
    (["eval", LONG], "'MODEL...': a path must not be too long"),
    (["eval", "a\0b"], "'MODEL...': a path must have no null character; got 'a\\x00b'"),
    (["eval", "zoo:diag/2/uniform(0,1)", "--over", "sigma", "--plot", "x.gif"], "must end in .png, .pdf or .svg"),
    (["runs", "\x1b[2J"], "[2J is not there"),
    (["sweep", "/dev/null", "--out", "runs"], "a grid must be an ordinary file; /dev/null is a pipe or a device"),
    (["sweep", __file__, "--out", "runs"], "a grid must be TOML"),
    (["papers", "table1", "--dask", ""], "--workers and --dask are for --retrain, which is missing"),
    (["papers", "figures", "vladymyrov2024", "--only", DIGITS], "a figure must be one of 1, 2, 3, 4, 5, 6, 7, 8"),
    (["train", "--noise", "fixed(1"], "got 'fixed(1', in which a closing bracket is missing. Write"),
    (["problem", "--noise", "fixed(1)", "--plot", "x.gif"], "must end in .png, .pdf or .svg"),
    (["problem", "--noise", "fixed(1)", "--context", "9999999999", "--plot", "x.png"], "with a smaller context"),
    (["export", "zoo:diag/2/uniform(0,1)", "--context", "5"], "--context is for models with attention by mean"),
    (["descend", *SMALL, "--method", "descent", "--time", "2"], "descent takes --batch, --scale"),
    (["descend", *SMALL, "--method", "flow", "--rate", "2"], "flow takes --batch, --scale"),
    (["descend", *SMALL, "--method", "adam", "--schedule", "fast"], "pairs step:factor; got 'fast'. Write cosine"),
    (["descend", *SMALL, "--method", "adam", "--snapshots", "1,x"], "snapshots must be a number or a list"),
    (["descend", *SMALL, "--method", "flow", "--clip", "1"], "got --clip, which is for others"),
    ([*DESCEND, "--plot", "a.gif", "--snapshots", "1"], "animation needs two snapshots of a descent; got 1"),
    ([*DESCEND, "--picture", "animation", "--plot", "a.png"], "must end in .gif or .html; got 'a.png'"),
    ([*DESCEND, "--picture", "curve", "--plot", "a.gif"], "must end in .png, .pdf or .svg; got 'a.gif'"),
    ([*DESCEND, "--plot", "a.bmp"], "must end in .png, .pdf, .svg, .gif or .html; got 'a.bmp'"),
    ([*EXPLAIN, "--plot", "x.doc"], "must end in .png, .pdf or .svg"),
    (["explain", "/nonexistent"], "there is no file '/nonexistent'"),
    (["explain", str(Path(__file__).parent)], "a model is a file or the folder of a run"),
    ([*EXPLAIN, "--section", "patching", "--low", "2", "--high", "1"], "below the higher one; got 2 and 1. Pass"),
    (
        [*EXPLAIN, "--section", "ablation", "--section", "patching", "--csv", "x.csv"],
        "--csv and --plot need one section",
    ),
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_bad_command_lines(arguments, words, monkeypatch, tmp_path):
    """Refused at once, before anything is computed or written."""
    monkeypatch.chdir(tmp_path)
    start = time.process_time()
    refused_line(words, *arguments)
    assert time.process_time() - start < 10
    assert not list(tmp_path.iterdir())


@each(
    (KeyboardInterrupt(), "ridgeformer: interrupted\n"),
    (RecursionError("maximum recursion depth exceeded"), "is nested too deeply. Use fewer layers"),
    (MemoryError(), "not enough memory"),
    (OverflowError("int too large"), "a number is too large to compute with (int too large)"),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "all text must be UTF-8; some is not"),
    (InputError("a rule;\n got\x1b[2J " + "x" * 5000), r"a rule; got\x1b[2J xxx"),
    (ConnectionError("the scheduler is gone"), "the scheduler is gone"),
    (OSError(28, "No space left on device", "here"), "here: No space left on device"),
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_no_error_of_input_or_machine_is_a_traceback(error, words, monkeypatch, capsys):
    def fail(**_):
        raise error

    monkeypatch.setattr(cli.cli, "main", fail)
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert stopped.value.code == (130 if isinstance(error, KeyboardInterrupt) else 2)
    message = capsys.readouterr().err
    assert message.startswith("ridgeformer: ")
    assert words in message
    assert message.count("\n") == 1
    assert len(message) < 300


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_those_of_docs_completion(shell):
    done = call(_RIDGEFORMER_COMPLETE=f"{shell}_source")
    assert done.returncode == 0
    assert f"_RIDGEFORMER_COMPLETE={shell}_complete" in done.stdout
    documented = (Path(__file__).parents[2] / "docs" / "howto" / "completion.md").read_text()
    assert f"_RIDGEFORMER_COMPLETE={shell}_source ridgeformer" in documented


@each(("ridgeformer tr", "train"), ("ridgeformer train --fam", "--family"), ("ridgeformer train --family di", "diag"))
def test_completion_of_commands_options_and_values(words, expected):
    """What Bash asks for when Tab is pressed after `words`; answers are lines `type,value`."""
    count = str(len(words.split()) - 1)
    done = call(_RIDGEFORMER_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=count)
    assert f"plain,{expected}" in done.stdout.splitlines()


def test_info_says_version_features_and_threads():
    facts = json.loads(call("info", "--json", RIDGEFORMER_THREADS="3").stdout)
    assert facts["version"] == __version__
    assert facts["engines"] == list(engine.available())
    assert (facts["engine"], facts["threads"]) == (engine.available()[0], 3)
    assert __version__ in call("info").stdout
    assert process("--version").stdout == f"ridgeformer {__version__}\n"


def test_a_line_has_no_control_characters():
    """Whole runs of strangers, on a terminal, are in tests/fuzzing/fuzz_terminal.py."""
    assert one_line("a\nb\x1b[1mc\u202e") == "a\\nb\\x1b[1mc\\u202e"
