"""How close the readout of every layer is to every iteration of classical algorithms.

All algorithms start at w = 0 and solve S w = a for the moments of one context. They know nothing of the noise. Step
sizes, momentum and the scale of Newton's start are the same for all contexts, and are tuned on separate sequences of
the problem: they minimise the squared error to least squares, in the norm w'S w, summed over all iterations and
contexts. Preconditioned gradient descent multiplies gradients by the inverse of the mean of S over these sequences.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.evaluation.sequence_losses import blocks, draw_sequences, how_many, needs_sums
from ridgeformer.evaluation.table import Table
from ridgeformer.explanation.coefficients import check
from ridgeformer.files import jsonable
from ridgeformer.losses import exploded as has_exploded
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors.iterative import heavy_ball, newton, ridge_path
from ridgeformer.predictors.ridge import TUNING
from ridgeformer.problems import BaseProblem, Draw
from ridgeformer.validation import choice, integer
from ridgeformer.values import Array

ALGORITHMS = ("gradient descent", "preconditioned gd", "heavy ball", "newton", "ridge")
BLOCK = 1024  # sequences at a time
TUNED_ON = 4096  # contexts
BINS = 400  # of their eigenvalues
NEWTON = 60  # iterations at most: each squares what is left
PENALTIES = 41  # of ridge regression
STEPS = np.geomspace(0.2, 8.0, 60)  # over the largest eigenvalue of all contexts
MOMENTA = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98)


@dataclass(frozen=True, eq=False, repr=False)
class AlgorithmMap(Table):
    """How close the readout of every layer is to every iteration of each algorithm.

    Attributes:
        name: The model.
        layer: [L], after how many layers the readout is taken, from 1.
        iteration: By algorithm, [K]: the numbers of iterations; the penalties for `ridge`.
        cosine: By algorithm, [L, K]: mean over sequences of the cosine of the readout's and the algorithm's weights, in
            the covariance of the queries. 0 where the weights are 0.
        relative_error: By algorithm, [L, K]: root of the mean squared distance of both, relative to the readout's mean
            square.
        distance: [L], root of the mean squared distance of the readout to the oracle, or else to the task, relative to
            the mean square of that.
        distances: By algorithm, [K], the same for its iterations.
        settings: By algorithm, the tuned numbers by name.
        sequences: How many sequences were used.
        exploded: On how many the model explodes; they are left out.
    """

    name: str
    layer: NDArray[np.int64]
    iteration: dict[str, Array]
    cosine: dict[str, Array]
    relative_error: dict[str, Array]
    distance: Array
    distances: dict[str, Array]
    settings: dict[str, dict[str, float]]
    sequences: int
    exploded: int

    def closest(self, algorithm: str) -> Array:
        """Find the iteration that is closest to each layer: that with the smallest relative error.

        Args:
            algorithm: The name of an algorithm.

        Returns:
            The numbers of iterations, or the penalties of `ridge`, [L].

        Raises:
            InputError: There is no such algorithm.
        """
        numbers = self.iteration[choice("the algorithm", algorithm, self.iteration)]
        return np.asarray(numbers[np.argmin(self.relative_error[algorithm], 1)])

    def needed(self, algorithm: str) -> Array:
        """Find how many iterations are as accurate as each layer: the first that is as close to the oracle.

        Args:
            algorithm: The name of an algorithm.

        Returns:
            The numbers of iterations, [L]; infinite where all iterations together are not enough. NaN for `ridge`.

        Raises:
            InputError: There is no such algorithm.
        """
        if choice("the algorithm", algorithm, self.iteration) == "ridge":
            return np.full(len(self.layer), np.nan)
        enough = self.distances[algorithm] <= self.distance[:, None] * (1 + 1e-9)
        return np.where(enough.any(1), self.iteration[algorithm][np.argmax(enough, 1)], np.inf)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per algorithm, layer and iteration."""
        return [
            {"algorithm": name, "layer": layer, "iteration": k, "cosine": cosine, "relative_error": error}
            for name, numbers in self.iteration.items()
            for layer, *pair in zip(self.layer.tolist(), self.cosine[name], self.relative_error[name], strict=True)
            for k, cosine, error in zip(*(values.tolist() for values in (numbers, *pair)), strict=True)
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, and the closest and needed iterations of each layer, ready for JSON."""
        more = {"closest": self.closest, "needed": self.needed}
        numbers = {key: {name: method(name) for name in self.iteration} for key, method in more.items()}
        return {**super().as_dict(), **jsonable(numbers)}

    def _title(self) -> str:
        return (
            f"Layers and iterations of classical algorithms: {self.name}, {self.sequences:,} sequences\n"
            "A cell k: e [m] says that iteration k is closest to the readout of the layer, with a relative error of\n"
            "e, and that m iterations are as accurate as the layer. For ridge, k is the penalty."
        )

    def _printed(self) -> list[dict[str, Any]]:
        return [
            {"layer": layer, "accuracy": distance, **{name: self._cell(name, row) for name in self.iteration}}
            for row, (layer, distance) in enumerate(zip(self.layer.tolist(), self.distance.tolist(), strict=True))
        ]

    def _cell(self, algorithm: str, row: int) -> str:
        number, error = self.closest(algorithm)[row], self.relative_error[algorithm][row].min()
        if algorithm == "ridge":
            return f"{number:.3g}: {error:.2g}"
        last, needed = self.iteration[algorithm][-1], self.needed(algorithm)[row]
        more = f"{needed:.0f}" if np.isfinite(needed) else f">{last:.0f}"
        return f"{number:.0f}{'+' if number == last else ''}: {error:.2g} [{more}]"

    def _note(self) -> str:
        tuned = "; ".join(
            f"{name}: {', '.join(f'{key} {value:.3g}' for key, value in settings.items())}"
            for name, settings in self.settings.items()
            if settings
        )
        return (
            "[>20]: 20 iterations are not enough. +: the last iteration that was tried.\n"
            f"accuracy: distance of the readout to the oracle, relative to the oracle.\nTuned on the problem: {tuned}."
        )

    def __repr__(self) -> str:
        return f"AlgorithmMap({self.name!r}, {len(self.layer)} layers, {', '.join(self.iteration)})"


class _Basis(NamedTuple):
    """Contexts in the eigenbasis of S, or of the preconditioned S."""

    values: Array  # [B, d]
    solution: Array  # coordinates of the solution of S w = a, [B, d]; 0 along directions without examples
    vectors: Array  # to weights, [B, d, d]


class _Algorithm(NamedTuple):
    """A tuned algorithm."""

    precondition: Array | None  # the root of the preconditioner, [d, d]
    filters: Callable[[Array], Iterator[Array]]
    numbers: Array  # of its iterations, or penalties, [K]
    settings: dict[str, float]


def compare_algorithms(
    problem: BaseProblem,
    model: LinearTransformer,
    *,
    iterations: int = 200,
    sequences: int = 1000,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> AlgorithmMap:
    """Compare the readout of every layer with every iteration of classical algorithms.

    The algorithms are gradient descent, preconditioned gradient descent, heavy ball, Newton's iteration and ridge
    regression for a range of penalties; the module says how they are tuned.

    Args:
        problem: The distribution of sequences.
        model: The model.
        iterations: How many iterations of each algorithm; at most 60 of Newton's.
        sequences: How many sequences.
        seed: Seed of the sequences, and of those on which the algorithms are tuned.
        progress: Is called with the number of sequences done and of all.

    Returns:
        The cosines and relative errors by algorithm, layer and iteration.

    Raises:
        InputError: The model and the problem do not fit, an argument is not allowed, or the model explodes on every
            sequence.
    """
    check(model, problem)
    sequences, seed = how_many(problem, sequences), integer("seed", seed, 0)
    algorithms = _tuned(problem, integer("iterations", iterations, 1, 100_000), seed)
    sums: dict[str, Array] = {}
    for first, count in blocks(sequences, problem.dim, BLOCK):
        draw = draw_sequences(problem, seed, first, count, needs_sums(model))
        block = _block(model, draw, algorithms, problem.signal)
        sums = {name: sums.get(name, 0.0) + value for name, value in block.items()}
        progress(first + count, sequences)
    if (lost := int(sums["lost"])) == sequences:
        remedy = "Use the problem that the model was trained on."
        refuse("a comparison needs sequences on which the model does not explode", "none", remedy)
    squares, goal = sums["own"], sums["goal"]
    with np.errstate(all="ignore"):
        return AlgorithmMap(
            name=repr(model),
            layer=np.arange(1, model.layers + 1),
            iteration={name: algorithm.numbers for name, algorithm in algorithms.items()},
            cosine={name: sums[f"cosine {name}"].T / (sequences - lost) for name in algorithms},
            relative_error={name: np.sqrt(sums[f"error {name}"].T / squares[:, None]) for name in algorithms},
            distance=np.sqrt(sums["distance"] / goal),
            distances={name: np.sqrt(sums[f"distance {name}"] / goal) for name in algorithms},
            settings={name: algorithm.settings for name, algorithm in algorithms.items()},
            sequences=sequences,
            exploded=lost,
        )


def _block(model: LinearTransformer, draw: Draw, algorithms: dict[str, _Algorithm], signal: float) -> dict[str, Array]:
    """Sums over sequences: explosions, sizes and distances of readouts; with iterations cosines and distances."""
    trace = model.trace(draw)
    stable = np.asarray(~has_exploded(trace.losses, signal).any(0))
    root = np.eye(model.dim) if draw.metric is None else _root(np.asarray(draw.metric, np.float64))
    root = np.broadcast_to(root, (len(stable), *root.shape[-2:]))[stable]
    w = np.einsum("bij,lbj->lbi", root, np.asarray(trace.weights[1:, stable], np.float64))
    goal = np.einsum("bij,bj->bi", root, np.asarray(draw.ridge if draw.oracle else draw.task, np.float64)[stable])
    size = np.linalg.norm(w, axis=-1)
    sums = {"own": np.square(size).sum(1), "goal": np.square(goal).sum(), "distance": _squares(w - goal)}
    sums["lost"] = (~stable).sum()
    S, a = (np.asarray(part[stable], np.float64) for part in (draw.moments.S, draw.moments.b))
    for name, algorithm in algorithms.items():
        basis = _basis(S, a, algorithm.precondition)
        turn, parts = root @ basis.vectors, []
        for e, _ in zip(algorithm.filters(basis.values), algorithm.numbers, strict=False):
            v = np.einsum("bij,bj->bi", turn, (1 - e) * basis.solution)
            scale = size * np.linalg.norm(v, axis=-1)
            cosine = (w * v).sum(-1) / np.where(scale > 0, scale, 1.0)
            parts.append((cosine.sum(1), _squares(w - v), np.square(v - goal).sum()))
        for key, values in zip(("cosine", "error", "distance"), zip(*parts, strict=True), strict=True):
            sums[f"{key} {name}"] = np.array(values)
    return sums


def _tuned(problem: BaseProblem, iterations: int, seed: int) -> dict[str, _Algorithm]:
    """The algorithms with the numbers that suit the problem."""
    draw = problem.moments(TUNED_ON, seed=seed, stream=TUNING)
    S, a = np.asarray(draw.moments.S, np.float64), np.asarray(draw.moments.b, np.float64)
    mean = S.mean(0)
    inverse = _root(np.linalg.inv(mean + 1e-9 * np.trace(mean) / len(mean) * np.eye(len(mean))))
    direct, preconditioned = _summary(_basis(S, a, None)), _summary(_basis(S, a, inverse))
    numbers, few = np.arange(iterations + 1.0), np.arange(min(iterations, NEWTON) + 1.0)
    step, _ = _best(direct, numbers, heavy_ball)
    scaled_step, _ = _best(preconditioned, numbers, heavy_ball)
    scale, _ = _best(direct, few, newton, power=2)
    tries = ((m, *_best(direct, numbers, functools.partial(heavy_ball, momentum=m))) for m in MOMENTA)
    momentum, ball, _ = min(tries, key=lambda attempt: attempt[2])
    rolling = {"step": ball, "momentum": momentum}
    penalties = 16 * np.trace(mean) / len(mean) * 2.0 ** (-np.arange(PENALTIES) / 2)
    return {
        "gradient descent": _Algorithm(None, lambda v: heavy_ball(v, step), numbers, {"step": step}),
        "preconditioned gd": _Algorithm(inverse, lambda v: heavy_ball(v, scaled_step), numbers, {"step": scaled_step}),
        "heavy ball": _Algorithm(None, lambda v: heavy_ball(v, **rolling), numbers, rolling),
        "newton": _Algorithm(None, lambda v: newton(v, scale), few, {"scale": scale}),
        "ridge": _Algorithm(None, lambda v: ridge_path(v, penalties.tolist()), penalties, {}),
    }


def _summary(basis: _Basis) -> tuple[Array, Array]:
    """Eigenvalues in narrow bins, each as its largest, and the squares of the solution in the norm w'S w, [J] each."""
    values, weight = basis.values.ravel(), (basis.values * np.square(basis.solution)).ravel()
    positive = np.flatnonzero(values > 0)
    order = positive[np.argsort(values[positive])]
    values, weight = values[order], weight[order]
    edges = np.geomspace(values[0], values[-1] * (1 + 1e-9), BINS)
    ends = np.unique(np.searchsorted(values, edges[1:]))
    ends = ends[ends > 0]
    return values[ends - 1], np.add.reduceat(weight, np.append(0, ends[:-1]))


def _best(
    summary: tuple[Array, Array], numbers: Array, filters: Callable[[Array, Array], Iterator[Array]], power: int = 1
) -> tuple[float, float]:
    """The step, in units of 1 / (largest eigenvalue)^power, with the smallest sum of errors, and that sum."""
    values, weight = summary
    steps = STEPS[:, None] ** power / values[-1] ** power
    with np.errstate(all="ignore"):
        total = sum(np.square(e) @ weight for e in itertools.islice(filters(values, steps), len(numbers)))
    total = np.where(np.isfinite(total), total, np.inf)
    least = int(np.argmin(total))
    return float(steps[least, 0]), float(total[least])


def _basis(S: Array, a: Array, precondition: Array | None) -> _Basis:
    if precondition is not None:
        S, a = precondition @ S @ precondition, a @ precondition
    values, vectors = np.linalg.eigh(S)
    seen = values > 1e-13 * values[:, -1:]
    values = np.where(seen, values, 0.0)
    solution = np.einsum("bij,bi->bj", vectors, a) / np.where(seen, values, np.inf)
    return _Basis(values, solution, vectors if precondition is None else precondition @ vectors)


def _root(matrix: Array) -> Array:
    """The symmetric root."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2))


def _squares(values: Array) -> Array:
    """Sums over sequences and coordinates, [L]."""
    return np.asarray(np.square(values).sum((-1, -2)))
