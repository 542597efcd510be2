"""Losses on shifted problems, and after each number of examples, beside the floor of each."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation import PrefixLosses, Shifts
from ridgeformer.losses import EXPLODES
from ridgeformer.plotting.style import (
    BLACK,
    BLUE,
    EXPLODED,
    GREEN,
    ORANGE,
    VERMILION,
    blank,
    check_plot,
    decimals,
    mark_exploded,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_prefixes", "draw_shifts", "prefixes_figure", "shifts_figure"]

Array = NDArray[np.float64]
COLOURS = (BLUE, VERMILION, GREEN, ORANGE)
REACH = 1e4  # the largest loss that is shown, over the smallest
LONGEST = 24  # characters of a label of the axis


def draw_shifts(path: Path, title: str, found: Shifts) -> None:
    """Write `shifts_figure` to a file.

    Args:
        path: The file, which ends in .png, .pdf or .svg.
        title: The title of the figure.
        found: The losses.

    Raises:
        InputError: The file cannot be written, or matplotlib is missing.
    """
    check_plot(path)
    write(shifts_figure(title, found), path)


def draw_prefixes(path: Path, title: str, found: PrefixLosses) -> None:
    """Write `prefixes_figure` to a file.

    Args:
        path: The file, which ends in .png, .pdf or .svg.
        title: The title of the figure.
        found: The losses.

    Raises:
        InputError: The file cannot be written, or matplotlib is missing.
    """
    check_plot(path)
    write(prefixes_figure(title, found), path)


def shifts_figure(title: str, found: Shifts) -> Figure:
    """Draw the loss on each problem, one line per predictor, with the floors. The problems are evenly spaced.

    Args:
        title: The title of the figure.
        found: The losses.

    Returns:
        The figure.
    """
    places = np.arange(len(found.values), dtype=np.float64)
    canvas = blank(max(6.0, min(1.2 * len(places), 14.0)), 3.8)
    axis = canvas.subplots()
    _draw(axis, title, places, found)
    texts = [text if len(text) <= LONGEST else text[: LONGEST - 3] + "..." for text in found.values]
    crowded = sum(map(len, texts)) > 60
    axis.set_xticks(places, texts, rotation=20 if crowded else 0, ha="right" if crowded else "center", fontsize=8)
    axis.set(xlabel=f"{found.what} of the problem")
    return canvas


def prefixes_figure(title: str, found: PrefixLosses) -> Figure:
    """Draw the loss against the number of examples, one line per predictor, with the floor.

    Args:
        title: The title of the figure.
        found: The losses.

    Returns:
        The figure.
    """
    canvas = blank(6.5, 3.8)
    axis = canvas.subplots()
    _draw(axis, title, found.context.astype(np.float64), found)
    axis.set(xlabel="number of examples n")
    return canvas


def _draw(axis: Axes, title: str, places: Array, found: Any) -> None:
    """Lines of losses with bands of two standard errors, the floor, and a cross wherever a sequence exploded."""
    every = np.concatenate([np.ravel(found.loss), found.floor])
    every = every[np.isfinite(every) & (every > 1e-20)]
    least, most = (float(every.min()), float(every.max())) if len(every) else (0.1, 1.0)
    bottom, top = least / 2, min(2 * most, REACH * least)  # what explodes leaves the axis
    axis.set_title(title, fontsize=10)
    axis.set(ylabel="adjusted loss", yscale="log", ylim=(bottom, max(top, 4 * bottom)))
    marker = "o" if len(places) <= 16 else ""
    for i, (name, colour) in enumerate(zip(found.name, itertools.cycle(COLOURS), strict=False)):
        loss = np.maximum(found.loss[i], bottom)
        error = np.where(found.exploded[i] > 0, 0.0, 2 * found.error[i])  # of a mean of explosions there is no band
        style: Any = {"marker": marker, "markersize": 4, "linewidth": 2 if i == 0 else 1.4, "color": colour}
        axis.plot(places, loss, "-" if i == 0 else "--", label=name, **style)
        axis.fill_between(places, np.maximum(loss - error, bottom), loss + error, color=colour, alpha=0.2, linewidth=0)
        mark_exploded(axis, places.tolist(), loss.tolist(), found.exploded[i].tolist(), colour, size=6)
    if (found.floor > 1e-20).any():
        known = np.where(found.floor > 1e-20, found.floor, np.nan)
        axis.plot(places, known, ":", color=BLACK, marker=marker, markersize=3, linewidth=1.5, label="floor")
    if found.exploded.any():
        label = f"at least 1 of {found.sequences:,} sequences exploded\n(a loss above {EXPLODES} times the signal)"
        axis.plot([], [], EXPLODED, color="#555555", label=label)
    decimals(axis)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
