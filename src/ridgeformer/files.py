"""The only module that writes files: whole, synced to disk, and then renamed into place.

A file appears under its name when it is complete. After a power cut there is either the old file or the new one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from ridgeformer.errors import InputError

__all__ = ["make_folder", "write_whole"]


def make_folder(folder: Path, what: str) -> None:
    """Make a folder, with its parents, and check that files can be written there.

    Args:
        folder: The folder. It may exist already.
        what: What will be stored there, in the plural. It begins the error message.

    Raises:
        InputError: The folder cannot be made, or is not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{what} need a folder that can be made; {_short(folder)} cannot ({_reason(error)}). Choose another."
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{what} need a writable folder; {_short(folder)} is not. Choose another.")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears under its name only when it is complete and on disk.

    Args:
        path: The file. An existing one is replaced at the moment when the new one is complete.
        content: All that it will hold.

    Raises:
        InputError: The file cannot be written. What was there before is intact.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except (OSError, ValueError) as error:
        raise InputError(
            f"a file must go to a folder that can be written to; {_short(path)} cannot be written ({_reason(error)}). "
            "What was stored before is intact: free some space or correct the permissions, then run the same again."
        ) from error
    finally:
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Put a folder's list of names on disk, so that a rename survives a power cut."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open folders, and has no need to
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _short(path: Path) -> str:
    """A path for a message, cut where it would fill the screen."""
    text = str(path)
    return text if len(text) <= 200 else f"{text[:100]}...{text[-50:]}"
