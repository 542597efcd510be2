"""`ridgeformer info` and `ridgeformer bench`: this machine and its speed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from ridgeformer import __version__
from ridgeformer.cli.group import cli
from ridgeformer.cli.options import AS_JSON, FILE
from ridgeformer.errors import InputError
from ridgeformer.files import write_whole

__all__ = ["facts"]


@cli.command(epilog="Example:\n\n\b\n  ridgeformer info --json")
@AS_JSON
def info(as_json: bool) -> None:
    """Show the version, the CPU features in use and the number of threads."""
    found = facts()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(f"{name.replace('_', ' '):<18} {text}")


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer bench --quick\n  ridgeformer bench --only import --only scaling\n"
    "  ridgeformer bench --json --out speed.json"
)
@AS_JSON
@click.option("--quick", is_flag=True, help="Fewer repetitions and no comparison with PyTorch and JAX.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this group of figures; may be repeated.")
@click.option("--out", type=FILE, help="Also write the JSON to this file.")
@click.option("--seeds", type=click.IntRange(1, 100), default=1, show_default=True, help="Seeds to train with.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads to use (default: all cores).")
def bench(as_json: bool, quick: bool, only: tuple[str, ...], out: Path | None, seeds: int, threads: int | None) -> None:
    """Measure this machine's speed as ratios taken in one run, and what training reaches in which time.

    The whole run compares with PyTorch and JAX if they are installed: pip install 'ridgeformer[bench]'.
    """
    from rich.console import Console

    from ridgeformer.benchmarks import run
    from ridgeformer.benchmarks.report import table

    if out is not None and not os.access(out.parent, os.W_OK):
        raise InputError(f"--out must be in a writable folder; {out.parent} is not. Choose another file.")
    error_console = Console(stderr=True)
    with error_console.status("measuring ...") as status:
        results = run(
            quick=quick,
            only=only,
            seeds=seeds,
            threads=threads,
            progress=lambda text: status.update(f"measuring {text} ..."),
        )
    record: dict[str, Any] = {"machine": facts(), "figures": [figure.as_dict() for figure in results]}
    if out is not None:
        write_whole(out, (json.dumps(record, indent=2) + "\n").encode())
    if as_json:
        click.echo(json.dumps(record, indent=2))
        return
    console = Console()
    console.print(table(results, console.width))
    compared = " ".join(figure.name for figure in results)
    if "frameworks" in (only or () if quick else only or ("frameworks",)):
        for name in ("PyTorch", "JAX"):
            if name not in compared:
                click.echo(
                    f"{name} is not installed, so nothing is compared with it: pip install 'ridgeformer[bench]'."
                )


def facts() -> dict[str, Any]:
    """This installation and this machine."""
    import platform

    import numpy

    from ridgeformer import engine

    return {
        "version": __version__,
        "engine": engine.current().name,
        "engines": list(engine.available()),
        "threads": engine.default_threads(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
    }
