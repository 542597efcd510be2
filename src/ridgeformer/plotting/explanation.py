"""An explanation as one figure: the loss, the noise and the step sizes by layer, and each layer as a filter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.explanation.explanation import Explanation
from ridgeformer.plotting.style import BLUE, GREEN, GREY, SKY, VERMILION, blank, check_plot, mark_cut, write
from ridgeformer.problems.text import shown_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_explanation"]


COLUMNS = 4
SHORT = {"estimates": "estimates", "solves": "solves", "shrinks": "shrinks", "resizes": "resizes"}
SHORT |= {"conditions": "conditions", "loads": "loads u", "prepares": "prepares", "idle": "no effect"}


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
    path = check_plot(path)
    layers, behaviour = explanation.model.layers, explanation.behaviour
    whole = (_losses, _noise, _spectrum, _factors, _ways)
    rows = -(-(len(whole) + layers) // COLUMNS)
    canvas = blank(14, 3 * rows + 0.8)
    axes = list(canvas.subplots(rows, COLUMNS, squeeze=False).flat)
    for axis, panel in zip(axes, whole, strict=False):
        panel(axis, explanation)
    for layer, axis in enumerate(axes[len(whole) : len(whole) + layers], 1):
        _filter(axis, explanation, layer)
    for axis in axes[len(whole) + layers :]:
        axis.set_axis_off()
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, which="both")
        axis.title.set_fontsize(9)
        axis.xaxis.label.set_fontsize(8)
        axis.yaxis.label.set_fontsize(8)
    handles, labels = axes[len(whole)].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    if title is None:
        name = f"{explanation.model.family.name}, {layers} layer{'s' * (layers > 1)}"
        floor = f", floor {behaviour.floor:.4g}" if behaviour.floor >= 0 else ""
        problem = shown_text(explanation.problem.label, 90)
        title = f"{name}, {problem}: loss {behaviour.loss[-1]:.4g}{floor}"
    canvas.suptitle(title, fontsize=11)
    return write(canvas, path)


def _losses(axis: Axes, explanation: Explanation) -> None:
    """The loss after each layer, and its parts, on a logarithmic scale."""
    behaviour, states = explanation.behaviour, np.arange(explanation.model.layers + 1)
    axis.plot(states, behaviour.loss, "o-", color="black", linewidth=2, markersize=4, label="loss")
    parts = (("direction", "s-", BLUE), ("shrinkage", "^-", VERMILION), ("size", "v-", GREEN))
    least = 0.05 * min(behaviour.loss.min(), behaviour.floor if behaviour.floor > 0 else np.inf)
    for name, style, colour in parts:
        values = getattr(behaviour, name)
        if np.isnan(values).all():
            continue
        shown = np.where(values > 0, np.maximum(values, least), np.nan)  # what is less lies on the edge
        axis.plot(states, shown, style, color=colour, markersize=4, linewidth=1.2, label=name)
    if behaviour.floor > 0:
        axis.axhline(behaviour.floor, color="black", linestyle="--", linewidth=1, label="floor")
    axis.set(title="loss of the readout and its parts", xlabel="after layer", yscale="log", xticks=states)
    axis.set_ylim(bottom=0.8 * least if np.isfinite(least) and least > 0 else None)
    axis.legend(frameon=False, fontsize=7)


def _noise(axis: Axes, explanation: Explanation) -> None:
    """How well the labels know sigma, and where sigma acts."""
    behaviour, states = explanation.behaviour, np.arange(explanation.model.layers + 1)
    through = np.zeros_like(behaviour.through) if behaviour.hardly_moved else behaviour.through
    axis.bar(states[1:], through, color=SKY, width=0.6, label="influence of the noise through this layer")
    if behaviour.hardly_moved:
        axis.plot([], [], " ", label="(not shown: it hardly influences the prediction)")
    if np.isfinite(behaviour.knowable):
        line: Any = {"color": VERMILION, "markersize": 4, "label": "rank correlation of labels and sigma"}
        axis.plot(states, behaviour.known, "o-", **line)
        label = "... of least-squares residuals"
        axis.axhline(behaviour.knowable, color=VERMILION, linestyle="--", linewidth=1, label=label)
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
    axis.axhline(0, color=GREY, linewidth=0.8, zorder=0)
    axis.set_ylim(*_room(noise.newton_step))
    _numbered(axis, noise.sigma, noise.newton_step)


def _numbered(axis: Axes, sigmas: Any, rows: Any) -> None:
    """A line for every layer, with the layer's number at its end; numbers that would overlap are moved apart.

    With one noise level, or none, there is one line over the layers instead.
    """
    if len(sigmas) == 1:
        layers = np.arange(1, len(rows) + 1)
        axis.plot(layers, rows[:, 0], "o-", color=BLUE, markersize=4, linewidth=1.5)
        axis.set(xlabel="layer" if np.isnan(sigmas[0]) else f"layer, at sigma = {sigmas[0]:g}", xticks=layers)
        mark_cut(axis, layers, rows[:, 0], BLUE)
        return
    axis.set_xlabel("noise level sigma")
    low, high = axis.get_ylim()
    ends = np.clip([row[-1] for row in rows], low, high)
    apart, heights, below = 0.055 * (high - low), np.empty(len(rows)), -np.inf
    for layer in np.argsort(ends, kind="stable"):
        below = heights[layer] = max(ends[layer], below + apart)
    heights -= max(0.0, heights.max() - high)
    reach = float(sigmas[-1] - sigmas[0]) or 1.0
    for layer, colour in enumerate(_shades(len(rows))):
        axis.plot(sigmas, rows[layer], color=colour, linewidth=1.5, marker="o", markersize=2.5)
        mark_cut(axis, sigmas, rows[layer], colour)
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
    axis.fill_between(states, quantiles[:, 0], quantiles[:, 4], color=BLUE, alpha=0.2, linewidth=0, label="5-95 %")
    axis.fill_between(states, quantiles[:, 1], quantiles[:, 3], color=BLUE, alpha=0.4, linewidth=0, label="25-75 %")
    axis.plot(states, quantiles[:, 2], "o-", color=BLUE, markersize=4, label="median")
    axis.set(title="eigenvalues of M S M'", xlabel="after layer", yscale="log", xticks=states)
    axis.legend(frameon=False, fontsize=7)


def _filter(axis: Axes, explanation: Explanation, layer: int) -> None:
    """Draw w over least squares by eigenvalue, at three noise levels, beside ridge regression."""
    noise = explanation.noise
    chosen = sorted({0, len(noise.sigma) // 2, len(noise.sigma) - 1})
    for colour, index in zip((BLUE, GREEN, VERMILION), chosen, strict=False):
        label = "all sequences" if np.isnan(noise.sigma[index]) else f"sigma = {noise.sigma[index]:g}"
        axis.plot(noise.eigenvalues, noise.filter[layer, index], "o-", color=colour, markersize=3, label=label)
        axis.plot(noise.eigenvalues, noise.ideal[index], "--", color=colour, linewidth=1)
    low, high = float(noise.filter[layer].min()), float(noise.filter[layer].max())
    axis.set_ylim(max(min(-0.05, low), -0.6), max(1.15, min(high + 0.05, 1.8)))
    for colour, index in zip((BLUE, GREEN, VERMILION), chosen, strict=False):
        mark_cut(axis, noise.eigenvalues, noise.filter[layer, index], colour)
    kinds = ", ".join(SHORT[role.kind] for role in explanation.roles if role.layer == layer)
    by_mean = explanation.model.layout.attention == "mean"
    axis.set(title=f"after layer {layer}: {kinds}", xlabel="eigenvalue of S / n" if by_mean else "eigenvalue of S")
    place = axis.get_subplotspec()
    if layer == 1 or (place is not None and place.is_first_col()):
        axis.set_ylabel("w / least squares")
    label = "ridge regression" if explanation.goal == "ridge" else explanation.goal_words
    axis.plot([], [], "--", color="black", linewidth=1, label=label)


def _shades(count: int) -> list[Any]:
    """Dark to light, in order, apart for colour-blind readers too."""
    import matplotlib

    return [matplotlib.colormaps["viridis"](0.95 * i / max(count, 1)) for i in range(count)]
