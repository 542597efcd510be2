"""Train the shipped models that are not cells of Table 1: those for teaching, and those with less caution.

Usage: python -m benchmarks.small RUNS [PART ...], which stores the runs in the folder RUNS. A part is what the
names of models begin with: `d=1`, `d=2`, `caution=0.01` or `caution=0.003`. All take five minutes on one core.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ridgeformer.files import make_folder
from ridgeformer.problems import Problem
from ridgeformer.training import Search, train_many
from ridgeformer.zoo import PARTS, gather

LEARNT = {"diag": range(1, 5), "gdpp": range(1, 4)}
THREE = {noise: {"diag": (3,), "full": (3,)} for noise in ("uniform(0,0)", "uniform(0,1)")}
Layers = Mapping[str, Mapping[str, Sequence[int]]]  # by noise and family
MODELS: dict[str, tuple[tuple[int, int], Layers, Search, tuple[int, ...]]] = {
    "d=1": ((1, 10), {"uniform(0,2)": LEARNT}, Search(), (0,)),
    "d=2": ((2, 10), {"uniform(0,2)": LEARNT}, Search(), (0,)),
    "caution=0.01": ((10, 20), THREE, Search(caution=0.01), (0, 1)),
    "caution=0.003": ((10, 20), {"uniform(0,0)": {"diag": (4,)}}, Search(caution=0.003), (0, 1)),
}


def ship(runs: Path, parts: Sequence[str] = tuple(MODELS)) -> None:
    """Train the models, and write them into the package.

    Args:
        runs: Where the runs are stored.
        parts: Which ones. Default: all.

    Raises:
        StorageError: The folders cannot be written to.
    """
    for part in parts:
        size, noises, protocol, seeds = MODELS[part]
        cells = [(noise, family, layers) for noise, chosen in noises.items() for family, layers in chosen.items()]
        trained = [
            run
            for noise, family, layers in cells
            for run in train_many(
                Problem(*size, noise), [family], layers, seeds=seeds, protocol=protocol, out=runs, progress=False
            )
        ]
        make_folder(PARTS[part], "models")
        gather([run.folder for run in trained if run.folder is not None]).write(PARTS[part])


if __name__ == "__main__":
    ship(Path(sys.argv[1]), sys.argv[2:] or tuple(MODELS))
