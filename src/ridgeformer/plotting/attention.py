"""Transformers with several kinds of attention beside the floor: losses during training, and at each noise level."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation import Comparison, Profiles
from ridgeformer.plotting.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    VERMILION,
    YELLOW,
    blank,
    check_plot,
    decimals,
    logarithmic,
    panel,
    write,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["attention_figure", "draw_attention"]

COLOURS = {"softmax": VERMILION, "relu": GREEN, "linear": BLUE}
OTHERS = (SKY, GREY, BLACK, ORANGE)
POINTS = 60  # of a line of training losses, each the mean of as many steps


def draw_attention(
    path: Path | str, title: str, losses: Mapping[str, NDArray[np.float64]], found: Comparison, profiles: Profiles
) -> None:
    """Write `attention_figure` to a file.

    Args:
        path: The file, which ends in .png, .pdf or .svg.
        title: The title of the figure.
        losses: The losses of every training step by kind of attention, [steps] each.
        found: The losses after training.
        profiles: The losses at each noise level.

    Raises:
        InputError: The name has another ending.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = check_plot(path)
    write(attention_figure(title, losses, found, profiles), path)


def attention_figure(
    title: str, losses: Mapping[str, NDArray[np.float64]], found: Comparison, profiles: Profiles
) -> Figure:
    """Two panels: the adjusted loss during training with the floor, and after it at each noise level.

    Args:
        title: The title of the figure.
        losses: The losses of every training step by kind of attention, [steps] each.
        found: The losses after training.
        profiles: The losses at each noise level.

    Returns:
        The figure.
    """
    canvas = blank(8, 3.6)
    left, right = canvas.subplots(1, 2)
    floor = next(iter(found.values())).floor
    panel(left, "during training", "step", "adjusted loss")
    for kind, values in losses.items():
        steps, means = _means(values)
        left.plot(steps, means, color=COLOURS[kind], label=f"{kind}: {found[kind].ratio:.2f} x the floor at the end")
    rest = [name for name in found if name not in losses]
    colours: dict[str, Any] = {**COLOURS, **dict(zip(rest, OTHERS, strict=False))}
    for name in rest[:-1]:
        label = f"{name}: {found[name].ratio:.2f} x"
        left.axhline(found[name].loss, color=colours[name], linestyle="--", linewidth=1, label=label)
    left.axhline(floor, color=BLACK, linestyle=":", linewidth=1.5, label="floor")
    top = max(float(np.max(_means(values)[1][1:])) for values in losses.values())
    logarithmic(left, floor / 1.5, max(2 * top, 4 * floor))
    left.legend(frameon=False, fontsize=7)
    panel(right, "after training, at each noise level", "noise level sigma", "adjusted loss")
    for name, profile in profiles.items():
        style = "-" if name in losses else "--"
        right.plot(profile.sigma, profile.loss, style, color=colours[name], label=name)
    inside = next(iter(profiles.values()))
    right.axvspan(*_ends(inside.sigma[inside.in_distribution]), color=YELLOW, alpha=0.15, linewidth=0)
    lowest = min(float(profile.loss[profile.loss > 0].min()) for profile in profiles.values())
    logarithmic(right, max(lowest / 2, 1e-2 * floor), 100 * floor)
    right.legend(frameon=False, fontsize=7)
    for axis in (left, right):
        decimals(axis)
        axis.spines[["top", "right"]].set_visible(False)
    canvas.suptitle(title, fontsize=9)
    return canvas


def _means(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means over equal parts of the steps, and where these are."""
    parts = np.array_split(np.arange(len(values)), min(POINTS, len(values)))
    # The median of a part's batches: one batch on which a model explodes would hide the others.
    return np.array([part.mean() for part in parts]), np.array([np.median(values[part]) for part in parts])


def _ends(levels: NDArray[np.float64]) -> tuple[float, float]:
    return float(levels.min()), float(levels.max())
