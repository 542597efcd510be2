"""The store of runs: each run in a folder of its own, named after its spec.

The folder holds `record.json`, `model.safetensors`, and, until the run is finished, `journal.safetensors`; a descent
also has `course.safetensors`, and a run from a given model `init.safetensors`. The record is written last: a folder
with one holds a finished run. It carries a checksum of itself and of the model. A damaged run is reported, set aside
and trained again.

The journal is the reason why a run can be killed at any moment. A run is a sequence of pieces of work, each a pure
function of earlier ones. The journal holds their results by name; a run that starts again reads them, skips the work,
and ends with the same bits. The file is replaced as a whole, so it is always complete. Every piece has a checksum: of a
damaged file, the pieces before the damage are used, and a warning says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer import files as disk
from ridgeformer.errors import DamageError, InputError, RidgeformerError, short
from ridgeformer.models.file import fingerprint, read_file, save
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.training.spec import Spec

if TYPE_CHECKING:
    from ridgeformer.training.results import Training

RunRecord = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
Course = Mapping[str, NDArray[Any]]
FORMAT, VERSION = "ridgeformer-run", 2
SPEC, RECORD, MODEL = "spec.json", "record.json", "model.safetensors"
JOURNAL, COURSE, INIT = "journal.safetensors", "course.safetensors", "init.safetensors"
AGAIN = "Move its folder away and train it again."
JOURNAL_FORMAT = "ridgeformer-journal-2"
UNREADABLE = (disk.DamagedFile, InputError, KeyError, TypeError, ValueError, OverflowError)


def read_run(folder: str | os.PathLike[str]) -> tuple[LinearTransformer, RunRecord]:
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
    path = _existing(Path(folder) / MODEL, "a finished run has a model")
    model, inside = read_file(path)
    # The model's file holds a record too. Where two processes trained one run, its seconds may be the other's.
    if record.get("model") != fingerprint(model) or inside.get("spec") != record["spec"]:
        raise DamageError(f"a run's model must be the one that was trained; {path} is another one. {AGAIN}")
    return model, record


def read_course(folder: Path, record: RunRecord) -> Course:
    """Read what a descent recorded: its table, and the parameters of its snapshots.

    Args:
        folder: The folder of a finished run.
        record: Its record.

    Returns:
        The arrays by name; none for runs that record nothing of the kind.

    Raises:
        DamageError: The file is missing or damaged.
    """
    digest = record.get("course")
    if digest is None:
        return {}
    path = _existing(folder / COURSE, "a descent has a stored course")
    try:
        arrays = disk.read_tensors(path, "a course", lambda metadata: None)[1]
    except disk.DamagedFile as error:
        raise DamageError(f"a stored course must be as it was written; {path} is damaged: {error}. {AGAIN}") from error
    if disk.digest(arrays) != digest:
        raise DamageError(f"a stored course must be that of its run; {path} is another one. {AGAIN}")
    return arrays


def read_init(folder: Path, spec: RunRecord) -> LinearTransformer | None:
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
    path = _existing(folder / INIT, "a run from a given start has a stored one")
    model = read_file(path)[0]
    if fingerprint(model) != spec["init"]:
        raise DamageError(f"a run's start must be the one that its spec names; {path} is another one. {AGAIN}")
    return model


def _existing(path: Path, rule: str) -> Path:
    """The path of a file that a run must have."""
    if not path.exists():
        raise DamageError(f"{rule}; {path} does not exist. {AGAIN}")
    return path


def read_record(folder: str | os.PathLike[str]) -> RunRecord:
    """Read the record of a finished run.

    Args:
        folder: The folder of the run.

    Returns:
        The record.

    Raises:
        InputError: The folder has no record, or one that a newer version wrote.
        DamageError: The record is damaged.
    """
    path = disk.path_of(folder, "a run needs the name of its folder", "runs/diag-4x1-...", folder=True)
    if not os.path.isdir(path):  # never raises, unlike Path's own method
        there = "a file" if os.path.exists(path) else "not there"
        raise InputError(f"a run is a folder; {short(path)} is {there}. Check the path.")
    place = path / RECORD
    if not has_record(path):
        if (path / SPEC).exists():
            raise InputError(f"a finished run has a record.json; {path} has none yet. Train it to its end first.")
        if os.access(path, os.R_OK | os.X_OK) and any(is_run(inside) for inside in path.iterdir()):
            remedy = "Name one of them: `ridgeformer runs` with this folder lists them."
            raise InputError(f"{short(path)} is not the folder of a run, but holds runs. {remedy}")
        remedy = "Name the folder that was given to --out, or a run in it."
        raise InputError(f"{short(path)} is not the folder of a run, and there are no runs in it. {remedy}")
    try:
        record = disk.read_json(place, "a record")
    except DamageError as error:
        raise DamageError(f"{error} {AGAIN}") from error
    if record.get("format") != FORMAT or not isinstance(record.get("spec"), dict):
        raise DamageError(f"a record must be one that ridgeformer wrote; {place} is not. {AGAIN}")
    version = record.get("version")
    if type(version) is int and version > VERSION:
        raise InputError(f"{place} was written by a newer ridgeformer. Upgrade this one to read it.")
    if version != VERSION or record.get("checksum") != checksum(record):
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
        before = self.history[-1][1] if self.history else 0
        self.history.append((phase, before + work, float(loss), self.seconds if seconds is None else seconds))

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
                "checksums": [disk.digest(arrays) for arrays in self._pieces.values()],
            }
        )
        tensors = {
            f"{number}/{key}": value
            for number, arrays in enumerate(self._pieces.values())
            for key, value in arrays.items()
        }
        header = {"format": JOURNAL_FORMAT, "facts": facts, "facts checksum": _seal(facts)}
        disk.write_whole(self.path, disk.pack(tensors, header))
        self._written = time.monotonic()

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
            again = "the run starts again, so that its bits are those of one"
            _warn(f"{short(path)} was written by another {short(change, 400)}; {again}")
            return
        for number, (name, mark, digest) in enumerate(pieces):
            start = f"{number}/"
            arrays = {key[len(start) :]: np.array(v) for key, v in tensors.items() if key.startswith(start)}
            if disk.digest(arrays) != digest:
                state = f"the run goes on from its last sound state, before {short(name)}"
                _warn(f"{short(path)} is damaged; {state}")
                history = history[: max(self._marks.values(), default=0)]
                break
            self._pieces[name], self._marks[name] = arrays, mark
        self.history, self._before = history, before

    @staticmethod
    def _content(path: Path) -> tuple[dict[str, Any], Arrays]:
        """The facts, whose checksum holds, and all arrays, which are still to be compared with their checksums."""
        header, arrays = disk.read_tensors(path, "a journal", lambda metadata: None, checked=False)
        if header.get("format") != JOURNAL_FORMAT:
            raise disk.DamagedFile("it is not a journal of this version")
        if header.get("facts checksum") != _seal(header.get("facts", "")):
            raise disk.DamagedFile("its checksum is not that of its content")
        facts = disk.parse_json(header["facts"])
        if not isinstance(facts, dict):
            raise disk.DamagedFile("it has no facts")
        return facts, arrays


def _seal(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Folder:
    """A store for runs in the sub-folders of one folder. Several processes may share it: files are replaced whole.

    Args:
        path: The folder; it is made if it does not exist.
        interval: Seconds between two writings of a journal, at least.

    Raises:
        InputError: The path is that of a file, or no path.
        StorageError: The folder cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str], interval: float = 1.0) -> None:
        self.path, self.interval = disk.path_of(path, "runs need the name of a folder", "runs/", folder=True), interval
        if os.path.exists(self.path) and not os.path.isdir(self.path):  # never raise, unlike Path's own methods
            raise InputError(f"runs need a folder; {self.path} is a file. Choose another place.")
        disk.make_folder(self.path, "runs")

    def place(self, spec: Spec) -> Path:
        """Return the folder of a run.

        Args:
            spec: The run.

        Returns:
            Its folder, which need not exist.
        """
        return self.path / spec.name

    def find(self, spec: Spec) -> tuple[LinearTransformer, RunRecord, Course] | None:
        """Return a finished run. A damaged one is set aside, with a warning, and counts as missing.

        Args:
            spec: The run.

        Returns:
            The model, its record and what a descent recorded; None if this folder has no such finished run.
        """
        folder, asked = self.place(spec), spec.as_dict()
        if folder.exists() and not folder.is_dir():
            raise InputError(f"a run needs a folder; {folder} is a file. Move the file away, or choose another folder.")
        if not has_record(folder):
            return None
        try:
            model, record = read_run(folder)
            if (stored := record["spec"]) != asked:
                differences = ", ".join(sorted(key for key in {*stored, *asked} if stored.get(key) != asked.get(key)))
                raise DamageError(f"the record of {folder} is of another run: other {differences}.")
            course = read_course(folder, record)
        except DamageError as error:
            disk.set_aside(*(folder / name for name in (MODEL, RECORD, COURSE)))
            _warn(f"{error} The run is trained again; its damaged files are kept as {folder / 'damaged-*'}")
            return None
        with contextlib.suppress(InputError, OSError):  # a folder that cannot be written to can still be read
            self._check_spec(folder, asked)
            disk.remove(folder / JOURNAL)  # left there by a kill between the record and its removal
        return model, record, course

    def journal(self, spec: Spec, writer: Mapping[str, Any]) -> Journal:
        """Return what an unfinished run has done so far. The model that it starts from is stored with it.

        Args:
            spec: The run.
            writer: What decides the bits besides the spec: the version and the engine.

        Returns:
            The journal, which is empty for a new run.

        Raises:
            StorageError: The folder of the run cannot be written to.
        """
        folder = self.place(spec)
        disk.make_folder(folder, "runs")
        self._check_spec(folder, spec.as_dict())
        if spec.init is not None:
            save(spec.init, folder / INIT)
        return Journal(folder / JOURNAL, self.interval, {"run": spec.name, **writer})

    def store(self, training: Training) -> None:
        """Keep a finished run, unless another process has finished it meanwhile. Its journal is removed.

        Args:
            training: The run, with its folder.

        Raises:
            StorageError: The folder of the run cannot be written to.
        """
        folder, record = self.place(training.spec), training.record()
        if not is_finished(folder):
            save(training.model, folder / MODEL, record=record)
            sealed = {**record, "model": fingerprint(training.model)}
            if training.course:
                disk.write_whole(folder / COURSE, disk.pack(training.course, {"format": "ridgeformer-course"}))
                sealed["course"] = disk.digest(training.course)
            sealed["checksum"] = checksum(sealed)
            disk.write_whole(folder / RECORD, json.dumps(sealed, indent=2).encode())
        disk.remove(folder / JOURNAL)

    @staticmethod
    def _check_spec(folder: Path, spec: RunRecord) -> None:
        """Write `spec.json`; one that is damaged, or of another run, is set aside with a warning."""
        path, text = folder / SPEC, json.dumps(spec, indent=2).encode()
        with contextlib.suppress(RidgeformerError), disk.open_regular(path, "a spec") as file:
            if file.read() == text:
                return
        if path.exists():
            disk.set_aside(path)
            _warn(f"{path} is damaged, or of another run; it is written anew")
        disk.write_whole(path, text)


def _warn(message: str) -> None:
    warnings.warn(message, DamagedRunWarning, stacklevel=6)
