"""Losses of the readout after every layer of a model, on average over a problem and against the noise level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import kind_of, refuse
from ridgeformer.evaluation.comparison import UNKNOWN, floor_and_error
from ridgeformer.evaluation.noise_levels import (
    LEVEL_BLOCK,
    LevelLosses,
    describe_levels,
    measure_levels,
    note_on_explosions,
)
from ridgeformer.evaluation.sequence_losses import (
    Progress,
    adjusted_losses,
    check_predictor,
    draw_sequences,
    evaluated_by_engine,
    how_many,
    needed,
)
from ridgeformer.evaluation.statistics import Running
from ridgeformer.evaluation.table import Table, lines, ratio
from ridgeformer.jsonable import jsonable
from ridgeformer.losses import warn_below_floor
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors.base import check_any_problem
from ridgeformer.problems import BaseProblem, Draw
from ridgeformer.validation import integer

__all__ = ["LayerLosses", "LayerProfile", "by_layer", "profile_by_layer"]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class LayerLosses(Table):
    """Adjusted loss of the readout after every layer of a model.

    Attributes:
        name: What was evaluated.
        layer: [L+1], how many layers were used: 0, which predicts 0, to L, the whole model.
        loss: [L+1], the mean adjusted losses.
        error: [L+1], the standard errors of `loss`.
        floor: The adjusted loss of the Bayes predictor on the same sequences, NaN if it was not asked for.
        floor_error: The standard error of `floor`.
        exploded: [L+1], how many sequences exploded.
        sequences: How many sequences were used.

    A loss that is more than 4 standard errors below the floor raises a `BelowFloorWarning`.
    """

    name: str
    layer: Counts
    loss: Array
    error: Array
    floor: float
    floor_error: float
    exploded: Counts
    sequences: int

    def __post_init__(self) -> None:
        for layer, loss, error in zip(self.layer, self.loss, self.error, strict=True):
            warn_below_floor(f"{self.name} after layer {layer}", loss, error, self.floor, self.floor_error)

    @property
    def ratio(self) -> Array:
        """[L+1], loss over floor, as in `Result`."""
        return np.array([ratio(loss, self.floor) for loss in self.loss.tolist()])

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per layer, with all fields and the ratio."""
        columns = ("layer", "loss", "error", "ratio", "exploded")
        shared = {"floor": self.floor, "floor_error": self.floor_error, "sequences": self.sequences}
        return [{"name": self.name, **row, **shared} for row in lines({c: getattr(self, c) for c in columns})]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and the ratio, ready for JSON; a number that is not finite is None."""
        return {**super().as_dict(), "ratio": jsonable(self.ratio)}

    def _title(self) -> str:
        return f"Adjusted loss of {self.name} after each layer on {self.sequences:,} sequences"

    def _printed(self) -> list[dict[str, Any]]:
        rows = self.rows()
        return [{c: row[c] for c in ("layer", "loss", "error", "floor", "ratio", "exploded")} for row in rows]

    def __repr__(self) -> str:
        return f"LayerLosses({self.name!r}, {self.layer[-1]} layers, loss={self.loss[-1]:.4g} after the last)"


@dataclass(frozen=True, eq=False, repr=False)
class LayerProfile(LevelLosses):
    """Adjusted loss of the readout after every layer of a model, against the noise level.

    `loss`, `error` and `exploded` have the shape [L+1, K]. See `LevelLosses` for the other attributes.

    Attributes:
        layer: [L+1], how many layers were used: 0, which predicts 0, to L, the whole model.
    """

    layer: Counts

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per layer and noise level."""
        return [
            {"name": self.name, "layer": layer, **row, "sequences": self.sequences}
            for i, layer in enumerate(self.layer.tolist())
            for row in self._levels(i)
        ]

    def _title(self) -> str:
        return f"Adjusted loss of {self.name} after each layer on {self.sequences:,} sequences per noise level"

    def _printed(self) -> list[dict[str, Any]]:
        """One row per noise level, with the loss after every layer."""
        losses = {f"layer {layer}": loss for layer, loss in zip(self.layer, self.loss, strict=True)}
        return lines({"sigma": self.sigma, **losses, "in_distribution": self.in_distribution})

    def _note(self) -> str:
        return note_on_explosions(self.exploded)

    def __repr__(self) -> str:
        return f"LayerProfile({self.name!r}, {self.layer[-1]} layers, {describe_levels(self.sigma)})"


def by_layer(
    problem: BaseProblem,
    model: LinearTransformer,
    *,
    sequences: int = 100_000,
    seed: int = 0,
    with_floor: bool = True,
    progress: Progress = lambda done, total: None,
) -> LayerLosses:
    """Measure the adjusted loss of the readout after every layer.

    Args:
        problem: The distribution of sequences.
        model: The model. A subclass of `LinearTransformer` is refused: its layers are not known to be its predictions.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.
        with_floor: Whether to compute the Bayes floor on the same sequences; it is computed once per problem, number of
            sequences and seed. Without it, the floor is NaN.
        progress: Called with the number of sequences done and the number of all.

    Returns:
        Losses, standard errors and numbers of explosions after 0 to L layers; with 0 layers the prediction is 0.

    Raises:
        InputError: The model is not a `LinearTransformer`, or a number is out of range.

    Warns:
        BelowFloorWarning: A loss is more than 4 standard errors below the floor.
    """
    readouts = _readouts(model, problem)
    sequences, seed = how_many(problem, sequences), integer("seed", seed, 0)
    running = Running(model.layers + 1, problem.signal)
    least = floor_and_error(problem, sequences, seed) if with_floor else UNKNOWN
    for first in range(0, sequences, LEVEL_BLOCK):
        count = min(LEVEL_BLOCK, sequences - first)
        running.add(_readout_losses(readouts, draw_sequences(problem, seed, first, count, **needed([model]))))
        progress(first + count, sequences)
    return LayerLosses(
        name=repr(model),
        layer=np.arange(model.layers + 1),
        loss=running.mean,
        error=running.errors,
        floor=least[0],
        floor_error=least[1],
        exploded=running.exploded,
        sequences=sequences,
    )


def profile_by_layer(
    problem: BaseProblem,
    model: LinearTransformer,
    *,
    sigma: Sequence[float] | Array | None = None,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> LayerProfile:
    """Measure the adjusted loss of the readout after every layer at each noise level.

    Args:
        problem: The dimension, the context length, and which noise levels can occur.
        model: The model. A subclass of `LinearTransformer` is refused: its layers are not known to be its predictions.
        sigma: [K], the noise levels, which are standard deviations. The default is about 40 levels from 0 to the
            largest level that can occur plus 1.
        sequences: How many fresh sequences to use at each level, at least 2.
        seed: Seed of these sequences. The levels share them: only sigma differs.
        progress: Called with the number of steps done and the number of all.

    Returns:
        Losses, standard errors and numbers of explosions after 0 to L layers at every level, [L+1, K] each.

    Raises:
        InputError: The model is not a `LinearTransformer`, or a number is out of range.
    """
    readouts = _readouts(model, problem)

    def losses(draw: Draw) -> Array:
        return _readout_losses(readouts, draw)

    layer = np.arange(model.layers + 1)
    found = measure_levels(losses, len(layer), problem, needed([model]), sigma, sequences, seed, progress)
    return LayerProfile(name=repr(model), layer=layer, **found)


def _readouts(model: object, problem: BaseProblem) -> list[LinearTransformer]:
    """The models made of the first 1, 2, ... layers: the readout after a layer is their prediction."""
    check_any_problem(problem)
    if not isinstance(model, LinearTransformer):
        refuse("losses by layer need a model", kind_of(model), "Pass a LinearTransformer.")
    if not evaluated_by_engine(model):
        refuse(
            "losses by layer need a LinearTransformer and no subclass, because a subclass may predict something else",
            kind_of(model),
            "Pass LinearTransformer(model.family, model.dim), or use evaluate and profile for the whole model.",
        )
    check_predictor("model", model, problem)
    return [model.truncate(layers) for layers in range(1, model.layers + 1)]


def _readout_losses(readouts: list[LinearTransformer], draw: Draw) -> Array:
    """Adjusted losses after every layer, [B, L+1]; the first is that of predicting 0."""
    nothing = draw.both_losses(np.zeros_like(draw.task))[0]
    return np.stack([nothing, *(adjusted_losses(readout, draw) for readout in readouts)], 1)
