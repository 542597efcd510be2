"""What training reaches on problems that nothing was tuned for, with default settings: losses over floors.

Models are kept in `runs/general`, so that an interrupted measurement resumes. Remove that folder to measure afresh.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.speed import Measurement, Setup
from ridgeformer.engine import Layout
from ridgeformer.evaluation import evaluate
from ridgeformer.models import LinearTransformer
from ridgeformer.predictors import ConstRR
from ridgeformer.problems import CustomProblem, Problem, Sequences
from ridgeformer.training import train

RUNS = "runs/general"
FRESH, SEED = 100_000, 77  # sequences of the reported losses, and which
UNTUNED = {
    "power-law spectrum": Problem(noise="uniform(0,5)", features="powerlaw(1)"),
    "random rotation": Problem(noise="uniform(0,5)", features="rotated(powerlaw(1))"),
    "random correlations": Problem(noise="uniform(0,5)", features="factors(2)"),
    "low-rank tasks": Problem(noise="uniform(0,5)", tasks="lowrank(3)"),
    "n from 10 to 40": Problem(noise="uniform(0,5)", context="10..40"),
    "standardised features": Problem(noise="uniform(0,5)", features="standardised(factors(2))"),
}
LENGTHS = (10, 14, 20, 28, 40)
POOLS = (4, 64, 1024)


def measurements(setup: Setup) -> list[Measurement]:
    """Seven layers of Full on each problem; two layers of Diag on the first one where it must be quick."""
    found = []
    for name, problem in list(UNTUNED.items())[:1] if setup.quick else UNTUNED.items():
        family, layers = ("diag", 2) if setup.quick else ("full", 7)
        setup.progress(f"training: {family}, {layers} layers, {name}")
        model = train(problem, family, layers, threads=setup.threads, out=None if setup.quick else RUNS).model
        result = evaluate(problem, model, sequences=FRESH, seed=SEED)
        simple = evaluate(problem, ConstRR.tune(problem), sequences=FRESH, seed=SEED)
        parts = f"loss {result.loss:.4g}", f"floor {result.floor:.4g}", f"{result.exploded} exploded"
        detail = f"{', '.join(parts)}; ConstRR {simple.ratio:.3g} x"
        found.append(Measurement(f"{family} {layers}, {name}: over the floor", result.ratio, "x", detail=detail))
    return found


def length_measurements(setup: Setup) -> list[Measurement]:
    """Models for n from 10 to 40, by depth and layout, and models for one n each, at single n; nothing where quick."""
    if setup.quick:
        return []
    problem = UNTUNED["n from 10 to 40"]
    layouts = [("mean and length", Layout("mean", "length"), layers) for layers in (7, 8, 9, 10)]
    layouts += [("mean", Layout("mean"), 7), ("sum", Layout("sum"), 7)]
    found = []
    for name, layout, layers in layouts:
        setup.progress(f"training: full, {layers} layers, attention by {name}")
        model = train(problem, "full", layers, layout=layout, threads=setup.threads, out=RUNS).model
        ratios, detail = _at_lengths(model, problem)
        label = f"full {layers}, attention by {name}, n from 10 to 40: largest ratio"
        found.append(Measurement(label, max(ratios.values()), "x", detail=detail))
    for n in LENGTHS:
        setup.progress(f"training: full, 7 layers, n = {n}")
        model = train(problem.replace(context=n), "full", 7, threads=setup.threads, out=RUNS).model
        ratios, detail = _at_lengths(model, problem)
        found.append(Measurement(f"full 7, trained at n = {n} alone: ratio there", ratios[n], "x", detail=detail))
    return found


class Student(CustomProblem):
    """Linear labels with noise from Student's t distribution, as in the documentation of problems of your own."""

    def __init__(self, dim: int = 10, context: int = 20, freedom: float = 3.0) -> None:
        self.dim, self.context, self.freedom = dim, context, freedom

    def draw(self, rng: np.random.Generator, count: int) -> Sequences:
        """See `CustomProblem.draw`."""
        x, w = rng.standard_normal((count, self.context + 4, self.dim)), rng.standard_normal((count, self.dim))
        y = np.einsum("bnd,bd->bn", x, w)
        noisy = y[:, :-4] + rng.standard_t(self.freedom, (count, self.context))
        return Sequences(x[:, :-4], noisy, queries=x[:, -4:], answers=y[:, -4:], task=w)


def own_measurements(setup: Setup) -> list[Measurement]:
    """CPU time of training on a problem of one's own over that on uniform(0,3), both with d = 10 and n = 20."""
    found = []
    train(Problem(2, 4, 1), "diag", 1, progress=False)  # loads what the first training would load
    for family, layers in (("diag", 2),) if setup.quick else (("diag", 3), ("full", 3)):
        times = []
        for problem in (Student(), Problem(noise="uniform(0,3)")):
            setup.progress(f"training: {family}, {layers} layers, {problem}")
            began = time.process_time()
            train(problem, family, layers, threads=setup.threads, progress=False)
            times.append(time.process_time() - began)
        detail = f"{times[0]:.1f} s and {times[1]:.1f} s of CPU time"
        name = f"{family} {layers}, Student's t over uniform(0,3): training time"
        found.append(Measurement(name, times[0] / times[1], "x", required=2.0, higher=False, detail=detail))
    return found


def _at_lengths(model: LinearTransformer, problem: Problem) -> tuple[dict[int, float], str]:
    """The ratios of a model at single n, and the same as text with the number of explosions."""
    results = {n: evaluate(problem.replace(context=n), model, sequences=FRESH, seed=SEED) for n in LENGTHS}
    listed = ", ".join(f"{n}: {r.ratio:.3g} ({r.exploded} exploded)" for n, r in results.items())
    return {n: r.ratio for n, r in results.items()}, f"ratio at n = {listed}"


def pool_measurements(setup: Setup) -> list[Measurement]:
    """How near Full comes to DMMSE on pools of tasks, d = 8, n = 16, sigma = 0.5; nothing where it must be quick."""
    if setup.quick:
        return []
    found = []
    for size in POOLS:
        problem = Problem(8, 16, 0.5, tasks=f"pool({size})")
        fresh = Problem(8, 16, 0.5)
        for layers in (1, 3, 7):
            setup.progress(f"training: full, {layers} layers, pool of {size}")
            model = train(problem, "full", layers, threads=setup.threads, out=RUNS).model
            result, simple, new = (
                evaluate(problem, model, sequences=FRESH, seed=SEED),
                evaluate(problem, ConstRR(0.25), sequences=FRESH, seed=SEED),
                evaluate(fresh, model, sequences=FRESH, seed=SEED),
            )
            optimum = result.unadjusted - result.loss
            detail = (
                f"unadjusted loss {result.unadjusted:.4g}; DMMSE {optimum:.4g}, ridge {simple.unadjusted:.4g}; "
                f"on new tasks {new.unadjusted:.4g}, ridge there {new.unadjusted - new.loss:.4g}"
            )
            name = f"full {layers}, pool of {size}: loss beyond DMMSE"
            found.append(Measurement(name, result.loss, "", detail=detail))
    return found
