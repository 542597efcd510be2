"""Losses against depth and noise: figures 1, 6 and 8."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ridgeformer.papers.vladymyrov2024.evidence import Evidence
from ridgeformer.papers.vladymyrov2024.figures.style import COLOURS, DASHES, MARKERS, draw_baselines, legend
from ridgeformer.papers.vladymyrov2024.paper import (
    BASELINES,
    COLUMNS,
    DEPTHS,
    FAMILIES,
    LABELS,
    ROWS,
    SIGMA_MAX,
    UNIFORM,
    Row,
)
from ridgeformer.papers.vladymyrov2024.render import column_name
from ridgeformer.papers.vladymyrov2024.table import FLOOR, Table
from ridgeformer.plotting.style import GREY, blank, logarithmic, panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_depths", "loss_by_depth", "ratio_to_floor", "unadjusted"]


def draw_depths(axis: Axes, table: Table, noise: str) -> None:
    """Draw loss against depth for every family, with the baselines and the floor.

    Args:
        axis: Where to draw.
        table: The losses.
        noise: The noise of the column.
    """
    draw_baselines(axis, {name: table[name, None, noise].loss for name in BASELINES})
    draw_baselines(axis, {FLOOR: table["full", 1, noise].floor})
    for family in FAMILIES:
        cells = [table[family, depth, noise] for depth in DEPTHS]
        axis.errorbar(
            DEPTHS,
            [cell.loss for cell in cells],
            # Down to a tenth at most: on a logarithmic axis a bar to 0 would have no end.
            yerr=[[min(2 * cell.error, 0.9 * cell.loss) for cell in cells], [2 * cell.error for cell in cells]],
            color=COLOURS[family],
            marker=MARKERS[family],
            markersize=3.5,
            linewidth=1.2,
            elinewidth=0.8,
        )
    axis.set(xticks=DEPTHS)
    logarithmic(axis)


def loss_by_depth(evidence: Evidence) -> Figure:
    """Draw figure 1: loss against depth for each sigma_max, with the baselines and the floor.

    Args:
        evidence: The measurements.

    Returns:
        The figure.
    """
    canvas = blank(7.2, 3.9)
    axes = canvas.subplots(2, 4)
    for axis, noise, most in zip(axes.flat, UNIFORM, SIGMA_MAX, strict=True):
        draw_depths(axis, evidence.table, noise)
        panel(axis, rf"$\sigma_{{max}} = {most}$")
    for axis in axes[1]:
        axis.set_xlabel("layers")
    for axis in axes[:, 0]:
        axis.set_ylabel("adjusted loss")
    legend(canvas)
    return canvas


def unadjusted(evidence: Evidence) -> Figure:
    """Draw figure 6: the same seven-layer models by both losses; the unadjusted one hides what separates them.

    Args:
        evidence: The measurements.

    Returns:
        The figure.
    """
    canvas = blank(7.2, 2.9)
    left, right = canvas.subplots(1, 2)
    table, most = evidence.table, SIGMA_MAX
    for method in (*FAMILIES, *BASELINES):
        cells = [table[method, DEPTHS[-1] if method in FAMILIES else None, noise] for noise in UNIFORM]
        line = DASHES.get(method, "solid")
        style = {"color": COLOURS[method], "marker": MARKERS.get(method, ""), "markersize": 3.5, "linestyle": line}
        left.plot(most, [cell.unadjusted for cell in cells], **style)
        right.plot(most[1:], [cell.loss for cell in cells[1:]], **style)
    left.plot(most, [table.oracle[noise] for noise in UNIFORM], color=GREY, linestyle="--", label="oracle")
    right.plot(most[1:], [table["full", 1, noise].floor for noise in UNIFORM[1:]], color=COLOURS[FLOOR])
    panel(left, "unadjusted: against the true weights", r"$\sigma_{max}$", "loss")
    panel(right, "adjusted: against knowing the noise", r"$\sigma_{max}$", "adjusted loss")
    logarithmic(right)
    left.legend(frameon=False)
    legend(canvas)
    return canvas


def ratio_to_floor(evidence: Evidence) -> Figure:
    """Draw figure 8: every model's loss over the least that any predictor can have.

    Args:
        evidence: The measurements.

    Returns:
        The figure.
    """
    from matplotlib.colors import LogNorm

    table, columns = evidence.table, COLUMNS[1:]
    ratios = np.array([[table[row.method, row.layers, noise].ratio for noise in columns] for row in ROWS])
    canvas = blank(7.2, 6.2)
    axis = canvas.subplots()
    image = axis.imshow(ratios, norm=LogNorm(1, 100), cmap="cividis_r", aspect="auto")
    for i, row in enumerate(ratios):
        for j, ratio in enumerate(row):
            text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
            axis.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if ratio > 8 else "black")
    axis.set_xticks(range(len(columns)), [column_name(noise) for noise in columns])
    axis.set_yticks(range(len(ROWS)), [row.name for row in ROWS])
    for edge in range(1, len(FAMILIES) + 1):
        axis.axhline(len(DEPTHS) * edge - 0.5, color="white", linewidth=2.5)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    best = min(LABELS, key=lambda family: math.prod(ratios[ROWS.index(Row(family, DEPTHS[-1]))]))
    axis.set_title(f"Loss over the Bayes floor; 1 is the best that can be. Nearest: {LABELS[best]}, 7 layers")
    canvas.colorbar(image, ax=axis, shrink=0.6, label="times the floor")
    return canvas
