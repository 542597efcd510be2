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

from typing import Any

import numpy as np

from ridgeformer.papers.paper import Check, Paper, Part, Results, agree, agree_by_chance, panels
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.problems import Problem
from ridgeformer.theory import one_layer
from ridgeformer.training import GradientFlow

SPECTRUM = (1.8, 1.3, 1.0, 0.6, 0.3)
TRAINING = Problem(5, 20, 0.5, features=SPECTRUM)
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
KINDS = ("tasks", "query", "features", "context", "noise")


def _shifted(kind: str, scale: float) -> Problem:
    """The training problem with one law changed by a factor; tasks and queries also get another shape."""
    reverse = scale * np.diag(SPECTRUM[::-1])
    if kind == "tasks":
        return TRAINING.replace(tasks=f"gaussian(covariance={(reverse / np.mean(SPECTRUM)).tolist()})")
    if kind in ("query", "features"):
        return TRAINING.replace(**{kind: reverse if kind == "query" else scale * np.diag(SPECTRUM)})
    if kind == "context":
        return TRAINING.replace(context=round(scale * TRAINING.context))
    return TRAINING.replace(noise=0.5 * scale)


def _trained(problem: Problem) -> Any:
    """The W, [d, d] for sums over the context, of the optimal layer with attention by mean."""
    return one_layer.optimum(TRAINING) * TRAINING.context / problem.context


def flow(work: Work, *, time: float = 100.0, seeds: int = 3) -> dict[str, Any]:
    """Follow gradient flow from small random starts to its end.

    Args:
        work: The folder of runs and the progress.
        time: The time of the flow.
        seeds: How many starts.

    Returns:
        By seed: times and losses of the course, and the W of the last model.
    """
    runs = []
    for seed in work.each(range(seeds)):
        run = work.train(TRAINING, "full", seed=seed, protocol=GradientFlow(time=time, scale=0.02, record=100))
        W = one_layer.matrix_of(run.model)
        runs.append({"time": run.history.time, "loss": run.history.loss, "W": W})
    return {"runs": runs}


def shifts(work: Work, *, sequences: int = 200_000) -> dict[str, Any]:
    """Measure the loss of the optimal layer under every shift.

    Args:
        work: The progress.
        sequences: How many fresh sequences for each shift.

    Returns:
        By kind of shift: losses and standard errors, one for each of `SCALES`.
    """
    losses: dict[str, Any] = {}
    for kind in work.each(KINDS):
        problems = [_shifted(kind, scale) for scale in SCALES]
        rows = [work.losses(one, {"": one_layer.model_of(_trained(one))}, sequences)[""] for one in problems]
        losses[kind] = {key: [row[key] for row in rows] for key in ("loss", "error")}
    return losses


def shift_formula(results: Results) -> Check:
    """Decide whether measured losses are those of the shift formula. See `Paper`.

    The loss of one trained layer under any shift of tasks, queries, features, context length and noise has a closed
    form.
    """
    problems = [_shifted(kind, scale) for kind in KINDS for scale in SCALES]
    measured = [loss for kind in KINDS for loss in results["shifts"][kind]["loss"]]
    error = [error for kind in KINDS for error in results["shifts"][kind]["error"]]
    expected = [one_layer.risk(problem, _trained(problem)) for problem in problems]
    return agree_by_chance(
        measured, expected, error, names=[f"{kind} x{scale:g}:" for kind in KINDS for scale in SCALES]
    )


def flow_converges(results: Results) -> Check:
    """Decide whether gradient flow ends at the global optimum. See `Paper`.

    Gradient flow from a small start converges to the global optimum, W = Gamma Lambda [(n + 1) Lambda Gamma Lambda +
    (tr(Gamma Lambda) + sigma^2) Lambda]^-1.

    Reason: The tolerance of the integration is 1e-8 per step; the loss is quadratic around the optimum.
    """
    best = one_layer.optimum(TRAINING)
    off = [np.abs(np.array(run["W"]) - best).max() / np.abs(best).max() for run in results["flow"]["runs"]]
    return agree(off, np.zeros(len(off)), 1e-4, names=[f"seed {seed}:" for seed in range(len(off))])


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
    ratio, error = {}, {}
    for kind in KINDS[:3]:
        best = np.array([one_layer.risk(_shifted(kind, s), one_layer.optimum(_shifted(kind, s))) for s in SCALES])
        ratio[kind] = np.array(results["shifts"][kind]["loss"]) / best
        error[kind] = 4 * np.array(results["shifts"][kind]["error"]) / best
    worst = {kind: values.max() for kind, values in ratio.items()}
    return Check(
        ", ".join(f"{kind} {value:.3g}" for kind, value in worst.items()),
        holds=(
            bool((np.abs(ratio["query"] - 1) < error["query"]).all()),
            bool(worst["tasks"] <= 1.25),
            bool(worst["features"] > 10),
        ),
    )


def draw_shifts(results: Results) -> list[Panel]:
    """Draw measured losses on the curve of the formula, for every shift. See `Paper`.

    Loss of the optimal layer under shifts, and gradient flow towards it.
    """
    fine = np.geomspace(SCALES[0], SCALES[-1], 41)
    figure = []
    for kind in KINDS:
        part = results["shifts"][kind]
        grid = fine if kind != "context" else np.arange(5, 81) / 20
        curve = [one_layer.risk(problem, _trained(problem)) for problem in (_shifted(kind, scale) for scale in grid)]
        shown = [Line("closed form", grid.tolist(), curve), Scatter("measured", SCALES, part["loss"], part["error"])]
        figure.append(Panel(f"shift of {kind}", "factor", "loss", shown, log_x=True, log_y=True))
    runs = results["flow"]["runs"]
    course = [Line(f"seed {k}", run["time"][1:], run["loss"][1:], k) for k, run in enumerate(runs)]
    loss = one_layer.risk(TRAINING, _trained(TRAINING))
    best = Line("optimum", [runs[0]["time"][1], runs[0]["time"][-1]], [loss, loss], None, True)
    figure.append(Panel("gradient flow", "time", "loss", [*course, best], log_x=True, log_y=True))
    return figure


PAPER = Paper(
    id="zhang2024",
    about=__doc__,
    problems={"training": TRAINING},
    parts=(Part(flow, {"seeds": 1}), Part(shifts, {"sequences": 20_000})),
    checks=(shift_formula, flow_converges, harmless),
    pictures={"shifts": panels(draw_shifts)},
)
