"""Parameters as engines take them: the tuple that a family's `kernel()` gives.

It is `(omega,)` with omega [L, 2, 2] for Diag and GD++, row where the flow goes to and column where it comes from, x
first; `(P, Q)`, each [L, H, D, D], for Full; or `(Pv, Qv, Ps, Qs)`, [L, H, v, v] and [L, H, s, s], for channels of v
vectors and s scalars.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeformer.engine.arrays import Float, cast, floats
from ridgeformer.errors import refuse, shown
from ridgeformer.validation import integer

__all__ = ["Parameters", "check_parameters"]

Parameters = tuple[Float, ...]

MOST_LAYERS, MOST_HEADS = 1 << 16, 1 << 12
NAMES = {1: ("omega",), 2: ("P", "Q"), 4: ("Pv", "Qv", "Ps", "Qs")}  # of parameters, by their number


def check_parameters(
    parameters: object, dim: int, dtype: np.dtype[Any] | None = None, extra: int = 0, length: int | None = None
) -> Parameters:
    """Return finite parameters for `dim` coordinates beside y.

    Args:
        parameters: (omega,) with omega [L, 2, 2]; (P, Q), each [L, H, D, D]; or (Pv, Qv, Ps, Qs), [L, H, v, v] and
            [L, H, s, s].
        dim: How many coordinates a token has beside y.
        dtype: The dtype to convert to; None for the one that they share.
        extra: How many of these coordinates are beside x; omegas have none.
        length: The dimension of x; None for any that fits.

    Returns:
        The parameters.

    Raises:
        InputError: They have the wrong type or shape, or are not finite.
    """
    if not isinstance(parameters, tuple) or len(parameters) not in NAMES:
        refuse(
            "parameters must be a tuple (omega,), (P, Q) or (Pv, Qv, Ps, Qs)",
            shown(parameters),
            "Pass what family.kernel() gives.",
        )
    names = NAMES[len(parameters)]
    given = [floats(name, value) for name, value in zip(names, parameters, strict=True)]
    if len({value.dtype for value in given}) > 1:
        found = ", ".join(f"{name} {value.dtype}" for name, value in zip(names, given, strict=True))
        refuse(f"{_listed(names)} must have the same dtype", found, "Convert all of them to float64.")
    if len(given) == 1:
        _check_omega(given[0].shape, extra)
    elif len(given) == 2:
        _check_matrices(given[0].shape, given[1].shape, dim)
    else:
        _check_channels([value.shape for value in given], dim + 1, length)
    if len(given) > 1:
        integer("the number of heads", given[0].shape[1], 1, MOST_HEADS)
    integer("the number of layers", given[0].shape[0], 1, MOST_LAYERS)
    checked = tuple(given) if dtype is None else tuple(cast(value, dtype) for value in given)
    for name, value in zip(names, checked, strict=True):
        if not np.isfinite(value).all():
            refuse(
                f"{name} must be finite in {value.dtype}", "NaN or infinity in it", "Check the steps that led to them."
            )
    return checked


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1]


def _check_omega(shape: tuple[int, ...], extra: int) -> None:
    if len(shape) != 3 or shape[1:] != (2, 2):
        refuse("omega must have shape (L, 2, 2)", f"shape {shape}", "Pass what family.kernel() gives.")
    if extra:
        refuse("omegas are for tokens (x, y)", f"{extra} further coordinates", "Use a Full model.")


def _check_matrices(P: tuple[int, ...], Q: tuple[int, ...], dim: int) -> None:
    D = dim + 1
    if len(P) != 4 or P[2:] != (D, D):
        refuse(
            f"P must have shape (L, H, {D}, {D}) for dimension {dim}",
            f"shape {P}",
            "Use parameters of the same dimension.",
        )
    if Q != P:
        refuse("P and Q must have the same shape", f"P {P}, Q {Q}", "Give both (L, H, d+1, d+1).")


def _check_channels(shapes: list[tuple[int, ...]], D: int, length: int | None) -> None:
    for name, shape in zip(NAMES[4], shapes, strict=True):
        if len(shape) != 4 or shape[2] != shape[3] or shape[2] == 0 or shape[:2] != shapes[0][:2]:
            refuse(
                "Pv and Qv must have shape (L, H, v, v), and Ps and Qs shape (L, H, s, s)",
                f"{name} of shape {shape}" + (f" and Pv of shape {shapes[0]}" if name != "Pv" else ""),
                "Pass what family.kernel() gives.",
            )
    for one, two in ((0, 1), (2, 3)):
        if shapes[one] != shapes[two]:
            names = NAMES[4][one], NAMES[4][two]
            refuse(
                f"{_listed(names)} must have the same shape",
                f"{names[0]} {shapes[one]}, {names[1]} {shapes[two]}",
                "Pass what family.kernel() gives.",
            )
    v, s = shapes[0][2], shapes[2][2]
    d, left = divmod(D - s, v)
    if d < 1 or left or (length is not None and d != length):
        wanted = "v d + s" if length is None else f"{v * length + s}"
        refuse(
            f"tokens with v = {v} vectors of length d and s = {s} scalars must have {wanted} coordinates",
            f"{D} of them" + ("" if length is None else f" with d = {length}"),
            "Choose a layout with (v - 1) d + s - 1 coordinates beside x and y.",
        )
