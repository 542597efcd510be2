"""Draw the animation of the README: `python docs/scripts/learning.py` (needs matplotlib; about half a minute).

Three layers of Diag learn, by Adam, to regress in one dimension. Left: what the model predicts on three contexts that
are not used in training. Middle: its loss, and the least that any predictor can have. Right: its twelve parameters.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from ridgeformer import Problem, evaluate, floor, train
from ridgeformer.plotting.style import BLUE, GREEN, GREY, VERMILION, blank, decimals, panel
from ridgeformer.training import Adam
from ridgeformer.training.results import Snapshot

PICTURE = Path(__file__).parents[1] / "pictures" / "learning.gif"
PROBLEM = Problem(dim=1, context=10, noise="uniform(0,2)")
STEPS = 3000
FRAMES = sorted({0, *np.geomspace(10, STEPS, 34).round(-1).astype(int).tolist()})
CONTEXTS = {(1.6, 0.3): GREEN, (-0.9, 0.6): BLUE, (0.4, 1.6): VERMILION}  # (w, sigma), with their colours
NAMES = ("xx", "xy", "yx", "yy")


def contexts() -> list[tuple[np.ndarray, np.ndarray]]:
    """Examples x [10, 1] and y [10] of every context."""
    rng = np.random.default_rng(7)
    made = []
    for w, sigma in CONTEXTS:
        x = rng.normal(size=(10, 1))
        made.append((x, w * x[:, 0] + sigma * rng.normal(size=len(x))))
    return made


def frame(shots: list[Snapshot], losses: np.ndarray, least: float, now: int) -> Image.Image:
    """The picture of one snapshot; all have the same limits, so that nothing but the model moves."""
    canvas = blank(8.4, 2.7)
    left, middle, right = canvas.subplots(1, 3)
    model, steps = shots[now].model, np.array([shot.step for shot in shots])
    line = np.array([[-2.5], [2.5]])
    for (x, y), colour in zip(contexts(), CONTEXTS.values(), strict=True):
        left.plot(x[:, 0], y, "o", color=colour, markersize=3.5)
        left.plot(line[:, 0], model.predict(x, y, line), color=colour, linewidth=1.5)
    panel(left, "three contexts, one model", "x", "y")
    left.set(xlim=(-2.5, 2.5), ylim=(-4.2, 4.2))
    shown = np.maximum(steps, steps[1] / 2)
    middle.axhline(least, color=GREY, linestyle="--", linewidth=1)
    middle.text(shown[0], 1.06 * least, "floor", color=GREY, fontsize=8)
    middle.plot(shown[: now + 1], losses[: now + 1], color=BLUE)
    middle.plot(shown[now], losses[now], "o", color=VERMILION)
    panel(middle, f"step {steps[now]:,}", "step", "adjusted loss")
    middle.set(xscale="log", yscale="log", xlim=(shown[0] / 1.2, 1.3 * STEPS), ylim=(0.7 * least, 1.5 * losses.max()))
    decimals(middle)
    values = np.stack([shot.model.kernel.omega.reshape(-1, 4) for shot in shots])
    limit = float(np.abs(values).max())
    right.imshow(values[now], cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    for (layer, name), value in np.ndenumerate(values[now]):
        shade = "white" if abs(value) > 0.6 * limit else "black"
        right.text(name, layer, f"{value:.3f}", ha="center", va="center", fontsize=7, color=shade)
    right.grid(visible=False)
    panel(right, "its twelve parameters", "", "layer")
    right.set_xticks(range(4), NAMES)
    right.set_yticks(range(3), range(1, 4))
    buffer = io.BytesIO()
    canvas.savefig(buffer, format="png", dpi=90)
    return Image.open(buffer).convert("RGB")


def main() -> None:
    """Train, draw every snapshot with one palette, and write the animation."""
    training = train(PROBLEM, "diag", layers=3, protocol=Adam(steps=STEPS, record=10, snapshots=FRAMES), progress=False)
    shots = list(training.snapshots)
    losses = np.array([evaluate(PROBLEM, shot.model, sequences=20_000, with_floor=False).loss for shot in shots])
    least = floor(PROBLEM).loss
    frames = [frame(shots, losses, least, i) for i in range(len(shots))]
    palette = Image.fromarray(np.concatenate([np.asarray(image) for image in frames[::7]])).quantize(96)
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in frames]
    pauses = [1200, *[180] * (len(images) - 2), 3000]  # milliseconds
    images[0].save(PICTURE, save_all=True, append_images=images[1:], duration=pauses, loop=0, optimize=True)
    print(f"{PICTURE.name}: {len(images)} frames, {PICTURE.stat().st_size / 1e3:.0f} KB, loss {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
