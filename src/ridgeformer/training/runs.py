"""Runs on disk. A run is a folder named after its spec: `record.json`, `model.safetensors`, and, until it is finished,
`journal.safetensors`. The record is written last: a folder with one holds a finished run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ridgeformer.errors import InputError
from ridgeformer.files import make_folder, write_whole
from ridgeformer.model import LinearTransformer
from ridgeformer.model_file import load, save
from ridgeformer.training.journal import Journal

__all__ = ["AGAIN", "Folder", "Memory", "Runs", "is_finished", "read_record", "read_run"]

Record = dict[str, Any]
FORMAT, VERSION = "ridgeformer-run", 1
AGAIN = "Move its folder away and train it again."


class Memory:
    """Runs of this process only."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[LinearTransformer, Record]] = {}

    def find(self, name: str, spec: Record) -> tuple[LinearTransformer, Record] | None:
        """A finished run."""
        return self._found.get(name)

    def journal(self, name: str, spec: Record) -> Journal:
        """What an unfinished run has done so far: nothing."""
        return Journal()

    def store(self, name: str, model: LinearTransformer, record: Record, journal: Journal) -> None:
        """Keep a finished run."""
        self._found[name] = model, record

    def where(self, name: str) -> Path | None:
        """The folder of a run: none."""
        return None


class Folder:
    """Runs in the sub-folders of one folder. Several processes may share it: files are replaced whole."""

    def __init__(self, path: str | os.PathLike[str], interval: float = 1.0) -> None:
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"runs need the name of a folder; got {path!r}. Pass a path such as runs/.")
        self.path, self.interval = Path(path), interval
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"runs need a folder; {self.path} is a file. Choose another place.")
        make_folder(self.path, "runs")

    def find(self, name: str, spec: Record) -> tuple[LinearTransformer, Record] | None:
        """A finished run, if this folder has it."""
        folder = self.path / name
        if folder.exists() and not folder.is_dir():
            raise InputError(f"a run needs a folder; {folder} is a file. Move it away.")
        if not (folder / "record.json").exists():
            return None
        model, record = read_run(folder)
        self._same(folder, record["spec"], spec)
        return model, record

    def journal(self, name: str, spec: Record) -> Journal:
        """What an unfinished run has done so far."""
        folder = self.path / name
        make_folder(folder, "runs")
        known = folder / "spec.json"
        if known.exists():
            self._same(folder, _json(known), spec)
        else:
            write_whole(known, json.dumps(spec, indent=2).encode())
        return Journal(folder / "journal.safetensors", self.interval)

    def store(self, name: str, model: LinearTransformer, record: Record, journal: Journal) -> None:
        """Keep a finished run."""
        folder = self.path / name
        save(model, folder / "model.safetensors", record)
        write_whole(folder / "record.json", json.dumps(record, indent=2).encode())
        journal.remove()

    def where(self, name: str) -> Path | None:
        """The folder of a run."""
        return self.path / name

    @staticmethod
    def _same(folder: Path, stored: Record, asked: Record) -> None:
        if stored != asked:
            different = sorted(key for key in {*stored, *asked} if stored.get(key) != asked.get(key))
            raise InputError(
                f"a run's folder must hold that run; {folder} holds one with another {', '.join(different)}. "
                "Choose another folder, or move that one away."
            )


Runs = Memory | Folder


def read_run(folder: str | os.PathLike[str]) -> tuple[LinearTransformer, Record]:
    """The model and the record of a finished run."""
    found = read_record(folder)
    try:
        return load(Path(folder) / "model.safetensors"), found
    except InputError as error:
        raise InputError(f"{error} Or: {AGAIN[0].lower()}{AGAIN[1:]}") from error


def read_record(folder: str | os.PathLike[str]) -> Record:
    """The record of a finished run."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"a run is a folder; {path} is {'a file' if path.exists() else 'not there'}. Check the path.")
    record = path / "record.json"
    if not record.exists():
        if (path / "spec.json").exists():
            raise InputError(f"a finished run has a record.json; {path} has none yet. Train it to its end first.")
        raise InputError(f"a run's folder has a record.json; {path} has none, nor runs in it. Name another folder.")
    found = _json(record)
    if found.get("format") != FORMAT or not isinstance(found.get("spec"), dict):
        raise InputError(f"a record must be one that ridgeformer wrote; {record} is not. {AGAIN}")
    if not isinstance(found.get("version"), int) or found["version"] > VERSION:
        raise InputError(f"{record} was written by a newer ridgeformer. Upgrade this one to read it.")
    return found


def is_finished(folder: Path) -> bool:
    """Whether a folder holds a finished run, by its record alone."""
    try:
        return "status" in _json(folder / "record.json")
    except InputError:
        return False


def _json(path: Path) -> Record:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} must hold JSON; it does not ({error}). {AGAIN}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold a JSON object; it holds something else. {AGAIN}")
    return found
