"""How the paper's methods look: one colour, marker and line for each."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import TYPE_CHECKING, Any

from ridgeformer.papers.vladymyrov2024.evidence import BAYES, Curve
from ridgeformer.papers.vladymyrov2024.paper import BASELINES, FAMILIES, LABELS
from ridgeformer.papers.vladymyrov2024.table import FLOOR, NOTHING
from ridgeformer.plotting.style import (
    BLACK,
    BLUE,
    GREEN,
    LIGHT,
    ORANGE,
    PALE,
    PINK,
    SKY,
    VERMILION,
    exploded_entry,
    mark_exploded,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "gdpp": ORANGE,
    "diag": BLUE,
    "full": VERMILION,
    "ConstRR": PINK,
    "AdaRR": SKY,
    "TunedRR": GREEN,
    FLOOR: BLACK,
    BAYES: BLACK,
}
MARKERS = {"gdpp": "s", "diag": "o", "full": "^"}
DASHES: dict[str, Any] = {
    "ConstRR": (0, (1, 1.2)),
    "AdaRR": (0, (4, 1.5)),
    "TunedRR": (0, (6, 1.5, 1, 1.5)),
    FLOOR: "solid",
    BAYES: "solid",
}


def draw_baselines(axis: Axes, losses: dict[str, float]) -> None:
    """Draw horizontal lines: the baselines and the floor.

    Args:
        axis: Where to draw.
        losses: Losses by name.
    """
    for name, loss in losses.items():
        if loss > NOTHING:
            axis.axhline(loss, color=COLOURS[name], linestyle=DASHES[name], linewidth=1.1, zorder=1.5)


def draw_curve(axis: Axes, method: str, curve: Curve) -> None:
    """Draw a profile, with a cross at every noise level at which a sequence exploded.

    Args:
        axis: Where to draw. Its limits must be set.
        method: The family or baseline, which decides the colour.
        curve: The profile.
    """
    style = DASHES.get(method, "solid")
    width = 1.0 if method in DASHES else 1.6
    axis.plot(curve.sigmas, curve.losses, color=COLOURS[method], linestyle=style, linewidth=width)
    mark_exploded(axis, curve.sigmas, curve.losses, curve.exploded, COLOURS[method])


def shade(axis: Axes, sigmas: Iterable[float], can_occur: Iterable[bool]) -> None:
    """Draw a grey background where the noise level can occur: a range, or single levels.

    Args:
        axis: Where to draw.
        sigmas: The noise levels of a profile, ascending.
        can_occur: Which of them can occur.
    """
    inside = list(compress(sigmas, can_occur))
    if len(inside) > 8:
        axis.axvspan(inside[0], inside[-1], color=PALE, linewidth=0, zorder=0)
    for sigma in inside if len(inside) <= 8 else ():
        axis.axvline(sigma, color=LIGHT, linewidth=4, zorder=0)


def legend(canvas: Figure, *, markers: bool = True, black: str = FLOOR, exploded: bool = False) -> None:
    """Draw one legend for all panels, below them.

    Args:
        canvas: The figure.
        markers: Whether the lines of the families have markers.
        black: What the black line is: the Bayes floor, or in profiles the Bayes predictor.
        exploded: Whether to explain the cross that marks explosions.
    """
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            color=COLOURS[method],
            linestyle=DASHES.get(method, "solid"),
            marker=MARKERS.get(method, "") if markers else "",
            markersize=4,
            label=LABELS.get(method, method),
        )
        for method in (*FAMILIES, *BASELINES, black)
    ]
    if exploded:
        handles.append(exploded_entry())
    room: Any = {"columnspacing": 1.2, "handlelength": 1.7, "handletextpad": 0.5} if exploded else {}
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, **room)
