"""How every figure looks: one colour, marker and line for a method, apart for colour-blind readers and in grey."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeformer.errors import InputError
from ridgeformer.experiments.evidence import BAYES, Curve, Evidence
from ridgeformer.experiments.paper import BASELINES, FAMILIES, LABELS
from ridgeformer.experiments.table import FLOOR
from ridgeformer.files import write_whole
from ridgeformer.losses import ROUNDING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = [
    "COLOURS",
    "DASHES",
    "EXPLODED",
    "MARKERS",
    "blank",
    "draw_baselines",
    "draw_curve",
    "exploded_key",
    "legend",
    "logarithmic",
    "mark_exploded",
    "panel",
    "pictures",
    "save",
    "shade",
]

COLOURS = {
    "gdpp": "#E69F00",
    "diag": "#0072B2",
    "full": "#D55E00",
    "ConstRR": "#CC79A7",
    "AdaRR": "#56B4E9",
    "TunedRR": "#009E73",
    FLOOR: "#000000",
    BAYES: "#000000",
}
MARKERS = {"gdpp": "s", "diag": "o", "full": "^"}
DASHES: dict[str, Any] = {
    "ConstRR": (0, (1, 1.2)),
    "AdaRR": (0, (4, 1.5)),
    "TunedRR": (0, (6, 1.5, 1, 1.5)),
    FLOOR: "solid",
    BAYES: "solid",
}
EXPLODED = "x"  # the marker of noise levels at which a sequence exploded
SETTINGS = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "ridgeformer",  # the same picture is the same file
    "pdf.fonttype": 42,
}
SUFFIXES = ("pdf", "svg", "png")
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def blank(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def panel(axis: Axes, title: str, x: str = "", y: str = "") -> None:
    """Title and labels, and a light grid."""
    axis.set(title=title, xlabel=x, ylabel=y)
    axis.grid(True, which="major", linewidth=0.3, color="#DDDDDD")
    axis.set_axisbelow(True)


def logarithmic(axis: Axes, low: float | None = None, high: float | None = None) -> None:
    """A logarithmic axis of losses, between limits if they are given.

    Powers of ten are written with the superscripts of the font. That looks like matplotlib's mathematical text, which
    takes most of the time of drawing a figure with many panels.
    """
    from matplotlib.ticker import LogFormatterSciNotation

    class Powers(LogFormatterSciNotation):
        def __call__(self, x: float, pos: int | None = None) -> str:
            text = re.sub(r"\\mathdefault|[${}\s]", "", super().__call__(x, pos)).replace(r"\times", "\u00d7")
            return re.sub(r"\^(-?\d+)", lambda power: power.group(1).translate(SUPERSCRIPTS), text)

    axis.set(yscale="log", ylim=(low, high))
    axis.yaxis.set_major_formatter(Powers())
    axis.yaxis.set_minor_formatter(Powers(labelOnlyBase=False, minor_thresholds=(1, 0.4)))


def draw_baselines(axis: Axes, losses: dict[str, float]) -> None:
    """Horizontal lines: the baselines and the floor."""
    for name, loss in losses.items():
        if loss > ROUNDING:
            axis.axhline(loss, color=COLOURS[name], linestyle=DASHES[name], linewidth=1.1, zorder=1.5)


def draw_curve(axis: Axes, method: str, curve: Curve) -> None:
    """A profile, with a cross at every noise level at which a sequence exploded. The axis must have its limits."""
    style = DASHES.get(method, "solid")
    width = 1.0 if method in DASHES else 1.6
    axis.plot(curve.sigmas, curve.losses, color=COLOURS[method], linestyle=style, linewidth=width)
    mark_exploded(axis, curve.sigmas, curve.losses, curve.exploded, COLOURS[method])


def mark_exploded(
    axis: Axes,
    sigmas: Iterable[float],
    losses: Iterable[float],
    exploded: Iterable[int],
    colour: Any,
    size: float = 3.5,
) -> None:
    """A cross at every noise level at which a sequence exploded: on the line, or at the edge that the line leaves by.

    Args:
        axis: Where the line is drawn. Its limits must be set.
        sigmas: [K], the noise levels.
        losses: [K], the mean losses.
        exploded: [K], how many sequences exploded.
        colour: The colour of the line.
        size: The size of a cross, in points.
    """
    low, high = axis.get_ylim()
    points = [(sigma, min(max(loss, low), high)) for sigma, loss, n in zip(sigmas, losses, exploded, strict=True) if n]
    if points:
        mark: Any = {"marker": EXPLODED, "markersize": size, "markeredgewidth": 1.1, "linestyle": "none"}
        axis.plot(*zip(*points, strict=True), color=colour, clip_on=False, zorder=4, **mark)


def shade(axis: Axes, curve: Curve) -> None:
    """Grey where the noise level can occur: a range, or single levels."""
    inside = [sigma for sigma, within in zip(curve.sigmas, curve.inside, strict=True) if within]
    if len(inside) > 8:
        axis.axvspan(inside[0], inside[-1], color="#EFEFEF", linewidth=0, zorder=0)
    for sigma in inside if len(inside) <= 8 else ():
        axis.axvline(sigma, color="#D8D8D8", linewidth=4, zorder=0)


def legend(canvas: Figure, markers: bool = True, black: str = FLOOR, exploded: bool = False) -> None:
    """One for all panels, below them.

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
        handles.append(exploded_key())
    room: Any = {"columnspacing": 1.2, "handlelength": 1.7, "handletextpad": 0.5} if exploded else {}
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, **room)


def exploded_key() -> Line2D:
    """The entry of a legend that explains the cross."""
    from matplotlib.lines import Line2D

    label = "a sequence exploded"
    return Line2D([], [], color="#555555", linestyle="none", marker=EXPLODED, markersize=4, label=label)


def pictures(
    draw: Callable[[Evidence], Figure], evidence: Evidence, suffixes: Sequence[str] = SUFFIXES
) -> Iterator[tuple[str, bytes]]:
    """Draw a figure once, and give it in several formats.

    Args:
        draw: Makes the figure.
        evidence: What it shows.
        suffixes: The formats, of `pdf`, `svg` and `png`.

    Yields:
        The format, and the file's content.

    Raises:
        InputError: matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise InputError("figures need matplotlib, which is missing. Run pip install 'ridgeformer[plot]'.") from error
    with matplotlib.rc_context(SETTINGS):
        canvas = draw(evidence)
        for suffix in suffixes:
            buffer = io.BytesIO()
            dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[suffix]
            canvas.savefig(buffer, format=suffix, dpi=200, metadata=dates)
            canvas.set_layout_engine("none")  # the panels have found their places, which takes longer than drawing them
            yield suffix, buffer.getvalue()


def save(
    draw: Callable[[Evidence], Figure], evidence: Evidence, stem: Path, suffixes: Sequence[str] = SUFFIXES
) -> list[Path]:
    """Draw a figure, and write it in several formats to files that differ in their endings."""
    written = []
    for suffix, content in pictures(draw, evidence, suffixes):
        path = stem.with_suffix(f".{suffix}")
        write_whole(path, content)
        written.append(path)
    return written
