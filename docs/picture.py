"""Draw docs/speed.svg and docs/speed.png from benchmarks/latest.json (needs matplotlib): `python docs/picture.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
COLOURS = {"ridgeformer": "#0072B2", "PyTorch": "#999999", "JAX": "#CCCCCC"}  # also apart in grey


def times(figures: list[dict], kind: str) -> dict[str, float]:
    """Milliseconds a step, ours and the frameworks'."""
    found: dict[str, float] = {}
    for figure in figures:
        match = re.match(rf"{kind} step against (\w+)", figure["name"])
        if match:
            ours, theirs = re.findall(r"([\d.]+) ms", figure["detail"])
            found["ridgeformer"], found[match.group(1)] = float(ours), float(theirs)
    return found


def main() -> None:
    """Two panels, one a family, times on a logarithmic axis."""
    figures = json.loads((ROOT / "benchmarks" / "latest.json").read_text())["figures"]
    plt.switch_backend("Agg")
    plt.rcParams.update({"svg.hashsalt": "ridgeformer", "font.size": 11, "font.family": "DejaVu Sans"})
    canvas, axes = plt.subplots(1, 2, figsize=(8.4, 2.3), sharex=True, layout="constrained")
    for axis, kind in zip(axes, ("diag", "full"), strict=True):
        measured = times(figures, kind)
        for row, (name, value) in enumerate(measured.items()):
            axis.barh(row, value, color=COLOURS[name], height=0.62)
            label = (
                f"{value:.2f} ms"
                if name == "ridgeformer"
                else f"{value:.0f} ms, {value / measured['ridgeformer']:.0f} x"
            )
            axis.text(value * 1.12, row, label, va="center")
        axis.set_yticks(range(len(measured)), list(measured))
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.set_xlim(0.3, 2000)
        axis.set_title(f"{kind.capitalize()}, 7 layers", loc="left", fontsize=11)
        axis.set_xlabel("one training step, ms")
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    for ending in ("svg", "png"):
        canvas.savefig(ROOT / "docs" / f"speed.{ending}", dpi=160, metadata={"Date": None} if ending == "svg" else None)


if __name__ == "__main__":
    main()
