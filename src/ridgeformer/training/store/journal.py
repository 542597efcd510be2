"""The work that a run has finished so far, on disk: the reason why it can be killed at any moment.

A run is a sequence of pieces of work, each a pure function of earlier ones. Their results are kept here by name; a run
that starts again finds them, skips the work, and ends with the same bits. The file is replaced as a whole, so it is
always complete. Every piece has a checksum: of a damaged file, what comes before the damage is used, and a warning says
so.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import InputError
from ridgeformer.files import parse_json, remove, short, write_whole
from ridgeformer.tensors import DamagedFile, digest, pack, read_tensors

Arrays = dict[str, NDArray[Any]]
FORMAT = "ridgeformer-journal-2"
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
        header = {"format": FORMAT, "facts": facts, "facts checksum": _checksum(facts)}
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
        if header.get("format") != FORMAT:
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
