"""The engines of this machine: which ones there are, and which one is used."""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings

from ridgeformer.engine.interface import Engine
from ridgeformer.errors import refuse, shown


@functools.cache
def available() -> tuple[str, ...]:
    """Names of the engines this machine can run, fastest first, and `jax` last, which is never chosen by itself."""
    jax = importlib.util.find_spec("jax")
    fallbacks = ("numpy",) if jax is None or jax.origin is None else ("numpy", "jax")
    try:
        from ridgeformer.engine.native import instruction_sets
    except ImportError:
        return fallbacks
    return (*instruction_sets(), *fallbacks)


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
        names = ", ".join(available())
        refuse(f"an engine (RIDGEFORMER_ENGINE) must be one of {names}", shown(name), "Choose one of these.")
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
    name = os.environ.get("RIDGEFORMER_ENGINE")
    if name:
        return named(name)
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
