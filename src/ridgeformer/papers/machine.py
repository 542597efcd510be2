"""Facts about this installation and this machine, for records of measurements."""

from __future__ import annotations

import platform
from typing import Any

from ridgeformer import engine
from ridgeformer._version import __version__

__all__ = ["facts"]


def facts() -> dict[str, Any]:
    """Return the version, the engines, the number of threads, and the versions of Python and NumPy."""
    import numpy

    return {
        "version": __version__,
        "engine": engine.current().name,
        "engines": list(engine.available()),
        "threads": engine.default_threads(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
    }
