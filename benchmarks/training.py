"""What training reaches, and in which CPU time: from scratch, loss on 300,000 fresh sequences, seed by seed."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.speed import Measurement, Setup
from ridgeformer.evaluation import evaluate
from ridgeformer.exact import exact_loss
from ridgeformer.losses import CAP, exploded
from ridgeformer.problems import Problem
from ridgeformer.training import Search, Training, train, train_many

FRESH, SEED = 300_000, 77  # sequences of the reported losses, and which
NOISES = [f"uniform(0,{top})" for top in range(8)] + ["categorical(1,3)", "categorical(1,3,5)"]


@dataclass(frozen=True)
class Line:
    """A model and a problem, and the loss and the seconds of CPU time, ancestors included, that `--check` requires."""

    family: str
    layers: int
    noise: str
    loss: float
    seconds: float | None


LINES = [
    Line("diag", 3, "uniform(0,5)", 0.114, 10),
    Line("diag", 7, "uniform(0,5)", 0.0465, 30),
    Line("diag", 7, "categorical(1,3)", 0.0150, 120),
    Line("full", 4, "categorical(1,3)", 0.030, 60),
    Line("full", 7, "categorical(1,3)", 0.0085, 120),
    Line("channels(1,3)", 7, "categorical(1,3)", 0.0066, 160),
    Line("full", 7, "uniform(0,5)", 0.0435, 150),
]
SILENT = [
    Line("gdpp", 7, "uniform(0,0)", 2.5e-12, None),
    Line("diag", 7, "uniform(0,0)", 2.5e-12, None),
    Line("full", 7, "uniform(0,0)", 2.5e-12, None),
]


def measurements(setup: Setup) -> list[Measurement]:
    """Every line with every seed, and what caution and precision cost; only the first line where it must be quick."""
    found = []
    for line in LINES[:1] if setup.quick else LINES:
        found += _line(setup, line, setup.seeds)
    return found if setup.quick else found + _growth(setup) + _caution(setup) + _precision(setup)


def silent_measurements(setup: Setup) -> list[Measurement]:
    """GD++ against its optimum, and all families without noise, with one seed."""
    found = _gdpp(setup)
    for line in SILENT[:1] if setup.quick else SILENT:
        found += _line(setup, line, 1)
    return found


def _train(setup: Setup, line: Line, seed: int, protocol: Search) -> tuple[Training, float, float]:
    """The result, its loss on fresh sequences, and the seconds of CPU time from nothing to the model."""
    setup.progress(f"training: {line.family}, {line.layers} layers, {line.noise}, seed {seed}")
    problem = Problem(noise=line.noise)
    start = time.process_time()
    found = train(
        problem, line.family, line.layers, seed=seed, protocol=protocol, sequences=2000, threads=setup.threads
    )
    seconds = time.process_time() - start
    fresh = evaluate(problem, found.model, sequences=FRESH, seed=SEED, with_floor=False)
    return found, fresh.loss, seconds


def _line(setup: Setup, line: Line, seeds: int) -> list[Measurement]:
    runs = [_train(setup, line, seed, Search()) for seed in range(seeds)]
    losses, seconds = [loss for _, loss, _ in runs], [time_ for _, _, time_ in runs]
    name = f"{line.family} {line.layers}, {line.noise}"
    each = "seeds: " + ", ".join(f"{loss:.4g}" for loss in losses)
    times = "seeds: " + ", ".join(f"{second:.0f} s" for second in seconds)
    result = [Measurement(f"{name}: loss", min(losses), "", line.loss, False, each)]
    if seeds > 1:
        result.append(Measurement(f"{name}: worst seed", max(losses), "", higher=False))
    if line.seconds is not None:
        result.append(Measurement(f"{name}: longest CPU time", max(seconds), "s", line.seconds, False, times))
    return result


def _growth(setup: Setup) -> list[Measurement]:
    """CPU time of training at d = 40 over that at d = 10, with n = 2d."""
    times = []
    for dim in (10, 40):
        setup.progress(f"training: diag, 4 layers, d = {dim}")
        start = time.process_time()
        train(Problem(dim, 2 * dim, "uniform(0,5)"), "diag", 4, sequences=2000, threads=setup.threads)
        times.append(time.process_time() - start)
    detail = f"{times[0]:.1f} s and {times[1]:.1f} s of CPU time"
    name = "diag 4, uniform(0,5), n = 2d: training time at d = 40 over d = 10"
    return [Measurement(name, times[1] / times[0], "x", 8, False, detail)]


def _gdpp(setup: Setup) -> list[Measurement]:
    """How far above the best of several seeds the first one is, over all depths; and the time of all depths."""
    seeds, depths = (3, range(1, 5)) if setup.quick else (10, range(1, 8))
    gaps: list[float] = []
    silent: list[float] = []
    times: list[float] = []
    for noise in NOISES[:6:5] if setup.quick else NOISES:
        setup.progress(f"training: GD++, {noise}")
        problem = Problem(noise=noise)
        losses = []
        for seed in range(seeds):
            start = time.perf_counter()
            many = train_many(problem, ["gdpp"], depths, seeds=[seed], sequences=2000)
            times.append(time.perf_counter() - start)
            losses.append([exact_loss(problem, found.model) for found in many])
        gap = [max(100 * (column[0] / min(column) - 1), 0.0) for column in zip(*losses, strict=True)]
        (silent if noise == "uniform(0,0)" else gaps).extend(gap)
    longest = f"longest {max(times):.2f} s"
    return [
        Measurement("gdpp, noisy: above its optimum", max(gaps), "%", 0.2, False, f"best of {seeds} seeds"),
        Measurement("gdpp, no noise: above its optimum", max(silent), "%", 2, False, f"best of {seeds} seeds"),
        Measurement(f"gdpp, {len(depths)} depths: time", sorted(times)[len(times) // 2], "s", 1, False, longest),
    ]


def _caution(setup: Setup) -> list[Measurement]:
    """What avoiding explosions costs, where it costs most: the bulk loss without, and how often that model explodes."""
    found, _, _ = _train(setup, LINES[0], 0, Search(caution=0))
    problem, blocks = found.spec.problem, range(0, 2_000_000, 50_000)
    pieces = [found.model.step(problem, 50_000, stream=SEED, first=first, gradient=False).losses for first in blocks]
    losses = np.minimum(np.concatenate(pieces), CAP)
    wild = exploded(losses, problem.signal)
    detail = f"{wild.sum()} of 2,000,000 explode, largest loss {losses.max():.2g}: mean of all {losses.mean():.3g}"
    return [
        Measurement(
            "diag 3, uniform(0,5), caution=0: loss of the others", float(losses[~wild].mean()), "", detail=detail
        )
    ]


def _precision(setup: Setup) -> list[Measurement]:
    """The second line in float32 and in float64: the same loss, and which is faster."""
    line, result = LINES[1], []
    for precision in ("float32", "float64"):
        _, loss, seconds = _train(setup, line, 0, Search(precision=precision))
        name = f"{line.family} {line.layers}, {line.noise}, {precision}: loss"
        result.append(Measurement(name, loss, "", detail=f"in {seconds:.0f} s"))
    return result
