"""Count the files of the package between `ridgeformer train` and the first call of the native core.

Usage: python -m benchmarks.walk. It prints the files in the order in which a function of theirs is first called. A
reader who follows a training from the command line meets as many.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import ridgeformer
from ridgeformer import _core
from ridgeformer.cli import cli

ROOT = Path(ridgeformer.__file__).parent
COMMAND = ["train", "--family", "diag", "--layers", "2", "--noise", "uniform(0,5)"]
OPTIONAL = ("torch", "jax", "sklearn", "__main__", "xla")


class _Reached(BaseException):
    """The native core is called."""


def files_before_the_core() -> list[str]:
    """Return the files of the package that run before the first native call, in order."""
    for path in ROOT.rglob("*.py"):  # imports are not part of the walk
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not set(parts) & set(OPTIONAL):
            importlib.import_module(".".join(("ridgeformer", *parts)).removesuffix(".__init__"))
    files: dict[str, None] = {}

    def follow(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)) and code.co_name != "<module>":
            files[str(Path(code.co_filename).relative_to(ROOT))] = None

    def reached(*arguments: Any) -> None:
        raise _Reached

    known = {name: getattr(_core, name) for name in ("sample", "evaluate", "step", "uniforms")}
    for name in known:
        setattr(_core, name, reached)
    sys.setprofile(follow)
    try:
        cli.main(args=COMMAND, standalone_mode=False)
    except _Reached:
        pass
    finally:
        sys.setprofile(None)
        for name, function in known.items():
            setattr(_core, name, function)
    return list(files)


if __name__ == "__main__":
    walked = files_before_the_core()
    print(*walked, sep="\n")
    print(f"{len(walked)} files")
