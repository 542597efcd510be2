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

from typing import Any

import numpy as np

from ridgeformer.models import LinearTransformer
from ridgeformer.papers.paper import CHANCE, Check, Paper, Part, Results, listed, panels
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel
from ridgeformer.predictors import DMMSE, OracleRR
from ridgeformer.problems import Problem
from ridgeformer.training import Adam
from ridgeformer.validation import Array

POWERS = (1, 3, 5, 6, 7, 8, 10, 15)
MODELS = (("full", 1), ("full", 3), ("full", 7), ("channels(1,3)", 1), ("channels(1,3)", 3), ("channels(1,3)", 7))
SIGMA = 0.5
NEW = Problem(8, 16, SIGMA)
LONGEST = 2 * NEW.dim**0.5  # one task in 10,000 is longer


def _problem_of(power: int) -> Problem:
    """Return the problem with a pool of 2^power tasks."""
    return NEW.replace(tasks=f"pool({2**power})")


def _shortened(w: Any) -> Array:
    """Shorten estimates, [B, d], that are longer than nearly all tasks, so that no explosion decides a mean."""
    length = np.linalg.norm(w, axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        return np.asarray(np.nan_to_num(w * np.minimum(1, LONGEST / length), posinf=0, neginf=0))


def _losses(model: LinearTransformer, problem: Problem, sequences: int) -> dict[str, float]:
    """The unadjusted loss of a model with shortened estimates, its error, and how many estimates were shortened."""
    draw = problem.moments(sequences, seed=1)
    with np.errstate(over="ignore", invalid="ignore"):
        w = model.weights(draw.moments)
        cut = ~(np.linalg.norm(w, axis=1) <= LONGEST)
    each = draw.losses(_shortened(w), draw.task)
    return {"loss": each.mean(), "error": each.std() / np.sqrt(sequences), "cut": cut.mean()}


def pools(
    work: Work,
    *,
    powers: tuple[int, ...] = POWERS,
    models: tuple[tuple[str, int], ...] = MODELS,
    steps: int = 1500,
    rate: float | None = None,
    sequences: int = 4000,
) -> dict[str, Any]:
    """Train models on every pool by Adam and measure losses on the pool and on new tasks.

    Adam on fresh sequences needs no posterior of the pool, so that its time does not depend on the number of tasks.

    Args:
        work: The folder of runs and the progress.
        powers: Logarithms of the numbers of tasks, to the base 2.
        models: Families and depths.
        steps: Steps of training, of 256 sequences each.
        rate: The rate of Adam; None for its default.
        sequences: How many fresh sequences losses are measured on.

    Returns:
        By predictor: unadjusted losses on the pool and on new tasks, their errors, and the shares of estimates that
        were shortened, one for each power.
    """
    by_method: dict[str, Any] = {"powers": list(powers)}
    how = Adam(steps=steps, rate=rate, batch=256, schedule="cosine", record=steps, snapshots=0)
    for power in work.each(powers):
        problem = _problem_of(power)
        bayes = {"DMMSE": DMMSE(problem.tasks, SIGMA), "ridge": OracleRR()}
        trained = {
            f"{family} {layers}": work.train(problem, family, layers, protocol=how, sequences=100).model
            for family, layers in models
        }
        for place, test in (("pool", problem), ("new", NEW)):
            rows = {name: _losses(model, test, sequences) for name, model in trained.items()}
            for name, row in {**rows, **work.losses(test, bayes, min(sequences, 2000))}.items():
                kept = by_method.setdefault(name, {})
                for key, value in row.items():
                    kept.setdefault(f"{place} {key}", []).append(value)
    return by_method


def _trained(results: Results) -> list[str]:
    return [name for name in results["pools"] if name not in ("powers", "DMMSE", "ridge")]


def _gap(results: Results, name: str) -> tuple[Array, Array]:
    """Loss on new tasks over that on the pool, one for each power, and how far chance can move it from 1.

    Besides the errors of both losses, the mean of |w|^2 over K tasks differs from d by a share of sqrt(2 / (d K)).
    """
    part, tasks = results["pools"][name], 2.0 ** np.array(results["pools"]["powers"])
    new, pool = np.array(part["new loss"]), np.array(part["pool loss"])
    errors = np.hypot(np.array(part["new error"]) / new, np.array(part["pool error"]) / pool)
    return new / pool, CHANCE * np.hypot(errors, np.sqrt(2 / (NEW.dim * tasks)))


def bayes(results: Results) -> Check:
    """Decide whether the two Bayes predictors are what they must be. See `Paper`.

    On the pool no predictor is better than the posterior mean over its tasks (dMMSE), and on new tasks none is better
    than ridge regression; dMMSE comes closer to ridge as tasks are added.

    Expected: the least losses; a ratio that is larger for the largest pool than for the smallest
    Reason: Chance. The ratio reaches 1 only when neighbours in the pool are as close as sigma / sqrt(n), at about
        (sqrt(n) / sigma)^d = 2^24 tasks.
    Rule: rejected where another predictor has clearly less loss, or the ratio is not larger for the largest pool
    """
    part, others = results["pools"], _trained(results)
    holds = []
    for best, rest, place in (("DMMSE", "ridge", "pool"), ("ridge", "DMMSE", "new")):
        least = np.min([np.array(part[name][f"{place} loss"]) for name in (*others, rest)], 0)
        within = CHANCE * np.max([np.array(part[name][f"{place} error"]) for name in (best, *others, rest)], 0)
        holds += (np.array(part[best][f"{place} loss"]) <= least + within).tolist()
    ratio = np.array(part["DMMSE"]["pool loss"]) / np.array(part["ridge"]["pool loss"])
    return Check(
        f"dMMSE / ridge on the pool: {', '.join(f'{x:.2g}' for x in ratio)}; the best on {sum(holds)} of {len(holds)} "
        "pools and new tasks",
        tolerance=f"{CHANCE} standard errors",
        holds=(*holds, bool(ratio[-1] > ratio[0])),
    )


def transition(results: Results) -> Check:
    """Decide where linear transformers go from memory to learning in context. See `Paper`.

    With few tasks a trained model knows the pool, and is bad at new tasks; beyond a number of tasks it learns in
    context, and treats new tasks as those of the pool.

    Expected: above 2 for the smallest pool, 1 for the largest, where less than half of the signal is left
    Reason: Chance of the losses, and of the lengths of the tasks in the pool, sqrt(2 / (d K)). Twice the loss
        defines where the transition is said to lie.
    Rule: rejected where a model has no such gap with the smallest pool, or still has one with the largest, or has
        learned nothing there
    """
    powers, words, places, holds = results["pools"]["powers"], [], [], []
    for name in (name for name in _trained(results) if name.startswith("full")):
        gap, chance = _gap(results, name)
        at = next((power for power, g in zip(powers, gap, strict=True) if g < 2), None)
        words.append(f"{name}: {listed(gap)}")
        places.append(f"{name} {f'above 2^{powers[-1]}' if at is None else f'2^{at}'}")
        learned = results["pools"][name]["pool loss"][-1] < NEW.dim / 4  # predicting 0 costs d / 2
        holds += [bool(gap[0] > 2), bool(abs(gap[-1] - 1) < chance[-1] and learned)]
    parts = [results["pools"][name] for name in _trained(results)]
    cut = {place: max(max(part[f"{place} cut"]) for part in parts) for place in ("pool", "new")}
    where = "new tasks cost less than twice the loss of the pool from this number of tasks on: " + ", ".join(places)
    return Check(
        f"loss on new tasks over loss on the pool, {_pools(powers)}: {'; '.join(words)}; {where}; of the "
        f"estimates of a model at most {cut['pool']:.2%} were shortened on the pool and {cut['new']:.2%} on new tasks",
        tolerance=f"{CHANCE} standard errors for the largest",
        holds=tuple(holds),
        brief=where,
    )


def _pools(powers: list[int]) -> str:
    return f"pools of {', '.join(f'2^{power}' for power in powers)}"


def equivariant(results: Results) -> Check:
    """Decide whether models that commute with rotations can know a pool. See `Paper`.

    Models whose parameters treat all directions alike (channels) cannot know a pool: with any number of tasks that
    spans the space they treat new tasks as those of the pool.

    Reason: Chance of the losses, and of the lengths of the tasks in the pool, sqrt(2 / (d K)).
    """
    part, words, holds = results["pools"], [], []
    spans = 2.0 ** np.array(part["powers"]) >= NEW.dim
    for name in (name for name in _trained(results) if name.startswith("channels")):
        gap, chance = _gap(results, name)
        words.append(f"{name}: {listed(gap)}")
        holds += (np.abs(gap - 1) < chance)[spans].tolist()
    return Check(
        f"loss on new tasks over loss on the pool, {_pools(part['powers'])}: {'; '.join(words)}",
        expected=f"1 from {NEW.dim} tasks on",
        tolerance=f"{CHANCE} standard errors",
        rule=f"rejected where new tasks cost more or less than those of a pool of {NEW.dim} or more",
        holds=tuple(holds),
    )


def draw(results: Results) -> list[Panel]:
    """Draw losses on the pool and on new tasks against the number of tasks, and their ratio. See `Paper`.

    Losses on the pool and on new tasks against the number of tasks, and their ratio; losses below 1e-4 are not shown.
    Estimates longer than 2 sqrt(d) are shortened.
    """
    part, shown = results["pools"], []
    tasks, names = [2**power for power in part["powers"]], [name for name in part if name != "powers"]
    for place, title in (("pool", "on the pool"), ("new", "on new tasks")):
        seen = {name: [loss if loss > 1e-4 else None for loss in part[name][f"{place} loss"]] for name in names}
        lines = [
            Line(name, tasks, seen[name], {"DMMSE": None, "ridge": 6}.get(name, i), name in ("DMMSE", "ridge"))
            for i, name in enumerate(names)
        ]
        shown.append(Panel(title, "tasks in the pool", "loss", lines, True, True))
    gaps = [Line(name, tasks, _gap(results, name)[0].tolist(), i) for i, name in enumerate(_trained(results))]
    gaps.append(Line("twice the loss", tasks, [2.0] * len(tasks), None, True))
    return [*shown, Panel("the transition", "tasks in the pool", "new / pool", gaps, True, True)]


PAPER = Paper(
    id="raventos2023",
    about=__doc__,
    problems={"pool of 32": _problem_of(5), "new tasks": NEW},
    parts=(Part(pools, {"powers": (1, 8), "models": MODELS[::3], "steps": 500, "rate": 0.01, "sequences": 2000}),),
    checks=(transition, bayes, equivariant),
    pictures={"pools": panels(draw)},
    version=3,
)
