"""`ridgeformer table1`, `figures` and `report`: reproduce the table, the figures and the claims of the paper."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ridgeformer.cli.group import cli
from ridgeformer.cli.options import AS_JSON, COUNT, PLACE, SEED, THREADS
from ridgeformer.cli.sweep import run_sweep
from ridgeformer.errors import InputError, TrainingError


def _evidence_options(command: Callable[..., None]) -> Callable[..., None]:
    """Which models to measure, how well, and where to keep what was measured."""
    for option in reversed(
        [
            click.option(
                "--runs", type=PLACE, help="Folder of runs whose models are used instead of those of the zoo."
            ),
            click.option(
                "--sequences",
                type=COUNT,
                default=100_000,
                show_default=True,
                help="Number of fresh sequences to evaluate on.",
            ),
            click.option("--seed", type=SEED, default=1, show_default=True, help="Seed of these sequences."),
            click.option(
                "--out",
                type=PLACE,
                default=Path("reproduction"),
                show_default=True,
                help="Folder for measurements, figures and pages. Stored measurements are reused if they fit.",
            ),
            THREADS,
        ]
    ):
        command = option(command)
    return command


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer table1\n  ridgeformer table1 --stored --markdown > table1.md\n"
    "  ridgeformer table1 --column 'uniform(0,5)'\n  ridgeformer table1 --retrain --runs runs/"
)
@_evidence_options
@click.option(
    "--column", metavar="NOISE", help="Measure only this column and print all its numbers, one line per cell."
)
@click.option("--stored", is_flag=True, help="Reuse stored measurements of the same models and settings.")
@click.option(
    "--retrain",
    is_flag=True,
    help="First train all 210 models with five seeds each, into --runs. Takes about an hour on two cores.",
)
@click.option(
    "--workers", type=click.IntRange(1, 1024), help="With --retrain: number of processes [default: one per core]."
)
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="With --retrain: address of a Dask scheduler. Needs pip install 'ridgeformer[dask]'.",
)
@click.option("--csv", "form", flag_value="csv", help="Print CSV, one line per cell.")
@click.option("--latex", "form", flag_value="latex", help="Print a LaTeX tabular.")
@click.option("--markdown", "form", flag_value="markdown", help="Print a Markdown table.")
@AS_JSON
def table1(
    runs: Path | None,
    sequences: int,
    seed: int,
    out: Path,
    column: str | None,
    stored: bool,
    retrain: bool,
    workers: int | None,
    dask: str | None,
    form: str | None,
    as_json: bool,
) -> None:
    """Reproduce Table 1 of the paper and compare every cell with the printed number.

    Evaluates the models of the zoo, or those of --runs. Cells that are worse than the paper's number, below the floor,
    or worse than a model that they contain are listed below the table, in red.
    """
    from rich.console import Console

    from ridgeformer.papers.vladymyrov2024.render import FORMATS, column_table, terminal

    if retrain:
        if runs is None:
            raise InputError("--retrain needs a folder for the runs; --runs is missing. Add --runs runs/.")
        _retrain(runs, workers, dask)
    elif workers or dask is not None:
        raise InputError("--workers and --dask are for --retrain, which is missing. Add --retrain, or leave them out.")
    with _evidence(runs, sequences, seed, out, again=() if stored else ("tuned", "table")) as evidence:
        table = evidence.table if stored or column is None else evidence.column(column)
    if column is not None:
        table = table.only(column)
    if as_json:
        click.echo(json.dumps(table.as_dict(), indent=2))
    elif form:
        click.echo(FORMATS[form](table), nl=False)
    else:
        console = Console(width=None if sys.stdout.isatty() else 100)
        console.print(terminal(table) if column is None else column_table(table))


@cli.command(epilog="Examples:\n\n\b\n  ridgeformer figures\n  ridgeformer figures --only 2 --only 7 --out pictures/")
@_evidence_options
@click.option("--only", type=int, multiple=True, metavar="N", help="Draw only this figure. May be repeated.")
@AS_JSON
def figures(runs: Path | None, sequences: int, seed: int, out: Path, only: tuple[int, ...], as_json: bool) -> None:
    """Draw the figures of the paper as PDF, SVG and PNG.

    Figures 1 to 7 are those of the paper. Figure 8, the ratio of every loss to the floor, is an addition.
    """
    from ridgeformer.papers.vladymyrov2024.figures import FIGURES, chosen, draw

    numbers = chosen(only)
    with _evidence(runs, sequences, seed, out) as evidence:
        evidence.measure(tuple(dict.fromkeys(part for number in numbers for part in FIGURES[number].parts)))
        written = draw(evidence, out, numbers)
    if as_json:
        click.echo(json.dumps([str(path) for path in written], indent=2))
        return
    for path in written:
        click.echo(path)


@cli.command(epilog="Examples:\n\n\b\n  ridgeformer report\n  ridgeformer report --runs runs/ --out reproduction/")
@_evidence_options
@AS_JSON
def report(runs: Path | None, sequences: int, seed: int, out: Path, as_json: bool) -> None:
    """Write an HTML page with the table, the figures and a check of the paper's claims.

    The page is one file without external resources. Also prints a verdict for every empirical claim of the paper.
    """
    from ridgeformer.cli.machine import facts
    from ridgeformer.papers.vladymyrov2024.report import write_report

    with _evidence(runs, sequences, seed, out) as evidence:
        path, claims = write_report(evidence, out, facts())
    if as_json:
        click.echo(json.dumps({"page": str(path), "claims": [claim.as_dict() for claim in claims]}, indent=2))
        return
    for claim in claims:
        click.echo(f"{claim.verdict:16}  {claim.sentence}")
    click.echo(f"\nOpen {path} in a browser.")


def _retrain(runs: Path, workers: int | None, dask: str | None) -> None:
    from ridgeformer.papers.vladymyrov2024.paper import grid

    found = run_sweep(list(grid().specs()), runs, workers, dask, quiet=False)
    if found.failures:
        for failure in found.failures:
            click.echo(f"failed: {failure.run}: {failure.reason}", err=True)
        raise TrainingError(
            f"all runs must be finished; {len(found.failures)} failed. Give the same command again to retry these."
        )


@contextlib.contextmanager
def _evidence(runs: Path | None, sequences: int, seed: int, out: Path, again: tuple[str, ...] = ()) -> Iterator[Any]:
    """What was measured, or will be, with a progress display."""
    from rich.console import Console
    from rich.progress import Progress

    from ridgeformer.papers.vladymyrov2024.evidence import Evidence
    from ridgeformer.papers.vladymyrov2024.paper import models_of
    from ridgeformer.validation import integer

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        rows: dict[str, Any] = {}

        def show(part: str, done: int, total: int) -> None:
            if part not in rows:
                rows[part] = bar.add_task(f"measuring {part.replace('_', ' ')}", total=total)
                if not console.is_terminal:
                    click.echo(f"measuring {part.replace('_', ' ')} ...", err=True)
            bar.update(rows[part], completed=done, total=total)

        sequences, seed = integer("sequences", sequences, 20), integer("seed", seed, 0)
        yield Evidence(models_of(runs), out / "measured", sequences, seed, show, frozenset(again))
