"""`ridgeformer verify`: check the theorems and lemmas of the paper."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from ridgeformer.cli.group import cli
from ridgeformer.cli.options import AS_JSON, THREADS


@cli.command(
    epilog="Statements: linear_model, quadratic, momentum, heads, second_order, rescaling, step_size, fixed_noise.\n\n"
    "Examples:\n\n\b\n  ridgeformer verify\n  ridgeformer verify --only momentum --only step_size\n"
    "  ridgeformer verify --json"
)
@click.option("--only", multiple=True, metavar="NAME", help="Check only this statement. May be repeated.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random numbers.")
@THREADS
@AS_JSON
def verify(only: tuple[str, ...], seed: int, as_json: bool) -> None:
    """Check the theorems and lemmas of the paper numerically.

    Prints for every claim the measured error, the largest error that is allowed, and whether the claim holds. Where
    the paper prints a different formula, the last column has the error of that formula. The exit code is 1 if a claim
    fails.
    """
    from rich.console import Console

    from ridgeformer.theory import STATEMENTS
    from ridgeformer.theory import verify as run

    begin = time.perf_counter()
    with Console(stderr=True).status("checking") as status:

        def show(name: str, done: int, total: int) -> None:
            status.update(f"{done + 1} of {total}: {STATEMENTS[name]} ...")

        found = run(only, seed=seed, progress=show)
    seconds = time.perf_counter() - begin
    failed = sum(not check.passed for check in found)
    if as_json:
        record = {"passed": not failed, "seconds": seconds, "checks": [check.as_dict() for check in found]}
        click.echo(json.dumps(record, indent=2))
    else:
        console = Console()
        console.print(_table(found, STATEMENTS))
        verdict = f"[bold red]{failed} of {len(found)} claims fail[/]" if failed else f"All {len(found)} claims hold"
        console.print(f"{verdict} ({seconds:.1f} s).", highlight=False)
    sys.exit(1 if failed else 0)


def _table(found: list[Any], titles: dict[str, str]) -> Any:
    """One row per claim, under the title of its statement."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.padding import Padding
    from rich.table import Table

    table = Table(title="Checks of the theorems and lemmas of the paper", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("claim")
    for heading in ("error", "allowed", "verdict", "as printed"):
        table.add_column(heading, justify="left" if heading == "verdict" else "right", no_wrap=True)
    last = ""
    for check in found:
        if check.statement != last:
            if last:
                table.add_section()
            table.add_row(f"[bold]{escape(titles[check.statement])}[/]")
            last = check.statement
        verdict = "[green]holds[/]" if check.passed else "[bold red]FAILS[/]"
        printed = "" if check.as_printed is None else f"{check.as_printed:.2g}"
        claim = Padding(escape(check.what), (0, 0, 0, 2))
        table.add_row(claim, f"{check.error:.2g}", f"{check.bound:.2g}", verdict, printed)
    return table
