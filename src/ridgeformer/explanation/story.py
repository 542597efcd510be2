"""What the layers do, in words, by stated rules, each sentence with the numbers that it rests on.

A layer

- *estimates the noise* if it is the first after which the sum of squared labels knows sigma nearly as well as the
  residual of least squares does: 90 % of the way from the raw labels' rank correlation to that one's;
- *solves* if the error of direction falls by a third or more;
- *shrinks* if the error of shrinkage falls by a quarter or more, and by at least a twentieth of its largest value; how:
  by its factor, if that differs by 10 % or more between the least and the largest noise level, by its step, if the
  share of the way to least squares that it goes differs by a fifth of it and by 5 % or more, or by both;
- *loads the momentum* if it keeps less than half of u, |1 - beta| < 1/2, and the part of the next layer's update that
  is due to u is, squared, a quarter of the whole or more;
- *resizes w* if the error of size falls by half or more, and by at least a tenth of the loss before;
- *conditions x* if the median condition number falls by a quarter or more.

A layer of no such kind *prepares*, if the loss without it is more than 5 % higher, and else does *nothing that shows*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer.explanation.behaviour import Behaviour, ByNoise

__all__ = ["Role", "roles", "summary"]

Array = NDArray[np.float64]
ESTIMATES = 0.9  # of the way from what raw labels tell to what the residual of least squares tells
SOLVES = 1 / 3  # of the error of direction
FALL = 0.25  # of the error of shrinkage or the condition number
NOTABLE = 0.05  # of the largest error of shrinkage
SIZE, SIZE_NOTABLE = 0.5, 0.1
KEPT, LOADED = 0.5, 0.25  # of u; of the next layer's update, squared
SINGULAR = 1e12  # with n < d, S has eigenvalues that are 0 but for rounding
BY_FACTOR, BY_STEP, STEP_NOTABLE = 0.1, 0.2, 0.05
FURTHEST = 2.0  # times the distance to least squares: a layer that moves w further does something else than a step
USES = 0.05  # of what swapping the noise in all layers moves
NEEDED = 1.05  # the loss without a layer over that with it
NAMES = {
    "conditions": "improves the conditioning of x",
    "estimates": "estimates the noise level",
    "solves": "solves the regression",
    "shrinks": "shrinks the solution",
    "loads": "loads the momentum u",
    "resizes": "resizes w",
    "prepares": "prepares later layers",
    "idle": "has no visible effect",
}


class Role(NamedTuple):
    """One thing that a layer does.

    Attributes:
        layer: The layer, from 1.
        kind: What it does, a key of `NAMES`.
        sentence: What it does, in words with its numbers.
    """

    layer: int
    kind: str
    sentence: str


def roles(found: Behaviour, noise: ByNoise, removed: Array, goal: str = "ridge", further: bool = False) -> list[Role]:
    """Say what each layer does.

    Args:
        found: Averages over the problem's noise.
        noise: Averages at fixed noise levels.
        removed: The loss without each layer over the loss of the whole model, [L].
        goal: What the solution is compared with, in words.
        further: Whether tokens have further coordinates. A layer can then take w from them, so that its factor and its
            step do not describe it.

    Returns:
        One role or more per layer, in order.
    """
    told = []
    for layer in range(len(removed)):
        mixed = further and layer > 0  # further coordinates are empty before the first layer
        here = [
            Role(layer + 1, kind, f"Layer {layer + 1} {NAMES[kind]}: {text}.")
            for kind, text in (
                ("conditions", _conditions(found, layer)),
                ("estimates", _estimates(found, layer)),
                ("solves", _solves(found, noise, layer, mixed)),
                ("shrinks", _shrinks(found, noise, layer, goal, mixed)),
                ("loads", _loads(found, layer)),
                ("resizes", _resizes(found, layer)),
            )
            if text
        ]
        told += here or [_otherwise(found, layer, float(removed[layer]))]
    return told


def summary(found: Behaviour, told: list[Role]) -> list[str]:
    """Say which layers estimate the noise, which ones solve, which ones shrink, and where the noise acts.

    Args:
        found: Averages over the problem's noise.
        told: The roles of the layers.

    Returns:
        Sentences.
    """
    by_kind = {kind: [role.layer for role in told if role.kind == kind] for kind in NAMES}
    lines = []
    if not found.has_levels:
        lines.append("The sequences have no noise levels, so nothing is said about their estimation.")
    elif np.isnan(found.known[0]):
        lines.append("The noise level is always the same, so there is nothing to estimate.")
    elif np.isnan(found.knowable):
        lines.append("With n <= d least squares leaves no residuals, so nothing shows the noise level.")
    elif by_kind["estimates"]:
        last = by_kind["estimates"] == [len(found.known) - 1]
        unused = " It is the last layer, so that no later layer can use the estimate." if last else ""
        lines.append(f"The noise level is estimated by {_layers(by_kind['estimates'])}.{unused}")
    else:
        best = int(np.nanargmax(found.known))
        lines.append(
            "No layer estimates the noise level: the rank correlation of sigma with the sum of squared labels is at "
            f"most {found.known[best]:.3f} (after layer {best}). With the residuals of least squares it is "
            f"{found.knowable:.3f}."
        )
    solved, shrunk = "The regression is solved by", "The solution is shrunk towards zero by"
    lines.append(_most(by_kind["solves"], found.direction, solved, "No layer solves the regression", "direction"))
    if found.has_levels:
        lines.append(_most(by_kind["shrinks"], found.shrinkage, shrunk, "No layer shrinks the solution", "shrinkage"))
    lines.append(_acts(found))
    return lines


def _acts(found: Behaviour) -> str:
    if found.moved[-1] < 1e-12:
        return (
            "The noise level does not influence the prediction: w stays the same when sequences exchange their "
            "residual sums of squares."
        )
    best = (
        f" (that of the Bayes predictor by {100 * found.moved_bayes:.2g} %)" if np.isfinite(found.moved_bayes) else ""
    )
    changes = (
        "when sequences exchange their residual sums of squares, w changes by "
        f"{100 * found.moved[-1]:.2g} % of its mean square{best}"
    )
    if found.hardly_moved:
        return f"The noise level hardly influences the prediction: {changes}."
    ordered = [int(i) for i in np.argsort(-found.through) if found.through[i] >= USES]
    parts = [f"{100 * found.through[i]:.0f} % in layer {i + 1}" for i in ordered]
    alone = f"causes this share of the change: {', '.join(parts)}" if parts else f"causes less than {USES:.0%} of it"
    above = " (above 100 %, other layers cancel a part of it)" if (found.through > 1).any() else ""
    return (
        f"The noise level influences the prediction: {changes}. Exchanging them in the attention of one layer only "
        f"{alone}{above}."
    )


def _conditions(found: Behaviour, layer: int) -> str:
    before, after = found.condition[layer : layer + 2]
    if not before < SINGULAR or after > (1 - FALL) * before:
        return ""
    return f"the median condition number falls from {before:.3g} to {after:.3g}"


def _estimates(found: Behaviour, layer: int) -> str:
    if not found.knowable > found.known[0]:
        return ""
    good = found.known >= found.known[0] + ESTIMATES * (found.knowable - found.known[0])
    if not good[layer + 1] or good[: layer + 1].any():
        return ""
    return (
        f"the sum of squares of its output labels has a rank correlation of {found.known[layer + 1]:.3f} with sigma "
        f"(raw labels: {found.known[0]:.3f}, residuals of least squares: {found.knowable:.3f})"
    )


def _solves(found: Behaviour, noise: ByNoise, layer: int, further: bool) -> str:
    before, after = found.direction[layer : layer + 2]
    if after > (1 - SOLVES) * before:
        return ""
    return f"the error of direction falls from {before:.3g} to {after:.3g}; {_way(noise, layer, further)}"


def _way(noise: ByNoise, layer: int, further: bool) -> str:
    """How far w moves towards least squares, if a step describes what the layer does."""
    if further:
        return "w also takes up what the further coordinates of the tokens hold"
    step = noise.newton_step[layer]
    if not (np.abs(step) <= FURTHEST).all():
        return "its update is no step towards the least-squares solution"
    return f"w covers this share of the distance to the least-squares solution: {_ends(noise, step, _share)}"


def _share(step: float) -> str:
    return f"{100 * step:.0f} %" + (" (a step back)" if step < 0 else " (it overshoots)" if step > 1 else "")


def _shrinks(found: Behaviour, noise: ByNoise, layer: int, goal: str, further: bool) -> str:
    before, after = found.shrinkage[layer : layer + 2]
    if not after <= (1 - FALL) * before or before - after < NOTABLE * found.shrinkage.max() or before <= 0:
        return ""
    falls = f"the error of shrinkage falls from {before:.3g} to {after:.3g}"
    if further:
        return f"{falls}; {_way(noise, layer, further)}"
    factor, step = noise.factor[layer], noise.newton_step[layer]
    how = []
    if abs(factor[-1] - factor[0]) >= BY_FACTOR * abs(factor[0]):
        how.append(f"by its factor ({_ends(noise, factor, '{:.2f}'.format)})")
    if abs(step[-1] - step[0]) >= max(BY_STEP * np.abs(step[[0, -1]]).max(), STEP_NOTABLE):
        how.append(f"by its step ({_ends(noise, step, _share)} of the distance to the least-squares solution)")
    best = _ends(noise, noise.shrinkage, "{:.2f}".format)
    means = " and ".join(how) or "by neither its factor nor its step alone"
    return (
        f"{falls}, {means}; for comparison, the factor that brings the least-squares solution closest to {goal} is "
        f"{best}"
    )


def _loads(found: Behaviour, layer: int) -> str:
    following = found.momentum[layer + 1 : layer + 2]
    if not abs(found.kept[layer]) < KEPT or not (following >= LOADED).any():
        return ""
    cancelled = ", because the rest cancels most of it" if following[0] > 1 else ""
    return (
        f"u, in the tokens M x + y u, keeps {100 * found.kept[layer]:.2g} % of its old value and gets a new one; "
        f"in layer {layer + 2}, the squared part of the update that comes from u is {following[0]:.3g} times the whole"
        f"{cancelled}"
    )


def _resizes(found: Behaviour, layer: int) -> str:
    before, after = found.size[layer : layer + 2]
    enough = after <= (1 - SIZE) * before and before - after >= SIZE_NOTABLE * (found.loss[layer] - found.offset)
    return f"the error of size falls from {before:.3g} to {after:.3g}" if enough else ""


def _otherwise(found: Behaviour, layer: int, removed: float) -> Role:
    kind = "prepares" if removed > NEEDED else "idle"
    losses = f"the loss of the readout goes from {found.loss[layer]:.3g} to {found.loss[layer + 1]:.3g}"
    times = f"{removed:.3g} times" if removed < 1e6 else "more than a million times"
    text = f"{losses}; without this layer, the model would have {times} its loss"
    return Role(layer + 1, kind, f"Layer {layer + 1} {NAMES[kind]}: {text}.")


def _ends(noise: ByNoise, values: Array, words: Callable[[float], str]) -> str:
    """The value at the smallest and at the largest noise level, or on all sequences."""
    if np.isnan(noise.sigma).any():
        return words(values[0])
    first = f"{words(values[0])} at sigma = {noise.sigma[0]:g}"
    return first if len(noise.sigma) == 1 else f"{first} and {words(values[-1])} at sigma = {noise.sigma[-1]:g}"


def _most(layers: list[int], error: Array, opening: str, none: str, name: str) -> str:
    if not layers:
        return f"{none}: the error of {name} is {error[0]:.3g} before the first layer and {error[-1]:.3g} at the end."
    falls = {layer: float(error[layer - 1] - error[layer]) for layer in layers}
    best = max(falls, key=lambda layer: falls[layer])
    most = f"Layer {best} contributes most: it" if len(layers) > 1 else "It"
    numbers = f"reduces the error of {name} from {error[best - 1]:.3g} to {error[best]:.3g}"
    return f"{opening} {_layers(layers)}. {most} {numbers}."


def _layers(layers: list[int]) -> str:
    if len(layers) == 1:
        return f"layer {layers[0]}"
    return f"layers {', '.join(map(str, layers[:-1]))} and {layers[-1]}"
