"""Lu and others: one layer pretrained on finitely many contexts and tasks, and the limit of large dimensions.

Asymptotic theory of in-context learning by linear attention
Yue M. Lu, Mary Letey, Jacob Zavatone-Veth, Anindita Maiti and Cengiz Pehlevan, PNAS 2025
https://arxiv.org/abs/2405.11751

One layer of linear attention is pretrained by ridge regression on tau d^2 contexts of alpha d examples, with kappa d
different tasks. For large d its errors on new tasks and on the pretraining tasks have exact limits: a double descent in
the number of contexts, and a transition from memory to learning in context where there are about as many tasks as
dimensions.

Pretraining is ridge regression on tau d^2 contexts, computed exactly as the authors define it; contexts are drawn
without tokens, by the joint law of the sums that the layer sees. Errors on new tasks and on the pool then follow
without sampling from the matrix that was found. They are compared with the asymptotic formulas in four dimensions, and
with the column of numbers that the authors' repository stores for d = 32. `ridgeformer papers run lu2025 --d 32 --json`
prints that column, for any d.

Not checked here: Transformers with softmax and several layers, which the authors' figures 5 and 6 include.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ridgeformer.engine import default_threads, one_blas_thread
from ridgeformer.papers.paper import Check, NotMeasuredError, Paper, Part, Results, agree, listed, panels
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.problems import Problem
from ridgeformer.problems.tasks import Pool, Tasks
from ridgeformer.theory import one_layer, pretraining


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


SETTINGS = ((1.0, 0.5, 0.5, 0.01), (2.0, 1.0, 0.6, 0.1), (2.0, 2.0, 3.0, 0.1))  # alpha, kappa, tau, rho
KAPPAS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.6, 2.0, 4.0, 8.0, 16.0, 32.0)
# The authors' repository, by d: alpha = 10, tau = 10, rho = .01, penalty 1e-6, 20 repetitions. The difference of the
# errors on new tasks and on the pool, and the root of the sum of both variances over repetitions, for all of KAPPAS.
PUBLISHED = {
    10: _numbers("1.452 .925 .6761 .4293 .2662 .1543 .06373 .04552 .01129 .004241 .001936 .001073"),
    32: _numbers("1.00986 .74981 .50636 .32598 .19065 .12508 .05273 .03316 .009805 .004013 .001795 .000777"),
    64: _numbers(".9259 .6823 .4730 .2974 .1757 .1102 .0527 .03169 .009416 .003778 .001735 .000824"),
}
SPREAD = {
    10: _numbers(".2169 .0918 .09 .0693 .0524 .0464 .0258 .0205 .00542 .00397 .0035 .0038"),
    32: _numbers(".04339 .03079 .01674 .01015 .01762 .01256 .00622 .004628 .001276 .001064 .00086 .000743"),
    64: _numbers(".01603 .00872 .0066 .00631 .00656 .00467 .00238 .0017 .000676 .000481 .000498 .000477"),
}
REPETITIONS = 20  # of the published numbers


def problem_of(d: int, alpha: float, rho: float, tasks: Tasks) -> Problem:
    """Return the problem with features N(0, I / d) and n = alpha d examples.

    Args:
        d: The dimension.
        alpha: n / d.
        rho: The variance of the noise.
        tasks: The law of the tasks.

    Returns:
        The problem.
    """
    return Problem(d, round(alpha * d), float(np.sqrt(rho)), features=[1 / d] * d, tasks=tasks)


def errors(
    d: int, alpha: float, kappa: float, tau: float, rho: float, *, seed: int, penalty: float, precision: str = "float64"
) -> tuple[float, float]:
    """Pretrain one layer and compute its expected errors.

    Args:
        d: The dimension.
        alpha: n / d.
        kappa: Tasks in the pool, over d.
        tau: Contexts over d^2.
        rho: The variance of the noise.
        seed: The seed of tasks and contexts.
        penalty: As for `pretraining.fit`.
        precision: As for `pretraining.fit`.

    Returns:
        Squared errors, with the noise of the query, on new tasks and on the pool.
    """
    pool = problem_of(d, alpha, rho, Pool(int(kappa * d + 1e-9), seed=seed, law="sphere"))
    # New tasks are uniform on the sphere; these 2 d tasks have the same moments as far as the error depends on them.
    new = problem_of(d, alpha, rho, Pool(np.sqrt(d) * np.vstack([np.eye(d), -np.eye(d)])))
    W = pretraining.fit(pool, round(tau * d * d), penalty=penalty, seed=seed, precision=precision)
    return 2 * one_layer.risk(new, W) + rho, 2 * one_layer.risk(pool, W) + rho


def _repeated(count: int, d: int, *setting: float, **how: Any) -> Any:
    """Errors of several repetitions, [count, (new, pool)], each with its own seed and thread."""
    with one_blas_thread(), ThreadPoolExecutor(default_threads()) as pool:
        return np.array(list(pool.map(lambda seed: errors(d, *setting, seed=seed, **how), range(count))))


def dimensions(work: Work, *, counts: dict[int, int] | None = None) -> dict[str, Any]:
    """Measure errors in growing dimensions.

    Args:
        work: The progress.
        counts: How often each dimension is repeated; None for 400, 100, 24 and 4 times at d = 10, 20, 40 and 80.

    Returns:
        The dimensions, and mean errors and their standard errors, [settings, dimensions, (new, pool)].
    """
    often = {10: 400, 20: 100, 40: 24, 80: 4} if counts is None else {int(d): n for d, n in counts.items()}
    mean, error = (np.zeros((len(SETTINGS), len(often), 2)) for _ in range(2))
    for i, j in work.each(np.ndindex(mean.shape[:2])):
        setting, (d, count) = SETTINGS[i], list(often.items())[j]
        precision = "float32" if setting[2] > 2 else "float64"
        rows = _repeated(count, d, *setting, penalty=1e-9, precision=precision)
        mean[i, j], error[i, j] = rows.mean(0), rows.std(0, ddof=1) / np.sqrt(count)
    return {"d": list(often), "mean": mean, "error": error}


def column(
    work: Work, *, d: int = 32, kappas: tuple[float, ...] = KAPPAS, repetitions: int = REPETITIONS
) -> dict[str, Any]:
    """Measure the difference of both errors against the number of tasks, as the authors' repository does.

    Args:
        work: The progress.
        d: The dimension.
        kappas: Tasks in the pool, over d.
        repetitions: How many pools and sets of contexts are averaged.

    Returns:
        Means, standard errors and spreads over repetitions, one for each of `kappas`.
    """
    rows = []
    for kappa in work.each(kappas):
        both = _repeated(repetitions, d, 10.0, kappa, 10.0, 0.01, penalty=1e-6, precision="float32")
        gap, spread = both[:, 0] - both[:, 1], np.sqrt(both.var(0).sum())
        error = gap.std(ddof=1) / np.sqrt(repetitions)
        rows.append({"kappa": kappa, "gap": gap.mean(), "error": error, "spread": spread})
    return {"d": d, "rows": rows}


def published(results: Results) -> Check:
    """Decide whether the published column is matched. See `Paper`.

    The error on new tasks exceeds that on the pool by the published amounts at every number of tasks (d = 32).

    Reason: Three standard errors of the published means, which are their spread over the root of 20.
    """
    rows = results["column"]["rows"]
    d, index = int(results["column"]["d"]), [KAPPAS.index(row["kappa"]) for row in rows if row["kappa"] in KAPPAS]
    if d not in PUBLISHED or len(index) < len(rows):
        raise NotMeasuredError(f"no published numbers for d = {d}")
    spread = np.array(SPREAD[d])[index] / np.sqrt(REPETITIONS)
    return agree(
        [row["gap"] for row in rows],
        np.array(PUBLISHED[d])[index],
        3 * spread,
        unit="3 of the published standard errors",
        names=[f"kappa {row['kappa']:g}:" for row in rows],
        published=listed([PUBLISHED[d][k] for k in index]),
    )


def limits(results: Results) -> Check:
    """Decide whether errors approach the limits as the dimension grows. See `Paper`.

    Errors on new tasks and on the pool approach the asymptotic formulas as d grows.

    Expected: powers of -1
    Tolerance: a power between -3/2 and -1/2, up to 2 standard errors; at the largest d less than at the smallest
    Reason: Corrections to the limit are of the order 1 / d: the power must be closer to -1 than to 0 or -2.
    Rule: rejected where a deviation does not fall as a power of d in that range, or is not less at the largest d
    """
    part = results["dimensions"]
    d, mean, error = np.array(part["d"], float), np.array(part["mean"]), np.array(part["error"])
    truth = np.array([pretraining.limit(*setting) for setting in SETTINGS])[:, None]
    off = mean / truth - 1
    weight = np.abs(off) / (error / truth)  # of logarithms, whose errors are relative
    fits = [
        np.polyfit(np.log(d), np.log(np.abs(off[i, :, k])), 1, w=weight[i, :, k], cov="unscaled")
        for i, k in np.ndindex(len(off), 2)
    ]
    power, chance = np.array([fit[0][0] for fit in fits]), np.array([2 * np.sqrt(fit[1][0, 0]) for fit in fits])
    first, last = np.abs(off[:, 0]).ravel(), np.abs(off[:, -1]).ravel()
    return Check(
        f"relative deviation at d = {listed(d, 'g')}: new tasks "
        + "; ".join(listed(row, "+.1%") for row in off[:, :, 0])
        + "; pool "
        + "; ".join(listed(row, "+.1%") for row in off[:, :, 1])
        + "; fitted powers of d "
        + ", ".join(f"{x:.2f} +- {e:.2f}" for x, e in zip(power, chance, strict=True)),
        holds=(*((power > -1.5 - chance) & (power < -0.5 + chance)).tolist(), *(last < first).tolist()),
        brief=f"deviation at d = {d[-1]:g} at most {last.max():.1%}, falling as d^{power.mean():.2f}",
    )


def draw(results: Results) -> list[Panel]:
    """Draw deviations against d, and the difference of both errors against kappa. See `Paper`.

    Deviations from the limit, and the advantage of the pool's tasks at d = 32.
    """
    part, rows = results["dimensions"], results["column"]["rows"]
    truth = np.array([pretraining.limit(*setting) for setting in SETTINGS])[:, None]
    off, error = np.array(part["mean"]) / truth - 1, np.array(part["error"]) / truth
    figure = []
    for k, name in enumerate(("new tasks", "tasks of the pool")):
        labels = [f"alpha {alpha:g}, kappa {kappa:g}, tau {tau:g}" for alpha, kappa, tau, _ in SETTINGS]
        shown = [Scatter(one, part["d"], list(off[i, :, k]), list(error[i, :, k]), i) for i, one in enumerate(labels)]
        line = Line("1 / d", part["d"], [2 / d for d in part["d"]], None, True)
        figure.append(Panel(f"deviation from the limit, {name}", "d", "error / limit - 1", [*shown, line], True, True))
    fine = np.geomspace(0.2, 32, 60)
    curve = [float(np.subtract(*pretraining.limit(10, kappa, 10, 0.01))) for kappa in fine]
    kappas = [row["kappa"] for row in rows]
    gaps: list[Any] = [
        Line("limit", fine.tolist(), curve, None, True),
        Scatter("ours", kappas, [row["gap"] for row in rows], [row["error"] for row in rows]),
    ]
    if (d := results["column"]["d"]) in PUBLISHED:
        gaps.append(Scatter(f"published, d = {d}", KAPPAS, PUBLISHED[d], None, 1))
    figure.append(Panel(f"new tasks minus pool, d = {results['column']['d']}", "kappa", "difference", gaps, True, True))
    return figure


PAPER = Paper(
    id="lu2025",
    about=__doc__,
    problems={"pool, here for d = 3 and kappa = 1": problem_of(3, 10, 0.01, Pool(3, law="sphere"))},
    parts=(Part(dimensions, {"counts": {10: 100, 20: 40}}), Part(column, {"d": 10})),
    checks=(published, limits),
    pictures={"errors": panels(draw)},
)
