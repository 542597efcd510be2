"""Garg, Tsipras, Liang and Valiant: the error after every number of examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.engine import Layout
from ridgeformer.evaluation import compare
from ridgeformer.papers.check import Check
from ridgeformer.papers.paper import Paper, Part, Picture, Results
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, draw_panels
from ridgeformer.predictors import LeastSquares
from ridgeformer.problems import Problem
from ridgeformer.training import Search

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAPER"]

PROBLEM = Problem(20, "1..40", 0)
FAMILY, LAYOUT = "channels(1,2)", Layout("mean", "length")
POINTS = tuple(range(1, 41))
EARLY = 0.65  # the share of the signal that may be left at 10 examples; least squares has 0.5
MOST = {2: 0.35, 4: 0.15, 6: 0.05}  # the same at 40 examples, by depth; least squares has 0


def least_squares(examples: int, dim: int = 20) -> float:
    """Return the expected half squared error of least squares without noise: the share of directions not seen.

    Args:
        examples: The number n of examples.
        dim: The dimension d.

    Returns:
        max(d - n, 0) / 2.
    """
    return max(dim - examples, 0) / 2


def curves(
    work: Work, *, depths: tuple[int, ...] = (2, 4, 6), sequences: int = 4000, effort: float = 0.2
) -> dict[str, Any]:
    """Train models over all context lengths at once, and measure the error after every number of examples.

    Args:
        work: The folder of runs and the progress.
        depths: The depths.
        sequences: How many sequences for every number of examples.
        effort: As for `training.Search`.

    Returns:
        By predictor: losses after 1 to 40 examples; and how many sequences exploded, at most, at any number.
    """
    models = {}
    for done, depth in enumerate(depths):
        work.progress(done, len(depths))
        run = work.train(PROBLEM, FAMILY, depth, protocol=Search(effort=effort), layout=LAYOUT, sequences=20_000)
        models[f"{depth} layers"] = run.model
    named: dict[str, Any] = {**models, "least squares": LeastSquares()}
    losses: dict[str, list[float]] = {name: [] for name in named}
    exploded = dict.fromkeys(named, 0)
    for n in POINTS:
        rows = compare(PROBLEM.replace(context=n), named, sequences=sequences, seed=1, with_floor=False)
        for name in named:
            losses[name].append(rows[name].unadjusted)
            exploded[name] = max(exploded[name], rows[name].exploded)
    return {"depths": list(depths), "losses": losses, "exploded": exploded}


def least_squares_curve(results: Results) -> Check:
    """Decide whether least squares has the known curve. See `Paper`."""
    measured = np.array(results["curves"]["losses"]["least squares"])[: len(POINTS)]
    truth = np.array([least_squares(n) for n in POINTS])
    off = np.abs(measured - truth)
    return Check(
        "Half the squared error of least squares is (d - n) / 2 on average, and 0 from n = d on.",
        f"largest difference {off.max():.3g} over 1 to 40 examples",
        "(20 - n) / 2",
        "0.4",
        "Chance: a loss has the variance (d - n) / 2, so that 4 standard errors on 1,000 sequences are at most 0.39.",
        "rejected where a loss differs from (d - n) / 2 by more than 0.4",
        tuple((off < 0.4).tolist()),
    )


def learns(results: Results) -> Check:
    """Decide how close models that are trained over all lengths come to least squares. See `Paper`."""
    part = results["curves"]
    best = np.array(part["losses"][f"{part['depths'][-1]} layers"])
    first = np.array(part["losses"][f"{part['depths'][0]} layers"])
    at = {n: best[n - 1] / 10 for n in (10, 20, 40)}
    most = MOST[part["depths"][-1]]
    fall = bool((np.diff(best[::5]) < 0).all())
    return Check(
        "One model trained over all lengths lowers its error with every further example, as least squares does, and "
        "comes close to it at 2 d examples as layers are added.",
        f"error over that of predicting 0, {part['depths'][-1]} layers: "
        + ", ".join(f"{value:.3g} at {n} examples" for n, value in at.items())
        + f"; {part['depths'][0]} layers: {first[-1] / 10:.3g} at 40",
        f"falling; at most {EARLY} at 10 examples and {most} at 40; less for more layers",
        f"{EARLY} and {most} of the signal",
        "Least squares has .5 and 0 there; finitely many layers cannot reach 0.",
        f"rejected where the error does not fall, is above {EARLY} at 10 examples or {most} at 40, or depth does not "
        "help",
        (fall, bool(at[10] < EARLY), bool(at[40] < most), bool(best[-1] < first[-1])),
    )


def draw(results: Results) -> Figure:
    """Draw the error against the number of examples. See `Paper`."""
    shown = [
        Line(name, POINTS, [loss / 10 for loss in losses], colour, name == "least squares")
        for colour, (name, losses) in enumerate(results["curves"]["losses"].items())
    ]
    return draw_panels([Panel("d = 20, no noise", "examples", "squared error / d", shown, False, True)])


PAPER = Paper(
    id="garg2022",
    title="What can transformers learn in-context? A case study of simple function classes",
    authors="Shivam Garg, Dimitris Tsipras, Percy Liang and Gregory Valiant, NeurIPS 2022",
    link="https://arxiv.org/abs/2208.01066",
    says="A transformer that is trained to predict after every number of examples learns linear functions in context: "
    "its error falls with the examples as that of least squares does.",
    problems={"problem": PROBLEM},
    parts=(Part(curves, {"depths": (1, 2), "sequences": 1000, "effort": 0.05}),),
    checks=(learns, least_squares_curve),
    pictures={"curves": Picture(draw, "Squared error over d against the number of examples.")},
    beyond=(
        "Sparse linear functions, trees and neural networks as tasks, and shifts of the prompt, for which the paper "
        "uses GPT-2.",
    ),
)
