"""`python -m benchmarks.defaults`: what descents reach without a rate, as a table in Markdown; seven minutes.

Descents on fixed sequences take 1,000 steps, which are as expensive as 16,000 on 512 fresh ones; all others take their
usual 10,000. A cell has the adjusted losses of seeds 0, 1 and 2 on 20,000 fresh sequences; for a model that explodes on
k of them it has the mean over the others, with +k.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from itertools import product

from ridgeformer.evaluation import compare
from ridgeformer.problems import Problem
from ridgeformer.training import SGD, Adam, GradientDescent, train

PROBLEMS = Problem(dim=10, context=20, noise="uniform(0,5)"), Problem(dim=5, context=10, noise="uniform(0,2)")
MODELS = tuple(product(("diag", "full"), (1, 3, 7)))
PROTOCOLS = GradientDescent, SGD, Adam


def reached(run: tuple[Problem, tuple[str, int], type[GradientDescent]]) -> str:
    """Return a cell of the table."""
    problem, (family, layers), kind = run
    protocol = kind(steps=1000) if kind is GradientDescent and layers > 1 else kind()
    cells = []
    for seed in range(3):
        model = train(problem, family, layers, protocol=protocol, seed=seed, sequences=1000, threads=1).model
        found = compare(problem, {"model": model}, sequences=20_000, with_floor=False)
        exploded = found["model"].exploded
        cells.append(f"{found.unexploded['model']:.3f}" + f" +{exploded}" * (exploded > 0))
    return ", ".join(cells)


def main() -> None:
    """Print the table, row by row."""
    print("| problem | model | descent | sgd | adam |\n|---|---|---|---|---|")
    with ProcessPoolExecutor(2) as pool:
        cells = pool.map(reached, product(PROBLEMS, MODELS, PROTOCOLS))
        for problem, (family, layers) in product(PROBLEMS, MODELS):
            row = " | ".join(next(cells) for _ in PROTOCOLS)
            print(f"| {problem} | {family}, {layers} layer{'s' * (layers > 1)} | {row} |", flush=True)


if __name__ == "__main__":
    main()
