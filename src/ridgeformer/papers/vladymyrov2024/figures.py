"""The figures of the paper and two more, as functions of stored measurements. Needs matplotlib.

Figures 1 to 7 are those of the paper: losses against depth and noise (1, 2, 3 and 6), weights (4), losses by layer (5
and 7). Figure 8, the ratio of every loss to the floor, and `layers`, the layers that GD++ needs, are additions.

>>> from ridgeformer.papers.vladymyrov2024.figures import FIGURES
>>> list(FIGURES)
['1', '2', '3', '4', '5', '6', '7', '8', 'layers']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.losses import EXPLODES
from ridgeformer.papers.paper import Picture
from ridgeformer.papers.vladymyrov2024 import paper
from ridgeformer.papers.vladymyrov2024.evidence import BAYES, SHOWN, Evidence, of_evidence
from ridgeformer.papers.vladymyrov2024.paper import BASELINES, DEPTHS, FAMILIES, LABELS, SIGMA_MAX, UNIFORM, name_of
from ridgeformer.papers.vladymyrov2024.render import column_name, column_tex
from ridgeformer.papers.vladymyrov2024.table import FLOOR, NOTHING, TableOne
from ridgeformer.papers.vladymyrov2024.theory.layers_needed import METHODS, SECOND_ORDER
from ridgeformer.plotting import style
from ridgeformer.plotting.style import blank, logarithmic, mark_exploded, panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = dict(zip(FAMILIES, (style.ORANGE, style.BLUE, style.VERMILION), strict=True))
COLOURS |= dict(zip(BASELINES, (style.PINK, style.SKY, style.GREEN), strict=True))
COLOURS |= {FLOOR: style.BLACK, BAYES: style.BLACK}
MARKERS = {"gdpp": "s", "diag": "o", "full": "^"}
DASHES: dict[str, Any] = dict(zip(BASELINES, ((0, (1, 1.2)), (0, (4, 1.5)), (0, (6, 1.5, 1, 1.5))), strict=True))
DASHES |= {FLOOR: "solid", BAYES: "solid"}
SHALLOW = DEPTHS[1:]  # one layer has no room for a profile
LOWEST, HIGHEST = 1e-4, 5.0
CROSS = (
    "A cross marks a noise level at which at least one sequence exploded: its loss is above "
    f"{EXPLODES} d, while always predicting zero has a loss of about d / 2. At such a level the mean is dominated by "
    "these sequences and says little about the others."
)


def shade(axis: Axes, sigmas: Iterable[float], can_occur: Iterable[bool]) -> None:
    """Draw a grey background where the noise level can occur: a range, or single levels.

    Args:
        axis: Where to draw.
        sigmas: The noise levels of a profile, ascending.
        can_occur: Which of them can occur.
    """
    inside = list(compress(sigmas, can_occur))
    if len(inside) > 8:
        axis.axvspan(inside[0], inside[-1], color=style.PALE, linewidth=0, zorder=0)
    for sigma in inside if len(inside) <= 8 else ():
        axis.axvline(sigma, color=style.LIGHT, linewidth=4, zorder=0)


def legend(canvas: Figure, *, markers: bool = True, black: str = FLOOR, exploded: bool = False) -> None:
    """Draw one legend for all panels, below them.

    Args:
        canvas: The figure.
        markers: Whether the lines of the families have markers.
        black: What the black line is: the Bayes floor, or in profiles the Bayes predictor.
        exploded: Whether to explain the cross that marks explosions.
    """
    from matplotlib.lines import Line2D

    looks = {method: _look(method, markers=markers, markersize=4) for method in (*FAMILIES, *BASELINES, black)}
    handles = [Line2D([], [], label=LABELS.get(method, method), **look) for method, look in looks.items()]
    below(canvas, [*handles, *([style.exploded_entry()] if exploded else [])], narrow=exploded)


def below(canvas: Figure, handles: list[Any], *, narrow: bool = True) -> None:
    """Draw a legend in one row below all panels.

    Args:
        canvas: The figure.
        handles: Its entries.
        narrow: Whether entries stand close together.
    """
    room: Any = {"columnspacing": 1.2, "handlelength": 1.7, "handletextpad": 0.5} if narrow else {}
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, **room)


def _look(method: str, *, markers: bool = True, **more: Any) -> dict[str, Any]:
    """The colour, line and marker of a method."""
    marker = MARKERS.get(method, "") if markers else ""
    return {"color": COLOURS[method], "linestyle": DASHES.get(method, "solid"), "marker": marker, **more}


def by_family(height: float) -> tuple[Figure, dict[str, Axes]]:
    """Make a figure with a panel for each family, which share their vertical axis.

    Args:
        height: Its height in inches.

    Returns:
        The figure, and its panels by family.
    """
    canvas = blank(7.2, height)
    return canvas, dict(zip(FAMILIES, canvas.subplots(1, len(FAMILIES), sharey=True), strict=True))


def shade_of(number: int) -> Any:
    """Return the colour of a layer or a depth.

    Args:
        number: The layer or depth, from 1.

    Returns:
        A colour of matplotlib, the darker the deeper.
    """
    from matplotlib import colormaps

    return colormaps["viridis_r"](0.08 + 0.92 * number / len(DEPTHS))


def _by_sigma_max(axes: Any, draw: Callable[[Axes, str], None]) -> None:
    """A panel for each problem of uniform noise."""
    for axis, noise, most in zip(axes.flat, UNIFORM, SIGMA_MAX, strict=True):
        draw(axis, noise)
        panel(axis, rf"$\sigma_{{max}} = {most}$")
    for axis in axes[:, 0]:
        axis.set_ylabel("adjusted loss")


def _draw_depths(axis: Axes, table: TableOne, noise: str) -> None:
    """Loss against depth for every family, with the baselines and the floor."""
    lines = {name: table[name, None, noise].loss for name in BASELINES} | {FLOOR: table["full", 1, noise].floor}
    for name, loss in lines.items():
        if loss > NOTHING:
            axis.axhline(loss, color=COLOURS[name], linestyle=DASHES[name], linewidth=1.1, zorder=1.5)
    for family in FAMILIES:
        cells = [table[family, depth, noise] for depth in DEPTHS]
        # Down to a tenth at most: on a logarithmic axis a bar to 0 would have no end.
        bars = [[min(2 * cell.error, 0.9 * cell.loss) for cell in cells], [2 * cell.error for cell in cells]]
        look = _look(family, markersize=3.5, linewidth=1.2, elinewidth=0.8)
        axis.errorbar(DEPTHS, [cell.loss for cell in cells], yerr=bars, **look)
    axis.set(xticks=DEPTHS)
    logarithmic(axis)


def _draw_profiles(axis: Axes, evidence: Evidence, noise: str, depth: int = DEPTHS[-1], low: float = LOWEST) -> None:
    """One problem and depth: three families, the baselines and the Bayes predictor."""
    sigmas, inside = evidence.levels(noise)
    logarithmic(axis, low, HIGHEST)  # before crosses are drawn, which stay inside
    shade(axis, sigmas, inside)
    for method in (*BASELINES, BAYES, *FAMILIES):
        row = method, depth if method in FAMILIES else None
        losses, width = evidence.curve(noise, *row), 1.0 if method in DASHES else 1.6
        axis.plot(sigmas, losses, **_look(method, markers=False, linewidth=width))
        mark_exploded(axis, sigmas, losses, evidence.exploded(noise, *row), COLOURS[method])


def _draw_every_depth(canvas: Any, evidence: Evidence, noise: str) -> Any:
    """Profiles of every depth but one, side by side."""
    axes = canvas.subplots(1, len(SHALLOW), sharey=True)
    for axis, depth in zip(axes, SHALLOW, strict=True):
        _draw_profiles(axis, evidence, noise, depth)
        panel(axis, f"{depth} layers", r"$\sigma$")
    return axes


def loss_by_depth(evidence: Evidence) -> Figure:
    """Draw loss against depth for each sigma_max, with the baselines and the floor. See `Picture`.

    Adjusted loss against the number of layers, for noise levels uniform on [0, sigma_max]. Each marker is a separately
    trained model; bars are two standard errors. Lines: the baselines, and in black the Bayes floor.
    """
    canvas = blank(7.2, 3.9)
    axes = canvas.subplots(2, 4)
    _by_sigma_max(axes, lambda axis, noise: _draw_depths(axis, evidence.table, noise))
    for axis in axes[1]:
        axis.set_xlabel("layers")
    legend(canvas)
    return canvas


def uniform_profiles(evidence: Evidence) -> Figure:
    """Draw profiles of seven-layer models for each sigma_max, and of each depth at sigma_max = 5. See `Picture`.

    Adjusted loss at each noise level. Top: seven-layer models for each sigma_max (the first panel, without noise, has
    its own scale). Bottom: models of two to seven layers at sigma_max = 5. Grey: noise levels of training. Black: the
    Bayes predictor, which is the best on average over the levels of training, not at every level.
    """
    canvas = blank(7.2, 5.6)
    upper, lower = canvas.subfigures(2, 1, squeeze=False, height_ratios=(2, 1.05))[:, 0]

    def draw(axis: Axes, noise: str) -> None:
        low = LOWEST if noise != UNIFORM[0] else 1e-16  # without noise, losses at sigma = 0 are far below the others
        _draw_profiles(axis, evidence, noise, low=low)

    _by_sigma_max(upper.subplots(2, 4), draw)
    _draw_every_depth(lower, evidence, SHOWN)
    legend(canvas, markers=False, black=BAYES, exploded=True)
    return canvas


def categorical_problems(evidence: Evidence) -> Figure:
    """Draw the categorical problems: loss against depth, and profiles of every depth. See `Picture`.

    Two or three noise levels. Top: adjusted loss against depth, and profiles of seven layers. Bottom: profiles of two
    to seven layers. Grey: noise levels of training. Black in the panels of loss against depth: the Bayes floor. Black
    in the profiles: the Bayes predictor, which is the best on average over the levels of training, not at every level.
    """
    canvas = blank(7.2, 5.8)
    upper, *lower = canvas.subfigures(3, 1, squeeze=False, height_ratios=(1.25, 1, 1))[:, 0]
    axes = upper.subplots(1, 4)
    for place, noise in enumerate(paper.CATEGORICAL):
        name = rf"$\sigma \in {column_tex(noise)}$"
        by_depth, profiles = axes[2 * place : 2 * place + 2]
        _draw_depths(by_depth, evidence.table, noise)
        panel(by_depth, name, "layers", "adjusted loss" if not place else "")
        _draw_profiles(profiles, evidence, noise)
        panel(profiles, f"{name}, 7 layers", r"$\sigma$")
        _draw_every_depth(lower[place], evidence, noise)[0].set_ylabel(name)
    legend(canvas, black=BAYES, exploded=True)
    return canvas


def unadjusted(evidence: Evidence) -> Figure:
    """Draw the same models by both losses; the unadjusted one hides what separates them. See `Picture`.

    Unadjusted and adjusted losses of the seven-layer models and the baselines. Most of the unadjusted loss cannot be
    avoided by any predictor, which hides the differences that the adjusted loss shows.
    """
    canvas = blank(7.2, 2.9)
    left, right = canvas.subplots(1, 2)
    table, most = evidence.table, SIGMA_MAX
    for method in (*FAMILIES, *BASELINES):
        cells = [table[method, DEPTHS[-1] if method in FAMILIES else None, noise] for noise in UNIFORM]
        left.plot(most, [cell.unadjusted for cell in cells], **_look(method, markersize=3.5))
        right.plot(most[1:], [cell.loss for cell in cells[1:]], **_look(method, markersize=3.5))
    left.plot(most, [table.oracle[noise] for noise in UNIFORM], color=style.GREY, linestyle="--", label="oracle")
    right.plot(most[1:], [table["full", 1, noise].floor for noise in UNIFORM[1:]], color=COLOURS[FLOOR])
    panel(left, "unadjusted: against the true weights", r"$\sigma_{max}$", "loss")
    panel(right, "adjusted: against knowing the noise", r"$\sigma_{max}$", "adjusted loss")
    logarithmic(right)
    left.legend(frameon=False)
    legend(canvas)
    return canvas


def profiles_by_layer(evidence: Evidence) -> Figure:
    """Draw the profile after every layer of seven-layer models, with the spread over five seeds. See `Picture`.

    Adjusted loss at each noise level after every layer of seven-layer models, uniform(0,5), mean over five seeds.
    Bands: standard deviation over the seeds. Grey: noise levels of training.
    """
    curves = evidence.layer_profiles
    sigmas = curves.sigmas
    canvas, axes = by_family(2.9)
    for family, axis in axes.items():
        losses, exploded = curves.losses[family], curves.exploded[family]
        logarithmic(axis, 1e-3, 20)
        shade(axis, sigmas, curves.inside)
        for layer in DEPTHS:
            colour, mean, spread = shade_of(layer), losses[:, layer].mean(0), losses[:, layer].std(0)
            axis.plot(sigmas, mean, color=colour, label=f"layer {layer}", linewidth=1.3)
            axis.fill_between(sigmas, np.maximum(mean - spread, LOWEST), mean + spread, color=colour, alpha=0.2, lw=0)
            mark_exploded(axis, sigmas, mean, exploded[:, layer].sum(0), colour)
        panel(axis, LABELS[family], r"$\sigma$", "adjusted loss" if family == FAMILIES[0] else "")
    below(canvas, [*axes[FAMILIES[0]].get_legend_handles_labels()[0], style.exploded_entry()])
    return canvas


def ratio_to_floor(evidence: Evidence) -> Figure:
    """Draw every model's loss over the least that any predictor can have. See `Picture`.

    Ratio of the loss of every model to the Bayes floor, the smallest expected loss of any predictor.
    """
    from matplotlib.colors import LogNorm

    table, columns = evidence.table, paper.COLUMNS[1:]
    ratios = np.array([[table[*row, noise].ratio for noise in columns] for row in paper.ROWS])
    canvas = blank(7.2, 6.2)
    axis = canvas.subplots()
    image = axis.imshow(ratios, norm=LogNorm(1, 100), cmap="cividis_r", aspect="auto")
    for i, row in enumerate(ratios):
        for j, ratio in enumerate(row):
            text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
            axis.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if ratio > 8 else "black")
    axis.set_xticks(range(len(columns)), [column_name(noise) for noise in columns])
    axis.set_yticks(range(len(paper.ROWS)), [name_of(*row) for row in paper.ROWS])
    for edge in range(1, len(FAMILIES) + 1):
        axis.axhline(len(DEPTHS) * edge - 0.5, color="white", linewidth=2.5)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    best = min(LABELS, key=lambda family: math.prod(ratios[paper.ROWS.index((family, DEPTHS[-1]))]))
    axis.set_title(f"Loss over the Bayes floor; 1 is the best that can be. Nearest: {LABELS[best]}, 7 layers")
    canvas.colorbar(image, ax=axis, shrink=0.6, label="times the floor")
    return canvas


def weights(evidence: Evidence) -> Figure:
    """Draw Q and P of every layer of a four-layer Full model on categorical(1,3). See `Picture`.

    Q and P of every layer of the four-layer Full model on categorical(1,3), scaled to equal norms. The last row and
    column belong to y.
    """
    pairs = list(zip(evidence.weights.P, evidence.weights.Q, strict=True))
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


def loss_by_layer(evidence: Evidence) -> Figure:
    """Draw loss after every layer, for models of every depth. See `Picture`.

    Adjusted loss of the readout after every layer, uniform(0,5), for models of every depth. Bars: standard deviation
    over five seeds. Black: the Bayes floor.
    """
    canvas, axes = by_family(2.8)
    floor = evidence.table["full", 1, SHOWN].floor
    for family, axis in axes.items():
        for depth in DEPTHS:
            losses = evidence.layers[name_of(family, depth)]
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


def layers_of_theorem(evidence: Evidence) -> Figure:
    """Draw how many layers or steps each method needs; this takes no measurements. See `Picture`.

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


LOSSES = (loss_by_depth, uniform_profiles, categorical_problems)
LAYERS = (weights, loss_by_layer, unadjusted, profiles_by_layer, ratio_to_floor)
FIGURES = {
    str(number): Picture(of_evidence(draw), CROSS if number in (2, 3, 7) else "")
    for number, draw in enumerate((*LOSSES, *LAYERS), 1)
} | {"layers": Picture(of_evidence(layers_of_theorem))}
