"""The printed paper: its ten problems, its methods and the 240 numbers of its Table 1."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ridgeformer.errors import InputError, refuse, shown
from ridgeformer.noise import parse
from ridgeformer.problems import Problem
from ridgeformer.sweeps import Grid
from ridgeformer.training.store.files import has_record
from ridgeformer.zoo import Zoo, gather, shipped

SIGMA_MAX = tuple(range(8))
UNIFORM = tuple(f"uniform(0,{most})" for most in SIGMA_MAX)
CATEGORICAL = ("categorical(1,3)", "categorical(1,3,5)")
COLUMNS = (*UNIFORM, *CATEGORICAL)
FAMILIES = ("gdpp", "diag", "full")
DEPTHS = tuple(range(1, 8))
SEEDS = tuple(range(5))
BASELINES = ("ConstRR", "AdaRR", "TunedRR")
LABELS = {"gdpp": "GD++", "diag": "Diag", "full": "Full"}
SEQUENCES = 100_000  # that the paper evaluates on


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        method: A family or a baseline.
        layers: The depth; None for a baseline.
    """

    method: str
    layers: int | None

    @property
    def name(self) -> str:
        """The name of the row: `Full 7`, or `TunedRR`."""
        return LABELS.get(self.method, self.method) + (f" {self.layers}" if self.layers else "")

    @property
    def begins_group(self) -> bool:
        """Whether it is the first row of a family or of the baselines, above which tables draw a line."""
        return self.layers == DEPTHS[0] or self.method == BASELINES[0]


MODEL_ROWS = tuple(Row(family, layers) for family in FAMILIES for layers in DEPTHS)
ROWS = (*MODEL_ROWS, *(Row(baseline, None) for baseline in BASELINES))


class CellKey(NamedTuple):
    """A place in the table: a row and the noise of a column.

    Attributes:
        method: A family or a baseline.
        layers: The depth; None for a baseline.
        noise: The noise distribution as text, one of `COLUMNS`.
    """

    method: str
    layers: int | None
    noise: str

    @property
    def row(self) -> str:
        """The name of the row: `Full 7`, or `TunedRR`."""
        return Row(self.method, self.layers).name

    def __str__(self) -> str:
        return f"{self.row}, {self.noise}"


@dataclass(frozen=True)
class Printed:
    """A number of the paper's table.

    Attributes:
        value: The number as printed.
        rounding: Half a unit of its last digit.
    """

    value: float
    rounding: float


def keys() -> Iterator[CellKey]:
    """Yield all places of the table, row by row."""
    for row in ROWS:
        yield from (CellKey(*row, noise) for noise in COLUMNS)


@cache
def printed() -> dict[CellKey, Printed]:
    """Return the paper's Table 1, by cell."""
    names = {label: family for family, label in LABELS.items()}
    numbers = {}
    with Path(__file__).with_name("table1.csv").open() as file:
        for row in csv.DictReader(file):
            layers = int(row["layers"]) if row["layers"] else None
            key = CellKey(names.get(row["method"], row["method"]), layers, row["noise"])
            numbers[key] = Printed(float(row["adjusted_loss"]), _rounding(row["adjusted_loss"]))
    return {key: numbers[key] for key in keys()}


def _rounding(text: str) -> float:
    """Half a unit of the last printed digit; a plain 0 is meant exactly.

    >>> _rounding("0.222"), _rounding("9.91e-05"), _rounding("0")
    (0.0005, 5e-08, 0.0)
    """
    if text == "0":
        return 0.0
    digits, _, exponent = text.partition("e")
    decimals = len(digits.partition(".")[2])
    return float(f"5e{int(exponent or 0) - decimals - 1}")


def grid(seeds: tuple[int, ...] = SEEDS) -> Grid:
    """Return every run behind the table: ten problems, three families, seven depths, and seeds.

    Args:
        seeds: The seeds; five by default.

    Returns:
        The grid.
    """
    return Grid(noise=COLUMNS, families=FAMILIES, layers=DEPTHS, seeds=seeds)


def models_of(runs: Path | None) -> Zoo:
    """Return the models of the table.

    Args:
        runs: A folder of runs, which must hold all of the table's; None for the shipped models.

    Returns:
        The models.

    Raises:
        InputError: A run is missing.
    """
    if runs is None:
        return shipped()
    folders = [runs / spec.name for spec in grid().specs()]
    missing = [folder for folder in folders if not has_record(folder)]
    if missing:
        raise InputError(
            f"all runs of the table must be finished; {runs} lacks {len(missing)} of {len(folders)}, for example "
            f"{missing[0].name}. Train them with `ridgeformer papers table1 --retrain --runs {runs}`."
        )
    return gather(folders)


def column(noise: str, known: Iterable[str] = COLUMNS) -> str:
    """Return the name of a column, however it is spelled.

    Args:
        noise: The noise distribution as text.
        known: Names of columns.

    Returns:
        The name.

    Raises:
        InputError: There is no such column.
    """
    names, name = list(known), str(parse(noise))
    if name not in names:
        refuse(f"the column must be one of {', '.join(names)}", shown(noise), "Choose one of these.")
    return name


def problem_of(noise: str) -> Problem:
    """Return the problem of a column: d = 10 and n = 20, as everywhere in the paper's experiments.

    Args:
        noise: The noise distribution as text.

    Returns:
        The problem.
    """
    return Problem(10, 20, noise)
