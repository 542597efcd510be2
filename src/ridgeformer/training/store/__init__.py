"""Stores of runs: in memory, or each run in a folder of its own, as `ridgeformer.training.store.files` describes it.

A damaged run is reported, set aside and trained again.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ridgeformer.errors import DamageError, InputError, RidgeformerError
from ridgeformer.files import make_folder, open_regular, remove, set_aside, write_whole
from ridgeformer.models.file import fingerprint, save
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.tensors import digest, pack
from ridgeformer.training.store.files import (
    COURSE,
    INIT,
    JOURNAL,
    MODEL,
    RECORD,
    SPEC,
    Course,
    DamagedRunWarning,
    Journal,
    Record,
    checksum,
    has_record,
    is_finished,
    read_course,
    read_run,
)

__all__ = ["Folder", "Memory", "Store", "as_store"]


class Memory:
    """A store for runs of this process only; it has the methods of `Folder`."""

    def __init__(self) -> None:
        self._finished: dict[str, tuple[LinearTransformer, Record]] = {}
        self._courses: dict[str, Course] = {}

    def check(self, problem: BaseProblem) -> None:
        """Accept any problem. See `Folder.check`."""

    def find(self, name: str, spec: Record) -> tuple[LinearTransformer, Record] | None:
        """Return a finished run. See `Folder.find`."""
        return self._finished.get(name)

    def course(self, name: str, record: Record) -> Course:
        """Return what a descent recorded. See `Folder.course`."""
        return self._courses.get(name, {})

    def journal(
        self, name: str, spec: Record, writer: Mapping[str, Any], init: LinearTransformer | None = None
    ) -> Journal:
        """Return an empty journal. See `Folder.journal`."""
        return Journal()

    def store(
        self, name: str, model: LinearTransformer, record: Record, journal: Journal, course: Course | None = None
    ) -> None:
        """Keep a finished run. See `Folder.store`."""
        self._finished[name], self._courses[name] = (model, record), course or {}

    def where(self, name: str) -> Path | None:
        """Return None: there is no folder. See `Folder.where`."""
        return None


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
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"runs need the name of a folder; got {path!r}. Pass a path such as runs/.")
        self.path, self.interval = Path(path), interval
        if os.path.exists(self.path) and not os.path.isdir(self.path):  # never raise, unlike Path's own methods
            raise InputError(f"runs need a folder; {self.path} is a file. Choose another place.")
        make_folder(self.path, "runs")

    def check(self, problem: BaseProblem) -> None:
        """Refuse a problem that could not be read back.

        Args:
            problem: What is trained on.

        Raises:
            InputError: Its class has no name.
        """
        problem.check_named()

    def find(self, name: str, spec: Record) -> tuple[LinearTransformer, Record] | None:
        """Return a finished run. A damaged one is set aside, with a warning, and counts as missing.

        Args:
            name: The name of the run.
            spec: Its spec, as JSON.

        Returns:
            The model and its record; None if this folder has no such finished run.
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
            read_course(folder, record)
        except DamageError as error:
            set_aside(*(folder / name for name in (MODEL, RECORD, COURSE)))
            _warn(f"{error} The run is trained again; its damaged files are kept as {folder / 'damaged-*'}")
            return None
        with contextlib.suppress(InputError, OSError):  # a folder that cannot be written to can still be read
            self._check_spec(folder, spec)
            remove(folder / JOURNAL)  # left there by a kill between the record and its removal
        return model, record

    def course(self, name: str, record: Record) -> Course:
        """Return what a descent recorded.

        Args:
            name: The name of a finished run.
            record: Its record.

        Returns:
            The arrays by name; none for other runs.
        """
        return read_course(self.path / name, record)

    def journal(
        self, name: str, spec: Record, writer: Mapping[str, Any], init: LinearTransformer | None = None
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
        make_folder(folder, "runs")
        self._check_spec(folder, spec)
        if init is not None:
            save(init, folder / INIT)
        return Journal(folder / JOURNAL, self.interval, {"run": name, **writer})

    def store(
        self, name: str, model: LinearTransformer, record: Record, journal: Journal, course: Course | None = None
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
            write_whole(folder / COURSE, pack(course, {"format": "ridgeformer-course"}))
            sealed["course"] = digest(course)
        sealed["checksum"] = checksum(sealed)
        write_whole(folder / RECORD, json.dumps(sealed, indent=2).encode())
        journal.remove()

    def where(self, name: str) -> Path | None:
        """Return the folder of a run, whether it exists or not.

        Args:
            name: The name of the run.

        Returns:
            The folder.
        """
        return self.path / name

    @staticmethod
    def _check_spec(folder: Path, spec: Record) -> None:
        """Write `spec.json`; one that is damaged, or of another run, is set aside with a warning."""
        known, text = folder / SPEC, json.dumps(spec, indent=2).encode()
        if known.exists() and not _holds(known, text):
            set_aside(known)
            _warn(f"{known} is damaged, or of another run; it is written anew")
        if not known.exists():
            write_whole(known, text)


Store = Memory | Folder


def as_store(out: str | os.PathLike[str] | Store | None) -> Store:
    """Return a store from one, from the name of a folder, or from None.

    Args:
        out: A store, a folder, or None for a store in memory.

    Returns:
        The store.

    Raises:
        InputError: It is none of these.
        StorageError: The folder cannot be made.
    """
    if out is None:
        return Memory()
    return out if isinstance(out, Memory | Folder) else Folder(out)


def _holds(path: Path, content: bytes) -> bool:
    try:
        with open_regular(path, "a spec") as file:
            return file.read() == content
    except RidgeformerError:
        return False


def _warn(message: str) -> None:
    warnings.warn(message, DamagedRunWarning, stacklevel=6)


def _difference(stored: Record, asked: Record) -> str:
    return "other " + ", ".join(sorted(key for key in {*stored, *asked} if stored.get(key) != asked.get(key)))
