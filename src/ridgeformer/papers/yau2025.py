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

import numpy as np

from ridgeformer.papers import Check, Paper, Part, Picture, Results, Rows, Work, agree, listed
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.population import Minimum, Quadratic
from ridgeformer.problems import Problem
from ridgeformer.theory import one_layer
from ridgeformer.training import GradientFlow

SYMMETRIC = Problem(4, 12, 0.5, features=(1.6, 1.2, 0.8, 0.4))
SKEWED = SYMMETRIC.replace(tasks="gaussian(mean=[1,0.5,0,-1])")  # w and -w are not equally likely
ENTRIES = 15  # different entries of G, D (D + 1) / 2 with D = 5


def _best(name: str) -> Minimum:
    """The global optimum of the symmetric or of the skewed problem."""
    return Quadratic.of_problem(SKEWED if name == "skewed" else SYMMETRIC).minimum()


def lifted(work: Work, *, sequences: int = 200_000) -> Rows:
    """Solve the least-squares problem of both problems, and measure the losses of the models that it gives.

    Args:
        work: The progress.
        sequences: How many fresh sequences.

    Yields:
        By problem: the least loss, the heads, the certificate, W, and the measured loss of its model.
    """
    for name, problem in (("symmetric", SYMMETRIC), ("skewed", SKEWED)):
        best = _best(name)
        numbers = {"least": best.loss, "heads": best.heads, "certificate": best.certificate}
        loss = work.loss(problem, best.model(), sequences)
        yield {"name": name, **numbers, "W": one_layer.matrix_of(best.model()), **loss}


def training(work: Work, *, heads: tuple[int, ...] = (1, 2, 3, 5), time: float = 300.0) -> Rows:
    """Train layers with several heads by gradient flow on the population.

    Args:
        work: The folder of runs and the progress.
        heads: The numbers of heads.
        time: The time of the flow.

    Yields:
        For every problem and number of heads: the last loss.
    """
    protocol = GradientFlow(time=time, scale=0.05, record=40, snapshots=0)
    for (name, problem), count in work.each((("symmetric", SYMMETRIC), ("skewed", SKEWED)), heads):
        run = work.train(problem, "full", heads=count, protocol=protocol, sequences=1000)
        yield {"name": name, "heads": count, "loss": run.history.loss[-1]}


def samples(work: Work, *, counts: tuple[int, ...] = (5, 10, 14, 15, 16, 30, 100, 1000, 10_000)) -> Rows:
    """Solve the least-squares problem on finitely many contexts.

    Args:
        work: The progress.
        counts: The numbers of contexts.

    Yields:
        For every number: the certificate, and the loss of the solution on the population.
    """
    population, metric = Quadratic.of_problem(SYMMETRIC), np.asarray(SYMMETRIC.query_covariance)
    for count in counts:
        draw = SYMMETRIC.moments(count, seed=1)
        best = Quadratic.of_sample(np.asarray(draw.moments.gram), np.asarray(draw.task), metric).minimum()
        yield {"contexts": count, "certificate": best.certificate, "loss": population(best.model())[0]}


def global_optimum(results: Results) -> Check:
    """Decide whether least squares finds the optimum of the closed form. See `Paper`.

    The global optimum of one layer is a least-squares problem. For tasks w and -w equally likely it is the closed form,
    it needs one head, and no other minimiser predicts differently.

    Reason: Rounding of a least-squares problem with 15 unknowns per output.
    """
    solved, W = results.lifted.rows[0], one_layer.optimum(SYMMETRIC)
    off = np.abs(solved.W - W).max() / np.abs(W).max()
    return agree(
        [solved.least, off, solved.heads, solved.certificate > 1e-9],
        [one_layer.risk(SYMMETRIC, W), 0.0, 1.0, 1.0],
        [1e-9, 1e-6, 0.0, 0.0],
        unit="1e-9 for the loss, 1e-6 for W",
        names=["loss", "W off by", "heads", "certificate positive"],
    )


def measured(results: Results) -> Check:
    """Decide whether the models made of the solutions have these losses. See `Paper`.

    A model with as many heads as the rank of the solution has its loss.
    """
    rows = results.lifted
    return agree(rows.loss, rows.least, error=rows.error, names=rows.name)


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
    symmetric, skewed = (rows.loss / _best(name).loss - 1 for name, rows in results.training.by("name"))
    heads, rank = results.training.where(name="skewed").heads, _best("skewed").heads
    return Check(
        f"loss over the optimum, minus 1, with {listed(heads, 'd')} heads: symmetric {listed(symmetric, '.1e')}; "
        f"skewed {listed(skewed, '.1e')}; rank {rank}",
        holds=[np.abs(symmetric) < 1e-4, skewed[0] > 1e-3, np.abs(skewed[heads >= rank]) < 1e-4, min(skewed) > -1e-9],
    )


def identified(results: Results) -> Check:
    """Decide from how many contexts on the optimum is unique. See `Paper`.

    The certificate says when data determine the layer: from as many contexts on as G has different entries.

    Tolerance: exact; 2 %
    Reason: The rank of a sum of this number of products; the excess of least squares is about unknowns / contexts.
    Rule: rejected where the certificate is positive with fewer contexts or zero with more
    """
    rows = results.samples
    last = rows.loss[-1] / _best("symmetric").loss
    return Check(
        f"certificate: {', '.join(rows.names('{contexts}: {certificate:.1e}'))}; loss with {rows.contexts[-1]} "
        f"contexts over the optimum: {last:.4f}",
        expected=f"positive from {ENTRIES} contexts on, and a loss within 2 % of the optimum with the most",
        holds=[(rows.certificate > 1e-9) == (rows.contexts >= ENTRIES), last < 1.02],
    )


def draw(results: Results) -> list[Panel]:
    """Draw what training reaches against heads, and solutions on finitely many contexts. See `Paper`.

    What training reaches by the number of heads, and solutions on finite data.
    """
    shown, rows = [], results.samples
    for colour, (name, group) in enumerate(results.training.by("name")):
        best = Line("global optimum", group.heads, [_best(name).loss] * len(group.heads), colour, True)
        shown += [Scatter(f"{name} tasks, trained", group.heads, group.loss, None, colour), best]
    best = Line("optimum", rows.contexts, [_best("symmetric").loss] * len(rows.contexts), None, True)
    losses = [Line("least squares", rows.contexts, rows.loss), best]
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
    pictures={"losses": Picture(draw)},
)
