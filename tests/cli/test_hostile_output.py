"""A stranger's run on a pseudo-terminal: no escape sequence and no line of its own reaches the screen."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from ridgeformer import Problem, train
from ridgeformer.cli.output import one_line
from ridgeformer.training import Search
from ridgeformer.training.store import files as stored

HOSTILE_TEXT = "fine\x1b[2J\x1b]0;title\x07\r\nFAKE LINE \u202eevil\x9b31m"


def on_terminal(*arguments):
    """The output of a command whose stdout and stderr are a terminal."""
    main, other = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "ridgeformer", *arguments], stdout=other, stderr=other)
    os.close(other)
    pieces = []
    try:
        while piece := os.read(main, 65536):
            pieces.append(piece)
    except OSError:  # the other side is closed
        pass
    process.wait()
    os.close(main)
    return b"".join(pieces).decode(errors="replace")


@pytest.mark.slow
def test_hostile_runs_print_nothing_but_text(tmp_path):
    run = train(Problem(2, 4, "fixed(1)"), "gdpp", 1, protocol=Search(effort=0.1), sequences=200, out=tmp_path).folder
    record = json.loads((run / "record.json").read_text())
    record |= {"message": HOSTILE_TEXT, "status": HOSTILE_TEXT}
    record["made_with"] = {HOSTILE_TEXT: HOSTILE_TEXT}
    record["checksum"] = stored.checksum(record)
    (run / "record.json").write_text(json.dumps(record))
    strange = run.rename(run.with_name("a\x1b[2J\nFAKE LINE"))
    for place in (strange, strange.parent):
        text = on_terminal("runs", str(place))
        assert "fine" in text
        lines = re.split(r"\r?\n", text)
        assert not any(line.startswith("FAKE LINE") for line in lines), text
        assert all(line.isprintable() for line in lines), ascii(text)


def test_a_line_has_no_control_characters():
    assert one_line("a\nb\x1b[1mc\u202e") == "a\\nb\\x1b[1mc\\u202e"
