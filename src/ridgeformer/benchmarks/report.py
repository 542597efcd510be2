"""The figures as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ridgeformer.benchmarks.figures import Figure

__all__ = ["table"]

COLOURS = {"goal": "green", "bar": "yellow", "short": "bold red", "": ""}


def table(figures: Sequence[Figure]) -> Table:
    """One row a figure, with its bar, its goal and how it fared."""
    result = Table(title="ridgeformer bench: ratios from one run", title_justify="left", caption_justify="left")
    for heading in ("figure", "value", "bar", "goal", "reached", "measured"):
        result.add_column(heading, justify="right" if heading in ("value", "bar", "goal") else "left")
    for figure in figures:
        result.add_row(
            figure.name,
            f"{figure.value:.3g} {figure.unit}",
            _mark(figure.bar, figure),
            _mark(figure.goal, figure),
            f"[{COLOURS[figure.verdict]}]{figure.verdict}[/]" if figure.verdict else "",
            figure.detail,
        )
    return result


def _mark(value: float | None, figure: Figure) -> str:
    return "" if value is None else f"{'≥' if figure.higher else '≤'} {value:g}"
