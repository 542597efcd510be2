"""How a model learns: learning curves with plateaus, trajectories of its weights, and an animation of both."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import InputError, refuse
from ridgeformer.evaluation import profile
from ridgeformer.files import write_whole
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.plotting.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    VERMILION,
    blank,
    check_plot,
    decimals,
    panel,
    write,
)
from ridgeformer.training import Training
from ridgeformer.validation import choice, integer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "alone",
    "curves_figure",
    "draw_animation",
    "draw_curves",
    "draw_trajectories",
    "trajectories_figure",
]

Array = NDArray[np.float64]
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, SKY, PINK, GREY, BLACK)
QUANTITIES = {"loss": "unadjusted loss", "adjusted_loss": "adjusted loss", "squared_error": "squared error"}
OMEGAS = ("xx", "xy", "yx", "yy")
MOVING = (".gif", ".html")


def draw_curves(
    path: Path | str, runs: Training | Mapping[str, Training], levels: Sequence[float] = (), quantity: str = "loss"
) -> None:
    """Write `curves_figure` to a file.

    Args:
        path: The file, which ends in .png, .pdf or .svg.
        runs: As for `curves_figure`.
        levels: As for `curves_figure`.
        quantity: As for `curves_figure`.

    Raises:
        InputError: The file cannot be written, or matplotlib is missing.
    """
    path = check_plot(path)
    write(curves_figure(runs, levels, quantity), path)


def curves_figure(
    runs: Training | Mapping[str, Training], levels: Sequence[float] = (), quantity: str = "loss"
) -> Figure:
    """Loss against the step on logarithmic axes, one line per descent, with levels as dashed lines.

    Args:
        runs: A descent, or several by name: trainings by `GradientDescent`, `SGD`, `Adam` or `GradientFlow`.
        levels: Values to compare with, such as plateaus that a theory predicts.
        quantity: What to draw: `loss`, `adjusted_loss`, or `squared_error`, which is twice the unadjusted loss.

    Returns:
        The figure. Its horizontal axis is the step, or the time if gradient flow is among the runs.

    Raises:
        InputError: A run is not a descent, or the quantity is none of these.
    """
    choice("the quantity", quantity, QUANTITIES)
    named = {runs.spec.describe_model(): runs} if isinstance(runs, Training) else dict(runs)
    for run in named.values():
        _check_descent(run)
    by_time = any("GradientFlow" in run.history.phase for run in named.values())
    canvas = blank(6.4, 3.6)
    axis: Axes = canvas.subplots()
    for (name, run), colour in zip(named.items(), _cycle(len(named)), strict=True):
        x = run.history.time if by_time else run.history.step.astype(np.float64)
        axis.plot(x[1:], _values(run, quantity)[1:], color=colour, linewidth=1.6, label=name)
    for level in levels:
        axis.axhline(level, color="#555555", linewidth=0.8, linestyle="--", zorder=1)
        axis.annotate(
            f"{level:.3g}", (1.0, level), (4, 0), ("axes fraction", "data"), textcoords="offset points",
            va="center", fontsize=8, color="#555555",
        )  # fmt: skip
    first = next(iter(named.values()))
    panel(axis, str(first.spec.problem), "time, the sum of all rates" if by_time else "step", QUANTITIES[quantity])
    axis.set(xscale="log", yscale="log")
    decimals(axis)
    axis.legend(loc="lower left", frameon=False, fontsize=8)
    return canvas


def draw_trajectories(path: Path | str, training: Training) -> None:
    """Write `trajectories_figure` to a file.

    Args:
        path: The file, which ends in .png, .pdf or .svg.
        training: As for `trajectories_figure`.

    Raises:
        InputError: The file cannot be written, or matplotlib is missing.
    """
    path = check_plot(path)
    write(trajectories_figure(training), path)


def trajectories_figure(training: Training) -> Figure:
    """How the weights of every layer move: the omegas of Diag and GD++, and singular values of other families.

    The singular values are those of W with w_hat = W a, if the layer were alone.

    Args:
        training: A descent with at least two snapshots.

    Returns:
        The figure, one panel per layer.

    Raises:
        InputError: There are fewer than two snapshots.
    """
    steps, layers = _snapshots(training), training.model.layers
    tracks = np.array([[_numbers(shot.model, layer) for layer in range(layers)] for shot in training.snapshots])
    omegas = _has_omegas(training.model)
    canvas = blank(1.5 + 2.2 * min(layers, 4), 0.4 + 2.3 * -(-layers // 4))
    axes = canvas.subplots(-(-layers // 4), min(layers, 4), sharex=True, sharey=True, squeeze=False).ravel()
    for layer, axis in enumerate(axes[:layers]):
        for k, colour in zip(range(tracks.shape[2]), _cycle(tracks.shape[2]), strict=True):
            label = f"omega {OMEGAS[k]}" if omegas else f"singular value {k + 1}"
            axis.plot(steps, tracks[:, layer, k], "o-", markersize=2.5, color=colour, label=label)
        panel(axis, f"layer {layer + 1}" if layers > 1 else training.spec.describe_model(), "step")
    for axis in axes[layers:]:
        axis.set_visible(False)
    axes[0].set_ylabel("omega" if omegas else "singular values of W")
    axes[0].legend(frameon=False, fontsize=7)
    return canvas


def draw_animation(path: Path | str, training: Training, *, milliseconds: int = 250, sequences: int = 2000) -> None:
    """Write an animation of a model that learns: learning curve, profile and weights at every snapshot.

    Args:
        path: The file: .gif, or .html for a page with a slider that needs nothing else.
        training: A descent with at least two snapshots.
        milliseconds: How long a frame is shown.
        sequences: Sequences per noise level of the profiles.

    Raises:
        InputError: The name has another ending, or there are fewer than two snapshots.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = Path(path)
    if path.suffix not in MOVING:
        raise InputError(f"the name of an animation must end in .gif or .html; got {path.name!r}. Choose another name.")
    check_plot(path.with_suffix(".png"))
    integer("milliseconds", milliseconds, 10, 60_000)
    frames = _frames(training, sequences)
    content = _gif(frames, milliseconds) if path.suffix == ".gif" else _page(frames, milliseconds, training)
    write_whole(path, content)


def alone(model: LinearTransformer, layer: int) -> Array:
    """Return W with w_hat = W a, if one layer were alone: what it makes of a = sum y x.

    Args:
        model: The model.
        layer: The layer, from 0.

    Returns:
        W, [d, d].
    """
    P, Q = (np.asarray(value[layer], np.float64) for value in model.family.dense(model.dim))
    d, rows = model.dim, P[:, -1]
    moved = np.einsum("h,hji->ij", rows[:, -1], Q[:, :d, :d]) + np.einsum("hj,hi->ij", rows[:, :d], Q[:, -1, :d])
    return np.asarray(-moved)


def _frames(training: Training, sequences: int) -> list[bytes]:
    """A PNG per snapshot. All frames have the same limits, so that nothing but the model moves."""
    steps, history = _snapshots(training), training.history
    levels = [profile(shot.model, training.spec.problem, sequences=sequences) for shot in training.snapshots]
    nothing = training.spec.problem.signal / 2
    lowest = min(float(found.loss.min()) for found in levels)
    weights = [_shown_weights(shot.model) for shot in training.snapshots]
    limit = max(float(np.abs(found).max()) for found in weights) or 1.0
    found = []
    for step, level, weight in zip(steps.tolist(), levels, weights, strict=True):
        canvas = blank(9.0, 3.0)
        left, middle, right = canvas.subplots(1, 3)
        x = np.maximum(history.step, 0.5)
        left.plot(x, history.loss, color=GREY)
        at = int(np.argmin(np.abs(history.step - step)))
        left.plot(x[at], history.loss[at], "o", color=VERMILION)
        panel(left, f"step {step:,}", "step", "loss")
        left.set(xscale="log", yscale="log")
        decimals(left)
        middle.plot(level.sigma, level.loss, color=BLUE)
        panel(middle, "profile", "noise level sigma", "adjusted loss")
        middle.set(yscale="log", ylim=(max(0.7 * lowest, 1e-6 * nothing), 3 * nothing))
        decimals(middle)
        image = right.imshow(weight, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
        _name_weights(right, training.model)
        canvas.colorbar(image, ax=right)
        buffer = io.BytesIO()
        canvas.savefig(buffer, format="png", dpi=100)
        found.append(buffer.getvalue())
    return found


def _shown_weights(model: LinearTransformer) -> Array:
    """The omegas, one row per layer; of other families W of every layer, side by side."""
    if _has_omegas(model):
        return np.array([_numbers(model, layer) for layer in range(model.layers)])
    return np.concatenate([alone(model, layer) for layer in range(model.layers)], 1)


def _name_weights(axis: Axes, model: LinearTransformer) -> None:
    if _has_omegas(model):
        axis.set(title="omegas", ylabel="layer", xticks=range(4), yticks=range(model.layers))
        axis.set_xticklabels(OMEGAS)
        axis.set_yticklabels([str(layer + 1) for layer in range(model.layers)])
    else:
        several = " of every layer" if model.layers > 1 else ""
        axis.set(title=f"W{several}: w_hat = W a", xticks=[], yticks=[])


def _gif(frames: list[bytes], milliseconds: int) -> bytes:
    from PIL import Image

    images = [Image.open(io.BytesIO(frame)).convert("P", palette=Image.Palette.ADAPTIVE) for frame in frames]
    buffer = io.BytesIO()
    images[0].save(
        buffer, format="GIF", save_all=True, append_images=images[1:], duration=milliseconds, loop=0, optimize=False
    )
    return buffer.getvalue()


def _page(frames: list[bytes], milliseconds: int, training: Training) -> bytes:
    """A page of its own: the frames, a slider and a button."""
    pictures = json.dumps([f"data:image/png;base64,{base64.b64encode(frame).decode()}" for frame in frames])
    title = training.spec.describe()
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body {{ font-family: sans-serif; max-width: 920px; margin: 2em auto }} img {{ width: 100% }}
input {{ width: 80% }}</style>
<h1 style="font-size: 1.1em">{title}</h1>
<img id="frame" alt="Learning curve, profile and weights at one step">
<p><button id="play">Play</button> <input id="at" type="range" min="0" max="{len(frames) - 1}" value="0"
aria-label="Frame"></p>
<script>
const frames = {pictures}, image = document.getElementById("frame"), at = document.getElementById("at");
let timer = null;
function show() {{ image.src = frames[at.value]; }}
function next() {{ at.value = (Number(at.value) + 1) % frames.length; show(); }}
document.getElementById("play").onclick = (event) => {{
  if (timer) {{ clearInterval(timer); timer = null; }} else timer = setInterval(next, {milliseconds});
  event.target.textContent = timer ? "Pause" : "Play";
}};
at.oninput = show;
show();
</script></html>
""".encode()


def _numbers(model: LinearTransformer, layer: int) -> Array:
    """The four omegas of a layer, or its singular values."""
    if _has_omegas(model):
        return np.array(model.kernel[0][layer], np.float64).ravel()
    return np.asarray(np.linalg.svd(alone(model, layer), compute_uv=False))


def _has_omegas(model: LinearTransformer) -> bool:
    return len(model.kernel) == 1


def _values(run: Training, quantity: str) -> Array:
    if quantity == "squared_error":
        return 2 * run.history.loss
    return np.asarray(getattr(run.history, quantity))


def _snapshots(training: Training) -> Array:
    """The steps of the snapshots, of which there must be two."""
    _check_descent(training)
    if len(training.snapshots) < 2:
        rule, given = "a picture of a course needs at least two snapshots", f"{len(training.snapshots)}"
        refuse(rule, given, "Train with snapshots=20, for example.")
    return np.array([shot.step for shot in training.snapshots])


def _check_descent(training: Training) -> None:
    if "table" not in training.course:
        refuse(
            "this picture is of a descent, whose course is recorded",
            f"a run of {type(training.spec.protocol).__name__}, which records no steps of one model",
            "Train by GradientDescent, SGD, Adam or GradientFlow, or use ridgeformer.plotting.training.draw_training.",
        )


def _cycle(count: int) -> list[str]:
    return [COLOURS[k % len(COLOURS)] for k in range(count)]


DRAWN: dict[str, Callable[..., Any]] = {
    "curve": draw_curves,
    "trajectories": draw_trajectories,
    "animation": draw_animation,
}
