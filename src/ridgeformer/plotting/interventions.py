"""Shares of the change that patches restore, and distances between layers and classical algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.explanation.algorithms import AlgorithmMap
from ridgeformer.explanation.interventions import NoisePatching
from ridgeformer.plotting.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    VERMILION,
    blank,
    check_plot,
    mark_cut,
    panel,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_algorithms", "draw_patching"]


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


def draw_patching(patching: NoisePatching, path: Path | str | None = None, *, title: str | None = None) -> Figure:
    """Draw the share of the change in shrinkage that patches restore, by layer.

    On the left all later layers see the patch, on the right one layer alone. Shares below -1 or above 2 are marked by
    triangles at the edge, with their values.

    Args:
        patching: The shares.
        path: The file, which ends in .png, .pdf or .svg; None to write none.
        title: The title; None for the model and the noise levels.

    Returns:
        The figure.

    Raises:
        InputError: The name has another ending.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = check_plot(path)
    canvas = blank(9.5, 4.0)
    axes = canvas.subplots(1, 2, sharey=True)
    shares = np.concatenate([patching.restored, patching.once])
    low, high = np.nanmin(shares, initial=-0.1), np.nanmax(shares, initial=1.1)
    axes[0].set(ylabel="share of the change that is restored", ylim=(max(low - 0.1, -1.0), min(high + 0.1, 2.0)))
    for axis, values, words in (
        (axes[0], patching.restored, "this layer and all later ones see it"),
        (axes[1], patching.once, "this layer alone sees it"),
    ):
        panel(axis, f"a patch of the state that the layer reads:\n{words}", "layer", axis.get_ylabel())
        axis.axhline(0, color=GREY, linewidth=0.8)
        axis.axhline(1, color=GREY, linewidth=0.8, linestyle=":")
        for part, share in zip(patching.part, values, strict=True):
            if np.isfinite(share).any():
                axis.plot(patching.layer, share, markersize=5, label=NAMES[part], **STYLES[part])
                mark_cut(axis, patching.layer, share, STYLES[part]["color"])
        axis.set_xticks(patching.layer)
    axes[0].legend(frameon=False, fontsize=8)
    levels = f"states at sigma = {patching.high:g} in contexts at sigma = {patching.low:g}"
    canvas.suptitle(f"{patching.name}: {levels}" if title is None else title, fontsize=11)
    return write(canvas, path)


def draw_algorithms(algorithms: AlgorithmMap, path: Path | str | None = None, *, title: str | None = None) -> Figure:
    """Draw the distances between layers and iterations: cosines above, relative errors below.

    A dot marks the closest iteration of each layer. Cosines below 0.5 and relative errors outside of 0.01 to 2 have the
    colour at the end of the scale, which is pointed.

    Args:
        algorithms: The cosines and relative errors.
        path: The file, which ends in .png, .pdf or .svg; None to write none.
        title: The title; None for the model.

    Returns:
        The figure.

    Raises:
        InputError: The name has another ending.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = check_plot(path)
    canvas = blank(13.0, 5.2)
    axes = canvas.subplots(2, len(algorithms.iteration), sharey=True)
    errors = {name: np.log10(np.maximum(values, 1e-12)) for name, values in algorithms.relative_error.items()}
    rows: tuple[tuple[str, dict[str, Any], str, tuple[float, float], str], ...] = (
        ("cosine", algorithms.cosine, "viridis", (0.5, 1.0), "min"),
        ("relative error, log10", errors, "magma_r", (-2.0, 0.3), "both"),
    )
    for row, (label, maps, colours, limits, pointed) in zip(axes, rows, strict=True):
        for axis, name in zip(row, algorithms.iteration, strict=True):
            mesh = _heat(axis, algorithms, name, maps[name], colours, limits)
        row[0].set_ylabel("after layer")
        canvas.colorbar(mesh, ax=row, shrink=0.9, pad=0.01, extend=pointed, label=label)
    for above, below, name in zip(*axes, algorithms.iteration, strict=True):
        above.set_title(name, fontsize=10)
        below.set_xlabel("penalty" if name == "ridge" else "iteration")
    name = algorithms.name if title is None else title
    canvas.suptitle(f"{name}: readout of each layer beside classical algorithms", fontsize=11)
    return write(canvas, path)


def _heat(
    axis: Axes, algorithms: AlgorithmMap, name: str, values: Any, colours: str, limits: tuple[float, float]
) -> Any:
    """One map; a number k of iterations stands at k + 1, so that the axis can be logarithmic."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ridge = name == "ridge"
    places = algorithms.iteration[name] if ridge else algorithms.iteration[name] + 1
    far = ridge or len(places) > 61  # so that few iterations, as those of Newton, are evenly spaced
    mid = np.sqrt(places[1:] * places[:-1]) if far else (places[1:] + places[:-1]) / 2
    first, last = (places[0] ** 2 / mid[0], places[-1] ** 2 / mid[-1]) if far else (places[0] - 0.5, places[-1] + 0.5)
    edges = np.concatenate([[first], mid, [last]])
    layers = np.append(algorithms.layer - 0.5, algorithms.layer[-1] + 0.5)
    mesh = axis.pcolormesh(edges, layers, values, cmap=colours, vmin=limits[0], vmax=limits[1], rasterized=True)
    best = algorithms.closest(name) + (0 if ridge else 1)
    axis.plot(
        best, algorithms.layer, "o", markersize=4, markerfacecolor="white", markeredgecolor="black", clip_on=False
    )
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
    axis.set_yticks(algorithms.layer)
    return mesh
