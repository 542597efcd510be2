"""How every figure looks: one colour, marker and line for a method, apart for colour-blind readers and in grey."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeformer.errors import InputError
from ridgeformer.experiments.evidence import Curve, Evidence
from ridgeformer.experiments.paper import BASELINES, FAMILIES, LABELS
from ridgeformer.experiments.table import FLOOR
from ridgeformer.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "DASHES", "MARKERS", "blank", "draw_baselines", "draw_curve", "legend", "panel", "save", "shade"]

COLOURS = {
    "gdpp": "#E69F00",
    "diag": "#0072B2",
    "full": "#D55E00",
    "ConstRR": "#CC79A7",
    "AdaRR": "#56B4E9",
    "TunedRR": "#009E73",
    FLOOR: "#000000",
}
MARKERS = {"gdpp": "s", "diag": "o", "full": "^"}
DASHES: dict[str, Any] = {
    "ConstRR": (0, (1, 1.2)),
    "AdaRR": (0, (4, 1.5)),
    "TunedRR": (0, (6, 1.5, 1, 1.5)),
    FLOOR: "solid",
}
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


def blank(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def panel(axis: Axes, title: str, x: str = "", y: str = "") -> None:
    """Title and labels, and a light grid."""
    axis.set(title=title, xlabel=x, ylabel=y)
    axis.grid(True, which="major", linewidth=0.3, color="#DDDDDD")
    axis.set_axisbelow(True)


def draw_baselines(axis: Axes, losses: dict[str, float]) -> None:
    """Horizontal lines: the baselines and the floor."""
    for name, loss in losses.items():
        if loss > 1e-20:
            axis.axhline(loss, color=COLOURS[name], linestyle=DASHES[name], linewidth=1.1, zorder=1.5)


def draw_curve(axis: Axes, method: str, curve: Curve) -> None:
    """A profile."""
    style = DASHES.get(method, "solid")
    width = 1.0 if method in DASHES else 1.6
    axis.plot(curve.sigmas, curve.losses, color=COLOURS[method], linestyle=style, linewidth=width)


def shade(axis: Axes, curve: Curve) -> None:
    """Grey where the noise level can occur: a range, or single levels."""
    inside = [sigma for sigma, within in zip(curve.sigmas, curve.inside, strict=True) if within]
    if len(inside) > 8:
        axis.axvspan(inside[0], inside[-1], color="#EFEFEF", linewidth=0, zorder=0)
    for sigma in inside if len(inside) <= 8 else ():
        axis.axvline(sigma, color="#D8D8D8", linewidth=4, zorder=0)


def legend(canvas: Figure, markers: bool = True, floor: str = FLOOR) -> None:
    """One for all panels, below them; `floor` names the black line."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            color=COLOURS[method],
            linestyle=DASHES.get(method, "solid"),
            marker=MARKERS.get(method, "") if markers else "",
            markersize=4,
            label=floor if method == FLOOR else LABELS.get(method, method),
        )
        for method in (*FAMILIES, *BASELINES, FLOOR)
    ]
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)


def save(
    draw: Callable[[Evidence], Figure], evidence: Evidence, stem: Path, suffixes: Sequence[str] = SUFFIXES
) -> list[Path]:
    """Draw, and write the figure in several formats."""
    import io

    try:
        import matplotlib
    except ImportError as error:
        raise InputError("figures need matplotlib, which is missing. Run pip install 'ridgeformer[plot]'.") from error
    written = []
    with matplotlib.rc_context(SETTINGS):
        canvas = draw(evidence)
        for suffix in suffixes:
            buffer = io.BytesIO()
            dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[suffix]
            canvas.savefig(buffer, format=suffix, dpi=200, metadata=dates)
            path = stem.with_suffix(f".{suffix}")
            write_whole(path, buffer.getvalue())
            written.append(path)
    return written
