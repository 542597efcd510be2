"""Make the zoo that ships, from the runs of `table1 --retrain`: python -m ridgeformer.experiments.ship RUNS."""

from __future__ import annotations

import sys
from importlib.resources import as_file, files
from pathlib import Path

from ridgeformer.experiments.evidence import SHOWN
from ridgeformer.experiments.paper import models_of

__all__ = ["ship"]


def ship(runs: Path) -> Path:
    """Write the best models of all cells, and all seeds where figures show their spread, into the package."""
    with as_file(files("ridgeformer")) as package:
        folder = package / "models"
        folder.mkdir(exist_ok=True)
        models_of(runs).write(folder, every_seed=[SHOWN])
        return folder


if __name__ == "__main__":
    print(ship(Path(sys.argv[1])))
