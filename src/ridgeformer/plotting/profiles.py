"""Profiles: adjusted loss against the noise level."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.evaluation import Profile
from ridgeformer.losses import EXPLODES
from ridgeformer.plotting.style import (
    BLUE,
    DARK,
    EXPLODED,
    GREEN,
    GREY,
    VERMILION,
    YELLOW,
    check_plot,
    decimals,
    mark_exploded,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_profile", "profile_figure"]

COLOURS = (BLUE, GREY, VERMILION, GREEN)
HIGHEST = 10.0  # of the axis of losses by noise level


def draw_profile(path: Path | str, title: str, profiles: Mapping[str, Profile]) -> None:
    """Write `profile_figure` to a file.

    Args:
        path: The file, which ends in .png, .pdf or .svg.
        title: The title of the figure.
        profiles: The lines by name, the one that the figure is about first.

    Raises:
        InputError: The name has another ending.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = check_plot(path)
    write(profile_figure(title, profiles), path)


def profile_figure(title: str, profiles: Mapping[str, Profile]) -> Figure:
    """Adjusted loss against sigma, one line per profile, the range that can occur shaded.

    The axis is logarithmic and ends where predicting 0 would do better by far: what explodes leaves it. A cross marks
    every noise level at which a sequence exploded.

    Args:
        title: The title of the figure.
        profiles: The lines by name, the one that the figure is about first.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(6, 3.6), layout="constrained")
    axis = canvas.subplots()
    every = np.concatenate([profile.loss for profile in profiles.values()])
    top = min(2 * float(every.max()), HIGHEST)
    bottom = max(float(every[every > 0].min(initial=top)) / 2, 1e-4 * top)
    axis.set(xlabel="noise level sigma", ylabel="adjusted loss", title=title, yscale="log")
    axis.set_ylim(bottom, max(top, 2 * bottom))
    first = next(iter(profiles.values()))
    for colour, (name, profile) in zip(itertools.cycle(COLOURS), profiles.items(), strict=False):
        style = "-" if profile is first else "--"
        axis.plot(profile.sigma, np.maximum(profile.loss, bottom), style, color=colour, label=name, linewidth=2)
        low, high = profile.loss - 2 * profile.error, profile.loss + 2 * profile.error
        axis.fill_between(profile.sigma, np.maximum(low, bottom), high, color=colour, alpha=0.25, linewidth=0)
        mark_exploded(axis, profile.sigma, profile.loss, profile.exploded, colour, size=6)
    _shade(axis, first.sigma[first.in_distribution])
    wild = [profile for profile in profiles.values() if profile.exploded.any()]
    if wild:
        label = f"at least 1 of {wild[0].sequences:,} sequences exploded\n(a loss above {EXPLODES} times the signal)"
        axis.plot([], [], EXPLODED, color=DARK, label=label)
    decimals(axis)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    return canvas


def _shade(axis: Axes, inside: Any) -> None:
    """The noise levels that can occur: a range, or single levels."""
    shade: Any = {"color": YELLOW, "zorder": 0}
    if len(inside) > 16:
        axis.axvspan(inside.min(), inside.max(), alpha=0.15, linewidth=0, label="in distribution", **shade)
        return
    for level in inside:
        label = "in distribution" if level == inside[0] else None
        axis.axvline(level, linewidth=4, alpha=0.5, label=label, **shade)
