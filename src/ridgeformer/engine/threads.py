"""How many threads to use where nobody says."""

from __future__ import annotations

import os

from ridgeformer.errors import refuse

__all__ = ["default_threads"]


def default_threads() -> int:
    """RIDGEFORMER_THREADS, or the number of cores this process may use."""
    text = os.environ.get("RIDGEFORMER_THREADS")
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        refuse(
            "RIDGEFORMER_THREADS must be a whole number from 1 to 1024",
            repr(text),
            "Set it to a whole number from 1 to 1024, or unset it.",
        )
    return int(text)
