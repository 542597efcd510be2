"""Arrays in safetensors files that prove their own integrity: a checksum covers names, shapes, numbers and metadata.

The format has no checksum of its own, so one flipped bit would give another model without any sign of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ridgeformer.files import open_regular, short

Arrays = dict[str, NDArray[Any]]
CHECKSUM = "checksum"
LARGEST_HEADER = 1 << 24  # bytes


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
    own = {name: np.array(value, order="C", subok=False) for name, value in arrays.items()}
    return bytes(save(own, metadata={**metadata, CHECKSUM: checksum(own, metadata)}))


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
    known = metadata.pop(CHECKSUM, None)
    if checked and known is not None and known != checksum(arrays, metadata):
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
