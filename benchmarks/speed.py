"""Measurements of speed. Batch 2048, d = 10, n = 20, 7 layers, float32, unless said otherwise."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import frameworks
from benchmarks.clock import best_times
from ridgeformer import engine
from ridgeformer.engine import Engine, Key
from ridgeformer.evaluation import evaluate, floor
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import Gaussian, Problem

BATCH, DIM, CONTEXT, LAYERS = 2048, 10, 20, 7
ANY = np.diag(np.arange(1.0, DIM + 1)) / 5.5  # the covariance of tasks of different sizes


@dataclass(frozen=True)
class Measurement:
    """One number from a benchmark.

    Attributes:
        name: What was measured.
        value: The number, in `unit`.
        unit: The unit, or nothing.
        required: The smallest value that `--check` accepts, or the largest if `higher` is False; None for no check.
        higher: Whether larger values are better.
        detail: The times behind a ratio, for readers.
    """

    name: str
    value: float
    unit: str
    required: float | None = None
    higher: bool = True
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether the value is as good as required; True if nothing is required."""
        if self.required is None:
            return True
        return self.value >= self.required if self.higher else self.value <= self.required

    def as_dict(self) -> dict[str, Any]:
        """What was measured, without what is required, for JSON."""
        return {"name": self.name, "value": self.value, "unit": self.unit, "detail": self.detail}


@dataclass(frozen=True)
class Setup:
    """What every group needs."""

    engine: Engine
    threads: int
    rounds: int
    quick: bool = False
    seeds: int = 1
    progress: Callable[[str], None] = lambda text: None

    @classmethod
    def make(
        cls, *, quick: bool, threads: int | None, seeds: int = 1, progress: Callable[[str], None] = lambda text: None
    ) -> Setup:
        """The engine in use, all cores unless told otherwise."""
        return cls(engine.current(), threads or engine.default_threads(), 3 if quick else 12, quick, seeds, progress)

    def step(
        self,
        kind: str,
        *,
        dim: int = DIM,
        context: int = CONTEXT,
        layers: int = LAYERS,
        threads: int | None = None,
        batch: int = BATCH,
        dtype: type = np.float32,
        **law: Any,
    ) -> Callable[[], object]:
        """One training step as training does it: noise levels, moments, exact loss, gradient.

        `kind` is the name of a family; `law` are further arguments of the problem; n may vary.
        """
        problem = Problem(dim, law.pop("lengths", context), noise="uniform(0,5)", **law)
        model = tame(kind, dim, context, layers).astype(dtype)
        count = 0

        def work() -> object:
            nonlocal count
            count += 1
            choices = problem.choices(batch, step=count, engine=self.engine)
            key = Key(0, 0, count)
            return self.engine.step(
                model.kernel, problem.law, choices, key, layout=model.layout, threads=threads or self.threads
            )

        return work

    def gradient(self, kind: str, threads: int | None = None) -> Callable[[], object]:
        """Loss and gradient of a batch of moments that is already there."""
        draw = Problem(DIM, CONTEXT, noise="uniform(0,5)").moments(BATCH, dtype=np.float32)
        kernel = tame(kind, DIM, CONTEXT).kernel
        return lambda: self.engine.evaluate(kernel, draw.moments.gram, draw.ridge, threads=threads or self.threads)


def tame(kind: str, dim: int, context: int, layers: int = LAYERS) -> LinearTransformer:
    """A random model that explodes on no sequence, so that every sequence costs the same."""
    model = LinearTransformer.random(kind, dim=dim, layers=layers, context=context * dim, scale=0.1)
    return model.astype(np.float32)


def diag_flops(dim: int, layers: int) -> int:
    """Additions and multiplications of the Diag gradient of one sequence, counting only what native/diag.hpp needs.

    A layer but the last two has, in multiply-adds: S^2 and S^3 forwards, each symmetric; Sbar A and X S backwards;
    eight products of a matrix and a vector; three rank-one terms of Sbar, two of S (half, being symmetric), <X S, S>
    and X itself. The first layer has no X S. The last but one has the vectors only; the last one next to nothing.
    """
    d2, d3 = dim * dim, dim**3
    half = dim * (dim + 1) // 2
    vectors = 8 * d2
    inner = max(layers - 2, 0)
    later = max(layers - 3, 0)
    forward = inner * (2 * half * dim + 2 * half + 2 * half)
    backward = later * (2 * d3 + 3 * d2 + d2 + d2) + (3 * d2 if layers >= 3 else 0) + (half if inner else 0)
    return 2 * (forward + backward + max(layers - 1, 0) * vectors)


def _frameworks(setup: Setup) -> list[Measurement]:
    measurements = []
    for kind, required in {"diag": 60.0, "full": 25.0}.items():
        work = {"ours": setup.step(kind)}
        with suppress(ImportError):
            work["PyTorch"] = frameworks.torch_step(kind, BATCH, DIM, CONTEXT, LAYERS, setup.threads)
            work["moment_loss"] = frameworks.torch_moment_step(kind, BATCH, DIM, CONTEXT, LAYERS)
        with suppress(ImportError):
            work["JAX"] = frameworks.jax_step(kind, BATCH, DIM, CONTEXT, LAYERS)
        times = best_times(work, setup.rounds, {"ours": 20, "moment_loss": 20})
        if "moment_loss" in times:
            detail = f"{1e3 * times['moment_loss']:.2f} ms against {1e3 * times['PyTorch']:.1f} ms"
            name, ratio = f"{kind} step in PyTorch, moment_loss against tokens", times["PyTorch"] / times["moment_loss"]
            measurements.append(Measurement(name, ratio, "x", 30.0, True, detail))
        for name in ("PyTorch", "JAX"):
            if name in times:
                detail = f"{1e3 * times['ours']:.2f} ms against {1e3 * times[name]:.1f} ms"
                measurements.append(
                    Measurement(f"{kind} step against {name}", times[name] / times["ours"], "x", required, True, detail)
                )
    return measurements


def _rate(setup: Setup) -> list[Measurement]:
    if setup.engine.name == "numpy":
        return []
    from ridgeformer import _core

    gradient = setup.gradient("diag")
    peaks = []
    best = float("inf")
    for _ in range(setup.rounds):
        peaks.append(_core.peak(setup.engine.name, setup.threads))
        best = min(best, best_times({"gradient": gradient}, 1, {"gradient": 40})["gradient"])
    rate = diag_flops(DIM, LAYERS) * BATCH / best
    detail = f"{rate / 1e9:.0f} of {max(peaks) / 1e9:.0f} Gflop/s, {1e3 * best:.2f} ms"
    return [Measurement("diag kernel, share of FMA peak", 100 * rate / max(peaks), "%", 40, True, detail)]


def _sampling(setup: Setup) -> list[Measurement]:
    # A one-layer model costs little, so its step is the sampling and a little more: this bounds the share from above.
    work = {"seven": setup.step("diag"), "one": setup.step("diag", layers=1)}
    times = best_times(work, setup.rounds, dict.fromkeys(work, 40))
    detail = f"one-layer step {1e3 * times['one']:.2f} ms, seven-layer step {1e3 * times['seven']:.2f} ms"
    share = 100 * times["one"] / times["seven"]
    return [Measurement("sampling, share of diag step", share, "%", 30, False, detail)]


def _context(setup: Setup) -> list[Measurement]:
    work = {"20": setup.step("diag"), "2000": setup.step("diag", context=2000)}
    times = best_times(work, setup.rounds, dict.fromkeys(work, 40))
    detail = f"{1e3 * times['2000']:.2f} ms against {1e3 * times['20']:.2f} ms"
    return [Measurement("time at n = 2000 over n = 20", times["2000"] / times["20"], "x", 1.1, False, detail)]


OTHERS: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("features of any covariance", {"features": np.eye(DIM) + 0.3}, 1.15),
    ("features and tasks of any covariance", {"features": np.eye(DIM) + 0.3, "tasks": Gaussian(None, ANY)}, 1.15),
    ("rotated features", {"features": "rotated(powerlaw(1))"}, 1.5),
    ("randomly correlated features", {"features": "factors(2)"}, 1.5),
    ("standardised features", {"features": "standardised(factors(2))"}, 1.5),
    ("n from 10 to 40", {"lengths": "10..40"}, 1.2),
)


def _problems(setup: Setup) -> list[Measurement]:
    """Steps on other problems, over that on the isotropic one."""
    measurements = []
    for kind in ("diag", "full"):
        work = {"isotropic": setup.step(kind), **{name: setup.step(kind, **law) for name, law, _ in OTHERS}}
        times = best_times(work, setup.rounds, dict.fromkeys(work, 20))
        for name, _, most in OTHERS:
            detail = f"{1e3 * times[name]:.2f} ms against {1e3 * times['isotropic']:.2f} ms"
            ratio = times[name] / times["isotropic"]
            measurements.append(Measurement(f"{kind} step, {name} over isotropic", ratio, "x", most, False, detail))
    return measurements


CHANNELS: dict[str, float | None] = {
    "channels(1,2)": None,
    "channels(1,3)": 2.0,
    "channels(1,4)": None,
    "channels(2,3)": 5.0,
    "channels(3,3)": None,
}


def _channels(setup: Setup) -> list[Measurement]:
    """Steps of channel models with one head, over that of Diag."""
    measurements = []
    for dtype in (np.float32, np.float64):
        work = {kind: setup.step(kind, dtype=dtype) for kind in ("diag", *CHANNELS)}
        times = best_times(work, setup.rounds, dict.fromkeys(work, 10))
        for kind, most in CHANNELS.items():
            detail = f"{1e3 * times[kind]:.2f} ms against {1e3 * times['diag']:.2f} ms"
            name = f"{kind} step over diag, {dtype.__name__}"
            measurements.append(Measurement(name, times[kind] / times["diag"], "x", most, False, detail))
    return measurements


def _threads(setup: Setup) -> list[Measurement]:
    if setup.threads < 2:
        return []
    work = {"one": setup.step("diag", threads=1), "two": setup.step("diag", threads=2)}
    times = best_times(work, setup.rounds, dict.fromkeys(work, 40))
    detail = f"{1e3 * times['one']:.2f} ms on one, {1e3 * times['two']:.2f} ms on two"
    return [Measurement("two threads over one", times["one"] / times["two"], "x", 1.7, True, detail)]


def _growth(setup: Setup) -> list[Measurement]:
    measurements = []
    for kind in ("diag", "full"):
        work = {"10": setup.step(kind), "40": setup.step(kind, dim=40, context=80)}
        times = best_times(work, max(2, setup.rounds // 4), {"10": 20, "40": 2})
        detail = f"{1e3 * times['10']:.2f} ms to {1e3 * times['40']:.1f} ms"
        power = np.log(times["40"] / times["10"]) / np.log(4)
        measurements.append(Measurement(f"{kind} step, growth from d = 10 to 40", float(power), "", 3.0, False, detail))
        dims = (20, 32, 40, 128)
        work = {str(d): setup.step(kind, dim=d, context=2 * d, batch=128, threads=1) for d in dims}
        times = best_times(work, max(2, setup.rounds // 4), {"20": 16, "32": 4, "40": 2, "128": 1})
        rates = {d: 128 * d**3 / times[str(d)] for d in dims}
        detail = ", ".join(f"d = {d}: {1e-9 * rate:.2f}" for d, rate in rates.items())
        name, most = (
            f"{kind} step, products of size d per second at d = 128 over d = 20 to 40",
            max(list(rates.values())[:3]),
        )
        measurements.append(
            Measurement(name, rates[128] / most, "x", 0.8, True, f"sequences d^3 / s in 10^9: {detail}")
        )
    return measurements


def _evaluation(setup: Setup) -> list[Measurement]:
    problem, count, few = Problem(DIM, CONTEXT, noise="uniform(0,5)"), 100_000, 4000
    model = tame("diag", DIM, CONTEXT).astype(np.float64)

    def in_tokens() -> object:
        s = problem.sequences(few)
        return 0.5 * np.square(model.predict(s.x, s.y, s.queries) - s.answers).mean()

    work = {"exact": lambda: evaluate(problem, model, sequences=count, with_floor=False), "tokens": in_tokens}
    times = best_times(work, max(2, setup.rounds // 4), {"exact": 3})
    tokens = times["tokens"] * count / few  # in parts, as 100,000 sequences of tokens need gigabytes
    detail = f"{times['exact']:.2f} s against {tokens:.1f} s"
    seeds = itertools.count()  # a floor that was measured is remembered, so that each call needs sequences of its own
    least = best_times({"floor": lambda: floor(problem, sequences=count, seed=next(seeds))}, 1)["floor"]
    return [
        Measurement("evaluation against NumPy tokens", tokens / times["exact"], "x", 50, True, detail),
        Measurement("Bayes floor, 100,000 sequences", least, "s", 5, False),
    ]


def _import(setup: Setup) -> list[Measurement]:
    code = "import time; t = time.perf_counter(); import ridgeformer; print(time.perf_counter() - t)"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # compiled once
    times = []
    for _ in range(max(3, setup.rounds // 2)):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=kept)
        times.append(float(done.stdout))
    return [Measurement("import of the package", min(times), "s", 0.2, False, f"median {np.median(times):.2f} s")]


GROUPS: dict[str, Callable[[Setup], list[Measurement]]] = {
    "frameworks": _frameworks,
    "rate": _rate,
    "sampling": _sampling,
    "context": _context,
    "problems": _problems,
    "channels": _channels,
    "scaling": _threads,
    "growth": _growth,
    "evaluation": _evaluation,
    "import": _import,
}
