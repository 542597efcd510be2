"""The printed paper: its ten problems, its methods and the 240 numbers of its Table 1."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from decimal import Decimal
from functools import cache
from pathlib import Path

from ridgeformer.errors import InputError, refuse, shown
from ridgeformer.noise import parse
from ridgeformer.problems import Problem
from ridgeformer.sweeps import Grid
from ridgeformer.training.store import has_record
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


MODEL_ROWS = tuple((family, layers) for family in FAMILIES for layers in DEPTHS)
ROWS: tuple[tuple[str, int | None], ...] = (*MODEL_ROWS, *((baseline, None) for baseline in BASELINES))
Place = tuple[str, int | None, str]  # a cell of the table: a family or a baseline, the depth or None, and the noise


def name_of(method: str, layers: int | None = None) -> str:
    """Return the name of a row of the table: `Full 7`, or `TunedRR`.

    Args:
        method: A family or a baseline.
        layers: The depth; None for a baseline.

    Returns:
        The name.
    """
    return LABELS.get(method, method) + (f" {layers}" if layers else "")


def begins_group(method: str, layers: int | None) -> bool:
    """Say whether a row is the first one of a family or of the baselines, above which tables draw a line.

    Args:
        method: A family or a baseline.
        layers: The depth; None for a baseline.

    Returns:
        Whether it is.
    """
    return layers == DEPTHS[0] or method == BASELINES[0]


@cache
def printed() -> dict[Place, tuple[float, float]]:
    """Return the paper's Table 1, by place: each number, and half a unit of its last digit; a plain 0 is exact."""
    methods = {label: family for family, label in LABELS.items()}
    numbers = {}
    with Path(__file__).with_name("table1.csv").open() as file:
        for row in csv.DictReader(file):
            layers, text = int(row["layers"]) if row["layers"] else None, row["adjusted_loss"]
            last = int(Decimal(text).as_tuple().exponent)
            rounding = 0.0 if text == "0" else float(f"5e{last - 1}")
            numbers[methods.get(row["method"], row["method"]), layers, row["noise"]] = float(text), rounding
    return {(*row, noise): numbers[*row, noise] for row in ROWS for noise in COLUMNS}


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
