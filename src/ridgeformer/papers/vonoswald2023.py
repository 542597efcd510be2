"""Von Oswald and others: layers of linear attention as steps of gradient descent and of GD++."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.evaluation import evaluate
from ridgeformer.exact import least_loss
from ridgeformer.papers.check import Check, agree
from ridgeformer.papers.paper import Paper, Part, Picture, Results
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, Points, draw_panels
from ridgeformer.problems import Problem
from ridgeformer.theory import gradient_steps, one_layer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAPER"]

PROBLEM = Problem(10, 20, 0)
DEPTHS = (1, 2, 3, 4, 5)
SCALES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)  # of the test's inputs
CLEAR = 0.9  # a loss below this share of another one is clearly lower


def one(work: Work, *, sequences: int = 100_000) -> dict[str, Any]:
    """Train one Full layer and evaluate it on rescaled inputs.

    Args:
        work: The folder of runs.
        sequences: How many fresh sequences for each scale.

    Returns:
        The W of the layer, and losses and errors by scale.
    """
    run = work.train(PROBLEM, "full")
    rows = [evaluate(_rescaled(scale), run.model, sequences=sequences, seed=1, with_floor=False) for scale in SCALES]
    losses = {"loss": [row.unadjusted for row in rows], "error": [row.unadjusted_error for row in rows]}
    return {"W": one_layer.matrix_of(run.model), **losses}


def deep(work: Work, *, depths: tuple[int, ...] = DEPTHS, sequences: int = 100_000) -> dict[str, Any]:
    """Train Diag models of several depths, and GD++ layers that are tied.

    Args:
        work: The folder of runs and the progress.
        depths: The depths.
        sequences: How many fresh sequences.

    Returns:
        By depth: losses of both, and the exact losses of gradient descent and of the best GD++ model.
    """
    rows = []
    for done, depth in enumerate(depths):
        work.progress(done, len(depths))
        losses = {
            "diag": work.train(PROBLEM, "diag", depth, sequences=sequences).loss,
            "tied": work.train(PROBLEM, f"looped(gdpp,{depth})", 1, sequences=sequences).loss,
            "GD++": least_loss(PROBLEM, depth),
        }
        rows.append({"depth": depth, **losses})
    return {"rows": rows}


def _rescaled(scale: float) -> Problem:
    return PROBLEM.replace(features=scale**2 * np.eye(PROBLEM.dim))


def _gradient_descent(depth: int) -> float:
    return gradient_steps.expected_loss(PROBLEM, depth, gradient_steps.best_rate(PROBLEM, depth))


def one_step(results: Results) -> Check:
    """Decide whether one trained layer is one step with the best rate. See `Paper`."""
    W, rate = np.array(results["one"]["W"]), 1 / (PROBLEM.context + PROBLEM.dim + 1)
    aside = np.abs(W - np.diag(np.diag(W))).max()
    return agree(
        "One trained layer of linear attention is one step of gradient descent with the best rate, 1 / (n + d + 1).",
        [np.diag(W).mean() / rate, aside / rate],
        [1.0, 0.0],
        [0.01, 0.02],
        "The search minimises a mean over a sample, whose optimum differs from the expectation's by about 1 %.",
        unit="1 % for the rate, 2 % of the rate for entries off the diagonal",
        names=["rate x (n + d + 1)", "off the diagonal"],
    )


def rescaled_inputs(results: Results) -> Check:
    """Decide whether the layer behaves as the step does on inputs that it was not trained on. See `Paper`."""
    W = np.eye(PROBLEM.dim) / (PROBLEM.context + PROBLEM.dim + 1)
    expected = np.array([one_layer.risk(_rescaled(scale), W) for scale in SCALES])
    return agree(
        "On rescaled test inputs the trained layer still behaves as that step of gradient descent.",
        results["one"]["loss"],
        expected,
        4 * np.array(results["one"]["error"]) + 0.02 * expected,
        "Chance, and 2 % for the difference of W to the best step.",
        unit="4 standard errors and 2 %",
        names=[f"x{scale:g}:" for scale in SCALES],
    )


def depth(results: Results) -> Check:
    """Decide whether GD++ and trained layers beat gradient descent at equal depth. See `Paper`."""
    rows = results["deep"]["rows"][1:]
    plus = [row["GD++"] / _gradient_descent(row["depth"]) for row in rows]
    diag = [row["diag"] / row["GD++"] for row in rows]
    return Check(
        "From two layers on, trained layers do better than as many steps of gradient descent, because they also change "
        "the features: they do GD++.",
        f"best GD++ / gradient descent, depths 2 to {rows[-1]['depth']}: {_list(plus)}; trained Diag / GD++: "
        f"{_list(diag)}",
        f"GD++ below {CLEAR} of gradient descent; Diag between 0.3 and 1.1 of GD++",
        "10 % above",
        "A Diag model contains GD++ and can only be better; without noise its further parameters are worth little.",
        f"rejected where GD++ has more than {CLEAR} of the loss of gradient descent, or Diag more than 1.1 of GD++'s",
        (*(r < CLEAR for r in plus), *(0.3 < r < 1.1 for r in diag)),
        brief=f"GD++ / gradient descent at 2 to {rows[-1]['depth']} layers: {_list(plus)}",
    )


def tied(results: Results) -> Check:
    """Decide whether tied layers still beat gradient descent. See `Paper`."""
    rows = results["deep"]["rows"][1:]
    ratio = [row["tied"] / _gradient_descent(row["depth"]) for row in rows]
    return Check(
        "Layers with tied weights, one layer that is repeated, are also better than gradient descent with a constant "
        "rate.",
        f"tied GD++ / gradient descent: {_list(ratio)}",
        f"below {CLEAR}",
        "10 %",
        "The size by which a difference counts as clear.",
        f"rejected where tied layers have more than {CLEAR} of the loss of gradient descent",
        tuple(r < CLEAR for r in ratio),
    )


def _list(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def draw(results: Results) -> Figure:
    """Draw losses against depth, and against the scale of the inputs. See `Paper`."""
    rows = results["deep"]["rows"]
    depths = [row["depth"] for row in rows]
    shown: list[Any] = [Line("gradient descent", depths, [_gradient_descent(k) for k in depths], None, True)]
    for colour, (name, label) in enumerate({"GD++": "GD++, best", "tied": "GD++, tied", "diag": "Diag"}.items()):
        shown.append(Line(label, depths, [row[name] for row in rows], colour))
    W, fine = np.eye(PROBLEM.dim) / (PROBLEM.context + PROBLEM.dim + 1), np.linspace(SCALES[0], SCALES[-1], 41)
    curve = [one_layer.risk(_rescaled(scale), W) for scale in fine]
    inputs = [
        Line("one step", fine.tolist(), curve),
        Points("trained layer", SCALES, results["one"]["loss"], results["one"]["error"]),
    ]
    return draw_panels(
        [
            Panel("depth", "layers or steps", "loss", shown, False, True),
            Panel("rescaled inputs", "scale", "loss", inputs, False, True),
        ]
    )


PAPER = Paper(
    id="vonoswald2023",
    title="Transformers learn in-context by gradient descent",
    authors="Johannes von Oswald, Eyvind Niklasson, Ettore Randazzo, Joao Sacramento, Alexander Mordvintsev, Andrey "
    "Zhmoginov and Max Vladymyrov, ICML 2023",
    link="https://arxiv.org/abs/2212.07677",
    says="One trained layer of linear attention makes one step of gradient descent on the examples. Deeper models "
    "beat as many steps, because they also transform the features: an algorithm that the authors call GD++. Layers "
    "with tied weights do the same.",
    problems={"problem": PROBLEM},
    parts=(Part(one, {"sequences": 20_000}), Part(deep, {"depths": (1, 2, 3), "sequences": 20_000})),
    checks=(one_step, rescaled_inputs, depth, tied),
    pictures={"losses": Picture(draw, "Loss against depth, and of one layer on rescaled inputs.")},
    beyond=(
        "Inputs drawn from a uniform distribution, as in the authors' code; here they are Gaussian.",
        "Layers with softmax and MLPs, curved regression with deep features.",
    ),
)
