"""Yau and others: the global optimum of one layer by least squares over products of parameters.

Learning linear attention in polynomial time
Morris Yau, Ekin Akyurek, Jiayuan Mao, Joshua Tenenbaum, Stefanie Jegelka and Jacob Andreas, NeurIPS 2025
https://arxiv.org/abs/2410.10101

The predictions of one layer of linear attention are linear in products of its parameters, so that the best layer with
any number of heads is a least-squares problem. The rank of the solution is the number of heads that it needs, and the
second moments of the data certify whether all minimisers agree.

A layer with any number of heads predicts linearly in products of its parameters. The best such products solve a
least-squares problem, exactly on the population and on any sample; their rank is the number of heads needed, and the
smallest eigenvalue of the second moments certifies that no other solution predicts differently. The solution is held
against the closed form of one layer, against a measured loss, and against what gradient flow reaches with 1 to 5 heads.
With two heads the flow ends from one start at a stationary point that has 60 % more loss than the optimum: enough heads
alone do not make training safe, which is the case for least squares.

Not checked here: Associative memories and universal Turing machines, which need attention over other tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeformer.papers.paper import Check, Paper, Part, Results, agree, agree_by_chance, listed, panels
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.population import Quadratic
from ridgeformer.problems import Problem
from ridgeformer.theory import one_layer
from ridgeformer.training import GradientFlow

SYMMETRIC = Problem(4, 12, 0.5, features=(1.6, 1.2, 0.8, 0.4))
SKEWED = SYMMETRIC.replace(tasks="gaussian(mean=[1,0.5,0,-1])")  # w and -w are not equally likely
ENTRIES = 15  # different entries of G, D (D + 1) / 2 with D = 5


def lifted(work: Work, *, sequences: int = 200_000) -> dict[str, Any]:
    """Solve the least-squares problem of both problems, and measure the losses of the models that it gives.

    Args:
        work: The progress.
        sequences: How many fresh sequences.

    Returns:
        By problem: the least loss, the measured loss of its model, the heads, the certificate, and W.
    """
    models = {}
    for name, problem in (("symmetric", SYMMETRIC), ("skewed", SKEWED)):
        best = Quadratic.of_problem(problem).minimum()
        row = work.losses(problem, {"": best.model()}, sequences)[""]
        numbers = {"loss": best.loss, "heads": best.heads, "certificate": best.certificate}
        W = one_layer.matrix_of(best.model())
        models[name] = {**numbers, "measured": row["loss"], "error": row["error"], "W": W}
    return models


def training(work: Work, *, heads: tuple[int, ...] = (1, 2, 3, 5), time: float = 300.0) -> dict[str, Any]:
    """Train layers with several heads by gradient flow on the population.

    Args:
        work: The folder of runs and the progress.
        heads: The numbers of heads.
        time: The time of the flow.

    Returns:
        By problem: the last losses, one for each number of heads.
    """
    losses: dict[str, Any] = {"heads": list(heads)}
    for name, problem in (("symmetric", SYMMETRIC), ("skewed", SKEWED)):
        losses[name] = []
        for count in work.each(heads):
            protocol = GradientFlow(time=time, scale=0.05, record=40, snapshots=0)
            run = work.train(problem, "full", heads=count, protocol=protocol, sequences=1000)
            losses[name].append(run.history.loss[-1])
    return losses


def samples(work: Work, *, counts: tuple[int, ...] = (5, 10, 14, 15, 16, 30, 100, 1000, 10_000)) -> dict[str, Any]:
    """Solve the least-squares problem on finitely many contexts.

    Args:
        work: The progress.
        counts: The numbers of contexts.

    Returns:
        For every number: the certificate, and the loss of the solution on the population.
    """
    whole, rows = Quadratic.of_problem(SYMMETRIC), []
    for count in counts:
        draw = SYMMETRIC.moments(count, seed=1)
        metric = np.asarray(SYMMETRIC.query_covariance)
        best = Quadratic.of_sample(np.asarray(draw.moments.gram), np.asarray(draw.task), metric).minimum()
        rows.append({"contexts": count, "certificate": best.certificate, "loss": whole(best.model())[0]})
    return {"rows": rows}


def global_optimum(results: Results) -> Check:
    """Decide whether least squares finds the optimum of the closed form. See `Paper`.

    The global optimum of one layer is a least-squares problem. For tasks w and -w equally likely it is the closed form,
    it needs one head, and no other minimiser predicts differently.

    Reason: Rounding of a least-squares problem with 15 unknowns per output.
    """
    part, W = results["lifted"]["symmetric"], one_layer.optimum(SYMMETRIC)
    off = np.abs(np.array(part["W"]) - W).max() / np.abs(W).max()
    return agree(
        [part["loss"], off, part["heads"], float(part["certificate"] > 1e-9)],
        [one_layer.risk(SYMMETRIC, W), 0.0, 1.0, 1.0],
        [1e-9, 1e-6, 0.0, 0.0],
        unit="1e-9 for the loss, 1e-6 for W",
        names=["loss", "W off by", "heads", "certificate positive"],
    )


def measured(results: Results) -> Check:
    """Decide whether the models made of the solutions have these losses. See `Paper`.

    A model with as many heads as the rank of the solution has its loss.
    """
    parts = [results["lifted"][name] for name in ("symmetric", "skewed")]
    return agree_by_chance(
        [part["measured"] for part in parts],
        [part["loss"] for part in parts],
        [part["error"] for part in parts],
        names=["symmetric", "skewed"],
    )


def trained(results: Results) -> Check:
    """Decide what training reaches, by the number of heads. See `Paper`.

    Training reaches the global optimum if there are enough heads: one for symmetric tasks, as many as the rank for
    others.

    Expected: 0 for symmetric tasks; for skewed tasks above 0 with one head and 0 with as many as the rank
    Tolerance: 1e-4
    Reason: Gradient flow approaches an optimum that is degenerate in the size of the heads slowly.
    Rule: rejected where training with enough heads stays more than 1e-4 above the optimum, where one head reaches
        the optimum of skewed tasks, or where training is below the optimum
    """
    part, heads = results["training"], results["training"]["heads"]
    best = {name: Quadratic.of_problem(one).minimum() for name, one in (("symmetric", SYMMETRIC), ("skewed", SKEWED))}
    excess = {name: [loss / best[name].loss - 1 for loss in part[name]] for name in best}
    enough = [x for x, count in zip(excess["skewed"], heads, strict=True) if count >= best["skewed"].heads]
    return Check(
        f"loss over the optimum, minus 1, with {', '.join(map(str, heads))} heads: symmetric "
        f"{listed(excess['symmetric'], '.1e')}; skewed {listed(excess['skewed'], '.1e')}; rank {best['skewed'].heads}",
        holds=(
            *(abs(x) < 1e-4 for x in excess["symmetric"]),
            excess["skewed"][0] > 1e-3,
            *(abs(x) < 1e-4 for x in enough),
            min(excess["skewed"]) > -1e-9,
        ),
    )


def identified(results: Results) -> Check:
    """Decide from how many contexts on the optimum is unique. See `Paper`.

    The certificate says when data determine the layer: from as many contexts on as G has different entries.

    Tolerance: exact; 2 %
    Reason: The rank of a sum of this number of products; the excess of least squares is about unknowns / contexts.
    Rule: rejected where the certificate is positive with fewer contexts or zero with more
    """
    rows = results["samples"]["rows"]
    holds = [(row["certificate"] > 1e-9) == (row["contexts"] >= ENTRIES) for row in rows]
    best, last = Quadratic.of_problem(SYMMETRIC).minimum().loss, rows[-1]["loss"]
    return Check(
        "certificate: "
        + ", ".join(f"{row['contexts']}: {row['certificate']:.1e}" for row in rows)
        + f"; loss with {rows[-1]['contexts']} contexts over the optimum: {last / best:.4f}",
        expected=f"positive from {ENTRIES} contexts on, and a loss within 2 % of the optimum with the most",
        holds=(*holds, last < 1.02 * best),
    )


def draw(results: Results) -> list[Panel]:
    """Draw what training reaches against heads, and solutions on finitely many contexts. See `Paper`.

    What training reaches by the number of heads, and solutions on finite data.
    """
    part, rows = results["training"], results["samples"]["rows"]
    shown: list[Any] = []
    for colour, (name, problem) in enumerate((("symmetric", SYMMETRIC), ("skewed", SKEWED))):
        best = Quadratic.of_problem(problem).minimum().loss
        shown += [
            Scatter(f"{name} tasks, trained", part["heads"], part[name], None, colour),
            Line("global optimum", part["heads"], [best] * len(part["heads"]), colour, True),
        ]
    contexts = [row["contexts"] for row in rows]
    best = Quadratic.of_problem(SYMMETRIC).minimum().loss
    losses = [
        Line("least squares", contexts, [row["loss"] for row in rows]),
        Line("optimum", contexts, [best] * len(rows), None, True),
    ]
    return [
        Panel("training", "heads", "loss", shown),
        Panel("finitely many contexts", "contexts", "loss", losses, True, True),
    ]


PAPER = Paper(
    id="yau2025",
    about=__doc__,
    problems={"symmetric": SYMMETRIC, "skewed": SKEWED},
    parts=(Part(lifted, {"sequences": 20_000}), Part(training, {"heads": (1, 5)}), Part(samples)),
    checks=(global_optimum, measured, trained, identified),
    pictures={"losses": panels(draw)},
)
