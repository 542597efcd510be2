"""Raventos, Paul, Chen and Ganguli: pools of tasks, from memory to learning in context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ridgeformer.evaluation import compare
from ridgeformer.papers.check import Check
from ridgeformer.papers.paper import Paper, Part, Picture, Results
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, draw_panels
from ridgeformer.predictors import DMMSE, OracleRR
from ridgeformer.problems import Problem
from ridgeformer.training import Search

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAPER"]

POWERS = (1, 3, 5, 7, 9, 11, 13, 15)
MODELS = (("full", 1), ("full", 3), ("full", 7), ("channels(1,3)", 3))
NEW = Problem(8, 16, 0.5)
SLACK = 1.02  # by which the best predictor may seem worse than another, by chance


def problem_of(power: int) -> Problem:
    """Return the problem with a pool of 2^power tasks.

    Args:
        power: The logarithm of the number of tasks.

    Returns:
        The problem.
    """
    return NEW.replace(tasks=f"pool({2**power})")


def pools(
    work: Work,
    *,
    powers: tuple[int, ...] = POWERS,
    models: tuple[tuple[str, int], ...] = MODELS,
    effort: float = 0.05,
    sequences: int = 8000,
) -> dict[str, Any]:
    """Train models on every pool and measure losses on the pool and on new tasks.

    Args:
        work: The folder of runs and the progress.
        powers: Logarithms of the numbers of tasks, to the base 2.
        models: Families and depths.
        effort: As for `training.Search`.
        sequences: How many fresh sequences losses are measured on.

    Returns:
        By predictor: unadjusted losses on the pool and on new tasks, one for each power.
    """
    losses: dict[str, Any] = {"powers": list(powers)}
    for done, power in enumerate(powers):
        work.progress(done, len(powers))
        problem = problem_of(power)
        named: dict[str, Any] = {
            f"{family} {layers}": work.train(
                problem, family, layers, protocol=Search(effort=effort), sequences=2000
            ).model
            for family, layers in models
        }
        named |= {"DMMSE": DMMSE(problem.tasks, 0.5), "ridge": OracleRR()}
        for place, test in (("pool", problem), ("new", NEW)):
            rows = compare(test, named, sequences=sequences, seed=1, with_floor=False)
            for name in named:
                losses.setdefault(name, {"pool": [], "new": []})[place].append(rows[name].unadjusted)
    return losses


def _trained(results: Results) -> list[str]:
    return [name for name in results["pools"] if name not in ("powers", "DMMSE", "ridge")]


def _gap(results: Results, name: str) -> list[float]:
    """Loss on new tasks over that on the pool, one for each power."""
    part = results["pools"][name]
    return [new / pool for new, pool in zip(part["new"], part["pool"], strict=True)]


def bayes(results: Results) -> Check:
    """Decide whether the two Bayes predictors are what they must be. See `Paper`."""
    part, powers = results["pools"], results["pools"]["powers"]
    best = [
        part["DMMSE"]["pool"][i] <= SLACK * min(part[n]["pool"][i] for n in part if n != "powers")
        for i in range(len(powers))
    ]
    new = [
        part["ridge"]["new"][i] <= SLACK * min(part[n]["new"][i] for n in part if n != "powers")
        for i in range(len(powers))
    ]
    ratio = [a / b for a, b in zip(part["DMMSE"]["pool"], part["ridge"]["pool"], strict=True)]
    return Check(
        "On the pool no predictor is better than the posterior mean over its tasks (dMMSE), and on new tasks none is "
        "better than ridge regression; for large pools both agree.",
        f"dMMSE / ridge on the pool: {_list(ratio)}",
        "at most 1, and 1 for the largest pool",
        "2 %, and 25 % for the agreement",
        "Chance on the same sequences; at 2^15 tasks in 8 dimensions the pool is still coarse where labels are exact.",
        "rejected where another predictor has less than 0.98 of the best loss, or the two differ for the largest pool",
        (*best, *new, ratio[-1] > 0.75),
    )


def transition(results: Results) -> Check:
    """Decide where linear transformers go from memory to learning in context. See `Paper`."""
    powers = results["pools"]["powers"]
    deep = [name for name in _trained(results) if name.startswith("full")]
    words, holds = [], []
    for name in deep:
        gap = _gap(results, name)
        at = next((power for power, g in zip(powers, gap, strict=True) if g < 1.2), None)
        words.append(f"{name} layers: {_list(gap)}, below 1.2 from 2^{at} on")
        holds += [gap[0] > 1.5, gap[-1] < 1.2]
    return Check(
        "With few tasks a trained model knows the pool, and is bad at new tasks; beyond a number of tasks it learns in "
        "context, and treats new tasks as those of the pool.",
        f"loss on new tasks over loss on the pool, 2^{powers[0]} to 2^{powers[-1]} tasks: {'; '.join(words)}",
        "above 1.5 for the smallest pool, below 1.2 for the largest",
        "factors 1.5 and 1.2",
        "Both sides of the transition are far from these factors.",
        "rejected where a model has no such gap with the smallest pool, or still has one with the largest",
        tuple(holds),
        brief="; ".join(words),
    )


def equivariant(results: Results) -> Check:
    """Decide whether models that commute with rotations can know a pool. See `Paper`."""
    part = results["pools"]
    names = [name for name in _trained(results) if name.startswith("channels")]
    ratio = [
        loss / ridge for name in names for loss, ridge in zip(part[name]["new"], part["ridge"]["new"], strict=True)
    ]
    return Check(
        "Models whose parameters treat all directions alike (channels) cannot know a pool: they learn in context with "
        "any number of tasks that spans the space.",
        f"loss on new tasks over that of ridge regression: {_list(ratio)}",
        "at most 1.5 from 2^5 tasks on",
        "a factor of 1.5",
        "Three layers have some excess over ridge regression themselves.",
        "rejected where the ratio is above 1.5 with 32 tasks or more",
        tuple(r < 1.5 for r, power in zip(ratio, list(part["powers"]) * len(names), strict=True) if power >= 5),
    )


def _list(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def draw(results: Results) -> Figure:
    """Draw losses on the pool and on new tasks against the number of tasks. See `Paper`."""
    part, panels = results["pools"], []
    tasks = [2**power for power in part["powers"]]
    for place, title in (("pool", "on the pool"), ("new", "on new tasks")):
        names = [name for name in part if name != "powers"]
        shown = [Line(name, tasks, part[name][place], i, name in ("DMMSE", "ridge")) for i, name in enumerate(names)]
        panels.append(Panel(title, "tasks in the pool", "loss", shown, True, True))
    gaps = [Line(name, tasks, _gap(results, name), i) for i, name in enumerate(_trained(results))]
    panels.append(Panel("the transition", "tasks in the pool", "new / pool", gaps, True, True))
    return draw_panels(panels)


PAPER = Paper(
    id="raventos2023",
    title="Pretraining task diversity and the emergence of non-Bayesian in-context learning for regression",
    authors="Allan Raventos, Mansheej Paul, Feng Chen and Surya Ganguli, NeurIPS 2023",
    link="https://arxiv.org/abs/2306.15063",
    says="A transformer that is pretrained on a finite pool of tasks behaves as the posterior mean over the pool while "
    "there are few tasks. Beyond a number of tasks it behaves as ridge regression, which is better on new tasks than "
    "the best predictor for the pool.",
    problems={"pool of 32": problem_of(5), "new tasks": NEW},
    parts=(
        Part(
            pools,
            {"powers": (1, 5, 11), "models": (("full", 1), ("channels(1,3)", 2)), "effort": 0.01, "sequences": 2000},
        ),
    ),
    checks=(transition, bayes, equivariant),
    pictures={"pools": Picture(draw, "Losses on the pool and on new tasks against the number of tasks.")},
    beyond=("The GPT-2 models of the paper, whose transition lies near 2^14 tasks; the models here are linear.",),
)
