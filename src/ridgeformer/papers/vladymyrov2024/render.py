"""Table 1 as text: for the terminal, as CSV, Markdown and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from ridgeformer.noise import Categorical, Uniform, parse
from ridgeformer.papers.vladymyrov2024.paper import ROWS, Row
from ridgeformer.papers.vladymyrov2024.table import Cell, TableOne

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


def rows(table: TableOne) -> Iterable[tuple[Row, list[Cell]]]:
    """Yield the rows of the table, each with its cells.

    Args:
        table: The table.

    Yields:
        A row, and its cells by column.
    """
    for row in ROWS:
        yield row, [table[row.method, row.layers, noise] for noise in table.oracle]


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
    for row, cells in rows(table):
        if row.begins_group:
            grid.add_section()
        grid.add_row(Text(row.name, style="bold"), *(_cell(cell) for cell in cells))
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
    for row, (cell, *_) in rows(table):
        seeds = [short(min(cell.seeds)), short(max(cell.seeds))] if cell.seeds else ["", ""]
        ratio = f"{cell.ratio:.2f}" if cell.ratio < 1e6 else "-"
        paper = "-" if math.isnan(cell.over_paper) else f"{cell.over_paper:.3f}"
        numbers = [f"{cell.loss:.5g}", f"{cell.error:.1g}", ratio, short(cell.paper), short(cell.limit), paper, *seeds]
        grid.add_row(row.name, *numbers, f"{cell.largest:.2g}", style="red" if cell.faults else None)
    noise, first = next(iter(table.oracle)), next(iter(table.cells.values()))
    title = f"{noise}: floor {short(first.floor)} ± {first.floor_error:.1g}, {table.sequences:,} sequences\n"
    return Group(Text(title), grid, verdict(table))


def _cell(cell: Cell) -> Text:
    better = cell.loss < cell.paper - cell.paper_error - cell.rounding
    style = "bold red" if cell.faults else "bold green" if better else "bold"
    paper = "-" if math.isnan(cell.over_paper) else f"x{_two(cell.over_paper)}"
    lines = [(short(cell.loss), style), (f"\n{short(cell.paper)}\n{paper}", "dim")]
    error = 100 * cell.error / cell.loss if cell.loss > 1e-25 else 0.0
    spread = f" +{_percent(100 * cell.spread, 10)}" if cell.seeds else ""
    return Text.assemble(*lines, (f"\n±{_percent(error, 1)}{spread}", "dim"))


def _two(ratio: float) -> str:
    return f"{ratio:.2f}".replace("0.", ".", 1) if ratio < 1 else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _percent(value: float, whole: float) -> str:
    """In at most three characters: a whole number from `whole` on, below it one decimal."""
    return f"{value:.0f}" if value >= whole - 0.05 else f"{value:.1f}".replace("0.", ".", 1) if value >= 0.05 else "0"


def verdict(table: TableOne) -> RenderableType:
    """Say how many cells satisfy what they must, and which do not, with the reason.

    Args:
        table: The table.

    Returns:
        An object that rich can print.
    """
    models = [cell for cell in table.cells.values() if cell.layers]
    below = sum(cell.loss < cell.paper - cell.rounding for cell in models)
    text = Text(
        f"\n{len(table.cells)} cells. {below} of the {len(models)} models have a lower loss than in the paper. "
    )
    if not table.faulty:
        return text.append("No cell fails a check.", style="green")
    text.append(f"{len(table.faulty)} {'cells fail' if len(table.faulty) > 1 else 'cell fails'} a check:", style="red")
    faults = Grid.grid(padding=(0, 1))
    faults.add_column(no_wrap=True)
    for cell in table.faulty:
        faults.add_row(f"  {cell.key}:", "; ".join(cell.faults), style="red")
    return Group(text, faults)


def as_markdown(table: TableOne) -> str:
    """Write the table in Markdown: ours, and the paper's in brackets; the best model of a column in bold.

    Args:
        table: The table.

    Returns:
        The text.
    """
    best = _best(table)

    def line(name: str, entries: Iterable[str]) -> str:
        return f"| {' | '.join([name, *entries])} |"

    def entry(cell: Cell) -> str:
        loss = f"**{short(cell.loss)}**" if cell is best[cell.noise] else short(cell.loss)
        return f"{loss}{' ⚠' if cell.faults else ''} ({short(cell.paper)})"

    lines = [line("", best).replace("|  |", "| |", 1), "|---" * (len(best) + 1) + "|"]
    lines += [line(row.name, map(entry, cells)) for row, cells in rows(table)]
    lines.append(line("floor", (short(cell.floor) for cell in best.values())))
    lines += ["", *(f"- ⚠ {cell.key}: {'; '.join(cell.faults)}" for cell in table.faulty)]
    return "\n".join(lines).rstrip() + "\n"


def as_latex(table: TableOne) -> str:
    """Write the table as a tabular for booktabs: ours, and the paper's in small print; the best of a column in bold.

    Args:
        table: The table.

    Returns:
        The text.
    """
    best = _best(table)

    def line(name: str, entries: Iterable[str]) -> str:
        return " & ".join([name, *entries]) + r" \\"

    def entry(cell: Cell) -> str:
        loss = rf"\textbf{{{_tex(cell.loss)}}}" if cell is best[cell.noise] else _tex(cell.loss)
        return rf"{loss} {{\scriptsize ({_tex(cell.paper)})}}"

    lines = [rf"\begin{{tabular}}{{l{'r' * len(best)}}}", r"\toprule"]
    lines.append(line("Method", (f"${column_tex(noise)}$" for noise in best)))
    for row, cells in rows(table):
        lines += [*([r"\midrule"] if row.begins_group else []), line(row.name, map(entry, cells))]
    lines += [r"\midrule", line("Bayes floor", (_tex(cell.floor) for cell in best.values()))]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _tex(value: float) -> str:
    text = short(value)
    if "e" not in text:
        return text
    digits, exponent = text.split("e")
    return rf"${digits}\cdot10^{{{int(exponent)}}}$"


def _best(table: TableOne) -> dict[str, Cell]:
    """The best model of every column."""
    models = [cell for cell in table.cells.values() if cell.layers]
    return {n: min((cell for cell in models if cell.noise == n), key=lambda cell: cell.loss) for n in table.oracle}


FORMATS: dict[str, Callable[[TableOne], str]] = {"markdown": as_markdown, "latex": as_latex}
