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
from ridgeformer.papers.paper import Check, NotMeasuredError, Paper, Part, Picture, Results, agree, listed
from ridgeformer.papers.results import Measured, Rows
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.problems import Problem
from ridgeformer.problems.tasks import Pool, Tasks
from ridgeformer.theory import one_layer, pretraining
from ridgeformer.validation import Array


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


def dimensions(work: Work, *, counts: dict[int, int] | None = None) -> Rows:
    """Measure errors in growing dimensions.

    Args:
        work: The progress.
        counts: How often each dimension is repeated; None for 400, 100, 24 and 4 times at d = 10, 20, 40 and 80.

    Yields:
        For every setting and dimension: mean errors and their standard errors, on new tasks and on the pool.
    """
    often = counts or {10: 400, 20: 100, 40: 24, 80: 4}
    for setting, (d, count) in work.each(SETTINGS, often.items()):
        precision = "float32" if setting[2] > 2 else "float64"
        errors = _repeated(count, int(d), *setting, penalty=1e-9, precision=precision)
        chance = errors.std(0, ddof=1) / np.sqrt(count)
        yield {"setting": setting, "d": int(d), "mean": errors.mean(0), "error": chance}


def column(work: Work, *, d: int = 32, kappas: tuple[float, ...] = KAPPAS, repetitions: int = REPETITIONS) -> Rows:
    """Measure the difference of both errors against the number of tasks, as the authors' repository does.

    Args:
        work: The progress.
        d: The dimension.
        kappas: Tasks in the pool, over d.
        repetitions: How many pools and sets of contexts are averaged.

    Yields:
        For each of `kappas`: the mean, its standard error and the spread over repetitions.
    """
    for kappa in work.each(kappas):
        both = _repeated(repetitions, d, 10.0, kappa, 10.0, 0.01, penalty=1e-6, precision="float32")
        gap, spread = both[:, 0] - both[:, 1], np.sqrt(both.var(0).sum())
        error = gap.std(ddof=1) / np.sqrt(repetitions)
        yield {"kappa": kappa, "gap": gap.mean(), "error": error, "spread": spread}


def published(results: Results) -> Check:
    """Decide whether the published column is matched. See `Paper`.

    The error on new tasks exceeds that on the pool by the published amounts at every number of tasks (d = 32).

    Reason: Three standard errors of the published means, which are their spread over the root of 20.
    """
    rows = results.column
    if rows.d not in PUBLISHED or not {*rows.kappa} <= {*KAPPAS}:
        raise NotMeasuredError(f"no published numbers for d = {rows.d}")
    index = [KAPPAS.index(kappa) for kappa in rows.kappa]
    printed, spread = np.array([PUBLISHED[rows.d], SPREAD[rows.d]])[:, index]
    return agree(
        rows.gap,
        printed,
        3 * spread / np.sqrt(REPETITIONS),
        unit="3 of the published standard errors",
        names=rows.names("kappa {kappa:g}:"),
        published=listed(printed),
    )


def _off(rows: Measured) -> tuple[Array, Array]:
    """The relative deviations of a setting from the limit and their standard errors, [dimensions, (new, pool)]."""
    truth = np.array(pretraining.limit(*rows.setting[0]))
    return rows["mean"] / truth - 1, rows.error / truth


def limits(results: Results) -> Check:
    """Decide whether errors approach the limits as the dimension grows. See `Paper`.

    Errors on new tasks and on the pool approach the asymptotic formulas as d grows.

    Expected: powers of -1
    Tolerance: a power between -3/2 and -1/2, up to 2 standard errors; at the largest d less than at the smallest
    Reason: Corrections to the limit are of the order 1 / d: the power must be closer to -1 than to 0 or -2.
    Rule: rejected where a deviation does not fall as a power of d in that range, or is not less at the largest d
    """
    off, error = np.stack([_off(rows) for rows in _settings(results)], 1)
    d, weight, fits = (
        results.dimensions.d[: off.shape[1]],
        np.abs(off) / error,
        [],
    )  # weights of logarithms are relative
    for i, k in np.ndindex(len(off), 2):
        fits.append(np.polyfit(np.log(d), np.log(np.abs(off[i, :, k])), 1, w=weight[i, :, k], cov="unscaled"))
    power, chance = np.array([(fit[0], 2 * np.sqrt(covariance[0, 0])) for fit, covariance in fits]).T
    last = np.abs(off[:, -1])
    new, pool = ("; ".join(listed(row, "+.1%") for row in off[:, :, k]) for k in (0, 1))
    return Check(
        f"relative deviation at d = {listed(d, 'g')}: new tasks {new}; pool {pool}; fitted powers of d "
        + ", ".join(f"{x:.2f} +- {e:.2f}" for x, e in zip(power, chance, strict=True)),
        holds=[(power > -1.5 - chance) & (power < -0.5 + chance), last < np.abs(off[:, 0])],
        brief=f"deviation at d = {d[-1]:g} at most {last.max():.1%}, falling as d^{power.mean():.2f}",
    )


def _settings(results: Results) -> list[Measured]:
    """The rows of every setting."""
    return [results.dimensions.where(setting=list(setting)) for setting in SETTINGS]


def draw(results: Results) -> list[Panel]:
    """Draw deviations against d, and the difference of both errors against kappa. See `Paper`.

    Deviations from the limit, and the advantage of the pool's tasks at d = 32.
    """
    figure, rows = [], results.column
    for k, name in enumerate(("new tasks", "tasks of the pool")):
        shown: list[Any] = []
        for i, group in enumerate(_settings(results)):
            alpha, kappa, tau, _ = group.setting[0]
            label, (off, error) = f"alpha {alpha:g}, kappa {kappa:g}, tau {tau:g}", _off(group)
            shown.append(Scatter(label, group.d, off[:, k], error[:, k], i))
        shown.append(Line.of("1 / d", lambda d: 2 / d, group.d, None, True))
        figure.append(Panel(f"deviation from the limit, {name}", "d", "error / limit - 1", shown, True, True))
    limit = Line.of(
        "limit", lambda k: np.subtract(*pretraining.limit(10, k, 10, 0.01)), np.geomspace(0.2, 32, 60), None, True
    )
    gaps: list[Any] = [limit, Scatter("ours", rows.kappa, rows.gap, rows.error)]
    if rows.d in PUBLISHED:
        gaps.append(Scatter(f"published, d = {rows.d}", KAPPAS, PUBLISHED[rows.d], None, 1))
    return [*figure, Panel(f"new tasks minus pool, d = {rows.d}", "kappa", "difference", gaps, True, True)]


PAPER = Paper(
    id="lu2025",
    about=__doc__,
    problems={"pool, here for d = 3 and kappa = 1": problem_of(3, 10, 0.01, Pool(3, law="sphere"))},
    parts=(Part(dimensions, {"counts": {10: 100, 20: 40}}), Part(column, {"d": 10})),
    checks=(published, limits),
    pictures={"errors": Picture(draw)},
)
