"""Garg, Tsipras, Liang and Valiant: the error after every number of examples.

What can transformers learn in-context? A case study of simple function classes
Shivam Garg, Dimitris Tsipras, Percy Liang and Gregory Valiant, NeurIPS 2022
https://arxiv.org/abs/2208.01066

A transformer that is trained to predict after every number of examples learns linear functions in context: its error
falls with the examples as that of least squares does.

The authors train GPT-2 on prompts of every length. Here a linear transformer with a few channels is trained on contexts
whose length is drawn anew for every sequence, with attention by mean and one further coordinate that shows the length,
and its error is measured after every number of examples. Without noise the best predictor is least squares, whose error
curve is known exactly, so that ridge regression and the floor coincide with it. The figure shows what depth adds: a
linear transformer approaches the curve of least squares from above, and leaves it where finitely many layers cannot
invert a matrix.

Not checked here: Sparse linear functions, trees and neural networks as tasks, and shifts of the prompt, for which the
paper uses GPT-2.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ridgeformer.engine import Layout
from ridgeformer.papers import CHANCE, Check, Paper, Part, Picture, Results, Rows, Work, agree
from ridgeformer.plotting.panels import Line, Panel
from ridgeformer.predictors import LeastSquares
from ridgeformer.problems import Problem
from ridgeformer.theory import gradient_steps
from ridgeformer.training import Search
from ridgeformer.validation import Array

FAMILY, LAYOUT = "channels(1,2)", Layout("mean", "length")
EXACT = "least squares"


def _problem_of(d: int) -> Problem:
    """The problem without noise whose contexts have any number of examples from 1 to 2 d."""
    return Problem(d, f"1..{2 * d}", 0)


def _least_squares(n: int, d: int) -> float:
    """The expected half squared error of least squares without noise: directions not seen."""
    return max(d - n, 0) / 2


def curves(
    work: Work, *, d: int = 20, depths: tuple[int, ...] = (1, 2, 3), sequences: int = 2000, effort: float = 0.3
) -> Rows:
    """Train models over all context lengths at once, and measure the error after every number of examples.

    Args:
        work: The folder of runs and the progress.
        d: The dimension; contexts have 1 to 2 d examples.
        depths: The depths.
        sequences: How many sequences for every number of examples.
        effort: As for `training.Search`.

    Yields:
        For 1 to 2 d examples and every predictor: the loss and its error.
    """
    named = {}
    for depth in work.each(depths):
        run = work.train(_problem_of(d), FAMILY, depth, protocol=Search(effort=effort), layout=LAYOUT, sequences=1000)
        named[f"{depth} layer{'s' * (depth > 1)}"] = run.model
    for n in range(1, 2 * d + 1):
        losses = work.losses(_problem_of(d).replace(context=n), {**named, EXACT: LeastSquares()}, sequences)
        yield from ({"n": n, "name": name, **loss} for name, loss in losses.items())


def least_squares_curve(results: Results) -> Check:
    """Decide whether least squares has the known curve. See `Paper`.

    Least squares, which is the best predictor without noise, has a half squared error of (d - n) / 2 on average, and 0
    from n = d on.

    Reason: Chance: half a sum of d - n squared normal numbers has the variance (d - n) / 2; and rounding of float64
        where the sums over the context are nearly singular.
    """
    rows = results.curves.where(name=EXACT)
    truth = rows.compute(_least_squares)
    chance, unit = np.sqrt(truth / rows.sequences), "4 standard errors and 1e-6"
    return agree(rows.loss, truth, 1e-6, error=chance, unit=unit, names=rows.names("{n} examples:"))


def _curves(results: Results) -> dict[str, Array]:
    """Losses of the trained models over that of predicting 0, by name, from the shallowest to the deepest."""
    return {name: rows.loss / (rows.d / 2) for name, rows in results.curves.by("name") if name != EXACT}


def _errors(results: Results) -> dict[str, Array]:
    """Four standard errors of the same."""
    return {name: CHANCE * rows.error / (rows.d / 2) for name, rows in results.curves.by("name")}


def learns(results: Results) -> Check:
    """Decide whether models that are trained over all lengths use every further example. See `Paper`.

    One model trained over all lengths lowers its error with every further example, as least squares does, and comes
    closer to it as layers are added.

    Expected: an error that falls with the examples, and is lower with more layers
    Tolerance: 4 standard errors
    Reason: Chance.
    """
    d, curves, errors = results.curves.d, _curves(results), _errors(results)
    holds, words, step = [], [], max(d // 4, 1)  # between neighbours the difference is within chance
    for name, curve in curves.items():
        five, error = curve[::step], errors[name][::step]
        holds.append((np.diff(five) < np.hypot(error[1:], error[:-1])).all() and five[-1] < five[0] - error[0])
        words.append(f"{name}: " + ", ".join(f"{curve[n - 1]:.3g} at {n}" for n in (d // 2, d, 2 * d)))
    for less, more in pairwise(curves):
        holds.append(curves[more][-1] < curves[less][-1] - np.hypot(errors[less][-1], errors[more][-1]))
    problem, steps = Problem(d, 2 * d, 0), results.curves.depths[-1]
    descent = gradient_steps.expected_loss(problem, steps, gradient_steps.best_rate(problem, steps)) / (d / 2)
    return Check(
        f"error over that of predicting 0, by examples: {'; '.join(words)} (least squares 0.5, 0 and 0; {steps} steps "
        f"of gradient descent tuned to {2 * d} examples {descent:.3g})",
        rule="rejected where the error of a model grows clearly with the examples, or more layers are not clearly "
        f"better at {2 * d} examples",
        holds=holds,
        brief=f"error / signal at {2 * d} examples: " + ", ".join(f"{name} {curves[name][-1]:.3g}" for name in curves),
    )


def _one_rate(d: int) -> float:
    """The least mean loss over all lengths that one rate for the mean over the examples can have, over that of 0."""
    return 1 - 1 / float(np.mean(1 + (d + 1) / np.arange(1, 2 * d + 1)))


def one_layer(results: Results) -> Check:
    """Decide whether one layer has the mean loss of the best single rate. See `Paper`.

    One layer cannot let its step depend on the number of examples, even if tokens show it: over all lengths it does as
    well as one rate can, and no better.

    Reason: Chance, as if errors of all lengths went together; and a search ends when it gains less than about 1 %.
    """
    least = _one_rate(results.curves.d)
    return agree(
        _curves(results)["1 layer"].mean(),
        least,
        _errors(results)["1 layer"].mean() + 0.01 * least,
        unit="4 standard errors and 1 %",
        names=["mean over all lengths, over that of predicting 0:"],
    )


def draw(results: Results) -> list[Panel]:
    """Draw the error against the number of examples. See `Paper`.

    Squared error over d against the number of examples; from n = d on, least squares has none.
    """
    d, shown = results.curves.d, []
    for i, (name, rows) in enumerate(results.curves.by("name")):
        seen = np.where(rows.loss > 1e-6, 2 / d * rows.loss, np.nan)  # elsewhere rounding alone is left
        shown.append(Line(name, rows.n, seen, i, name == EXACT))
    return [Panel(f"d = {d}, no noise", "examples", "squared error / d", shown, False, True)]


PAPER = Paper(
    id="garg2022",
    about=__doc__,
    problems={"problem": _problem_of(20)},
    parts=(Part(curves, {"d": 4, "depths": (1, 2), "sequences": 4000, "effort": 0.01}),),
    version=3,
    checks=(learns, least_squares_curve, one_layer),
    pictures={"curves": Picture(draw)},
)
