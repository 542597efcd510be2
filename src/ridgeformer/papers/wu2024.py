"""Wu and others: one layer trained on n examples and tested on m, and the number of tasks that training needs.

How many pretraining tasks are needed for in-context learning of linear regression?
Jingfeng Wu, Difan Zou, Zixiang Chen, Vladimir Braverman, Quanquan Gu and Peter L. Bartlett, ICLR 2024
https://arxiv.org/abs/2310.08391

One layer of linear attention is one step of gradient descent with a learned matrix of step sizes. Stochastic gradient
descent learns that matrix from a number of tasks that does not depend on the dimension. The trained layer matches ridge
regression with the best penalty, up to a constant, if the test has as many examples as training had and the noise is
not weaker than the signal.

One layer with attention by mean is optimal for the length n it was trained at. The shift formula gives its loss at any
other length m, and measured losses are compared with it at 36 places. Beside it stands ridge regression with the best
penalty, which knows m. The theorem promises a constant factor where m = n and the noise is strong, without naming it;
what can be decided is the order of the cases. A third panel follows stochastic gradient descent that sees every task
once, in three dimensions whose covariances have nearly the same trace.

Not checked here: The order of the excess in the number of tasks, which the paper bounds up to logarithms.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from ridgeformer.models import LinearTransformer, Preconditioned
from ridgeformer.papers import Check, Paper, Part, Picture, Results, Rows, Work, agree, listed
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.predictors import OracleRR
from ridgeformer.problems import Problem
from ridgeformer.theory import one_layer
from ridgeformer.training import SGD
from ridgeformer.validation import Array

TRAINED, TESTED = (10, 20, 40), (5, 10, 20, 40, 80, 160)
NOISE = {"noise as strong as the signal": np.sqrt(10.0), "little noise": 0.3}
DIMS, TASKS = (8, 16, 32), (100, 400, 1600, 6400)


def _problem_of(sigma: float, context: int) -> Problem:
    """The problem with ten isotropic features, noise of a level and n examples."""
    return Problem(10, context, float(sigma))


def _trained(sigma: float, n: int, m: int) -> Array:
    """The W, [d, d] for sums over m examples, of the best layer with attention by mean for n examples."""
    return one_layer.optimum(_problem_of(sigma, n)) * n / m


def _risk(sigma: float, n: int, m: int) -> float:
    """The loss of that layer."""
    return one_layer.risk(_problem_of(sigma, m), _trained(sigma, n, m))


def lengths(work: Work, *, sequences: int = 100_000) -> Rows:
    """Measure losses at every m, of layers trained at every n and of ridge regression with the best penalty.

    Args:
        work: The progress.
        sequences: How many fresh sequences for each m.

    Yields:
        For every noise, n and m: the loss of the layer and its error, and the loss of ridge regression.
    """
    for noise, sigma in work.each(NOISE.items()):
        losses = {}
        for m in TESTED:
            layers = {str(n): one_layer.model_of(_trained(sigma, n, m)) for n in TRAINED}
            losses[m] = work.losses(_problem_of(sigma, m), {**layers, "ridge": OracleRR()}, sequences)
        for n, m in product(TRAINED, TESTED):
            ridge = losses[m]["ridge"]["loss"]
            yield {"noise": noise, "sigma": sigma, "n": n, "m": m, "ridge": ridge, **losses[m][str(n)]}


def tasks(work: Work, *, counts: tuple[int, ...] = TASKS, seeds: int = 3) -> Rows:
    """Train one layer by stochastic gradient descent, a new task in every step, in growing dimensions.

    Args:
        work: The folder of runs and the progress.
        counts: The numbers of tasks.
        seeds: How many runs are averaged.

    Yields:
        For every dimension and number of tasks: the loss over that of the best layer, minus 1.
    """
    for d, count in work.each(DIMS, counts):
        problem = Problem(d, 20, 1.0, features=(np.arange(1, d + 1) ** -2.0).tolist())
        best = one_layer.risk(problem, one_layer.optimum(problem))
        start, losses = LinearTransformer(Preconditioned(*np.zeros((2, 1, 1, d, d)))), []
        protocol = SGD(rate=0.0005, steps=count, batch=1, schedule="linear", clip=np.inf, record=count, snapshots=0)
        for seed in range(seeds):
            run = work.train(problem, "preconditioned", seed=seed, protocol=protocol, init=start, sequences=2)
            losses.append(one_layer.risk(problem, one_layer.matrix_of(run.model)))
        yield {"d": d, "tasks": count, "excess": np.mean(np.divide(losses, best) - 1)}


def formula(results: Results) -> Check:
    """Decide whether measured losses are those of the shift formula. See `Paper`.

    The loss of a layer trained on n examples and tested on m has a closed form.
    """
    rows = results.lengths
    names = rows.names("sigma {sigma:.2g}, n {n}, m {m}:")
    return agree(rows.loss, rows.compute(_risk), error=rows.error, names=names)


def near_ridge(results: Results) -> Check:
    """Decide whether the layer is near the best ridge regression where m = n, and only there. See `Paper`.

    A layer matches ridge regression with the best penalty up to a constant where m = n and the noise is as strong as
    the signal, but not for much longer contexts.

    Expected: at m = n less than at m = 160 and less than with little noise, for every n; at m = 160 more, the
        shorter n
    Tolerance: none
    Reason: The theorem has a constant that it does not name, so that no number can be held against it; the order of
        the cases can.
    Rule: rejected where the ratio at m = n is not the least of the three, or that at m = 160 does not fall with n
    """
    (same, longer), (clean, _) = (_ratios(results, noise) for noise in NOISE)
    return Check(
        f"loss over that of ridge regression at m = n: {listed(same)}; at m = 160: {listed(longer)}; at m = n with "
        f"little noise: {listed(clean)}",
        holds=[same < longer, same < clean, (np.diff(longer) < 0).all()],
        brief=f"loss / ridge's at m = n: {listed(same)}; at m = 160: {listed(longer)}",
    )


def _ratios(results: Results, noise: str) -> tuple[Array, Array]:
    """Losses of layers over those of ridge regression, at m = n and at the longest m."""
    rows = results.lengths.where(noise=noise)
    ratio = rows.loss / rows.ridge
    return ratio[rows.m == rows.n], ratio[rows.m == TESTED[-1]]


def _excesses(results: Results) -> Array:
    """The loss over that of the best layer, minus 1, [dimensions, numbers of tasks]."""
    return np.array([rows.excess for _, rows in results.tasks.by("d")])


def few_tasks(results: Results) -> Check:
    """Decide whether the number of tasks that training needs depends on the dimension. See `Paper`.

    The number of pretraining tasks that one layer needs does not grow with the dimension, for features whose variances
    fall as i^-2.

    Expected: the same at every dimension, and less than after 100 tasks
    Tolerance: a factor of 2 between dimensions 8 and 32
    Reason: An excess in proportion to d would differ by a factor of 4; its root is midway between that and none.
    Rule: rejected where excesses of two dimensions differ by more than a factor of 2 after all tasks, or more tasks do
        not lower the excess
    """
    excess = _excesses(results)
    last = excess[:, -1]
    return Check(
        f"excess over the best layer after {results.tasks.tasks[-1]} tasks: "
        + ", ".join(f"{value:.1%} at d = {d}" for d, value in zip(DIMS, last, strict=True)),
        holds=[last.max() / last.min() < np.sqrt(DIMS[-1] / DIMS[0]), last < excess[:, 0]],
    )


def draw(results: Results) -> list[Panel]:
    """Draw losses against m, and the excess against the number of tasks. See `Paper`.

    Loss against the test length m for layers trained at n, beside ridge regression (dashed), and the excess loss of
    stochastic gradient descent against the number of tasks.
    """
    figure = []
    for noise, rows in results.lengths.by("noise"):
        shown: list[Line | Scatter] = []
        for i, (n, group) in enumerate(rows.by("n")):
            shown += [
                Line(f"n = {n}, closed form", TESTED, group.compute(_risk), i),
                Scatter("", TESTED, group.loss, None, i),
            ]
        shown.append(Line("ridge regression", TESTED, group.ridge, None, True))
        figure.append(Panel(noise, "examples in the test, m", "loss", shown, True, True))
    lines = [Line(f"d = {d}", rows.tasks, rows.excess, i) for i, (d, rows) in enumerate(results.tasks.by("d"))]
    return [*figure, Panel("stochastic gradient descent", "tasks", "loss / best - 1", lines, True, True)]


PAPER = Paper(
    id="wu2024",
    about=__doc__,
    problems={name: _problem_of(sigma, 20) for name, sigma in NOISE.items()},
    parts=(Part(lengths, {"sequences": 10_000}), Part(tasks, {"counts": (100, 1600), "seeds": 1})),
    checks=(formula, near_ridge, few_tasks),
    pictures={"lengths": Picture(draw)},
)
