"""Fu, Chen, Jia and Sharan: layers beside iterations of gradient descent and of Newton's method."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.explanation import compare_algorithms
from ridgeformer.papers.check import Check
from ridgeformer.papers.paper import Paper, Part, Picture, Results
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Map, Panel, draw_panels
from ridgeformer.problems import Problem
from ridgeformer.training import Search

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAPER"]

DIM, CONTEXT = 10, 40
PROBLEMS = {
    "isotropic": Problem(DIM, CONTEXT, 0),
    # The eigenvalues differ by a factor of 100; the basis is another one for every sequence.
    "ill-conditioned": Problem(
        DIM, CONTEXT, 0, features=f"rotated({','.join(map(str, np.geomspace(3, 0.03, DIM).round(4)))})"
    ),
}
METHODS = ("gradient descent", "newton")
GROWTH = 1.5  # by which the iterations per layer must grow, to be called exponential
LINEAR = 3.0  # how much the iterations per layer may grow from the first half to the second, to be called linear


def maps(work: Work, *, layers: int = 6, sequences: int = 4000, effort: float = 0.3) -> dict[str, Any]:
    """Train a Diag model on every problem and compare its layers with iterations.

    Args:
        work: The folder of runs and the progress.
        layers: The depth.
        sequences: How many sequences are compared.
        effort: As for `training.Search`.

    Returns:
        By problem: the map of every method, the closest and the needed iterations of every layer.
    """
    by_problem = {}
    for done, (name, problem) in enumerate(PROBLEMS.items()):
        work.progress(done, len(PROBLEMS))
        model = work.train(problem, "diag", layers, protocol=Search(effort=effort), sequences=2000).model
        shown = compare_algorithms(problem, model, sequences=sequences).as_dict()
        keys = ("iteration", "cosine", "relative_error", "closest", "needed")
        by_problem[name] = {key: {method: shown[key][method] for method in METHODS} for key in keys}
        by_problem[name] |= {"layer": shown["layer"], "distance": shown["distance"]}
    return by_problem


def second_order(results: Results) -> Check:
    """Decide whether the iterations of gradient descent that a layer is worth grow exponentially. See `Paper`."""
    words, holds = [], []
    for name in PROBLEMS:
        part = results["maps"][name]
        steps = [value or np.inf for value in part["needed"]["gradient descent"]]
        growth = [b / a for a, b in pairwise(steps) if np.isfinite(b)]
        words.append(f"{name}: {', '.join(f'{x:.0f}' if np.isfinite(x) else 'more than tried' for x in steps)}")
        holds.append(bool(np.median(growth) > GROWTH) if growth else False)
    return Check(
        "Layers are worth exponentially many steps of gradient descent: each layer multiplies their number.",
        "steps of gradient descent as accurate as layers 1, 2, ...: " + "; ".join(words),
        f"growth by a factor of {GROWTH} or more per layer",
        f"a factor of {GROWTH}, the median over layers",
        "Steps in proportion to layers would grow by a factor that falls to 1.",
        f"rejected where the median growth per layer is below {GROWTH}",
        tuple(holds),
    )


def newton(results: Results) -> Check:
    """Decide whether layers advance in proportion to Newton's iterations. See `Paper`."""
    words, holds = [], []
    for name in PROBLEMS:
        closest = np.array(results["maps"][name]["closest"]["newton"], float)
        steps = np.diff(closest)
        words.append(f"{name}: {', '.join(f'{x:.0f}' for x in closest)}")
        half = len(steps) // 2
        first, second = max(steps[:half].mean(), 0.5), max(steps[half:].mean(), 1e-9)
        holds.append(bool((steps >= 0).all() and 1 / LINEAR < second / first < LINEAR))
    return Check(
        "The iteration of Newton's method that is closest to a layer advances in proportion to the layers.",
        "closest iterations of Newton's method to layers 1, 2, ...: " + "; ".join(words),
        "equal advances per layer",
        f"a factor of {LINEAR:g} between the first and the second half of the layers",
        "Iterations are whole numbers, of which there are few; gradient descent exceeds the factor.",
        "rejected where the closest iteration falls, or the advance per layer changes by more than that factor",
        tuple(holds),
    )


def _apart(results: Results, name: str, method: str) -> float:
    """The relative distance of a layer to the closest iteration, geometric mean over layers."""
    best = np.array(results["maps"][name]["relative_error"][method]).min(1)
    return float(np.exp(np.log(np.maximum(best, 1e-12)).mean()))


def similar(results: Results) -> Check:
    """Decide whether layers look more like Newton's iterations than like steps of gradient descent. See `Paper`."""
    words, holds = [], []
    for name in PROBLEMS:
        mean = {method: _apart(results, name, method) for method in METHODS}
        words.append(f"{name}: " + ", ".join(f"{method} {value:.3g}" for method, value in mean.items()))
        holds.append(mean["newton"] < mean["gradient descent"])
    return Check(
        "Predictions of layers are closer to iterations of Newton's method than to steps of gradient descent.",
        "distance of a layer to the closest iteration, geometric mean over layers: " + "; ".join(words),
        "smaller for Newton's method",
        "none",
        "The distances differ by far more than chance.",
        "rejected where gradient descent is closer on the geometric mean over layers",
        tuple(holds),
    )


def draw(results: Results) -> Figure:
    """Draw the maps, and layers against the iterations they are worth. See `Paper`."""
    panels = []
    for name in PROBLEMS:
        part = results["maps"][name]
        for method in METHODS:
            cosine = [row[: 40 if method == METHODS[0] else 14] for row in part["cosine"][method]]
            numbers = [int(k) for k in part["iteration"][method][: len(cosine[0])]]
            what = [Map(cosine, numbers, part["layer"], 0.8, 1.0)]
            panels.append(Panel(f"{name}: {method}", "iteration", "layer", what))
        lines = [Line(m, part["layer"], part["needed"][m], i) for i, m in enumerate(METHODS)]
        panels.append(Panel(f"{name}: as accurate as", "layer", "iterations", lines, False, True))
    return draw_panels(panels)


PAPER = Paper(
    id="fu2024",
    title="Transformers learn to achieve second-order convergence rates for in-context linear regression",
    authors="Deqing Fu, Tian-Qi Chen, Robin Jia and Vatsal Sharan, NeurIPS 2024",
    link="https://arxiv.org/abs/2310.17086",
    says="The layers of trained transformers behave as iterations of a second-order method, such as Newton's "
    "iteration, not as steps of gradient descent: their number grows with the logarithm of the steps that gradient "
    "descent needs, also on ill-conditioned data.",
    problems=PROBLEMS,
    parts=(Part(maps, {"layers": 4, "sequences": 1000, "effort": 0.05}),),
    checks=(second_order, newton, similar),
    pictures={"maps": Picture(draw, "Cosine of the predictions of every layer and every iteration.")},
    beyond=("The GPT-2 models and LSTMs of the paper; the models here are linear transformers.",),
)
