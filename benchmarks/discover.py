"""Train a model for every dimension: `python -m benchmarks.discover --layers 4 --out FILE`, from nothing or a model.

A model's loss is the floor plus its excess, the mean of 1/2 |w - w_Bayes|^2 on the same contexts. So the target of
training is the estimate of exact Bayes, not that of the oracle, which is the same in expectation and has far less
chance in it. The objective is (mean of z^p)^(1/p) over cells (d, n) with z = excess / floor in units of what is allowed
there (12 % for n >= 1.25d, 25 % beyond d = 32, 30 % near n = d) and p = 4, so that the worst cells count most. Contexts
are in the units of `ridgeformer.predictors.Universal`, and a part of them appears once more, stretched, so that rare
large contexts do not explode.

The steps are those of Levenberg and Marquardt, in float64 and in rounds on new sequences. Their matrix is that of Gauss
and Newton, sum J'J with the Jacobians J of the estimates: for groups of sequences and random vectors v the gradients g
of sum <v, w> have E gg' = sum J'J. The result depends on the arguments alone, not on the clock. A model of L layers
grows from one of L - 1: a small random layer is put at each place, each descends for a while, and the best goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.universal import DIMS as UNIVERSAL
from benchmarks.universal import PROBLEM, SEEN, cell, ratios
from ridgeformer.engine import Layout
from ridgeformer.evaluation import evaluate, explosion_probability
from ridgeformer.loading import load
from ridgeformer.models import Channels, LinearTransformer
from ridgeformer.models.file import save
from ridgeformer.moments import Moments
from ridgeformer.predictors import Universal
from ridgeformer.problems import Problem
from ridgeformer.problems.dimensions import ContextRule, dimensions
from ridgeformer.training.batch import Batch, damped

__all__ = ["Cell", "Objective", "descend", "grow"]

Array = NDArray[np.float64]
SCALARS = 4  # of a token, y included
DIMS, CONTEXT = "2,3,4,6,8,12,16,24,32,48", "d,d+2,1.25d,1.5d,2d,3d,4d"
STRETCHED, STRETCH = 8.0, 1.2  # 8 / n stretched sequences for each one, at least .3; larger by up to 1.2 / sqrt(n)
TASK = 3.0  # by how many standard deviations their tasks are longer along the longest direction of the features
COUNTED = 0.2  # what a stretched sequence counts
FAR = 10.0  # the excess of a stretched sequence above which it enters by its logarithm, in floors
ALLOWED, NEAR, BEYOND = 0.12, 0.3, 0.25  # excess / floor; where n is near d; and beyond d = 32
POWER = 4.0
LIMIT = 0.3  # the excess of a sequence above which it enters by its logarithm
GROUP = 16  # sequences that share a random vector


@dataclass(frozen=True, eq=False)
class Cell:
    """Fixed sequences at one (d, n), the floor on them, and which excess is allowed, as a share of the floor."""

    dim: int
    context: int
    plain: Batch
    stretched: Batch
    floor: float
    allowed: float
    signal: float

    @classmethod
    def of(cls, problem: Problem, share: float, seed: int, scalars: int = SCALARS, stretch: float = STRETCH) -> Cell:
        """Draw the sequences of a cell."""
        dim, n = problem.dim, problem.context
        draw = problem.moments(round(share * (400 + 2000 / dim)), seed=seed)
        best = problem.best_predictor()
        floor = np.square(best.weights(draw.moments) - draw.ridge).sum(1).mean() / 2
        more = np.arange(round(max(STRETCHED / n, 0.3) * len(draw.task))) % len(draw.task)
        larger = _stretched(draw.moments.chosen(more), seed, stretch)
        allowed = NEAR if n < 1.25 * dim else BEYOND if dim > 32 else ALLOWED
        bare = None if problem.tasks == cell(dim, n).tasks else problem.signal
        batches = (_batch(one, best.weights(one), scalars, bare) for one in (draw.moments, larger))
        return cls(dim, n, *batches, float(floor), allowed, problem.signal)

    def value(self, model: LinearTransformer, gradient: bool) -> tuple[float, float, Array]:
        """Excess / floor; the same with stretched sequences, in units of what is allowed; and its gradient, [k]."""
        own, total, scale = model.at_dim(self.dim), 0.0, self.floor * self.allowed
        slope: Array = np.zeros(1)
        excess = []
        for batch, counted, limit in self.parts:
            found = batch.evaluate(own, limit, gradient)
            excess.append(float(damped(np.minimum(found.losses, 1e12), limit).mean()))
            total += counted * excess[-1] / scale
            if gradient:
                slope = slope + counted * _flat(found.gradient) / scale
        return excess[0] / self.floor, total, slope

    @property
    def parts(self) -> tuple[tuple[Batch, float, float], ...]:
        """Batches, what they count, and the excess above which their sequences enter by its logarithm."""
        return (self.plain, 1.0, LIMIT * self.signal), (self.stretched, COUNTED, FAR * self.floor)

    def gradients(self, model: LinearTransformer, rng: np.random.Generator) -> Array:
        """Random vectors g, [groups, k], whose sum of gg' has the expectation of the Gauss-Newton matrix."""
        own, found = model.at_dim(self.dim), []
        for batch, counted, limit in self.parts:
            gram, _, metric = batch._arrays
            now = batch.evaluate(own, np.inf, gradient=False, weights=True)
            v = rng.standard_normal(batch.target.shape)
            v *= np.sqrt(np.minimum(limit / np.maximum(now.losses, limit), 1))[:, None]  # their slopes shrink so too
            if metric is not None:
                v /= np.sqrt(metric[:, :1, 0])
            factor = np.sqrt(counted / (len(batch) * self.floor * self.allowed))
            with np.errstate(all="ignore"):
                target = now.weights - v
            for first in range(0, len(batch), GROUP):
                part = slice(first, first + GROUP)
                some = Batch(gram[part], target[part], None if metric is None else metric[part])
                value = some.evaluate(own, 10.0 * self.dim * self.signal)
                found.append(factor * len(some) * _flat(value.gradient))
        return np.array(found)


def _flat(kernel: object) -> Array:
    return np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in kernel])  # type: ignore[attr-defined]


def _layout(scalars: int) -> Layout:
    return Layout("mean", "ratio", scalars - 2)


def _batch(moments: Moments, target: Array, scalars: int, bare: float | None = None) -> Batch:
    """Contexts and targets in the model's units; where `bare` is a signal, that one is the unit of all contexts."""
    if bare is None:
        moments, unit = Universal(None, signal=1).scaled(moments)
    else:
        T = np.diag(np.append(np.ones(moments.dim), bare**-0.5))
        moments, unit = Moments._trusted(T @ moments.gram @ T, moments.context, None), np.full(len(target), bare**0.5)
    metric = None if (unit == 1).all() else np.square(unit)[:, None, None] * np.eye(moments.dim)
    return Batch(np.asarray(moments.gram_of(_layout(scalars))), target / unit[:, None], metric)


def _stretched(moments: Moments, seed: int, stretch: float = STRETCH) -> Moments:
    """The contexts with larger labels, features that are longer along their longest direction, and tasks, too."""
    gram, rng = np.array(moments.gram), np.random.default_rng(seed)
    top = np.linalg.eigh(gram[:, :-1, :-1])[1][:, :, -1]
    by = 1 + rng.uniform(0, stretch / np.sqrt(moments.context), (2, len(gram)))
    T = np.broadcast_to(np.eye(gram.shape[1]), gram.shape).copy()
    T[:, :-1, :-1] += (by[0] - 1)[:, None, None] * np.einsum("bi,bj->bij", top, top)
    T[:, -1, -1] = by[1]
    T[:, -1, :-1] = TASK / np.sqrt(moments.dim) * rng.uniform(-1, 1, (len(gram), 1)) * top
    return Moments._trusted(T @ gram @ T.transpose(0, 2, 1), moments.context, None)


class Objective:
    """The objective, its gradient and its curvature as functions of the parameters, [k]."""

    def __init__(
        self,
        dims: str = DIMS,
        context: str = CONTEXT,
        share: float = 1.0,
        seed: int = 101,
        power: float = POWER,
        scalars: int = SCALARS,
        noise: str | None = None,
        stretch: float = STRETCH,
    ) -> None:
        self.power, self.scalars, self.cells = power, scalars, list[Cell]()
        for d in dimensions(dims):
            lengths = ContextRule("2d" if d > 32 else context).at(d).values.tolist()
            problems = [cell(d, n) if noise is None else Problem(d, n, noise) for n in lengths]
            self.cells += [Cell.of(one, share, seed, scalars, stretch) for one in problems]
        self.ratios = np.zeros(len(self.cells))

    def __call__(self, point: Array, gradient: bool = True) -> tuple[float, Array, Array, Array]:
        """The value; the gradient, [k]; what each cell counts, [cells]; and the gradients of the cells, [cells, k]."""
        model = unpacked(point, self.scalars)
        excess, z, slopes = zip(*(one.value(model, gradient) for one in self.cells), strict=True)
        self.ratios, values = 1 + np.array(excess), np.array(z)
        value = float(np.mean(values**self.power) ** (1 / self.power))
        share = value ** (1 - self.power) * values ** (self.power - 1) / len(values)
        rows = np.array(slopes)
        self.values = values
        return value, share @ rows, share, rows

    def curvature(self, point: Array, share: Array, rows: Array, value: float, rng: np.random.Generator) -> Array:
        """The Gauss-Newton matrix, [k, k]."""
        model, slope = unpacked(point, self.scalars), share @ rows
        matrix = -(self.power - 1) / value * np.outer(slope, slope)
        matrix += (rows * ((self.power - 1) * share / self.values)[:, None]).T @ rows
        for one, counted in zip(self.cells, share, strict=True):
            g = one.gradients(model, rng)
            matrix += counted * g.T @ g
        return matrix


def descend(
    objective: Objective, point: Array, iterations: int, seed: int, report: bool = False
) -> tuple[Array, float]:
    """Take steps of Levenberg and Marquardt; return the best parameters and their value."""
    rng, damping, rested = np.random.default_rng(seed), 1e-2, 0
    value, slope, share, rows = objective(point)
    for number in range(iterations):
        matrix = objective.curvature(point, share, rows, value, rng)
        size = np.diag(matrix) + 1e-6 * np.trace(matrix) / len(point)
        for _ in range(12):
            step = np.linalg.solve(matrix + damping * np.diag(size), -slope)
            with np.errstate(all="ignore"):
                trial = objective(point + step, gradient=False)[0]
            if trial < value:
                break
            damping *= 4
        else:
            break
        point, damping, before = point + step, max(damping / 3, 1e-7), value
        value, slope, share, rows = objective(point)
        if report:
            r = objective.ratios
            print(f"  {number}: {value:.4f}, damping {damping:.1e}, ratios {r.mean():.4f}, {r.max():.4f}", flush=True)
        rested = rested + 1 if before - value < 1e-4 * value else 0
        if rested == 5:
            break
    return point, value


def packed(model: LinearTransformer) -> Array:
    """The parameters of a model, [k]."""
    return _flat(model.kernel)


def unpacked(point: Array, scalars: int = SCALARS) -> LinearTransformer:
    """The model with given parameters."""
    sizes = (1, 1, scalars, scalars)
    layers = len(point) // sum(size**2 for size in sizes)
    parts = np.split(point, np.cumsum([layers * size**2 for size in sizes])[:-1])
    arrays = [part.reshape(layers, 1, size, size) for part, size in zip(parts, sizes, strict=True)]
    return LinearTransformer(Channels(1, scalars)(*arrays), 32, _layout(scalars))


def in_units(model: LinearTransformer, signal: float) -> LinearTransformer:
    """The model for labels that are larger by sqrt(signal)."""
    unit, arrays = np.ones(model.family.scalars), dict(model.family.arrays)
    unit[-1] = signal**-0.5
    arrays["P_s"] = arrays["P_s"] * unit / unit[:, None]
    arrays["Q_s"] = arrays["Q_s"] * unit * unit[:, None]
    return LinearTransformer(type(model.family)(**arrays), model.dim, model.layout)


def widened(model: LinearTransformer, scalars: int, seed: int, scale: float = 0.03) -> LinearTransformer:
    """The model with more scalars, which start at 0 and have small random numbers."""
    rng, arrays = np.random.default_rng(seed), {name: np.array(v) for name, v in model.family.arrays.items()}
    for name in ("P_s", "Q_s"):
        old = arrays[name].shape[-1]
        place = np.append(np.arange(old - 1), scalars - 1)
        wide = scale * rng.standard_normal((*arrays[name].shape[:2], scalars, scalars))
        wide[..., place[:, None], place] = arrays[name]
        arrays[name] = wide
    return LinearTransformer(Channels(1, scalars)(**arrays), 32, _layout(scalars))


def grow(model: LinearTransformer | None, objective: Objective, iterations: int, seed: int) -> LinearTransformer:
    """Put a small random layer at each place of a model, descend from each, and keep the best.

    Args:
        model: The model; None for one that has no layers yet.
        objective: The objective, on few sequences.
        iterations: Steps from each place.
        seed: The seed of the random layers.

    Returns:
        The model with one more layer.
    """
    rng, ends = np.random.default_rng(seed), []
    for place in range(1 if model is None else model.layers + 1):
        layer = LinearTransformer.random(
            Channels(1, objective.scalars),
            dim=32,
            layers=1,
            scale=0.1,
            seed=int(rng.integers(1 << 30)),
            layout=_layout(objective.scalars),
        )
        whole = layer
        if model is not None:
            before, after = model.truncate(place) if place else None, model
            for _ in range(place):
                after = after.without(0) if after.layers > 1 else None  # type: ignore[assignment]
            parts = [part for part in (before, layer, after) if part is not None]
            whole = parts[0]
            for part in parts[1:]:
                whole = whole.stack(part)
        ends.append(descend(objective, packed(whole), iterations, seed))
    return unpacked(min(ends, key=lambda end: end[1])[0], objective.scalars)


def shorten(model: LinearTransformer, objective: Objective, iterations: int, seed: int) -> LinearTransformer:
    """Leave out each layer in turn, descend from each, and keep the best."""
    ends = [descend(objective, packed(model.without(place)), iterations, seed) for place in range(model.layers)]
    return unpacked(min(ends, key=lambda end: end[1])[0], objective.scalars)


@click.command()
@click.option("--layers", type=click.IntRange(1, 12), required=True, help="Layers of the model.")
@click.option("--start", help="A model to go on from; with fewer layers it grows. [default: none]")
@click.option("--scalars", type=click.IntRange(2, 8), default=SCALARS, show_default=True, help="Scalars of a token.")
@click.option("--iterations", type=click.IntRange(1), default=25, show_default=True, help="Steps in each round.")
@click.option("--rounds", type=click.IntRange(1), default=12, show_default=True, help="Rounds, each on new sequences.")
@click.option("--dim", "dims", default=DIMS, show_default=True, help="Dimensions; beyond 32 only n = 2d.")
@click.option("--context", default=CONTEXT, show_default=True, help="Numbers of examples.")
@click.option("--share", type=float, default=1.0, show_default=True, help="Sequences, relative to the full number.")
@click.option("--power", type=float, default=POWER, show_default=True, help="p.")
@click.option("--seed", type=click.IntRange(0), default=101, show_default=True, help="Seed of the sequences.")
@click.option("--noise", help="Train for N(0, I) tasks and this noise at one dimension, without changes of units.")
@click.option("--stretch", type=float, default=STRETCH, show_default=True, help="How large stretched contexts are.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file of the model.")
def main(
    layers: int,
    start: str | None,
    scalars: int,
    iterations: int,
    rounds: int,
    dims: str,
    context: str,
    share: float,
    power: float,
    seed: int,
    noise: str | None,
    stretch: float,
    out: Path,
) -> None:
    """Train a model for every dimension. A run that was interrupted goes on from the file of its state beside OUT."""
    model = None if start is None else load(start)
    if model is not None and model.family.scalars < scalars:
        model = widened(model, scalars, seed)
    if model is not None and noise is not None and start is not None and model.dim == int(dims):
        model = in_units(model, 1 / float(dims))  # a model of an earlier call
    few = Objective(dims, context, share / 4, seed, power, scalars, noise, stretch)
    while model is None or model.layers != layers:
        model = grow(model, few, 6, seed) if model is None or model.layers < layers else shorten(model, few, 3, seed)
        model = unpacked(descend(few, packed(model), 20, seed)[0], scalars)
        print(f"{model.layers} layers: {few(packed(model), gradient=False)[0]:.4f} on few sequences", flush=True)
    point, first, state = packed(model), 0, out.with_suffix(".npz")
    if state.exists():
        with np.load(state) as stored:
            first, point = int(stored["rounds"]), stored["point"]
    for number in range(first, rounds):
        objective = Objective(dims, context, share, seed + number, power, scalars, noise, stretch)
        _print(f"round {number}, before", objective, objective(point, gradient=False)[0])
        point, value = descend(objective, point, iterations, seed + number, report=True)
        _print(f"round {number}, after", objective, value)
        model = unpacked(point, scalars)
        save(model if noise is None else in_units(model, float(dims)).at_dim(int(dims)), out)
        np.savez(state, rounds=number + 1, point=point)
    model = load(out)
    save(model, out, record=_record(model, dims, context, noise))


def _record(model: LinearTransformer, dims: str, context: str, noise: str | None) -> dict[str, Any]:
    """How good a model is, as its file says it: over cells, or on the one problem of a noise."""
    about = {"family": model.family.name, "layers": model.layers, "heads": 1}
    if noise is not None:
        problem = Problem(int(dims), int(context), noise)
        losses = evaluate(problem, model, sequences=100_000, seed=5)
        result = {name: getattr(losses, name) for name in ("loss", "error", "floor", "largest", "exploded")}
        rare = explosion_probability(problem, model, sequences=20_000).numbers()
        spec = {"dim": problem.dim, "context": problem.context, "noise": str(problem.noise)}
        return {"spec": {**spec, **about}, "result": {**result, "sequences": 100_000, "explosions": rare}}
    found, exploded = ratios([model], UNIVERSAL, SEEN, seed=11)
    spec = {"dim": "2..32", "context": "d..4d", **PROBLEM, **about}
    result = {"mean_ratio": round(float(found.mean()), 3), "largest_ratio": round(float(found.max()), 3)}
    cells = f"d = {', '.join(map(str, UNIVERSAL))}; n = {', '.join(SEEN)}"
    return {"spec": spec, "result": {**result, "exploded": int(exploded.sum()), "cells": cells, "seed": 11}}


def _print(title: str, objective: Objective, value: float) -> None:
    ratios, worst = objective.ratios, int(objective.values.argmax())
    near = np.array([one.allowed == NEAR for one in objective.cells])
    at = f"d = {objective.cells[worst].dim}, n = {objective.cells[worst].context}"
    groups = f"largest {ratios[~near].max(initial=1):.3f}, near n = d {ratios[near].max(initial=1):.3f}"
    print(f"{title}: {value:.4f}, worst at {at}; ratios: {groups}, mean {ratios.mean():.4f}", flush=True)


if __name__ == "__main__":
    main()
