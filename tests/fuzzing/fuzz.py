"""Damaged files and odd calls in great numbers: no crash, no hang, no undocumented exception, no wrong result.

python tests/fuzzing/fuzz.py              # at least 100,000 files and 106,000 calls, in at most ten minutes
python tests/fuzzing/fuzz.py --quick      # a fifth of that, in at most two minutes
python tests/fuzzing/fuzz.py --only zoo   # one kind

Every kind is a module `fuzz_<kind>` with `run(count, seed)`, which gives the outcomes by name and raises an
`AssertionError` at the first case that breaks the law. Cases run in other processes, so that a crash is seen.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import importlib
import itertools
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

KINDS = {"models": 42_000, "journals": 22_000, "records": 12_000, "zoo": 12_000, "grids": 12_000}
KINDS |= {"arrays": 2_000, "laws": 2_000, "pairs": 2_000, "terminal": 200, "engine": 100_000}
COSTS = dict.fromkeys(KINDS, 1) | {
    "records": 4,
    "arrays": 4,
    "laws": 15,
    "pairs": 15,
    "terminal": 250,
}  # in ms, roughly
CALLS = ("arrays", "laws", "pairs", "terminal", "engine")  # the other kinds are of files
FULL, QUICK = 570.0, 110.0  # seconds
CHUNK = 200  # cases of one call of run, where they are not slow
SLOW = {"terminal": 40}
HANG = 120.0  # seconds that a chunk may take; waiting forever shows here, computing forever in its case
SAVED = Path(__file__).parents[2] / "build" / "fuzz"


class Violation(Exception):
    """A case broke the law. The text says how to repeat it."""


def begin(scratch: str) -> None:
    """Prepare a process: temporary files go to memory, and a crash says where it happened."""
    faulthandler.enable()
    tempfile.tempdir = scratch


def chunk(kind: str, seed: int) -> Counter[str]:
    """Some cases of a kind. A hang ends the process."""
    module = importlib.import_module(f"fuzz_{kind}")
    faulthandler.dump_traceback_later(HANG, exit=True)
    try:
        found: Counter[str] = module.run(SLOW.get(kind, CHUNK), seed)
        return found
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def processes(jobs: int) -> Iterator[tuple[ProcessPoolExecutor, Path]]:
    """Processes to run cases in, and the folder where these write their files: in memory if there is such a place."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory) as scratch:
        context = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(jobs, context, begin, (scratch,))
        try:
            yield executor, Path(scratch)
        finally:
            executor.shutdown(cancel_futures=True)


def fuzz(kind: str, least: int, deadline: float, seed: int, jobs: int) -> Counter[str]:
    """Run cases of one kind until there are enough of them, or the time is over.

    Raises:
        Violation: A case broke the law, crashed, or did not end.
    """
    outcomes: Counter[str] = Counter()
    seeds = itertools.count(seed * 1_000_000)
    running: dict[Future[Counter[str]], int] = {}
    reported = time.monotonic()
    with processes(jobs) as (executor, scratch):
        while True:
            tried = outcomes.total() + SLOW.get(kind, CHUNK) * len(running)
            if len(running) < jobs and tried < least and (not tried or time.monotonic() < deadline):
                number = next(seeds)
                running[executor.submit(chunk, kind, number)] = number
                continue
            if not running:
                return outcomes
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                try:
                    outcomes += done.result()
                except BrokenProcessPool as error:
                    raise Violation(_crash(kind, sorted(running.values()), scratch)) from error
                except AssertionError as error:
                    raise Violation(str(error)) from error
                del running[done]
            if time.monotonic() - reported > 20:
                reported = time.monotonic()
                print(f"{kind:10} {outcomes.total():7,} so far", flush=True)


def _crash(kind: str, seeds: list[int], scratch: Path) -> str:
    saved = SAVED / f"{kind}-crash"
    with contextlib.suppress(shutil.Error, OSError):  # a pipe cannot be copied
        shutil.copytree(scratch, saved, dirs_exist_ok=True)
    calls = " or ".join(f"fuzz_{kind}.run({SLOW.get(kind, CHUNK)}, {seed})" for seed in seeds)
    return f"{calls} crashed or did not end. The files it had written are in {saved}"


def summary(outcomes: Counter[str]) -> tuple[str, str]:
    """How cases ended, and what was tried, from names such as "flip_bits in record.json: refused"."""
    ends: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for name, times in outcomes.items():
        damage, _, end = name.rpartition(": " if ": " in name else " ")
        ends["refused" if end == "InputError" else end] += times
        tried[damage.split(" in ")[0].replace("_", " ")] += times
    return _listed(ends), _listed(tried)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{times:,} {name}" for name, times in counts.most_common() if name)


def run(kinds: dict[str, int], seconds: float, seed: int, jobs: int) -> dict[str, int]:
    """Run every kind with its share of the time, print what was tried, and return how many cases there were."""
    began = time.monotonic()
    counts = {}
    for kind, least in kinds.items():
        share = COSTS[kind] * least / sum(COSTS[other] * kinds[other] for other in kinds if other not in counts)
        start = time.monotonic()
        deadline = start + max(0.0, began + seconds - start) * share
        outcomes = fuzz(kind, least, deadline, seed, jobs)
        counts[kind] = outcomes.total()
        ends, tried = summary(outcomes)
        what = "calls" if kind in CALLS else "files"
        print(f"{kind:10} {counts[kind]:7,} {what} in {time.monotonic() - start:5.1f} s: {ends}", flush=True)
        if tried:
            print(f"{'':10} tried: {tried}", flush=True)
    return counts


def main() -> int:
    """Read the command line, run, and say how it ended."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the cases, in at most two minutes")
    parser.add_argument("--seconds", type=float, help=f"the time that all of it may take; {FULL:g} unless told")
    parser.add_argument("--seed", type=int, default=0, help="another seed tries other cases")
    parser.add_argument("--only", choices=KINDS, action="append", help="run this kind; may be given more than once")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; one per core unless told")
    options = parser.parse_args()
    kinds = {
        kind: least // 5 if options.quick else least
        for kind, least in KINDS.items()
        if not options.only or kind in options.only
    }
    seconds = options.seconds or (QUICK if options.quick else FULL)
    began = time.monotonic()
    try:
        counts = run(kinds, seconds, options.seed, options.jobs)
    except Violation as error:
        print(f"VIOLATION: {error}", file=sys.stderr)
        return 1
    calls = sum(counts.get(kind, 0) for kind in CALLS)
    files = sum(counts.values()) - calls
    spent = time.monotonic() - began
    print(f"{files:,} files and {calls:,} calls in {spent:.0f} s, seed {options.seed}: no violation")
    short = [f"{kind}: {counts[kind]:,} of {least:,}" for kind, least in kinds.items() if counts[kind] < least]
    if short:
        print(f"The time was over before all were tried ({'; '.join(short)}). Pass more --seconds.")
    return 1 if short and not options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
