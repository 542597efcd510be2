"""Figures as functions of results. Needs matplotlib: pip install 'ridgeformer[plot]'."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ridgeformer.errors import InputError
from ridgeformer.evaluation import Profile

__all__ = ["check_plot", "draw_profile"]

COLOURS = ("#0072B2", "#999999", "#D55E00", "#009E73")  # apart for colour-blind readers and in grey


def check_plot(path: Path) -> None:
    """Refuse what could not be drawn, before anything is computed for it."""
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise InputError(f"a plot must end in .png, .pdf or .svg; got {path.name!r}. Rename it.")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"a plot must go to a writable folder; {path.parent} is not. Choose another.")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError("plots need matplotlib, which is missing. Run pip install 'ridgeformer[plot]'.") from error


def draw_profile(path: Path, title: str, profiles: Mapping[str, Profile]) -> None:
    """Adjusted loss against sigma, one line a profile, the range that can occur shaded."""
    check_plot(path)
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(6, 3.6), layout="constrained")
    axis = canvas.subplots()
    for colour, (name, profile) in zip(COLOURS, profiles.items(), strict=False):
        axis.plot(profile.sigmas, profile.losses, color=colour, label=name, linewidth=2)
        low, high = profile.losses - 2 * profile.errors, profile.losses + 2 * profile.errors
        axis.fill_between(profile.sigmas, low, high, color=colour, alpha=0.25, linewidth=0)
    first = next(iter(profiles.values()))
    inside = first.sigmas[first.in_distribution]
    if len(inside) > 16:
        axis.axvspan(inside.min(), inside.max(), color="#F0E442", alpha=0.15, linewidth=0, label="in distribution")
    for level in inside if len(inside) <= 16 else ():
        label = "in distribution" if level == inside[0] else None
        axis.axvline(level, color="#F0E442", linewidth=4, alpha=0.5, zorder=0, label=label)
    axis.set(xlabel="noise level sigma", ylabel="adjusted loss", title=title)
    axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    try:
        canvas.savefig(path, dpi=160)
    except OSError as error:
        raise InputError(
            f"a plot must go to a writable file; {path} is not ({error.strerror}). Choose another."
        ) from error
