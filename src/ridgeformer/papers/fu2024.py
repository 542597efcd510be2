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

import numpy as np

from ridgeformer.explanation import compare_algorithms
from ridgeformer.papers import CHANCE, Check, Paper, Part, Picture, Results, Rows, Work, listed
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


def maps(work: Work, *, d: int = 8, layers: int = 4, sequences: int = 2000, effort: float = 0.03) -> Rows:
    """Train a Diag model on every problem and compare its layers with iterations.

    Args:
        work: The folder of runs and the progress.
        d: The dimension.
        layers: The depth.
        sequences: How many sequences are compared.
        effort: As for `training.Search`.

    Yields:
        For every problem and method: the map, and the closest and the needed iterations of every layer.
    """
    for setting in work.each(SETTINGS):
        problem = problem_of(setting, d)
        model = work.train(problem, "diag", layers, protocol=Search(effort=effort), sequences=1000).model
        shown = compare_algorithms(problem, model, sequences=sequences).as_dict()
        for method in METHODS:
            maps = {key: shown[key][method] for key in ("iteration", "cosine", "relative_error", "closest", "needed")}
            yield {"setting": setting, "method": method, "layer": shown["layer"], **maps}


def _iterations(results: Results, setting: str, kind: str, method: str) -> Array:
    """Iterations that are `needed` to be as accurate as each layer, or `closest` to it; infinite where too many."""
    (row,) = results.maps.where(setting=setting, method=method).rows
    return np.asarray(np.nan_to_num(row[kind], nan=np.inf), float)


def second_order(results: Results) -> Check:
    """Decide whether layers are worth more steps than a first-order method could save. See `Paper`.

    Layers are worth exponentially many steps of gradient descent, as iterations of a second-order method are.

    Expected: for L layers more than L^2 steps
    Tolerance: none
    Reason: The best first-order methods (Chebyshev, conjugate gradients) reach with L steps what gradient descent
        reaches with about L^2; a second-order method does better.
    Rule: rejected where L layers are worth L^2 steps of gradient descent or fewer
    """
    steps = {setting: _iterations(results, setting, "needed", METHODS[0]) for setting in SETTINGS}
    words = (
        f"{setting}: {listed(values, '.0f').replace('inf', 'more than tried')}" for setting, values in steps.items()
    )
    return Check(
        f"steps of gradient descent as accurate as layers 1, 2, ...: {'; '.join(words)}",
        holds=[values[-1] > len(values) ** 2 for values in steps.values()],
    )


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
    for setting in SETTINGS:
        descent, newton = (_iterations(results, setting, "closest", method) for method in METHODS)
        words.append(
            f"{setting}: {listed(newton, '.0f')}, a line explains {_straight(newton):.2f} (gradient descent "
            f"{listed(descent, '.0f')}: {_straight(descent):.2f})"
        )
        holds += [(np.diff(newton) >= 0).all(), _straight(newton) > _straight(descent)]
    return Check("closest iterations to layers 1, 2, ...: " + "; ".join(words), holds=holds)


def _apart(results: Results, setting: str, method: str) -> float:
    """The relative distance of a layer to the closest iteration, geometric mean over layers."""
    (row,) = results.maps.where(setting=setting, method=method).rows
    return float(np.exp(np.log(np.maximum(row.relative_error.min(1), 1e-12)).mean()))


def similar(results: Results) -> Check:
    """Decide whether layers look more like Newton's iterations than like steps of gradient descent. See `Paper`.

    Predictions of layers are closer to iterations of Newton's method than to steps of gradient descent.

    Expected: smaller for Newton's method
    Reason: A distance is a root of a mean square over B sequences, known to a share of about (2 B)^-1/2; the ratio
        of two geometric means over L layers is known to (B L)^-1/2.
    Rule: rejected where Newton's method is not closer on the geometric mean over layers by more than chance
    """
    words, holds = [], []
    chance = CHANCE / np.sqrt(results.maps.sequences * results.maps.layers)
    for setting in SETTINGS:
        descent, newton = (_apart(results, setting, method) for method in METHODS)
        words.append(f"{setting}: gradient descent {descent:.3g}, newton {newton:.3g}")
        holds.append(newton < descent * (1 - chance))
    return Check(
        "distance of a layer to the closest iteration, geometric mean over layers: " + "; ".join(words),
        tolerance=f"{chance:.1%}, {CHANCE} standard errors of the ratio of two distances",
        holds=holds,
    )


def draw(results: Results) -> list[Panel]:
    """Draw the maps, and layers against the iterations they are worth. See `Paper`.

    Cosine of the predictions of every layer and every iteration.
    """
    shown = []
    for setting, table in results.maps.by("setting"):
        for row, most in zip(table.rows, (40, 14), strict=True):
            what = [Map(row.cosine[:, :most], row.iteration[:most].astype(int), row.layer, 0.8, 1.0)]
            shown.append(Panel(f"{setting}: {row.method}", "iteration", "layer", what))
        lines = [Line(row.method, row.layer, row.needed, i) for i, row in enumerate(table.rows)]
        shown.append(Panel(f"{setting}: as accurate as", "layer", "iterations", lines, False, True))
    return shown


PAPER = Paper(
    id="fu2024",
    about=__doc__,
    problems={setting: problem_of(setting, 8) for setting in SETTINGS},
    parts=(Part(maps, {"d": 4, "layers": 3, "sequences": 500, "effort": 0.02}),),
    version=3,
    checks=(second_order, newton, similar),
    pictures={"maps": Picture(draw)},
)
