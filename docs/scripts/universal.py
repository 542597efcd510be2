"""Draw loss / floor of the model for every dimension over (d, n), docs/pictures/universal.png, and print a summary."""

from pathlib import Path

import numpy as np

from ridgeformer import Problem, compare, load, zoo
from ridgeformer.predictors import Universal

DIMS, CONTEXTS = [2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 40, 50], ["d", "d+2", "1.25d", "1.5d", "2d", "3d", "4d"]


def main() -> None:
    """Measure 1,000 sequences in each cell, print, and draw."""
    names = [f"zoo:universal/{layers}" for layers in zoo.universal_layers()]
    problem = Problem(dim="2..32", context="d..4d", noise=zoo.UNIVERSAL_NOISE, tasks="gaussian(signal=1)")
    models = {name: Universal(load(name), signal=1) for name in names}
    losses = compare(problem, models, over={"dim": DIMS, "context": CONTEXTS}, sequences=1_000, seed=11)
    title = f"Loss / floor of one model with {names[-1].rpartition('/')[2]} layers, d = 2 to 50, n = d to 4d"
    losses[names[-1]].plot(Path(__file__).parents[1] / "pictures" / "universal.png", title=title)
    print(f"{'':18} n = 1.25d..4d: mean, largest;  at n = d;  n = d + 2;  d = 40, 50 at n = 2d;  exploded")
    for name, ratio, exploded in zip(names, losses.ratio, losses.exploded, strict=True):
        seen, at = ratio[:10, 2:], np.unravel_index(ratio[:10, 2:].argmax(), (10, 5))
        where = f"(d = {DIMS[at[0]]}, n = {CONTEXTS[2 + at[1]]})"
        parts = [f"{seen.mean():.3f}, {seen.max():.3f} {where}", *(f"{ratio[:10, k].max():.3f}" for k in (0, 1))]
        print(f"{name:18}", "; ".join([*parts, f"{ratio[10, 4]:.3f}, {ratio[11, 4]:.3f}", str(int(exploded.sum()))]))
    print(f"\n{names[-1]}\n{'d':>4}", *(f"{n:>7}" for n in CONTEXTS))
    for dim, row in zip(DIMS, losses.ratio[-1], strict=True):
        print(f"{dim:4}", *(f"{value:7.3f}" for value in row))


if __name__ == "__main__":
    main()
