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

import functools

import numpy as np

from ridgeformer.papers import CHANCE, Check, Paper, Part, Picture, Results, Rows, Work, agree, listed
from ridgeformer.plotting.panels import Line, Panel, Scatter
from ridgeformer.problems import Problem
from ridgeformer.problems.tasks import Gaussian
from ridgeformer.theory import one_layer
from ridgeformer.validation import Array

DIM, CONTEXT, SIGMA = 8, 16, 0.3
POWERS, ANGLES = (0.0, 0.5, 1.0, 2.0), (0.0, 0.25, 0.5, 1.0)
NAMES = "powers {training:g} to {test:g}, angle {angle:g}:"


def _covariance(power: float, angle: float = 0.0) -> Array:
    """A covariance of tasks, [d, d], with trace d and eigenvalues i^-power; turned by 1, their order is reversed."""
    values = np.arange(1.0, DIM + 1) ** -power
    turn, i = np.eye(DIM), np.arange(DIM // 2)
    cosine, sine = np.cos(angle * np.pi / 2), np.sin(angle * np.pi / 2)
    turn[i, i] = turn[-1 - i, -1 - i] = cosine
    turn[i, -1 - i], turn[-1 - i, i] = -sine, sine  # planes of opposite axes
    return np.asarray(turn * (values * DIM / values.sum()) @ turn.T)


def _problem_of(power: float, angle: float = 0.0) -> Problem:
    """The problem with tasks of this covariance."""
    return Problem(DIM, CONTEXT, SIGMA, tasks=Gaussian(covariance=_covariance(power, angle)))


def _optimum(training: float) -> Array:
    """The W of the best layer for tasks of a power."""
    return one_layer.optimum(_problem_of(training))


def _risk(training: float, test: float, angle: float) -> float:
    """The loss of that layer in a test."""
    return one_layer.risk(_problem_of(test, angle), _optimum(training))


def _alignment(training: float, test: float, angle: float) -> float:
    """The part of the risk that depends on the test: 1/2 tr(test A), A = n (n + 1) W'W - 2 n W + I."""
    W, n = _optimum(training), CONTEXT
    return 0.5 * float((_covariance(test, angle) * (n * (n + 1) * W.T @ W - n * (W + W.T) + np.eye(DIM))).sum())


def shifts(work: Work, *, sequences: int = 100_000) -> Rows:
    """Measure losses of layers trained with every spectrum, under tests of every spectrum and angle.

    Args:
        work: The progress.
        sequences: How many fresh sequences for each test.

    Yields:
        For every training, test spectrum and angle: the loss and its standard error.
    """
    for training, test, angle in work.each(POWERS, POWERS, ANGLES):
        loss = work.loss(_problem_of(test, angle), one_layer.model_of(_optimum(training)), sequences)
        yield {"training": training, "test": test, "angle": angle, **loss}


def formula(results: Results) -> Check:
    """Decide whether measured losses are those of the shift formula. See `Paper`.

    In the population limit the error under any pair of task covariances is the shift formula.
    """
    rows = results.shifts
    return agree(rows.loss, rows.compute(_risk), error=rows.error, names=rows.names(NAMES))


def governed(results: Results) -> Check:
    """Decide whether the alignment alone says how the error changes with the test. See `Paper`.

    For one training, errors of two tests differ exactly by their alignments with it.

    Reason: 4 standard errors of the loss and one of the mean over tests.
    """
    rows = results.shifts
    residual, error = (x.reshape(len(POWERS), -1) for x in (rows.loss - rows.compute(_alignment), rows.error))
    return agree(
        residual - residual.mean(1, keepdims=True),
        np.zeros(residual.size),
        5 * np.maximum(error, error.mean(1, keepdims=True)),
        unit="5 standard errors",
        names=rows.names(NAMES),
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
    isotropic = results.shifts.where(training=POWERS[0], test=POWERS[-1])
    turned = np.array([results.shifts.where(training=power, test=power).loss for power in POWERS[1:]])
    gain = turned[:, -1] / turned[:, 0]
    return Check(
        f"error when turned whole over error when aligned, powers {POWERS[1:]}: {listed(gain, '.2f')}; "
        f"isotropic training: {isotropic.loss.max() / isotropic.loss.min():.4f}",
        holds=[
            (np.diff(turned) > 0).all(1),
            (np.diff(gain) > 0).all(),
            np.ptp(isotropic.loss) < CHANCE * np.sqrt(2) * isotropic.error.max(),
        ],
    )


def draw(results: Results) -> list[Panel]:
    """Draw errors against the alignment and against the angle. See `Paper`.

    Errors against the alignment, and as the test turns away from training.
    """
    shown, figure = [], []
    for i, (power, rows) in enumerate(results.shifts.by("training")):
        shown.append(Scatter(f"trained on power {power:g}", rows.compute(_alignment), rows.loss, None, i))
        if power:
            group, curve = rows.where(test=power), functools.partial(_risk, power, power)
            closed_form = Line.of("closed form", curve, np.linspace(0, 1, 21), i)
            parts = [closed_form, Scatter("measured", group.angle, group.loss, group.error, i)]
            figure.append(Panel(f"power {power:g}", "angle (1: reversed)", "loss", parts))
    return [Panel("error against alignment", "alignment", "loss", shown, True, True), *figure]


PAPER = Paper(
    id="letey2026",
    about=__doc__,
    problems={"training": _problem_of(1.0), "test": _problem_of(1.0, 0.5)},
    parts=(Part(shifts, {"sequences": 10_000}),),
    checks=(formula, governed, misalignment),
    pictures={"alignment": Picture(draw, columns=4)},
)
