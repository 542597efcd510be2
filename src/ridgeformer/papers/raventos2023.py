"""Raventos, Paul, Chen and Ganguli: pools of tasks, from memory to learning in context.

Pretraining task diversity and the emergence of non-Bayesian in-context learning for regression
Allan Raventos, Mansheej Paul, Feng Chen and Surya Ganguli, NeurIPS 2023
https://arxiv.org/abs/2306.15063

A transformer that is pretrained on a finite pool of tasks behaves as the posterior mean over the pool while there are
few tasks. Beyond a number of tasks it behaves as ridge regression, which is better on new tasks than the best predictor
for the pool.

The paper's transition is between two Bayes predictors: the posterior mean over the pool (dMMSE), and ridge regression,
which is right for new Gaussian tasks. Linear transformers are trained on pools of 2 to 2^15 tasks and tested on the
pool and on new tasks. Training uses fresh sequences and the task itself as the target, so that its cost does not depend
on the size of the pool. The ratio of both losses says on which side of the transition a model is: far above 1 it knows
its pool, at 1 it treats all tasks alike. Deep linear models explode on some sequences, mostly on new tasks where the
pool is small, and these would decide any mean. Estimates longer than twice the root of d, as one task in 10,000 is, are
shortened to that length; the claim states how many. Models with free matrices have a transition; models whose
parameters treat all directions alike cannot store a vector, and have none.

Not checked here: The GPT-2 models of the paper, whose transition lies near 2^14 tasks; the models here are linear.
"""

from __future__ import annotations

import numpy as np

from ridgeformer.models import LinearTransformer
from ridgeformer.papers import CHANCE, Check, Measured, Paper, Part, Picture, Results, Rows, Work, listed
from ridgeformer.plotting.panels import Line, Panel
from ridgeformer.predictors import DMMSE, OracleRR
from ridgeformer.problems import BaseProblem, Problem
from ridgeformer.training import Adam
from ridgeformer.validation import Array

POWERS = (1, 3, 5, 6, 7, 8, 10, 15)
MODELS = (("full", 1), ("full", 3), ("full", 7), ("channels(1,3)", 1), ("channels(1,3)", 3), ("channels(1,3)", 7))
SIGMA = 0.5
NEW = Problem(8, 16, SIGMA)
LONGEST = 2 * NEW.dim**0.5  # one task in 10,000 is longer
BAYES = ("DMMSE", "ridge")


def _problem_of(power: int) -> Problem:
    """Return the problem with a pool of 2^power tasks."""
    return NEW.replace(tasks=f"pool({2**power})")


def _losses(model: LinearTransformer, problem: BaseProblem, sequences: int) -> dict[str, float]:
    """The unadjusted loss of a model with shortened estimates, its error, and how many estimates were shortened.

    Estimates that are longer than nearly all tasks are shortened, so that no explosion decides a mean.
    """
    draw = problem.moments(sequences, seed=1)
    with np.errstate(all="ignore"):
        w = model.weights(draw.moments)
        length = np.linalg.norm(w, axis=1, keepdims=True)
        shortened = np.nan_to_num(w * np.minimum(1, LONGEST / length), posinf=0, neginf=0)
    each = draw.losses(shortened, draw.task)
    return {"loss": each.mean(), "error": each.std() / np.sqrt(sequences), "cut": (~(length <= LONGEST)).mean()}


def pools(
    work: Work,
    *,
    powers: tuple[int, ...] = POWERS,
    models: tuple[tuple[str, int], ...] = MODELS,
    steps: int = 1500,
    rate: float | None = None,
    sequences: int = 4000,
) -> Rows:
    """Train models on every pool by Adam and measure losses on the pool and on new tasks.

    Adam on fresh sequences needs no posterior of the pool, so that its time does not depend on the number of tasks.

    Args:
        work: The folder of runs and the progress.
        powers: Logarithms of the numbers of tasks, to the base 2.
        models: Families and depths.
        steps: Steps of training, of 256 sequences each.
        rate: The rate of Adam; None for its default.
        sequences: How many fresh sequences losses are measured on.

    Yields:
        For every number of tasks and predictor: unadjusted losses on the pool and on new tasks, their errors, and for
        models the shares of estimates that were shortened.
    """
    how = Adam(steps=steps, rate=rate, batch=256, schedule="cosine", record=steps, snapshots=0)
    for power in work.each(powers):
        problem, losses = _problem_of(power), {}
        trained = {f"{f} {k}": work.train(problem, f, k, protocol=how, sequences=100).model for f, k in models}
        bayes = dict(zip(BAYES, (DMMSE(problem.tasks, SIGMA), OracleRR()), strict=True))
        for place, test in (("pool", problem), ("new", NEW)):
            losses[place] = {name: _losses(model, test, sequences) for name, model in trained.items()}
            losses[place] |= work.losses(test, bayes, min(sequences, 2000))
        for name in (*trained, *bayes):
            measured = {f"{place}_{what}": x for place in losses for what, x in losses[place][name].items()}
            yield {"power": power, "name": name, **measured}


def _models(results: Results, family: str = "") -> dict[str, Measured]:
    """The rows of every trained model of a family, or of all."""
    return {name: rows for name, rows in results.pools.by("name") if name not in BAYES and name.startswith(family)}


def _gap(rows: Measured) -> tuple[Array, Array]:
    """Loss on new tasks over that on the pool, one for each power, and how far chance can move it from 1.

    Besides the errors of both losses, the mean of |w|^2 over K tasks differs from d by a share of sqrt(2 / (d K)).
    """
    errors = np.hypot(rows.new_error / rows.new_loss, rows.pool_error / rows.pool_loss)
    return rows.new_loss / rows.pool_loss, CHANCE * np.hypot(errors, np.sqrt(2 / (NEW.dim * 2.0**rows.power)))


def bayes(results: Results) -> Check:
    """Decide whether the two Bayes predictors are what they must be. See `Paper`.

    On the pool no predictor is better than the posterior mean over its tasks (dMMSE), and on new tasks none is better
    than ridge regression; dMMSE comes closer to ridge as tasks are added.

    Expected: the least losses; a ratio that is larger for the largest pool than for the smallest
    Tolerance: 4 standard errors
    Reason: Chance. The ratio reaches 1 only when neighbours in the pool are as close as sigma / sqrt(n), at about
        (sqrt(n) / sigma)^d = 2^24 tasks.
    Rule: rejected where another predictor has clearly less loss, or the ratio is not larger for the largest pool
    """
    every, holds = dict(results.pools.by("name")), []
    for best, place in zip(BAYES, ("pool", "new"), strict=True):
        least = np.min([rows[f"{place}_loss"] for name, rows in every.items() if name != best], 0)
        within = CHANCE * np.max([rows[f"{place}_error"] for rows in every.values()], 0)
        holds += [*(every[best][f"{place}_loss"] <= least + within)]
    ratio = every["DMMSE"].pool_loss / every["ridge"].pool_loss
    return Check(
        f"dMMSE / ridge on the pool: {listed(ratio, '.2g')}; the best on {sum(holds)} of {len(holds)} pools and new "
        "tasks",
        holds=[*holds, ratio[-1] > ratio[0]],
    )


def transition(results: Results) -> Check:
    """Decide where linear transformers go from memory to learning in context. See `Paper`.

    With few tasks a trained model knows the pool, and is bad at new tasks; beyond a number of tasks it learns in
    context, and treats new tasks as those of the pool.

    Expected: above 2 for the smallest pool, 1 for the largest, where less than half of the signal is left
    Tolerance: 4 standard errors for the largest
    Reason: Chance of the losses, and of the lengths of the tasks in the pool, sqrt(2 / (d K)). Twice the loss
        defines where the transition is said to lie.
    Rule: rejected where a model has no such gap with the smallest pool, or still has one with the largest, or has
        learned nothing there
    """
    words, places, holds = [], [], []
    for name, rows in _models(results, "full").items():
        gap, chance = _gap(rows)
        at = next(
            (f"2^{power}" for power, g in zip(rows.power, gap, strict=True) if g < 2), f"above 2^{rows.power[-1]}"
        )
        words.append(f"{name}: {listed(gap)}")
        places.append(f"{name} {at}")
        learned = rows.pool_loss[-1] < NEW.dim / 4  # predicting 0 costs d / 2
        holds += [gap[0] > 2, abs(gap[-1] - 1) < chance[-1] and learned]
    pool, new = (max(rows[place].max() for rows in _models(results).values()) for place in ("pool_cut", "new_cut"))
    where = "new tasks cost less than twice the loss of the pool from this number of tasks on: " + ", ".join(places)
    return Check(
        f"loss on new tasks over loss on the pool, {_pools(results)}: {'; '.join(words)}; {where}; of the estimates of "
        f"a model at most {pool:.2%} were shortened on the pool and {new:.2%} on new tasks",
        holds=holds,
        brief=where,
    )


def _pools(results: Results) -> str:
    return f"pools of {', '.join(f'2^{power}' for power in results.pools.powers)}"


def equivariant(results: Results) -> Check:
    """Decide whether models that commute with rotations can know a pool. See `Paper`.

    Models whose parameters treat all directions alike (channels) cannot know a pool: with any number of tasks that
    spans the space they treat new tasks as those of the pool.

    Expected: 1 from 8 tasks on
    Tolerance: 4 standard errors
    Reason: Chance of the losses, and of the lengths of the tasks in the pool, sqrt(2 / (d K)).
    Rule: rejected where new tasks cost more or less than those of a pool of 8 or more
    """
    words, holds = [], []
    for name, rows in _models(results, "channels").items():
        gap, chance = _gap(rows)
        words.append(f"{name}: {listed(gap)}")
        holds.append((np.abs(gap - 1) < chance)[2.0**rows.power >= NEW.dim])
    return Check(f"loss on new tasks over loss on the pool, {_pools(results)}: {'; '.join(words)}", holds=holds)


def draw(results: Results) -> list[Panel]:
    """Draw losses on the pool and on new tasks against the number of tasks, and their ratio. See `Paper`.

    Losses on the pool and on new tasks against the number of tasks, and their ratio; losses below 1e-4 are not shown.
    Estimates longer than 2 sqrt(d) are shortened.
    """
    shown, tasks = [], 2 ** np.array(results.pools.powers)
    for place, title in (("pool_loss", "on the pool"), ("new_loss", "on new tasks")):
        lines = []
        for i, (name, rows) in enumerate(results.pools.by("name")):
            colour, seen = {"DMMSE": None, "ridge": 6}.get(name, i), np.where(rows[place] > 1e-4, rows[place], np.nan)
            lines.append(Line(name, tasks, seen, colour, name in BAYES))
        shown.append(Panel(title, "tasks in the pool", "loss", lines, True, True))
    gaps = [Line(name, tasks, _gap(rows)[0], i) for i, (name, rows) in enumerate(_models(results).items())]
    gaps.append(Line.of("twice the loss", lambda _: 2.0, tasks, None, True))
    return [*shown, Panel("the transition", "tasks in the pool", "new / pool", gaps, True, True)]


PAPER = Paper(
    id="raventos2023",
    about=__doc__,
    problems={"pool of 32": _problem_of(5), "new tasks": NEW},
    parts=(Part(pools, {"powers": (1, 8), "models": MODELS[::3], "steps": 500, "rate": 0.01, "sequences": 2000}),),
    checks=(transition, bayes, equivariant),
    pictures={"pools": Picture(draw)},
    version=3,
)
