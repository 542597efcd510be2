"""Zhang, Frei and Bartlett: one layer, its optimum, gradient flow towards it, and shifts of the distribution.

Trained transformers learn linear models in-context
Ruiqi Zhang, Spencer Frei and Peter L. Bartlett, JMLR 2024
https://arxiv.org/abs/2306.09927

One layer of linear attention that is trained by gradient flow on linear regression reaches a global optimum, which has
a closed form. It predicts with a fixed matrix times the sum of labelled features. That matrix contains the covariance
of the training features: new tasks and new queries do no harm, but features of another covariance do.

The layer's optimum and its loss under any shift are closed forms, so nothing needs to be trained to test the shift
claims: the optimal layer is evaluated on fresh sequences under 25 shifts of tasks, queries, features, context length
and noise, and each loss is compared with the formula. Gradient flow on the population loss is then followed from small
random starts to its end, and its last matrix is compared with the optimum. In the figure, points are measured and
curves are the formula.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ridgeformer.papers import CHANCE, Check, Paper, Part, Picture, Results, Rows, Work, agree
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.problems import Problem
from ridgeformer.problems.tasks import Gaussian
from ridgeformer.theory import one_layer
from ridgeformer.training import GradientFlow
from ridgeformer.validation import Array

SPECTRUM = (1.8, 1.3, 1.0, 0.6, 0.3)
TRAINING = Problem(5, 20, 0.5, features=SPECTRUM)
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
KINDS = ("tasks", "query", "features", "context", "noise")


def _shifted(kind: str, scale: float) -> Problem:
    """The training problem with one law changed by a factor; tasks and queries also get another shape."""
    reverse = scale * np.diag(SPECTRUM[::-1])
    laws: dict[str, Any] = {
        "tasks": Gaussian(covariance=reverse / np.mean(SPECTRUM)),
        "query": reverse,
        "features": scale * np.diag(SPECTRUM),
        "context": round(scale * TRAINING.context),
        "noise": 0.5 * scale,
    }
    return TRAINING.replace(**{kind: laws[kind]})


def _trained(problem: Problem) -> Array:
    """The W, [d, d] for sums over the context, of the optimal layer with attention by mean."""
    return one_layer.optimum(TRAINING) * TRAINING.context / problem.context


def _risk(kind: str, scale: float) -> float:
    """The loss of that layer under a shift."""
    problem = _shifted(kind, scale)
    return one_layer.risk(problem, _trained(problem))


def _least_risk(kind: str, scale: float) -> float:
    """The least loss of any layer under a shift."""
    problem = _shifted(kind, scale)
    return one_layer.risk(problem, one_layer.optimum(problem))


def flow(work: Work, *, time: float = 100.0, seeds: int = 3) -> Rows:
    """Follow gradient flow from small random starts to its end.

    Args:
        work: The folder of runs and the progress.
        time: The time of the flow.
        seeds: How many starts.

    Yields:
        For every seed: times and losses of the course, and the W of the last model.
    """
    for seed in work.each(range(seeds)):
        run = work.train(TRAINING, "full", seed=seed, protocol=GradientFlow(time=time, scale=0.02, record=100))
        yield {"seed": seed, "time": run.history.time, "loss": run.history.loss, "W": one_layer.matrix_of(run.model)}


def shifts(work: Work, *, sequences: int = 200_000) -> Rows:
    """Measure the loss of the optimal layer under every shift.

    Args:
        work: The progress.
        sequences: How many fresh sequences for each shift.

    Yields:
        For every kind of shift and scale: the loss and its standard error.
    """
    for kind, scale in work.each(KINDS, SCALES):
        problem = _shifted(kind, scale)
        yield {"kind": kind, "scale": scale} | work.loss(problem, one_layer.model_of(_trained(problem)), sequences)


def shift_formula(results: Results) -> Check:
    """Decide whether measured losses are those of the shift formula. See `Paper`.

    The loss of one trained layer under any shift of tasks, queries, features, context length and noise has a closed
    form.
    """
    rows = results.shifts
    return agree(rows.loss, rows.compute(_risk), error=rows.error, names=rows.names("{kind} x{scale:g}:"))


def flow_converges(results: Results) -> Check:
    """Decide whether gradient flow ends at the global optimum. See `Paper`.

    Gradient flow from a small start converges to the global optimum, W = Gamma Lambda [(n + 1) Lambda Gamma Lambda +
    (tr(Gamma Lambda) + sigma^2) Lambda]^-1.

    Reason: The tolerance of the integration is 1e-8 per step; the loss is quadratic around the optimum.
    """
    best = one_layer.optimum(TRAINING)
    off = np.abs(results.flow.W - best).max((1, 2)) / np.abs(best).max()
    return agree(off, np.zeros(len(off)), 1e-4, names=results.flow.names("seed {seed}:"))


def harmless(results: Results) -> Check:
    """Decide which shifts are harmless: measured losses over those of the best layer. See `Paper`.

    Shifts of queries are harmless, shifts of tasks cost little, shifts of the features cost much.

    Expected: 1 for queries at every scale; at most 1.25 for tasks; above 10 for features
    Tolerance: 4 standard errors for queries; none for tasks and features
    Reason: Chance: the best layer does not depend on the law of the queries. Tasks of another covariance have
        another best layer; a quarter more loss is called little, ten times the loss much.
    Rule: rejected where a layer trained for the shifted queries would be better, where tasks shifted by a
        factor of 4 cost more than a quarter of its loss, or such features less than ten times its loss
    """
    least = {kind: rows.compute(_least_risk) for kind, rows in results.shifts.by("kind")}
    ratio = {kind: rows.loss / least[kind] for kind, rows in results.shifts.by("kind")}
    error = results.shifts.where(kind="query").error / least["query"]
    worst = {kind: ratio[kind].max() for kind in KINDS[:3]}
    return Check(
        ", ".join(f"{kind} {value:.3g}" for kind, value in worst.items()),
        holds=(
            (np.abs(ratio["query"] - 1) < CHANCE * error).all(),
            worst["tasks"] <= 1.25,
            worst["features"] > 10,
        ),
    )


def draw_shifts(results: Results) -> list[Panel]:
    """Draw measured losses on the curve of the formula, for every shift. See `Paper`.

    Loss of the optimal layer under shifts, and gradient flow towards it.
    """
    figure = []
    for kind, rows in results.shifts.by("kind"):
        fine = np.geomspace(SCALES[0], SCALES[-1], 41) if kind != "context" else np.arange(5, 81) / 20
        closed_form = Line.of("closed form", functools.partial(_risk, kind), fine)
        shown = [closed_form, Scatter("measured", rows.scale, rows.loss, rows.error)]
        figure.append(Panel(f"shift of {kind}", "factor", "loss", shown, log_x=True, log_y=True))
    runs = results.flow.rows
    course = [Line(f"seed {run.seed}", run.time[1:], run.loss[1:], run.seed) for run in runs]
    best = Line.of("optimum", lambda time: _risk("noise", 1.0), runs[0].time[[1, -1]], None, True)
    return [*figure, Panel("gradient flow", "time", "loss", [*course, best], log_x=True, log_y=True)]


PAPER = Paper(
    id="zhang2024",
    about=__doc__,
    problems={"training": TRAINING},
    parts=(Part(flow, {"seeds": 1}), Part(shifts, {"sequences": 20_000})),
    checks=(shift_formula, flow_converges, harmless),
    pictures={"shifts": Picture(draw_shifts)},
)
