"""Train the shipped models that are not cells of Table 1: deeper ones, small ones for teaching, with less caution.

Usage: python -m benchmarks.further RUNS [PART ...], which stores the runs in the folder RUNS and goes on where it
stopped. The parts are those of `MODELS`. The deeper models grow from those of `make reproduce-from-scratch`, so RUNS
should be its folder. Of several seeds the best is shipped: that of least loss among those that explode least often.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ridgeformer.files import make_folder
from ridgeformer.models.file import save
from ridgeformer.papers.vladymyrov2024.paper import COLUMNS
from ridgeformer.problems import Problem
from ridgeformer.training import Search, Training, train_many
from ridgeformer.zoo import END, MODELS as FOLDER, PREFIX, TrainingRecord, name_of
from ridgeformer.zoo.explosions import measure_one

LEARNT = {"diag": range(1, 5), "gdpp": range(1, 4)}
THREE = {noise: {"diag": (3,), "full": (3,)} for noise in ("uniform(0,0)", "uniform(0,1)")}
DEEP = (8, 9, 10)
NOISY = [noise for noise in COLUMNS if noise != "uniform(0,0)"]
Layers = Mapping[str, Mapping[str, Sequence[int]]]  # by noise and family
MODELS: dict[str, tuple[tuple[int, int], Layers, Search, Sequence[int], dict[str, Any]]] = {
    "d=1": ((1, 10), {"uniform(0,2)": LEARNT}, Search(), (0,), {}),
    "d=2": ((2, 10), {"uniform(0,2)": LEARNT}, Search(), (0,), {}),
    "caution=0.01": ((10, 20), THREE, Search(caution=0.01), (0, 1), {}),
    "caution=0.003": ((10, 20), {"uniform(0,0)": {"diag": (4,)}}, Search(caution=0.003), (0, 1), {}),
    "deep": ((10, 20), {noise: {"diag": DEEP, "full": DEEP} for noise in NOISY}, Search(), (0,), {}),
    "heads=2": ((10, 20), {noise: {"diag": DEEP} for noise in NOISY}, Search(), (0,), {"heads": 2}),
    "scratch=4": ((10, 20), {noise: {"full": DEEP} for noise in NOISY}, Search(), (0,), {"layout": {"scratch": 4}}),
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
        size, noises, protocol, seeds, options = MODELS[part]
        given = {"seeds": seeds, "protocol": protocol, "out": runs, "progress": False, **options}
        for noise, chosen in noises.items():
            problem = Problem(*size, noise)
            for family, layers in chosen.items():
                trained = train_many(problem, [family], layers, **given)
                for depth in layers:
                    _write(problem, [run for run in trained if run.spec.layers == depth])


def _write(problem: Problem, seeds: Sequence[Training]) -> None:
    """Write the best of the runs of one model as a file of the package."""
    best = min(seeds, key=lambda run: (run.exploded, run.loss))
    made = asdict(TrainingRecord.of_run(best.record()))
    rare = measure_one(problem, best.model)
    spec = made.pop("spec")
    path = FOLDER / (name_of(spec).removeprefix(PREFIX) + END)
    make_folder(path.parent, "models")
    save(best.model, path, record={"spec": spec, "result": {**made, "explosions": asdict(rare)}})
    print(f"{path.relative_to(FOLDER)}: {best.loss:.4g}, {best.loss / best.floor:.4f} x the floor, {rare}", flush=True)


if __name__ == "__main__":
    ship(Path(sys.argv[1]), sys.argv[2:] or tuple(MODELS))
