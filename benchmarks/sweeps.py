"""Throughput of sweeps: the same grid on one process and on two."""

from __future__ import annotations

import tempfile
import time

from benchmarks.speed import Measurement, Setup
from ridgeformer.sweeps import Grid, sweep
from ridgeformer.training import Search


def measurements(setup: Setup) -> list[Measurement]:
    """Seconds on one worker over seconds on two, start of the processes included; nothing where it must be quick."""
    if setup.quick:
        return []
    grid = Grid(
        noise=["uniform(0,5)"], families=["diag"], layers=[5], seeds=list(range(8)), protocol=Search(), sequences=1000
    )
    times = []
    for workers in (1, 2):
        setup.progress(f"a sweep with {workers} worker{'s' * (workers > 1)}")
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            found = sweep(grid.specs(), folder, workers=workers, interval=0.1)
            times.append(time.perf_counter() - began)
        if found.failures:
            raise RuntimeError(f"a run of the sweep failed: {found.failures[0].reason}")
    detail = f"{times[0]:.1f} s and {times[1]:.1f} s for {len(grid)} runs"
    return [Measurement("sweep, two workers over one", times[0] / times[1], "x", 1.8, detail=detail)]
