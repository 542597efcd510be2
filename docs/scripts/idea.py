"""Draw the picture of the book's first page: `python docs/scripts/idea.py` (needs matplotlib; some ten seconds).

Left: contexts with little and with much noise. Middle: the estimate after every layer of a trained model, at two
noise levels, averaged over 2,000 contexts. Right: the losses of trained models of every depth, of baselines, and the
floor.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ridgeformer import AdaRR, ConstRR, Problem, TunedRR, compare, load, zoo
from ridgeformer.papers.vladymyrov2024.figures import COLOURS, MARKERS
from ridgeformer.papers.vladymyrov2024.paper import FAMILIES, LABELS
from ridgeformer.plotting.style import BLACK, GREEN, PINK, blank, decimals, panel, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOISE = "uniform(0,5)"
LEVELS = {0.5: GREEN, 5.0: PINK}  # noise levels with their colours in the left and middle panels


def contexts(axes: list[Axes]) -> None:
    """Two contexts with the same task in one dimension: little noise and much noise."""
    rng = np.random.default_rng(3)
    x, noise, query = rng.normal(size=20), rng.normal(size=20), 1.6
    for axis, (sigma, colour) in zip(axes, LEVELS.items(), strict=True):
        axis.plot(x, 2 * x + sigma * noise, "o", color=colour, markersize=3.5, label="examples (x, y)")
        axis.axvline(query, color=BLACK, linewidth=0.8, linestyle=":")
        axis.plot(query, 2 * query, marker="$?$", color=BLACK, markersize=9, linestyle="none", label="query: y = ?")
        axis.set(xlim=(-2.75, 2.6), ylim=(-14.5, 14.5), yticks=[-10, 0, 10])
        axis.text(-2.65, 13.6, f"noise level sigma = {sigma:g}, not given", fontsize=7.5, color=colour, va="top")
    panel(axes[0], "1. Problem: predict y for the query from\n20 noisy examples of y = <w, x>", y="y")
    panel(axes[1], "", x="x", y="y")
    axes[0].tick_params(labelbottom=False)
    axes[0].legend(loc="lower left", fontsize=7, frameon=False, handletextpad=0.2, borderpad=0)


def trajectories(axis: Axes) -> None:
    """The estimate after every layer, split into the part along the true task and the rest; averages."""
    model = load(f"zoo:diag/7/{NOISE}")

    def split(w: np.ndarray, task: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        along = (w * task).sum(-1) / np.square(task).sum(-1)
        across = np.linalg.norm(w - along[..., None] * task, axis=-1) / np.linalg.norm(task, axis=-1)
        return along.mean(-1), across.mean(-1)

    for sigma, colour in LEVELS.items():
        drawn = Problem(noise=f"fixed({sigma})").moments(2000, seed=1)
        along, across = split(model.trace(drawn).weights, drawn.task)
        axis.plot(along, across, "o-", color=colour, markersize=3.5, linewidth=1)
        ideal = split(drawn.ridge, drawn.task)
        axis.plot(along[-1], across[-1], "o", color=colour, markersize=8, markerfacecolor="none")
        axis.plot(*ideal, marker="*", color=colour, markersize=13, alpha=0.45, linestyle="none")
        axis.annotate(
            f"sigma = {sigma:g}",
            ideal,
            (9, -3) if sigma < 1 else (8, -12),
            textcoords="offset points",
            fontsize=7.5,
            color=colour,
        )
    axis.annotate("start: w = 0", (0, 0), (4, -8), textcoords="offset points", fontsize=7)
    axis.plot([], [], "o-", color=BLACK, markersize=3.5, linewidth=1, label="w after layers 0 to 7 (circle: layer 7)")
    label = "best w if sigma were known"
    axis.plot([], [], marker="*", color=BLACK, markersize=9, alpha=0.45, linestyle="none", label=label)
    axis.set(xlim=(-0.05, 1.3), ylim=(-0.06, 0.75))
    panel(
        axis,
        "2. Model: seven layers of linear attention\nrefine an estimate w",
        "part of w along the true w (1 = all of it)",
        "part of w in wrong directions",
    )
    axis.legend(loc="upper right", fontsize=7, frameon=False)


def losses(axis: Axes) -> None:
    """Adjusted losses of the models of the zoo by depth, of baselines, and the floor."""
    problem = Problem(noise=NOISE)
    known = {"ConstRR": ConstRR.tune(problem), "AdaRR": AdaRR(), "TunedRR": TunedRR.tune(problem)}
    found = compare(problem, known)
    depths = range(1, 8)
    for family in FAMILIES:
        values = [zoo.record(f"zoo:{family}/{depth}/{NOISE}").loss for depth in depths]
        style = {"color": COLOURS[family], "marker": MARKERS[family], "markersize": 4}
        axis.plot(depths, values, **style, label=LABELS[family])
    for name, result in found.items():
        axis.axhline(result.loss, color=COLOURS[name], linewidth=1, linestyle="--")
        axis.text(7.15, result.loss, name, fontsize=7, color=COLOURS[name], va="center")
    floor = found["AdaRR"].floor
    axis.axhline(floor, color=BLACK, linewidth=1.3)
    axis.text(7.15, floor, "floor", fontsize=7, va="center", weight="bold")
    axis.set(yscale="log", ylim=(0.033, 1.1), xlim=(0.8, 7.1), xticks=list(depths))
    decimals(axis)
    panel(axis, "3. Result: deep models come close to\nthe best achievable loss (floor)", "layers", "adjusted loss")
    axis.legend(loc="upper right", fontsize=7, frameon=False)


def draw() -> Figure:
    """The three panels."""
    canvas = blank(10, 3.3)
    left, middle, right = canvas.subfigures(1, 3, width_ratios=[1, 1, 1.06])
    contexts(list(left.subplots(2, 1, sharex=True)))
    trajectories(middle.subplots())
    losses(right.subplots())
    return canvas


if __name__ == "__main__":
    save(draw, Path(__file__).parents[1] / "pictures" / "idea.png", ["png"])
