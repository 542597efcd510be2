"""A problem as a picture: a few of its sequences, and the quantities that vary between sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ridgeformer.errors import refuse, short
from ridgeformer.plotting import style
from ridgeformer.plotting.style import Axes, Figure
from ridgeformer.problems import Problem, Sequences
from ridgeformer.values import Array

SHOWN, SPECTRA, MANY = 4, 20, 4000  # sequences shown, sequences whose eigenvalues are shown, sequences counted
LARGEST = 1 << 26  # numbers in the tokens of the sequences


def check_drawable(problem: Problem) -> None:
    """Refuse a problem whose sequences are too long to be drawn.

    Args:
        problem: The distribution of sequences.

    Raises:
        InputError: The sequences are too long.
    """
    if SPECTRA * problem.lengths.most * problem.dim > LARGEST:
        received = f"{problem.lengths.most:,} examples of {problem.dim:,} features"
        rule = f"a picture shows sequences of at most {LARGEST // SPECTRA:,} numbers"
        refuse(rule, received, "Draw a problem with a smaller context.")


def draw_problem(
    problem: Problem, path: Path | str | None = None, *, title: str | None = None, seed: int = 0
) -> Figure:
    """Draw a few sequences, and the quantities that vary between sequences.

    Above, four sequences: labels against <w, x>, with the query. Below: eigenvalues of S / n of twenty contexts beside
    those of the covariance of the features; the numbers of examples; the noise levels; the answers of queries. Noise
    levels and answers beyond their 99.5 % quantiles are not shown; the titles of the panels say so.

    Args:
        problem: The distribution of sequences.
        path: The file, which ends in .png, .pdf or .svg; None to write none.
        title: The title; None for the problem.
        seed: Seed of the sequences that are shown.

    Returns:
        The figure.

    Raises:
        InputError: The name has another ending, or the sequences are too long to be drawn.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = style.check_plot(path)
    check_drawable(problem)
    tokens = problem.sequences(SPECTRA, seed=seed)
    canvas = style.blank(12, 6)
    axes = canvas.subplots(2, SHOWN)
    reach = max(_sequence(axis, tokens, index) for index, axis in enumerate(axes[0]))
    for axis in axes[0]:  # the same scale for all, so that noise can be compared
        axis.axline((0, 0), slope=1, color=style.GREY, linewidth=1, zorder=1, label="<w, x>")
        axis.set(xlim=(-reach, reach), ylim=(-reach, reach))
    axes[0, 0].legend(frameon=False, fontsize=8, loc="upper left")
    _eigenvalues(axes[1, 0], problem, tokens, seed)
    _lengths(axes[1, 1], problem)
    _levels(axes[1, 2], np.asarray(problem.choices(MANY, seed=seed).sigma))
    _answers(axes[1, 3], problem, seed)
    style.neat(*axes.flat, text=9)
    return style.finish(canvas, path, short(problem.label, 140) if title is None else title)


def _sequence(axis: Axes, tokens: Sequences, index: int) -> float:
    """One context: labels against what they are without noise. Returns how far the axes must reach."""
    assert tokens.task is not None
    assert tokens.sigma is not None
    n = tokens.x.shape[1] if tokens.context is None else int(tokens.context[index])
    clean, labels = tokens.x[index, :n] @ tokens.task[index], tokens.y[index, :n]
    answer = float(tokens.answers[index, 0])
    axis.plot(clean, labels, "o", color=style.BLUE, markersize=3.5, alpha=0.8, label="examples")
    axis.plot([answer], [answer], "*", color=style.VERMILION, markersize=12, label="query")
    style.panel(axis, f"a sequence: n = {n}, sigma = {tokens.sigma[index]:.2f}", "<w, x>", "y" if index == 0 else "")
    return 1.1 * max(float(np.abs(clean).max()), float(np.abs(labels).max()), abs(answer), 1e-9)


def _eigenvalues(axis: Axes, problem: Problem, tokens: Sequences, seed: int) -> None:
    """Draw the spectra of S / n of several contexts, and of the covariances of the features."""
    from matplotlib.ticker import MaxNLocator

    d = problem.dim
    numbers = np.arange(1, d + 1)
    counts = np.full(len(tokens.x), tokens.x.shape[1]) if tokens.context is None else tokens.context
    S = np.swapaxes(tokens.x, 1, 2) @ tokens.x / np.asarray(counts)[:, None, None]
    look: Any = {"marker": "o", "markersize": 4} if d == 1 else {}
    for index, values in enumerate(_spectra(S)):
        label = "S / n of a context, S = sum x x'" if index == 0 else None
        axis.plot(numbers, values, color=style.SKY, linewidth=0.7, alpha=0.7, label=label, **look)
    count = 1 if problem.features.fixed else max(2, min(200, LARGEST // (8 * d * d)))
    drawn, label = np.array(problem.features.covariances(d, count, np.random.default_rng(seed))), "covariance of x"
    if problem.features.standardised:
        scale = np.sqrt(np.einsum("bii->bi", drawn))
        drawn = drawn / scale[:, :, None] / scale[:, None, :]
    values = _spectra(drawn)
    if count > 1:
        band: Any = {"color": style.ORANGE, "alpha": 0.3, "linewidth": 0, "label": f"{label}, 5 to 95 %"}
        axis.fill_between(numbers, *np.quantile(values, [0.05, 0.95], axis=0), **band)
        label += ", median"
    axis.plot(numbers, np.median(values, 0), "o-", color=style.VERMILION, markersize=3, linewidth=1.5, label=label)
    style.panel(axis, "eigenvalues of x, largest first", "1st, 2nd, ... eigenvalue", "eigenvalue")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.set_xlim(0.5, d + 0.5)
    axis.set_ylim(bottom=-0.02 * axis.get_ylim()[1])  # a marker at 0 is whole
    axis.legend(frameon=False, fontsize=8)


def _spectra(matrices: Array) -> Array:
    """Eigenvalues of matrices [B, d, d], descending, [B, d]."""
    return np.asarray(np.maximum(np.linalg.eigvalsh(matrices)[:, ::-1], 0.0))


def _lengths(axis: Axes, problem: Problem) -> None:
    """Their probabilities, which are equal."""
    values = problem.lengths.values
    width = max(0.8, 0.005 * float(values[-1] - values[0]))
    axis.bar(values, np.full(len(values), 1 / len(values)), width=width, color=style.GREEN)
    if len(values) == 1:
        axis.set_xlim(values[0] - 3, values[0] + 3)
    style.panel(axis, "number of examples n", "n", "probability")


def _levels(axis: Axes, sigma: Array) -> None:
    distinct, counts = np.unique(sigma, return_counts=True)
    cut = ""
    if len(distinct) <= 16:
        span = float(distinct[-1] - distinct[0]) or 1.0
        axis.bar(distinct, counts / len(sigma), width=0.04 * span, color=style.ORANGE)
        if len(distinct) == 1:
            axis.set_xlim(max(-0.05, distinct[0] - 1), distinct[0] + 1)  # the bar at 0 is whole
    else:
        inside = sigma[sigma <= np.quantile(sigma, 0.995)]
        cut = "" if sigma.max() < 1.2 * inside.max() else f"\n(not shown: 0.5 %, up to {sigma.max():.3g})"
        axis.hist(inside, bins=30, weights=np.full(len(inside), 1 / len(sigma)), color=style.ORANGE)
    style.panel(axis, f"noise levels of {len(sigma):,} sequences{cut}", "sigma", "share")


def _answers(axis: Axes, problem: Problem, seed: int) -> None:
    """The answers of queries, which have the mean square `signal`."""
    smaller = problem.replace(context=max(2, min(problem.lengths.least, LARGEST // (16 * MANY * problem.dim))))
    answers = np.asarray(smaller.sequences(MANY, seed=seed).answers[:, 0])
    reach = float(np.quantile(np.abs(answers), 0.995)) or 1.0
    inside = answers[np.abs(answers) <= reach]
    axis.hist(inside, bins=40, weights=np.full(len(inside), 1 / MANY), color=style.BLUE)
    style.panel(axis, f"99.5 % of the answers: signal {problem.signal:.3g}", "<w, x>", "share")
