"""What `benchmarks.discover` minimises: the excess over exact Bayes in cells (d, n), its gradient and curvature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.universal import cell
from ridgeformer.engine import Layout
from ridgeformer.models import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.predictors import Universal
from ridgeformer.problems import Problem
from ridgeformer.problems.parts import ContextRule, dimensions
from ridgeformer.training.batch import Batch, damped
from ridgeformer.training.job import Units, Vector

Array = NDArray[np.float64]
UNIVERSAL = Layout("mean", "ratio")  # the tokens of models for every dimension
DIMS, CONTEXT = "2,3,4,6,8,12,16,24,32,48", "d,d+2,1.25d,1.5d,2d,3d,4d"
STRETCHED, STRETCH = 8.0, 1.2  # 8 / n stretched sequences for each one, at least .3; larger by up to 1.2 / sqrt(n)
TASK = 3.0  # by how many standard deviations their tasks are longer along the longest direction of the features
COUNTED, BARE = 0.05, 0.2  # what a stretched sequence counts; the same for models that are used without `Universal`
FAR = 10.0  # the excess of a stretched sequence above which it enters by its logarithm, in floors
ALLOWED, NEAR, BEYOND = 0.12, 0.3, 0.25  # excess / floor; where n is near d; and beyond d = 32
POWER = 4.0
LIMIT = 0.3  # the excess of a sequence above which it enters by its logarithm
GROUPS, ALONE = 50, 1000  # of sequences that share a random vector, in each batch; where there is one cell only


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
    counted: float
    groups: int

    @classmethod
    def of(
        cls,
        problem: Problem,
        layout: Layout,
        share: float,
        seed: int,
        stretch: float = STRETCH,
        near: float = NEAR,
    ) -> Cell:
        """Draw the sequences of a cell."""
        dim, n = problem.dim, problem.context
        draw = problem.moments(round(share * (400 + 16_000 / dim**1.5)), seed=seed)
        best = problem.best_predictor()
        floor = np.square(best.weights(draw.moments) - draw.ridge).sum(1).mean() / 2
        more = np.arange(round(max(STRETCHED / n, 0.3) * share * (400 + 2000 / dim))) % len(draw.task)
        larger = _stretched(draw.moments.chosen(more), seed, stretch)
        allowed = near if n < 1.25 * dim else BEYOND if dim > 32 else ALLOWED
        guarded = problem.tasks == cell(dim, n).tasks
        batches = (_batch(one, best.weights(one), layout, guarded) for one in (draw.moments, larger))
        how = (COUNTED, GROUPS) if guarded else (BARE, ALONE)
        return cls(dim, n, *batches, float(floor), allowed, problem.signal, *how)

    def value(self, vector: Vector, model: LinearTransformer, gradient: bool) -> tuple[float, float, Array]:
        """Excess / floor; the same with stretched sequences, in units of what is allowed; and its gradient, [k]."""
        own, total, scale = model.at_dim(self.dim), 0.0, self.floor * self.allowed
        slope: Array = np.zeros(1)
        excess = []
        for batch, counted, limit in self.parts:
            found = batch.evaluate(own, limit, gradient)
            excess.append(float(damped(np.minimum(found.losses, 1e12), limit).mean()))
            total += counted * excess[-1] / scale
            if gradient:
                slope = slope + counted * vector.slope(own.family.pullback(found.gradient)) / scale
        return excess[0] / self.floor, total, slope

    @property
    def parts(self) -> tuple[tuple[Batch, float, float], ...]:
        """Batches, what they count, and the excess above which their sequences enter by its logarithm."""
        return (self.plain, 1.0, LIMIT * self.signal), (self.stretched, self.counted, FAR * self.floor)

    def gradients(self, vector: Vector, model: LinearTransformer, rng: np.random.Generator) -> Array:
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
            ends = np.linspace(0, len(batch), min(self.groups, len(batch)) + 1).astype(int)
            for part in map(slice, ends[:-1], ends[1:]):
                some = Batch(gram[part], target[part], None if metric is None else metric[part])
                value = some.evaluate(own, 10.0 * self.dim * self.signal)
                found.append(factor * len(some) * vector.slope(own.family.pullback(value.gradient)))
        return np.array(found)


def _batch(moments: Moments, target: Array, layout: Layout, guarded: bool) -> Batch:
    """Contexts and targets, in the units of `Universal` where models are used with it."""
    if not guarded:
        return Batch(np.asarray(moments.gram_of(layout)), target, None)
    moments, unit, _ = Universal(None, signal=1).in_units(moments)
    metric = None if (unit == 1).all() else np.square(unit)[:, None, None] * np.eye(moments.dim)
    return Batch(np.asarray(moments.gram_of(layout)), target / unit[:, None], metric)


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
        layout: Layout,
        dims: str = DIMS,
        context: str = CONTEXT,
        share: float = 1.0,
        seed: int = 101,
        power: float = POWER,
        noise: str | None = None,
        stretch: float = STRETCH,
        near: float = NEAR,
    ) -> None:
        self.power, self.layout, self.cells, self.units = power, layout, list[Cell](), None
        for d in dimensions(dims):
            lengths = ContextRule("2d" if d > 32 else context).at(d).values.tolist()
            problems = [cell(d, n) if noise is None else Problem(d, n, noise) for n in lengths]
            self.cells += [Cell.of(one, layout, share, seed, stretch, near) for one in problems]
            self.units = None if noise is None else Units(problems[0], layout)
        self.ratios = np.zeros(len(self.cells))

    def vector(self, model: LinearTransformer) -> Vector:
        """How models shaped like this one are packed."""
        return Vector(model, self.units)

    def of(self, model: LinearTransformer) -> float:
        """The value of a model."""
        vector = self.vector(model)
        return self(vector, vector.pack(model), gradient=False)[0]

    def __call__(self, vector: Vector, point: Array, gradient: bool = True) -> tuple[float, Array, Array, Array]:
        """The value; the gradient, [k]; what each cell counts, [cells]; and the gradients of the cells, [cells, k]."""
        model = vector.model(point)
        excess, z, slopes = zip(*(one.value(vector, model, gradient) for one in self.cells), strict=True)
        self.ratios, values = 1 + np.array(excess), np.array(z)
        value = float(np.mean(values**self.power) ** (1 / self.power))
        share = value ** (1 - self.power) * values ** (self.power - 1) / len(values)
        rows = np.array(slopes)
        self.values = values
        return value, share @ rows, share, rows

    def curvature(
        self, vector: Vector, point: Array, share: Array, rows: Array, value: float, rng: np.random.Generator
    ) -> Array:
        """The Gauss-Newton matrix, [k, k]."""
        model, slope = vector.model(point), share @ rows
        matrix = -(self.power - 1) / value * np.outer(slope, slope)
        matrix += (rows * ((self.power - 1) * share / self.values)[:, None]).T @ rows
        for one, counted in zip(self.cells, share, strict=True):
            g = one.gradients(vector, model, rng)
            matrix += counted * g.T @ g
        return matrix
