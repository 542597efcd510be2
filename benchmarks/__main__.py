"""`python -m benchmarks`, from the repository's root: measure, print a table, and store the numbers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import LONG, Measurement, run
from benchmarks.report import table
from ridgeformer.cli.options import FILE
from ridgeformer.errors import RidgeformerError, StorageError
from ridgeformer.files import write_whole
from ridgeformer.papers.running import facts


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  python -m benchmarks --quick\n  python -m benchmarks --only import --only scaling\n"
    "  python -m benchmarks --json --out speed.json",
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
@click.option("--quick", is_flag=True, help="Use fewer repetitions, and do not compare with PyTorch and JAX.")
@click.option(
    "--only",
    multiple=True,
    metavar="GROUP",
    help=f"Measure this group only. May be repeated. Only by name, as they take long: {', '.join(LONG)}.",
)
@click.option("--out", type=FILE, help="Also write the measurements to this file, as JSON.")
@click.option("--seeds", type=click.IntRange(1, 100), default=1, show_default=True, help="Number of training seeds.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Number of threads [default: one per core].")
@click.option("--check", is_flag=True, help="Also report measurements that miss what a release requires; exit code 1.")
def main(
    as_json: bool,
    quick: bool,
    only: tuple[str, ...],
    out: Path | None,
    seeds: int,
    threads: int | None,
    check: bool,
) -> None:
    """Measure how fast ridgeformer is on this machine, and what training reaches in which time.

    Speeds are ratios of times taken side by side in one run, because machines are noisy. A complete run also compares
    with PyTorch and JAX if they are installed: `make bench` installs both.
    """
    if out is not None and not os.access(out.parent, os.W_OK):
        raise StorageError(f"--out must be in a writable folder; {out.parent} is not. Choose another file.")
    with Console(stderr=True).status("measuring") as status:
        results = run(
            quick=quick,
            only=only,
            seeds=seeds,
            threads=threads,
            progress=lambda text: status.update(f"measuring {text}"),
        )
    record: dict[str, Any] = {"machine": facts(), "measurements": [result.as_dict() for result in results]}
    if out is not None:
        write_whole(out, (json.dumps(record, indent=2) + "\n").encode())
    if as_json:
        click.echo(json.dumps(record, indent=2))
    else:
        _print(results, quick, only)
    missed = [result for result in results if not result.passed] if check else []
    for one in missed:
        least = "at least" if one.higher else "at most"
        click.echo(f"missed: {one.name}: {one.value:.3g} {one.unit}, {least} {one.required:g} is required", err=True)
    if missed:
        sys.exit(1)


def _print(results: list[Measurement], quick: bool, only: tuple[str, ...]) -> None:
    console = Console()
    console.print(table(results, console.width))
    compared = " ".join(result.name for result in results)
    if "frameworks" in (only or () if quick else only or ("frameworks",)):
        for name in ("PyTorch", "JAX"):
            if name not in compared:
                click.echo(f"There is no comparison with {name}, which is not installed: `make bench` installs it.")


if __name__ == "__main__":
    try:
        main()
    except RidgeformerError as error:
        sys.exit(f"benchmarks: error: {error}")
