"""The measurements as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.speed import Measurement


def table(measurements: Sequence[Measurement], width: int) -> Table:
    """One row per measurement; the times behind a ratio are shown where there is room."""
    result = Table(title="Measurements of one run", title_justify="left", box=SIMPLE_HEAD)
    result.add_column("measurement", no_wrap=True, max_width=max(24, width - 24) if width < 120 else None)
    result.add_column("value", justify="right", no_wrap=True)
    if width >= 120:
        result.add_column("details", no_wrap=True)
    for one in measurements:
        result.add_row(*[one.name, f"{one.value:.3g} {one.unit}", one.detail][: len(result.columns)])
    return result
