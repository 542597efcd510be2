"""Draw the pictures of measured speed from benchmarks/latest.json: `python docs/scripts/picture.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ridgeformer.plotting.style import BLUE, GREY, blank, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
COLOURS = {"ridgeformer": BLUE, "PyTorch": GREY, "JAX": "#CCCCCC"}  # distinct in grey, too


def steps(measurements: list[dict], kind: str) -> dict[str, tuple[float, str]]:
    """Milliseconds and label of a step of ridgeformer and of each framework."""
    times: dict[str, tuple[float, str]] = {}
    for measurement in measurements:
        match = re.match(rf"{kind} step against (\w+)", measurement["name"])
        if match:
            ours, theirs = map(float, re.findall(r"([\d.]+) ms", measurement["detail"]))
            times.setdefault("ridgeformer", (ours, f"{ours:.2f} ms"))
            times[match.group(1)] = (theirs, f"{theirs:.0f} ms, {measurement['value']:.0f} times as long")
    return times


def draw() -> Figure:
    """Two panels, one per family."""
    measurements = json.loads((ROOT / "benchmarks" / "latest.json").read_text())["measurements"]
    canvas = blank(8, 1.9)
    axes = canvas.subplots(1, 2, sharex=True)
    for axis, kind in zip(axes, ("diag", "full"), strict=True):
        measured = steps(measurements, kind)
        for row, (name, (value, label)) in enumerate(measured.items()):
            axis.barh(row, value, color=COLOURS[name], height=0.62)
            axis.text(value + 2, row, label, va="center")
        axis.set_yticks(range(len(measured)), list(measured))
        axis.invert_yaxis()
        axis.set(xlim=(0, 230), xticks=[0, 50, 100])
        axis.set_title(f"{kind.capitalize()}, seven layers", loc="left")
        axis.set_xlabel("time of one training step, ms", loc="left")
        axis.tick_params(axis="y", length=0, labelsize=8)
    return canvas


if __name__ == "__main__":
    save(draw, ROOT / "docs" / "pictures" / "speed.svg", ["svg", "png"])
