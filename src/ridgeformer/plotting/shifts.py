"""Losses on shifted problems, and after each number of examples, beside the floor of each."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation import PrefixLosses, Shifts
from ridgeformer.losses import EXPLODES
from ridgeformer.plotting.style import (
    BLACK,
    DARK,
    EXPLODED,
    GREY,
    LINES,
    blank,
    check_plot,
    decimals,
    mark_exploded,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ridgeformer.problems.lengths import Lengths

__all__ = ["draw_prefixes", "draw_shifts", "prefixes_figure", "shifts_figure"]

Array = NDArray[np.float64]
MARKERS = ("o", "s", "^", "D")
PER_INCH = 12  # characters of a title
LONGEST = 24  # characters of a label of the axis


def draw_shifts(path: Path | str, title: str, found: Shifts) -> None:
    """Write `shifts_figure` to a file.

    Args:
        path: The file, which ends in .png, .pdf or .svg.
        title: The title of the figure.
        found: The losses.

    Raises:
        InputError: The name has another ending.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = check_plot(path)
    write(shifts_figure(title, found), path)


def draw_prefixes(path: Path | str, title: str, found: PrefixLosses, trained: Lengths | None = None) -> None:
    """Write `prefixes_figure` to a file.

    Args:
        path: The file, which ends in .png, .pdf or .svg.
        title: The title of the figure.
        found: The losses.
        trained: The numbers of examples in training, which are marked; None where they are not known.

    Raises:
        InputError: The name has another ending.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = check_plot(path)
    write(prefixes_figure(title, found, trained), path)


def shifts_figure(title: str, found: Shifts) -> Figure:
    """Draw the loss on each problem, for each predictor, with the floors. The problems are evenly spaced.

    Lines connect the problems only where they have an order: ascending context lengths or noise levels.

    Args:
        title: The title of the figure.
        found: The losses.

    Returns:
        The figure.
    """
    places = np.arange(len(found.values), dtype=np.float64)
    width = max(6.0, min(1.2 * len(places), 14.0))
    canvas = blank(width, 3.8)
    axis = canvas.subplots()
    _draw(axis, _wrapped(title, width), places, found, connected=_ascending(found))
    axis.set_xlim(-0.5, len(places) - 0.5)
    texts = [text if len(text) <= LONGEST else text[: LONGEST - 3] + "..." for text in found.values]
    crowded = sum(map(len, texts)) > 60
    axis.set_xticks(places, texts, rotation=20 if crowded else 0, ha="right" if crowded else "center", fontsize=8)
    axis.set(xlabel=f"{found.what} of the problem")
    return canvas


def prefixes_figure(title: str, found: PrefixLosses, trained: Lengths | None = None) -> Figure:
    """Draw the loss against the number of examples, one line per predictor, with the floor.

    Args:
        title: The title of the figure.
        found: The losses.
        trained: The numbers of examples in training, which are marked; None where they are not known.

    Returns:
        The figure.
    """
    from matplotlib.ticker import MaxNLocator

    canvas = blank(6.5, 3.8)
    axis = canvas.subplots()
    if trained is not None:
        _mark_training(axis, trained, int(found.context.min()), int(found.context.max()))
    _draw(axis, _wrapped(title, 6.5), found.context.astype(np.float64), found, connected=True)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set(xlabel="number of examples n")
    return canvas


def _mark_training(axis: Axes, trained: Lengths, first: int, last: int) -> None:
    """Shade the numbers of examples in training as far as they are drawn; single ones have a line each."""
    inside = [n for n in trained.values.tolist() if first <= n <= last]
    style: Any = {"color": GREY, "zorder": 0, "label": f"trained on n = {str(trained)[:30]}"}
    if len(trained.values) > 1 and trained.most - trained.least == len(trained.values) - 1 and inside:
        axis.axvspan(inside[0] - 0.25, inside[-1] + 0.25, alpha=0.15, linewidth=0, **style)
        return
    for n in inside:
        axis.axvline(n, linewidth=1, linestyle="-.", **style)
        style.pop("label", None)


def _wrapped(title: str, width: float) -> str:
    """A title in lines that fit into a figure of some inches."""
    return textwrap.fill(title, int(PER_INCH * width), break_on_hyphens=False)


def _ascending(found: Shifts) -> bool:
    """Whether the values of a shift are numbers in ascending order."""
    return found.numbers is not None and list(found.numbers) == sorted(found.numbers)


def _draw(axis: Axes, title: str, places: Array, found: Any, connected: bool) -> None:
    """Losses with two standard errors, the floor, and, where sequences exploded, a cross and the mean of the others.

    They are lines with bands, or markers with bars where there is nothing to connect.
    """
    others = np.where(found.exploded > 0, found.unexploded, np.nan)
    calm = np.where(found.exploded > 0, found.unexploded, found.loss)  # means of explosions leave the axis
    every = np.concatenate([np.ravel(calm), found.floor])
    every = every[np.isfinite(every) & (every > 1e-20)]
    least, most = (float(every.min()), float(every.max())) if len(every) else (0.1, 1.0)
    bottom = least / 2
    axis.set_title(title, fontsize=10)
    axis.set(ylabel="adjusted loss", yscale="log", ylim=(bottom, 2 * most))
    shapes = itertools.cycle(("o" if len(places) <= 16 else "",) if connected else MARKERS)
    for i, (name, colour, marker) in enumerate(zip(found.name, itertools.cycle(LINES), shapes, strict=False)):
        loss = np.maximum(found.loss[i], bottom)
        error = np.where(found.exploded[i] > 0, 0.0, 2 * found.error[i])  # of a mean of explosions there is no band
        low, high = np.maximum(loss - error, bottom), loss + error
        style: Any = {"marker": marker, "markersize": 4 if connected else 6, "color": colour, "label": name}
        if connected:
            axis.plot(places, loss, "-" if i == 0 else "--", linewidth=2 if i == 0 else 1.4, **style)
            axis.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
        else:
            axis.plot(places, loss, linestyle="none", **style)
            axis.vlines(places, low, high, color=colour, linewidth=1)
        below = found.loss[i] <= bottom
        if below.any():  # whole at the edge, where a marker on the line would be cut in half
            label = None if (found.loss[:i] <= bottom).any() else "below the axis"
            axis.plot(places[below], loss[below], "v", color=colour, markersize=7, clip_on=False, label=label)
        axis.plot(places, others[i], "o", markersize=6, markerfacecolor="none", color=colour)
        mark_exploded(axis, places.tolist(), loss.tolist(), found.exploded[i].tolist(), colour, size=6)
    if (found.floor > 1e-20).any():
        known = np.where(found.floor > 1e-20, found.floor, np.nan)
        if connected:
            mark: Any = {"linestyle": ":", "marker": "o" if len(places) <= 16 else "", "markersize": 3}
        else:
            mark = {"linestyle": "none", "marker": "_", "markersize": 18}
        axis.plot(places, known, color=BLACK, linewidth=1.5, label="floor", **mark)
    if found.exploded.any():
        label = f"at least 1 of {found.sequences:,} sequences exploded\n(a loss above {EXPLODES} times the signal)"
        axis.plot([], [], EXPLODED, color=DARK, label=label)
        axis.plot([], [], "o", markerfacecolor="none", color=DARK, label="mean loss of the other sequences")
    decimals(axis)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
