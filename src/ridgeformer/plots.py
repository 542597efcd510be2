"""Figures as functions of results. Needs matplotlib: pip install 'ridgeformer[plot]'."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ridgeformer.errors import InputError
from ridgeformer.evaluation import Profile
from ridgeformer.training import Training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_plot", "draw_profile", "draw_training"]

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


HIGHEST = 10.0  # of the axis of losses by noise level


def draw_profile(path: Path, title: str, profiles: Mapping[str, Profile]) -> None:
    """Adjusted loss against sigma, one line a profile, the range that can occur shaded.

    The axis is logarithmic and ends where predicting 0 would do better by far: what explodes leaves it.
    """
    check_plot(path)
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    canvas = Figure(figsize=(6, 3.6), layout="constrained")
    axis = canvas.subplots()
    every = np.concatenate([profile.losses for profile in profiles.values()])
    top = min(2 * float(every.max()), HIGHEST)
    bottom = max(float(every[every > 0].min(initial=top)) / 2, 1e-4 * top)
    for colour, (name, profile) in zip(COLOURS, profiles.items(), strict=False):
        style = "-" if profile is next(iter(profiles.values())) else "--"
        axis.plot(profile.sigmas, np.maximum(profile.losses, bottom), style, color=colour, label=name, linewidth=2)
        low, high = profile.losses - 2 * profile.errors, profile.losses + 2 * profile.errors
        axis.fill_between(profile.sigmas, np.maximum(low, bottom), high, color=colour, alpha=0.25, linewidth=0)
    first = next(iter(profiles.values()))
    inside = first.sigmas[first.in_distribution]
    if len(inside) > 16:
        axis.axvspan(inside.min(), inside.max(), color="#F0E442", alpha=0.15, linewidth=0, label="in distribution")
    for level in inside if len(inside) <= 16 else ():
        label = "in distribution" if level == inside[0] else None
        axis.axvline(level, color="#F0E442", linewidth=4, alpha=0.5, zorder=0, label=label)
    axis.set(xlabel="noise level sigma", ylabel="adjusted loss", title=title, yscale="log")
    axis.set_ylim(bottom, max(top, 2 * bottom))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    _write(canvas, path)


def draw_training(path: Path, training: Training) -> None:
    """Training loss against sequences used, phase by phase, with the loss that was reported and the floor.

    The paper's protocol trains on the unadjusted loss, so its points lie above the line that they lead to.
    """
    check_plot(path)
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    canvas = Figure(figsize=(7.5, 3.6), layout="constrained")
    axis = canvas.subplots()
    highest = training.spec.problem.dim  # twice the loss of predicting nothing
    phases = list(dict.fromkeys(phase for phase, _, _ in training.history))
    shades = [COLOURS[0], "#56B4E9", COLOURS[3], "#E69F00", "#CC79A7", "#999999", "#882255", "#44AA99", "#661100"]
    for i, phase in enumerate(phases):
        # A start that overflowed has a loss of any size: it would leave the others no room.
        points = [(work / 1e6, loss) for name, work, loss in training.history if name == phase and loss <= highest]
        if not points:
            continue
        works, losses = zip(*points, strict=True)
        style = "o-" if phase in ("descent", "adam") else "o"  # others are ends of separate descents
        axis.plot(works, losses, style, markersize=4, linewidth=1.2, color=shades[i % len(shades)], label=phase)
    axis.axhline(training.loss, color=COLOURS[2], linewidth=2, label=f"on fresh sequences: {training.loss:.4g}")
    if np.isfinite(training.result.ratio):
        axis.axhline(training.floor, color="black", linewidth=1.2, linestyle="--", label=f"floor: {training.floor:.4g}")
    if left_out := sum(not loss <= highest for _, _, loss in training.history):
        axis.plot([], [], " ", label=f"{left_out} above {highest} not shown")
    # A descent's loss is that of its own sequences, few in a race, and of those on which it fails.
    each = "loss while training" if "adam" in phases else "loss at the end of each descent"
    axis.set(xlabel="sequences used, in millions", ylabel=each, title=training.spec.describe(), yscale="log")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    low, high = axis.get_ylim()
    if high < 8 * low:  # less than a decade: the minor ticks need labels
        axis.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axis.tick_params(axis="y", which="both", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    _write(canvas, path)


def _write(canvas: Figure, path: Path) -> None:
    try:
        canvas.savefig(path, dpi=160)
    except OSError as error:
        raise InputError(
            f"a plot must go to a writable file; {path} is not ({error.strerror}). Choose another."
        ) from error
