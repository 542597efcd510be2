"""Train the small shipped models, for d = 1 and d = 2, which the book and the playground use for teaching.

Usage: python -m benchmarks.small RUNS, which stores the runs in the folder RUNS; about two minutes on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ridgeformer.files import make_folder
from ridgeformer.problems import Problem
from ridgeformer.training import train_many
from ridgeformer.zoo import DIMS, MODELS, gather

CONTEXT, NOISE = 10, "uniform(0,2)"
LAYERS = {"diag": range(1, 5), "gdpp": range(1, 4)}


def ship(runs: Path) -> None:
    """Train the models, and write them into the package.

    Args:
        runs: Where the runs are stored.

    Raises:
        StorageError: The folders cannot be written to.
    """
    for dim in DIMS[1:]:
        problem, folders = Problem(dim, CONTEXT, NOISE), []
        for family, layers in LAYERS.items():
            trained = train_many(problem, [family], layers, seeds=[0], out=runs, progress=False)
            folders += [run.folder for run in trained if run.folder is not None]
        make_folder(MODELS / f"d{dim}", "models")
        gather(folders).write(MODELS / f"d{dim}")


if __name__ == "__main__":
    ship(Path(sys.argv[1]))
