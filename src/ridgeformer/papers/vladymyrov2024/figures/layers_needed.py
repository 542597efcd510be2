"""Figures of the theorems. Needs matplotlib: pip install matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ridgeformer.papers.vladymyrov2024.theory.gdpp_solver import check_epsilon, check_kappa
from ridgeformer.papers.vladymyrov2024.theory.iterations import METHODS
from ridgeformer.papers.vladymyrov2024.theory.layers_needed import SECOND_ORDER
from ridgeformer.plotting.style import BLUE, GREEN, GREY, ORANGE, PINK, VERMILION, blank, check_plot, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_layers_needed"]

LINES = {
    "gradient descent": (GREY, "-"),
    "heavy ball": (ORANGE, "-"),
    "conjugate gradients": (GREEN, "-"),
    "Newton (Schulz)": (PINK, "-"),
    "GD++, paper": (BLUE, "-"),
    "GD++, balanced": (VERMILION, "-"),
    "GD++, lower bound": ("black", ":"),
}


def draw_layers_needed(path: Path | str | None = None, *, kappa: float = 1e6, epsilon: float = 1e-10) -> Figure:
    """Draw how many layers or steps each method needs for the worst spectrum.

    The panels show all methods against kappa, the second-order ones alone against kappa, and these against epsilon, on
    an axis that is linear in log log 1/epsilon.

    Args:
        path: The file, which ends in .png, .pdf or .svg; None to write none.
        kappa: The condition number in the panel against epsilon.
        epsilon: The accuracy in the panels against kappa.

    Returns:
        The figure.

    Raises:
        InputError: The name has another ending, or kappa or epsilon is not allowed.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = check_plot(path)
    kappa, epsilon = check_kappa(kappa), check_epsilon(epsilon)
    canvas = blank(12, 3.8)
    every, by_kappa, by_epsilon = canvas.subplots(1, 3)
    count = {name: method.worst for name, method in METHODS.items()} | SECOND_ORDER
    kappas = np.geomspace(2, 1e12, 241)
    finest = np.log(max(-np.log(epsilon), -np.log(1e-30)))
    scale = np.linspace(np.log(np.log(10)), finest, 241)
    for name, (colour, style) in LINES.items():
        drawn = {"color": colour, "linestyle": style, "linewidth": 1.8, "label": name}
        needed = [count[name](value, epsilon) for value in kappas.tolist()]
        every.plot(kappas, needed, **drawn)
        if name in SECOND_ORDER:
            by_kappa.plot(kappas, needed, drawstyle="steps-mid", **drawn)
            finer = [count[name](kappa, value) for value in np.exp(-np.exp(scale)).tolist()]
            by_epsilon.plot(scale, finer, drawstyle="steps-mid", **drawn)
    every.set(xscale="log", yscale="log", xlabel="condition number kappa", ylabel="layers or steps, worst case")
    by_kappa.set(xscale="log", xlabel="condition number kappa", ylim=(0, None))
    for axis in (every, by_kappa):
        axis.set_title(f"accuracy epsilon = {epsilon:g}", fontsize=10)
    ticks = [power for power in (1, 2, 4, 8, 15, 30, 60, 120, 240) if np.log(power * np.log(10)) <= finest + 1e-9]
    by_epsilon.set_xticks([np.log(power * np.log(10)) for power in ticks], [f"1e-{power}" for power in ticks])
    by_epsilon.set(xlabel="accuracy epsilon, scale of log log 1/epsilon", ylim=(0, None))
    by_epsilon.set_title(f"condition number kappa = {kappa:g}", fontsize=10)
    for axis in (every, by_kappa, by_epsilon):
        axis.spines[["top", "right"]].set_visible(False)
    every.legend(frameon=False, fontsize=8)
    return write(canvas, path)
