"""The figures of the paper and two more, as functions of stored measurements. Needs matplotlib.

Weights, losses by layer and layers that are needed (4, 5 and `layers`) are here, losses and profiles in `losses`.

>>> from ridgeformer.papers.vladymyrov2024.figures import FIGURES
>>> list(FIGURES)
['1', '2', '3', '4', '5', '6', '7', '8', 'layers']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ridgeformer.papers.vladymyrov2024.evidence import SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.figures.losses import (
    COLOURS,
    NEEDS as NEEDS,
    PICTURES,
    below,
    by_family,
    figure,
    shade_of,
)
from ridgeformer.papers.vladymyrov2024.paper import DEPTHS, FAMILIES, LABELS, Row
from ridgeformer.papers.vladymyrov2024.table import FLOOR
from ridgeformer.papers.vladymyrov2024.theory.layers_needed import METHODS, SECOND_ORDER
from ridgeformer.plotting import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@figure("4", ("weights",))
def weights(evidence: Evidence) -> Figure:
    """Draw Q and P of every layer of a four-layer Full model on categorical(1,3). See `figure`.

    Q and P of every layer of the four-layer Full model on categorical(1,3), scaled to equal norms. The last row and
    column belong to y.
    """
    pairs = list(zip(evidence.weights["P"], evidence.weights["Q"], strict=True))
    canvas = style.blank(7.2, 3.9)
    axes = canvas.subplots(2, len(pairs))
    for layer, (P, Q) in enumerate(pairs):
        # Only products of P and Q matter: both have the same norm, and a sign that makes the trace of Q positive.
        scale = np.sqrt(np.linalg.norm(P) / np.linalg.norm(Q)) * (np.sign(np.trace(Q)) or 1.0)
        for axis, name, matrix in ((axes[0, layer], "Q", Q * scale), (axes[1, layer], "P", P / scale)):
            most = float(np.abs(matrix).max())
            image = axis.imshow(matrix, cmap="PuOr", vmin=-most, vmax=most)
            axis.set_title(f"${name}^{layer}$")
            axis.set(xticks=[0, 5, 10], yticks=[0, 5, 10])
            axis.axhline(9.5, color=style.GREY, linewidth=0.4)
            axis.axvline(9.5, color=style.GREY, linewidth=0.4)
            canvas.colorbar(image, ax=axis, shrink=0.75, pad=0.03).ax.tick_params(labelsize=5)
    return canvas


@figure("5", ("tuned", "table", "layers"))
def loss_by_layer(evidence: Evidence) -> Figure:
    """Draw loss after every layer, for models of every depth. See `figure`.

    Adjusted loss of the readout after every layer, uniform(0,5), for models of every depth. Bars: standard deviation
    over five seeds. Black: the Bayes floor.
    """
    canvas, axes = by_family(2.8)
    floor = evidence.table["full", 1, SHOWN].floor
    for family, axis in axes.items():
        for depth in DEPTHS:
            losses = evidence.layers[Row(family, depth).name]
            look = {"marker": "o", "markersize": 3, "capsize": 1.5, "elinewidth": 0.8, "color": shade_of(depth)}
            label = f"{depth} layers" if depth > 1 else "1 layer"
            axis.errorbar(range(depth + 1), losses.mean(0), yerr=losses.std(0), label=label, **look)
        axis.axhline(floor, color=COLOURS[FLOOR], linewidth=1)
        axis.set(xticks=range(len(DEPTHS) + 1))
        style.logarithmic(axis)
        style.panel(axis, LABELS[family], "after layer", "adjusted loss" if family == FAMILIES[0] else "")
    below(canvas, axes[FAMILIES[0]].get_legend_handles_labels()[0], narrow=False)
    return canvas


KAPPA, EPSILON = 1e6, 1e-10  # of the panels against epsilon and against kappa
LINES = {
    "gradient descent": (style.GREY, "-"),
    "heavy ball": (style.ORANGE, "-"),
    "conjugate gradients": (style.GREEN, "-"),
    "Newton (Schulz)": (style.PINK, "-"),
    "GD++, paper": (style.BLUE, "-"),
    "GD++, balanced": (style.VERMILION, "-"),
    "GD++, lower bound": ("black", ":"),
}


@figure("layers", ())
def layers_of_theorem(evidence: Evidence) -> Figure:
    """Draw how many layers or steps each method needs; this takes no measurements. See `figure`.

    Layers that GD++ needs to solve least squares, and steps of classical methods, for the worst spectrum with condition
    number kappa: all methods against kappa, the second-order ones alone against kappa, and these against epsilon, on an
    axis that is linear in log log 1/epsilon.
    """
    canvas = style.blank(12, 3.8)
    every, by_kappa, by_epsilon = canvas.subplots(1, 3)
    count = METHODS | SECOND_ORDER
    kappas = np.geomspace(2, 1e12, 241)
    scale = np.linspace(np.log(np.log(10)), np.log(-np.log(1e-30)), 241)
    for name, (colour, line) in LINES.items():
        drawn = {"color": colour, "linestyle": line, "linewidth": 1.8, "label": name}
        needed = [count[name](value, EPSILON) for value in kappas.tolist()]
        every.plot(kappas, needed, **drawn)
        if name in SECOND_ORDER:
            by_kappa.plot(kappas, needed, drawstyle="steps-mid", **drawn)
            finer = [count[name](KAPPA, value) for value in np.exp(-np.exp(scale)).tolist()]
            by_epsilon.plot(scale, finer, drawstyle="steps-mid", **drawn)
    every.set(xscale="log", yscale="log", xlabel="condition number kappa", ylabel="layers or steps, worst case")
    by_kappa.set(xscale="log", xlabel="condition number kappa", ylim=(0, None))
    for axis in (every, by_kappa):
        axis.set_title(f"accuracy epsilon = {EPSILON:g}", fontsize=10)
    ticks = (1, 2, 4, 8, 15, 30)
    by_epsilon.set_xticks([np.log(power * np.log(10)) for power in ticks], [f"1e-{power}" for power in ticks])
    by_epsilon.set(xlabel="accuracy epsilon, scale of log log 1/epsilon", ylim=(0, None))
    by_epsilon.set_title(f"condition number kappa = {KAPPA:g}", fontsize=10)
    for axis in (every, by_kappa, by_epsilon):
        axis.spines[["top", "right"]].set_visible(False)
    every.legend(frameon=False, fontsize=8)
    return canvas


FIGURES = dict(sorted(PICTURES.items()))
