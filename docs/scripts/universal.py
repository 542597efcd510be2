"""Draw loss / floor of the model for every dimension over (d, n), docs/pictures/universal.png, and print a summary."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from ridgeformer import Problem, compare, load, zoo
from ridgeformer.predictors import Universal

ROOT = Path(__file__).parents[2]
DIMS, CONTEXTS = [2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 40, 50], ["d", "d+2", "1.25d", "1.5d", "2d", "3d", "4d"]
SHOWN = 8  # layers of the model that is drawn


def main() -> None:
    """Measure every cell, print, and draw."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.universal import ratios

    depths = zoo.universal_layers()
    models = [load(f"zoo:universal/{layers}") for layers in depths]
    found, errors, exploded = ratios(models, DIMS, CONTEXTS, seed=11)
    shown = depths.index(SHOWN)
    problem = Problem(
        dim="2..32", context="d..4d", noise=zoo.shipped_models.UNIVERSAL_NOISE, tasks="gaussian(signal=1)"
    )
    predictor = {f"zoo:universal/{SHOWN}": Universal(models[shown], signal=1)}
    losses = compare(problem, predictor, over={"dim": DIMS, "context": CONTEXTS}, sequences=9)
    title = f"Loss / floor of one model with {SHOWN} layers, d = 2 to 50, n = d to 4d"
    losses = replace(losses, loss=found[shown][None] * losses.floor)
    losses.plot(ROOT / "docs" / "pictures" / "universal.png", title=title)
    print("layers  n = 1.25d..4d: mean, largest;  at n = d;  n = d + 2;  d = 40, 50 at n = 2d;  exploded")
    for layers, ratio, error, wild in zip(depths, found, errors, exploded, strict=True):
        seen, at = ratio[:10, 2:], np.unravel_index(ratio[:10, 2:].argmax(), (10, 5))
        where = f"+- {error[at[0], 2 + at[1]]:.3f} (d = {DIMS[at[0]]}, n = {CONTEXTS[2 + at[1]]})"
        parts = [f"{seen.mean():.3f}, {seen.max():.3f} {where}", *(f"{ratio[:10, k].max():.3f}" for k in (0, 1))]
        print(f"{layers:6}", "; ".join([*parts, f"{ratio[10, 4]:.3f}, {ratio[11, 4]:.3f}", str(int(wild.sum()))]))
    for layers, ratio in zip(depths, found, strict=True):
        print(f"\n{layers} layers\n{'d':>4}", *(f"{n:>7}" for n in CONTEXTS))
        for dim, row in zip(DIMS, ratio, strict=True):
            print(f"{dim:4}", *(f"{value:7.3f}" for value in row))


if __name__ == "__main__":
    main()
