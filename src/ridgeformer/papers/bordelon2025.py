"""Bordelon, Letey and Pehlevan: when depth helps, for isotropic, fixed and rotated covariances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.papers.check import Check
from ridgeformer.papers.paper import Paper, Part, Picture, Results
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, draw_panels
from ridgeformer.problems import Problem
from ridgeformer.training import Search

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAPER"]

DIM, SIGMA = 8, 0.5
FEATURES = {"isotropic": None, "fixed": "powerlaw(1)", "rotated": "rotated(powerlaw(1))"}
FAMILY = {"isotropic": "diag", "fixed": "preconditioned", "rotated": "diag"}  # a fixed covariance can be learned
DEPTHS, LENGTHS = (1, 2, 3, 4), (8, 16, 64, 256)
HELPS = 1.25  # depth helps where it lowers the loss by more than this factor


def problem_of(setting: str, context: int) -> Problem:
    """Return the problem of a setting.

    Args:
        setting: `isotropic`, `fixed` or `rotated`.
        context: The number n of examples.

    Returns:
        The problem, whose noise has half the size of the signal per feature.
    """
    return Problem(DIM, context, SIGMA, features=FEATURES[setting])


def depth(
    work: Work,
    *,
    lengths: tuple[int, ...] = LENGTHS,
    depths: tuple[int, ...] = DEPTHS,
    effort: float = 0.1,
    sequences: int = 50_000,
) -> dict[str, Any]:
    """Train models of every depth and context length in the three settings.

    Args:
        work: The folder of runs and the progress.
        lengths: The numbers of examples.
        depths: The depths.
        effort: As for `training.Search`.
        sequences: How many fresh sequences losses are measured on.

    Returns:
        By setting: unadjusted losses [lengths, depths]; and the loss of the best ridge regression at each length.
    """
    by_setting: dict[str, Any] = {"lengths": list(lengths), "depths": list(depths)}
    for done, setting in enumerate(FEATURES):
        rows, best = [], []
        for i, n in enumerate(lengths):
            work.progress(done * len(lengths) + i, len(FEATURES) * len(lengths))
            runs = [
                work.train(
                    problem_of(setting, n), FAMILY[setting], k, protocol=Search(effort=effort), sequences=sequences
                )
                for k in depths
            ]
            rows.append([run.loss for run in runs])
            best.append(runs[0].floor)
        by_setting[setting] = {"loss": rows, "floor": best}
    return by_setting


def _gain(results: Results, setting: str, name: str = "loss") -> np.ndarray[Any, np.dtype[np.float64]]:
    """Loss of one layer over that of the deepest, at each length: unadjusted losses, signal over what is left."""
    part = results["depth"]
    loss = np.array(part[setting][name])
    oracle = np.array([_oracle(setting, n) for n in part["lengths"]])
    return np.asarray((loss[:, 0] + oracle) / (loss[:, -1] + oracle))


def _oracle(setting: str, context: int) -> float:
    """The loss of ridge regression with the best penalty, which no model can go below."""
    draw = problem_of(setting, context).moments(4000, seed=5)
    return float(draw.losses(draw.ridge, draw.task).mean())


def fixed(results: Results) -> Check:
    """Decide whether depth helps only at short context where the covariance is fixed. See `Paper`."""
    lengths, gain = results["depth"]["lengths"], _gain(results, "fixed")
    return Check(
        "With a fixed covariance, depth helps only at short context: with long contexts one layer is enough.",
        "loss of one layer over the deepest: "
        + ", ".join(f"{g:.2f} at n = {n}" for n, g in zip(lengths, gain, strict=True)),
        f"more than {HELPS} at n = {lengths[0]}, falling to 1 for long contexts",
        f"a factor of {HELPS}",
        "One layer has a relative excess of order d / n, which falls to 1 only if compared with the signal; compared "
        "with the best loss, of order sigma^2 d / n, it does not.",
        f"rejected where depth gains less than {HELPS} at the shortest context, or more at the longest",
        (bool(gain[0] > HELPS), bool(gain[-1] < HELPS)),
    )


def absolute(results: Results) -> Check:
    """Decide the same claim by losses relative to the signal, as the paper's figures show them. See `Paper`."""
    part = results["depth"]
    gaps = {s: np.array(part[s]["loss"])[:, 0] - np.array(part[s]["loss"])[:, -1] for s in FEATURES}
    share = {s: gap / (DIM / 2) for s, gap in gaps.items()}
    return Check(
        "Relative to the signal, depth gains nothing at long context with a fixed or isotropic covariance, and always "
        "with a rotated one.",
        "; ".join(
            f"{s}: " + ", ".join(f"{x:.3f} at n = {n}" for n, x in zip(part["lengths"], share[s], strict=True))
            for s in share
        ),
        f"below .05 at n = {part['lengths'][-1]} for fixed and isotropic, above it for rotated",
        ".05 of the signal",
        "The gain with a fixed covariance is about d / n = .03 at n = 256.",
        "rejected where the gain of the deepest model over one layer is above .05 of the signal with a fixed or "
        "isotropic covariance, or below with a rotated one, at the longest context",
        (bool(share["fixed"][-1] < 0.05), bool(share["isotropic"][-1] < 0.05), bool(share["rotated"][-1] > 0.05)),
    )


def rotated(results: Results) -> Check:
    """Decide whether depth always helps where the covariance is rotated. See `Paper`."""
    lengths, gain = results["depth"]["lengths"], _gain(results, "rotated")
    return Check(
        "With a covariance that is rotated for every sequence, depth helps at every context length.",
        "loss of one layer over the deepest: "
        + ", ".join(f"{g:.2f} at n = {n}" for n, g in zip(lengths, gain, strict=True)),
        f"more than {HELPS} everywhere",
        f"a factor of {HELPS}",
        "The size by which a difference counts as clear.",
        f"rejected where depth gains less than {HELPS} at a length",
        tuple((gain > HELPS).tolist()),
    )


def draw(results: Results) -> Figure:
    """Draw losses against depth, for every setting and length. See `Paper`."""
    part, panels = results["depth"], []
    for setting in FEATURES:
        shown = [
            Line(f"n = {n}", part["depths"], [x + _oracle(setting, n) for x in part[setting]["loss"][i]], i)
            for i, n in enumerate(part["lengths"])
        ]
        panels.append(Panel(setting, "layers", "loss", shown, False, True))
    return draw_panels(panels)


PAPER = Paper(
    id="bordelon2025",
    title="Theory of scaling laws for in-context regression: depth, width, context and time",
    authors="Blake Bordelon, Mary I. Letey and Cengiz Pehlevan, 2025",
    link="https://arxiv.org/abs/2510.01098",
    says="How much depth helps a linear transformer depends on the features. If their covariance is isotropic or the "
    "same in all sequences, parameters can store it, and depth helps only while the context is short. If every "
    "sequence has a covariance of its own, depth helps at any context length.",
    problems={setting: problem_of(setting, 16) for setting in FEATURES},
    parts=(Part(depth, {"lengths": (8, 256), "depths": (1, 2), "effort": 0.02, "sequences": 10_000}),),
    checks=(absolute, fixed, rotated),
    pictures={"depth": Picture(draw, "Loss against depth in the three settings.")},
    beyond=("Scaling laws in width and training time, for power-law spectra in the limit of large dimensions.",),
)
