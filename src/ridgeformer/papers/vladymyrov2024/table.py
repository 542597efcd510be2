"""Table 1, measured afresh: every cell beside the paper's number, the floor, and what the table must satisfy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ridgeformer.evaluation import Losses, compare
from ridgeformer.exact import const_loss, exact_loss, least_loss
from ridgeformer.files import jsonable
from ridgeformer.loading import load
from ridgeformer.losses import rounding, warn_below_floor
from ridgeformer.papers.vladymyrov2024.paper import (
    COLUMNS,
    FAMILIES,
    MODEL_ROWS,
    ROWS,
    SEQUENCES,
    CellKey,
    column,
    keys,
    printed,
    problem_of,
)
from ridgeformer.predictors.base import Predictor
from ridgeformer.predictors.bayes import BayesRR
from ridgeformer.predictors.ridge import AdaRR, ConstRR, OracleRR, TunedRR
from ridgeformer.problems import Problem
from ridgeformer.zoo import PREFIX, Zoo, further_models, place_of
from ridgeformer.zoo.explosions import explosions

FLOOR = "Bayes floor"
ORACLE = "OracleRR"
SIGNAL = 10.0  # of all its problems: features and tasks are N(0, I), and d is 10
NOTHING = rounding(SIGNAL)
SAME = 1e-3  # relative differences below this are none: where a model is grown from another and gains nothing


@dataclass(frozen=True)
class Cell:
    """One number of the table and all that belongs to it. Losses are adjusted, unless they say otherwise.

    Attributes:
        method: A family or a baseline.
        layers: The depth; None for a baseline.
        noise: The noise of the column, as text.
        loss: The loss on fresh sequences that took no part in training or in the choice of the seed.
        error: The standard error of the loss.
        floor: The floor of this problem, on the same sequences.
        floor_error: The standard error of the floor.
        unadjusted: The loss against the true w.
        largest: The largest loss of a sequence.
        exploded: How many sequences exploded.
        paper: The paper's number, as printed.
        rounding: Half a unit of its last digit.
        paper_error: The standard error of the paper's estimator at its 100,000 sequences, estimated with our model.
        seeds: The losses that training reported, by seed; none for a baseline.
        faults: What the cell should satisfy and does not, in words.
    """

    method: str
    layers: int | None
    noise: str
    loss: float
    error: float
    floor: float
    floor_error: float
    unadjusted: float
    largest: float
    exploded: int
    paper: float
    rounding: float
    paper_error: float
    seeds: tuple[float, ...]
    faults: tuple[str, ...]

    @property
    def key(self) -> CellKey:
        """Its place in the table."""
        return CellKey(self.method, self.layers, self.noise)

    @property
    def limit(self) -> float:
        """The largest loss that the paper allows: its number, two standard errors of its estimator and its rounding."""
        return self.paper + 2 * self.paper_error + self.rounding

    @property
    def over_paper(self) -> float:
        """Our loss over the paper's; NaN where the paper prints 0."""
        return self.loss / self.paper if self.paper else float("nan")

    @property
    def ratio(self) -> float:
        """Loss over floor; infinite where the floor is 0."""
        return self.loss / self.floor if self.floor > NOTHING else float("inf")

    @property
    def spread(self) -> float:
        """The worst seed's loss over the best's, minus 1; 0 without seeds."""
        return max(self.seeds) / min(self.seeds) - 1 if self.seeds else 0.0


@dataclass(frozen=True, eq=False)
class TableOne:
    """Table 1, and how it was measured.

    A cell more than 4 standard errors below its floor raises a `BelowFloorWarning`, in a stored table too.

    Attributes:
        cells: All cells, by their place.
        oracle: The unadjusted loss of the oracle in every column.
        sequences: How many sequences every loss was measured on.
        seed: Seed of the sequences.
    """

    cells: dict[CellKey, Cell]
    oracle: dict[str, float]
    sequences: int
    seed: int

    def __post_init__(self) -> None:
        for cell in self.cells.values():
            warn_below_floor(str(cell.key), cell.loss, cell.error, cell.floor, cell.floor_error, SIGNAL)

    def __getitem__(self, key: tuple[str, int | None, str]) -> Cell:
        return self.cells[CellKey(*key)]

    def only(self, noise: str) -> TableOne:
        """Return one column.

        Args:
            noise: The noise of the column.

        Returns:
            A table with this column alone.

        Raises:
            InputError: There is no such column.
        """
        name = column(noise, self.oracle)
        cells = {key: cell for key, cell in self.cells.items() if key.noise == name}
        return TableOne(cells, {name: self.oracle[name]}, self.sequences, self.seed)

    @property
    def faulty(self) -> list[Cell]:
        """The cells that fall short."""
        return [cell for cell in self.cells.values() if cell.faults]

    def as_dict(self) -> dict[str, Any]:
        """Return the table as values that JSON can hold."""
        cells = [
            {**asdict(cell), "ratio": jsonable(cell.ratio), "over_paper": jsonable(cell.over_paper)}
            for cell in self.cells.values()
        ]
        return {"sequences": self.sequences, "seed": self.seed, "oracle": self.oracle, "cells": cells}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> TableOne:
        """Make a table of what `as_dict` returned.

        Args:
            record: What `as_dict` returned.

        Returns:
            The table.
        """
        cells = {}
        for values in record["cells"]:
            kept = {name: values[name] for name in Cell.__dataclass_fields__}
            cell = Cell(**{**kept, "seeds": tuple(kept["seeds"]), "faults": tuple(kept["faults"])})
            cells[cell.key] = cell
        return cls(cells, dict(record["oracle"]), record["sequences"], record["seed"])


def baselines(problem: Problem, tuned: TunedRR | None = None) -> dict[str, Predictor]:
    """Return the baselines of the paper's table for a problem.

    Args:
        problem: The problem.
        tuned: TunedRR, which takes seconds to tune; None to tune it.

    Returns:
        Predictors by name.
    """
    return {"ConstRR": ConstRR.tune(problem), "AdaRR": AdaRR(), "TunedRR": tuned or TunedRR.tune(problem)}


def measure(
    zoo: Zoo,
    *,
    columns: tuple[str, ...] = COLUMNS,
    sequences: int = 100_000,
    seed: int = 1,
    tuned: Mapping[str, TunedRR] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TableOne:
    """Evaluate all models and baselines, column by column.

    Seeds are chosen by what training reported, on the sequences of seed 0: with another seed no number here is the best
    of several measurements.

    Args:
        zoo: The models.
        columns: Which columns, by their noise.
        sequences: How many sequences.
        seed: Seed of the sequences.
        tuned: TunedRR by column; None to tune it.
        progress: Is called with the number of columns done and of all.

    Returns:
        The table.
    """
    cells: dict[CellKey, Cell] = {}
    oracle = {}
    for done, noise in enumerate(columns):
        progress(done, len(columns))
        own, oracle[noise] = _column(zoo, noise, (tuned or {}).get(noise), sequences, seed)
        cells |= own
    progress(len(columns), len(columns))
    ordered = {key: cells[key] for key in keys() if key in cells}
    return TableOne(ordered, oracle, sequences, seed)


def _column(
    zoo: Zoo, noise: str, tuned: TunedRR | None, sequences: int, seed: int
) -> tuple[dict[CellKey, Cell], float]:

    problem = problem_of(noise)
    rows: dict[str, Predictor] = {row.name: zoo.model(row.method, int(row.layers or 0), noise) for row in MODEL_ROWS}
    rows |= {**baselines(problem, tuned), FLOOR: BayesRR(problem.noise), ORACLE: OracleRR()}
    rows |= {name: load(name) for key, name in _variants().items() if key.noise == noise}
    losses = compare(problem, rows, sequences=sequences, seed=seed, with_floor=False, with_query_errors=True)
    assert losses.query_error is not None
    paper_errors = dict(zip(losses, losses.query_error * np.sqrt(sequences / SEQUENCES), strict=True))
    cells = {}
    for key in (CellKey(*row, noise) for row in ROWS):
        own, paper = losses[key.row], printed()[key]
        runs = zoo.records[key.method, key.layers, noise] if key.layers else {}
        cell = Cell(
            *key,
            loss=own.loss,
            error=own.error,
            floor=losses[FLOOR].loss,
            floor_error=losses[FLOOR].error,
            unadjusted=own.unadjusted,
            largest=own.largest,
            exploded=own.exploded,
            paper=paper.value,
            rounding=paper.rounding,
            paper_error=float(paper_errors[key.row]),
            seeds=tuple(runs[number].loss for number in sorted(runs)),
            faults=(),
        )
        cells[key] = replace(cell, faults=tuple(_faults(cell, losses, paper_errors)))
    return cells, losses[ORACLE].unadjusted


def _variants() -> dict[CellKey, str]:
    """The names of shipped models that were trained with less caution, by cell."""
    names = [name for name in further_models() if name.startswith(f"{PREFIX}caution=")]
    return {CellKey(*place_of(name.partition("/")[2])[:3]): name for name in names}


def _faults(cell: Cell, losses: Losses, paper_errors: Mapping[str, float]) -> list[str]:
    """The conditions that the cell should satisfy and does not, in words."""
    faults = []
    if not cell.loss <= cell.limit + NOTHING:
        reason = _unreachable(cell) or _unsafe(cell, losses, paper_errors)
        faults.append(f"above the paper's number: {cell.loss:.4g}, allowed {cell.limit:.4g}{reason}")
    gap, error = losses.difference(cell.key.row, FLOOR)
    if gap < -4 * error - NOTHING:
        faults.append(f"below the floor: {cell.loss:.4g}, floor {cell.floor:.4g}")
    for other in _simpler(cell.key):
        gap, error = losses.difference(cell.key.row, other.row)
        if gap > 4 * error + SAME * cell.loss + NOTHING:
            faults.append(f"worse than {other.row}: {cell.loss:.4g} against {losses[other.row].loss:.4g}")
    if cell.exploded:
        faults.append(f"{cell.exploded} of {losses.sequences:,} sequences explode")
    return faults


def _unreachable(cell: Cell) -> str:
    """In words, where what the paper's number allows is less than a GD++ model can have in expectation."""
    if cell.method != "gdpp" or cell.layers is None:
        return ""
    problem = problem_of(cell.noise)
    if cell.limit < (bound := const_loss(problem)):
        return f"; the expected loss of every GD++ model is at least that of ConstRR, {bound:.4g}"
    shipped = load(f"zoo:gdpp/{cell.layers}/{cell.noise}")
    least = min(least_loss(problem, cell.layers), exact_loss(problem, shipped))
    return f"; the lowest expected loss found for GD++ {cell.layers} is {least:.3g}" if cell.limit < least else ""


def _unsafe(cell: Cell, losses: Losses, paper_errors: Mapping[str, float]) -> str:
    """In words, which shipped model has the paper's number, and how much more often it explodes."""
    name = _variants().get(cell.key)
    if name is None:
        return ""
    limit, rare = replace(cell, paper_error=paper_errors[name]).limit, explosions()
    often = [f"{rare[one].probability:.0e}" for one in (name, f"{PREFIX}{'/'.join(map(str, cell.key))}")]
    return (
        f"; {name} has {losses[name].loss:.4g}, allowed {limit:.4g}, and explodes with a probability of {often[0]} "
        f"instead of {often[1]}"
    )


def _simpler(key: CellKey) -> list[CellKey]:
    """The cells that this one should be at least as good as: one layer less, and the family that its own contains."""
    if key.layers is None:
        return []
    others = [CellKey(key.method, key.layers - 1, key.noise)] if key.layers > 1 else []
    place = FAMILIES.index(key.method)
    return others + ([CellKey(FAMILIES[place - 1], key.layers, key.noise)] if place else [])
