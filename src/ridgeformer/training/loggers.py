"""Ready-made callbacks that write the course of a training: to a CSV file, to TensorBoard, to Weights & Biases."""

from __future__ import annotations

import csv
import importlib
import io
import os
import time
from pathlib import Path
from typing import Any

from ridgeformer.errors import MissingPackageError, refuse
from ridgeformer.files import make_folder, write_whole
from ridgeformer.training.callbacks import Callback, TrainingProgress
from ridgeformer.training.results import Training
from ridgeformer.training.spec import Spec

__all__ = ["CSVLogger", "TensorBoardLogger", "WandbLogger"]

PAUSE = 1.0  # seconds between two writings of a CSV file, at least


class CSVLogger(Callback):
    """Writes the history of every run to one CSV file, with the name of the run in the first column.

    The file is replaced as a whole about once per second; at the end of a run its rows are those of `history`.

    Args:
        path: The file.

    Raises:
        InputError: This is no path.
        StorageError: Its folder cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike) or not Path(path).name:
            refuse("a CSV logger needs the name of a file", repr(path), 'Pass "history.csv", for example.')
        self.path = Path(path)
        make_folder(self.path.parent, "logs")
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._written = 0.0

    def on_start(self, spec: Spec) -> None:
        """See `Callback.on_start`."""
        self._rows[spec.name] = []

    def on_step(self, progress: TrainingProgress) -> None:
        """See `Callback.on_step`."""
        self._rows.setdefault(progress.spec.name, []).append({"phase": progress.phase, **progress.record})
        if time.monotonic() - self._written >= PAUSE:
            self._write()

    def on_end(self, training: Training) -> None:
        """See `Callback.on_end`."""
        self._rows[training.spec.name] = training.history.rows()
        self._write()

    def _write(self) -> None:
        rows = [{"run": name, **row} for name, run in self._rows.items() for row in run]
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(self.path, text.getvalue().encode())
        self._written = time.monotonic()


class TensorBoardLogger(Callback):
    """Writes every recorded number as a scalar for TensorBoard, one folder per run.

    It needs tensorboardX (`pip install 'ridgeformer[tensorboard]'`), or PyTorch with tensorboard.

    Args:
        folder: Where TensorBoard looks for runs.

    Raises:
        MissingPackageError: Neither package is installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder, self._kind = Path(folder), _writer()
        self._open: dict[str, Any] = {}

    def on_start(self, spec: Spec) -> None:
        """See `Callback.on_start`."""
        self._open[spec.name] = self._kind(str(self.folder / spec.name))
        self._count = 0

    def on_step(self, progress: TrainingProgress) -> None:
        """See `Callback.on_step`."""
        self._count += 1
        step = int(progress.record.get("step", self._count))
        for name, value in progress.record.items():
            if name not in ("step", "seconds"):
                self._open[progress.spec.name].add_scalar(name, value, step)

    def on_end(self, training: Training) -> None:
        """See `Callback.on_end`."""
        self._open.pop(training.spec.name).close()


class WandbLogger(Callback):
    """Sends every recorded number to Weights & Biases, one run of theirs per run of ours.

    It needs `pip install wandb`.

    Args:
        project: The project.
        **options: Further arguments of `wandb.init`, such as `mode="offline"`.

    Raises:
        MissingPackageError: wandb is not installed.
    """

    def __init__(self, project: str = "ridgeformer", **options: Any) -> None:
        self._wandb = _imported("wandb", "Weights & Biases needs the package wandb", "Run pip install wandb.")
        self.project, self.options = project, options
        self._run: Any = None

    def on_start(self, spec: Spec) -> None:
        """See `Callback.on_start`."""
        self._run = self._wandb.init(project=self.project, name=spec.name, config=spec.as_dict(), **self.options)
        self._count = 0

    def on_step(self, progress: TrainingProgress) -> None:
        """See `Callback.on_step`."""
        self._count += 1
        step = int(progress.record.get("step", self._count))
        self._run.log({name: value for name, value in progress.record.items() if name != "step"}, step=step)

    def on_end(self, training: Training) -> None:
        """See `Callback.on_end`."""
        self._run.summary.update(training.result.as_dict())
        self._run.finish()


def _writer() -> Any:
    try:
        return importlib.import_module("tensorboardX").SummaryWriter
    except ImportError:
        rule = "TensorBoard needs tensorboardX, or PyTorch with tensorboard"
        remedy = "Run pip install 'ridgeformer[tensorboard]'."
        return _imported("torch.utils.tensorboard", rule, remedy).SummaryWriter


def _imported(name: str, rule: str, remedy: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(f"{rule}; it is not installed. {remedy}") from error
