"""What patches restore, and how close layers are to classical algorithms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.explanation.algorithms import AlgorithmMap
from ridgeformer.explanation.patching import NoisePatching
from ridgeformer.plotting.style import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, VERMILION, blank, panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["algorithms_figure", "patching_figure"]

STYLES: dict[str, dict[str, Any]] = {
    "gram": {"color": BLACK, "marker": "o", "linewidth": 2},
    "S": {"color": SKY, "marker": "s", "linewidth": 1.2},
    "a": {"color": ORANGE, "marker": "^", "linewidth": 1.2},
    "l": {"color": VERMILION, "marker": "D", "linewidth": 2},
    "further": {"color": GREEN, "marker": "v", "linewidth": 1.2},
    "query": {"color": BLUE, "marker": "x", "linewidth": 1.2, "linestyle": "--"},
}
NAMES = {
    "gram": "whole Gram matrix",
    "S": "S: x with x",
    "a": "a: x with y",
    "l": "l: y with y",
    "further": "further coordinates",
    "query": "query",
}


def patching_figure(title: str, found: NoisePatching) -> Figure:
    """Draw the share of the change in shrinkage that patches restore, by layer.

    Args:
        title: The name of the model.
        found: The shares.

    Returns:
        The figure: patches that all later layers see on the left, those that one layer sees on the right.
    """
    canvas = blank(9.5, 4.0)
    axes = canvas.subplots(1, 2, sharey=True)
    for axis, values, words in (
        (axes[0], found.restored, "this layer and all later ones see it"),
        (axes[1], found.once, "this layer alone sees it"),
    ):
        panel(axis, f"a patch of the state that the layer reads:\n{words}", "layer", "")
        axis.axhline(0, color=GREY, linewidth=0.8)
        axis.axhline(1, color=GREY, linewidth=0.8, linestyle=":")
        for part, share in zip(found.part, values, strict=True):
            if np.isfinite(share).any():
                axis.plot(found.layer, share, markersize=5, label=NAMES[part], **STYLES[part])
        axis.set_xticks(found.layer)
    shown = np.concatenate([found.restored, found.once])
    low, high = np.nanmin(shown, initial=-0.1), np.nanmax(shown, initial=1.1)
    axes[0].set(ylabel="share of the change that is restored", ylim=(max(low - 0.1, -1.0), min(high + 0.1, 2.0)))
    axes[0].legend(frameon=False, fontsize=8)
    canvas.suptitle(f"{title}: states at sigma = {found.high:g} in contexts at sigma = {found.low:g}", fontsize=11)
    return canvas


def algorithms_figure(title: str, found: AlgorithmMap) -> Figure:
    """Draw how close the layers are to the iterations of each algorithm.

    Args:
        title: The name of the model.
        found: The cosines and relative errors.

    Returns:
        The figure: cosines above, relative errors below; a dot marks the closest iteration of each layer.
    """
    canvas = blank(13.0, 5.2)
    axes = canvas.subplots(2, len(found.iteration), sharey=True)
    rows = (
        ("cosine", found.cosine, "viridis", (0.5, 1.0)),
        ("relative error", found.relative_error, "magma_r", (-2.0, 0.3)),
    )
    for at, (row, (words, maps, colours, limits)) in enumerate(zip(axes, rows, strict=True)):
        for axis, name in zip(row, found.iteration, strict=True):
            values = maps[name] if words == "cosine" else np.log10(np.maximum(maps[name], 1e-12))
            mesh = _heat(axis, found, name, values, colours, limits)
            axis.set_title("" if at else name, fontsize=10)
        row[0].set_ylabel("after layer")
        bar = canvas.colorbar(mesh, ax=row, shrink=0.9, pad=0.01)
        bar.set_label(words if words == "cosine" else "relative error, log10")
    for axis, name in zip(axes[1], found.iteration, strict=True):
        axis.set_xlabel("penalty" if name == "ridge" else "iteration")
    canvas.suptitle(f"{title}: readout of each layer beside classical algorithms", fontsize=11)
    return canvas


def _heat(axis: Axes, found: AlgorithmMap, name: str, values: Any, colours: str, limits: tuple[float, float]) -> Any:
    """One map; a number k of iterations stands at k + 1, so that the axis can be logarithmic."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ridge = name == "ridge"
    places = found.iteration[name] if ridge else found.iteration[name] + 1
    far = ridge or len(places) > 61  # so that few iterations, as those of Newton, are evenly spaced
    mid = np.sqrt(places[1:] * places[:-1]) if far else (places[1:] + places[:-1]) / 2
    first, last = (places[0] ** 2 / mid[0], places[-1] ** 2 / mid[-1]) if far else (places[0] - 0.5, places[-1] + 0.5)
    edges = np.concatenate([[first], mid, [last]])
    layers = np.append(found.layer - 0.5, found.layer[-1] + 0.5)
    mesh = axis.pcolormesh(edges, layers, values, cmap=colours, vmin=limits[0], vmax=limits[1], rasterized=True)
    best = found.closest(name) + (0 if ridge else 1)
    axis.plot(best, found.layer, "o", markersize=4, markerfacecolor="white", markeredgecolor="black", clip_on=False)
    if far:
        axis.set_xscale("log")
    if ridge:
        axis.set_xlim(edges.max(), edges.min())
    else:
        even = range(0, len(places), 10 if len(places) > 30 else max(1, len(places) // 6))
        ticks = (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000) if far else even
        axis.set_xticks([k + 1 for k in ticks if k < places[-1]])
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value - 1:.0f}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
    axis.tick_params(labelsize=7)
    axis.set_yticks(found.layer)
    return mesh
