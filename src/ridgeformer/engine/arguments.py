"""What an engine takes. Each function checks one argument and returns it in the one form that engines compute with.

Parameters are the tuple that a family's `kernel()` gives: `(omega,)` with omega [L, 2, 2] for Diag and GD++, row
where the flow goes to and column where it comes from, x first; `(P, Q)`, each [L, H, D, D], for Full; or
`(Pv, Qv, Ps, Qs)`, [L, H, v, v] and [L, H, s, s], for channels of v vectors and s scalars.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine.law import MOST_DIM, Choices, Law, Layout
from ridgeformer.errors import refuse, shown
from ridgeformer.validation import integer, number

__all__ = [
    "Float",
    "Key",
    "Parameters",
    "Target",
    "check_batch",
    "check_ceiling",
    "check_choices",
    "check_flag",
    "check_key",
    "check_law",
    "check_layout",
    "check_parameters",
    "check_sequences",
    "check_target",
    "check_threads",
]

Float = NDArray[np.floating[Any]]
Parameters = tuple[Float, ...]
Target = Literal["ridge", "task"]

MOST_LAYERS, MOST_HEADS = 1 << 16, 1 << 12
MOST_SEQUENCES = 1 << 32
MOST_THREADS = 1024
NAMES = {1: ("omega",), 2: ("P", "Q"), 4: ("Pv", "Qv", "Ps", "Qs")}  # of parameters, by their number
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


class Key(NamedTuple):
    """Names a stream of random sequences. Sequence i of a key is the same whatever the batch and the threads.

    Between engines, and between float32 and float64, it is the same to rounding; in about one sequence of a million
    rounding decides whether a random number is rejected, and then that sequence differs.

    Attributes:
        seed: The seed, 0 to 2^64 - 1.
        stream: A number that tells independent streams of one seed apart, 0 to 2^32 - 1.
        step: A further such number, 0 to 2^64 - 1.
    """

    seed: int = 0
    stream: int = 0
    step: int = 0


def check_key(key: object) -> Key:
    """Return a key whose numbers are Python ints in range.

    Args:
        key: What was given.

    Returns:
        The key.

    Raises:
        InputError: It is no key, or a number is out of range.
    """
    if not isinstance(key, Key):
        refuse("key must be a Key", shown(key), "Pass Key(seed, stream, step).")
    return Key(
        integer("the key's seed", key.seed, 0, (1 << 64) - 1),
        integer("the key's stream", key.stream, 0, (1 << 32) - 1),
        integer("the key's step", key.step, 0, (1 << 64) - 1),
    )


def check_sequences(count: object, first: object) -> tuple[int, int]:
    """Return how many sequences there are, and the index of the first; `first + count` is at most 2^32.

    Args:
        count: How many, at least 1.
        first: The index of the first, at least 0.

    Returns:
        Count and first, as Python ints.

    Raises:
        InputError: A number is out of range.
    """
    start = integer("first", first, 0, MOST_SEQUENCES - 1)
    return integer("the number of sequences", count, 1, MOST_SEQUENCES - start), start


def check_law(law: object) -> Law:
    """Return a law, which has checked itself.

    Args:
        law: What was given.

    Returns:
        The law.

    Raises:
        InputError: It is no law.
    """
    if not isinstance(law, Law):
        refuse("law must be a Law", shown(law), "Pass Law(dim, context), for example.")
    return law


def check_layout(layout: object) -> Layout:
    """Return a layout of tokens, which has checked itself.

    Args:
        layout: What was given.

    Returns:
        The layout.

    Raises:
        InputError: It is no layout.
    """
    if not isinstance(layout, Layout):
        refuse("layout must be a Layout", shown(layout), "Pass Layout(), for example.")
    return layout


def check_choices(choices: object, law: Law) -> Choices:
    """Return what was drawn for each sequence, as far as the law needs it.

    Args:
        choices: What was given.
        law: The law of the sequences.

    Returns:
        Choices with arrays in the types that engines compute with.

    Raises:
        InputError: The choices do not fit the law, or hold numbers out of range.
    """
    if not isinstance(choices, Choices):
        refuse("choices must be Choices", shown(choices), "Pass Choices(sigma), for example.")
    sigma = _levels(choices.sigma)
    counts, task = None, None
    if law.least < law.context:
        counts = _whole("counts", choices.counts, len(sigma), law.least, law.context)
    elif choices.counts is not None:
        refuse("counts are for laws whose n varies", f"counts and n = {law.context}", "Leave them out.")
    if law.pool is not None:
        task = _whole("task", choices.task, len(sigma), -1, len(law.pool) - 1)
    elif choices.task is not None:
        refuse("task numbers are for laws with a pool", "task numbers without a pool", "Leave them out.")
    return Choices(sigma, counts, task)


def _levels(sigma: object) -> NDArray[np.float64]:
    """Noise levels [B], finite and not negative, as float64."""
    given = _array("sigma", sigma, "fiu", "real numbers")
    if given.ndim != 1 or given.size == 0:
        refuse(
            "sigma must have shape (B,) with at least one sequence",
            f"shape {given.shape}",
            "Pass one level per sequence.",
        )
    levels = _cast(given, DOUBLE)
    if not (levels.min() >= 0 and levels.max() < np.inf):  # NaN passes neither
        wrong = levels[~((levels >= 0) & (levels < np.inf))][0]
        refuse("sigma must be finite and not negative", f"{wrong} in it", "Pass noise levels of 0 or more.")
    return levels


def _whole(name: str, value: object, count: int, least: int, most: int) -> NDArray[np.int64]:
    """Whole numbers [B] within bounds, as int64."""
    given = _array(name, value, "iu", "whole numbers")
    if given.shape != (count,):
        refuse(f"{name} must have shape ({count},) to fit sigma", f"shape {given.shape}", "Pass one per sequence.")
    if given.min() < least or given.max() > most:
        wrong = given[(given < least) | (given > most)][0]
        refuse(f"{name} must lie between {least} and {most}", f"{wrong} in it", "Draw them from the law's own range.")
    return given.astype(np.int64)


def check_batch(gram: object, target: object, metric: object, counted: object) -> tuple[Float, Float, Float | None]:
    """Return Gram matrices, targets and a metric in the dtype of the Gram matrices.

    Values that are not finite are let through.

    Args:
        gram: Gram matrices, [B, D, D].
        target: Targets, [B, c].
        metric: A metric, [c, c] or [B, c, c], or None.
        counted: c, from 1 to D - 1; None for D - 1.

    Returns:
        The three arrays.

    Raises:
        InputError: An array has the wrong type or shape.
    """
    moments = _floats("gram", gram)
    shape = moments.shape
    if len(shape) != 3 or shape[1] != shape[2]:
        refuse("gram must have shape (B, d+1, d+1)", f"shape {shape}", "Pass one square matrix for each sequence.")
    if shape[0] == 0:
        refuse("gram must hold at least one sequence", f"shape {shape}", "Leave out the call if there are none.")
    if not 2 <= shape[1] <= MOST_DIM + 1:
        refuse(f"gram must be for a dimension d of 1 to {MOST_DIM}", f"shape {shape}", "Its last two axes are d+1.")
    integer("the number of sequences in gram", shape[0], 1, MOST_SEQUENCES)
    length = shape[1] - 1 if counted is None else integer("counted", counted, 1, shape[1] - 1)
    goal = _floats("target", target)
    wanted = shape[0], length
    if goal.shape != wanted:
        refuse(f"target must have shape {wanted} to fit gram", f"shape {goal.shape}", "Pass a vector of d for each.")
    weight = None
    if metric is not None:
        weight = _cast(_floats("metric", metric), moments.dtype)
        if weight.shape not in ((length, length), (shape[0], length, length)):
            refuse(
                f"metric must have shape {(length, length)} or {(shape[0], length, length)} to fit target",
                f"shape {weight.shape}",
                "Pass one for all sequences or one for each.",
            )
    return moments, _cast(goal, moments.dtype), weight


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
    given = [_floats(name, value) for name, value in zip(names, parameters, strict=True)]
    if len({value.dtype for value in given}) > 1:
        found = ", ".join(f"{name} {value.dtype}" for name, value in zip(names, given, strict=True))
        refuse(f"{_listed(names)} must have the same dtype", found, "Convert them to one.")
    if len(given) == 1:
        _check_omega(given[0].shape, extra)
    elif len(given) == 2:
        _check_matrices(given[0].shape, given[1].shape, dim)
    else:
        _check_channels([value.shape for value in given], dim + 1, length)
    if len(given) > 1:
        integer("the number of heads", given[0].shape[1], 1, MOST_HEADS)
    integer("the number of layers", given[0].shape[0], 1, MOST_LAYERS)
    checked = tuple(given) if dtype is None else tuple(_cast(value, dtype) for value in given)
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


def check_ceiling(ceiling: object) -> float:
    """Return a ceiling of losses: at least 0, or infinity.

    Args:
        ceiling: What was given.

    Returns:
        The ceiling as a float.

    Raises:
        InputError: It is not such a number.
    """
    return number("ceiling", ceiling)


def check_target(target: object) -> Target:
    """Return a target: `ridge` or `task`.

    Args:
        target: What was given.

    Returns:
        The target.

    Raises:
        InputError: It is neither.
    """
    if isinstance(target, str):
        if target == "ridge":
            return "ridge"
        if target == "task":
            return "task"
    refuse("target must be ridge or task", shown(target), "Choose one of these.")


def check_flag(name: str, value: object) -> bool:
    """Return a flag: True or False.

    Args:
        name: What it is, for the error message.
        value: What was given.

    Returns:
        The value as a bool.

    Raises:
        InputError: It is no bool.
    """
    if not isinstance(value, bool | np.bool_):
        refuse(f"{name} must be True or False", shown(value), "Pass a bool.")
    return bool(value)


def check_threads(threads: object) -> int | None:
    """Return a number of threads, or None for the default.

    Args:
        threads: What was given.

    Returns:
        The number from 1 to 1024, or None.

    Raises:
        InputError: It is out of range.
    """
    return None if threads is None else integer("threads", threads, 1, MOST_THREADS)


def _array(name: str, value: object, kinds: str, rule: str) -> NDArray[Any]:
    """An array whose type is `np.ndarray` itself, read-only or not, with numbers of one of these kinds."""
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


def _floats(name: str, value: object) -> Float:
    """A float32 or float64 array, in this machine's byte order."""
    if type(value) is np.ndarray and (value.dtype is SINGLE or value.dtype is DOUBLE):  # the common case
        return value
    given = _array(name, value, "f", "float32 or float64 numbers")
    if given.dtype.itemsize not in (4, 8):
        refuse(f"{name} must hold float32 or float64 numbers", f"dtype {given.dtype}", f"Use {name}.astype(float).")
    return given.astype(given.dtype.newbyteorder("="), copy=False)


def _cast(value: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same numbers in another dtype; those too large for it become infinite."""
    if value.dtype is dtype or value.dtype == dtype:
        return value
    with np.errstate(all="ignore"):
        return value.astype(dtype)
