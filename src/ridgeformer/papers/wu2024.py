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

from typing import Any

import numpy as np

from ridgeformer.models import LinearTransformer, Preconditioned
from ridgeformer.papers.paper import Check, Paper, Part, Results, agree_by_chance, listed, panels
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.predictors import OracleRR
from ridgeformer.problems import Problem
from ridgeformer.theory import one_layer
from ridgeformer.training import SGD

TRAINED, TESTED = (10, 20, 40), (5, 10, 20, 40, 80, 160)
NOISE = {"noise as strong as the signal": np.sqrt(10.0), "little noise": 0.3}
DIMS, TASKS = (8, 16, 32), (100, 400, 1600, 6400)


def _problem_of(sigma: float, context: int) -> Problem:
    """The problem with ten isotropic features, noise of a level and n examples."""
    return Problem(10, context, float(sigma))


def _trained(sigma: float, trained_on: int, tested_on: int) -> Any:
    """The W, [d, d] for sums over m examples, of the best layer with attention by mean for n examples."""
    return one_layer.optimum(_problem_of(sigma, trained_on)) * trained_on / tested_on


def lengths(work: Work, *, sequences: int = 100_000) -> dict[str, Any]:
    """Measure losses at every m, of layers trained at every n and of ridge regression with the best penalty.

    Args:
        work: The progress.
        sequences: How many fresh sequences for each m.

    Returns:
        By noise: losses and errors [n, m] of the layers, and losses [m] of ridge regression.
    """
    curves: dict[str, Any] = {}
    for name, sigma in work.each(NOISE.items()):
        loss, error, ridge = [], [], []
        for m in TESTED:
            layers = {str(n): one_layer.model_of(_trained(sigma, n, m)) for n in TRAINED}
            rows = work.losses(_problem_of(sigma, m), {**layers, "ridge": OracleRR()}, sequences)
            loss.append([rows[str(n)]["loss"] for n in TRAINED])
            error.append([rows[str(n)]["error"] for n in TRAINED])
            ridge.append(rows["ridge"]["loss"])
        curves[name] = {"loss": np.transpose(loss), "error": np.transpose(error), "ridge": ridge}
    return curves


def tasks(work: Work, *, counts: tuple[int, ...] = TASKS, seeds: int = 3) -> dict[str, Any]:
    """Train one layer by stochastic gradient descent, a new task in every step, in growing dimensions.

    Args:
        work: The folder of runs and the progress.
        counts: The numbers of tasks.
        seeds: How many runs are averaged.

    Returns:
        By dimension: the loss over that of the best layer, minus 1, for every number of tasks.
    """
    by_dim: dict[str, Any] = {}
    for dim in work.each(DIMS):
        problem = Problem(dim, 20, 1.0, features=(np.arange(1, dim + 1) ** -2.0).tolist())
        best = one_layer.risk(problem, one_layer.optimum(problem))
        start = LinearTransformer(Preconditioned(*np.zeros((2, 1, 1, dim, dim))))
        by_dim[str(dim)] = []
        for count in counts:
            protocol = SGD(rate=0.0005, steps=count, batch=1, schedule="linear", clip=np.inf, record=count, snapshots=0)
            excess = []
            for seed in range(seeds):
                run = work.train(problem, "preconditioned", seed=seed, protocol=protocol, init=start, sequences=2)
                excess.append(one_layer.risk(problem, one_layer.matrix_of(run.model)) / best - 1)
            by_dim[str(dim)].append(float(np.mean(excess)))
    return {"tasks": list(counts), "excess": by_dim}


def formula(results: Results) -> Check:
    """Decide whether measured losses are those of the shift formula. See `Paper`.

    The loss of a layer trained on n examples and tested on m has a closed form.
    """
    part = results["lengths"]
    places = [(sigma, n, m) for sigma in NOISE.values() for n in TRAINED for m in TESTED]
    return agree_by_chance(
        np.ravel([part[name]["loss"] for name in NOISE]),
        [one_layer.risk(_problem_of(sigma, m), _trained(sigma, n, m)) for sigma, n, m in places],
        [part[name]["error"] for name in NOISE],
        names=[f"sigma {sigma:.2g}, n {n}, m {m}:" for sigma, n, m in places],
    )


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
    same, longer = _ratios(results, "noise as strong as the signal")
    clean, _ = _ratios(results, "little noise")
    return Check(
        f"loss over that of ridge regression at m = n: {listed(same)}; at m = 160: {listed(longer)}; at m = n with "
        f"little noise: {listed(clean)}",
        holds=(
            *(bool(a < b) for a, b in zip(same, longer, strict=True)),
            *(bool(a < b) for a, b in zip(same, clean, strict=True)),
            bool((np.diff(longer) < 0).all()),
        ),
        brief=f"loss / ridge's at m = n: {listed(same)}; at m = 160: {listed(longer)}",
    )


def _excesses(results: Results) -> Any:
    """The loss over that of the best layer, minus 1, [dimensions, numbers of tasks]."""
    return np.array([results["tasks"]["excess"][str(dim)] for dim in DIMS])


def few_tasks(results: Results) -> Check:
    """Decide whether the number of tasks that training needs depends on the dimension. See `Paper`.

    The number of pretraining tasks that one layer needs does not grow with the dimension, for features whose variances
    fall as i^-2.
    """
    excess = _excesses(results)
    last, most = excess[:, -1], float(np.sqrt(DIMS[-1] / DIMS[0]))
    return Check(
        f"excess over the best layer after {results['tasks']['tasks'][-1]} tasks: "
        + ", ".join(f"{value:.1%} at d = {dim}" for dim, value in zip(DIMS, last, strict=True)),
        f"the same at every dimension, and less than after {results['tasks']['tasks'][0]} tasks",
        f"a factor of {most:g} between dimensions {DIMS[0]} and {DIMS[-1]}",
        f"An excess in proportion to d would differ by a factor of {DIMS[-1] / DIMS[0]:g}; its root is midway between "
        "that and none.",
        f"rejected where excesses of two dimensions differ by more than a factor of {most:g} after all tasks, or more "
        "tasks do not lower the excess",
        (bool(last.max() / last.min() < most), *(bool(row[-1] < row[0]) for row in excess)),
    )


def _ratios(results: Results, noise: str) -> tuple[list[float], list[float]]:
    """Losses of layers over those of ridge regression, at m = n and at the longest m."""
    part = results["lengths"][noise]
    ratio = np.array(part["loss"]) / np.array(part["ridge"])
    return [ratio[i, TESTED.index(n)] for i, n in enumerate(TRAINED)], ratio[:, -1].tolist()


def draw(results: Results) -> list[Panel]:
    """Draw losses against m, and the excess against the number of tasks. See `Paper`.

    Loss against the test length m for layers trained at n, beside ridge regression (dashed), and the excess loss of
    stochastic gradient descent against the number of tasks.
    """
    figure = []
    for name, sigma in NOISE.items():
        part = results["lengths"][name]
        shown: list[Any] = []
        for i, n in enumerate(TRAINED):
            curve = [one_layer.risk(_problem_of(sigma, m), _trained(sigma, n, m)) for m in TESTED]
            shown += [Line(f"n = {n}, closed form", TESTED, curve, i), Scatter("", TESTED, part["loss"][i], None, i)]
        shown.append(Line("ridge regression", TESTED, part["ridge"], None, True))
        figure.append(Panel(name, "examples in the test, m", "loss", shown, True, True))
    part = results["tasks"]
    lines = [Line(f"d = {dim}", part["tasks"], part["excess"][str(dim)], i) for i, dim in enumerate(DIMS)]
    figure.append(Panel("stochastic gradient descent", "tasks", "loss / best - 1", lines, True, True))
    return figure


PAPER = Paper(
    id="wu2024",
    about=__doc__,
    problems={name: _problem_of(sigma, 20) for name, sigma in NOISE.items()},
    parts=(Part(lengths, {"sequences": 10_000}), Part(tasks, {"counts": (100, 1600), "seeds": 1})),
    checks=(formula, near_ridge, few_tasks),
    pictures={"lengths": panels(draw)},
)
