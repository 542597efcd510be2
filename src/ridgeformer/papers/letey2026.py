"""Letey, Zavatone-Veth, Lu and Pehlevan: the error when the covariance of tasks differs between training and test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation import evaluate
from ridgeformer.papers.check import Check, agree
from ridgeformer.papers.paper import Paper, Part, Picture, Results
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, Points, draw_panels
from ridgeformer.problems import Problem
from ridgeformer.problems.tasks import Gaussian
from ridgeformer.theory import one_layer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PAPER", "alignment"]

Array = NDArray[np.float64]
DIM, CONTEXT, SIGMA = 8, 16, 0.3
POWERS, ANGLES = (0.0, 0.5, 1.0, 2.0), (0.0, 0.25, 0.5, 1.0)


def covariance(power: float, angle: float = 0.0) -> Array:
    """Return a covariance of tasks with trace d.

    Args:
        power: Its eigenvalues are proportional to i^-power.
        angle: By how much its basis is turned: 0 for the axes, 1 for the reversed order of the eigenvalues.

    Returns:
        The matrix, [d, d].
    """
    values = np.arange(1.0, DIM + 1) ** -power
    turn, i = np.eye(DIM), np.arange(DIM // 2)
    cosine, sine = np.cos(angle * np.pi / 2), np.sin(angle * np.pi / 2)
    turn[i, i] = turn[-1 - i, -1 - i] = cosine
    turn[i, -1 - i], turn[-1 - i, i] = -sine, sine  # planes of opposite axes
    return np.asarray(turn * (values * DIM / values.sum()) @ turn.T)


def problem_of(tasks: Array) -> Problem:
    """Return the problem with tasks of a covariance.

    Args:
        tasks: The covariance, [d, d].

    Returns:
        The problem.
    """
    return Problem(DIM, CONTEXT, SIGMA, tasks=Gaussian(covariance=tasks))


def alignment(training: Array, test: Array) -> float:
    """Return the alignment of two covariances of tasks: the part of the error that depends on the test.

    For tests of equal trace, the risk of the trained W is 1/2 tr(test A) plus a constant of the training, with
    A = n (n + 1) W'W - 2 n W + I for symmetric W.

    Args:
        training: The covariance of tasks in training, [d, d].
        test: The covariance of tasks in the test, [d, d].

    Returns:
        1/2 tr(test A).
    """
    W, n = one_layer.optimum(problem_of(training)), CONTEXT
    return 0.5 * float((test * (n * (n + 1) * W.T @ W - n * (W + W.T) + np.eye(DIM))).sum())


def shifts(work: Work, *, sequences: int = 100_000) -> dict[str, Any]:
    """Measure losses of layers trained with every spectrum, under tests of every spectrum and angle.

    Args:
        work: The progress.
        sequences: How many fresh sequences for each test.

    Returns:
        Losses and standard errors, [training, test spectrum, angle].
    """
    loss, error = (np.zeros((len(POWERS), len(POWERS), len(ANGLES))) for _ in range(2))
    for i, training in enumerate(POWERS):
        work.progress(i, len(POWERS))
        model = one_layer.model_of(one_layer.optimum(problem_of(covariance(training))))
        for j, k in np.ndindex(loss.shape[1:]):
            test = problem_of(covariance(POWERS[j], ANGLES[k]))
            row = evaluate(test, model, sequences=sequences, seed=1, with_floor=False)
            loss[i, j, k], error[i, j, k] = row.unadjusted, row.unadjusted_error
    return {"loss": loss, "error": error}


def _places() -> list[tuple[float, float, float]]:
    return [(training, test, angle) for training in POWERS for test in POWERS for angle in ANGLES]


def formula(results: Results) -> Check:
    """Decide whether measured losses are those of the shift formula. See `Paper`."""
    expected = [
        one_layer.risk(problem_of(covariance(test, angle)), one_layer.optimum(problem_of(covariance(training))))
        for training, test, angle in _places()
    ]
    return agree(
        "In the population limit the error under any pair of task covariances is the shift formula.",
        np.ravel(results["shifts"]["loss"]),
        expected,
        4 * np.ravel(results["shifts"]["error"]),
        "Chance: 4 standard errors are exceeded once in 16,000 comparisons.",
        unit="4 standard errors",
        names=[f"powers {a:g} to {b:g}, angle {c:g}:" for a, b, c in _places()],
    )


def governed(results: Results) -> Check:
    """Decide whether the alignment alone says how the error changes with the test. See `Paper`."""
    loss, error = np.array(results["shifts"]["loss"]), np.array(results["shifts"]["error"])
    align = np.reshape([alignment(covariance(a), covariance(b, c)) for a, b, c in _places()], loss.shape)
    rest = (loss - align).reshape(len(POWERS), -1)
    return agree(
        "For one training, errors of two tests differ exactly by their alignments with it.",
        (rest - rest.mean(1, keepdims=True)).ravel(),
        np.zeros(rest.size),
        5 * np.maximum(error.reshape(rest.shape), error.reshape(rest.shape).mean(1, keepdims=True)).ravel(),
        "4 standard errors of the loss and one of the mean over tests.",
        unit="5 standard errors",
        names=[f"powers {a:g} to {b:g}, angle {c:g}:" for a, b, c in _places()],
    )


def misalignment(results: Results) -> Check:
    """Decide whether turning the test away from training raises the error. See `Paper`."""
    loss, error = np.array(results["shifts"]["loss"]), np.array(results["shifts"]["error"])
    same = np.ptp(loss[0, -1]) < 4 * np.sqrt(2) * error[0, -1].max()
    gain = [loss[i, i, -1] / loss[i, i, 0] for i in range(1, len(POWERS))]
    rises = [bool((np.diff(loss[i, i]) > 0).all()) for i in range(1, len(POWERS))]
    return Check(
        "The error grows as the tasks of the test turn away from those of training, and more for steeper spectra; a "
        "layer trained on isotropic tasks does not notice.",
        f"error when turned whole over error when aligned, powers {POWERS[1:]}: {', '.join(f'{g:.2f}' for g in gain)}; "
        f"isotropic training: {loss[0, -1].max() / loss[0, -1].min():.4f}",
        "above 1 and growing with the power; 1 for isotropic training",
        "4 standard errors of a difference for isotropic training",
        "Chance.",
        "rejected where the error falls with the angle, where the gain does not grow with the power, or where it is "
        "not 1 for isotropic training",
        (*rises, bool((np.diff(gain) > 0).all()), bool(same)),
    )


def draw(results: Results) -> Figure:
    """Draw errors against the alignment and against the angle. See `Paper`."""
    loss, panels = np.array(results["shifts"]["loss"]), []
    error = np.array(results["shifts"]["error"])
    align = np.reshape([alignment(covariance(a), covariance(b, c)) for a, b, c in _places()], loss.shape)
    shown = []
    for i, power in enumerate(POWERS):
        order = np.argsort(align[i].ravel())
        shown += [
            Points(
                f"trained on power {power:g}",
                align[i].ravel()[order].tolist(),
                loss[i].ravel()[order].tolist(),
                None,
                i,
            )
        ]
    panels.append(Panel("error against alignment", "alignment", "loss", shown, True, True))
    for i, power in enumerate(POWERS[1:], 1):
        fine = np.linspace(0, 1, 21)
        W = one_layer.optimum(problem_of(covariance(power)))
        curve = [one_layer.risk(problem_of(covariance(power, angle)), W) for angle in fine]
        parts = [
            Line("closed form", fine.tolist(), curve, i),
            Points("measured", ANGLES, loss[i, i].tolist(), error[i, i].tolist(), i),
        ]
        panels.append(Panel(f"power {power:g}", "angle (1: reversed)", "loss", parts))
    return draw_panels(panels, 4)


PAPER = Paper(
    id="letey2026",
    title="Pretrain-test task alignment governs generalization in in-context learning",
    authors="Mary Letey, Jacob Zavatone-Veth, Yue M. Lu and Cengiz Pehlevan, ICLR 2026",
    link="https://arxiv.org/abs/2509.26551",
    says="One layer of linear attention is trained on tasks of one covariance and tested on tasks of another. The "
    "error depends on the test only through an alignment: the trace of the test's covariance times a matrix that "
    "training decides.",
    reading="For one layer in the population limit, the error under any pair of task covariances is the shift formula, "
    "and its dependence on the test is the trace of the test's covariance times a matrix that training "
    "decides. 64 pairs of training and test covariances, of four spectra and four angles, are measured. The "
    "first panel plots errors against that alignment; the others turn the test away from training at a fixed "
    "spectrum.",
    problems={"training": problem_of(covariance(1.0)), "test": problem_of(covariance(1.0, 0.5))},
    parts=(Part(shifts, {"sequences": 10_000}),),
    checks=(formula, governed, misalignment),
    pictures={"alignment": Picture(draw, "Errors against the alignment, and as the test turns away from training.")},
    beyond=(
        "Finite numbers of pretraining contexts and tasks for structured covariances, for which the paper has "
        "asymptotic formulas; lu2025 checks the isotropic ones.",
        "Transformers with softmax and MLPs, which the paper's experiments include.",
    ),
)
