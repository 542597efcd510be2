"""Sweeps on a real Dask cluster: schedulers and workers that are killed, as processes are."""

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import ridgeformer
from commands import refused_line
from ridgeformer.errors import UnreachableError
from ridgeformer.sweeps import connection, read_grid, sweep
from ridgeformer.sweeps.connection import Connection
from support import LONGEST, bits, each, refused, write_grid

distributed = pytest.importorskip("distributed")

GONE = "can no longer be reached. Finished runs are kept: start the scheduler and its workers again"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A grid of sixteen runs, and the bits of its models as two local processes train them."""
    folder = tmp_path_factory.mktemp("undisturbed")
    grid = write_grid(folder / "grid.toml", 2)
    return grid, bits(sweep(read_grid(grid).specs(), folder / "runs", workers=2).folders)


def bits_in(out):
    return bits(path.parent for path in out.glob("*/record.json"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start_dask(folder, *arguments):
    """One of Dask's commands, with this ridgeformer."""
    environment = {**os.environ, "PYTHONPATH": str(Path(ridgeformer.__file__).parents[1])}
    command = [sys.executable, "-m", "dask", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, env=environment)


def start_scheduler(folder, address):
    return start_dask(folder, "scheduler", "--port", address.rpartition(":")[2], "--dashboard-address", ":0")


def start_worker(folder, address):
    return start_dask(folder, "worker", address, "--nthreads", "1", "--no-nanny")


@contextlib.contextmanager
def cluster(folder, workers=2):
    """A scheduler and its workers, started as Dask's users start them; gives the address and the processes."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    processes = []
    try:
        processes.append(start_scheduler(folder, address))
        wait_until(lambda: answers(port))
        processes += [start_worker(folder, address) for _ in range(workers)]
        yield address, processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_until(condition, seconds=LONGEST):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


def start_driver(grid, out, address):
    command = [sys.executable, "-m", "ridgeformer", "sweep", str(grid), "--out", str(out), "--dask", address, "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(out):
    return len(list(out.glob("*/record.json")))


def end_of(driver):
    """What a driver that lost its scheduler prints, once it has ended: ten seconds later, if nobody else computes."""
    out, message = driver.communicate(timeout=60)
    assert driver.returncode == 2
    assert out == ""
    return message


@pytest.mark.slow
def test_dask_gives_the_same_bits_and_survives_a_killed_worker(tmp_path, undisturbed):
    grid, expected = undisturbed
    with cluster(tmp_path) as (address, processes):
        driver = start_driver(grid, tmp_path / "runs", address)
        wait_until(lambda: finished(tmp_path / "runs") >= 2)
        processes[1].send_signal(signal.SIGKILL)
        out, message = driver.communicate(timeout=LONGEST)
    assert driver.returncode == 0, message
    assert len(json.loads(out)["finished"]) == 16
    assert bits_in(tmp_path / "runs") == expected


@pytest.mark.slow
def test_a_killed_scheduler_ends_the_sweep_in_one_line_and_the_same_command_goes_on(tmp_path, undisturbed):
    grid, expected = undisturbed
    out = tmp_path / "runs"
    with cluster(tmp_path) as (address, processes):
        driver = start_driver(grid, out, address)
        wait_until(lambda: finished(out) >= 3)
        processes[0].kill()
        message = end_of(driver)
    *progress, error = message.splitlines()  # no progress but on a slow machine
    assert error.startswith(f"ridgeformer: error: The Dask scheduler at {address} {GONE}")
    assert all(" runs done, " in line for line in progress)
    kept = finished(out)
    with cluster(tmp_path) as (address, _):  # the same command with a new cluster, to its end
        driver = start_driver(grid, out, address)
        text, message = driver.communicate(timeout=LONGEST)
    assert driver.returncode == 0, message
    record = json.loads(text)
    assert record["reused"] >= kept >= 3
    assert len(record["finished"]) == 16
    assert bits_in(out) == expected


def test_an_unreachable_scheduler(tmp_path):
    driver = start_driver(write_grid(tmp_path / "grid.toml", 1), tmp_path / "runs", "tcp://127.0.0.1:9")
    _, message = driver.communicate(timeout=LONGEST)
    assert driver.returncode == 2
    assert "does not answer" in message
    assert "dask scheduler" in message
    assert message.count("\n") == 1


@each("", " ", "nonsense", "tls://127.0.0.1:9", "ucx://host:1", "inproc://1", "x" * 5000)
def test_what_is_no_address_is_refused_and_not_ignored(address, tmp_path):
    """Each kind of address has errors of its own; an empty one must not mean a sweep on this machine."""
    words, grid = "--dask must be the address of a running Dask scheduler; ", write_grid(tmp_path / "grid.toml", 1)
    refused_line(words, "sweep", grid, "--out", tmp_path / "runs", "--dask", address)


class Scripted:
    """A client's connection whose state, answers and time are set by the test."""

    def __init__(self, monkeypatch, interval=1.0):
        self.now, self.workers, self.answers = 0.0, 1, True
        stream = SimpleNamespace(closed=lambda: not self.connected)
        self.client = SimpleNamespace(
            status="running",
            scheduler_comm=stream,
            scheduler=SimpleNamespace(address="tcp://there:8786"),
            loop=SimpleNamespace(asyncio_loop=None),
        )
        self.connected = True
        monkeypatch.setattr(connection, "_client_of", lambda executor: self.client)
        monkeypatch.setattr(connection.asyncio, "run_coroutine_threadsafe", self.ask)
        self.connection = Connection(None, interval, lambda: self.now)

    def ask(self, coroutine, loop):
        coroutine.close()
        future = Future()
        if self.answers:
            future.set_result({"workers": dict.fromkeys(range(self.workers))})
        return future

    def pass_time(self, seconds, step=1.0):
        """Seconds until the connection is given up; all of them if it is not."""
        for past in range(int(seconds / step)):
            self.now += step
            try:
                self.connection.is_open()
            except UnreachableError:
                return (past + 1) * step
        return seconds


def test_a_connection_is_given_up_after_ten_seconds(monkeypatch):
    scripted = Scripted(monkeypatch)
    assert scripted.pass_time(1000) == 1000
    scripted.connected = False
    assert not scripted.connection.is_open()
    assert scripted.pass_time(8) == 8
    scripted.connected = True  # a scheduler was started again in time
    assert scripted.connection.is_open()
    scripted.connected = False
    assert scripted.pass_time(100) == 11


def test_a_closed_client_is_given_up_at_once(monkeypatch):
    scripted = Scripted(monkeypatch)
    scripted.client.status = "closed"
    refused(scripted.connection.is_open, f"scheduler at tcp://there:8786 {GONE}", UnreachableError)


def test_a_silent_scheduler_is_given_up_after_a_minute(monkeypatch):
    scripted = Scripted(monkeypatch)
    assert scripted.pass_time(100) == 100
    scripted.answers = False
    assert 60 <= scripted.pass_time(1000) <= 65


def test_time_in_which_the_driver_was_suspended_does_not_count(monkeypatch):
    scripted = Scripted(monkeypatch)
    scripted.connected = False
    scripted.now += 3600
    assert not scripted.connection.is_open()


def test_missing_workers_are_named_once(monkeypatch):
    scripted = Scripted(monkeypatch)
    scripted.workers = 0
    with pytest.warns(UserWarning, match="No worker is connected .* with `dask worker tcp://there:8786`") as told:
        assert scripted.pass_time(100) == 100
    assert len(told) == 1


def test_an_executor_without_a_scheduler_is_always_within_reach():
    with ThreadPoolExecutor(1) as executor:
        assert Connection(executor).is_open()


@pytest.mark.parametrize("cancelled", [True, False])
@pytest.mark.slow
def test_units_that_a_restarting_scheduler_loses_have_not_failed(tmp_path, monkeypatch, cancelled):
    """However often it restarts: its losses are no deaths of a unit's worker."""
    opened = itertools.chain([True, False] * 10, itertools.repeat(True))
    monkeypatch.setattr(Connection, "is_open", lambda self: next(opened))
    forgotten = iter([True] * 20)  # both units, ten times

    class Forgetful(ThreadPoolExecutor):
        def submit(self, *arguments):
            if not next(forgotten, False):
                return super().submit(*arguments)
            future = Future()
            if cancelled:
                future.cancel()
                future.set_running_or_notify_cancel()
            return future

    grid = write_grid(tmp_path / "grid.toml", 1)
    with Forgetful(1) as executor:
        found = sweep(read_grid(grid).specs(), tmp_path / "runs", executor=executor, interval=0.01)
    assert not found.failures
    assert len(found.folders) == 8
