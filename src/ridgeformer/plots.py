"""Figures as functions of results. Needs matplotlib: pip install 'ridgeformer[plot]'."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.errors import InputError
from ridgeformer.evaluation import Profile
from ridgeformer.figures.style import EXPLODED, mark_exploded
from ridgeformer.files import write_whole
from ridgeformer.losses import EXPLODES, ROUNDING
from ridgeformer.training import Paper, Training

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["check_plot", "draw_profile", "draw_training", "profile_figure", "training_figure"]

COLOURS = ("#0072B2", "#999999", "#D55E00", "#009E73")  # apart for colour-blind readers and in grey
SHADES = (COLOURS[0], "#56B4E9", COLOURS[3], "#E69F00", "#CC79A7", "#999999", "#882255", "#44AA99", "#661100")
HIGHEST = 10.0  # of the axis of losses by noise level


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
    """Write `profile_figure` to a file.

    Args:
        path: The file, which ends in .png, .pdf or .svg.
        title: The title of the figure.
        profiles: The lines by name, the one that the figure is about first.

    Raises:
        InputError: The file cannot be written, or matplotlib is missing.
    """
    check_plot(path)
    _write(profile_figure(title, profiles), path)


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
    every = np.concatenate([profile.losses for profile in profiles.values()])
    top = min(2 * float(every.max()), HIGHEST)
    bottom = max(float(every[every > 0].min(initial=top)) / 2, 1e-4 * top)
    axis.set(xlabel="noise level sigma", ylabel="adjusted loss", title=title, yscale="log")
    axis.set_ylim(bottom, max(top, 2 * bottom))
    first = next(iter(profiles.values()))
    for colour, (name, profile) in zip(itertools.cycle(COLOURS), profiles.items(), strict=False):
        style = "-" if profile is first else "--"
        axis.plot(profile.sigmas, np.maximum(profile.losses, bottom), style, color=colour, label=name, linewidth=2)
        low, high = profile.losses - 2 * profile.errors, profile.losses + 2 * profile.errors
        axis.fill_between(profile.sigmas, np.maximum(low, bottom), high, color=colour, alpha=0.25, linewidth=0)
        mark_exploded(axis, profile.sigmas, profile.losses, profile.exploded, colour, size=6)
    _shade(axis, first.sigmas[first.in_distribution])
    wild = [profile for profile in profiles.values() if profile.exploded.any()]
    if wild:
        label = f"at least 1 of {wild[0].sequences:,} sequences exploded\n(a loss above {EXPLODES} d)"
        axis.plot([], [], EXPLODED, color="#555555", label=label)
    _plain_numbers(axis)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    return canvas


def _shade(axis: Axes, inside: Any) -> None:
    """The noise levels that can occur: a range, or single levels."""
    shade: Any = {"color": "#F0E442", "zorder": 0}
    if len(inside) > 16:
        axis.axvspan(inside.min(), inside.max(), alpha=0.15, linewidth=0, label="in distribution", **shade)
        return
    for level in inside:
        label = "in distribution" if level == inside[0] else None
        axis.axvline(level, linewidth=4, alpha=0.5, label=label, **shade)


def draw_training(path: Path, training: Training) -> None:
    """Write `training_figure` to a file.

    Args:
        path: The file, which ends in .png, .pdf or .svg.
        training: What training gave.

    Raises:
        InputError: The file cannot be written, or matplotlib is missing.
    """
    check_plot(path)
    _write(training_figure(training), path)


def training_figure(training: Training) -> Figure:
    """Training loss against sequences used, phase by phase, with the reported loss and the best achievable one.

    All of them are the same kind of loss, which the axis names. Our search trains on the adjusted loss. The paper's
    protocol trains on the unadjusted loss of sampled queries; the best achievable unadjusted loss is that of the Bayes
    predictor, the floor plus what knowing the noise level leaves unpredictable.

    Args:
        training: What training gave.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure

    result = training.result
    paper = isinstance(training.spec.protocol, Paper)
    kind = "unadjusted" if paper else "adjusted"
    # Whoever predicts, unadjusted - loss is, in expectation, the unadjusted loss of the oracle.
    reported, best = (
        (result.unadjusted, result.floor + (result.unadjusted - result.loss)) if paper else (result.loss, result.floor)
    )
    canvas = Figure(figsize=(7.5, 3.6), layout="constrained")
    axis = canvas.subplots()
    highest = training.spec.problem.dim  # twice the loss of predicting nothing
    phases = list(dict.fromkeys(phase for phase, _, _ in training.history))
    # A descent's loss is that of its own sequences, few in a race, and of those on which it fails.
    when = "while training" if paper else "at the end of each descent"
    axis.plot([], [], " ", label=f"{kind} loss {when}:")
    for phase, colour in zip(phases, itertools.cycle(SHADES), strict=False):
        # A start that overflowed has a loss of any size: it would leave the others no room.
        points = [(work / 1e6, loss) for name, work, loss in training.history if name == phase and loss <= highest]
        if not points:
            continue
        works, losses = zip(*points, strict=True)
        style = "o-" if phase in ("descent", "adam") else "o"  # others are ends of separate descents
        axis.plot(works, losses, style, markersize=4, linewidth=1.2, color=colour, label=phase)
    label = f"{kind} loss on fresh sequences: {reported:.4g}"
    axis.axhline(reported, color=COLOURS[2], linewidth=2, label=label)
    if best > ROUNDING:
        label = f"{kind} loss of the Bayes predictor: {best:.4g}" if paper else f"floor of the {kind} loss: {best:.4g}"
        axis.axhline(best, color="black", linewidth=1.2, linestyle="--", label=label)
    if left_out := sum(not loss <= highest for _, _, loss in training.history):
        axis.plot([], [], " ", label=f"{left_out} above {highest} not shown")
    axis.set(xlabel="sequences used, in millions", ylabel=f"{kind} loss", title=training.spec.describe(), yscale="log")
    _plain_numbers(axis)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return canvas


def _plain_numbers(axis: Axes) -> None:
    """A logarithmic axis with numbers such as 0.03, where matplotlib would write powers of ten."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Plain(LogFormatterSciNotation):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:.3g}" if super().__call__(x, pos) else ""

    axis.yaxis.set_major_formatter(Plain())
    axis.yaxis.set_minor_formatter(Plain(labelOnlyBase=False, minor_thresholds=(2, 0.8)))
    axis.tick_params(axis="y", which="both", labelsize=8)


def _write(canvas: Figure, path: Path) -> None:
    buffer = io.BytesIO()
    canvas.savefig(buffer, format=path.suffix[1:], dpi=160)
    write_whole(path, buffer.getvalue())
