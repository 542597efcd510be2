"""Run a grid: units of work that any `concurrent.futures.Executor` maps, a folder of runs as the store.

A unit is all runs of one problem, seed and number of heads, shallow before deep: what one model needs of another is
then trained once. Finished runs are found and skipped; a failure is reported with its reason and never stored; a worker
that dies costs the time since the last checkpoint.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgeformer.engine import default_threads
from ridgeformer.errors import RidgeformerError, refuse
from ridgeformer.problems import BaseProblem
from ridgeformer.sweeps.connection import Connection
from ridgeformer.training import Runs, Spec
from ridgeformer.training.runs import read_entry
from ridgeformer.training.session import Session
from ridgeformer.training.spec import parse_spec
from ridgeformer.training.store import Folder, has_record, is_finished
from ridgeformer.validation import integer

Unit = list[Spec]
RETRIES = 3  # of a unit whose worker died
DIED = (
    f"its worker died {RETRIES + 1} times. A script must call sweep under `if __name__ == '__main__':`; otherwise look "
    "for a lack of memory."
)


@dataclass(frozen=True)
class Failure:
    """A run that could not be trained.

    Attributes:
        run: The name of the run.
        reason: Why it could not be trained.
    """

    run: str
    reason: str


@dataclass(frozen=True)
class State:
    """How far a sweep has come.

    Attributes:
        total: All runs of the sweep.
        done: Finished runs, with those that were finished before.
        running: Runs that are being trained now, one per worker.
        failed: Runs that failed.
        seconds: Time since the sweep began.
        remaining: Seconds until it ends, an estimate; infinite as long as nothing is known.
        best: The name and the ratio (loss over floor) of the finished run that is nearest to its floor; None as long as
            there is none.
    """

    total: int
    done: int
    running: int
    failed: int
    seconds: float
    remaining: float
    best: tuple[str, float] | None = None


@dataclass(frozen=True)
class Sweep:
    """The outcome of a sweep: finished runs and failures.

    Attributes:
        runs: The finished runs, as a table.
        failures: The runs that failed, with their reasons.
        reused: How many runs were finished before the sweep began.
        seconds: How long the sweep took.
    """

    runs: Runs
    failures: list[Failure]
    reused: int
    seconds: float

    @property
    def folders(self) -> list[Path]:
        """The folders of the finished runs."""
        return [entry.folder for entry in self.runs.entries if entry.folder is not None]


def sweep(
    specs: Iterable[Spec],
    out: str | os.PathLike[str],
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    progress: Callable[[State], None] = lambda state: None,
    interval: float = 1.0,
) -> Sweep:
    """Train all specs into a folder. Finished runs are reused; interrupted runs resume.

    Args:
        specs: The runs to train, as from `Grid.specs()`.
        out: The folder for runs. It is made if it does not exist.
        executor: Where to train: any `concurrent.futures.Executor` whose workers see the same folder, such as that of
            a Dask client, `client.get_executor()`. By default this is a pool of processes with one thread each.
        workers: The number of processes of that pool; one per core by default.
        progress: Is called with a `State` about every `interval` seconds.
        interval: Seconds between two looks at the executor.

    Returns:
        The finished runs as a table, and the runs that failed, each with its reason.

    Raises:
        InputError: A problem of your own has a class that workers cannot import, or that has no name.
        StorageError: The folder cannot be made or written to.
        UnreachableError: The Dask scheduler of `executor` is gone: there was no connection for 10 seconds. Finished
            runs are kept; called again with another executor, the sweep goes on.
    """
    unique = list(dict.fromkeys(specs))
    for problem in dict.fromkeys(spec.problem for spec in unique):
        _check_importable(problem)
    store = Folder(out)
    began = time.monotonic()
    places = {spec.name: store.path / spec.name for spec in unique}
    finished = {name for name, place in places.items() if is_finished(place)}
    units = [unit for unit in _units(unique) if any(spec.name not in finished for spec in unit)]
    driver = _Driver(store.path, executor, workers, interval)
    ratios: dict[str, float] = {}

    def report(running: int) -> None:
        for name, place in places.items():
            if name not in ratios and has_record(place) and is_finished(place):
                ratios[name] = read_entry(place).row()["ratio"]
        done = len(ratios)
        seconds = time.monotonic() - began
        share = (done - len(finished)) / max(len(unique) - len(finished), 1)
        left = seconds * (1 - share) / share if share else float("inf")
        finite = [item for item in ratios.items() if item[1] < float("inf")]
        best = min(finite, key=lambda item: item[1], default=None)
        progress(State(len(unique), done, running, len(driver.failures), seconds, left, best))

    try:
        report(0)
        driver.run(units, report)
    finally:
        driver.close()
    report(0)
    runs = Runs(tuple(read_entry(place) for place in places.values() if is_finished(place)))
    return Sweep(runs, driver.failures, len(finished), time.monotonic() - began)


def _units(specs: Sequence[Spec]) -> list[Unit]:
    groups: dict[Any, Unit] = {}
    for spec in specs:
        groups.setdefault((spec.problem, spec.heads, spec.seed, spec.protocol, spec.layout), []).append(spec)
    return list(groups.values())


def _check_importable(problem: BaseProblem) -> None:
    """Refuse a problem of the user's own that a worker could not make again from its name and arguments."""
    problem.check_named()
    kind = type(problem)
    main = sys.modules.get("__main__")
    if "<locals>" in kind.__qualname__ or (kind.__module__ == "__main__" and not hasattr(main, "__file__")):
        remedy = "Define the class at the top level of a module or script, outside functions and interactive sessions."
        rule = "a sweep needs problems whose class its worker processes can import by name"
        refuse(rule, f"{kind.__qualname__} of the module {kind.__module__}", remedy)


def train_unit(folder: str, specs: list[dict[str, Any]], threads: int | None) -> list[tuple[str, str]]:
    """Train the runs of a unit; this function runs in a worker.

    Args:
        folder: The folder for runs.
        specs: The specs of the runs, as JSON.
        threads: Threads of the engine; None for all.

    Returns:
        The names of the runs that failed, each with its reason.
    """
    for module in {spec["module"] for spec in specs if "module" in spec} - {"__main__"}:
        try:
            importlib.import_module(module)  # the class of a problem of the user's own enters itself
        except ImportError as error:
            refuse("a worker must be able to import the class of a problem", error, "Install its module for workers.")
    parsed = [parse_spec(spec) for spec in specs]
    session = Session(Folder(folder), [], threads, parsed)
    failed = []
    for spec in parsed:
        try:
            session.train(spec)
        except Exception as error:
            failed.append((spec.name, _reason(error)))
    return failed


def _reason(error: Exception) -> str:
    """Why a run failed: in a sentence where it is the input's or the disk's fault, else with the place in the code."""
    if isinstance(error, RidgeformerError):
        return str(error)
    if isinstance(error, OSError):
        what = f"{error.filename or 'its folder'}: {error.strerror or error}"
        remedy = "Free some space or choose another folder, then give the command again."
        return f"a run must be able to write its files; {what}. {remedy}"
    return "".join(traceback.format_exception(error, limit=-3))


def _begin_worker(driver: int) -> None:
    """Leave Ctrl-C to the driver, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _worker() -> Executor:
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, initializer=_begin_worker, initargs=(os.getpid(),))


class _Driver:
    """Submits units, and submits again what was lost with a worker or a scheduler; `failures` grows as they happen.

    Every worker of ours is a pool of one process: where it dies, the unit that it was training is to blame, and no
    other unit is lost with it. What is lost because a scheduler restarts is no unit's fault.
    """

    def __init__(self, folder: Path, executor: Executor | None, workers: int | None, interval: float) -> None:
        self.folder, self.given, self.interval = folder.absolute(), executor, interval
        self.workers = default_threads() if workers is None else integer("workers", workers, 1, 1024)
        self.threads = 1 if executor is None else None
        self.connection = Connection(executor, interval)
        self.idle: list[Executor] = []
        self.running: dict[Future[list[tuple[str, str]]], tuple[int, Executor]] = {}  # number of the unit, and where
        self.failures: list[Failure] = []

    def run(self, units: list[Unit], report: Callable[[int], None]) -> None:
        """Train all units; raises `UnreachableError` if the executor has lost its scheduler for good."""
        deaths, waiting = [0] * len(units), list(range(len(units)))
        while waiting or self.running:
            if self.connection.is_open():
                room = len(waiting) if self.given else self.workers - len(self.running)
                for i in waiting[:room]:
                    self._submit(units, i)
                waiting = waiting[room:]
            else:
                waiting = [*(i for i, _ in self.running.values()), *waiting]
                self.running.clear()
                time.sleep(min(self.interval, 1.0))
            lost = self._collect(units)
            if lost and self.connection.is_open():
                for i in lost:
                    deaths[i] += 1
                    if deaths[i] > RETRIES:
                        self._fail(units[i], DIED)
            waiting = [i for i in lost if deaths[i] <= RETRIES] + waiting
            report(len(self.running))

    def _submit(self, units: list[Unit], i: int) -> None:
        executor = self.given or (self.idle.pop() if self.idle else _worker())
        specs = [{**spec.as_dict(), "module": type(spec.problem).__module__} for spec in units[i]]
        try:
            self.running[executor.submit(train_unit, str(self.folder), specs, self.threads)] = i, executor
        except Exception as error:  # what an executor raises that broke, or was shut down, is its own choice
            if self.given is None and isinstance(error, BrokenProcessPool):  # our worker died while it was idle
                return self._submit(units, i)
            self.connection.is_open()
            remedy = "Restart it, then give the command again."
            self._fail(units[i], f"the executor accepts no more work ({error}). {remedy}")

    def _collect(self, units: list[Unit]) -> list[int]:
        """Wait for units to end, take them out of `running` and note what failed; returns those that were lost."""
        done, _ = wait(self.running, timeout=self.interval, return_when=FIRST_COMPLETED)
        lost = []
        for future in done:
            i, executor = self.running.pop(future)
            try:
                self.failures += [Failure(name, reason) for name, reason in future.result()]
            except (BrokenProcessPool, CancelledError):
                lost.append(i)
                continue
            except Exception as error:
                self._fail(units[i], " ".join(f"{type(error).__name__}: {error}".split()))
            self.idle.append(executor)
        return lost

    def _fail(self, unit: Unit, reason: str) -> None:
        self.failures += [Failure(spec.name, reason) for spec in unit if not is_finished(self.folder / spec.name)]

    def close(self) -> None:
        """Stop workers that are ours; nothing that is stored is lost."""
        self.connection.close()
        ours = [*self.idle, *(executor for _, executor in self.running.values())] if self.given is None else []
        for executor in ours:
            workers = list((getattr(executor, "_processes", None) or {}).values())
            executor.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.terminate()
