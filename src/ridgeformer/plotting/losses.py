"""Losses of predictors: side by side, or along one or two axes, beside the floor."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ridgeformer.errors import refuse
from ridgeformer.evaluation import Losses
from ridgeformer.losses import EXPLODES, rounding
from ridgeformer.plotting import style
from ridgeformer.plotting.style import Axes, Figure
from ridgeformer.values import Array

LABELS = {"sigma": "noise level sigma", "context": "number of examples n", "layer": "layer", "": "predictor"}
MARKERS = ("o", "s", "^", "D")
PER_INCH = 12  # characters of a title
LONGEST = 24  # characters of a label of the axis


def draw_losses(losses: Losses, path: Path | str | None = None, *, title: str | None = None) -> Figure:
    """Draw losses with two standard errors and the floor, on a logarithmic axis.

    Along one axis there is a line for each predictor. With two axes there is a panel for each predictor, with a line
    for each value of the first axis; along `dim` and `context`, a map of loss / floor, or of the
    loss without floors. Values are connected where they are ascending numbers; what can occur in the problem is shaded.
    A cross marks points at which sequences exploded, an open circle the mean of the others there,
    and a triangle at the edge a loss beyond the axis.

    Args:
        losses: The losses, with at most two axes.
        path: The file, which ends in .png, .pdf or .svg; None to write none.
        title: The title of the figure; None for the problem.

    Returns:
        The figure.

    Raises:
        InputError: The name has another ending, or there are more than two axes.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = style.check_plot(path)
    if len(losses.axes) > 2:
        refuse("a picture has at most two axes", ", ".join(losses.axes), "Choose values with losses.at(...).")
    title = title or losses.problem
    if set(losses.axes) == {"dim", "context"}:
        canvas, width = _maps(losses)
        return style.finish(canvas, path, _filled(title, width), 10)
    panels = [_Lines(losses, "")] if len(losses.axes) < 2 else [_Lines(losses[name], name) for name in losses.names]
    width = max(6.5, min(1.2 * len(panels[0].values), 14.0)) if not panels[0].connected else 6.5
    width = width if len(panels) == 1 else 4.5 * len(panels)
    canvas = style.blank(width, 3.8)
    axes = canvas.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    bottom, top = _limits(losses)
    for axis, panel in zip(axes, panels, strict=True):
        axis.set(yscale="log", ylim=(bottom, top))
        panel.draw(axis)
    axes[0].set_ylabel("adjusted loss" if losses.adjusted else "loss")
    return style.finish(canvas, path, _filled(title, width), 10)


def _filled(title: str, width: float) -> str:
    """A title in lines that fit into a width in inches."""
    return textwrap.fill(title, int(PER_INCH * width), break_on_hyphens=False)


def _maps(losses: Losses) -> tuple[Figure, float]:
    """A map of loss / floor over dimensions and numbers of examples for each predictor, and the width in inches."""
    has_floor = bool(np.isfinite(losses.floor).all())
    values = losses.ratio if has_floor else losses.loss
    if list(losses.axes) != ["dim", "context"]:
        values = np.swapaxes(values, 1, 2)
    dims, contexts = losses.axes["dim"], losses.axes["context"]
    finite = values[np.isfinite(values)]
    low, high = (1.0, max(1.2, min(3.0, float(finite.max(initial=1.0))))) if has_floor else (None, None)
    width = max((1.6 + 0.55 * len(dims)) * len(losses.names), 4.5)
    canvas = style.blank(width, 1.6 + 0.35 * len(contexts))
    axes = canvas.subplots(1, len(losses.names), squeeze=False, sharey=True)[0]
    for axis, name, grid in zip(axes, losses.names, values, strict=True):
        image = axis.imshow(grid.T, origin="lower", aspect="auto", cmap="cividis", vmin=low, vmax=high)
        middle = float(np.mean(image.get_clim()))
        for (i, j), value in np.ndenumerate(grid):
            text = "-" if not np.isfinite(value) else f"{value:.2f}" if has_floor and value < 100 else f"{value:.2g}"
            colour = style.BLACK if value > middle else "white"
            axis.text(i, j, text, ha="center", va="center", fontsize=7, color=colour)
        axis.set_xticks(range(len(dims)), [str(d) for d in dims], fontsize=8)
        axis.set_yticks(range(len(contexts)), [str(n) for n in contexts], fontsize=8)
        axis.set_xlabel("dimension d")
        axis.set_title(textwrap.shorten(name, 50), fontsize=9)
    axes[0].set_ylabel(LABELS["context"])
    canvas.colorbar(image, ax=axes.tolist(), label="loss / floor" if has_floor else "loss", shrink=0.9)
    return canvas, width


def _limits(losses: Losses) -> tuple[float, float]:
    """The ends of the axis of losses; means of explosions leave it, and so does what is far above the signal."""
    calm = np.where(losses.exploded > 0, losses.unexploded, losses.loss)
    every, signal = np.concatenate([calm.ravel(), losses.floor.ravel()]), float(losses.signal.max())
    every = every[np.isfinite(every) & (every > rounding(signal))]
    if not len(every):
        return 0.01 * signal, signal
    top = min(2 * float(every.max()), max(signal, 2 * float(every.min())))
    return float(every.min()) / 2, top


class _Lines:
    """One panel: lines along an axis, of predictors, or of the values of another axis."""

    def __init__(self, losses: Losses, title: str) -> None:
        self.losses, self.title = losses, title
        *outer, self.axis = losses.axes or [""]
        self.values: Sequence[Any] = losses.axes[self.axis] if self.axis else losses.names
        self.names = [f"{outer[0]} {value}" for value in losses.axes[outer[0]]] if outer else list(losses.names)
        if not self.axis:  # predictors side by side: one line through all of them
            self.names = ["loss"]
        numbers = all(isinstance(value, int | float) for value in self.values)
        self.connected = bool(self.axis) and numbers and list(self.values) == sorted(self.values)
        evenly = np.arange(len(self.values), dtype=np.float64)
        self.places = np.array(self.values, np.float64) if self.connected else evenly
        self.marker = "o" if len(self.places) <= 16 else ""

    def rows(self, field: str) -> Array:
        """A field of the losses, [lines, values]."""
        return np.asarray(getattr(self.losses, field)).reshape(len(self.names), -1)

    def draw(self, axis: Axes) -> None:
        """Draw the panel. Its limits must be set."""
        self._shade(axis)
        for i, (name, colour) in enumerate(zip(self.names, itertools.cycle(style.LINES), strict=False)):
            self._line(axis, i, name, colour)
        self._floor(axis)
        self._explain(axis)
        self._label(axis)

    def _line(self, axis: Axes, i: int, name: str, colour: Any) -> None:
        """One line with a band, or markers with bars where there is nothing to connect."""
        loss, error, exploded = (self.rows(field)[i] for field in ("loss", "error", "exploded"))
        bottom, top = axis.get_ylim()
        drawn = np.clip(loss, bottom, None)
        spread = np.where(exploded > 0, 0.0, 2 * error)  # a mean of explosions has no band
        low, high = np.clip(loss - spread, bottom, None), np.clip(loss + spread, bottom, None)
        if self.connected:
            look: Any = {"marker": self.marker, "markersize": 4, "linewidth": 2 if i == 0 else 1.4}
            axis.plot(self.places, drawn, "-" if i == 0 else "--", color=colour, label=name, **look)
            axis.fill_between(self.places, low, high, color=colour, alpha=0.2, linewidth=0)
        else:
            marker = MARKERS[i % len(MARKERS)]
            axis.plot(self.places, drawn, marker, markersize=6, color=colour, label=name if self.axis else None)
            axis.vlines(self.places, low, high, color=colour, linewidth=1)
        for beyond, edge, mark in ((loss < bottom, bottom, "v"), ((loss > top) & (exploded == 0), top, "^")):
            if beyond.any():  # whole at the edge, where a marker on the line would be cut in half
                places = self.places[beyond]
                axis.plot(places, np.full(len(places), edge), mark, color=colour, markersize=7, clip_on=False)
        unexploded = np.where(exploded > 0, self.rows("unexploded")[i], np.nan)
        axis.plot(self.places, unexploded, "o", markersize=6, markerfacecolor="none", color=colour)
        style.mark_exploded(axis, self.places.tolist(), drawn.tolist(), exploded.tolist(), colour, size=6)

    def _floor(self, axis: Axes) -> None:
        """The floor, where it is known and not 0."""
        shared = self.losses.floor.reshape(-1, len(self.places))[0] if self.axis else self.losses.floor
        signal = float(self.losses.signal.max())
        floor = np.broadcast_to(np.where(shared > rounding(signal), shared, np.nan), self.places.shape)
        if not np.isfinite(floor).any():
            return
        look: Any = {"color": style.BLACK, "linewidth": 1.5, "label": "floor"}
        if not self.axis:
            axis.axhline(float(floor[0]), linestyle=":", **look)
        elif self.connected:
            axis.plot(self.places, floor, ":", marker=self.marker, markersize=3, **look)
        else:
            axis.plot(self.places, floor, "_", markersize=18, **look)

    def _shade(self, axis: Axes) -> None:
        """The values that can occur in the problem: a range of numbers, or single ones."""
        inside = self.losses.in_distribution.get(self.axis)
        if inside is None or not self.connected or all(inside):
            return
        places = self.places[np.array(inside)]
        look: Any = {"color": style.YELLOW, "zorder": 0}
        together = np.diff(np.flatnonzero(inside)) == 1
        if len(places) > 2 and together.all():
            axis.axvspan(places[0], places[-1], alpha=0.15, linewidth=0, label="in distribution", **look)
            return
        for place in places:
            axis.axvline(place, linewidth=4, alpha=0.5, label=None if place > places[0] else "in distribution", **look)

    def _explain(self, axis: Axes) -> None:
        """Entries of the legend for the marks that are used."""
        if self.losses.exploded.any():
            many = f"at least 1 of {self.losses.sequences:,} sequences exploded"
            label = f"{many}\n(a loss above {EXPLODES} times the signal)"
            axis.plot([], [], style.EXPLODED, color=style.DARK, label=label)
            axis.plot([], [], "o", markerfacecolor="none", color=style.DARK, label="mean loss of the other sequences")
        bottom, top = axis.get_ylim()
        if (self.rows("loss") < bottom).any() or ((self.rows("loss") > top) & (self.rows("exploded") == 0)).any():
            axis.plot([], [], "v", color=style.DARK, label="beyond the axis")

    def _label(self, axis: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        if self.connected:
            if all(isinstance(value, int) for value in self.values):
                axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        else:
            axis.set_xlim(-0.5, len(self.places) - 0.5)
            texts = [text if len(text) <= LONGEST else text[: LONGEST - 3] + "..." for text in map(str, self.values)]
            crowded = sum(map(len, texts)) > 60
            look: Any = {"rotation": 20, "ha": "right"} if crowded else {"rotation": 0, "ha": "center"}
            axis.set_xticks(self.places, texts, fontsize=8, **look)
        axis.set_xlabel(LABELS.get(self.axis, f"{self.axis} of the problem"))
        if self.title:
            axis.set_title(textwrap.shorten(self.title, 50), fontsize=9)
        style.decimals(axis)
        axis.spines[["top", "right"]].set_visible(False)
        if axis.get_legend_handles_labels()[1]:
            axis.legend(frameon=False, fontsize=8)
