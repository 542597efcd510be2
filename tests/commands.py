"""Run commands: in this process, in another one, or in one that a test interrupts."""

import contextlib
import io
import os
import subprocess
import sys
import types
import warnings
from unittest import mock

from ridgeformer import cli
from support import LONGEST, unmeasured


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


def refused_line(words, *arguments):
    """A command is refused at once, in one line that fits on a screen and has these words."""
    done = call(*map(str, arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ridgeformer: error: ")
    assert (done.stderr.count("\n"), len(done.stderr) < 600) == (1, True)
    assert words in done.stderr


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


SMALL = ["--noise", "fixed(1)", "--dim", "2", "--context", "4", "--family", "gdpp", "--layers", "1"]
