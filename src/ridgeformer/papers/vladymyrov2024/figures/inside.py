"""Inside the models: their weights, and the loss after every layer: figures 4 and 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ridgeformer.papers.vladymyrov2024.evidence import SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.figures.style import COLOURS
from ridgeformer.papers.vladymyrov2024.paper import DEPTHS, FAMILIES, LABELS, Row
from ridgeformer.papers.vladymyrov2024.table import FLOOR
from ridgeformer.plotting.style import GREY, blank, logarithmic, panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["loss_by_layer", "weights"]


def weights(evidence: Evidence) -> Figure:
    """Draw figure 4: Q and P of every layer of a four-layer Full model on categorical(1,3).

    Only products of P and Q matter: both are shown with the same norm, and with a sign that makes Q's trace positive.

    Args:
        evidence: The measurements.

    Returns:
        The figure.
    """
    pairs = list(zip(evidence.weights["P"], evidence.weights["Q"], strict=True))
    canvas = blank(7.2, 3.9)
    axes = canvas.subplots(2, len(pairs))
    for layer, (P, Q) in enumerate(pairs):
        scale = np.sqrt(np.linalg.norm(P) / np.linalg.norm(Q)) * (np.sign(np.trace(Q)) or 1.0)
        for axis, name, matrix in ((axes[0, layer], "Q", Q * scale), (axes[1, layer], "P", P / scale)):
            most = float(np.abs(matrix).max())
            image = axis.imshow(matrix, cmap="PuOr", vmin=-most, vmax=most)
            axis.set_title(f"${name}^{layer}$")
            axis.set(xticks=[0, 5, 10], yticks=[0, 5, 10])
            axis.axhline(9.5, color=GREY, linewidth=0.4)
            axis.axvline(9.5, color=GREY, linewidth=0.4)
            canvas.colorbar(image, ax=axis, shrink=0.75, pad=0.03).ax.tick_params(labelsize=5)
    return canvas


def loss_by_layer(evidence: Evidence) -> Figure:
    """Draw figure 5: loss after every layer, for models of every depth; bars: standard deviation over five seeds.

    Args:
        evidence: The measurements.

    Returns:
        The figure.
    """
    from matplotlib import colormaps

    canvas = blank(7.2, 2.8)
    axes = canvas.subplots(1, len(FAMILIES), sharey=True)
    floor = evidence.table["full", 1, SHOWN].floor
    for axis, family in zip(axes, FAMILIES, strict=True):
        for depth in DEPTHS:
            losses = evidence.layers[Row(family, depth).name]
            colour = colormaps["viridis_r"](0.08 + 0.92 * depth / len(DEPTHS))
            axis.errorbar(
                range(depth + 1),
                losses.mean(0),
                yerr=losses.std(0),
                color=colour,
                marker="o",
                markersize=3,
                capsize=1.5,
                elinewidth=0.8,
                label=f"{depth} layers" if depth > 1 else "1 layer",
            )
        axis.axhline(floor, color=COLOURS[FLOOR], linewidth=1)
        axis.set(xticks=range(len(DEPTHS) + 1))
        logarithmic(axis)
        panel(axis, LABELS[family], "after layer", "adjusted loss" if family == FAMILIES[0] else "")
    handles, labels = axes[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=len(DEPTHS), frameon=False)
    return canvas
