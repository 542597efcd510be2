"""Train a model for every dimension: `python -m benchmarks.discover --layers 4 --out FILE`, from nothing or a model.

The objective is (mean of ratio^p)^(1/p) over cells (d, n), with ratio = loss / floor on the same fixed sequences and
p = 4, so that the worst cells count most; cells near n = d and beyond d = 32, where more is allowed, count less.
Contexts are in the units of `ridgeformer.predictors.Universal`, and a part of them appears once more, stretched, so
that rare large contexts do not explode. BFGS descends in float64, in rounds on new sequences. The result depends on the
arguments alone, not on the clock. A model of L layers grows from one of L - 1: a small random layer is put at each
place, each descends for a while, and the best goes on.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.universal import cell
from ridgeformer.bfgs import Minimum, descend
from ridgeformer.engine import Layout
from ridgeformer.loading import load
from ridgeformer.models import Channels, LinearTransformer
from ridgeformer.models.file import save
from ridgeformer.moments import Moments
from ridgeformer.predictors import Universal
from ridgeformer.problems import Problem
from ridgeformer.problems.parts import ContextRule, dimensions
from ridgeformer.training.batch import Batch, damped

__all__ = ["Cell", "Objective", "grow"]

Array = NDArray[np.float64]
FAMILY, LAYOUT = Channels(1, 4), Layout("mean", "ratio", 2)
DIMS, CONTEXT = "2,3,4,6,8,12,16,24,32,48", "d,d+2,1.25d,1.5d,2d,3d,4d"
STRETCHED, STRETCH = 0.3, 1.2  # share of the sequences that appear once more, larger by so much
POWER = 4.0
LIMIT = 1.0  # the loss of a sequence above which it enters by its logarithm


@dataclass(frozen=True, eq=False)
class Cell:
    """Fixed sequences at one (d, n), the floor on them, and what their ratio counts."""

    dim: int
    context: int
    batch: Batch
    floor: float
    weight: float

    @classmethod
    def of(cls, problem: Problem, share: float, seed: int) -> Cell:
        """Draw the sequences of a cell."""
        dim, n = problem.dim, problem.context
        draw = problem.moments(round(share * (200 + 3000 / dim)), seed=seed)
        moments = _joined(draw.moments, _stretched(draw.moments.chosen(np.arange(round(STRETCHED * len(draw.task))))))
        oracle = problem.oracle(moments)
        floor = np.square(problem.best_predictor().weights(moments) - oracle).sum(1).mean() / 2
        moments, unit = Universal(None, signal=1).scaled(moments)
        gram = np.moveaxis(np.ascontiguousarray(np.moveaxis(moments.gram_of(LAYOUT), 0, -1)), -1, 0)
        metric = None if (unit == 1).all() else np.square(unit)[:, None, None] * np.eye(dim)
        weight = 0.75 if n == dim else 0.87 if n < 1.25 * dim or dim > 32 else 1.0
        return cls(dim, n, Batch(gram, oracle / unit[:, None], metric), float(floor), weight)


def _stretched(moments: Moments) -> Moments:
    """The contexts with features that are larger along their largest direction, or, every other one, larger labels."""
    gram = np.array(moments.gram)
    top = np.linalg.eigh(gram[:, :-1, :-1])[1][:, :, -1]
    T = np.broadcast_to(np.eye(gram.shape[1]), gram.shape).copy()
    T[::2, :-1, :-1] += (STRETCH - 1) * np.einsum("bi,bj->bij", top, top)[::2]
    T[1::2, -1, -1] = STRETCH
    sigma = np.array(moments.sigma)
    sigma[1::2] *= STRETCH
    return Moments._trusted(T @ gram @ T, moments.context, sigma)


def _joined(*parts: Moments) -> Moments:
    grams, sigmas = ([np.asarray(getattr(one, name)) for one in parts] for name in ("gram", "sigma"))
    return Moments._trusted(np.concatenate(grams), parts[0].context, np.concatenate(sigmas))


class Objective:
    """The objective and its gradient as a function of the parameters, [k]."""

    def __init__(
        self, dims: str = DIMS, context: str = CONTEXT, share: float = 1.0, seed: int = 101, power: float = POWER
    ) -> None:
        self.power, self.cells = power, list[Cell]()
        for d in dimensions(dims):
            lengths = ContextRule("2d" if d > 32 else context).at(d).values.tolist()
            self.cells += [Cell.of(cell(d, n), share, seed) for n in lengths]
        if context != CONTEXT:
            self.cells = [dataclasses.replace(one, weight=1.0) for one in self.cells]
        self.ratios = np.zeros(len(self.cells))

    def __call__(self, point: Array) -> tuple[float, Array]:
        """The value, and the gradient [k]."""
        model, slopes = unpacked(point), []
        for k, one in enumerate(self.cells):
            evaluation = one.batch.evaluate(model.at_dim(one.dim), LIMIT)
            self.ratios[k] = damped(evaluation.losses, LIMIT).mean() / one.floor
            assert evaluation.gradient is not None
            slopes.append(one.weight / one.floor * np.concatenate([np.ravel(part) for part in evaluation.gradient]))
        weighted = self.ratios * np.array([one.weight for one in self.cells])
        value = float(np.mean(weighted**self.power) ** (1 / self.power))
        share = value ** (1 - self.power) * weighted ** (self.power - 1) / len(self.cells)
        return value, np.asarray(share @ np.array(slopes))


def packed(model: LinearTransformer) -> Array:
    """The parameters of a model, [k]."""
    return np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in model.kernel])


def unpacked(point: Array) -> LinearTransformer:
    """The model with given parameters."""
    layers = len(point) // 34
    sizes = [layers * size**2 for size in (1, 1, 4, 4)]
    parts = np.split(point, np.cumsum(sizes)[:-1])
    arrays = [part.reshape(layers, 1, size, size) for part, size in zip(parts, (1, 1, 4, 4), strict=True)]
    return LinearTransformer(FAMILY(*arrays), 32, LAYOUT)


def grow(model: LinearTransformer | None, objective: Objective, iterations: int, seed: int) -> LinearTransformer:
    """Put a small random layer at each place of a model, descend from each, and keep the best.

    Args:
        model: The model; None for one that has no layers yet.
        objective: The objective, on few sequences.
        iterations: Iterations of BFGS from each place.
        seed: The seed of the random layers.

    Returns:
        The model with one more layer.
    """
    rng, ends = np.random.default_rng(seed), []
    for place in range(1 if model is None else model.layers + 1):
        layer = LinearTransformer.random(
            FAMILY, dim=32, layers=1, scale=0.3, seed=int(rng.integers(1 << 30)), layout=LAYOUT
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
        ends.append(descend(objective, Minimum.at(packed(whole)), iterations))
    return unpacked(min(ends, key=lambda end: end.value).point)


@click.command()
@click.option("--layers", type=click.IntRange(1, 12), required=True, help="Layers of the model.")
@click.option("--start", help="A model to go on from; with fewer layers it grows. [default: none]")
@click.option("--iterations", type=click.IntRange(1), default=50, show_default=True, help="Of BFGS, in each round.")
@click.option("--rounds", type=click.IntRange(1), default=12, show_default=True, help="Rounds, each on new sequences.")
@click.option("--dim", "dims", default=DIMS, show_default=True, help="Dimensions; beyond 32 only n = 2d.")
@click.option("--context", default=CONTEXT, show_default=True, help="Numbers of examples.")
@click.option("--share", type=float, default=1.0, show_default=True, help="Sequences, relative to the full number.")
@click.option("--power", type=float, default=POWER, show_default=True, help="p.")
@click.option("--seed", type=click.IntRange(0), default=101, show_default=True, help="Seed of the sequences.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file of the model.")
def main(
    layers: int,
    start: str | None,
    iterations: int,
    rounds: int,
    dims: str,
    context: str,
    share: float,
    power: float,
    seed: int,
    out: Path,
) -> None:
    """Train a model for every dimension. A run that was interrupted goes on from the file of its state beside OUT."""
    model = None if start is None else load(start)
    few = Objective(dims, context, share / 4, seed, power) if model is None or model.layers < layers else None
    while few is not None and (model is None or model.layers < layers):
        model = grow(model, few, 40, seed)
        model = unpacked(descend(few, Minimum.at(packed(model)), 150).point)
        print(f"{model.layers} layers: {few(packed(model))[0]:.4f} on few sequences", flush=True)
    assert model is not None
    end, first, state = Minimum.at(packed(model)), 0, out.with_suffix(".npz")
    if state.exists():
        with np.load(state) as stored:
            first, end = int(stored["rounds"]), Minimum.restored(stored)
    for number in range(first, rounds):
        objective = Objective(dims, context, share, seed + number, power)
        end = descend(objective, dataclasses.replace(end, value=np.inf, rested=False), iterations)
        value, ratios = objective(end.point)[0], objective.ratios
        worst = objective.cells[int(ratios.argmax())]
        where = f"largest {ratios.max():.3f} at d = {worst.dim}, n = {worst.context}, mean {ratios.mean():.3f}"
        print(f"round {number}, {end.evaluations} evaluations: {value:.4f}, {where}", flush=True)
        save(unpacked(end.point), out)
        np.savez(state, rounds=number + 1, **end.arrays())


if __name__ == "__main__":
    main()
