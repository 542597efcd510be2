"""Explanations as figures: all layers at once, patches between noise levels, and classical algorithms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ridgeformer.errors import short
from ridgeformer.explanation.algorithms import AlgorithmMap
from ridgeformer.explanation.explanation import Explanation
from ridgeformer.explanation.interventions import NoisePatching
from ridgeformer.plotting import style
from ridgeformer.plotting.style import Axes, Figure

COLUMNS = 4
SHORT = {"loads": "loads u", "idle": "no effect"}  # of jobs that have another name in titles


def draw_explanation(explanation: Explanation, path: Path | str | None = None, *, title: str | None = None) -> Figure:
    """Draw five panels over all layers, and one per layer with w over least squares along eigenvectors of S.

    Values beyond the limits of a panel are marked by triangles at its edge.

    Args:
        explanation: The explanation.
        path: The file, which ends in .png, .pdf or .svg; None to write none.
        title: The title; None for the family, the layers, the problem and the loss.

    Returns:
        The figure.

    Raises:
        InputError: The name has another ending.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = style.check_plot(path)
    layers, behaviour = explanation.model.layers, explanation.behaviour
    panels: list[Callable[[Axes, Explanation], None]] = [_losses, _noise, _spectrum, _factors, _ways]
    panels += [functools.partial(_filter, layer=layer) for layer in range(1, layers + 1)]
    rows = -(-len(panels) // COLUMNS)
    canvas = style.blank(14, 3 * rows + 0.8)
    axes = list(canvas.subplots(rows, COLUMNS, squeeze=False).flat)
    for axis, panel in zip(axes, panels, strict=False):
        panel(axis, explanation)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    style.neat(*axes, text=9)
    handles, labels = axes[len(panels) - layers].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    if title is None:
        name = f"{explanation.model.family.name}, {layers} layer{'s' * (layers > 1)}"
        floor = f", floor {behaviour.floor:.4g}" if behaviour.floor >= 0 else ""
        problem = short(explanation.problem.label, 90)
        title = f"{name}, {problem}: loss {behaviour.loss[-1]:.4g}{floor}"
    return style.finish(canvas, path, title)


def _losses(axis: Axes, explanation: Explanation) -> None:
    """The loss after each layer, and its parts, on a logarithmic scale."""
    behaviour, states = explanation.behaviour, np.arange(explanation.model.layers + 1)
    axis.plot(states, behaviour.loss, "o-", color="black", linewidth=2, markersize=4, label="loss")
    parts = (("direction", "s-", style.BLUE), ("shrinkage", "^-", style.VERMILION), ("size", "v-", style.GREEN))
    least = 0.05 * min(behaviour.loss.min(), behaviour.floor if behaviour.floor > 0 else np.inf)
    for name, look, colour in parts:
        if not np.isnan(values := getattr(behaviour, name)).all():
            shown = np.where(values > 0, np.maximum(values, least), np.nan)  # what is less lies on the edge
            axis.plot(states, shown, look, color=colour, markersize=4, linewidth=1.2, label=name)
    if behaviour.floor > 0:
        axis.axhline(behaviour.floor, color="black", linestyle="--", linewidth=1, label="floor")
    axis.set(title="loss of the readout and its parts", xlabel="after layer", yscale="log", xticks=states)
    axis.set_ylim(bottom=0.8 * least if np.isfinite(least) and least > 0 else None)
    axis.legend(frameon=False, fontsize=7)


def _noise(axis: Axes, explanation: Explanation) -> None:
    """How well the labels know sigma, and where sigma acts."""
    behaviour, states = explanation.behaviour, np.arange(explanation.model.layers + 1)
    through = np.zeros_like(behaviour.through) if behaviour.hardly_moved else behaviour.through
    axis.bar(states[1:], through, color=style.SKY, width=0.6, label="influence of the noise through this layer")
    if behaviour.hardly_moved:
        axis.plot([], [], " ", label="(not shown: it hardly influences the prediction)")
    if np.isfinite(behaviour.knowable):
        line: Any = {"color": style.VERMILION, "markersize": 4, "label": "rank correlation of labels and sigma"}
        axis.plot(states, behaviour.known, "o-", **line)
        label = "... of least-squares residuals"
        axis.axhline(behaviour.knowable, color=style.VERMILION, linestyle="--", linewidth=1, label=label)
    top = max(1.0, 1.05 * float(np.nanmax(through)))
    axis.set(title="use of the noise level", xlabel="layer", xticks=states, ylim=(0, 1.4 * top))
    axis.set_yticks([tick for tick in axis.get_yticks() if tick <= top])
    axis.legend(frameon=False, fontsize=7, loc="upper left")  # in the room above


def _factors(axis: Axes, explanation: Explanation) -> None:
    """Each layer's factor against sigma, beside the factor from least squares to the goal."""
    noise, label = explanation.noise, f"best factor from least squares to {explanation.goal_words}"
    axis.set_title("factor T_yy of each layer")
    axis.set_ylim(*_room(noise.factor, noise.shrinkage))
    if len(noise.sigma) == 1:
        axis.axhline(noise.shrinkage[0], color="black", linestyle="--", linewidth=1.2, label=label)
    else:
        axis.plot(noise.sigma, noise.shrinkage, "k--", linewidth=1.2, label=label)
    _numbered(axis, noise.sigma, noise.factor)
    axis.legend(frameon=False, fontsize=7, loc="lower left")


def _ways(axis: Axes, explanation: Explanation) -> None:
    """How far each layer goes to least squares, against sigma."""
    noise = explanation.noise
    axis.set_title("share of the distance to least squares, by layer")
    axis.axhline(0, color=style.GREY, linewidth=0.8, zorder=0)
    axis.set_ylim(*_room(noise.newton_step))
    _numbered(axis, noise.sigma, noise.newton_step)


def _numbered(axis: Axes, sigmas: Any, rows: Any) -> None:
    """A line for every layer, with the layer's number at its end; numbers that would overlap are moved apart.

    With one noise level, or none, there is one line over the layers instead.
    """
    import matplotlib

    if len(sigmas) == 1:
        layers = np.arange(1, len(rows) + 1)
        axis.plot(layers, rows[:, 0], "o-", color=style.BLUE, markersize=4, linewidth=1.5)
        axis.set(xlabel="layer" if np.isnan(sigmas[0]) else f"layer, at sigma = {sigmas[0]:g}", xticks=layers)
        style.mark_cut(axis, layers, rows[:, 0], style.BLUE)
        return
    axis.set_xlabel("noise level sigma")
    low, high = axis.get_ylim()
    ends = np.clip([row[-1] for row in rows], low, high)
    apart, heights, below = 0.055 * (high - low), np.empty(len(rows)), -np.inf
    for layer in np.argsort(ends, kind="stable"):
        below = heights[layer] = max(ends[layer], below + apart)
    heights -= max(0.0, heights.max() - high)
    reach = float(sigmas[-1] - sigmas[0]) or 1.0
    for layer in range(len(rows)):  # dark to light, in order, apart for colour-blind readers too
        colour = matplotlib.colormaps["viridis"](0.95 * layer / len(rows))
        axis.plot(sigmas, rows[layer], color=colour, linewidth=1.5, marker="o", markersize=2.5)
        style.mark_cut(axis, sigmas, rows[layer], colour)
        place = sigmas[-1] + 0.06 * reach, heights[layer]
        link = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
        text: Any = {"color": colour, "fontsize": 8, "va": "center", "arrowprops": link, "annotation_clip": False}
        axis.annotate(f"{layer + 1}", (sigmas[-1], ends[layer]), place, **text)


def _room(*values: Any) -> tuple[float, float]:
    """Limits with all values between them, but for values below -1.5 or above 2.5."""
    every = np.concatenate([np.ravel(v) for v in values])
    return max(float(np.nanmin(every)), -1.5) - 0.1, min(float(np.nanmax(every)), 2.5) + 0.1


def _spectrum(axis: Axes, explanation: Explanation) -> None:
    """Quantiles of the eigenvalues of M S M'."""
    states, quantiles = np.arange(explanation.model.layers + 1), np.maximum(explanation.behaviour.spectrum, 1e-12)
    for low, high, alpha, label in ((0, 4, 0.2, "5-95 %"), (1, 3, 0.4, "25-75 %")):
        band: Any = {"color": style.BLUE, "alpha": alpha, "linewidth": 0, "label": label}
        axis.fill_between(states, quantiles[:, low], quantiles[:, high], **band)
    axis.plot(states, quantiles[:, 2], "o-", color=style.BLUE, markersize=4, label="median")
    axis.set(title="eigenvalues of M S M'", xlabel="after layer", yscale="log", xticks=states)
    axis.legend(frameon=False, fontsize=7)


def _filter(axis: Axes, explanation: Explanation, layer: int) -> None:
    """Draw w over least squares by eigenvalue, at three noise levels, beside ridge regression."""
    noise = explanation.noise
    levels = sorted({0, len(noise.sigma) // 2, len(noise.sigma) - 1})
    lines = list(zip((style.BLUE, style.GREEN, style.VERMILION), levels, strict=False))
    for colour, index in lines:
        label = "all sequences" if np.isnan(noise.sigma[index]) else f"sigma = {noise.sigma[index]:g}"
        axis.plot(noise.eigenvalues, noise.filter[layer, index], "o-", color=colour, markersize=3, label=label)
        axis.plot(noise.eigenvalues, noise.ideal[index], "--", color=colour, linewidth=1)
    low, high = float(noise.filter[layer].min()), float(noise.filter[layer].max())
    axis.set_ylim(max(min(-0.05, low), -0.6), max(1.15, min(high + 0.05, 1.8)))
    for colour, index in lines:
        style.mark_cut(axis, noise.eigenvalues, noise.filter[layer, index], colour)
    kinds = ", ".join(SHORT.get(role.kind, role.kind) for role in explanation.roles if role.layer == layer)
    by_mean = explanation.model.layout.attention == "mean"
    axis.set(title=f"after layer {layer}: {kinds}", xlabel="eigenvalue of S / n" if by_mean else "eigenvalue of S")
    place = axis.get_subplotspec()
    if layer == 1 or (place is not None and place.is_first_col()):
        axis.set_ylabel("estimate / least squares")
    label = "ridge regression" if explanation.goal == "ridge" else explanation.goal_words
    axis.plot([], [], "--", color="black", linewidth=1, label=label)


STYLES: dict[str, dict[str, Any]] = {
    "gram": {"label": "whole Gram matrix", "color": style.BLACK, "marker": "o", "linewidth": 2},
    "S": {"label": "S: x with x", "color": style.SKY, "marker": "s", "linewidth": 1.2},
    "b": {"label": "b: x with y", "color": style.ORANGE, "marker": "^", "linewidth": 1.2},
    "q": {"label": "q: y with y", "color": style.VERMILION, "marker": "D", "linewidth": 2},
    "further": {"label": "further coordinates", "color": style.GREEN, "marker": "v", "linewidth": 1.2},
    "query": {"label": "query", "color": style.BLUE, "marker": "x", "linewidth": 1.2, "linestyle": "--"},
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
    path = style.check_plot(path)
    canvas = style.blank(9.5, 4.0)
    axes = canvas.subplots(1, 2, sharey=True)
    shares = np.concatenate([patching.restored, patching.once])
    low, high = np.nanmin(shares, initial=-0.1), np.nanmax(shares, initial=1.1)
    axes[0].set(ylabel="share of the change that is restored", ylim=(max(low - 0.1, -1.0), min(high + 0.1, 2.0)))
    shown = (patching.restored, "this layer and all later ones see it"), (patching.once, "this layer alone sees it")
    for axis, (values, words) in zip(axes, shown, strict=True):
        style.panel(axis, f"a patch of the state that the layer reads:\n{words}", "layer", axis.get_ylabel())
        axis.axhline(0, color=style.GREY, linewidth=0.8)
        axis.axhline(1, color=style.GREY, linewidth=0.8, linestyle=":")
        for part, share in zip(patching.part, values, strict=True):
            if np.isfinite(share).any():
                axis.plot(patching.layer, share, markersize=5, **STYLES[part])
                style.mark_cut(axis, patching.layer, share, STYLES[part]["color"])
        axis.set_xticks(patching.layer)
    axes[0].legend(frameon=False, fontsize=8)
    levels = f"states at sigma = {patching.high:g} in contexts at sigma = {patching.low:g}"
    return style.finish(canvas, path, f"{patching.name}: {levels}" if title is None else title)


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
    path = style.check_plot(path)
    canvas = style.blank(13.0, 5.2)
    axes = canvas.subplots(2, len(algorithms.iteration), sharey=True)
    errors = {name: np.log10(np.maximum(values, 1e-12)) for name, values in algorithms.relative_error.items()}
    cosines: Any = {"cmap": "viridis", "vmin": 0.5, "vmax": 1.0}
    distances: Any = {"cmap": "magma_r", "vmin": -2.0, "vmax": 0.3}
    for above, below, name in zip(*axes, algorithms.iteration, strict=True):
        cosine = _heat(above, algorithms, name, algorithms.cosine[name], cosines)
        error = _heat(below, algorithms, name, errors[name], distances)
        above.set_title(name, fontsize=10)
        below.set_xlabel("penalty" if name == "ridge" else "iteration")
    canvas.colorbar(cosine, ax=axes[0], shrink=0.9, pad=0.01, extend="min", label="cosine")
    canvas.colorbar(error, ax=axes[1], shrink=0.9, pad=0.01, extend="both", label="relative error, log10")
    for row in axes:
        row[0].set_ylabel("after layer")
    name = algorithms.name if title is None else title
    return style.finish(canvas, path, f"{name}: readout of each layer beside classical algorithms")


def _heat(axis: Axes, algorithms: AlgorithmMap, name: str, values: Any, colours: Any) -> Any:
    """One map; a number k of iterations stands at k + 1, so that the axis can be logarithmic."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ridge = name == "ridge"
    places = algorithms.iteration[name] if ridge else algorithms.iteration[name] + 1
    far = ridge or len(places) > 61  # so that few iterations, as those of Newton, are evenly spaced
    mid = np.sqrt(places[1:] * places[:-1]) if far else (places[1:] + places[:-1]) / 2
    first, last = (places[0] ** 2 / mid[0], places[-1] ** 2 / mid[-1]) if far else (places[0] - 0.5, places[-1] + 0.5)
    edges = np.concatenate([[first], mid, [last]])
    layers = np.append(algorithms.layer - 0.5, algorithms.layer[-1] + 0.5)
    mesh = axis.pcolormesh(edges, layers, values, **colours, rasterized=True)
    best = algorithms.closest(name) + (0 if ridge else 1)
    look: Any = {"markersize": 4, "markerfacecolor": "white", "markeredgecolor": "black", "clip_on": False}
    axis.plot(best, algorithms.layer, "o", **look)
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
