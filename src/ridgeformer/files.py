"""The only module that writes, renames and removes files. They are written whole, synced, and renamed into place.

A file appears under its name when it is complete. After a power cut there is either the old file or the new one.
Reading is guarded too: pipes, devices and huge files are refused before anything of them is read. Arrays are stored as
safetensors with a checksum of names, shapes, numbers and metadata: the format has none of its own, so one flipped bit
would give another model without any sign of it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import DamageError, InputError, RidgeformerError, StorageError, refuse, short, shown

LARGEST = 1 << 30  # bytes that a file may have
LARGEST_TEXT = 1 << 24  # bytes that a JSON file may have
MOST_PARTS = 1_000_000  # values and containers that a JSON text may have: each takes up to 100 bytes of memory
DEEPEST = 100  # levels of JSON
WRONG_PATH = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP, errno.EINVAL)  # mistakes in a name, not of the system
Arrays = dict[str, NDArray[Any]]
CHECKSUM = "checksum"
LARGEST_HEADER = 1 << 24  # bytes


def path_of(value: object, rule: str, example: str, *, folder: bool = False) -> Path:
    """Return the name of a file or of a folder as a path.

    Args:
        value: What was given.
        rule: What needs the name, such as "a model needs the name of a file", for the error message.
        example: Such a name, for the error message.
        folder: Whether it is that of a folder, which may be `.`; by default it is that of a file.

    Returns:
        The path.

    Raises:
        InputError: It is no name, or one that the system cannot have.
    """
    try:
        path = Path(value)  # type: ignore[arg-type]
        if (path.name or (folder and value != "")) and b"\0" not in os.fsencode(path):
            return path
    except (TypeError, UnicodeEncodeError):  # bytes, and halves of characters
        pass
    refuse(rule, shown(str(value) if isinstance(value, Path) else value), f"Pass a path such as {example}.")


def make_folder(folder: Path, what: str) -> None:
    """Make a folder, with its parents, and check that files can be written there.

    Args:
        folder: The folder. It may exist already.
        what: What will be stored there, in the plural. It begins the error message.

    Raises:
        StorageError: The folder cannot be made, or is not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{what} need a folder that can be made; {short(folder)} cannot ({_reason(error)}). Choose another folder."
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(f"{what} need a writable folder; {short(folder)} is not. Choose another folder.")


def check_writable(folder: Path, what: str) -> None:
    """Refuse a folder into which no file can be written; some that allow it by their permissions take none.

    Args:
        folder: The folder.
        what: What the message says that it is for.

    Raises:
        StorageError: The folder does not exist, or takes no files.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        state = "is not writable" if folder.is_dir() else "is no folder" if folder.exists() else "does not exist"
        remedy = "Create it, or choose another folder." if state == "does not exist" else "Choose another folder."
        raise StorageError(f"{what} needs a writable folder; {folder} {state}. {remedy}") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears under its name only when it is complete and on disk.

    Args:
        path: The file. An existing one is replaced at the moment when the new one is complete.
        content: All that it will hold.

    Raises:
        StorageError: The file cannot be written. What was there before is intact.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):  # it would be replaced by a file
        raise _unwritten(path, OSError(errno.EINVAL, "it is a device or a pipe"))
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except (OSError, ValueError) as error:
        raise _unwritten(path, error) from error
    finally:
        with contextlib.suppress(OSError, ValueError):
            remove(temporary)


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file without syncing it, for logs that others read while they grow.

    Args:
        path: The file; it is made if it does not exist.
        content: What to add.

    Raises:
        StorageError: The file cannot be written.
    """
    try:
        with open(path, "ab") as file:
            file.write(content)
    except (OSError, ValueError) as error:
        raise _unwritten(path, error) from error


def remove(path: Path) -> None:
    """Delete a file, if it is there.

    Args:
        path: The file.
    """
    path.unlink(missing_ok=True)


def set_aside(*paths: Path) -> None:
    """Rename damaged files to `damaged-...`, names that are free, so that nothing is lost. Missing files are no error.

    Args:
        *paths: The files.
    """
    for path in paths:
        names = (f"damaged-{number}{path.name}" for number in ("", *(f"{n}-" for n in range(2, 1000))))
        free = next(name for name in names if not os.path.lexists(path.with_name(name)))
        with contextlib.suppress(OSError):
            os.replace(path, path.with_name(free))


@contextlib.contextmanager
def open_regular(path: Path, what: str, most: int = LARGEST) -> Iterator[BinaryIO]:
    """Open an ordinary file for reading.

    Args:
        path: The file.
        what: What it is, with its article: "a model". It begins the error message.
        most: The largest size in bytes.

    Yields:
        The open file.

    Raises:
        InputError: It does not exist, is a folder, a pipe or a device, is too large, or must not be read.
        StorageError: The system fails to read it.
    """

    def wrong(rule: str, state: str, remedy: str) -> InputError:
        return InputError(f"{what} must be {rule}; {short(path)} {state}. {remedy}")

    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise wrong("a file", "is a folder", "Name a file in it, such as model.safetensors.")
        if not stat.S_ISREG(status.st_mode):
            raise wrong("an ordinary file", "is a pipe or a device", "Name an ordinary file.")
        if status.st_size > most:
            size = f"{short(path)} has {status.st_size:,}"
            raise InputError(f"{what} may have {most:,} bytes; {size}. Name another file.")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise InputError(f"{what} must be a file; there is no file {short(path)!r}. Check the path.") from error
    except RidgeformerError:
        raise
    except PermissionError as error:
        raise wrong("a file that you may read", "is not", "Change its permissions.") from error
    except (OSError, ValueError) as error:
        rule, state = "a file that can be read", f"cannot ({_reason(error)})"
        if isinstance(error, ValueError) or error.errno in WRONG_PATH:
            raise wrong(rule, state, "Check the path.") from error
        remedy = "Check the disk or the network, then run this again."
        raise StorageError(str(wrong(rule, state, remedy))) from error


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Args:
        path: The file.
        what: What it is, with its article, for error messages.

    Returns:
        The object.

    Raises:
        InputError: It is not there, or is no ordinary file.
        StorageError: The system fails to read it.
        DamageError: It holds something else.
    """
    with open_regular(path, what, LARGEST_TEXT) as file:
        content = file.read()
    try:
        document = parse_json(content.decode())
    except ValueError as error:
        raise DamageError(f"{what} must hold JSON; {short(path)} does not ({short(error, 100)}).") from error
    if not isinstance(document, dict):
        raise DamageError(f"{what} must hold a JSON object; {short(path)} holds something else.")
    return document


def parse_json(text: str) -> Any:
    """Parse a JSON text, unless it is nested so deeply that Python could not compare or write it.

    Args:
        text: The text.

    Returns:
        The value that the text stands for.

    Raises:
        ValueError: It is not JSON, has more than a million parts, or is nested more than 100 deep.
    """
    if sum(map(text.count, ",[{")) > MOST_PARTS:
        raise ValueError(f"it has more than {MOST_PARTS:,} parts")
    try:
        parsed = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    level = [parsed]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    if level:
        raise ValueError("it is nested too deeply")
    return parsed


def _sync_folder(folder: Path) -> None:
    """Put a folder's list of names on disk, so that a rename survives a power cut."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open folders, and has no need to
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritten(path: Path, error: OSError | ValueError) -> StorageError:
    """The error that is raised where a file cannot be written."""
    if not os.path.isdir(path.parent):
        check_writable(path.parent, "a file")
    return StorageError(
        f"a file must go to a writable place; {short(path)} cannot be written ({_reason(error)}). What was stored "
        "before is intact: free some space, correct the permissions or choose another place, then run this again."
    )


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def jsonable(value: Any) -> Any:
    """Turn a value into one that JSON can hold: no NumPy types, and None for numbers that are not finite.

    Args:
        value: Numbers, texts, NumPy arrays, and dicts, lists and tuples of these.

    Returns:
        The same with dicts, lists, numbers, texts and None.

    >>> jsonable({"loss": np.array([0.5, np.inf]), "layers": (1, 2)})
    {'loss': [0.5, None], 'layers': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(name): jsonable(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


class DamagedFile(Exception):
    """A file is not what it was when it was written. The text says in what way."""


def digest(arrays: Mapping[str, NDArray[Any]], *texts: str) -> str:
    """Compute the SHA-256 of some texts and of arrays with their names, dtypes and shapes.

    Args:
        arrays: Arrays by name.
        *texts: Texts.

    Returns:
        The digest in hexadecimal digits.

    >>> digest({"a": np.zeros(2)}) == digest({"b": np.zeros(2)})
    False
    """
    checksum = hashlib.sha256(json.dumps(texts).encode())
    for name in sorted(arrays):
        value = np.asarray(arrays[name])
        checksum.update(json.dumps([name, value.dtype.str, value.shape]).encode())
        checksum.update(np.ascontiguousarray(value).data)
    return checksum.hexdigest()


def checksum(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> str:
    """Compute the checksum that a file carries.

    Args:
        arrays: The arrays of the file, by name.
        metadata: Its metadata without the checksum.

    Returns:
        The checksum in hexadecimal digits.
    """
    return digest(arrays, json.dumps(dict(metadata), sort_keys=True))


def pack(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Make the content of a safetensors file with a checksum in its metadata.

    Args:
        arrays: Arrays by name.
        metadata: Texts by name.

    Returns:
        The content of the file.
    """
    from safetensors.numpy import save

    # A copy of its own for every array: safetensors writes the memory of a view as it lies there.
    copies = {name: np.array(value, order="C", subok=False) for name, value in arrays.items()}
    return bytes(save(copies, metadata={**metadata, CHECKSUM: checksum(copies, metadata)}))


def read_tensors(
    path: Path, what: str, check: Callable[[Mapping[str, str]], None], *, checked: bool = True
) -> tuple[dict[str, str], Arrays]:
    """Read the metadata and the arrays of a file that `pack` made.

    Args:
        path: The file.
        what: What it is, with its article, for error messages.
        check: Called with the metadata before any array is read; may raise.
        checked: Whether to compare the checksum where there is one.

    Returns:
        The metadata without the checksum, and the arrays by name.

    Raises:
        InputError: There is no such file, or it cannot be read.
        DamagedFile: It is no safetensors file, or its checksum is another one.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    with open_regular(path, what) as file:
        head, metadata = _read_header(file)
        check(metadata)
        content = head + file.read()
    try:
        arrays = {name: np.asarray(value) for name, value in load(content).items()}
    except (SafetensorError, TypeError, ValueError, AttributeError, KeyError, MemoryError) as error:
        raise DamagedFile(f"it is truncated, corrupt or of another kind ({short(error, 100)})") from error
    stored = metadata.pop(CHECKSUM, None)
    if checked and stored is not None and stored != checksum(arrays, metadata):
        raise DamagedFile("its checksum is not that of its content")
    return metadata, arrays


def _read_header(file: BinaryIO) -> tuple[bytes, dict[str, str]]:
    """The bytes up to the arrays, and the metadata in them."""
    length = file.read(8)
    size = int.from_bytes(length, "little")
    if len(length) < 8 or size > LARGEST_HEADER:
        raise DamagedFile("it is truncated, corrupt or of another kind (no safetensors header)")
    text = file.read(size)
    try:
        header = json.loads(text.decode())
        metadata = header.get("__metadata__") or {}
        if len(text) < size or not all(isinstance(item, str) for pair in metadata.items() for item in pair):
            raise ValueError
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DamagedFile("it is truncated, corrupt or of another kind (no safetensors header)") from error
    return length + text, dict(metadata)
