"""Runs on disk.

A run is a folder named after its spec: `record.json`, `model.safetensors`, and, until it is finished,
`journal.safetensors`; a descent also has `course.safetensors`, and a run from a given model `init.safetensors`. The
record is written last: a folder with one holds a finished run.

The record carries a checksum of itself and of the model. A damaged run is reported, set aside and trained again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ridgeformer.errors import DamageError, InputError, RidgeformerError
from ridgeformer.files import make_folder, open_regular, read_json, remove, set_aside, short, write_whole
from ridgeformer.models.file import fingerprint, read_model, save
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.tensors import DamagedFile, digest, pack, read_tensors
from ridgeformer.training.journal import DamagedRunWarning, Journal

__all__ = [
    "AGAIN",
    "MODEL",
    "RECORD",
    "SPEC",
    "Folder",
    "Memory",
    "Runs",
    "has_record",
    "is_finished",
    "is_run",
    "read_course",
    "read_init",
    "read_record",
    "read_run",
]

Record = dict[str, Any]
Arrays = Mapping[str, NDArray[Any]]
FORMAT, VERSION = "ridgeformer-run", 2
SPEC, RECORD, MODEL = "spec.json", "record.json", "model.safetensors"
JOURNAL, COURSE, INIT = "journal.safetensors", "course.safetensors", "init.safetensors"
AGAIN = "Move its folder away and train it again."


class Memory:
    """A store for runs of this process only; it has the methods of `Folder`."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[LinearTransformer, Record]] = {}
        self._courses: dict[str, Arrays] = {}

    def find(self, name: str, spec: Record) -> tuple[LinearTransformer, Record] | None:
        """Return a finished run. See `Folder.find`."""
        return self._found.get(name)

    def course(self, name: str, record: Record) -> Arrays:
        """Return what a descent recorded. See `Folder.course`."""
        return self._courses.get(name, {})

    def journal(
        self, name: str, spec: Record, writer: Mapping[str, Any], init: LinearTransformer | None = None
    ) -> Journal:
        """Return an empty journal. See `Folder.journal`."""
        return Journal()

    def store(
        self, name: str, model: LinearTransformer, record: Record, journal: Journal, course: Arrays | None = None
    ) -> None:
        """Keep a finished run. See `Folder.store`."""
        self._found[name], self._courses[name] = (model, record), course or {}

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

    def find(self, name: str, spec: Record) -> tuple[LinearTransformer, Record] | None:
        """Return a finished run; one that is damaged is set aside, with a warning, and not found.

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

    def course(self, name: str, record: Record) -> Arrays:
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
        self, name: str, model: LinearTransformer, record: Record, journal: Journal, course: Arrays | None = None
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
        sealed["checksum"] = _checksum(sealed)
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


Runs = Memory | Folder


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
    found = read_record(folder)
    path = Path(folder) / MODEL
    if not path.exists():
        raise DamageError(f"a finished run has a model; {path} does not exist. {AGAIN}")
    model, inside = read_model(path)
    spec = found["spec"]
    family = model.family
    shape = {"family": family.name, "dim": model.dim, "layers": model.layers // family.loops}
    if "problem" in spec:  # a problem of the user's own, whose class knows its dimension
        del shape["dim"]
    wrong = [name for name, value in shape.items() if spec.get(name) != value]
    if wrong:
        raise DamageError(
            f"a run's model must be the one that was trained; {path} has another {', '.join(wrong)}. {AGAIN}"
        )
    # The model's file holds a record too, which vouches for one of version 1. Later ones have checksums, and
    # where two processes trained one run, the seconds in the model's file may be those of the other process.
    if found["version"] > 1:
        same = found.get("model") == fingerprint(model) and inside.get("spec") == spec
    else:
        same = _checksum(inside) == _checksum(found)
    if not same:
        raise DamageError(f"a run's model must be the one that was trained; {path} is another one. {AGAIN}")
    return model, found


def read_course(folder: Path, record: Record) -> Arrays:
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
    model = read_model(path)[0]
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
    record = path / RECORD
    if not has_record(path):
        if (path / SPEC).exists():
            raise InputError(f"a finished run has a record.json; {path} has none yet. Train it to its end first.")
        raise InputError(
            f"{short(path)} is not the folder of a run. If it holds runs, name one of them: `ridgeformer show` lists "
            "them."
        )
    try:
        found = read_json(record, "a record")
    except DamageError as error:
        raise DamageError(f"{error} {AGAIN}") from error
    if found.get("format") != FORMAT or not isinstance(found.get("spec"), dict):
        raise DamageError(f"a record must be one that ridgeformer wrote; {record} is not. {AGAIN}")
    version = found.get("version")
    if type(version) is int and version > VERSION:
        raise InputError(f"{record} was written by a newer ridgeformer. Upgrade this one to read it.")
    sealed = version != 1 or "checksum" in found  # version 1 had no checksum
    if type(version) is not int or version < 1 or (sealed and found.get("checksum") != _checksum(found)):
        raise DamageError(f"a record must be as it was written; {record} is damaged: its checksum differs. {AGAIN}")
    return found


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


def _checksum(record: Mapping[str, Any]) -> str:
    """Of all that a record says, but for the checksum itself."""
    text = json.dumps({name: value for name, value in record.items() if name != "checksum"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


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
