"""Von Oswald and others: layers of linear attention as steps of gradient descent and of GD++.

Transformers learn in-context by gradient descent
Johannes von Oswald, Eyvind Niklasson, Ettore Randazzo, Joao Sacramento, Alexander Mordvintsev, Andrey Zhmoginov and Max
Vladymyrov, ICML 2023
https://arxiv.org/abs/2212.07677

One trained layer of linear attention makes one step of gradient descent on the examples. Deeper models beat as many
steps, because they also transform the features: an algorithm that the authors call GD++. Layers with tied weights do
the same.

The problem has as few laws as possible: isotropic features, isotropic tasks, no noise. There one step of gradient
descent with its best rate has a closed form, many steps have an exact expected loss, and so has the best GD++ model of
any depth. One Full layer, which could do anything that is quadratic in the context, is trained and its matrix is
compared with that step; it is then tested on inputs of other sizes, where a layer that only imitated the step on the
training distribution would differ. Diag models and a GD++ layer that is repeated are trained at several depths and held
against the exact losses. The left panel shows how far changing the features gets beyond plain steps, and that tying the
layers costs part of that gain, not all of it.

Not checked here: Inputs drawn from a uniform distribution, as in the authors' code; here they are Gaussian.

Not checked here: Layers with softmax and MLPs, curved regression with deep features.
"""

from __future__ import annotations

import numpy as np

from ridgeformer.exact import least_loss
from ridgeformer.papers import CHANCE, Check, Paper, Part, Picture, Results, Rows, Work, agree, listed
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.problems import Problem
from ridgeformer.theory import gradient_steps, one_layer
from ridgeformer.training import Search
from ridgeformer.validation import Array

SCALES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)  # of the test's inputs
OFF = 0.03  # relative; a rate that is off by this raises the loss by 0.2 %, the chance of the search's selection


def _rescaled(d: int, n: int, scale: float) -> Problem:
    """The isotropic problem without noise whose features are multiplied by a number."""
    return Problem(d, n, 0, features=scale**2 * np.eye(d))


def _best_rate(d: int, n: int) -> float:
    """The best rate of one step of gradient descent, for sums over the context."""
    return 1 / (n + d + 1)


def _step_loss(d: int, n: int, scale: float, factor: float = 1.0) -> float:
    """The exact loss on rescaled inputs of a step whose rate is a multiple of the best one for inputs as they are."""
    return one_layer.risk(_rescaled(d, n, scale), factor * _best_rate(d, n) * np.eye(d))


def _gradient_descent(d: int, n: int, depth: int) -> float:
    """The exact loss of as many steps of gradient descent with their best constant rate."""
    problem = Problem(d, n, 0)
    return gradient_steps.expected_loss(problem, depth, gradient_steps.best_rate(problem, depth))


def one(work: Work, *, d: int = 10, n: int = 20, sequences: int = 100_000, effort: float = 0.1) -> Rows:
    """Train one Full layer and evaluate it on rescaled inputs.

    Args:
        work: The folder of runs.
        d: The dimension.
        n: The number of examples.
        sequences: How many fresh sequences for each scale.
        effort: As for `training.Search`.

    Yields:
        For every scale: the loss and its error, and the W of the layer, which is the same for all.
    """
    model = work.train(Problem(d, n, 0), "full", protocol=Search(effort=effort), sequences=1000).model
    for scale in SCALES:
        loss = work.loss(_rescaled(d, n, scale), model, sequences)
        yield {"scale": scale, **loss, "W": one_layer.matrix_of(model)}


def deep(
    work: Work,
    *,
    d: int = 10,
    n: int = 20,
    depths: tuple[int, ...] = (1, 2, 3, 4),
    sequences: int = 100_000,
    effort: float = 0.1,
) -> Rows:
    """Train Diag models of several depths, and GD++ layers that are tied.

    Args:
        work: The folder of runs and the progress.
        d: The dimension.
        n: The number of examples.
        depths: The depths.
        sequences: How many fresh sequences.
        effort: As for `training.Search`.

    Yields:
        For every depth: losses of both with their errors, and the exact loss of the best GD++ model.
    """
    problem, how = Problem(d, n, 0), Search(effort=effort)
    for depth in work.each(depths):
        row = {"depth": depth, "gdpp": least_loss(problem, depth)}
        for name, family, layers in (("diag", "diag", depth), ("tied", f"looped(gdpp,{depth})", 1)):
            model = work.train(problem, family, layers, protocol=how, sequences=1000).model
            loss = work.loss(problem, model, sequences)
            row |= {name: loss["loss"], f"{name}_error": loss["error"]}
        yield row


def one_step(results: Results) -> Check:
    """Decide whether one trained layer is one step with the best rate. See `Paper`.

    One trained layer of linear attention is one step of gradient descent with the best rate, 1 / (n + d + 1).

    Reason: The search chooses by losses on 131,072 sequences, which are known to 0.2 %; the loss is quadratic in W,
        and a W that is off by 3 % raises it by as much.
    """
    rows, W = results.one, results.one.W[0]
    rate, aside = _best_rate(rows.d, rows.n), np.abs(W - np.diag(np.diag(W))).max()
    return agree(
        [np.diag(W).mean() / rate, aside / rate],
        [1.0, 0.0],
        OFF,
        unit="3 % of the rate",
        names=["rate x (n + d + 1)", "off the diagonal"],
    )


def rescaled_inputs(results: Results) -> Check:
    """Decide whether the layer behaves as the step does on inputs that it was not trained on. See `Paper`.

    On rescaled test inputs the trained layer still behaves as that step of gradient descent.

    Reason: Chance, and what a rate that is off by 3 % changes, as in the claim on one step.
    """
    rows = results.one
    expected, more, less = (
        np.array([_step_loss(rows.d, rows.n, scale, factor) for scale in SCALES]) for factor in (1.0, 1 + OFF, 1 - OFF)
    )
    return agree(
        rows.loss,
        expected,
        np.maximum(np.abs(more - expected), np.abs(less - expected)),
        error=rows.error,
        unit="4 standard errors, and what 3 % of the rate changes",
        names=rows.names("x{scale:g}:"),
    )


def _over_descent(results: Results, name: str) -> Array:
    """A column over the loss of gradient descent of the same depth, from two layers on."""
    return np.asarray(results.deep[name] / results.deep.compute(_gradient_descent))[1:]


def depth(results: Results) -> Check:
    """Decide whether GD++ and trained layers beat gradient descent at equal depth. See `Paper`.

    From two layers on, trained layers do better than as many steps of gradient descent, because they also change the
    features: they do GD++.

    Expected: GD++ below gradient descent; Diag, which contains GD++, not above it
    Tolerance: none for the exact losses of GD++ and gradient descent; 4 standard errors and 1 % for Diag
    Reason: Losses of Diag are measured; a search ends when it gains less than about 1 % of the loss.
    Rule: rejected where GD++ has more loss than gradient descent, or Diag more than GD++ beyond the tolerance
    """
    rows, plus = results.deep, _over_descent(results, "gdpp")
    diag, error = (rows.diag / rows.gdpp)[1:], CHANCE * (rows.diag_error / rows.gdpp)[1:]
    return Check(
        f"best GD++ / gradient descent, depths 2 to {rows.depth[-1]}: {listed(plus)}; trained Diag / GD++: "
        f"{listed(diag)}, known to {listed(error)}",
        holds=[plus < 1, diag < 1.01 + error],
        brief=f"GD++ / gradient descent at 2 to {rows.depth[-1]} layers: {listed(plus)}",
    )


def tied(results: Results) -> Check:
    """Decide whether tied layers still beat gradient descent. See `Paper`.

    Layers with tied weights, one layer that is repeated, are also better than gradient descent with a constant rate.

    Expected: below 1
    Tolerance: 4 standard errors
    Reason: Chance; the losses of gradient descent are exact.
    Rule: rejected where the loss of tied layers is not clearly below that of gradient descent
    """
    ratio, error = _over_descent(results, "tied"), CHANCE * _over_descent(results, "tied_error")
    return Check(f"tied GD++ / gradient descent: {listed(ratio)}", holds=ratio < 1 - error)


def draw(results: Results) -> list[Panel]:
    """Draw losses against depth, and against the scale of the inputs. See `Paper`.

    Loss against depth, and of one layer on rescaled inputs.
    """
    rows, tests = results.deep, results.one
    shown = [Line("gradient descent", rows.depth, rows.compute(_gradient_descent), None, True)]
    for colour, (name, label) in enumerate({"gdpp": "GD++, best", "tied": "GD++, tied", "diag": "Diag"}.items()):
        shown.append(Line(label, rows.depth, rows[name], colour))
    fine = np.linspace(SCALES[0], SCALES[-1], 41)
    inputs = [
        Line.of("one step", lambda scale: _step_loss(tests.d, tests.n, scale), fine),
        Scatter("trained layer", tests.scale, tests.loss, tests.error),
    ]
    return [
        Panel("depth", "layers or steps", "loss", shown, False, True),
        Panel("rescaled inputs", "scale", "loss", inputs, False, True),
    ]


PAPER = Paper(
    id="vonoswald2023",
    about=__doc__,
    problems={"problem": Problem(10, 20, 0)},
    parts=(
        Part(one, {"d": 4, "n": 16, "sequences": 20_000, "effort": 0.02}),
        Part(deep, {"d": 4, "n": 16, "depths": (1, 2), "sequences": 20_000, "effort": 0.02}),
    ),
    checks=(one_step, rescaled_inputs, depth, tied),
    pictures={"losses": Picture(draw)},
    version=2,
)
