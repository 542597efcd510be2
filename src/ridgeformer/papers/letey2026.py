"""Letey, Zavatone-Veth, Lu and Pehlevan: the error when the covariance of tasks differs between training and test.

Pretrain-test task alignment governs generalization in in-context learning
Mary Letey, Jacob Zavatone-Veth, Yue M. Lu and Cengiz Pehlevan, ICLR 2026
https://arxiv.org/abs/2509.26551

One layer of linear attention is trained on tasks of one covariance and tested on tasks of another. The error depends on
the test only through an alignment: the trace of the test's covariance times a matrix that training decides.

For one layer in the population limit, the error under any pair of task covariances is the shift formula, and its
dependence on the test is the trace of the test's covariance times a matrix that training decides. 64 pairs of training
and test covariances, of four spectra and four angles, are measured. The first panel plots errors against that
alignment; the others turn the test away from training at a fixed spectrum.

Not checked here: Finite numbers of pretraining contexts and tasks for structured covariances, for which the paper has
asymptotic formulas; lu2025 checks the isotropic ones.

Not checked here: Transformers with softmax and MLPs, which the paper's experiments include.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeformer.papers.paper import Check, Paper, Part, Results, agree, agree_by_chance, listed, panels
from ridgeformer.papers.running import Work
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.problems import Problem
from ridgeformer.problems.tasks import Gaussian
from ridgeformer.theory import one_layer
from ridgeformer.validation import Array

DIM, CONTEXT, SIGMA = 8, 16, 0.3
POWERS, ANGLES = (0.0, 0.5, 1.0, 2.0), (0.0, 0.25, 0.5, 1.0)


def _covariance(power: float, angle: float = 0.0) -> Array:
    """A covariance of tasks, [d, d], with trace d and eigenvalues i^-power; turned by 1, their order is reversed."""
    values = np.arange(1.0, DIM + 1) ** -power
    turn, i = np.eye(DIM), np.arange(DIM // 2)
    cosine, sine = np.cos(angle * np.pi / 2), np.sin(angle * np.pi / 2)
    turn[i, i] = turn[-1 - i, -1 - i] = cosine
    turn[i, -1 - i], turn[-1 - i, i] = -sine, sine  # planes of opposite axes
    return np.asarray(turn * (values * DIM / values.sum()) @ turn.T)


def _problem_of(tasks: Array) -> Problem:
    """The problem with tasks of a covariance, [d, d]."""
    return Problem(DIM, CONTEXT, SIGMA, tasks=Gaussian(covariance=tasks))


def _alignment(training: Array, test: Array) -> float:
    """The part of the risk that depends on the test: 1/2 tr(test A), A = n (n + 1) W'W - 2 n W + I."""
    W, n = one_layer.optimum(_problem_of(training)), CONTEXT
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
    for i, training in work.each(enumerate(POWERS)):
        model = one_layer.model_of(one_layer.optimum(_problem_of(_covariance(training))))
        for j, k in np.ndindex(loss.shape[1:]):
            test = _problem_of(_covariance(POWERS[j], ANGLES[k]))
            loss[i, j, k], error[i, j, k] = work.losses(test, {"layer": model}, sequences)["layer"].values()
    return {"loss": loss, "error": error}


def _places() -> list[tuple[float, float, float]]:
    return [(training, test, angle) for training in POWERS for test in POWERS for angle in ANGLES]


def formula(results: Results) -> Check:
    """Decide whether measured losses are those of the shift formula. See `Paper`.

    In the population limit the error under any pair of task covariances is the shift formula.
    """
    optimum = {power: one_layer.optimum(_problem_of(_covariance(power))) for power in POWERS}
    expected = [one_layer.risk(_problem_of(_covariance(b, c)), optimum[a]) for a, b, c in _places()]
    return agree_by_chance(
        np.ravel(results["shifts"]["loss"]),
        expected,
        results["shifts"]["error"],
        names=[f"powers {a:g} to {b:g}, angle {c:g}:" for a, b, c in _places()],
    )


def governed(results: Results) -> Check:
    """Decide whether the alignment alone says how the error changes with the test. See `Paper`.

    For one training, errors of two tests differ exactly by their alignments with it.

    Reason: 4 standard errors of the loss and one of the mean over tests.
    """
    loss, error = np.array(results["shifts"]["loss"]), np.array(results["shifts"]["error"])
    align = np.reshape([_alignment(_covariance(a), _covariance(b, c)) for a, b, c in _places()], loss.shape)
    rest = (loss - align).reshape(len(POWERS), -1)
    return agree(
        (rest - rest.mean(1, keepdims=True)).ravel(),
        np.zeros(rest.size),
        5 * np.maximum(error.reshape(rest.shape), error.reshape(rest.shape).mean(1, keepdims=True)).ravel(),
        unit="5 standard errors",
        names=[f"powers {a:g} to {b:g}, angle {c:g}:" for a, b, c in _places()],
    )


def misalignment(results: Results) -> Check:
    """Decide whether turning the test away from training raises the error. See `Paper`.

    The error grows as the tasks of the test turn away from those of training, and more for steeper spectra; a layer
    trained on isotropic tasks does not notice.

    Expected: above 1 and growing with the power; 1 for isotropic training
    Tolerance: 4 standard errors of a difference for isotropic training
    Reason: Chance.
    Rule: rejected where the error falls with the angle, where the gain does not grow with the power, or where it is
        not 1 for isotropic training
    """
    loss, error = np.array(results["shifts"]["loss"]), np.array(results["shifts"]["error"])
    same = np.ptp(loss[0, -1]) < 4 * np.sqrt(2) * error[0, -1].max()
    gain = [loss[i, i, -1] / loss[i, i, 0] for i in range(1, len(POWERS))]
    rises = [bool((np.diff(loss[i, i]) > 0).all()) for i in range(1, len(POWERS))]
    return Check(
        f"error when turned whole over error when aligned, powers {POWERS[1:]}: {listed(gain, '.2f')}; "
        f"isotropic training: {loss[0, -1].max() / loss[0, -1].min():.4f}",
        holds=(*rises, bool((np.diff(gain) > 0).all()), bool(same)),
    )


def draw(results: Results) -> list[Panel]:
    """Draw errors against the alignment and against the angle. See `Paper`.

    Errors against the alignment, and as the test turns away from training.
    """
    loss, figure = np.array(results["shifts"]["loss"]), []
    error = np.array(results["shifts"]["error"])
    align = np.reshape([_alignment(_covariance(a), _covariance(b, c)) for a, b, c in _places()], loss.shape)
    shown = [
        Scatter(f"trained on power {power:g}", align[i].ravel().tolist(), loss[i].ravel().tolist(), None, i)
        for i, power in enumerate(POWERS)
    ]
    figure.append(Panel("error against alignment", "alignment", "loss", shown, True, True))
    for i, power in enumerate(POWERS[1:], 1):
        fine = np.linspace(0, 1, 21)
        W = one_layer.optimum(_problem_of(_covariance(power)))
        curve = [one_layer.risk(_problem_of(_covariance(power, angle)), W) for angle in fine]
        parts = [
            Line("closed form", fine.tolist(), curve, i),
            Scatter("measured", ANGLES, loss[i, i].tolist(), error[i, i].tolist(), i),
        ]
        figure.append(Panel(f"power {power:g}", "angle (1: reversed)", "loss", parts))
    return figure


PAPER = Paper(
    id="letey2026",
    about=__doc__,
    problems={"training": _problem_of(_covariance(1.0)), "test": _problem_of(_covariance(1.0, 0.5))},
    parts=(Part(shifts, {"sequences": 10_000}),),
    checks=(formula, governed, misalignment),
    pictures={"alignment": panels(draw, 4)},
)
