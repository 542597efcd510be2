"""The jobs of the layers in sentences, by stated rules, each sentence with the numbers that it rests on.

A layer

- *estimates the noise* if it is the first after which the sum of squared labels knows sigma nearly as well as the
  residual of least squares does: 90 % of the way from the raw labels' rank correlation to that one's;
- *solves* if the error of direction falls by a third or more;
- *shrinks* if the error of shrinkage falls by a quarter or more, and by at least a twentieth of its largest value; how:
  by its factor, if that differs by 10 % or more between the least and the largest noise level, by its step, if the
  share of the way to least squares that it goes differs by a fifth of it and by 5 % or more, or by both;
- *loads the momentum* if it keeps less than half of u, |1 - beta| < 1/2, and the part of the next layer's update that
  is due to u is, squared, a quarter of the whole or more;
- *resizes the estimate* if the error of size falls by half or more, and by at least a tenth of the loss before;
- *conditions x* if the median condition number falls by a quarter or more.

A layer *prepares* later layers if the model without it has twice its loss or more, while the loss of the layer's own
readout falls by less than a tenth. That it also shrinks or resizes the estimate is then not said, because it is its
lesser job. A layer of no other kind also prepares if the loss without it is more than 5 % higher. Otherwise it has
*no visible effect*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ridgeformer.explanation.behaviour import Behaviour, ByNoise
from ridgeformer.values import Array

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
HARM, GAIN = 2.0, 0.1  # of layers that prepare: the loss without them over that with them; the fall of their own loss
NAMES = {
    "conditions": "improves the conditioning of x",
    "estimates": "estimates the noise level",
    "solves": "solves the regression",
    "shrinks": "shrinks the solution",
    "loads": "loads the momentum u",
    "resizes": "resizes the estimate",
    "prepares": "prepares later layers",
    "idle": "has no visible effect",
}


class Role(NamedTuple):
    """One job of a layer.

    Attributes:
        layer: The layer, from 1.
        kind: The job, a key of `NAMES`.
        sentence: The job in words with its numbers.
    """

    layer: int
    kind: str
    sentence: str


def roles(average: Behaviour, noise: ByNoise, removed: Array, goal: str = "ridge", further: bool = False) -> list[Role]:
    """Name the jobs of each layer.

    Args:
        average: Averages over the problem's noise.
        noise: Averages at fixed noise levels.
        removed: The loss without each layer over the loss of the whole model, [L].
        goal: The name of the weights that the solution is compared with.
        further: Whether tokens have further coordinates. A layer can then take w from them, so that its factor and its
            step do not describe it.

    Returns:
        One role or more per layer, in order.
    """
    jobs = []
    for layer in range(len(removed)):
        mixed = further and layer > 0  # further coordinates are empty before the first layer
        before, after = average.loss[layer : layer + 2]
        falls = _falls("the error of direction", average.direction, layer, SOLVES)
        singular = not average.condition[layer] < SINGULAR
        prepares = removed[layer] >= HARM and after > (1 - GAIN) * before
        texts = {
            "prepares": _harm(average, layer, removed[layer]) if prepares else "",
            "conditions": "" if singular else _falls("the median condition number", average.condition, layer, FALL),
            "estimates": _estimates(average, layer),
            "solves": falls and f"{falls}; {_way(noise, layer, mixed)}",
            "shrinks": "" if prepares else _shrinks(average, noise, layer, goal, mixed),
            "loads": _loads(average, layer),
            "resizes": "" if prepares else _resizes(average, layer),
        }
        if not any(texts.values()):
            texts["prepares" if removed[layer] > NEEDED else "idle"] = _harm(average, layer, removed[layer])
        jobs += [
            Role(layer + 1, kind, f"Layer {layer + 1} {NAMES[kind]}: {text}.") for kind, text in texts.items() if text
        ]
    return jobs


def summary(average: Behaviour, jobs: list[Role], removed: Array) -> list[str]:
    """Say in three sentences which layers do which job, which layer matters most, and where the noise level acts.

    Args:
        average: Averages over the problem's noise.
        jobs: The roles of the layers.
        removed: The loss without each layer over the loss of the whole model, [L].

    Returns:
        The sentences.
    """
    by_kind = _by_kind(jobs)
    parts = [_does(by_kind[kind], NAMES[kind]) for kind in NAMES if by_kind[kind]]
    work = f"{_listed(parts)}."
    most, least = int(np.argmax(removed)), int(np.argmin(removed))
    harm = f"Removing layer {most + 1} does most harm: the model then has {_times(removed[most])} its loss"
    if removed[most] <= 1:
        harm = f"No layer is missed: without layer {most + 1} the model has {_times(removed[most])} its loss"
    elif len(removed) > 1:
        harm += f"; removing layer {least + 1} does least ({_times(removed[least])})"
    through = f", through layer {int(np.argmax(average.through)) + 1} more than through any other layer"
    much = _much(average, "change")
    acts = f"The noise level {much} the prediction{through if much == 'changes' and len(removed) > 1 else ''}."
    return [work[0].upper() + work[1:], f"{harm}.", acts]


def _much(average: Behaviour, verb: str) -> str:
    """A verb, with how much the noise level does so: not at all, hardly, or visibly."""
    if average.moved[-1] < 1e-12:
        return f"does not {verb}"
    return f"hardly {verb}s" if average.hardly_moved else f"{verb}s"


def findings(average: Behaviour, jobs: list[Role]) -> list[str]:
    """Say with numbers which layers estimate the noise, solve and shrink, and where the noise acts.

    Args:
        average: Averages over the problem's noise.
        jobs: The roles of the layers.

    Returns:
        Sentences.
    """
    by_kind, lines = _by_kind(jobs), []
    if not average.has_levels:
        lines.append("The sequences have no noise levels, so nothing is said about their estimation.")
    elif np.isnan(average.known[0]):
        lines.append("The noise level is always the same, so there is nothing to estimate.")
    elif np.isnan(average.knowable):
        lines.append("With n <= d least squares leaves no residuals, so nothing shows the noise level.")
    elif by_kind["estimates"]:
        last = by_kind["estimates"] == [len(average.known) - 1]
        unused = " It is the last layer, so that no later layer can use the estimate." if last else ""
        lines.append(f"The noise level is estimated by {_layers(by_kind['estimates'])}.{unused}")
    else:
        best = int(np.nanargmax(average.known))
        lines.append(
            "No layer estimates the noise level: the rank correlation of sigma with the sum of squared labels is at "
            f"most {average.known[best]:.3f} (after layer {best}). With the residuals of least squares it is "
            f"{average.knowable:.3f}."
        )
    solved, shrunk = "The regression is solved by", "The solution is shrunk towards zero by"
    lines.append(_most(by_kind["solves"], average.direction, solved, "No layer solves the regression", "direction"))
    if average.has_levels:
        none = "No layer shrinks the solution (an estimate of 0 has no error of shrinkage)"
        lines.append(_most(by_kind["shrinks"], average.shrinkage, shrunk, none, "shrinkage"))
    lines.append(_acts(average))
    return lines


def _acts(average: Behaviour) -> str:
    opening = f"The noise level {_much(average, 'influence')} the prediction"
    if average.moved[-1] < 1e-12:
        return f"{opening}: the estimate stays the same when sequences exchange their residual sums of squares."
    bayes = f" (that of the Bayes predictor by {100 * average.moved_bayes:.2g} %)"
    changes = (
        f"{opening}: when sequences exchange their residual sums of squares, the estimate changes by "
        f"{100 * average.moved[-1]:.2g} % of its mean square{bayes if np.isfinite(average.moved_bayes) else ''}."
    )
    if average.hardly_moved:
        return changes
    ordered = [int(i) for i in np.argsort(-average.through) if average.through[i] >= USES]
    parts = [f"{100 * average.through[i]:.0f} % in layer {i + 1}" for i in ordered]
    alone = f"causes this share of the change: {', '.join(parts)}" if parts else f"causes less than {USES:.0%} of it"
    above = " (above 100 %, other layers cancel a part of it)" if (average.through > 1).any() else ""
    return f"{changes} Exchanging them in the attention of one layer only {alone}{above}."


def _falls(what: str, values: Array, layer: int, share: float) -> str:
    """The fall of a quantity by a share or more in a layer, in words; nothing where it does not fall so far."""
    before, after = values[layer : layer + 2]
    return f"{what} falls from {before:.3g} to {after:.3g}" if after <= (1 - share) * before else ""


def _estimates(average: Behaviour, layer: int) -> str:
    if not average.knowable > average.known[0]:
        return ""
    good = average.known >= average.known[0] + ESTIMATES * (average.knowable - average.known[0])
    if not good[layer + 1] or good[: layer + 1].any():
        return ""
    return (
        f"the sum of squares of its output labels has a rank correlation of {average.known[layer + 1]:.3f} with sigma "
        f"(raw labels: {average.known[0]:.3f}, residuals of least squares: {average.knowable:.3f})"
    )


def _way(noise: ByNoise, layer: int, further: bool) -> str:
    """How far w moves towards least squares, if a step describes what the layer does."""
    if further:
        return "the estimate also takes up what the further coordinates of the tokens hold"
    step = noise.newton_step[layer]
    if not (np.abs(step) <= FURTHEST).all():
        return "its update is no step towards the least-squares solution"
    return f"the estimate covers this share of the distance to the least-squares solution: {_ends(noise, step, _share)}"


def _share(step: float) -> str:
    percent = round(100 * step)  # no step of -0 %
    return f"{percent} %" + (" (a step back)" if percent < 0 else " (it overshoots)" if percent > 100 else "")


def _shrinks(average: Behaviour, noise: ByNoise, layer: int, goal: str, further: bool) -> str:
    before, after = average.shrinkage[layer : layer + 2]
    falls = _falls("the error of shrinkage", average.shrinkage, layer, FALL)
    if not falls or before - after < NOTABLE * average.shrinkage.max() or before <= 0:
        return ""
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


def _loads(average: Behaviour, layer: int) -> str:
    following = average.momentum[layer + 1 : layer + 2]
    if not abs(average.kept[layer]) < KEPT or not (following >= LOADED).any():
        return ""
    cancelled = ", because the rest cancels most of it" if following[0] > 1 else ""
    return (
        f"u, in the tokens M x + y u, keeps {100 * average.kept[layer]:.2g} % of its old value and gets a new one; "
        f"in layer {layer + 2}, the squared part of the update that comes from u is {following[0]:.3g} times the whole"
        f"{cancelled}"
    )


def _resizes(average: Behaviour, layer: int) -> str:
    before, after = average.size[layer : layer + 2]
    notable = before - after >= SIZE_NOTABLE * (average.loss[layer] - average.offset)
    return _falls("the error of size", average.size, layer, SIZE) if notable else ""


def _harm(average: Behaviour, layer: int, removed: float) -> str:
    """The loss of the readout before and after a layer, and what removing the layer costs."""
    losses = f"the loss of the readout goes from {average.loss[layer]:.3g} to {average.loss[layer + 1]:.3g}"
    return f"{losses}; without this layer, the model would have {_times(removed)} its loss"


def _times(factor: float) -> str:
    return f"{factor:.3g} times" if factor < 1e6 else "more than a million times"


def _does(layers: list[int], job: str) -> str:
    """Such as `layers 1 and 2 solve the regression`."""
    if len(layers) == 1:
        return f"{_layers(layers)} {job}"
    verb, predicate = job.split(" ", 1)
    return f"{_layers(layers)} {'have' if verb == 'has' else verb.removesuffix('s')} {predicate}"


def _ends(noise: ByNoise, values: Array, words: Callable[[float], str]) -> str:
    """The value at the smallest and at the largest noise level, or on all sequences."""
    if np.isnan(noise.sigma).any():
        return words(values[0])
    first = f"{words(values[0])} at sigma = {noise.sigma[0]:g}"
    return first if len(noise.sigma) == 1 else f"{first} and {words(values[-1])} at sigma = {noise.sigma[-1]:g}"


def _by_kind(jobs: list[Role]) -> dict[str, list[int]]:
    """The layers that do each kind of job."""
    return {kind: [role.layer for role in jobs if role.kind == kind] for kind in NAMES}


def _most(layers: list[int], error: Array, opening: str, none: str, name: str) -> str:
    if not layers:
        return f"{none}: the error of {name} is {error[0]:.3g} before the first layer and {error[-1]:.3g} at the end."
    falls = {layer: float(error[layer - 1] - error[layer]) for layer in layers}
    best = max(falls, key=lambda layer: falls[layer])
    most = f"Layer {best} contributes most: it" if len(layers) > 1 else "It"
    numbers = f"reduces the error of {name} from {error[best - 1]:.3g} to {error[best]:.3g}"
    return f"{opening} {_layers(layers)}. {most} {numbers}."


def _layers(layers: list[int]) -> str:
    return f"layer{'s' * (len(layers) > 1)} {_listed([*map(str, layers)])}"


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
