"""Damaged files and odd calls in great numbers: no crash, no hang, no undocumented exception, no wrong result.

python tests/fuzzing/fuzz.py              # at least 100,000 files and 114,000 calls, in at most ten minutes
python tests/fuzzing/fuzz.py --quick      # a fifth of that, in at most two minutes
python tests/fuzzing/fuzz.py --only zoo   # one kind

Every kind is a module `fuzz_<kind>`; see `fuzz_cases`. Cases run in other processes, so that a crash is seen.
"""

import argparse
import contextlib
import faulthandler
import itertools
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

import fuzz_cases


class Kind(NamedTuple):
    """How many cases there are of a kind, the milliseconds that one takes, how many make a chunk, and what they are."""

    least: int
    cost: float = 1.0
    chunk: int = 200
    what: str = "files"


KINDS = {"models": Kind(42_000), "journals": Kind(22_000), "records": Kind(12_000, 4), "zoo": Kind(12_000)}
KINDS |= {"grids": Kind(12_000), "laws": Kind(2_000, 15, what="calls"), "terminal": Kind(200, 250, 40, "calls")}
KINDS |= {"arrays": Kind(2_000, 4, what="calls"), "pairs": Kind(2_000, 15, what="calls")}
KINDS |= {"calls": Kind(8_000, what="calls"), "engine": Kind(100_000, what="calls")}
FULL, QUICK = 570.0, 110.0  # seconds
HANG = 120.0  # seconds that a chunk may take; waiting forever shows here, computing forever in its case


class Violation(Exception):
    """A case broke the law. The text says how to repeat it."""


def begin(scratch):
    """Prepare a process: temporary files go to memory, and a crash says where it happened."""
    faulthandler.enable()
    tempfile.tempdir = scratch


def chunk(kind, seed):
    """Some cases of a kind. A hang ends the process."""
    faulthandler.dump_traceback_later(HANG, exit=True)
    try:
        return fuzz_cases.run(kind, KINDS[kind].chunk, seed)
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def processes(jobs):
    """Processes to run cases in, and the folder where these write their files: in memory if there is such a place."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory) as scratch:
        context = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(jobs, context, begin, (scratch,))
        try:
            yield executor, Path(scratch)
        finally:
            executor.shutdown(cancel_futures=True)


def fuzz(kind, least, deadline, seed, jobs):
    """Run cases of one kind until there are enough of them, or the time is over.

    Raises:
        Violation: A case broke the law, crashed, or did not end.
    """
    outcomes = Counter()
    seeds = itertools.count(seed * 1_000_000)
    running = {}
    reported = time.monotonic()
    with processes(jobs) as (executor, scratch):
        while True:
            tried = outcomes.total() + KINDS[kind].chunk * len(running)
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


def _crash(kind, seeds, scratch):
    saved = fuzz_cases.SAVED / f"{kind}-crash"
    with contextlib.suppress(shutil.Error, OSError):  # a pipe cannot be copied
        shutil.copytree(scratch, saved, dirs_exist_ok=True)
    calls = " or ".join(f"fuzz_cases.run({kind!r}, {KINDS[kind].chunk}, {seed})" for seed in seeds)
    return f"{calls} crashed or did not end. The files it had written are in {saved}"


def summary(outcomes):
    """How cases ended, and what was tried, from names such as "flip_bits in record.json: refused"."""
    ends, tried = Counter(), Counter()
    for name, times in outcomes.items():
        damage, _, end = name.rpartition(": ")
        ends[end] += times
        tried[damage.split(" in ")[0].replace("_", " ")] += times
    return [", ".join(f"{n:,} {name}" for name, n in counts.most_common() if name) for counts in (ends, tried)]


def run(kinds, seconds, seed, jobs):
    """Run every kind with its share of the time, print what was tried, and return how many cases there were."""
    began = time.monotonic()
    counts = {}
    for kind, least in kinds.items():
        share = KINDS[kind].cost * least / sum(KINDS[k].cost * kinds[k] for k in kinds if k not in counts)
        start = time.monotonic()
        deadline = start + max(0.0, began + seconds - start) * share
        outcomes = fuzz(kind, least, deadline, seed, jobs)
        counts[kind] = outcomes.total()
        ends, tried = summary(outcomes)
        print(f"{kind:10} {counts[kind]:7,} {KINDS[kind].what} in {time.monotonic() - start:.1f} s: {ends}", flush=True)
        if tried:
            print(f"{'':10} tried: {tried}", flush=True)
    return counts


def main():
    """Read the command line, run, and say how it ended."""
    sys.path.append(str(Path(__file__).parents[2]))  # where the processes of the cases find `benchmarks`
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the cases, in at most two minutes")
    parser.add_argument("--seconds", type=float, help=f"the time that all of it may take; {FULL:g} unless told")
    parser.add_argument("--seed", type=int, default=0, help="another seed tries other cases")
    parser.add_argument("--only", choices=KINDS, action="append", help="run this kind; may be given more than once")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; one per core unless told")
    options = parser.parse_args()
    chosen = options.only or KINDS
    kinds = {kind: KINDS[kind].least // (5 if options.quick else 1) for kind in KINDS if kind in chosen}
    seconds = options.seconds or (QUICK if options.quick else FULL)
    began = time.monotonic()
    try:
        counts = run(kinds, seconds, options.seed, options.jobs)
    except Violation as error:
        print(f"VIOLATION: {error}", file=sys.stderr)
        return 1
    calls = sum(count for kind, count in counts.items() if KINDS[kind].what == "calls")
    files = sum(counts.values()) - calls
    spent = time.monotonic() - began
    print(f"{files:,} files and {calls:,} calls in {spent:.0f} s, seed {options.seed}: no violation")
    short = [f"{kind}: {counts[kind]:,} of {least:,}" for kind, least in kinds.items() if counts[kind] < least]
    if short:
        print(f"The time was over before all were tried ({'; '.join(short)}). Pass more --seconds.")
    return 1 if short and not options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
