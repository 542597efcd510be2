"""Learning curves, and the losses of several runs."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ridgeformer.errors import refuse, shown
from ridgeformer.evaluation import evaluate
from ridgeformer.losses import rounding
from ridgeformer.plotting import style
from ridgeformer.plotting.style import Axes, Figure
from ridgeformer.predictors import ConstRR
from ridgeformer.training import Runs, Training

PHASES = (style.BLUE, style.SKY, style.GREEN, style.ORANGE, style.PINK, style.GREY, style.WINE, style.TEAL, style.BROWN)
WORDS = {
    "heats": "heats: all starts, few sequences",
    "race": "race: the better ones go on",
    "best": "best: the best of the race go on",
    "final": "final: the two best of these",
    "finish 1": "finish: the winner, in several turns,\nalso on sequences on which it fails",
}


def draw_training(training: Training, path: Path | str | None = None, *, title: str | None = None) -> Figure:
    """Draw the training loss against sequences used, phase by phase, with the reported loss and the best possible one.

    All of them are the same kind of loss, which the axis names. Our search trains on the adjusted loss. The paper's
    protocol trains on the unadjusted loss of sampled queries; the best achievable unadjusted loss is that of the Bayes
    predictor, the floor plus what knowing the noise level leaves unpredictable.

    Args:
        training: What training gave.
        path: A file to write to, which ends in .png, .pdf or .svg; None to write none.
        title: The title; None for what was trained.

    Returns:
        The figure.

    Raises:
        InputError: The name of the file has another ending.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = style.check_plot(path)
    result = training.result
    paper = not training.spec.protocol.adjusted
    kind = "unadjusted" if paper else "adjusted"
    # Whoever predicts, unadjusted - loss is, in expectation, the unadjusted loss of the oracle.
    reported, best = result.loss, result.floor
    if paper:
        reported, best = result.unadjusted, result.floor + (result.unadjusted - result.loss)
    canvas = style.blank(7.5, 3.6)
    axis = canvas.subplots()
    highest = training.spec.problem.signal  # twice the loss of predicting nothing
    # A descent's loss is that of its own sequences, few in a race, and of those on which it fails.
    trained_on = "at the end of each descent,\non the sequences trained on (lower than\non fresh ones, if they are few)"
    when = "while training" if paper else trained_on
    axis.plot([], [], " ", label=f"{kind} loss {when}:")
    _draw_phases(axis, training, highest)
    label = f"{kind} loss on fresh sequences: {reported:.4g}"
    axis.axhline(reported, color=style.VERMILION, linewidth=2, label=label)
    if best > rounding(training.result.signal):
        label = f"{kind} loss of the Bayes predictor: {best:.4g}" if paper else f"floor of the {kind} loss: {best:.4g}"
        axis.axhline(best, color="black", linewidth=1.2, linestyle="--", label=label)
    if left_out := sum(not loss <= highest for loss in training.history.loss):
        axis.plot([], [], " ", label=f"{left_out} above {highest:.3g} not shown")
    axis.set(xlabel="sequences used, in millions", ylabel=f"{kind} loss", yscale="log")
    style.decimals(axis)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    title = training.spec.describe() if title is None else title
    return style.finish(canvas, path, textwrap.fill(title, 80, break_on_hyphens=False))


def _draw_phases(axis: Axes, training: Training, highest: float) -> None:
    """Losses up to `highest` against sequences used, in one colour per phase."""
    history = training.history
    for phase, colour in zip(dict.fromkeys(history.phase), itertools.cycle(PHASES), strict=False):
        # A start that overflowed has a loss of any size: it would leave the others no room.
        shown = (np.array(history.phase) == phase) & (history.loss <= highest)
        if shown.any():
            look = "o-" if phase in ("descent", "adam") else "o"  # others are ends of separate descents
            style_of: Any = {"markersize": 4, "linewidth": 1.2, "color": colour, "label": WORDS.get(phase, phase)}
            axis.plot(history.sequences[shown] / 1e6, history.loss[shown], look, **style_of)


def _check_one_problem(rows: list[dict[str, Any]]) -> None:
    """Refuse rows of several problems, which have several floors, and no rows."""
    problems = sorted({row["problem"] for row in rows})
    if len(problems) != 1:
        received = f"{len(problems)} problems ({'; '.join(problems)})" if problems else "no finished run"
        remedy = "Select one by runs.of_problem(...), or by --problem on the command line."
        refuse("a picture of runs shows those of one problem", received, remedy)


def draw_runs(
    runs: Runs,
    path: Path | str | None = None,
    *,
    x: str = "layers",
    baselines: Mapping[str, float] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the losses of runs against a column, one line per family, with the spread over seeds and the floor.

    Args:
        runs: Finished runs on one problem.
        path: A file to write to, which ends in .png, .pdf or .svg; None to write none.
        x: The column of the horizontal axis, such as `layers` or `heads`.
        baselines: Losses to compare with, by name; None for that of ConstRR.
        title: The title; None for the problem.

    Returns:
        The figure. Lines are means over seeds; bands reach from the best to the worst seed. Hollow points are runs
        whose model is really a simpler or a shallower one.

    Raises:
        InputError: There is no finished run, the runs are of several problems, or there is no such column.
        MissingPackageError: matplotlib is not installed.
        StorageError: The file cannot be written.
    """
    path = style.check_plot(path)
    runs = runs.finished
    rows = runs.rows()
    _check_one_problem(rows)
    if x not in rows[0] or not isinstance(rows[0][x], int | float):
        refuse("x must be a column of numbers", shown(x), "Choose layers, heads or seed.")
    canvas = style.blank(6.4, 3.8)
    axis, kind = canvas.subplots(), "adjusted loss" if runs[0].result.adjusted else "loss"
    for family, colour in zip(dict.fromkeys(row["family"] for row in rows), itertools.cycle(style.LINES), strict=False):
        _draw_family(axis, [row for row in rows if row["family"] == family], x, colour)
    problem, floors = runs[0].spec.problem, [row["floor"] for row in rows if np.isfinite(row["floor"])]
    floor = float(np.mean(floors)) if floors else np.nan
    if floor > rounding(problem.signal):
        axis.axhline(floor, color="black", linewidth=1.2, linestyle="--", label=f"floor: {floor:.4g}")
    if baselines is None:
        baselines = {"ConstRR": evaluate(problem, ConstRR.tune(problem), sequences=20_000).loss}
    for (name, loss), look in zip(baselines.items(), itertools.cycle((":", "-.")), strict=False):
        if loss > rounding(problem.signal):
            axis.axhline(loss, color=style.GREY, linewidth=1.2, linestyle=look, label=f"{name}: {loss:.4g}")
    style.panel(axis, textwrap.fill(problem.label if title is None else title, 80), x, kind)
    axis.set_xticks(sorted({row[x] for row in rows}))
    axis.set_yscale("log")
    style.decimals(axis)
    canvas.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return style.finish(canvas, path)


def _draw_family(axis: Axes, rows: list[dict[str, Any]], x: str, colour: str) -> None:
    """The mean losses of the runs of one family, with a band over seeds and hollow points for simpler models."""
    family, places = rows[0]["family"], sorted({row[x] for row in rows})
    losses = [np.array([row["loss"] for row in rows if row[x] == place]) for place in places]
    axis.plot(places, [values.mean() for values in losses], "o-", markersize=4, color=colour, label=family)
    low, high = ([end(values) for values in losses] for end in (np.min, np.max))
    axis.fill_between(places, low, high, color=colour, alpha=0.2, linewidth=0)
    simpler = [row for row in rows if row["actual"] and not row["actual"].startswith(f"{family}, {row['layers']} ")]
    look: Any = {"markersize": 4, "color": colour, "markerfacecolor": "white"}
    axis.plot([row[x] for row in simpler], [row["loss"] for row in simpler], "o", **look)
