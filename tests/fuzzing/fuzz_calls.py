"""Public functions with one argument that is wrong in some way: it is refused in words, or the result can be shown.

Whatever else is raised, warned of or shown with control characters is a violation.
"""

from __future__ import annotations

import functools
import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_cases import attempt, check_message

import ridgeformer as rf
from ridgeformer import engine, exact, explanation, export, noise, predictors, sweeps, training
from ridgeformer.problems import Dataset, Sequences, problem_from_dict
from ridgeformer.theory import one_layer


class Nameless:
    """An object that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class NoArray:
    """An object that fails where it is converted."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array")


def deep() -> Any:
    found: Any = []
    for _ in range(3000):
        found = [found]
    return found


WRONG = [
    *(None, True, -1, 0, 1, 3, 2.5, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324, -0.0, 10**30, 10**5000),
    *("", "x", "a" * 100_000, "\x1b[31mred\n", "\ud800", "a\0b", "fixed(", "(" * 4000, "1..0", "1e400", "nan", b"x"),
    *([], [[]], [1, 2], [1, "a"], [[1, 2], [3]], deep(), {}, {"a": 1}, {1, 2}, range(0), range(3)),
    *(object(), Nameless(), NoArray(), 1j, int, slice(None), Ellipsis, NotImplemented, np.datetime64("2020-01-01")),
    *(np.array(np.nan), np.zeros(0), np.zeros((0, 3)), np.zeros((2, 3), np.float16), np.array(["a"]), np.array([None])),
    *(np.array([1j]), np.ma.array([1.0, 2.0], mask=[0, 1]), np.int8(1), np.float32(2), 2**63, np.full((3, 3), np.nan)),
    *(np.full((3, 3), np.inf), np.eye(3) * 1e300, -np.eye(3), np.zeros((3, 3)), np.eye(3, dtype=object)),
]


@functools.cache
def calls() -> dict[str, functools.partial[Any]]:
    """Functions with arguments that are right, by name."""
    problem = rf.Problem(3, 8, "uniform(0,2)")
    step = rf.LinearTransformer(rf.GDpp(omega=[[0, -0.03]]), 3)
    diag = rf.LinearTransformer.random("diag", dim=3, layers=2, seed=1)
    drawn, tokens = problem.moments(4), problem.sequences(4, queries=2)
    held = {name: np.asarray(getattr(tokens, name)) for name in ("x", "y", "queries", "answers", "task", "sigma")}
    moments = drawn.moments
    found = [
        partial(rf.Problem, dim=3, context=8, noise="fixed(1)", features=None, tasks=None),
        partial(problem.moments, count=5, seed=0, dtype=np.float64, sums=False, threads=1),
        partial(problem.sequences, count=5, seed=0, queries=1),
        partial(problem.oracle, drawn=tokens),
        partial(problem_from_dict, stored=problem.as_dict()),
        partial(noise.as_noise, value="fixed(1)"),
        partial(noise.Categorical, levels=[1, 2], weights=[0.5, 0.5]),
        partial(rf.Moments, gram=np.asarray(moments.gram), context=8, sigma=np.ones(4), sums=None),
        partial(rf.Moments.from_tokens, x=held["x"], y=held["y"]),
        partial(Sequences, **held, metric=None),
        partial(Dataset, sequences=tokens),
        partial(rf.LinearTransformer, family=step.family, dim=3, layout=rf.Layout()),
        partial(rf.LinearTransformer.random, family="diag", dim=3, layers=2, layout=rf.Layout()),
        partial(rf.Diag, omega=np.zeros((1, 2, 2))),
        partial(rf.Layout, attention="sum", coordinate="none", scratch=0),
        partial(diag.weights, moments=moments),
        partial(diag.predict, **{name: held[name] for name in ("x", "y", "queries")}),
        partial(diag.trace, contexts=moments),
        partial(diag.step, problem=problem, sequences=16, seed=0, gradient=True, threads=1),
        partial(rf.ConstRR, variance=1.0),
        partial(rf.TunedRR, factor=1.0, ceiling=1.0, prior=None),
        partial(predictors.Universal, model=step, signal=1.0, own_scale=False),
        partial(predictors.Guarded, model=step, fallback=rf.ConstRR(1.0), tolerance=0.3),
        *_trained(problem, step, diag),
        *_measured(problem, step),
    ]
    for call in found:
        if not {"path", "folder"} & call.keywords.keys():  # others need files
            call()
    return {call.func.__qualname__: call for call in found}


def _measured(problem: Any, step: Any) -> list[functools.partial[Any]]:
    """Functions that measure losses."""
    few = {"sequences": 20, "seed": 0}
    both = rf.compare(problem, {"a": step, "b": rf.ConstRR(1.0)}, sequences=20)
    levels = rf.compare(problem, step, over={"noise": [1, 2]}, sequences=9)
    return [
        partial(rf.evaluate, problem=problem, predictor=step, **few),
        partial(rf.compare, problem=problem, predictors=[step], over=None, **few),
        partial(levels.at, noise=1),
        partial(both.difference, first="a", second="b"),
    ]


def _trained(problem: Any, step: Any, diag: Any) -> list[functools.partial[Any]]:
    """Functions that train, store or explain."""
    run = {"seed": 0, "protocol": "search", "out": None, "layout": None, "init": None, "callbacks": (), "threads": 1}
    few = {"sequences": 20, "progress": False}
    return [
        partial(training.train, problem=problem, family="gdpp", layers=1, heads=1, **run, **few),
        partial(training.train_many, problem=problem, families=["gdpp"], layers=[1], seeds=[0], **few),
        partial(training.Search, effort=1, caution=1, precision="auto", seconds=None, tolerated=None),
        partial(
            training.GradientDescent, rate=0.1, steps=3, batch=16, clip=1, record=1, snapshots=2, schedule="constant"
        ),
        partial(training.PaperProtocol, steps=3, rate=0.1),
        partial(training.CSVLogger, path="a.csv"),
        partial(rf.Training.load, folder="."),
        partial(rf.Runs.load, folder="."),
        partial(rf.load, name="zoo:diag/4/uniform(0,5)"),
        partial(rf.save, model=step, path="a.safetensors"),
        partial(sweeps.read_grid, path="a.toml"),
        partial(export.write, content="x", path="a.py"),
        partial(explanation.diagonal_part, model=diag, layers=[0]),
        partial(exact.exact_loss, problem=problem, model=step),
        partial(exact.least_excess_loss, problem=problem, layers=1),
        partial(one_layer.risk, problem=problem, W=0.05 * np.eye(3)),
        partial(engine.resolve, engine=None),
    ]


def judge(rng: random.Random, folder: Path) -> str:
    """One function with one wrong argument."""
    before = Path.cwd()
    os.chdir(folder)  # some arguments are names of files
    try:
        name = rng.choice(sorted(calls()))
        changed, wrong = rng.choice(sorted(calls()[name].keywords)), rng.choice(WRONG)
        large = isinstance(wrong, int | np.integer | bytes) and wrong not in (True, -1, 0, 1)
        if large and changed in ("sequences", "count", "layers"):
            return f"{name}: skipped"  # right, but too large

        def call() -> str:
            try:
                result = calls()[name](**{changed: wrong})
            except (rf.errors.RidgeformerError, KeyError) as error:
                check_message(error)
                return "refused"
            for text in (repr(result), str(result)):
                assert "\x1b" not in text, f"{changed}={wrong!r} of {name} is shown as it is"
            return "accepted"

        return f"{name}: {attempt(call)}"
    except Exception as error:
        raise AssertionError(f"{name}({changed}={rf.errors.shown(wrong)}): {type(error).__name__}: {error}") from error
    finally:
        os.chdir(before)
