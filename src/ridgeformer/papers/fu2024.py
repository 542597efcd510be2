"""Fu, Chen, Jia and Sharan: layers beside iterations of gradient descent and of Newton's method.

Transformers learn to achieve second-order convergence rates for in-context linear regression
Deqing Fu, Tian-Qi Chen, Robin Jia and Vatsal Sharan, NeurIPS 2024
https://arxiv.org/abs/2310.17086

The layers of trained transformers behave as iterations of a second-order method, such as Newton's iteration, not as
steps of gradient descent: their number grows with the logarithm of the steps that gradient descent needs, also on
ill-conditioned data.

Diag models are trained without noise on isotropic and on ill-conditioned features. The readout after every layer is
compared with every iteration of gradient descent and of Newton's iteration for the inverse: the maps show the cosine of
their predictions, and the lines how many iterations are as accurate as each layer. The decisive question is not which
picture looks better but how the number of gradient steps grows: first-order methods with L steps save at most a square
root, so that more than L^2 steps for L layers is beyond them.

Not checked here: The GPT-2 models and LSTMs of the paper; the models here are linear transformers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeformer.explanation import compare_algorithms
from ridgeformer.papers.paper import CHANCE, Check, Paper, Part, Results, panels
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Map, Panel
from ridgeformer.problems import Problem
from ridgeformer.training import Search
from ridgeformer.validation import Array

SETTINGS = ("isotropic", "ill-conditioned")
METHODS = ("gradient descent", "newton")


def problem_of(setting: str, d: int) -> Problem:
    """Return the problem of a setting, without noise and with four times as many examples as dimensions.

    Args:
        setting: `isotropic`, or `ill-conditioned`: eigenvalues that differ by a factor of 100, in another basis for
            every sequence.
        d: The dimension.

    Returns:
        The problem.
    """
    spectrum = ",".join(map(str, np.geomspace(3, 0.03, d).round(4)))
    return Problem(d, 4 * d, 0, features=f"rotated({spectrum})" if setting == SETTINGS[1] else None)


def maps(work: Work, *, d: int = 8, layers: int = 4, sequences: int = 2000, effort: float = 0.03) -> dict[str, Any]:
    """Train a Diag model on every problem and compare its layers with iterations.

    Args:
        work: The folder of runs and the progress.
        d: The dimension.
        layers: The depth.
        sequences: How many sequences are compared.
        effort: As for `training.Search`.

    Returns:
        By problem: the map of every method, the closest and the needed iterations of every layer.
    """
    by_problem: dict[str, Any] = {"sequences": sequences}
    for name in work.each(SETTINGS):
        problem = problem_of(name, d)
        model = work.train(problem, "diag", layers, protocol=Search(effort=effort), sequences=1000).model
        shown = compare_algorithms(problem, model, sequences=sequences).as_dict()
        keys = ("iteration", "cosine", "relative_error", "closest", "needed")
        by_problem[name] = {key: {method: shown[key][method] for method in METHODS} for key in keys}
        by_problem[name] |= {"layer": shown["layer"], "distance": shown["distance"]}
    return by_problem


def _iterations(results: Results, name: str, kind: str, method: str) -> Array:
    """Iterations that are `needed` to be as accurate as each layer, or `closest` to it; infinite where too many."""
    return np.array([np.inf if k is None else k for k in results["maps"][name][kind][method]], float)


def second_order(results: Results) -> Check:
    """Decide whether layers are worth more steps than a first-order method could save. See `Paper`.

    Layers are worth exponentially many steps of gradient descent, as iterations of a second-order method are.

    Expected: for L layers more than L^2 steps
    Tolerance: none
    Reason: The best first-order methods (Chebyshev, conjugate gradients) reach with L steps what gradient descent
        reaches with about L^2; a second-order method does better.
    Rule: rejected where L layers are worth L^2 steps of gradient descent or fewer
    """
    words, holds = [], []
    for name in SETTINGS:
        steps = _iterations(results, name, "needed", "gradient descent")
        words.append(f"{name}: {', '.join(f'{x:.0f}' if np.isfinite(x) else 'more than tried' for x in steps)}")
        holds.append(bool(steps[-1] > len(steps) ** 2))
    return Check("steps of gradient descent as accurate as layers 1, 2, ...: " + "; ".join(words), holds=tuple(holds))


def _straight(iterations: Array) -> float:
    """The share of the variance of the iterations that a straight line in the layers explains."""
    layers = np.arange(len(iterations))
    return float(np.square(np.corrcoef(layers, iterations)[0, 1])) if np.ptp(iterations) else 0.0


def newton(results: Results) -> Check:
    """Decide whether layers advance in proportion to Newton's iterations. See `Paper`.

    The iteration of Newton's method that is closest to a layer advances in proportion to the layers; that of gradient
    descent does not.

    Expected: iterations on a straight line, more so than those of gradient descent
    Tolerance: none
    Reason: The two methods are compared with each other, without a threshold.
    Rule: rejected where the closest iteration of Newton's method falls, or where a straight line explains the
        iterations of gradient descent better
    """
    words, holds = [], []
    for name in SETTINGS:
        closest = {method: _iterations(results, name, "closest", method) for method in METHODS}
        line = {method: _straight(values) for method, values in closest.items()}
        words.append(
            f"{name}: {', '.join(f'{x:.0f}' for x in closest['newton'])}, a line explains {line['newton']:.2f} "
            f"(gradient descent {', '.join(f'{x:.0f}' for x in closest['gradient descent'])}: "
            f"{line['gradient descent']:.2f})"
        )
        holds += [bool((np.diff(closest["newton"]) >= 0).all()), line["newton"] > line["gradient descent"]]
    return Check("closest iterations to layers 1, 2, ...: " + "; ".join(words), holds=tuple(holds))


def _apart(results: Results, name: str, method: str) -> float:
    """The relative distance of a layer to the closest iteration, geometric mean over layers."""
    best = np.array(results["maps"][name]["relative_error"][method]).min(1)
    return float(np.exp(np.log(np.maximum(best, 1e-12)).mean()))


def similar(results: Results) -> Check:
    """Decide whether layers look more like Newton's iterations than like steps of gradient descent. See `Paper`.

    Predictions of layers are closer to iterations of Newton's method than to steps of gradient descent.

    Expected: smaller for Newton's method
    Reason: A distance is a root of a mean square over B sequences, known to a share of about (2 B)^-1/2; the ratio
        of two geometric means over L layers is known to (B L)^-1/2.
    Rule: rejected where Newton's method is not closer on the geometric mean over layers by more than chance
    """
    words, holds, part = [], [], results["maps"]
    chance = CHANCE / np.sqrt(part["sequences"] * len(part[SETTINGS[0]]["layer"]))
    for name in SETTINGS:
        mean = {method: _apart(results, name, method) for method in METHODS}
        words.append(f"{name}: " + ", ".join(f"{method} {value:.3g}" for method, value in mean.items()))
        holds.append(mean["newton"] < mean["gradient descent"] * (1 - chance))
    return Check(
        "distance of a layer to the closest iteration, geometric mean over layers: " + "; ".join(words),
        tolerance=f"{chance:.1%}, {CHANCE} standard errors of the ratio of two distances",
        holds=tuple(holds),
    )


def draw(results: Results) -> list[Panel]:
    """Draw the maps, and layers against the iterations they are worth. See `Paper`.

    Cosine of the predictions of every layer and every iteration.
    """
    shown = []
    for name in SETTINGS:
        part = results["maps"][name]
        for method in METHODS:
            cosine = [row[: 40 if method == METHODS[0] else 14] for row in part["cosine"][method]]
            numbers = [int(k) for k in part["iteration"][method][: len(cosine[0])]]
            what = [Map(cosine, numbers, part["layer"], 0.8, 1.0)]
            shown.append(Panel(f"{name}: {method}", "iteration", "layer", what))
        lines = [Line(m, part["layer"], part["needed"][m], i) for i, m in enumerate(METHODS)]
        shown.append(Panel(f"{name}: as accurate as", "layer", "iterations", lines, False, True))
    return shown


PAPER = Paper(
    id="fu2024",
    about=__doc__,
    problems={name: problem_of(name, 8) for name in SETTINGS},
    parts=(Part(maps, {"d": 4, "layers": 3, "sequences": 500, "effort": 0.02}),),
    version=3,
    checks=(second_order, newton, similar),
    pictures={"maps": panels(draw)},
)
