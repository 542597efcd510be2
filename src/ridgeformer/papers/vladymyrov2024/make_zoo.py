"""Make the zoo that ships from the runs of `papers table1 --retrain`.

Usage: python -m ridgeformer.papers.vladymyrov2024.make_zoo RUNS.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ridgeformer.files import make_folder
from ridgeformer.papers.vladymyrov2024.evidence import SHOWN
from ridgeformer.papers.vladymyrov2024.paper import models_of
from ridgeformer.zoo import MODELS


def ship(runs: Path) -> None:
    """Write the best models of all cells, and all seeds where figures show their spread, into the package.

    Args:
        runs: The folder with all runs of the table.

    Raises:
        InputError: A run is missing.
        StorageError: The folder cannot be written to.
    """
    make_folder(MODELS, "models")
    models_of(runs).write(MODELS, every_seed=[SHOWN])


if __name__ == "__main__":
    ship(Path(sys.argv[1]))
