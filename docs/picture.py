"""Draw docs/speed.svg and docs/speed.png from benchmarks/latest.json (needs matplotlib): `python docs/picture.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
COLOURS = {"ridgeformer": "#0072B2", "PyTorch": "#999999", "JAX": "#CCCCCC"}  # also apart in grey


def steps(measurements: list[dict], kind: str) -> dict[str, tuple[float, str]]:
    """Milliseconds and label of a step, ours and the frameworks'."""
    found: dict[str, tuple[float, str]] = {}
    for measurement in measurements:
        match = re.match(rf"{kind} step against (\w+)", measurement["name"])
        if match:
            ours, theirs = map(float, re.findall(r"([\d.]+) ms", measurement["detail"]))
            found.setdefault("ridgeformer", (ours, f"{ours:.2f} ms"))
            found[match.group(1)] = (theirs, f"{theirs:.0f} ms, {measurement['value']:.0f} times as long")
    return found


def main() -> None:
    """Draw two panels, one for each family."""
    measurements = json.loads((ROOT / "benchmarks" / "latest.json").read_text())["measurements"]
    plt.switch_backend("Agg")
    plt.rcParams.update({"svg.hashsalt": "ridgeformer", "font.size": 11, "font.family": "DejaVu Sans"})
    canvas, axes = plt.subplots(1, 2, figsize=(9.6, 2.2), sharex=True, layout="constrained")
    for axis, kind in zip(axes, ("diag", "full"), strict=True):
        measured = steps(measurements, kind)
        for row, (name, (value, label)) in enumerate(measured.items()):
            axis.barh(row, value, color=COLOURS[name], height=0.62)
            axis.text(value + 2, row, label, va="center")
        axis.set_yticks(range(len(measured)), list(measured))
        axis.invert_yaxis()
        axis.set_xlim(0, 230)
        axis.set_xticks([0, 50, 100])
        axis.set_title(f"{kind.capitalize()}, 7 layers", loc="left", fontsize=11)
        axis.set_xlabel("one training step, ms", loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
    for ending in ("svg", "png"):
        canvas.savefig(ROOT / "docs" / f"speed.{ending}", dpi=160, metadata={"Date": None} if ending == "svg" else None)


if __name__ == "__main__":
    main()
