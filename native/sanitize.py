"""Build the core with the address and undefined-behaviour sanitisers and run its tests: `make sanitize`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "sanitize"
SKIPPED = "environment or process or without_the_core or ctrl_c or fork or unknown_engine"  # those start another Python
FILES = ["core", "engine", "channels", "arguments", "limits", "interrupt"]
TESTS = [*(f"tests/engine/test_{name}.py" for name in FILES), "-m", "not long", "-k", f"not ({SKIPPED})"]

# The editable install's finder would win over PYTHONPATH, so it goes first of all.
RUN = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "ScikitBuildRedirectingFinder"]
sys.path.insert(0, sys.argv[1])
import pytest, ridgeformer._core
assert ridgeformer._core.__file__.startswith(sys.argv[1]), ridgeformer._core.__file__
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def library(name: str) -> str:
    """Where the compiler keeps a runtime library."""
    compiler = os.environ.get("CXX", "g++")
    return subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> int:
    """Build, then test; the exit code is that of the tests."""
    settings = ["build-dir=" + str(BUILD / "cmake"), "cmake.define.RIDGEFORMER_SANITIZE=ON"]
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--upgrade"]
    install += ["--target", str(BUILD / "site"), *(f"--config-settings={setting}" for setting in settings), str(ROOT)]
    subprocess.run(install, check=True, cwd=ROOT)
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(library(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",  # Python itself leaks at exit
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONMALLOC": "malloc",
    }
    run = [sys.executable, "-c", RUN, str(BUILD / "site"), *TESTS]
    return subprocess.run(run, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
