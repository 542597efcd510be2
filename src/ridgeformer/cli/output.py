"""The one way in which commands answer: text for people, JSON and CSV for programs, and a picture."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.options import FILE, Command, one_line
from ridgeformer.errors import refuse
from ridgeformer.evaluation.table import aligned
from ridgeformer.files import check_writable, jsonable, write_whole
from ridgeformer.plotting.style import MOVING, STILL, check_plot

if TYPE_CHECKING:
    from rich.console import Console


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True)


@contextlib.contextmanager
def progress(label: str = "", every: float = 10.0, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """A progress bar on stderr; where that is no terminal, a line now and then.

    Args:
        label: The text beside the bar.
        every: Seconds between two lines.
        quiet: Whether to show nothing.

    Yields:
        A function of the steps done, the steps in all, and a text instead of the label.
    """
    from rich.progress import Progress

    console = _stderr()
    began = last = time.monotonic()
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        row = bar.add_task(label, total=None)

        def show(done: float, total: float, text: str = label) -> None:
            nonlocal last
            bar.update(row, completed=done, total=total, description=text)
            now = time.monotonic()
            if not (quiet or console.is_terminal) and now - last >= every:
                last = now
                click.echo(f"{now - began:.0f} s, {100 * done / max(total, 1):.0f} %: {text}", err=True)

        yield show


@contextlib.contextmanager
def parts_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Progress of a measurement in several parts, which are announced one by one."""
    seen: set[str] = set()
    with progress() as step:

        def show(part: str, done: int, total: int) -> None:
            text = f"measuring {part.replace('_', ' ')}"
            if part not in seen and not _stderr().is_terminal:
                warn(f"{text} ...")
            seen.add(part)
            step(done, total, text)

        yield show


@contextlib.contextmanager
def resumable(out: Path | None) -> Iterator[None]:
    """On an interruption, say what is stored and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        again = "nothing was stored. Add --out runs/ to be able to resume."
        if out is not None:
            again = f"the work so far is stored in {out}. Give the same command again to resume."
        warn(f"ridgeformer: interrupted; {again}")
        sys.exit(130)


@dataclass(frozen=True)
class Answer:
    """The answer of a command.

    Attributes:
        text: The text for a terminal, or an object that `rich` prints.
        record: The values for --json.
        rows: The rows for --csv, which have the same keys; empty where there is no table.
        draw: Draws the picture of --plot to a file; None where there is none.
        code: The exit code.
    """

    text: Any
    record: Any
    rows: Sequence[Mapping[str, Any]] = ()
    draw: Callable[[Path], object] | None = None
    code: int = 0


def table(rows: Sequence[Mapping[str, Any]], record: Any = None, head: str = "") -> Answer:
    """Answer with one table, which is printed and written as CSV.

    Args:
        rows: The rows; all of them have the same keys.
        record: The values for --json; None for the rows.
        head: Lines above the printed table.

    Returns:
        The answer.
    """
    return Answer(f"{head}{aligned(rows)}", list(rows) if record is None else record, rows)


def answers(plot: str = "", table: bool = True, moving: bool = False) -> Callable[[Callable[..., Answer]], Command]:
    """Give a command the options --json and --csv, and --plot if it draws; it returns an `Answer`.

    Args:
        plot: What the picture shows, for the help text; empty where the command draws none.
        table: Whether the answer has a table, so that there is --csv.
        moving: Whether the picture may be an animation.

    Returns:
        The decorator.
    """

    def decorate(command: Callable[..., Answer]) -> Command:
        @functools.wraps(command)
        def run(*, as_json: bool, csv_file: Path | None = None, **options: Any) -> None:
            file: Path | None = options.pop("plot") if plot else None
            answer = command(**options)
            if csv_file is not None:
                _write_csv(csv_file, answer.rows)
            if file is not None:
                if answer.draw is None:
                    refuse("--plot needs an answer with one picture", "another one", "Ask for one section.")
                answer.draw(file)
                warn(f"Drawn to {file}.")
            if as_json:
                click.echo(json.dumps(jsonable(answer.record), indent=2))
            elif csv_file is None or str(csv_file) != "-":
                say(answer.text)
            if answer.code:
                sys.exit(answer.code)

        run = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")(run)
        if table:
            words = "Also write the table to this file as CSV; - prints it."
            run = click.option("--csv", "csv_file", type=FILE, callback=_checked_csv, help=words)(run)
        if plot:
            endings = ".png, .pdf, .svg, .gif or .html" if moving else ".png, .pdf or .svg"
            words = f"Draw {plot} to this file: {endings}. Needs matplotlib."
            check = functools.partial(_checked_plot, moving=moving)
            run = click.option("--plot", type=FILE, callback=check, help=words)(run)
        return run

    return decorate


def say(text: Any) -> None:
    """Print an answer on stdout.

    Args:
        text: The text, or an object that `rich` prints.
    """
    if isinstance(text, str):
        click.echo(_clean(text))
        return
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 100).print(text, highlight=False)


def warn(text: str) -> None:
    """Print a line on stderr, because stdout has the answer, perhaps as JSON."""
    click.echo(_clean(text), err=True)


def _clean(text: str) -> str:
    """The text without control characters, which a stranger's file may contain."""
    return "\n".join(map(one_line, text.split("\n")))


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        refuse("--csv needs one table", "an answer with several tables or none", "Ask for one table, or use --json.")
    content = io.StringIO()
    writer = csv.DictWriter(content, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in jsonable(list(rows)):
        writer.writerow({name: json.dumps(v) if isinstance(v, list | dict) else v for name, v in row.items()})
    if str(path) == "-":
        click.echo(_clean(content.getvalue()), nl=False)
        return
    write_whole(path, content.getvalue().encode())


def _checked_csv(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and str(path) != "-":
        check_writable(path.parent, "a table")
    return path


def _checked_plot(context: click.Context, option: click.Parameter, plot: Path | None, moving: bool) -> Path | None:
    if plot is not None:
        check_plot(plot, (*STILL, *MOVING) if moving else STILL)
    return plot
