"""Compile the core to WebAssembly for the playground, as in `python native/wasm.py core.wasm`.

Needs the package ziglang of PyPI (the extra `playground`), a compiler that brings everything else.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

NATIVE = Path(__file__).parent
OPTIONS = (
    *("-target", "wasm32-wasi", "-msimd128", "-O2", "-std=c++17", "-fno-exceptions", "-fno-rtti"),
    *("-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra", "-Wno-unknown-attributes"),
)


def build(target: Path) -> None:
    """Compile native/wasm.cpp for float and double, and link both into one file without debug information."""
    compiler = [sys.executable, "-m", "ziglang", "c++", *OPTIONS]
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for scalar in ("float", "double"):
            objects.append(str(Path(folder) / f"{scalar}.o"))
            command = [*compiler, f"-DRF_SCALAR={scalar}", "-c", "wasm.cpp", "-o", objects[-1]]
            subprocess.run(command, cwd=NATIVE, check=True)
        exported = ["-Wl,--export=malloc", "-Wl,--export=free", "-Wl,--strip-all"]
        subprocess.run([*compiler, "-mexec-model=reactor", *exported, *objects, "-o", str(target)], check=True)
    target.chmod(0o644)  # the linker makes it executable, which a page does not need


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
