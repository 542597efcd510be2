"""How a model learns: learning curves with plateaus, trajectories of its weights, and an animation of both."""

from __future__ import annotations

import base64
import html
import io
import itertools
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, cast

import numpy as np

from ridgeformer.errors import kind_of, refuse
from ridgeformer.evaluation import compare
from ridgeformer.files import write_whole
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.plotting import style, weights
from ridgeformer.plotting.style import Axes, Figure
from ridgeformer.training import Training
from ridgeformer.validation import choice, integer, number
from ridgeformer.values import Array

QUANTITIES = {"loss": "unadjusted loss", "adjusted_loss": "adjusted loss", "squared_error": "squared error"}
PER_INCH = 14  # characters of a title
RISE = 100.0  # of the loss at the start: what is higher leaves the axis


def _named(runs: object) -> dict[str, Training]:
    """Descents by the names that the legend gives them."""
    if not isinstance(runs, Training | Mapping):
        advice = 'Pass {"rate 1e-3": run}, for example; the names are those of the legend.'
        refuse("learning curves are those of one training, or of several by name", kind_of(runs), advice)
    named = {runs.spec.describe_model(): runs} if isinstance(runs, Training) else dict(runs)
    if not named:
        refuse("a picture of learning curves needs at least one run", "none", "Pass a training, or several by name.")
    for run in named.values():
        _check_descent(run)
    return named


def draw_curves(
    runs: Training | Mapping[str, Training],
    path: Path | str | None = None,
    *,
    levels: Sequence[float] = (),
    quantity: str = "loss",
    title: str | None = None,
) -> Figure:
    """Draw the loss against the step on logarithmic axes, one line per descent, with levels as dashed lines.

    Args:
        runs: A descent, or several by name: trainings by `GradientDescent`, `SGD`, `Adam` or `GradientFlow`.
        path: A file to write to, which ends in .png, .pdf or .svg; None to write none.
        levels: Values to compare with, such as plateaus that a theory predicts.
        quantity: What to draw: `loss`, `adjusted_loss`, or `squared_error`, which is twice the unadjusted loss.
        title: The title; None for the problem.

    Returns:
        The figure. Its horizontal axis is the step, or the time if gradient flow is among the runs. What rises to more
        than 100 times the value at the start leaves the vertical axis: a triangle marks where, and the legend says so.

    Raises:
        InputError: There is no run, a run is not a descent, a level is not positive, or the quantity is none of these.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = style.check_plot(path)
    choice("the quantity", quantity, QUANTITIES)
    named = _named(runs)
    for level in levels:
        if not 0 < number("a level", level) < float("inf"):
            refuse("a level must be positive and finite, because the axis is logarithmic", level, "Leave it out.")
    by_time = any(_is_flow(run) for run in named.values())
    canvas, courses = style.blank(6.4, 3.8), list[tuple[Array, Array, Any]]()
    axis: Axes = canvas.subplots()
    doubled = 2 if quantity == "squared_error" else 1
    recorded = "adjusted_loss" if quantity == "adjusted_loss" else "loss"
    values = {name: doubled * np.asarray(getattr(run.history, recorded)) for name, run in named.items()}
    highest = max([RISE * float(course[0]) for course in values.values()] + [2 * level for level in levels])
    for (name, run), colour in zip(named.items(), itertools.cycle(style.LINES), strict=False):
        x = run.history.time if by_time else run.history.step.astype(np.float64)
        label = name + style.leaves(values[name], highest)
        courses.append((x, values[name], colour))
        axis.plot(x[1:], values[name][1:], color=colour, linewidth=1.6, label=label)
        _draw_remarks(axis, run, x, values[name], colour, doubled)
    for level in levels:
        axis.axhline(level, color=style.DARK, linewidth=0.8, linestyle="--", zorder=1)
        look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8, "color": style.DARK}
        axis.annotate(f"{level:.3g}", (1.0, level), (4, 0), ("axes fraction", "data"), **look)
    first = next(iter(named.values()))
    mixed = by_time and not all(_is_flow(run) for run in named.values())
    across = "time; for descents, the sum of the rates so far, after clipping" if mixed else first.spec.protocol.axis
    title = first.spec.problem.label if title is None else title
    style.panel(axis, textwrap.fill(title, 80), across, QUANTITIES[quantity])
    axis.set(xscale="log", yscale="log")
    style.limit(axis, courses, highest)
    style.decimals(axis)
    canvas.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return style.finish(canvas, path)


def _draw_remarks(axis: Axes, run: Training, x: Array, values: Array, colour: str, doubled: int) -> None:
    """The loss on fresh sequences beside that on a fixed sample, and marks where steps were clipped."""
    history = run.history
    fresh = values + (history.fresh_loss - history.loss) * doubled
    if np.isfinite(fresh).any():
        axis.plot(x[1:], fresh[1:], color=colour, linewidth=1.2, linestyle=":", label="on fresh sequences")
    clipped = np.flatnonzero(np.diff(history.clipped) > 0) + 1
    if len(clipped):
        label = f"{history.clipped[-1]:,.0f} clipped steps"
        axis.plot(x[clipped], values[clipped], "|", color=colour, markersize=5, label=label)


def draw_trajectories(training: Training, path: Path | str | None = None, *, title: str | None = None) -> Figure:
    """Draw how the weights of every layer move: omegas where all directions are treated alike, else singular values.

    Of a looped model, the layers of one repetition are drawn.
    Diag and GD++ have four omegas. Channels have those of x and y, and the norms of all other products of an entry of P
    and one of Q, by what is changed (vectors or scalars) and where the change comes from. Of other families, the
    singular values are those of W with w_hat = W a, if the layer were alone.

    Args:
        training: A descent with at least two snapshots.
        path: A file to write to, which ends in .png, .pdf or .svg; None to write none.
        title: The title; None for the model.

    Returns:
        The figure, one panel per layer. The horizontal axis is the step; for gradient flow it is the time.

    Raises:
        InputError: There are fewer than two snapshots.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = style.check_plot(path)
    places, layers = _snapshots(training), weights.layers(training.model)
    tracks = [[weights.numbers(shot.model, layer) for shot in training.snapshots] for layer in range(layers)]
    columns = min(layers, 4)
    width = 2.9 + 2.2 * columns
    canvas = style.blank(width, 0.8 + 2.3 * -(-layers // columns))
    axes = canvas.subplots(-(-layers // columns), columns, sharex=True, sharey=True, squeeze=False).ravel()
    for layer, axis in enumerate(axes[:layers]):
        for label, colour in zip(tracks[layer][0], itertools.cycle(style.LINES), strict=False):
            look, course = "o--" if "norm" in label else "o-", [numbers[label] for numbers in tracks[layer]]
            axis.plot(places, course, look, markersize=2.5, color=colour, label=label)
        lowest = layer + columns >= layers  # nothing is drawn below it
        style.panel(axis, f"layer {layer + 1}" if layers > 1 else "", training.spec.protocol.axis if lowest else "")
        axis.tick_params(labelbottom=lowest)
        if layer % columns == 0:
            axis.set_ylabel("omega" if weights.has_omegas(training.model) else "singular value of W")
        if _is_flow(training):
            least, most = places[places > 0][0], places[-1]
            axis.set_xscale("symlog", linthresh=least)
            axis.set_xticks([0, *10.0 ** np.arange(np.ceil(np.log10(least)), np.log10(most) + 1e-9)])
    for axis in axes[layers:]:
        axis.set_visible(False)
    canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=7)
    what = textwrap.fill(weights.meaning(training.model), int(PER_INCH * width))
    title = training.spec.describe_model() if title is None else title
    return style.finish(canvas, path, f"{title}\n{what}", 8)


def draw_animation(training: Training, path: Path | str, *, milliseconds: int = 250, sequences: int = 2000) -> None:
    """Write an animation of a model that learns: learning curve, profile and weights at every snapshot.

    Args:
        training: A descent with at least two snapshots.
        path: The file: .gif, or .html for a page with a slider that needs nothing else.
        milliseconds: How long a frame is shown.
        sequences: Sequences per noise level of the profiles.

    Raises:
        InputError: The name has another ending, or there are fewer than two snapshots.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = cast("Path", style.check_plot(path, style.MOVING))
    integer("milliseconds", milliseconds, 10, 60_000)
    frames = _frames(training, sequences)
    content = _gif(frames, milliseconds) if path.suffix == ".gif" else _page(frames, milliseconds, training)
    write_whole(path, content)


def _frames(training: Training, sequences: int) -> list[bytes]:
    """A PNG per snapshot. All frames have the same limits, so that nothing but the model moves."""
    places = _snapshots(training)
    models = {str(i): shot.model for i, shot in enumerate(training.snapshots)}
    profiles = compare(training.spec.problem, models, "sigma", sequences=sequences)
    nothing = training.spec.problem.signal / 2
    lowest = float(profiles.loss.min())
    drawn = [weights.picture(shot.model) for shot in training.snapshots]
    limit = max(float(np.abs(frame).max()) for frame in drawn) or 1.0
    pictures = []
    for place, level, weight in zip(places.tolist(), profiles.loss, drawn, strict=True):
        canvas = style.blank(9.6, 3.0)
        left, middle, right = canvas.subplots(1, 3)
        _curve_until(left, training, place)
        middle.plot(profiles.axes["sigma"], level, color=style.BLUE)
        style.panel(middle, "profile", "noise level sigma", "adjusted loss")
        middle.set(yscale="log", ylim=(max(0.7 * lowest, 1e-6 * nothing), 3 * nothing))
        style.decimals(middle)
        image = right.imshow(weight, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
        _name_weights(right, training.model)
        canvas.colorbar(image, ax=right)
        pictures.append(style.content(canvas, "png", 100))
    return pictures


def _curve_until(axis: Axes, training: Training, place: float) -> None:
    """The learning curve, with a point at one step, or at one time of gradient flow."""
    history, flow = training.history, _is_flow(training)
    x = history.time if flow else history.step.astype(np.float64)
    at, least = int(np.argmin(np.abs(x - place))), x[1] / 2  # the start has a place left of all others
    highest = RISE * float(history.loss[0])
    axis.plot(np.maximum(x, least), history.loss, color=style.GREY)
    axis.plot(max(x[at], least), min(history.loss[at], highest), "o", color=style.VERMILION, clip_on=False)
    title = f"time {place:.3g}" if flow else f"step {place:,.0f}"
    title += style.leaves(history.loss, highest).replace(" (", "\n(")
    style.panel(axis, title, training.spec.protocol.axis, "unadjusted loss")
    axis.set(xscale="log", yscale="log")
    style.limit(axis, [(x, history.loss, style.GREY)], highest)
    style.decimals(axis)


def _name_weights(axis: Axes, model: LinearTransformer) -> None:
    axis.set_title(textwrap.fill(weights.meaning(model), 42), fontsize=8)
    layers = np.arange(weights.layers(model))
    shown = layers[:: -(-len(layers) // 10)]  # numbers of more would overlap
    if weights.has_omegas(model):
        names = [label.split()[1] for label in weights.numbers(model, 0)]  # such as xx
        axis.set_xticks(range(len(names)), names)
        axis.set_yticks(shown, [str(layer + 1) for layer in shown])
        axis.set_ylabel("layer")
    else:
        axis.vlines(model.dim * layers[1:] - 0.5, *axis.get_ylim(), color=style.DARK, linewidth=0.8)
        axis.set_xticks(model.dim * (shown + 0.5) - 0.5, [str(layer + 1) for layer in shown])
        axis.set(xlabel="layer", yticks=[])


def _gif(frames: list[bytes], milliseconds: int) -> bytes:
    from PIL import Image

    images = [Image.open(io.BytesIO(frame)).convert("P", palette=Image.Palette.ADAPTIVE) for frame in frames]
    buffer, how = io.BytesIO(), {"save_all": True, "duration": milliseconds, "loop": 0, "optimize": False}
    images[0].save(buffer, format="GIF", append_images=images[1:], **how)
    return buffer.getvalue()


def _page(frames: list[bytes], milliseconds: int, training: Training) -> bytes:
    """A page of its own: the frames, a slider and a button."""
    pictures = json.dumps([f"data:image/png;base64,{base64.b64encode(frame).decode()}" for frame in frames])
    title = html.escape(training.spec.describe())
    page = Template((Path(__file__).parent / "animation.html").read_text(encoding="utf-8"))
    values = {"title": title, "last": len(frames) - 1, "pictures": pictures, "milliseconds": milliseconds}
    return page.substitute(values).encode()


def _is_flow(training: Training) -> bool:
    return training.spec.protocol.axis == "time"


def _snapshots(training: Training) -> Array:
    """The steps of the snapshots, or their times for gradient flow; there must be two."""
    _check_descent(training)
    if len(training.snapshots) < 2:
        rule, count = "a picture of a course needs at least two snapshots", f"{len(training.snapshots)}"
        if (asked := len(training.spec.protocol.kept())) > 1:
            refuse(rule, f"{count} of {asked}, because the descent ended early", f"The run says: {training.message}.")
        refuse(rule, count, "Train with snapshots=20, for example.")
    steps, history = np.array([shot.step for shot in training.snapshots], np.float64), training.history
    return np.asarray(history.time[np.searchsorted(history.step, steps)]) if _is_flow(training) else steps


def _check_descent(training: Training) -> None:
    if "table" not in training.course:
        received = f"a run of {type(training.spec.protocol).__name__}, which records no steps of one model"
        remedy = (
            "Train by GradientDescent, SGD, Adam or GradientFlow, or use ridgeformer.plotting.training.draw_training."
        )
        refuse("this picture is of a descent, whose course is recorded", received, remedy)


DRAWN: dict[str, Callable[..., Any]] = {
    "curve": draw_curves,
    "trajectories": draw_trajectories,
    "animation": draw_animation,
}
