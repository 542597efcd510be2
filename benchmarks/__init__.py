"""Measurements of speed, as ratios of times taken side by side in one run, because machines are noisy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks import depth, dynamics, general, regressor, room, speed, sweeps, training, universal
from benchmarks.speed import Measurement as Measurement, Setup
from ridgeformer.errors import refuse

GROUPS = {
    **speed.GROUPS,
    "dynamics": dynamics.measurements,
    "sklearn": regressor.measurements,
    "training": training.measurements,
    "silence": training.silent_measurements,
    "general": general.measurements,
    "lengths": general.length_measurements,
    "pools": general.pool_measurements,
    "own": general.own_measurements,
    "room": room.measurements,
    "sweeps": sweeps.measurements,
    "universal": universal.measurements,
    "depth": depth.measurements,
}
LONG = (
    "training",
    "silence",
    "general",
    "lengths",
    "pools",
    "own",
    "room",
    "sweeps",
    "universal",
    "depth",
)  # minutes to hours


def run(
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    seeds: int = 1,
    threads: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Measurement]:
    """Measure the groups asked for, or those that do not train for long; all but the comparisons, if quick."""
    unknown = [name for name in only if name not in GROUPS]
    if unknown:
        refuse(f"--only must name one of {', '.join(GROUPS)}", repr(unknown[0]), "Choose one of these.")
    chosen = list(only) or [name for name in GROUPS if (name != "frameworks" if quick else name not in LONG)]
    setup = Setup.make(quick=quick, threads=threads, seeds=seeds, progress=progress)
    measurements: list[Measurement] = []
    for name in chosen:
        progress(name)
        measurements += GROUPS[name](setup)
    return measurements
