"""What room to compute gains: channels and scratch coordinates, with default settings, seed by seed.

Models are kept in `runs/room`, so that an interrupted measurement resumes. Remove that folder to measure afresh.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.speed import Measurement, Setup
from ridgeformer.engine import Layout
from ridgeformer.evaluation import evaluate
from ridgeformer.losses import exploded
from ridgeformer.models import LinearTransformer
from ridgeformer.problems import Problem
from ridgeformer.training import train

RUNS = "runs/room"
FRESH, SEED = 300_000, 77  # sequences of the reported losses, and which
MANY, BLOCK = 1_000_000, 50_000  # sequences among which explosions are counted


@dataclass(frozen=True)
class Line:
    """A model and a problem, and the loss that `--check` requires of every seed."""

    family: str
    layers: int
    noise: str
    loss: float | None = None
    scratch: int = 0

    @property
    def name(self) -> str:
        """In words."""
        room = f" with {self.scratch} scratch coordinates" if self.scratch else ""
        return f"{self.family} {self.layers}{room}, {self.noise}"


LINES = [
    Line("channels(1,3)", 4, "categorical(1,3)", 0.0243),
    Line("channels(1,3)", 5, "categorical(1,3)", 0.0118),
    Line("channels(1,3)", 7, "categorical(1,3)", 0.0066),
    Line("channels(1,3)", 7, "uniform(0,5)", 0.0398),
    Line("channels(1,3)", 7, "categorical(1,3,5)", 0.0320),
]
SINGLE = [  # with the first seed only
    Line("full", 5, "categorical(1,3)", 0.0103, scratch=4),
    Line("full", 7, "categorical(1,3)", 0.0065, scratch=4),
    Line("channels(1,2)", 7, "categorical(1,3)"),
    Line("channels(1,4)", 7, "categorical(1,3)"),
    *(Line("channels(2,3)", layers, "categorical(1,3)") for layers in (4, 5, 7)),
    *(Line("channels(1,3)", layers, "categorical(1,3)") for layers in (8, 9, 10)),
    Line("lowrank(11)", 4, "categorical(1,3)", 0.0295),
]


def measurements(setup: Setup) -> list[Measurement]:
    """Every line with every seed, then those with one seed; two layers of the first where it must be quick."""
    if setup.quick:
        return _line(setup, Line("channels(1,3)", 2, "categorical(1,3)"), 1, None)
    found = [each for line in LINES for each in _line(setup, line, setup.seeds, RUNS)]
    return found + [each for line in SINGLE for each in _line(setup, line, 1, RUNS)]


def _line(setup: Setup, line: Line, seeds: int, runs: str | None) -> list[Measurement]:
    problem, losses, wild, seconds = Problem(noise=line.noise), [], 0, []
    layout = Layout(scratch=line.scratch) if line.scratch else None
    for seed in range(seeds):
        setup.progress(f"training: {line.name}, seed {seed}")
        options = {"seed": seed, "sequences": 2000, "layout": layout, "out": runs, "threads": setup.threads}
        found = train(problem, line.family, line.layers, progress=False, **options)
        losses.append(evaluate(problem, found.model, sequences=FRESH, seed=SEED, with_floor=False).loss)
        seconds.append(found.total_seconds)
        wild += 0 if setup.quick else _explosions(found.model, problem, setup.threads)
    floor = evaluate(problem, found.model, sequences=FRESH, seed=SEED).floor
    each = ", ".join(f"{loss:.4g}" for loss in losses)
    times = ", ".join(f"{second:.0f} s" for second in seconds)
    detail = f"seeds: {each}; floor {floor:.4g}; {times}"
    found = [Measurement(f"{line.name}: worst loss", max(losses), "", line.loss, False, detail)]
    if not setup.quick:
        found.append(Measurement(f"{line.name}: exploded", wild, f"of {seeds * MANY:,}", 0, False))
    return found


def _explosions(model: LinearTransformer, problem: Problem, threads: int | None) -> int:
    count = 0
    for first in range(0, MANY, BLOCK):
        found = model.astype(np.float64).step(problem, BLOCK, stream=SEED, first=first, gradient=False, threads=threads)
        count += int(exploded(found.losses, problem.signal).sum())
    return count
