"""The files in the folder of a run: their names, and how they are read and checked.

A run is a folder named after its spec: `record.json`, `model.safetensors`, and, until it is finished,
`journal.safetensors`; a descent also has `course.safetensors`, and a run from a given model `init.safetensors`. The
record is written last: a folder with one holds a finished run. It carries a checksum of itself and of the model.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ridgeformer.errors import DamageError, InputError, RidgeformerError, short
from ridgeformer.files import DamagedFile, digest, path_of, read_json, read_tensors
from ridgeformer.models.file import fingerprint, read_file
from ridgeformer.models.transformer import LinearTransformer

RunRecord = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
Course = Mapping[str, NDArray[Any]]
FORMAT, VERSION = "ridgeformer-run", 2
SPEC, RECORD, MODEL = "spec.json", "record.json", "model.safetensors"
JOURNAL, COURSE, INIT = "journal.safetensors", "course.safetensors", "init.safetensors"
AGAIN = "Move its folder away and train it again."


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
    path = Path(folder) / MODEL
    if not path.exists():
        raise DamageError(f"a finished run has a model; {path} does not exist. {AGAIN}")
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
    path = folder / INIT
    if not path.exists():
        raise DamageError(f"a run from a given start has a stored one; {path} does not exist. {AGAIN}")
    model = read_file(path)[0]
    if fingerprint(model) != spec["init"]:
        raise DamageError(f"a run's start must be the one that its spec names; {path} is another one. {AGAIN}")
    return model


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
    path = path_of(folder, "a run needs the name of its folder", "runs/diag-4x1-...", folder=True)
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
