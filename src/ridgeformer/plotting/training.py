"""Learning curves: training loss against the sequences used."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeformer.losses import ROUNDING
from ridgeformer.plotting.style import (
    BLUE,
    BROWN,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    TEAL,
    VERMILION,
    WINE,
    check_plot,
    decimals,
    write,
)
from ridgeformer.training import Paper, Training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_training", "training_figure"]

PHASES = (BLUE, SKY, GREEN, ORANGE, PINK, GREY, WINE, TEAL, BROWN)
WORDS = {
    "race": "race: all starts, few sequences",
    "best": "best: the best of the race go on",
    "final": "final: the two best of these",
    "finish 1": "finish: the winner, in several turns,\nalso on sequences on which it fails",
}


def draw_training(path: Path | str, training: Training) -> None:
    """Write `training_figure` to a file.

    Args:
        path: The file, which ends in .png, .pdf or .svg.
        training: What training gave.

    Raises:
        InputError: The name has another ending.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = check_plot(path)
    write(training_figure(training), path)


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
    highest = training.spec.problem.signal  # twice the loss of predicting nothing
    phases = list(dict.fromkeys(training.history.phase))
    # A descent's loss is that of its own sequences, few in a race, and of those on which it fails.
    when = (
        "while training"
        if paper
        else "at the end of each descent,\non the sequences trained on (lower than\non fresh ones, if they are few)"
    )
    axis.plot([], [], " ", label=f"{kind} loss {when}:")
    for phase, colour in zip(phases, itertools.cycle(PHASES), strict=False):
        # A start that overflowed has a loss of any size: it would leave the others no room.
        points = [
            (work / 1e6, loss) for name, work, loss, _ in training.history.points if name == phase and loss <= highest
        ]
        if not points:
            continue
        works, losses = zip(*points, strict=True)
        style = "o-" if phase in ("descent", "adam") else "o"  # others are ends of separate descents
        axis.plot(works, losses, style, markersize=4, linewidth=1.2, color=colour, label=WORDS.get(phase, phase))
    label = f"{kind} loss on fresh sequences: {reported:.4g}"
    axis.axhline(reported, color=VERMILION, linewidth=2, label=label)
    if best > ROUNDING:
        label = f"{kind} loss of the Bayes predictor: {best:.4g}" if paper else f"floor of the {kind} loss: {best:.4g}"
        axis.axhline(best, color="black", linewidth=1.2, linestyle="--", label=label)
    if left_out := sum(not loss <= highest for loss in training.history.loss):
        axis.plot([], [], " ", label=f"{left_out} above {highest:.3g} not shown")
    axis.set(xlabel="sequences used, in millions", ylabel=f"{kind} loss", yscale="log")
    canvas.suptitle(textwrap.fill(training.spec.describe(), 80, break_on_hyphens=False), fontsize=11)
    decimals(axis)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return canvas
