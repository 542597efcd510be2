"""Draw loss / floor of the model for every dimension over (d, n): docs/pictures/universal.png."""

from pathlib import Path

from ridgeformer import Problem, compare, load, zoo
from ridgeformer.predictors import Universal

DIMS, CONTEXTS = [2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 50], ["d", "d+2", "1.25d", "1.5d", "2d", "3d", "4d"]


def main() -> None:
    """Measure 1,500 sequences in each cell, and draw."""
    layers = zoo.universal_layers()[-1]
    problem = Problem(dim="2..32", context="d..4d", noise=zoo.UNIVERSAL_NOISE, tasks="gaussian(signal=1)")
    model = {f"zoo:universal/{layers}": Universal(load(f"zoo:universal/{layers}"), signal=1)}
    losses = compare(problem, model, over={"dim": DIMS, "context": CONTEXTS}, sequences=1_500, seed=11)
    title = f"Loss / floor of one model with {layers} layers; trained on d = 2 to 32 and 48, n = d to 4d"
    losses.plot(Path(__file__).parents[1] / "pictures" / "universal.png", title=title)
    print(losses)


if __name__ == "__main__":
    main()
