"""The engines and threads of this machine: which engines there are, which one is used, and how many threads.

Only this module knows how many threads there are, those of BLAS and PyTorch included.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ridgeformer.engine.interface import Engine
from ridgeformer.errors import refuse, shown

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


@functools.cache
def available() -> tuple[str, ...]:
    """Names of the engines this machine can run, fastest first, and `jax` last, which is never chosen by itself."""
    jax = importlib.util.find_spec("jax")
    others = ("numpy",) if jax is None or jax.origin is None else ("numpy", "jax")
    try:
        from ridgeformer.engine.native import instruction_sets
    except ImportError:
        return others
    return (*instruction_sets(), *others)


def named(name: str) -> Engine:
    """The engine called `name`.

    Args:
        name: one of `available()`.

    Returns:
        The engine, the same object every time.

    Raises:
        InputError: there is no such engine on this machine.
    """
    if not isinstance(name, str) or name not in available():
        known = ", ".join(available())
        refuse(f"an engine (RIDGEFORMER_ENGINE) must be one of {known}", shown(name), "Choose one of these.")
    return _made(name)


@functools.cache
def _made(name: str) -> Engine:
    if name == "numpy":
        from ridgeformer.engine.reference import NumpyEngine

        return NumpyEngine()
    if name == "jax":
        from ridgeformer.engine.xla import JaxEngine

        return JaxEngine(_made(available()[0]))
    from ridgeformer.engine.native import NativeEngine

    return NativeEngine(name)


@functools.cache
def current() -> Engine:
    """The engine everything uses unless told otherwise."""
    wanted = os.environ.get("RIDGEFORMER_ENGINE")
    if wanted:
        return named(wanted)
    if available()[0] == "numpy":
        warnings.warn(
            "ridgeformer's native core is not built, so NumPy does its work, far slower. "
            "Reinstall where a C++17 compiler is available; RIDGEFORMER_ENGINE=numpy silences this.",
            RuntimeWarning,
            stacklevel=2,
        )
    return named(available()[0])


def resolve(engine: Engine | str | None) -> Engine:
    """An engine from one, from its name, or from None: the current one.

    Args:
        engine: an `Engine`, one of the names that `available()` lists, or None.

    Returns:
        The engine.

    Raises:
        InputError: it is none of these.
    """
    if engine is None:
        return current()
    return engine if isinstance(engine, Engine) else named(engine)
