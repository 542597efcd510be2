"""How the paper's methods look, and losses against depth and noise: figures 1, 2, 3, 6, 7 and 8."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.losses import EXPLODES
from ridgeformer.papers.paper import Picture, Results
from ridgeformer.papers.vladymyrov2024 import paper
from ridgeformer.papers.vladymyrov2024.evidence import BAYES, SHOWN, Evidence
from ridgeformer.papers.vladymyrov2024.paper import BASELINES, DEPTHS, FAMILIES, LABELS, SIGMA_MAX, UNIFORM, Row
from ridgeformer.papers.vladymyrov2024.render import column_name, column_tex
from ridgeformer.papers.vladymyrov2024.table import FLOOR, NOTHING, TableOne
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
PICTURES: dict[str, Picture] = {}
NEEDS: dict[str, tuple[str, ...]] = {}  # the parts of the evidence that each figure shows
Draw = Callable[[Evidence], "Figure"]


def figure(name: str, needs: tuple[str, ...], note: str = "") -> Callable[[Draw], Draw]:
    """Decorate a function that draws a figure from the evidence, which makes it one of the paper's pictures.

    Args:
        name: The number of the figure in the paper, or a name.
        needs: The parts of the evidence that it shows.
        note: What the caption says after what the docstring of the function states.

    Returns:
        The decorator. The decorated function takes the evidence and returns the figure.
    """

    def register(draw: Draw) -> Draw:
        @functools.wraps(draw)
        def from_results(results: Results) -> Figure:
            return draw(Evidence(results))

        PICTURES[name], NEEDS[name] = Picture(from_results, note), needs
        return draw

    return register


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
    part = evidence.profiles[noise]
    logarithmic(axis, low, HIGHEST)  # before crosses are drawn, which stay inside
    shade(axis, part["sigmas"], part["inside"])
    for method in (*BASELINES, BAYES, *FAMILIES):
        row = Row(method, depth if method in FAMILIES else None).name
        width = 1.0 if method in DASHES else 1.6
        axis.plot(part["sigmas"], part["losses"][row], **_look(method, markers=False, linewidth=width))
        mark_exploded(axis, part["sigmas"], part["losses"][row], part["exploded"][row], COLOURS[method])


def _draw_every_depth(canvas: Any, evidence: Evidence, noise: str) -> Any:
    """Profiles of every depth but one, side by side."""
    axes = canvas.subplots(1, len(SHALLOW), sharey=True)
    for axis, depth in zip(axes, SHALLOW, strict=True):
        _draw_profiles(axis, evidence, noise, depth)
        panel(axis, f"{depth} layers", r"$\sigma$")
    return axes


@figure("1", ("tuned", "table"))
def loss_by_depth(evidence: Evidence) -> Figure:
    """Draw loss against depth for each sigma_max, with the baselines and the floor. See `figure`.

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


@figure("2", ("tuned", "profiles"), CROSS)
def uniform_profiles(evidence: Evidence) -> Figure:
    """Draw profiles of seven-layer models for each sigma_max, and of each depth at sigma_max = 5. See `figure`.

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


@figure("3", ("tuned", "table", "profiles"), CROSS)
def categorical_problems(evidence: Evidence) -> Figure:
    """Draw the categorical problems: loss against depth, and profiles of every depth. See `figure`.

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


@figure("6", ("tuned", "table"))
def unadjusted(evidence: Evidence) -> Figure:
    """Draw the same models by both losses; the unadjusted one hides what separates them. See `figure`.

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


@figure("7", ("layer_profiles",), CROSS)
def profiles_by_layer(evidence: Evidence) -> Figure:
    """Draw the profile after every layer of seven-layer models, with the spread over five seeds. See `figure`.

    Adjusted loss at each noise level after every layer of seven-layer models, uniform(0,5), mean over five seeds.
    Bands: standard deviation over the seeds. Grey: noise levels of training.
    """
    curves = evidence.layer_profiles
    sigmas = np.array(curves["sigmas"])
    canvas, axes = by_family(2.9)
    for family, axis in axes.items():
        losses, exploded = curves["losses"][family], curves["exploded"][family]
        logarithmic(axis, 1e-3, 20)
        shade(axis, sigmas, curves["inside"])
        for layer in DEPTHS:
            colour, mean, spread = shade_of(layer), losses[:, layer].mean(0), losses[:, layer].std(0)
            axis.plot(sigmas, mean, color=colour, label=f"layer {layer}", linewidth=1.3)
            axis.fill_between(sigmas, np.maximum(mean - spread, LOWEST), mean + spread, color=colour, alpha=0.2, lw=0)
            mark_exploded(axis, sigmas, mean, exploded[:, layer].sum(0), colour)
        panel(axis, LABELS[family], r"$\sigma$", "adjusted loss" if family == FAMILIES[0] else "")
    below(canvas, [*axes[FAMILIES[0]].get_legend_handles_labels()[0], style.exploded_entry()])
    return canvas


@figure("8", ("tuned", "table"))
def ratio_to_floor(evidence: Evidence) -> Figure:
    """Draw every model's loss over the least that any predictor can have. See `figure`.

    Ratio of the loss of every model to the Bayes floor, the smallest expected loss of any predictor.
    """
    from matplotlib.colors import LogNorm

    table, columns = evidence.table, paper.COLUMNS[1:]
    ratios = np.array([[table[row.method, row.layers, noise].ratio for noise in columns] for row in paper.ROWS])
    canvas = blank(7.2, 6.2)
    axis = canvas.subplots()
    image = axis.imshow(ratios, norm=LogNorm(1, 100), cmap="cividis_r", aspect="auto")
    for i, row in enumerate(ratios):
        for j, ratio in enumerate(row):
            text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
            axis.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if ratio > 8 else "black")
    axis.set_xticks(range(len(columns)), [column_name(noise) for noise in columns])
    axis.set_yticks(range(len(paper.ROWS)), [row.name for row in paper.ROWS])
    for edge in range(1, len(FAMILIES) + 1):
        axis.axhline(len(DEPTHS) * edge - 0.5, color="white", linewidth=2.5)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    best = min(LABELS, key=lambda family: math.prod(ratios[paper.ROWS.index(Row(family, DEPTHS[-1]))]))
    axis.set_title(f"Loss over the Bayes floor; 1 is the best that can be. Nearest: {LABELS[best]}, 7 layers")
    canvas.colorbar(image, ax=axis, shrink=0.6, label="times the floor")
    return canvas
