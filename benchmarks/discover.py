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

With `--noise` a model of any family is trained for one problem, in its own units and without those of `Universal`.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.cells import CONTEXT, DIMS, NEAR, POWER, STRETCH, UNIVERSAL, Objective
from benchmarks.universal import DIMS as JUDGED, PROBLEM, SEEN, ratios
from ridgeformer.evaluation import evaluate, explosion_probability
from ridgeformer.loading import load
from ridgeformer.models import LinearTransformer
from ridgeformer.models.family import Family, family_named
from ridgeformer.models.file import save
from ridgeformer.problems import Problem
from ridgeformer.problems.parts import dimensions

Array = NDArray[np.float64]


def descend(
    objective: Objective, model: LinearTransformer, iterations: int, seed: int, report: bool = False
) -> tuple[LinearTransformer, float]:
    """Take steps of Levenberg and Marquardt; return the best model and its value."""
    rng, damping, rested = np.random.default_rng(seed), 1e-2, 0
    vector = objective.vector(model)
    point = vector.pack(model)
    value, slope, share, rows = objective(vector, point)
    for number in range(iterations):
        with np.errstate(all="ignore"):
            matrix = objective.curvature(vector, point, share, rows, value, rng)
        if not np.isfinite(matrix).all():  # a start that overflows
            break
        size = np.diag(matrix) + 1e-6 * np.trace(matrix) / len(point)
        for _ in range(12):
            step = np.linalg.solve(matrix + damping * np.diag(size), -slope)
            with np.errstate(all="ignore"):
                trial = objective(vector, point + step, gradient=False)[0]
            if trial < value:
                break
            damping *= 4
        else:
            break
        point, damping, before = point + step, max(damping / 3, 1e-7), value
        value, slope, share, rows = objective(vector, point)
        if report:
            r = objective.ratios
            print(f"  {number}: {value:.4f}, damping {damping:.1e}, ratios {r.mean():.4f}, {r.max():.4f}", flush=True)
        rested = rested + 1 if before - value < 1e-4 * value else 0
        if rested == 5:
            break
    return vector.model(point), value


def in_units(model: LinearTransformer, signal: float) -> LinearTransformer:
    """The model for labels that are larger by sqrt(signal)."""
    unit, arrays = np.ones(model.family.scalars), dict(model.family.arrays)
    unit[-1] = signal**-0.5
    arrays["P_s"] = arrays["P_s"] * unit / unit[:, None]
    arrays["Q_s"] = arrays["Q_s"] * unit * unit[:, None]
    return LinearTransformer(type(model.family)(**arrays), model.dim, model.layout)


def widened(
    model: LinearTransformer, kind: type[Family], heads: int, seed: int, scale: float = 0.03
) -> LinearTransformer:
    """The model with more scalars, which start at 0, and more heads; their numbers are random and small."""
    rng, arrays = np.random.default_rng(seed), {name: np.array(v) for name, v in model.family.arrays.items()}
    if heads > model.heads:
        own = type(model.family)
        more = own.random(model.dim + model.layout.extra, model.layers, heads - model.heads, scale, rng)
        arrays = {name: np.concatenate([v, more.arrays[name]], 1) for name, v in arrays.items()}
    for name in ("P_s", "Q_s") if kind is not type(model.family) else ():
        old, scalars = arrays[name].shape[-1], kind.shapes(0)[name][0]
        place = np.append(np.arange(old - 1), scalars - 1)
        wide = scale * rng.standard_normal((*arrays[name].shape[:2], scalars, scalars))
        wide[..., place[:, None], place] = arrays[name]
        arrays[name] = wide
    return LinearTransformer(kind(**arrays), model.dim, kind.layout_for(replace(model.layout, scratch=0), model.dim))


def layer_of(kind: type[Family], dim: int, heads: int, objective: Objective, seed: int) -> LinearTransformer:
    """A model with one small random layer."""
    units = objective.units
    scale = 0.1 if units is None else 0.1 / units.scale
    model = LinearTransformer.random(
        kind, dim=dim, layers=1, heads=heads, scale=scale, seed=seed, layout=objective.layout
    )
    return model if units is None else LinearTransformer(units.applied(model.family), dim, model.layout)


def grow(model: LinearTransformer, objective: Objective, iterations: int, seed: int) -> LinearTransformer:
    """Put a small random layer at each place of a model, descend from each, and keep the best.

    Args:
        model: The model.
        objective: The objective, on few sequences.
        iterations: Steps from each place.
        seed: The seed of the random layers.

    Returns:
        The model with one more layer.
    """
    rng, ends = np.random.default_rng(seed), []
    for place in range(model.layers + 1):
        layer = layer_of(type(model.family), model.dim, model.heads, objective, int(rng.integers(1 << 30)))
        family = model.family.inserted(place, layer.family)
        ends.append(descend(objective, LinearTransformer(family, model.dim, model.layout), iterations, seed))
    return min(ends, key=itemgetter(1))[0]


def shorten(model: LinearTransformer, objective: Objective, iterations: int, seed: int) -> LinearTransformer:
    """Leave out each layer in turn, descend from each, and keep the best."""
    ends = [descend(objective, model.without(place), iterations, seed) for place in range(model.layers)]
    return min(ends, key=itemgetter(1))[0]


@click.command()
@click.option("--layers", type=click.IntRange(1, 12), required=True, help="Layers of the model.")
@click.option("--start", help="A model to go on from; with fewer layers it grows. [default: none]")
@click.option("--family", default="channels(1,4)", show_default=True, help="Family of the model.")
@click.option("--heads", type=click.IntRange(1, 8), default=1, show_default=True, help="Heads of a layer.")
@click.option("--iterations", type=click.IntRange(1), default=25, show_default=True, help="Steps in each round.")
@click.option("--rounds", type=click.IntRange(1), default=12, show_default=True, help="Rounds, each on new sequences.")
@click.option("--dim", "dims", default=DIMS, show_default=True, help="Dimensions; beyond 32 only n = 2d.")
@click.option("--context", default=CONTEXT, show_default=True, help="Numbers of examples.")
@click.option("--share", type=float, default=1.0, show_default=True, help="Sequences, relative to the full number.")
@click.option("--power", type=float, default=POWER, show_default=True, help="p.")
@click.option("--seed", type=click.IntRange(0), default=101, show_default=True, help="Seed of the sequences.")
@click.option("--noise", help="Train for N(0, I) tasks and this noise at one dimension, without changes of units.")
@click.option("--stretch", type=float, default=STRETCH, show_default=True, help="How large stretched contexts are.")
@click.option("--near", type=float, default=NEAR, show_default=True, help="Excess that is allowed near n = d.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file of the model.")
def main(
    layers: int,
    start: str | None,
    family: str,
    heads: int,
    iterations: int,
    rounds: int,
    dims: str,
    context: str,
    share: float,
    power: float,
    seed: int,
    noise: str | None,
    stretch: float,
    near: float,
    out: Path,
) -> None:
    """Train a model for every dimension. A run that was interrupted goes on from the file of its state beside OUT."""
    kind, dim = family_named(family), 32 if noise is None else int(dims)
    model = None if start is None else load(start)
    if model is not None and model.dim != dim:  # a model for every dimension
        model = in_units(model, float(dims)).at_dim(dim)
    layout = kind.layout_for(UNIVERSAL, dim) if model is None else model.layout
    if model is not None and (model.heads < heads or type(model.family) is not kind):
        model = widened(model, kind, heads, seed)
        layout = model.layout
    sizes = {"power": power, "noise": noise, "stretch": stretch, "near": near}
    few = Objective(layout, dims, context, share / 4, seed, **sizes)
    while model is None or model.layers != layers:
        if model is None:
            model = descend(few, layer_of(kind, dim, heads, few, seed), 6, seed)[0]
        else:
            model = grow(model, few, 6, seed) if model.layers < layers else shorten(model, few, 3, seed)
        model = descend(few, model, 20, seed)[0]
        print(f"{model.layers} layers: {few.of(model):.4f} on few sequences", flush=True)
    first, state = 0, out.with_suffix(".npz")
    if state.exists():
        with np.load(state) as stored:
            first, model = int(stored["rounds"]), few.vector(model).model(stored["point"])
    for number in range(first, rounds):
        objective = Objective(layout, dims, context, share, seed + number, **sizes)
        _print(f"round {number}, before", objective, objective.of(model))
        model, value = descend(objective, model, iterations, seed + number, report=True)
        _print(f"round {number}, after", objective, value)
        save(model, out)
        np.savez(state, rounds=number + 1, point=objective.vector(model).pack(model))
    model = load(out)
    save(model, out, record=_record(model, dims, context, noise))


def _record(model: LinearTransformer, dims: str, context: str, noise: str | None) -> dict[str, Any]:
    """How good a model is, as its file says it: over cells, or on the one problem of a noise."""
    about = {"family": model.family.name, "layers": model.layers, "heads": model.heads}
    if noise is not None:
        problem = Problem(int(dims), int(context), noise)
        losses = evaluate(problem, model, sequences=100_000, seed=5)
        result = {name: getattr(losses, name) for name in ("loss", "error", "floor", "largest", "exploded")}
        rare = asdict(explosion_probability(problem, model, sequences=20_000))
        spec = {"dim": problem.dim, "context": problem.context, "noise": str(problem.noise)}
        return {"spec": {**spec, **about}, "result": {**result, "sequences": 100_000, "explosions": rare}}
    everywhere = dims == DIMS
    cells = (JUDGED, SEEN) if everywhere else (dimensions(dims), tuple(context.split(",")))
    found, _, exploded = ratios([model], *cells, seed=11)
    spec = {"dim": "2..32" if everywhere else dims, "context": "d..4d" if everywhere else context, **PROBLEM, **about}
    result = {"mean_ratio": round(float(found.mean()), 3), "largest_ratio": round(float(found.max()), 3)}
    text = f"d = {', '.join(map(str, cells[0]))}; n = {', '.join(cells[1])}"
    return {"spec": spec, "result": {**result, "exploded": int(exploded.sum()), "cells": text, "seed": 11}}


def _print(title: str, objective: Objective, value: float) -> None:
    ratios, worst = objective.ratios, int(objective.values.argmax())
    near = np.array([one.context < 1.25 * one.dim for one in objective.cells])
    at = f"d = {objective.cells[worst].dim}, n = {objective.cells[worst].context}"
    groups = f"largest {ratios[~near].max(initial=1):.3f}, near n = d {ratios[near].max(initial=1):.3f}"
    print(f"{title}: {value:.4f}, worst at {at}; ratios: {groups}, mean {ratios.mean():.4f}", flush=True)


if __name__ == "__main__":
    main()
