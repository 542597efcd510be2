"""Options that several commands share: `--threads`."""

import os

import click
import pytest
import threadpoolctl

from commands import call
from ridgeformer import cli, engine

COMPUTING = ["problem", "train", "descend", "eval", "explain", "edit", "papers run", "papers table1", "papers verify"]


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


@pytest.mark.parametrize("before", [None, "2"])
def test_threads_are_limited_until_the_command_ends(seen, monkeypatch, before):
    monkeypatch.delenv("RIDGEFORMER_THREADS", raising=False)
    if before is not None:
        monkeypatch.setenv("RIDGEFORMER_THREADS", before)
    others = blas_threads()
    assert call("look", "--threads", "1").returncode == 0
    assert seen == [(1, {1})]
    assert os.environ.get("RIDGEFORMER_THREADS") == before
    assert blas_threads() == others


def test_the_variable_limits_blas_too(seen, monkeypatch):
    monkeypatch.setenv("RIDGEFORMER_THREADS", "1")
    call("look")
    assert seen == [(1, {1})]


def test_commands_that_compute_take_threads():
    for command in COMPUTING:
        *groups, name = command.split()
        group = cli.cli.commands[groups[0]] if groups else cli.cli
        assert "threads" in {option.name for option in group.commands[name].params}, command
