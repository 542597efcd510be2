"""Callbacks that come with the package: the progress line, and loggers of what is recorded.

The progress line is the only thing that the library itself prints.
"""

from __future__ import annotations

import csv
import io
import math
import os
from dataclasses import fields
from typing import Any

from ridgeformer.errors import optional
from ridgeformer.files import append, make_folder, path_of, write_whole
from ridgeformer.training.job import Callback, TrainingProgress
from ridgeformer.training.results import History, Training
from ridgeformer.training.spec import Spec

LOGGED = ["run", *(field.name for field in fields(History))]  # columns of a CSV file
PATIENCE = 2.0  # seconds after which the progress line appears


class Display(Callback):
    """A progress line on stderr, where that is a terminal or a notebook. Close it when training is over.

    Args:
        after: Seconds after which it appears: short trainings show nothing.
    """

    def __init__(self, after: float = PATIENCE) -> None:
        self.after = after
        self._bar: Any = None
        self._quiet = False

    def on_step(self, progress: TrainingProgress) -> None:
        """See `Callback.on_step`."""
        if self._quiet or progress.seconds < self.after:
            return
        name = progress.spec.describe_model()
        if self._bar is None:
            self._begin(name)
        if not self._quiet:
            self._bar.update(self._row, completed=progress.fraction, description=name, state=f"{progress}")

    def _begin(self, name: str) -> None:
        """Show the line, if stderr is a terminal or a notebook."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(stderr=True)
        self._quiet = not (console.is_terminal or console.is_jupyter)
        if self._quiet:
            return
        columns = TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[state]}")
        self._bar = Progress(*columns, console=console, transient=True)
        self._row = self._bar.add_task(name, total=1.0, state="")
        self._bar.start()

    def close(self) -> None:
        """Remove the line."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = None


class CSVLogger(Callback):
    """Writes the history of every run to one CSV file, with the name of the run in the first column.

    Every row is written as it comes. A run that resumes begins with the rows before the interruption; at the end of a
    run its rows are those of `history`.

    Args:
        path: The file. What was there before is replaced.

    Raises:
        InputError: This is no path.
        StorageError: Its folder cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path_of(path, "a CSV logger needs the name of a file", "history.csv")
        make_folder(self.path.parent, "logs")
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def on_start(self, spec: Spec) -> None:
        """See `Callback.on_start`."""
        self._rows[spec.name] = []
        self._write()

    def on_step(self, progress: TrainingProgress) -> None:
        """See `Callback.on_step`."""
        row = {"run": progress.spec.name, "phase": progress.phase, **progress.record}
        self._rows[progress.spec.name].append(row)
        append(self.path, _csv([row]))

    def on_end(self, training: Training) -> None:
        """See `Callback.on_end`."""
        self._rows[training.spec.name] = [{"run": training.spec.name, **row} for row in training.history.rows()]
        self._write()

    def _write(self) -> None:
        """Write the whole file."""
        names = dict(zip(LOGGED, LOGGED, strict=True))
        write_whole(self.path, _csv([names, *(row for rows in self._rows.values() for row in rows)]))


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    csv.DictWriter(text, LOGGED, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


class _NumberLogger(Callback):
    """Logs every recorded number that is finite, with its step."""

    def on_start(self, spec: Spec) -> None:
        """See `Callback.on_start`."""
        self._count = 0

    def on_step(self, progress: TrainingProgress) -> None:
        """See `Callback.on_step`."""
        self._count += 1
        record = dict(progress.record)
        step = int(record.pop("step", self._count))
        self._log({name: value for name, value in record.items() if math.isfinite(value)}, step)

    def _log(self, numbers: dict[str, float], step: int) -> None:
        raise NotImplementedError


class TensorBoardLogger(_NumberLogger):
    """Writes every recorded number that is finite as a scalar for TensorBoard, one folder per run.

    It needs tensorboardX (`pip install tensorboardX`), or PyTorch with tensorboard.

    Args:
        folder: Where TensorBoard looks for runs.

    Raises:
        MissingPackageError: Neither package is installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        rule = "TensorBoard needs tensorboardX, or PyTorch with tensorboard"
        writers = optional(rule, "tensorboardX", "torch.utils.tensorboard")
        self.folder = path_of(folder, "TensorBoard needs the name of a folder", "logs", folder=True)
        self._kind = writers.SummaryWriter

    def on_start(self, spec: Spec) -> None:
        """See `Callback.on_start`."""
        super().on_start(spec)
        self._writer = self._kind(str(self.folder / spec.name))

    def _log(self, numbers: dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            if name != "seconds":
                self._writer.add_scalar(name, value, step)

    def on_end(self, training: Training) -> None:
        """See `Callback.on_end`."""
        self._writer.close()


class WandbLogger(_NumberLogger):
    """Sends every recorded number that is finite to Weights & Biases, one run of theirs per run of ours.

    It needs `pip install wandb`.

    Args:
        project: The project.
        **options: Further arguments of `wandb.init`, such as `mode="offline"`.

    Raises:
        MissingPackageError: wandb is not installed.
    """

    def __init__(self, project: str = "ridgeformer", **options: Any) -> None:
        self._wandb = optional("Weights & Biases needs the package wandb", "wandb")
        self.project, self.options = project, options

    def on_start(self, spec: Spec) -> None:
        """See `Callback.on_start`."""
        super().on_start(spec)
        self._run = self._wandb.init(project=self.project, name=spec.name, config=spec.as_dict(), **self.options)

    def _log(self, numbers: dict[str, float], step: int) -> None:
        self._run.log(numbers, step=step)

    def on_end(self, training: Training) -> None:
        """See `Callback.on_end`."""
        self._run.summary.update(training.result.as_dict())
        self._run.finish()
