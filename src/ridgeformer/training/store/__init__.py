"""The store of runs: each run in a folder of its own, as `ridgeformer.training.store.files` describes it.

A damaged run is reported, set aside and trained again.

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
from typing import Any

import numpy as np

from ridgeformer import files as disk
from ridgeformer.errors import DamageError, InputError, RidgeformerError, short
from ridgeformer.models.file import fingerprint, save
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.training.store.files import (
    COURSE,
    INIT,
    JOURNAL,
    MODEL,
    RECORD,
    SPEC,
    Arrays,
    Course,
    RunRecord,
    checksum,
    has_record,
    is_finished,
    read_course,
    read_run,
)

JOURNAL_FORMAT = "ridgeformer-journal-2"
UNREADABLE = (disk.DamagedFile, InputError, KeyError, TypeError, ValueError, OverflowError)


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

    def remove(self) -> None:
        """Delete the file: the run is finished."""
        if self.path is not None:
            disk.remove(self.path)

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
        for number, (name, mark, known) in enumerate(pieces):
            arrays = tensors.get(number, {})
            if disk.digest(arrays) != known:
                state = f"the run goes on from its last sound state, before {short(name)}"
                _warn(f"{short(path)} is damaged; {state}")
                history = history[: max(self._marks.values(), default=0)]
                break
            self._pieces[name], self._marks[name] = arrays, mark
        self.history, self._before = history, before

    @staticmethod
    def _content(path: Path) -> tuple[dict[str, Any], dict[int, Arrays]]:
        """The facts, whose checksum holds, and the arrays of each piece, which are still to be compared with theirs."""
        header, arrays = disk.read_tensors(path, "a journal", lambda metadata: None, checked=False)
        if header.get("format") != JOURNAL_FORMAT:
            raise disk.DamagedFile("it is not a journal of this version")
        if header.get("facts checksum") != _seal(header.get("facts", "")):
            raise disk.DamagedFile("its checksum is not that of its content")
        tensors: dict[int, Arrays] = {}
        for label, value in arrays.items():
            number, _, key = label.partition("/")
            if number.isdecimal() and len(number) < 10:
                tensors.setdefault(int(number), {})[key] = np.array(value)
        facts = disk.parse_json(header["facts"])
        if not isinstance(facts, dict):
            raise disk.DamagedFile("it has no facts")
        return facts, tensors


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

    def find(self, name: str, spec: RunRecord) -> tuple[LinearTransformer, RunRecord, Course] | None:
        """Return a finished run. A damaged one is set aside, with a warning, and counts as missing.

        Args:
            name: The name of the run.
            spec: Its spec, as JSON.

        Returns:
            The model, its record and what a descent recorded; None if this folder has no such finished run.
        """
        folder = self.path / name
        if folder.exists() and not folder.is_dir():
            raise InputError(f"a run needs a folder; {folder} is a file. Move the file away, or choose another folder.")
        if not has_record(folder):
            return None
        try:
            model, record = read_run(folder)
            if record["spec"] != spec:
                raise DamageError(f"the record of {folder} is of another run: {_difference(record['spec'], spec)}.")
            course = read_course(folder, record)
        except DamageError as error:
            disk.set_aside(*(folder / name for name in (MODEL, RECORD, COURSE)))
            _warn(f"{error} The run is trained again; its damaged files are kept as {folder / 'damaged-*'}")
            return None
        with contextlib.suppress(InputError, OSError):  # a folder that cannot be written to can still be read
            self._check_spec(folder, spec)
            disk.remove(folder / JOURNAL)  # left there by a kill between the record and its removal
        return model, record, course

    def journal(
        self, name: str, spec: RunRecord, writer: Mapping[str, Any], init: LinearTransformer | None = None
    ) -> Journal:
        """Return what an unfinished run has done so far.

        Args:
            name: The name of the run.
            spec: Its spec, as JSON.
            writer: What decides the bits besides the spec: the version and the engine.
            init: The model that the run starts from, which is stored with it; None for random starts.

        Returns:
            The journal, which is empty for a new run.

        Raises:
            StorageError: The folder of the run cannot be written to.
        """
        folder = self.path / name
        disk.make_folder(folder, "runs")
        self._check_spec(folder, spec)
        if init is not None:
            save(init, folder / INIT)
        return Journal(folder / JOURNAL, self.interval, {"run": name, **writer})

    def store(
        self, name: str, model: LinearTransformer, record: RunRecord, journal: Journal, course: Course | None = None
    ) -> None:
        """Keep a finished run, unless another process has finished it meanwhile.

        Args:
            name: The name of the run.
            model: Its model.
            record: What `Training.record` returned.
            journal: Its journal, which is removed.
            course: What a descent recorded.

        Raises:
            StorageError: The folder of the run cannot be written to.
        """
        folder = self.path / name
        if is_finished(folder):
            return journal.remove()
        save(model, folder / MODEL, record=record)
        sealed = {**record, "model": fingerprint(model)}
        if course:
            disk.write_whole(folder / COURSE, disk.pack(course, {"format": "ridgeformer-course"}))
            sealed["course"] = disk.digest(course)
        sealed["checksum"] = checksum(sealed)
        disk.write_whole(folder / RECORD, json.dumps(sealed, indent=2).encode())
        journal.remove()

    @staticmethod
    def _check_spec(folder: Path, spec: RunRecord) -> None:
        """Write `spec.json`; one that is damaged, or of another run, is set aside with a warning."""
        known, text = folder / SPEC, json.dumps(spec, indent=2).encode()
        if known.exists() and not _holds(known, text):
            disk.set_aside(known)
            _warn(f"{known} is damaged, or of another run; it is written anew")
        if not known.exists():
            disk.write_whole(known, text)


def _holds(path: Path, content: bytes) -> bool:
    try:
        with disk.open_regular(path, "a spec") as file:
            return file.read() == content
    except RidgeformerError:
        return False


def _warn(message: str) -> None:
    warnings.warn(message, DamagedRunWarning, stacklevel=6)


def _difference(stored: RunRecord, asked: RunRecord) -> str:
    return "other " + ", ".join(sorted(key for key in {*stored, *asked} if stored.get(key) != asked.get(key)))
