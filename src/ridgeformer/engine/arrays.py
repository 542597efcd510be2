"""Arrays as engines take them: of the type `np.ndarray` itself, and of a dtype that engines compute with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse, shown

Float = NDArray[np.floating[Any]]
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def plain_array(name: str, value: object, kinds: str, rule: str) -> NDArray[Any]:
    """Return an array whose type is `np.ndarray` itself, read-only or not, with numbers of one of these kinds.

    Args:
        name: What it is, for the error message.
        value: What was given.
        kinds: The kinds of dtype that are allowed, as NumPy's `dtype.kind` names them.
        rule: What the array must hold, for the error message.

    Returns:
        The array.

    Raises:
        InputError: It is no array, has masked entries, or another dtype.
    """
    if not isinstance(value, np.ndarray):
        refuse(
            f"{name} must be a NumPy array", shown(value), f"Convert it, for example with np.asarray({name}, float)."
        )
    if type(value) is not np.ndarray:
        if np.ma.is_masked(value):
            refuse(f"{name} must have no masked entries", "a masked array", "Fill them or drop those sequences.")
        value = np.asarray(value)
    if value.dtype.kind not in kinds:
        refuse(
            f"{name} must hold {rule}", f"dtype {value.dtype}", f"Convert it, for example with {name}.astype(float)."
        )
    return value


def floats(name: str, value: object) -> Float:
    """Return a float32 or float64 array, in this machine's byte order.

    Args:
        name: What it is, for the error message.
        value: What was given.

    Returns:
        The array.

    Raises:
        InputError: It is not such an array.
    """
    if type(value) is np.ndarray and (value.dtype is SINGLE or value.dtype is DOUBLE):  # the common case
        return value
    given = plain_array(name, value, "f", "float32 or float64 numbers")
    if given.dtype.itemsize not in (4, 8):
        refuse(f"{name} must hold float32 or float64 numbers", f"dtype {given.dtype}", f"Use {name}.astype(float).")
    return given.astype(given.dtype.newbyteorder("="), copy=False)


def cast(value: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the same numbers in another dtype; those too large for it become infinite.

    Args:
        value: An array.
        dtype: The dtype.

    Returns:
        The array, copied only if its dtype is another.
    """
    if value.dtype is dtype or value.dtype == dtype:
        return value
    with np.errstate(all="ignore"):
        return value.astype(dtype)


def pieces(vector: NDArray[Any], shapes: Iterable[tuple[int, ...]]) -> Iterator[NDArray[Any]]:
    """Cut a vector into arrays that follow one another in it.

    Args:
        vector: The numbers of all arrays.
        shapes: The shape of each array.

    Yields:
        The arrays, which are views of the vector.
    """
    start = 0
    for shape in shapes:
        end = start + math.prod(shape)
        yield vector[start:end].reshape(shape)
        start = end
