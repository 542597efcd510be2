"""Table 1, measured afresh: every cell beside the paper's number, the floor, and what the table must satisfy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ridgeformer.evaluation import Losses, compare
from ridgeformer.exact import const_loss, exact_loss, least_loss
from ridgeformer.files import jsonable
from ridgeformer.loading import load
from ridgeformer.losses import rounding, warn_below_floor
from ridgeformer.papers.results import Results
from ridgeformer.papers.vladymyrov2024 import paper
from ridgeformer.papers.vladymyrov2024.paper import Place, name_of, printed, problem_of
from ridgeformer.predictors.base import Predictor
from ridgeformer.predictors.bayes import BayesRR
from ridgeformer.predictors.ridge import AdaRR, ConstRR, OracleRR, TunedRR
from ridgeformer.problems import Problem
from ridgeformer.zoo import PREFIX, Zoo, explosions, further_models, place_of

FLOOR = "Bayes floor"
ORACLE = "OracleRR"
SIGNAL = 10.0  # of all its problems: features and tasks are N(0, I), and d is 10
NOTHING = rounding(SIGNAL)
SAME = 1e-3  # relative differences below this are none: where a model is grown from another and gains nothing


class TableOne:
    """Table 1 as it was measured.

    Args:
        stored: The table as JSON holds it: see `as_dict`.

    Attributes:
        cells: All cells, by their place, with these values: `method`, `layers` and `noise`, the place; `row`, the name
            of the row; `loss`, adjusted, on fresh sequences that took no part in training or in the choice of the seed,
            and its standard `error`; `floor` and `floor_error` of this problem, on the same sequences; `unadjusted`,
            the loss against the true w; `largest`, the largest loss of a sequence; `exploded`, how many sequences did;
            `paper`, its number as printed, and `rounding`, half a unit of its last digit; `paper_error`, the standard
            error of its estimator at its 100,000 sequences, estimated with our model; `limit`, the largest loss that
            the paper allows; `seeds`, the losses that training reported, by seed; `faults`, what the cell should
            satisfy and does not, in words; `ratio`, loss over floor, None where that is 0; and `over_paper`, our loss
            over the paper's, None where that is 0.
        oracle: The unadjusted loss of the oracle in every column.
        sequences: How many sequences every loss was measured on.

    A cell more than 4 standard errors below its floor raises a `BelowFloorWarning`, in a stored table too.
    """

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._stored, self.sequences, self.seed = stored, stored["sequences"], stored["seed"]
        self.oracle: dict[str, float] = stored["oracle"]
        self.cells: dict[Place, Any] = {
            (cell["method"], cell["layers"], cell["noise"]): Results(cell) for cell in stored["cells"]
        }
        for cell in self.cells.values():
            name = f"{cell.row}, {cell.noise}"
            warn_below_floor(name, cell.loss, cell.error, cell.floor, cell.floor_error, SIGNAL)

    def __getitem__(self, place: Place) -> Any:
        return self.cells[place]

    def only(self, noise: str) -> TableOne:
        """Return one column.

        Args:
            noise: The noise of the column.

        Returns:
            A table with this column alone.

        Raises:
            InputError: There is no such column.
        """
        name = paper.column(noise, self.oracle)
        cells = [cell for cell in self._stored["cells"] if cell["noise"] == name]
        return TableOne({**self._stored, "oracle": {name: self.oracle[name]}, "cells": cells})

    @property
    def models(self) -> list[Any]:
        """The cells of trained models."""
        return [cell for cell in self.cells.values() if cell.layers]

    @property
    def better(self) -> int:
        """How many models have a lower loss than in the paper."""
        return sum(cell.loss < cell.paper - cell.rounding for cell in self.models)

    @property
    def faulty(self) -> list[Any]:
        """The cells that fall short."""
        return [cell for cell in self.cells.values() if len(cell.faults)]

    def best(self, noise: str) -> Any:
        """Return the cell of the best model of a column.

        Args:
            noise: The noise of the column.

        Returns:
            The cell.
        """
        return min((cell for cell in self.models if cell.noise == noise), key=lambda cell: cell.loss)

    def as_dict(self) -> dict[str, Any]:
        """Return the table as values that JSON can hold: sequences, seed, oracle, and cells as a list of dicts."""
        return dict(self._stored)


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
    columns: tuple[str, ...] = paper.COLUMNS,
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
    cells: dict[Place, Any] = {}
    oracle = {}
    for done, noise in enumerate(columns):
        progress(done, len(columns))
        column, oracle[noise] = _column(zoo, noise, (tuned or {}).get(noise), sequences, seed)
        cells |= column
    progress(len(columns), len(columns))
    ordered = [cells[place] for place in printed() if place in cells]
    return TableOne(jsonable({"sequences": sequences, "seed": seed, "oracle": oracle, "cells": ordered}))


def _column(zoo: Zoo, noise: str, tuned: TunedRR | None, sequences: int, seed: int) -> tuple[dict[Place, Any], float]:
    """The cells of a column, and the unadjusted loss of the oracle."""
    problem = problem_of(noise)
    predictors: dict[str, Predictor] = {name_of(*row): zoo.model(*row, noise) for row in paper.MODEL_ROWS}
    predictors |= {**baselines(problem, tuned), FLOOR: BayesRR(problem.noise), ORACLE: OracleRR()}
    predictors |= {name: load(name) for place, name in _variants().items() if place[2] == noise}
    losses = compare(problem, predictors, sequences=sequences, seed=seed, with_floor=False, with_query_errors=True)
    assert losses.query_error is not None
    paper_errors = dict(zip(losses, losses.query_error * np.sqrt(sequences / paper.SEQUENCES), strict=True))
    cells = {}
    for method, layers in paper.ROWS:
        name, (number, rounding) = name_of(method, layers), printed()[method, layers, noise]
        result, floor, paper_error = losses[name], losses[FLOOR], float(paper_errors[name])
        runs = zoo.records[method, layers, noise] if layers else {}
        cell = {
            "method": method,
            "layers": layers,
            "noise": noise,
            "row": name,
            "loss": result.loss,
            "error": result.error,
            "floor": floor.loss,
            "floor_error": floor.error,
            "unadjusted": result.unadjusted,
            "largest": result.largest,
            "exploded": result.exploded,
            "paper": number,
            "rounding": rounding,
            "paper_error": paper_error,
            "limit": _limit(number, rounding, paper_error),
            "seeds": [runs[place].loss for place in sorted(runs)],
            "ratio": result.loss / floor.loss if floor.loss > NOTHING else None,
            "over_paper": result.loss / number if number else None,
        }
        cells[method, layers, noise] = cell | {"faults": _faults(Results(cell), losses, paper_errors)}
    return cells, losses[ORACLE].unadjusted


def _limit(number: float, rounding: float, paper_error: float) -> float:
    """The largest loss that the paper allows: its number, two standard errors of its estimator and its rounding."""
    return number + 2 * paper_error + rounding


def _variants() -> dict[Place, str]:
    """The names of shipped models that were trained with less caution, by cell."""
    names = [name for name in further_models() if name.startswith(f"{PREFIX}caution=")]
    return {place_of(name.partition("/")[2])[:3]: name for name in names}


def _faults(cell: Any, losses: Losses, paper_errors: Mapping[str, float]) -> list[str]:
    """The conditions that the cell should satisfy and does not, in words."""
    faults = []
    if not cell.loss <= cell.limit + NOTHING:
        reason = _unreachable(cell) or _unsafe(cell, losses, paper_errors)
        faults.append(f"above the paper's number: {cell.loss:.4g}, allowed {cell.limit:.4g}{reason}")
    gap, error = losses.difference(cell.row, FLOOR)
    if gap < -4 * error - NOTHING:
        faults.append(f"below the floor: {cell.loss:.4g}, floor {cell.floor:.4g}")
    for simpler in _simpler(cell.method, cell.layers):
        gap, error = losses.difference(cell.row, simpler)
        if gap > 4 * error + SAME * cell.loss + NOTHING:
            faults.append(f"worse than {simpler}: {cell.loss:.4g} against {losses[simpler].loss:.4g}")
    if cell.exploded:
        faults.append(f"{cell.exploded} of {losses.sequences:,} sequences explode")
    return faults


def _unreachable(cell: Any) -> str:
    """In words, where what the paper's number allows is less than a GD++ model can have in expectation."""
    if cell.method != "gdpp":
        return ""
    problem = problem_of(cell.noise)
    if cell.limit < (bound := const_loss(problem)):
        return f"; the expected loss of every GD++ model is at least that of ConstRR, {bound:.4g}"
    shipped = load(f"{PREFIX}gdpp/{cell.layers}/{cell.noise}")
    least = min(least_loss(problem, cell.layers), exact_loss(problem, shipped))
    return f"; the lowest expected loss found for {cell.row} is {least:.3g}" if cell.limit < least else ""


def _unsafe(cell: Any, losses: Losses, paper_errors: Mapping[str, float]) -> str:
    """In words, which shipped model has the paper's number, and how much more often it explodes."""
    place = (cell.method, cell.layers, cell.noise)
    name = _variants().get(place)
    if name is None:
        return ""
    limit, rare = _limit(cell.paper, cell.rounding, paper_errors[name]), explosions()
    often = [f"{rare[model].probability:.0e}" for model in (name, f"{PREFIX}{'/'.join(map(str, place))}")]
    return (
        f"; {name} has {losses[name].loss:.4g}, allowed {limit:.4g}, and explodes with a probability of {often[0]} "
        f"instead of {often[1]}"
    )


def _simpler(method: str, layers: int | None) -> list[str]:
    """The rows that one should be at least as good as: one layer less, and the family that its own contains."""
    if layers is None:
        return []
    place = paper.FAMILIES.index(method)
    shallower = [name_of(method, layers - 1)] if layers > 1 else []
    return shallower + ([name_of(paper.FAMILIES[place - 1], layers)] if place else [])
