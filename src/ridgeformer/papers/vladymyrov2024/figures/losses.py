"""Losses against depth and noise: figures 1, 2, 3, 6, 7 and 8."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ridgeformer.papers.vladymyrov2024.evidence import BAYES, SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.figures.style import (
    COLOURS,
    DASHES,
    MARKERS,
    draw_baselines,
    draw_curve,
    legend,
    shade,
)
from ridgeformer.papers.vladymyrov2024.paper import (
    BASELINES,
    CATEGORICAL,
    COLUMNS,
    DEPTHS,
    FAMILIES,
    LABELS,
    ROWS,
    SIGMA_MAX,
    UNIFORM,
    Row,
)
from ridgeformer.papers.vladymyrov2024.render import column_name, column_tex
from ridgeformer.papers.vladymyrov2024.table import FLOOR, Table
from ridgeformer.plotting.style import GREY, blank, exploded_entry, logarithmic, mark_exploded, panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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


SHALLOW = DEPTHS[1:]  # one layer has no room for a profile
LOWEST, HIGHEST = 1e-4, 5.0


def uniform_profiles(evidence: Evidence) -> Figure:
    """Draw figure 2: profiles of seven-layer models for each sigma_max, and of each depth at sigma_max = 5.

    Args:
        evidence: The measurements.

    Returns:
        The figure.
    """
    canvas = blank(7.2, 5.6)
    upper, lower = canvas.subfigures(2, 1, squeeze=False, height_ratios=(2, 1.05))[:, 0]
    axes = upper.subplots(2, 4)
    for axis, noise, most in zip(axes.flat, UNIFORM, SIGMA_MAX, strict=True):
        low = LOWEST if noise != UNIFORM[0] else 1e-16  # without noise, losses at sigma = 0 are far below the others
        _panel(axis, evidence, noise, DEPTHS[-1], rf"$\sigma_{{max}} = {most}$", low)
    _depths(lower.subplots(1, len(SHALLOW), sharey=True), evidence, SHOWN)
    for axis in axes[:, 0]:
        axis.set_ylabel("adjusted loss")
    legend(canvas, markers=False, black=BAYES, exploded=True)
    return canvas


def categorical_problems(evidence: Evidence) -> Figure:
    """Draw figure 3: the categorical problems; loss against depth, and profiles of every depth.

    Args:
        evidence: The measurements.

    Returns:
        The figure.
    """
    canvas = blank(7.2, 5.8)
    upper, middle, lower = canvas.subfigures(3, 1, squeeze=False, height_ratios=(1.25, 1, 1))[:, 0]
    axes = upper.subplots(1, 4)
    for place, noise in enumerate(CATEGORICAL):
        name = rf"$\sigma \in {column_tex(noise)}$"
        draw_depths(axes[2 * place], evidence.table, noise)
        panel(axes[2 * place], name, "layers", "adjusted loss" if not place else "")
        _panel(axes[2 * place + 1], evidence, noise, DEPTHS[-1], f"{name}, 7 layers")
        axes[2 * place + 1].set_xlabel(r"$\sigma$")
        row = (middle, lower)[place].subplots(1, len(SHALLOW), sharey=True)
        _depths(row, evidence, noise)
        row[0].set_ylabel(name)
    legend(canvas, black=BAYES, exploded=True)
    return canvas


def profiles_by_layer(evidence: Evidence) -> Figure:
    """Draw figure 7: the profile after every layer of seven-layer models, with the spread over five seeds.

    Args:
        evidence: The measurements.

    Returns:
        The figure.
    """
    from matplotlib import colormaps

    curves = evidence.layer_profiles
    sigmas = np.array(curves["sigmas"])
    canvas = blank(7.2, 2.9)
    axes = canvas.subplots(1, len(FAMILIES), sharey=True)
    for axis, family in zip(axes, FAMILIES, strict=True):
        losses, exploded = curves["losses"][family], curves["exploded"][family]
        logarithmic(axis, 1e-3, 20)
        shade(axis, sigmas, curves["inside"])
        for layer in DEPTHS:
            colour = colormaps["viridis_r"](0.08 + 0.92 * layer / len(DEPTHS))
            mean, spread = losses[:, layer].mean(0), losses[:, layer].std(0)
            axis.plot(sigmas, mean, color=colour, label=f"layer {layer}", linewidth=1.3)
            axis.fill_between(sigmas, np.maximum(mean - spread, LOWEST), mean + spread, color=colour, alpha=0.2, lw=0)
            mark_exploded(axis, sigmas, mean, exploded[:, layer].sum(0), colour)
        panel(axis, LABELS[family], r"$\sigma$", "adjusted loss" if family == FAMILIES[0] else "")
    handles = [*axes[0].get_legend_handles_labels()[0], exploded_entry()]
    room = {"columnspacing": 1.2, "handlelength": 1.7, "handletextpad": 0.5}
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, **room)
    return canvas


def _panel(axis: Axes, evidence: Evidence, noise: str, depth: int, title: str, low: float = LOWEST) -> None:
    """One problem and depth: three families, the baselines and the Bayes predictor."""
    curves = evidence.profiles[noise]
    logarithmic(axis, low, HIGHEST)
    shade(axis, curves[BAYES].sigmas, curves[BAYES].inside)
    for name in (*BASELINES, BAYES):
        draw_curve(axis, name, curves[name])
    for family in FAMILIES:
        draw_curve(axis, family, curves[Row(family, depth).name])
    panel(axis, title)


def _depths(axes: list[Axes], evidence: Evidence, noise: str) -> None:
    for axis, depth in zip(axes, SHALLOW, strict=True):
        _panel(axis, evidence, noise, depth, f"{depth} layers")
        axis.set_xlabel(r"$\sigma$")
