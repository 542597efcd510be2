"""Steps per second of descents from one start, against the same loop in PyTorch.

One layer of five heads with keys and queries of rank one, d = 4, n = 31, gradient descent on 2048 sequences, the same
ones in every step or fresh ones. There are two loops in PyTorch. The plain one updates all tokens, as a deeper model
does; the lean one computes the prediction of the query alone, which is all that one layer needs. Both differentiate the
squared error of one query per sequence; ours averages over all queries. The exact gradient has no counterpart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from benchmarks.speed import Measurement, Setup
from ridgeformer.engine import Layout
from ridgeformer.models import LowRank
from ridgeformer.problems import Problem
from ridgeformer.training import SGD, GradientDescent, train

DIM, CONTEXT, HEADS, BATCH = 4, 31, 5, 2048
SPECTRUM = (0.4, 0.3, 0.2, 0.1)
ROUNDS = 3


def measurements(setup: Setup) -> list[Measurement]:
    """Ratios of steps per second; without PyTorch, our steps per second alone."""
    steps = 1000 if setup.quick else 5000
    ours = {
        "fixed": _ours(GradientDescent(rate=0.02, steps=steps, batch=f"sample({BATCH})", scale=0.01), setup.threads),
        "fresh": _ours(SGD(rate=0.02, steps=steps // 5, batch=BATCH, scale=0.01), setup.threads),
        "exact": _ours(GradientDescent(rate=0.02, steps=steps, scale=0.01), setup.threads),
    }
    theirs: dict[tuple[str, str], Callable[[int], float]] = {}
    with suppress(ImportError):
        theirs = {
            (kind, data): _torch(kind == "lean", data == "fresh", setup.threads)
            for data in ("fixed", "fresh")
            for kind in ("plain", "lean")
        }
    best = dict.fromkeys(ours, float("inf"))
    best_torch = dict.fromkeys(theirs, float("inf"))
    for _ in range(ROUNDS):  # in turn, so that a slow moment of the machine hits all of them
        for name, run in ours.items():
            best[name] = min(best[name], run())
        for pair, loop in theirs.items():
            best_torch[pair] = min(best_torch[pair], loop(10 if setup.quick else 30))
    found = []
    for (kind, data), them in best_torch.items():
        us = best[data]
        detail = f"{1e6 * us:.0f} us against {1e6 * them:.0f} us per step"
        required = None if (kind, data) == ("lean", "fresh") else 50
        title = f"descent on {data} sequences against {kind} PyTorch"
        found.append(Measurement(title, them / us, "x", required, True, detail))
    return [*found, Measurement("descent on the exact gradient", 1 / best["exact"], "steps/s")]


def _ours(protocol: GradientDescent, threads: int) -> Callable[[], float]:
    """Seconds per step, by the history: from the first step to the last."""
    problem = Problem(DIM, CONTEXT, "fixed(0)", features=f"spectrum({','.join(map(str, SPECTRUM))})")

    def run() -> float:
        found = train(
            problem, LowRank(1), 1, HEADS, protocol=protocol, layout=Layout("mean"), sequences=100, threads=threads,
            progress=False,
        )  # fmt: skip
        seconds = found.history.seconds
        return float(seconds[-1] - seconds[0]) / protocol.steps

    return run


def _torch(lean: bool, fresh: bool, threads: int) -> Callable[[int], float]:
    """The loop as a user of PyTorch writes it: returns seconds per step of so many steps."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    scales = torch.tensor(SPECTRUM).sqrt()
    shapes = ((HEADS, DIM + 1, DIM + 1), (HEADS, DIM + 1), (HEADS, DIM + 1))
    P, keys, queries = (torch.nn.Parameter(0.01 * torch.randn(shape)) for shape in shapes)
    optimiser = torch.optim.SGD([P, keys, queries], lr=0.02)

    def draw() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = torch.randn(BATCH, CONTEXT + 1, DIM) * scales
        y = (x @ torch.randn(BATCH, DIM, 1))[..., 0]
        context = torch.cat([x[:, :-1], y[:, :-1, None]], -1)
        query = torch.cat([x[:, -1], torch.zeros(BATCH, 1)], -1)
        return context, query, y[:, -1]

    def predict(context: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        if lean:
            scores = (context @ keys.T) * (query @ queries.T)[:, None] / CONTEXT
            return -(scores * (context @ P[:, -1].T)).sum((1, 2))
        tokens = torch.cat([context, query[:, None]], 1)
        moved = tokens
        for h in range(HEADS):
            scores = (tokens @ queries[h])[:, :, None] * (context @ keys[h])[:, None] / CONTEXT
            moved = moved + scores @ (context @ P[h].T)
        return -moved[:, -1, -1]

    sample = draw()

    def loop(steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            context, query, answer = draw() if fresh else sample
            loss = 0.5 * (predict(context, query) - answer).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return (time.perf_counter() - began) / steps

    return loop
