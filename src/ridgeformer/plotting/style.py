"""How every picture looks: one colour for a method, apart for colour-blind readers and in grey, and one writer."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ridgeformer.errors import optional, refuse, shown
from ridgeformer.files import check_writable, path_of, write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Figure
    from matplotlib.lines import Line2D
else:  # so that modules can name these types without matplotlib
    Axes = Figure = Any

STILL, MOVING = (".png", ".pdf", ".svg"), (".gif", ".html")  # endings of files that hold pictures and animations
# The palette of Okabe and Ito.
BLACK, GREY, ORANGE, SKY = "#000000", "#999999", "#E69F00", "#56B4E9"
GREEN, YELLOW, BLUE, VERMILION, PINK = "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
LINES = (BLUE, VERMILION, GREEN, ORANGE, SKY, PINK, GREY, BLACK)  # of several lines, in this order
WINE, TEAL, BROWN = "#882255", "#44AA99", "#661100"  # by Paul Tol, where these are not enough
DARK, LIGHT, PALE = "#555555", "#D8D8D8", "#EFEFEF"  # greys of marks and levels, and of backgrounds
EXPLODED = "x"  # the marker of noise levels at which a sequence exploded
SETTINGS = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "legend.fontsize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 7),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "ridgeformer",  # the same picture is the same file
    "pdf.fonttype": 42,
}
SUFFIXES = ("pdf", "svg", "png")
MATPLOTLIB = "figures need matplotlib", "matplotlib"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def blank(width: float, height: float) -> Figure:
    """Make an empty figure.

    Args:
        width: Width in inches.
        height: Height in inches.

    Returns:
        The figure, which notebooks show.
    """
    return _shown_figure()(figsize=(width, height), layout="constrained")


@functools.cache
def _shown_figure() -> type[Figure]:
    """A figure that notebooks show at the end of a cell, whatever backend of matplotlib they use."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            return content(self, "png", 110)

    return ShownFigure


def neat(*axes: Axes, ticks: float = 8, text: float = 10) -> None:
    """Take away the upper and the right edge of panels, and set the sizes of their texts.

    Args:
        *axes: The panels.
        ticks: The size of the numbers along the axes, in points.
        text: The size of title and labels.
    """
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=ticks, which="both")
        for words in (axis.title, axis.xaxis.label, axis.yaxis.label):
            words.set_fontsize(text)


def panel(axis: Axes, title: str, x: str = "", y: str = "") -> None:
    """Give a panel its title and labels, and a light grid.

    Args:
        axis: The panel.
        title: Its title.
        x: The label of the horizontal axis.
        y: The label of the vertical axis.
    """
    axis.set(title=title, xlabel=x, ylabel=y)
    axis.grid(True, which="major", linewidth=0.3, color="#DDDDDD")
    axis.set_axisbelow(True)


def power_of_ten(value: float) -> str:
    """Write a positive number with a power of ten, without mathematical text.

    Args:
        value: The number.

    Returns:
        One line of text.

    >>> power_of_ten(0.001), power_of_ten(2e10), power_of_ten(1)
    ('10⁻³', '2×10¹⁰', '10⁰')
    """
    exponent = math.floor(math.log10(value) + 1e-9)
    factor = value / 10.0**exponent
    power = str(exponent).translate(SUPERSCRIPTS)
    return f"10{power}" if abs(factor - 1) < 1e-6 else f"{factor:g}\u00d710{power}"


def logarithmic(axis: Axes, low: float | None = None, high: float | None = None) -> None:
    """Make the vertical axis logarithmic, for losses.

    Powers of ten are written with the superscripts of the font. That looks like matplotlib's mathematical text, which
    takes most of the time of drawing a figure with many panels.

    Args:
        axis: The panel.
        low: The lower limit; None to leave it to matplotlib.
        high: The upper limit; None to leave it to matplotlib.
    """
    axis.set(yscale="log", ylim=(low, high))
    _label_ticks(axis.yaxis, power_of_ten, (1, 0.4))


def _label_ticks(axis: Axis, text: Callable[[float], str], crowded: tuple[float, float]) -> None:
    """Write the labels of a logarithmic axis, where matplotlib would write one; `crowded` is when minor ones go."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Labels(LogFormatterSciNotation):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return text(x) if super().__call__(x, pos) else ""

    axis.set_major_formatter(Labels())
    axis.set_minor_formatter(Labels(labelOnlyBase=False, minor_thresholds=crowded))


def decimals(axis: Axes, name: str = "y") -> None:
    """Label a logarithmic axis with numbers such as 0.03, where matplotlib would write powers of ten.

    Args:
        axis: The panel.
        name: Which of its axes, `x` or `y`; `y` by default.
    """
    labelled = axis.xaxis if name == "x" else axis.yaxis
    _label_ticks(labelled, lambda x: f"{x:.0f}" if x >= 100 else f"{x:.3g}", (2, 0.8))
    axis.tick_params(axis="x" if name == "x" else "y", which="both", labelsize=8)


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


def exploded_entry() -> Line2D:
    """The entry of a legend that explains the cross."""
    from matplotlib.lines import Line2D

    label = "a sequence exploded"
    return Line2D([], [], color=DARK, linestyle="none", marker=EXPLODED, markersize=4, label=label)


def mark_cut(axis: Axes, places: Iterable[float], values: Iterable[float], colour: Any) -> None:
    """Mark values beyond the limits of a panel: a triangle at the edge, with the value beside it, inside of the panel.

    Values that are cut at the same place are written one above the other.

    Args:
        axis: The panel. Its limits must be set.
        places: [K], positions along the horizontal axis.
        values: [K], the values; only those beyond the limits are marked.
        colour: The colour of the line that they belong to.
    """
    low, high = axis.get_ylim()
    for place, value in zip(places, values, strict=True):
        if value < low or value > high:
            edge, marker = (low, "v") if value < low else (high, "^")
            axis.plot([place], [edge], marker, color=colour, markersize=5, clip_on=False, zorder=4)
            here = sum(getattr(annotation, "xy", None) == (place, edge) for annotation in axis.texts)
            right = axis.transAxes.inverted().transform(axis.transData.transform((place, edge)))[0] > 0.5
            text: Any = {"textcoords": "offset points", "fontsize": 7, "color": colour, "va": "center"}
            offset = (-5 if right else 5, (6 + 8 * here) * (1 if value < low else -1))
            axis.annotate(f"{value:.3g}", (place, edge), offset, ha="right" if right else "left", **text)


def leaves(values: Any, highest: float) -> str:
    """Return a remark on a curve that leaves the axis; nothing for others.

    Args:
        values: [K], the values of the curve.
        highest: The end of the axis.

    Returns:
        The remark, in brackets.
    """
    most = float(np.nanmax(values))
    if most <= highest:
        return ""
    return f" (rises to {most:.1g}, above the axis)" if np.isfinite(most) else " (overflows)"


def limit(axis: Axes, courses: Sequence[tuple[Any, Any, Any]], highest: float) -> None:
    """End the axis of losses where a curve that diverges leaves it, and mark where it does.

    Args:
        axis: The panel, whose scales are set.
        courses: The positions [K], values [K] and colour of every curve.
        highest: The end of the axis.
    """
    every = np.concatenate([values for _, values, _ in courses])
    if leaves(every, highest):
        axis.set_ylim(0.8 * every[every > 0].min(), highest)
    for x, values, colour in courses:
        gone = np.flatnonzero(~(values <= highest))[:1]
        mark_cut(axis, x[gone], np.nan_to_num(values[gone], nan=np.inf), colour)


def check_plot(path: Path | str | None, endings: Sequence[str] = STILL) -> Path | None:
    """Refuse a picture that could not be drawn or written, before anything is computed for it.

    Args:
        path: The file, which must be in a folder that can be written to; None where no file is to be written.
        endings: The endings that its name may have.

    Returns:
        The path.

    Raises:
        InputError: The name has another ending.
        StorageError: There is no such folder, or it cannot be written to.
        MissingPackageError: matplotlib is not installed.
    """
    path = None if path is None else path_of(path, "a plot needs the name of a file", f"plot{endings[0]}")
    if path is not None:
        if path.suffix not in endings:
            formats = f"{', '.join(endings[:-1])} or {endings[-1]}"
            refuse(f"the name of a plot must end in {formats}", shown(path.name), "Choose another name.")
        check_writable(path.parent, "a plot")
    optional(*MATPLOTLIB)
    return path


def pictures(draw: Callable[[], Figure], suffixes: Sequence[str] = SUFFIXES) -> Iterator[tuple[str, bytes]]:
    """Draw a figure once, and give it in several formats.

    Args:
        draw: Makes the figure.
        suffixes: The formats, of `pdf`, `svg` and `png`.

    Yields:
        The format, and the file's content.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    with optional(*MATPLOTLIB).rc_context(SETTINGS):
        canvas = draw()
        for suffix in suffixes:
            yield suffix, content(canvas, suffix)
            canvas.set_layout_engine("none")  # the panels have found their places, which takes longer than drawing them


def save(draw: Callable[[], Figure], stem: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """Draw a figure, and write it in several formats to files that differ in their endings.

    Args:
        draw: Makes the figure.
        stem: The files without their endings.
        suffixes: The formats, of `pdf`, `svg` and `png`.

    Returns:
        The files that were written.

    Raises:
        MissingPackageError: matplotlib is not installed.
        StorageError: A file cannot be written.
    """
    for suffix, content in pictures(draw, suffixes):
        write_whole(stem.with_suffix(f".{suffix}"), content)
    return [stem.with_suffix(f".{suffix}") for suffix in suffixes]


def finish(canvas: Figure, path: Path | None, title: str | None = None, size: float = 11) -> Figure:
    """Give a figure its title, and write it to a file, if one is named.

    Args:
        canvas: The figure.
        path: The file, whose ending says the format; None to write none.
        title: The title of the whole figure; None for none.
        size: The size of the title, in points.

    Returns:
        The figure.

    Raises:
        StorageError: The file cannot be written.
    """
    if title is not None:
        canvas.suptitle(title, fontsize=size)
    if path is not None:
        write_whole(path, content(canvas, path.suffix[1:], 160))
    return canvas


def content(canvas: Figure, suffix: str, dpi: int = 200) -> bytes:
    """Return what the file of a figure holds.

    Args:
        canvas: The figure.
        suffix: The format: `pdf`, `svg` or `png`.
        dpi: Dots per inch.

    Returns:
        The content.
    """
    buffer = io.BytesIO()
    dates: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    canvas.savefig(buffer, format=suffix, dpi=dpi, metadata=dates[suffix])
    return buffer.getvalue()
