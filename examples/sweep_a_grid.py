"""Train a small grid of models on all cores, then print how depth and noise decide the loss.

Run it: python examples/sweep_a_grid.py [FOLDER]

The folder (by default runs/example) keeps the models. Run the script again: nothing is trained twice, and a sweep that
was interrupted goes on where it stopped.
"""

import sys

from ridgeformer import Training
from ridgeformer.sweeps import Grid, sweep
from ridgeformer.training import Search

# Every combination of these values is a run. A smaller `effort` trains faster, and less well.
grid = Grid(
    noise=["uniform(0,1)", "uniform(0,3)"],
    dim=[4],
    context=[8],
    families=["diag"],
    layers=[1, 2, 3],
    protocol=Search(effort=0.3),
    sequences=20_000,
)


def main(folder: str) -> None:
    """Train what is missing, and print a table with one row for every number of layers."""
    found = sweep(grid.specs(), folder)
    for failure in found.failures:  # one failed run does not stop the others
        print(f"{failure.run} failed: {failure.reason}")

    # The floor is the smallest loss that any predictor can have on a problem, so 1 is the best possible ratio.
    ratios = {}
    for place in found.folders:
        run = Training.load(place)
        ratios[run.spec.layers, str(run.spec.problem.noise)] = run.result.ratio
    print("loss / floor\n")
    print(f"{'layers':>6}", *(f"{noise:>12}" for noise in grid.noise))
    for layers in grid.layers:
        print(f"{layers:6}", *(f"{ratios[layers, noise]:12.2f}" for noise in grid.noise))


# Workers are processes of their own, which import this file. Only the first process may start the sweep.
if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/example")
