"""`python -m benchmarks.explosions`: explosion probabilities by importance sampling beside those by brute force.

A table in Markdown. Each model is run on 10^8 sequences of its own problem, drawn as in any evaluation but in float32,
and explosions are counted; about a minute of CPU time for a Diag model with three layers. `python -m
benchmarks.explosions 1e6 zoo:diag/3/uniform(0,5)` takes another number of sequences and other shipped models.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from ridgeformer import Problem, explosion_probability, load
from ridgeformer.losses import exploded

MODELS = ("zoo:diag/3/uniform(0,5)",)
SEQUENCES, STREAM, SEED = 10**8, 1 << 27, 1
BLOCK = 1 << 17
WIDE = 50_000  # sequences of importance sampling


def counted(name: str, sequences: int) -> int:
    """Return how many sequences exploded, of so many that were drawn from the problem itself."""
    model = load(name).astype(np.float32)
    problem, hits = Problem(noise=name.split("/")[-1]), 0
    for step, first in enumerate(range(0, sequences, BLOCK)):
        count = min(BLOCK, sequences - first)
        drawn = model.step(problem, count, seed=SEED, stream=STREAM, step=step, gradient=False)
        hits += int(exploded(drawn.losses, problem.signal).sum())
    return hits


def row(name: str, sequences: int) -> str:
    """Return a row of the table: both probabilities with standard errors, and their distance in standard errors."""
    hits = counted(name, sequences)
    rare = explosion_probability(Problem(noise=name.split("/")[-1]), load(name), sequences=WIDE, seed=SEED)
    plain, error = hits / sequences, np.sqrt(max(hits, 1)) / sequences
    apart = (rare.probability - plain) / np.hypot(rare.error, error)
    both = f"{hits} | {plain:.2e} +- {error:.1e} | {rare.probability:.2e} +- {rare.error:.1e}"
    return f"| {name} | {both} ({rare.hits:.0f} effective hits) | {apart:+.1f} |"


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    sequences = int(float(arguments[0])) if arguments else SEQUENCES
    print(f"| model | exploded of {sequences:.0e} | by brute force | by importance sampling | standard errors apart |")
    print("|---|---|---|---|---|")
    for name in arguments[1:] or MODELS:
        print(row(name, sequences), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
