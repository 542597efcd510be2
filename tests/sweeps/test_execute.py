"""Sweeps with real processes: a pool, a Dask scheduler, workers and drivers that are killed."""

import contextlib
import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from ridgeformer import train
from ridgeformer.sweeps import Grid, execute, sweep
from ridgeformer.sweeps.execute import train_unit
from ridgeformer.training import Search, store
from support import LONGEST, bits, unmeasured, write_grid

QUICK = Search(effort=0.2)
SIZES = {"dim": [3], "context": [6], "families": ["gdpp", "diag"], "layers": [2, 1], "seeds": [0, 1, 2]}
GRID = Grid(noise=["uniform(0,3)", "fixed(1)"], protocol=QUICK, sequences=1000, **SIZES)


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    """The runs of the grid on two processes, and where they are."""
    out = tmp_path_factory.mktemp("pool")
    states = []
    return sweep(GRID.specs(), out, workers=2, progress=states.append, interval=0.1), out, states


@pytest.mark.slow
def test_a_sweep_is_what_training_gives(pooled):
    found, _, states = pooled
    assert len(found.folders) == 24
    assert not found.failures
    assert found.reused == 0
    spec = next(spec for spec in GRID.specs() if spec.family.name == "diag" and spec.layers == 2 and spec.seed == 2)
    alone = train(spec.problem, "diag", 2, seed=2, protocol=QUICK, sequences=1000)
    stored = bits(found.folders)[spec.name]
    assert stored == {name: value.tobytes() for name, value in alone.model.family.arrays.items()}
    assert [state.done for state in states] == sorted(state.done for state in states)
    assert states[-1].done == states[-1].total == 24


def test_finished_runs_are_skipped(pooled, monkeypatch):
    _, out, _ = pooled
    monkeypatch.setattr(execute.ProcessPoolExecutor, "submit", None)  # no process is given work
    again = sweep(GRID.specs(), out, workers=2)
    assert again.reused == 24


def start_driver(out):
    grid = write_grid(out.parent / "grid.toml", 3)
    command = [sys.executable, "-m", "ridgeformer", "sweep", str(grid), "--out", str(out), "--workers", "2", "--json"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=unmeasured()
    )


def children(pid):
    """The workers of a driver. Not every machine has `ps`, and not every system has /proc."""
    if not os.path.isdir("/proc/self"):
        command = ["ps", "-ww", "-A", "-o", "pid=,ppid=,args="]
        lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
        return [int(line.split()[0]) for line in lines if int(line.split()[1]) == pid and "spawn_main" in line]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"spawn_main" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def wait_for(count, folder):
    """Until so many runs are finished."""
    deadline = time.monotonic() + LONGEST
    while len(list(folder.glob("*/record.json"))) < count and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.slow
def test_a_killed_worker_costs_only_time(tmp_path, pooled):
    driver = start_driver(tmp_path / "runs")
    wait_for(3, tmp_path / "runs")
    victims = children(driver.pid)
    assert victims
    os.kill(victims[0], signal.SIGKILL)
    out, message = driver.communicate(timeout=LONGEST)
    record = json.loads(out)
    assert driver.returncode == 0, message
    assert len(record["finished"]) == 24
    assert not record["failures"]
    assert bits((tmp_path / "runs" / name) for name in bits(pooled[0].folders)) == bits(pooled[0].folders)


@pytest.mark.slow
def test_a_killed_driver_loses_no_finished_run(tmp_path, pooled):
    first = start_driver(tmp_path / "runs")
    wait_for(5, tmp_path / "runs")
    workers = children(first.pid)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=LONGEST)  # ends when the workers, which share its pipe, have ended too
    assert workers
    kept = len(list((tmp_path / "runs").glob("*/record.json")))
    both = [start_driver(tmp_path / "runs") for _ in range(2)]  # two drivers on one store
    for driver in both:
        out, message = driver.communicate(timeout=LONGEST)
        assert driver.returncode == 0, message
        record = json.loads(out)
        assert record["failures"] == []
        assert record["reused"] >= min(kept, 1)
        assert len(record["finished"]) == 24
    assert bits((tmp_path / "runs" / name) for name in bits(pooled[0].folders)) == bits(pooled[0].folders)


def test_ctrl_c_stops_a_sweep_at_once(tmp_path):
    driver = start_driver(tmp_path / "runs")
    wait_for(2, tmp_path / "runs")
    os.killpg(driver.pid, signal.SIGINT)
    _, message = driver.communicate(timeout=LONGEST)
    assert driver.returncode == 130
    assert "Give the same command again to resume" in message
    assert len(list((tmp_path / "runs").glob("*/record.json"))) < 24


SMALL = {"dim": [3], "context": [6], "families": ["gdpp"], "layers": [1], "sequences": 1000}


def test_a_failure_is_reported_and_the_rest_goes_on(tmp_path):
    """There is a file where one run's folder should be: that run fails with its reason, its neighbour is trained."""
    first, second = Grid(noise=["fixed(1)", "fixed(2)"], **SMALL).specs()
    (tmp_path / first.name).touch()
    found = sweep([first, second], tmp_path, workers=1)
    assert [failure.run for failure in found.failures] == [first.name]
    assert "a run needs a folder" in found.failures[0].reason
    assert [folder.name for folder in found.folders] == [second.name]
    assert train_unit(str(tmp_path), [first.as_dict()], 1)[0][0] == first.name


def train_or_die(folder, specs, threads):
    """In place of training: the unit of seed 3 takes its worker with it."""
    if specs[0]["seed"] == 3:
        os._exit(1)
    time.sleep(0.05)
    return [("a run of seed 5", "as it should")] if specs[0]["seed"] == 5 else []


def test_a_unit_that_kills_its_workers_fails_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "train_unit", train_or_die)
    states = []
    grid = Grid(noise=["fixed(1)"], layers=[1, 2], seeds=range(12))
    found = sweep(grid.specs(), tmp_path, workers=2, progress=states.append, interval=0.1)
    assert [failure.reason for failure in found.failures].count("as it should") == 1
    died = [failure.run for failure in found.failures if "its worker died 4 times" in failure.reason]
    assert len(died) == 2 == len(found.failures) - 1
    assert all("-s3-" in name for name in died)
    assert any(state.failed and state.running for state in states)  # known while it runs, not only at the end


def test_an_executor_that_breaks_is_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "train_unit", train_or_die)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as broken:
        found = sweep(Grid(noise=["fixed(1)"], layers=[1], seeds=range(8)).specs(), tmp_path, executor=broken)
    assert any("the executor accepts no more work" in failure.reason for failure in found.failures)
    assert any("-s3-" in failure.run for failure in found.failures)


def test_a_full_disk_fails_the_runs_that_meet_it_and_keeps_the_rest(tmp_path, monkeypatch):
    specs = list(Grid(noise=["fixed(1)", "fixed(2)", "fixed(3)"], **SMALL).specs())
    write = store.save

    def full(model, path, *, record):
        if record["spec"]["noise"] == "fixed(2)":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(model, path, record=record)

    monkeypatch.setattr(store, "save", full)
    with ThreadPoolExecutor(1) as executor:
        found = sweep(specs, tmp_path, executor=executor)
    assert [failure.run for failure in found.failures] == [specs[1].name]
    assert "No space left on device. Free some space" in found.failures[0].reason
    assert [folder.name for folder in found.folders] == [specs[0].name, specs[2].name]
    monkeypatch.undo()
    with ThreadPoolExecutor(1) as executor:  # with room again, the same sweep goes on
        again = sweep(specs, tmp_path, executor=executor)
    assert again.reused == 2
    assert not again.failures


def test_the_display_tells_the_run_nearest_to_its_floor(pooled):
    _, out, states = pooled
    name, ratio = states[-1].best
    records = {path.parent.name: json.loads(path.read_text())["result"]["ratio"] for path in out.glob("*/record.json")}
    assert ratio == records[name] == min(value for value in records.values() if value is not None)
    assert states[0].best is None
