"""The files in the folder of a run: their names, how they are read and checked, and the journal of unfinished work.

A run is a folder named after its spec: `record.json`, `model.safetensors`, and, until it is finished,
`journal.safetensors`; a descent also has `course.safetensors`, and a run from a given model `init.safetensors`. The
record is written last: a folder with one holds a finished run. It carries a checksum of itself and of the model.

The journal is the reason why a run can be killed at any moment. A run is a sequence of pieces of work, each a pure
function of earlier ones. The journal holds their results by name; a run that starts again reads them, skips the work,
and ends with the same bits. The file is replaced as a whole, so it is always complete. Every piece has a checksum: of a
damaged file, the pieces before the damage are used, and a warning says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import DamageError, InputError, RidgeformerError
from ridgeformer.files import parse_json, read_json, remove, short, write_whole
from ridgeformer.models.file import fingerprint, read_file
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems.dimensions import dimensions
from ridgeformer.tensors import DamagedFile, digest, pack, read_tensors

Record = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
Course = Mapping[str, NDArray[Any]]
FORMAT, VERSION = "ridgeformer-run", 2
SPEC, RECORD, MODEL = "spec.json", "record.json", "model.safetensors"
JOURNAL, COURSE, INIT = "journal.safetensors", "course.safetensors", "init.safetensors"
AGAIN = "Move its folder away and train it again."


def read_run(folder: str | os.PathLike[str]) -> tuple[LinearTransformer, Record]:
    """Read the model and the record of a finished run.

    Args:
        folder: The folder of the run.

    Returns:
        The model and the record.

    Raises:
        InputError: There is no finished run.
        DamageError: It is damaged, or its model is another run's.
    """
    record = read_record(folder)
    path = Path(folder) / MODEL
    if not path.exists():
        raise DamageError(f"a finished run has a model; {path} does not exist. {AGAIN}")
    model, inside = read_file(path)
    expected = spec = record["spec"]
    family = model.family
    shape = {"family": family.name, "dim": model.dim, "layers": model.layers // family.loops}
    if isinstance(spec.get("dim"), str):  # several dimensions, of which the model has the largest
        expected = {**spec, "dim": dimensions(spec["dim"])[-1]}
    if "problem" in spec:  # a problem of the user's own, whose class knows its dimension
        del shape["dim"]
    wrong = [name for name, value in shape.items() if expected.get(name) != value]
    if wrong:
        raise DamageError(
            f"a run's model must be the one that was trained; {path} has another {', '.join(wrong)}. {AGAIN}"
        )
    # The model's file holds a record too, which vouches for one of version 1. Later ones have checksums, and
    # where two processes trained one run, the seconds in the model's file may be those of the other process.
    if record["version"] > 1:
        same = record.get("model") == fingerprint(model) and inside.get("spec") == spec
    else:
        same = checksum(inside) == checksum(record)
    if not same:
        raise DamageError(f"a run's model must be the one that was trained; {path} is another one. {AGAIN}")
    return model, record


def read_course(folder: Path, record: Record) -> Course:
    """Read what a descent recorded: its table, and the parameters of its snapshots.

    Args:
        folder: The folder of a finished run.
        record: Its record.

    Returns:
        The arrays by name; none for runs that record nothing of the kind.

    Raises:
        DamageError: The file is missing or damaged.
    """
    known = record.get("course")
    if known is None:
        return {}
    path = folder / COURSE
    if not path.exists():
        raise DamageError(f"a descent has a stored course; {path} does not exist. {AGAIN}")
    try:
        arrays = read_tensors(path, "a course", lambda metadata: None)[1]
    except DamagedFile as error:
        raise DamageError(f"a stored course must be as it was written; {path} is damaged: {error}. {AGAIN}") from error
    if digest(arrays) != known:
        raise DamageError(f"a stored course must be that of its run; {path} is another one. {AGAIN}")
    return arrays


def read_init(folder: Path, spec: Record) -> LinearTransformer | None:
    """Read the model that a run started from.

    Args:
        folder: The folder of the run.
        spec: Its spec, as JSON.

    Returns:
        The model; None for a run from random starts.

    Raises:
        DamageError: The model is missing, damaged or another one.
    """
    if spec.get("init") is None:
        return None
    path = folder / INIT
    if not path.exists():
        raise DamageError(f"a run from a given start has a stored one; {path} does not exist. {AGAIN}")
    model = read_file(path)[0]
    if fingerprint(model) != spec["init"]:
        raise DamageError(f"a run's start must be the one that its spec names; {path} is another one. {AGAIN}")
    return model


def read_record(folder: str | os.PathLike[str]) -> Record:
    """Read the record of a finished run.

    Args:
        folder: The folder of the run.

    Returns:
        The record.

    Raises:
        InputError: The folder has no record, or one that a newer version wrote.
        DamageError: The record is damaged.
    """
    path = Path(folder)
    if not os.path.isdir(path):  # never raises, unlike Path's own method
        there = "a file" if os.path.exists(path) else "not there"
        raise InputError(f"a run is a folder; {short(path)} is {there}. Check the path.")
    place = path / RECORD
    if not has_record(path):
        if (path / SPEC).exists():
            raise InputError(f"a finished run has a record.json; {path} has none yet. Train it to its end first.")
        if os.access(path, os.R_OK | os.X_OK) and any(is_run(inside) for inside in path.iterdir()):
            raise InputError(
                f"{short(path)} is not the folder of a run, but holds runs. Name one of them: `ridgeformer runs` with "
                "this folder lists them."
            )
        raise InputError(
            f"{short(path)} is not the folder of a run, and there are no runs in it. Name the folder that was given to "
            "--out, or a run in it."
        )
    try:
        record = read_json(place, "a record")
    except DamageError as error:
        raise DamageError(f"{error} {AGAIN}") from error
    if record.get("format") != FORMAT or not isinstance(record.get("spec"), dict):
        raise DamageError(f"a record must be one that ridgeformer wrote; {place} is not. {AGAIN}")
    version = record.get("version")
    if type(version) is int and version > VERSION:
        raise InputError(f"{place} was written by a newer ridgeformer. Upgrade this one to read it.")
    sealed = version != 1 or "checksum" in record  # version 1 had no checksum
    if type(version) is not int or version < 1 or (sealed and record.get("checksum") != checksum(record)):
        raise DamageError(f"a record must be as it was written; {place} is damaged: its checksum differs. {AGAIN}")
    return record


def has_record(folder: Path) -> bool:
    """Tell whether a folder has the file that a run writes last, whatever is in it.

    Args:
        folder: The folder of a run; it need not exist.

    Returns:
        True if it does.
    """
    return (folder / RECORD).exists()


def is_run(folder: Path) -> bool:
    """Tell whether a folder is that of a run, finished or not.

    Args:
        folder: The folder. One that may not be looked into counts as a run.

    Returns:
        True if it is.
    """
    hidden = folder.is_dir() and not os.access(folder, os.X_OK)
    return hidden or any(os.path.lexists(folder / name) for name in (SPEC, RECORD))


def is_finished(folder: Path) -> bool:
    """Tell whether a folder holds a finished run that is whole.

    Args:
        folder: The folder of a run; it need not exist.

    Returns:
        True if it does.
    """
    try:
        return "status" in read_run(folder)[1]
    except RidgeformerError:
        return False


def checksum(record: Mapping[str, Any]) -> str:
    """Compute the checksum of all that a record says, but for the checksum itself.

    Args:
        record: The record.

    Returns:
        The checksum, in hexadecimal digits.
    """
    text = json.dumps({name: value for name, value in record.items() if name != "checksum"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


JOURNAL_FORMAT = "ridgeformer-journal-2"
UNREADABLE = (DamagedFile, InputError, KeyError, TypeError, ValueError, OverflowError)


class DamagedRunWarning(UserWarning):
    """A stored run is not what it was when it was written; it is trained again from its last sound state."""


class Journal:
    """Results by name, the history of losses, and the seconds spent; in memory only where `path` is None.

    Args:
        path: The file, or None.
        interval: Seconds between two writings, at least.
        writer: What decides the bits besides the work itself: the run, the version, the engine. A journal that
            another writer left is not continued.
    """

    def __init__(
        self, path: Path | None = None, interval: float = 1.0, writer: Mapping[str, Any] | None = None
    ) -> None:
        self.path, self.interval, self.writer = path, interval, dict(writer or {})
        self.history: list[tuple[str, int, float, float]] = []  # phase, sequences used so far, loss, seconds
        self._pieces: dict[str, Arrays] = {}
        self._marks: dict[str, int] = {}  # how long the history was when a piece was kept
        self._before = 0.0
        self._began = self._written = time.monotonic()
        if path is not None and path.exists():
            self._read(path)

    @property
    def seconds(self) -> float:
        """Time spent on this run, interruptions left out."""
        return self._before + time.monotonic() - self._began

    @property
    def work(self) -> int:
        """Sequences used so far."""
        return self.history[-1][1] if self.history else 0

    def recall(self, name: str) -> Arrays | None:
        """Return what was kept under a name.

        Args:
            name: The name of a piece of work.

        Returns:
            Its arrays; None if that piece of work was not done yet.
        """
        return self._pieces.get(name)

    def keep(self, name: str, arrays: Arrays) -> None:
        """Keep a finished piece of work, and from time to time write everything down.

        Args:
            name: The name of the piece of work.
            arrays: Its results.
        """
        self._pieces[name] = arrays
        self._marks[name] = len(self.history)
        if time.monotonic() - self._written >= self.interval:
            self.write()

    def forget(self, name: str) -> None:
        """Drop what is no longer needed.

        Args:
            name: The name of a piece of work; it need not be there.
        """
        self._pieces.pop(name, None)
        self._marks.pop(name, None)

    def note(self, phase: str, work: int, loss: float, seconds: float | None = None) -> None:
        """Add a point to the history.

        Args:
            phase: The part of the search.
            work: How many further sequences were used.
            loss: The training loss then.
            seconds: Time spent on this run until then; None for now.
        """
        self.history.append((phase, self.work + work, float(loss), self.seconds if seconds is None else seconds))

    def write(self) -> None:
        """Write everything down.

        Raises:
            StorageError: The journal cannot be written.
        """
        if self.path is None:
            return
        facts = json.dumps(
            {
                "writer": self.writer,
                "history": self.history,
                "seconds": self.seconds,
                "names": [*self._pieces],
                "marks": [*self._marks.values()],
                "checksums": [digest(arrays) for arrays in self._pieces.values()],
            }
        )
        tensors = {
            f"{number}/{key}": value
            for number, arrays in enumerate(self._pieces.values())
            for key, value in arrays.items()
        }
        header = {"format": JOURNAL_FORMAT, "facts": facts, "facts checksum": _checksum(facts)}
        write_whole(self.path, pack(tensors, header))
        self._written = time.monotonic()

    def remove(self) -> None:
        """Delete the file: the run is finished."""
        if self.path is not None:
            remove(self.path)

    def _read(self, path: Path) -> None:
        """Take over what a file holds, up to the first piece that is damaged."""
        try:
            facts, tensors = self._content(path)
            writer, before = dict(facts["writer"]), float(facts["seconds"])
            history = [(str(p), int(w), float(x), float(*s or [np.nan])) for p, w, x, *s in facts["history"]]
            names, marks = map(str, facts["names"]), map(int, facts["marks"])
            pieces = list(zip(names, marks, facts["checksums"], strict=True))
        except UNREADABLE as error:
            _warn(f"{short(path)} is damaged ({short(error)}); the run starts again from its beginning")
            return
        if writer != self.writer:
            changed = sorted(name for name in {*writer, *self.writer} if writer.get(name) != self.writer.get(name))
            change = ", ".join(f"{name} {writer.get(name)}, now {self.writer.get(name)}" for name in changed)
            _warn(
                f"{short(path)} was written by another {short(change, 400)}; "
                "the run starts again, so that its bits are those of one"
            )
            return
        for number, (name, mark, checksum) in enumerate(pieces):
            arrays = tensors.get(number, {})
            if digest(arrays) != checksum:
                _warn(f"{short(path)} is damaged; the run goes on from its last sound state, before {short(name)}")
                history = history[: max(self._marks.values(), default=0)]
                break
            self._pieces[name], self._marks[name] = arrays, mark
        self.history, self._before = history, before

    @staticmethod
    def _content(path: Path) -> tuple[dict[str, Any], dict[int, Arrays]]:
        """The facts, whose checksum holds, and the arrays of each piece, which are still to be compared with theirs."""
        header, arrays = read_tensors(path, "a journal", lambda metadata: None, checked=False)
        if header.get("format") != JOURNAL_FORMAT:
            raise DamagedFile("it is not a journal of this version")
        if header.get("facts checksum") != _checksum(header.get("facts", "")):
            raise DamagedFile("its checksum is not that of its content")
        tensors: dict[int, Arrays] = {}
        for label, value in arrays.items():
            number, _, key = label.partition("/")
            if number.isdecimal() and len(number) < 10:
                tensors.setdefault(int(number), {})[key] = np.array(value)
        facts = parse_json(header["facts"])
        if not isinstance(facts, dict):
            raise DamagedFile("it has no facts")
        return facts, tensors


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _warn(message: str) -> None:
    warnings.warn(message, DamagedRunWarning, stacklevel=5)
