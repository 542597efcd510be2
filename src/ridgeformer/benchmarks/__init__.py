"""Figures of speed, as ratios of times taken side by side in one run, because machines are noisy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ridgeformer.benchmarks import figures as speed
from ridgeformer.benchmarks import sweeps, training
from ridgeformer.benchmarks.figures import Figure, Setup
from ridgeformer.errors import refuse

__all__ = ["GROUPS", "Figure", "run"]

GROUPS = {**speed.GROUPS, "training": training.figures, "silence": training.silent_figures, "sweeps": sweeps.figures}


def run(
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    seeds: int = 1,
    threads: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Figure]:
    """Measure the groups of figures asked for, or all (all but the comparisons, if quick)."""
    unknown = [name for name in only if name not in GROUPS]
    if unknown:
        refuse(f"--only must name one of {', '.join(GROUPS)}", repr(unknown[0]), "Choose one of these.")
    chosen = list(only) or [name for name in GROUPS if not (quick and name == "frameworks")]
    setup = Setup.make(quick=quick, threads=threads, seeds=seeds, progress=progress)
    figures: list[Figure] = []
    for name in chosen:
        progress(name)
        figures += GROUPS[name](setup)
    return figures
