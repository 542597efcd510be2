"""Problems whose dimension varies: each sequence has one of several dimensions d.

The number of examples may depend on d. A sequence of dimension d is one of the largest dimension whose further features
are 0. A model that treats all directions alike, such as one with channels, does with it what it does in dimension d.

>>> from ridgeformer import Problem
>>> problem = Problem(dim="2..4", context="d..2d", noise="uniform(0,1)", tasks="gaussian(signal=1)")
>>> problem.cell(3)
Problem(dim=3, context=3..6, noise=uniform(0,1), tasks=gaussian(signal=1))
>>> problem.moments(4).moments
Moments(4 contexts, dim=4, context=3..8, float64)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Evaluation, Kernel, Key
from ridgeformer.errors import refuse, shown
from ridgeformer.losses import rounding
from ridgeformer.moments import Moments
from ridgeformer.problems.base import Ask, BaseProblem
from ridgeformer.problems.draws import Draw, Sequences
from ridgeformer.problems.parts import ContextRule, Lengths, dimensions
from ridgeformer.problems.problem import BuiltIn, Problem
from ridgeformer.validation import Array, Float, keywords
from ridgeformer.values import read_only

STREAMS = 20  # bits of a key's stream that are left to the caller; those above name the dimension
GRID = 7, 5  # dimensions, and numbers of examples at each, whose floors are measured; others lie between them
MEASURED = 1 << 14  # coordinates of the tasks of all sequences that a floor is measured on
FLOOR_KEY = Key(0, 9, 0)


class VaryingDimension(BuiltIn):
    """In-context regression with several dimensions; `Problem` makes one where `dim` names several.

    Sequence number i has dimension `dims[i % K]`, and the numbers of examples at this dimension have equal
    probabilities. Losses are weighted: those at each (d, n) count F / floor(d, n), where F is the harmonic mean of the
    floors, so that loss / floor is the mean of loss / floor over the cells (d, n), and none dominates. Without noise
    levels that vary floors are 0, and all losses count the same.

    Args:
        dim: The dimensions: a range, a list, or text such as `2..32`.
        context: The numbers of examples: what `Problem` takes, or text that depends on d, such as `d..4d`.
        noise: As in `Problem`.
        features: As in `Problem`; a law that fits every dimension.
        tasks: As in `Problem`; a law that fits every dimension. With `gaussian(signal=1)` labels have the same size at
            every dimension, so that noise levels are ratios of noise to signal.
        query: As in `Problem`.

    Attributes:
        dims: The dimensions, ascending.
        dim: The largest dimension, which moments have.

    Raises:
        InputError: An argument is not allowed at one of the dimensions.
    """

    @keywords()
    def __init__(
        self,
        dim: object,
        context: object = 20,
        noise: object = None,
        *,
        features: object = None,
        tasks: object = None,
        query: object = None,
    ) -> None:
        laws = {"features": features, "tasks": tasks, "query": query}
        self.dims = dimensions(dim)
        self.dim = self.dims[-1]
        self.rule = ContextRule(context)
        self.cells: tuple[Any, ...] = tuple(Problem(d, self.rule.at(d), noise, **laws) for d in self.dims)
        largest = self.cells[-1]
        if largest.noise.per_token:
            rule = "where dimensions vary, each sequence must have one noise level"
            refuse(rule, largest.noise, "Use a problem of one dimension.")
        self.noise, self.has_pool = largest.noise, largest.has_pool
        self.features, self.tasks, self.query = largest.features, largest.tasks, largest.query
        self.lengths = Lengths(sorted({n for cell in self.cells for n in cell.lengths.values.tolist()}))
        self.signal = float(np.mean([cell.signal for cell in self.cells]))

    def cell(self, dim: int) -> Problem:
        """Return the problem at one of the dimensions.

        Args:
            dim: The dimension.

        Returns:
            The problem.

        Raises:
            InputError: It is none of the dimensions.
        """
        if dim not in self.dims:
            refuse(f"the dimensions are {self.sizes[0]}", shown(dim), "Choose one of these.")
        cell: Problem = self.cells[self.dims.index(dim)]
        return cell

    def by_dimension(self) -> dict[int, Any]:
        """See `BaseProblem.by_dimension`."""
        return dict(zip(self.dims, self.cells, strict=True))

    @property
    def sizes(self) -> tuple[str, ContextRule]:
        """See `BuiltIn.sizes`."""
        return str(Lengths(self.dims)), self.rule

    @property
    def context(self) -> int:
        """A number of examples that all sequences share does not exist here; see `lengths`."""
        refuse("this needs a fixed number of examples", f"n = {self.rule}", "Use one dimension and context length.")

    @property
    def prior(self) -> Any:
        """The Gaussian law of tasks depends on the dimension: ask a cell."""
        refuse("the law of the tasks depends on the dimension", f"d = {self.sizes[0]}", "Use problem.cell(d).prior.")

    def _made(self, **arguments: Any) -> Any:
        return Problem(**arguments)  # with one dimension it is an ordinary problem

    def edges(self) -> BaseProblem:
        """See `BaseProblem.edges`: the smallest, a middle and the largest dimension with fewest and most examples."""
        some = sorted({self.dims[0], self.dims[len(self.dims) // 4], self.dims[len(self.dims) // 2], self.dims[-1]})
        return _Corners(**{**self.arguments, "dim": some})

    def describe(self) -> dict[str, str]:
        """See `BaseProblem.describe`."""
        words: dict[str, str] = self.cells[-1].describe()
        several = f"d is one of the {len(self.dims)} numbers {self.sizes[0]}, each with the same probability."
        context = f"n is one of the numbers {self.rule}, each with the same probability given d."
        return {"dimension": several, **words, "context": context}

    def oracle(self, drawn: Sequences | Draw | Moments) -> Array:
        """See `BaseProblem.oracle`."""
        moments = drawn if isinstance(drawn, Moments) else drawn.moments
        return ByDimension({d: cell.oracle for d, cell in self.by_dimension().items()}).weights(moments)

    def best_predictor(self) -> Any:
        """See `BaseProblem.best_predictor`: the best predictor of each dimension."""
        return ByDimension({d: cell.best_predictor().weights for d, cell in self.by_dimension().items()})

    @cached_property
    def _floors(self) -> tuple[Array, list[tuple[Array, Array]]]:
        """Logarithms of the dimensions of a grid; and at each, those of numbers of examples and of the floors."""
        floors = [(int(d), self.cell(d)) for d in _spread(np.array(self.dims), GRID[0])]
        grid = [(cell, _spread(cell.lengths.values, GRID[1])) for _, cell in floors]
        measured = [[_floor(cell.replace(context=int(n))) for n in numbers] for cell, numbers in grid]
        lengths = [np.log(numbers / cell.dim) for cell, numbers in grid]
        return np.log([d for d, _ in floors]), [(n, np.array(one)) for n, one in zip(lengths, measured, strict=True)]

    def importance(self, dim: int, context: int | NDArray[np.int64]) -> Array:
        """Return what losses count at cells: F / floor.

        Args:
            dim: The dimension d.
            context: The numbers of examples n, one or [B].

        Returns:
            Numbers with a mean near 1 over the cells, of the shape of `context`.
        """
        return np.asarray(self._mean_floor / self._floor_at(dim, np.asarray(context, np.float64)))

    def _floor_at(self, dim: int, context: Array) -> Array:
        """The floors at one dimension, by linear interpolation between logarithms along n / d and d."""
        dims, rows = self._floors
        if min(row.min() for _, row in rows) <= rounding(self.signal):
            return np.ones(np.shape(context))
        at = np.array([np.interp(np.log(context / dim), n, np.log(row)) for n, row in rows])
        place = np.interp(np.log(dim), dims, np.arange(len(dims)))
        below = int(min(place, len(dims) - 2)) if len(dims) > 1 else 0
        above = min(below + 1, len(dims) - 1)
        return np.asarray(np.exp(at[below] + (place - below) * (at[above] - at[below])))

    @cached_property
    def _mean_floor(self) -> float:
        """F, the harmonic mean of the floors of all cells; each dimension counts the same."""
        inverse = [np.mean(1 / self._floor_at(cell.dim, cell.lengths.values.astype(float))) for cell in self.cells]
        return float(1 / np.mean(inverse))

    def _blocks(self, key: Key, count: int, first: int, ask: Ask) -> Iterator[tuple[slice, Draw]]:
        """Draw the sequences of each dimension among numbers `first` to `first + count`, and say where they belong.

        The metric holds what losses count.
        """
        many = len(self.dims)
        for k, cell in enumerate(self.cells):
            offset = (k - first) % many
            if (size := len(range(offset, count, many))) > 0:
                cell_key = Key(key.seed, (key.stream + (cell.dim << STREAMS)) % (1 << 32), key.step)
                draw: Draw = cell._moments(cell_key, size, (first + offset - k) // many, ask)
                metric = np.eye(cell.dim) if draw.metric is None else np.asarray(draw.metric, np.float64)
                weight = np.broadcast_to(self.importance(cell.dim, draw.moments.context), size)
                weighted = np.moveaxis(np.empty((*metric.shape[-2:], size), ask.dtype), -1, 0)
                np.multiply(weight[:, None, None], metric, out=weighted, casting="unsafe")
                yield slice(offset, None, many), replace(draw, metric=read_only(weighted))

    def _moments(self, key: Key, count: int, first: int, ask: Ask) -> Draw:
        D, ranks = self.dim + 1, {"gram": 2, "task": 1, "ridge": 1, "sums": 1, "metric": 2}
        arrays = {name: np.moveaxis(np.zeros((*[D] * axes, count), ask.dtype), -1, 0) for name, axes in ranks.items()}
        sigma, counts, dims = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
        for part, draw in self._blocks(key, count, first, ask):
            d = draw.moments.dim
            old = np.append(np.arange(d), self.dim)
            arrays["gram"][part, old[:, None], old] = draw.moments.gram
            arrays["task"][part, :d], arrays["ridge"][part, :d] = draw.task, draw.ridge
            arrays["metric"][part, :d, :d] = draw.metric
            if draw.moments.sums is not None:
                arrays["sums"][part, old] = draw.moments.sums
            sigma[part], counts[part], dims[part] = draw.sigma, draw.moments.counts, d
        moments = Moments._trusted(arrays["gram"], counts, sigma, arrays["sums"] if ask.sums else None)
        task, ridge = (read_only(arrays[name][:, : self.dim]) for name in ("task", "ridge"))
        metric = read_only(arrays["metric"][:, : self.dim, : self.dim])
        return Draw(moments, task, ridge, read_only(sigma), metric, dims=read_only(dims))

    def _draw_tokens(self, key: Key, count: int, first: int, queries: int) -> Draw:
        refuse("whole sequences have one dimension", f"d = {self.sizes[0]}", "Use problem.cell(d).")

    def step(self, kernel: Kernel, key: Key, count: int, first: int, ask: Ask) -> Evaluation:
        """See `BaseProblem.step`: blocks of equal dimension are evaluated one after another."""
        losses, unadjusted = np.zeros(count, ask.dtype), None
        limited, gradients = 0, list[Any]()
        for part, draw in self._blocks(key, count, first, ask):
            evaluation = self._evaluated(kernel, draw, ask)
            losses[part], limited = evaluation.losses, limited + evaluation.limited
            if evaluation.unadjusted is not None:
                unadjusted = np.zeros(count, ask.dtype) if unadjusted is None else unadjusted
                unadjusted[part] = evaluation.unadjusted
            if evaluation.gradient is not None:
                gradients.append([len(draw.moments) / count * piece for piece in evaluation.gradient])
        gradient: Any = type(kernel)(*map(sum, zip(*gradients, strict=True))) if gradients else None
        return Evaluation(losses, None, gradient, limited, unadjusted)


Problem.varying = VaryingDimension


class _Corners(VaryingDimension):
    """The cells with the fewest and the most examples, where models are likeliest to explode."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.whole = VaryingDimension(**arguments)
        self.cells = tuple(cell.edges() for cell in self.cells)

    def importance(self, dim: int, context: int | NDArray[np.int64]) -> Array:
        """See `VaryingDimension.importance`."""
        return self.whole.importance(dim, context)


class ByDimension:
    """A predictor for each dimension; the dimension of a context is the number of its features that are not all 0.

    Args:
        weights: What gives the weights [b, d] of contexts with d features, by d.
        knows_sigma: Whether these use the true noise levels. Default: False.
    """

    def __init__(self, weights: dict[int, Callable[[Moments], Float]], *, knows_sigma: bool = False) -> None:
        self._weights, self.knows_sigma = weights, knows_sigma

    def weights(self, moments: Moments) -> Array:
        """Return the weights of contexts; those of features that are all 0 are 0.

        Args:
            moments: The contexts.

        Returns:
            The weights, [B, d].

        Raises:
            InputError: There is no predictor for a dimension.
        """
        last = (np.diagonal(moments.S, axis1=1, axis2=2) > 0) * np.arange(1, moments.dim + 1)
        sizes, weights = last.max(1), np.zeros((len(moments), moments.dim))
        for d in np.unique(sizes).tolist():
            if d not in self._weights:
                refuse(f"the dimensions are {', '.join(map(str, self._weights))}", d, "Use contexts of these.")
            index, xy = np.flatnonzero(sizes == d), np.append(np.arange(d), moments.dim)
            part = moments.chosen(index)
            sums = None if part.sums is None else np.asarray(part.sums[:, xy])
            contexts = Moments._trusted(np.asarray(part.gram[:, xy[:, None], xy]), part.context, part.sigma, sums)
            weights[index, :d] = self._weights[d](contexts)
        return weights

    def __repr__(self) -> str:
        return f"ByDimension({', '.join(map(str, self._weights))})"


def _spread(values: NDArray[Any], most: int) -> NDArray[np.int64]:
    """Some of ascending numbers, with the ends among them, in nearly equal ratios."""
    targets = np.geomspace(values[0], values[-1], most)
    places = np.unique(np.abs(np.log(values[:, None] / targets)).argmin(0)) if len(values) > most else slice(None)
    return np.asarray(values[places], np.int64)


def _floor(problem: Problem) -> float:
    """The adjusted loss of the best predictor, on sequences that no training and no evaluation uses."""
    count = max(256, MEASURED // problem.dim)
    draw = problem.moments(count, **FLOOR_KEY._asdict())
    adjusted, _ = draw.both_losses(problem.best_predictor().weights(draw.moments))
    return float(adjusted.mean())
