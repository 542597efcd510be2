"""Losses against the noise level: figures 2, 3 and 7."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ridgeformer.papers.vladymyrov2024.evidence import BAYES, SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.figures.depth import draw_depths
from ridgeformer.papers.vladymyrov2024.figures.style import draw_curve, legend, shade
from ridgeformer.papers.vladymyrov2024.paper import (
    BASELINES,
    CATEGORICAL,
    DEPTHS,
    FAMILIES,
    LABELS,
    SIGMA_MAX,
    UNIFORM,
    Row,
)
from ridgeformer.papers.vladymyrov2024.render import column_tex
from ridgeformer.plotting.style import blank, exploded_entry, logarithmic, mark_exploded, panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["categorical_problems", "profiles_by_layer", "uniform_profiles"]

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
