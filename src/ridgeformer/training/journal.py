"""What a run has finished so far, on disk: the reason why it can be killed at any moment.

A run is a sequence of pieces of work, each a pure function of earlier ones. Their results are kept here by name; a run
that starts again finds them, skips the work, and ends with the same bits. The file is replaced as a whole, so it is
always complete.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.files import write_whole

__all__ = ["Journal"]

Arrays = dict[str, NDArray[Any]]


class Journal:
    """Results by name, the history of losses, and the seconds spent; in memory only where `path` is None."""

    def __init__(self, path: Path | None = None, interval: float = 1.0) -> None:
        self.path, self.interval = path, interval
        self.history: list[tuple[str, int, float]] = []  # phase, sequences used so far in this run, loss
        self.work = 0
        self._kept: dict[str, Arrays] = {}
        self._before = 0.0
        self._began = self._written = time.monotonic()
        if path is not None and path.exists():
            self._read(path)

    @property
    def seconds(self) -> float:
        """Time spent on this run, interruptions left out."""
        return self._before + time.monotonic() - self._began

    def recall(self, name: str) -> Arrays | None:
        """What was kept under this name."""
        return self._kept.get(name)

    def keep(self, name: str, arrays: Arrays) -> None:
        """Keep a finished piece of work, and from time to time write everything down."""
        self._kept[name] = arrays
        if time.monotonic() - self._written >= self.interval:
            self.write()

    def forget(self, name: str) -> None:
        """Drop what is no longer needed."""
        self._kept.pop(name, None)

    def note(self, phase: str, work: int, loss: float) -> None:
        """Add to the history: so many further sequences were used, and the loss is now this."""
        self.work += work
        self.history.append((phase, self.work, float(loss)))

    def write(self) -> None:
        """Write everything down."""
        if self.path is None:
            return
        from safetensors.numpy import save

        header = {
            "history": json.dumps(self.history),
            "seconds": repr(self.seconds),
            "names": json.dumps([*self._kept]),
        }
        tensors = {
            f"{number}/{key}": np.ascontiguousarray(value)
            for number, arrays in enumerate(self._kept.values())
            for key, value in arrays.items()
        }
        write_whole(self.path, save(tensors, metadata=header))
        self._written = time.monotonic()

    def remove(self) -> None:
        """Delete the file: the run is finished."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _read(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="numpy") as file:
                header = dict(file.metadata() or {})
                names = json.loads(header["names"])
                kept: dict[str, Arrays] = {name: {} for name in names}
                for tensor in file.keys():  # noqa: SIM118
                    number, key = tensor.split("/", 1)
                    kept[names[int(number)]][key] = file.get_tensor(tensor)
            history = [(str(phase), int(work), float(loss)) for phase, work, loss in json.loads(header["history"])]
            before = float(header["seconds"])
        except (SafetensorError, KeyError, ValueError, IndexError, TypeError, OSError) as error:
            warnings.warn(f"{path} is damaged ({error}); the run starts again from its beginning", stacklevel=4)
            return
        self._kept, self.history, self._before = kept, history, before
        self.work = history[-1][1] if history else 0
