"""Table 1 as text: for the terminal, as CSV, Markdown and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from ridgeformer.noise import Categorical, Uniform, parse
from ridgeformer.papers.vladymyrov2024.paper import ROWS, begins_group, name_of
from ridgeformer.papers.vladymyrov2024.table import TableOne

LEGEND = (
    "Each cell has four lines: our adjusted loss; the paper's; ours / the paper's; and, in percent of our loss, ± "
    "its standard error and after + how far the worst of five seeds is above the best. Green: better than the paper's "
    "by more than its standard error. Red: fails a check."
)


def short(value: float) -> str:
    """Write a number with three significant digits in at most seven characters.

    Args:
        value: The number.

    Returns:
        The text; `-` if the number is not finite.

    >>> short(0.04478), short(1.7729), short(5.2473e-16), short(0)
    ('.0448', '1.77', '5.2e-16', '0')
    """
    if not math.isfinite(value):
        return "-"
    if abs(value) < 1e-25:
        return "0"
    if abs(value) < 1e-4:
        return f"{value:.1e}"
    return f"{value:.{max(2, 2 - math.floor(math.log10(abs(value))))}f}".replace("0.", ".", 1 if abs(value) < 1 else 0)


def column_name(noise: str) -> str:
    """Return a short name of a column: `U(0,5)` for `uniform(0,5)`, `{1,3}` for `categorical(1,3)`.

    Args:
        noise: The noise distribution as text.

    Returns:
        The short name; the text itself for other distributions.
    """
    law = parse(noise)
    if isinstance(law, Uniform):
        return f"U({law.low:g},{law.high:g})"
    return f"{{{_levels(law)}}}" if isinstance(law, Categorical) else noise


def column_tex(noise: str) -> str:
    """Return the name of a column for TeX's mathematical mode, with braces escaped.

    Args:
        noise: The noise distribution as text.

    Returns:
        The name.
    """
    law = parse(noise)
    return rf"\{{{_levels(law)}\}}" if isinstance(law, Categorical) else column_name(noise)


def _levels(law: Categorical) -> str:
    return ",".join(f"{level:g}" for level in law.levels)


def rows(table: TableOne) -> Iterable[tuple[str, bool, list[Any]]]:
    """Yield the rows of the table.

    Args:
        table: The table.

    Yields:
        The name of a row, whether a line is drawn above it, and its cells by column.
    """
    for row in ROWS:
        yield name_of(*row), begins_group(*row), [table[*row, noise] for noise in table.oracle]


def terminal(table: TableOne) -> RenderableType:
    """Show all cells beside the paper's, at 100 columns; below, in red, what falls short.

    Args:
        table: The table.

    Returns:
        An object that rich can print.
    """
    grid = Grid(box=None, padding=(0, 0, 0, 1), pad_edge=False)
    grid.add_column("", no_wrap=True)
    for noise in table.oracle:
        grid.add_column(column_name(noise), justify="right", no_wrap=True)
    for name, first, cells in rows(table):
        if first:
            grid.add_section()
        grid.add_row(Text(name, style="bold"), *map(_cell, cells))
    grid.add_row(Text("floor", style="bold"), *(Text(short(cell.floor), style="cyan") for cell in cells))
    facts = Text(f"{table.sequences:,} fresh sequences, seed {table.seed}. {LEGEND}", style="dim")
    return Group(grid, facts, verdict(table))


def column_table(table: TableOne) -> RenderableType:
    """Show one column, a line for each cell, with all its numbers.

    Args:
        table: A table with one column.

    Returns:
        An object that rich can print.
    """
    names = ("", "loss", "±", "/ floor", "paper", "allowed", "/ paper", "best seed", "worst", "largest")
    grid = Grid(box=None, padding=(0, 0, 0, 2), pad_edge=False)
    for name in names:
        grid.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, _, (cell,) in rows(table):
        seeds = [short(min(cell.seeds)), short(max(cell.seeds))] if len(cell.seeds) else ["", ""]
        ratio = "-" if cell.ratio is None or cell.ratio >= 1e6 else f"{cell.ratio:.2f}"
        paper = "-" if cell.over_paper is None else f"{cell.over_paper:.3f}"
        numbers = [f"{cell.loss:.5g}", f"{cell.error:.1g}", ratio, short(cell.paper), short(cell.limit), paper, *seeds]
        grid.add_row(name, *numbers, f"{cell.largest:.2g}", style="red" if len(cell.faults) else None)
    title = f"{cell.noise}: floor {short(cell.floor)} ± {cell.floor_error:.1g}, {table.sequences:,} sequences\n"
    return Group(Text(title), grid, verdict(table))


def _cell(cell: Any) -> Text:
    better = cell.loss < cell.paper - cell.paper_error - cell.rounding
    style = "bold red" if len(cell.faults) else "bold green" if better else "bold"
    paper = "-" if cell.over_paper is None else f"x{_two(cell.over_paper)}"
    lines = [(short(cell.loss), style), (f"\n{short(cell.paper)}\n{paper}", "dim")]
    error = 100 * cell.error / cell.loss if cell.loss > 1e-25 else 0.0
    worst = f" +{_percent(100 * (max(cell.seeds) / min(cell.seeds) - 1), 10)}" if len(cell.seeds) else ""
    return Text.assemble(*lines, (f"\n±{_percent(error, 1)}{worst}", "dim"))


def _two(ratio: float) -> str:
    return f"{ratio:.2f}".replace("0.", ".", 1) if ratio < 1 else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _percent(value: float, bound: float) -> str:
    """In at most three characters: a whole number from `bound` on, below it one decimal."""
    return f"{value:.0f}" if value >= bound - 0.05 else f"{value:.1f}".replace("0.", ".", 1) if value >= 0.05 else "0"


def verdict(table: TableOne) -> RenderableType:
    """Say how many cells satisfy what they must, and which do not, with the reason.

    Args:
        table: The table.

    Returns:
        An object that rich can print.
    """
    better = f"{table.better} of the {len(table.models)} models have a lower loss than in the paper"
    text = Text(f"\n{len(table.cells)} cells. {better}. ")
    if not table.faulty:
        return text.append("No cell fails a check.", style="green")
    text.append(f"{len(table.faulty)} {'cells fail' if len(table.faulty) > 1 else 'cell fails'} a check:", style="red")
    faults = Grid.grid(padding=(0, 1))
    faults.add_column(no_wrap=True)
    for cell in table.faulty:
        faults.add_row(f"  {cell.row}, {cell.noise}:", "; ".join(cell.faults), style="red")
    return Group(text, faults)


def as_markdown(table: TableOne) -> str:
    """Write the table in Markdown: ours, and the paper's in brackets; the best model of a column in bold.

    Args:
        table: The table.

    Returns:
        The text.
    """

    def entry(cell: Any) -> str:
        loss = f"**{short(cell.loss)}**" if cell is table.best(cell.noise) else short(cell.loss)
        return f"{loss}{' ⚠' if len(cell.faults) else ''} ({short(cell.paper)})"

    lines = [f"| | {' | '.join(table.oracle)} |", "|---" * (len(table.oracle) + 1) + "|"]
    lines += [f"| {' | '.join([name, *map(entry, cells)])} |" for name, _, cells in rows(table)]
    lines.append(f"| floor | {' | '.join(short(table.best(noise).floor) for noise in table.oracle)} |")
    lines += ["", *(f"- ⚠ {cell.row}, {cell.noise}: {'; '.join(cell.faults)}" for cell in table.faulty)]
    return "\n".join(lines).rstrip() + "\n"


def as_latex(table: TableOne) -> str:
    """Write the table as a tabular for booktabs: ours, and the paper's in small print; the best of a column in bold.

    Args:
        table: The table.

    Returns:
        The text.
    """

    def entry(cell: Any) -> str:
        loss = rf"\textbf{{{_tex(cell.loss)}}}" if cell is table.best(cell.noise) else _tex(cell.loss)
        return rf"{loss} {{\scriptsize ({_tex(cell.paper)})}}"

    lines = [rf"\begin{{tabular}}{{l{'r' * len(table.oracle)}}}", r"\toprule"]
    lines.append(rf"Method & {' & '.join(f'${column_tex(noise)}$' for noise in table.oracle)} \\")
    for name, first, cells in rows(table):
        lines += [*([r"\midrule"] if first else []), rf"{' & '.join([name, *map(entry, cells)])} \\"]
    floors = " & ".join(_tex(table.best(noise).floor) for noise in table.oracle)
    lines += [r"\midrule", rf"Bayes floor & {floors} \\", r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _tex(value: float) -> str:
    text = short(value)
    if "e" not in text:
        return text
    digits, exponent = text.split("e")
    return rf"${digits}\cdot10^{{{int(exponent)}}}$"


FORMATS: dict[str, Callable[[TableOne], str]] = {"markdown": as_markdown, "latex": as_latex}
