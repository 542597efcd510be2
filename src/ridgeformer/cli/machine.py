"""`ridgeformer info`: this installation and this machine."""

from __future__ import annotations

import json
from typing import Any

import click

from ridgeformer import __version__
from ridgeformer.cli.group import cli
from ridgeformer.cli.options import AS_JSON

__all__ = ["facts"]


@cli.command(epilog="Examples:\n\n\b\n  ridgeformer info\n  RIDGEFORMER_THREADS=1 ridgeformer info --json")
@AS_JSON
def info(as_json: bool) -> None:
    """Print the version, the compute engine (CPU instruction set) in use and the number of threads."""
    found = facts()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        click.echo(f"{name.replace('_', ' '):<18} {text}")


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
