"""The threads of this machine. Only this module knows how many there are, those of BLAS and PyTorch included."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ridgeformer.errors import refuse

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

VARIABLE = "RIDGEFORMER_THREADS"

_lock = threading.Lock()
_inside = 0  # how many `with one_blas_thread()` blocks are running
_limit: Any = None


def default_threads() -> int:
    """RIDGEFORMER_THREADS, or the number of cores this process may use."""
    text = os.environ.get(VARIABLE)
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        refuse(
            f"{VARIABLE} must be a whole number from 1 to 1024",
            repr(text),
            "Set it to a whole number from 1 to 1024, or unset it.",
        )
    return int(text)


@contextlib.contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Limit the threads of everything inside this block: our own, those of BLAS, and of child processes.

    Args:
        count: How many threads.

    Returns:
        A context manager.
    """
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(count)
    try:
        with _controller(len(sys.modules)).limit(limits=count, user_api="blas"):
            _leave_control()
            yield
    finally:
        _leave_control()
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread inside this block.

    Our matrices are small and many, and our own threads or processes use all cores already: the threads that BLAS would
    start for each product only fight with them. Blocks may be nested and run in several threads at once.
    """
    global _inside, _limit
    controller = _controller(len(sys.modules))
    with _lock:
        if _inside == 0:
            _limit = controller.limit(limits=1, user_api="blas")
            _leave_control()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.restore_original_limits()
                _leave_control()


@functools.lru_cache(maxsize=1)
def _controller(modules: int) -> ThreadpoolController:
    """The BLAS libraries of this process, listed again when the number of loaded modules has changed.

    NumPy's and SciPy's are both loaded by then; PyTorch or another package may bring one more later. They are listed in
    a thread of its own: threadpoolctl does so in a callback from C, where Ctrl-C in the main thread would be lost.
    """
    from concurrent.futures import ThreadPoolExecutor

    import scipy.linalg  # noqa: F401  has a BLAS of its own
    from threadpoolctl import ThreadpoolController

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(ThreadpoolController).result()


def _leave_control() -> None:
    """Since threadpoolctl 3.8 only the thread that set a limit can lift it; the last to leave may be another one."""
    from threadpoolctl import OpenBLASController

    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread()
