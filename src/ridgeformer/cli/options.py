"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

__all__ = ["AS_JSON", "plot_option", "problem_options"]

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def plot_option(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A file to draw to."""
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option("--plot", type=kind, help=f"Draw {what} to this file (needs matplotlib).")


def problem_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options that name a problem, and how to evaluate on it."""
    for option in reversed(
        [
            click.option("--noise", required=True, help="Such as 'uniform(0,5)', 'categorical(1,3)', 'fixed(2)'."),
            click.option("--dim", default=10, show_default=True, help="Dimension d."),
            click.option("--context", default=20, show_default=True, help="Context length n."),
            click.option("--sequences", default=100_000, show_default=True, help="Fresh sequences to evaluate on."),
            click.option("--seed", default=0, show_default=True, help="Seed of all random numbers."),
            AS_JSON,
        ]
    ):
        command = option(command)
    return command
