"""The figures as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ridgeformer.benchmarks.figures import Figure

__all__ = ["table"]

COLOURS = {"goal": "green", "bar": "yellow", "short": "bold red", "": ""}


def table(figures: Sequence[Figure], width: int) -> Table:
    """One row a figure, with its bar, its goal and how it fared; the times themselves where there is room."""
    result = Table(title="ridgeformer bench: ratios from one run", title_justify="left", box=SIMPLE_HEAD)
    headings = ["figure", "value", "bar", "goal", "reached"] + (["measured"] if width >= 120 else [])
    for heading in headings:
        justify = "right" if heading in ("value", "bar", "goal") else "left"
        # Where it is narrow, names are cut rather than numbers.
        most = max(24, width - 48) if heading == "figure" and width < 120 else None
        result.add_column(heading, justify=justify, no_wrap=True, max_width=most)  # type: ignore[arg-type]
    for figure in figures:
        row = [
            figure.name,
            f"{figure.value:.3g} {figure.unit}",
            _mark(figure.bar, figure),
            _mark(figure.goal, figure),
            f"[{COLOURS[figure.verdict]}]{figure.verdict}[/]" if figure.verdict else "",
            figure.detail,
        ]
        result.add_row(*row[: len(headings)])
    return result


def _mark(value: float | None, figure: Figure) -> str:
    return "" if value is None else f"{'≥' if figure.higher else '≤'} {value:g}"
