"""Checks of numbers and arrays: each returns the value in its proper type, or raises an `InputError`."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import re
from collections.abc import Callable, Collection, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import refuse, shown

Float = NDArray[np.floating[Any]]
Text = TypeVar("Text", bound=str)
Called = TypeVar("Called", bound=Callable[..., Any])
Value = TypeVar("Value")
NAMES = {  # of arguments, with what other packages call them
    "dim": "d dimension n_features",
    "context": "n length n_examples n_samples",
    "noise": "sigma",
    "features": "covariance",
    "tasks": "prior",
    "rate": "lr learning_rate step_size",
    "steps": "epochs n_steps iterations",
    "attention": "attn",
    "predictors": "models predictor",
    "layers": "depth n_layers num_layers",
    "heads": "n_heads num_heads",
    "batch": "batch_size n_batch",
    "seed": "random_state",
    "sequences": "n_sequences n_samples samples n",
    "out": "folder",
    "family": "model",
}
SYNONYMS: dict[str, list[str]] = {}
for _name, _words in NAMES.items():
    for _word in _words.split():
        SYNONYMS.setdefault(_word, []).append(_name)
Array = NDArray[np.float64]
MOST = (1 << 64) - 1  # the largest whole number, unless a smaller limit is given


def keywords(**elsewhere: str) -> Callable[[Called], Called]:
    """Decorate a function or a class so that messages refuse wrong and missing arguments, and name the right ones.

    Args:
        **elsewhere: Where to pass a keyword of another function instead, by its name, such as
            `rate="protocol=GradientDescent(rate=0.01)"`.

    Returns:
        The decorator.

    >>> @keywords()
    ... def fit(layers, seed=0): ...
    >>> fit(n_layers=3)
    Traceback (most recent call last):
        ...
    ridgeformer.errors.InputError: fit has the arguments layers, seed; got n_layers. Write layers.
    >>> fit()
    Traceback (most recent call last):
        ...
    ridgeformer.errors.InputError: fit must be given layers; got no layers. Pass layers; help(fit) describes it.
    """

    def decorate(called: Called) -> Called:
        if isinstance(called, type):  # its constructor is checked; the class stays what it is
            called.__init__ = decorate(called.__init__)  # type: ignore[misc]
            return called
        parameters = inspect.signature(called).parameters
        names = list(parameters)
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = [word for word, p in parameters.items() if p.default is p.empty and p.kind not in variadic]
        name = called.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @functools.wraps(called)
        def checked(*args: Any, **named: Any) -> Any:
            for wrong in named.keys() - names:
                meant = [word for word in (wrong, *SYNONYMS.get(wrong, ())) if word in names or word in elsewhere]
                meant = meant or difflib.get_close_matches(wrong, names, 1)
                written = [elsewhere.get(word, word) for word in meant] or ["only these"]
                listed = ", ".join(word for word in names if word != "self")
                refuse(f"{name} has the arguments {listed}", wrong, f"Write {written[0]}.")
            if missing := [word for word in needed[len(args) :] if word not in named]:
                rule = f"{name} must be given {', '.join(word for word in needed if word not in ('self', 'cls'))}"
                refuse(rule, f"no {missing[0]}", f"Pass {missing[0]}; help({name}) describes it.")
            return called(*args, **named)

        return cast("Called", checked)

    return decorate


def register(what: str, kind: type[Any], known: dict[str, Any]) -> None:
    """Enter a class under its name.

    Args:
        what: What it is a class of, for the error message.
        kind: The class, with an attribute `name`. It may be defined again.
        known: The classes by their names.

    Raises:
        InputError: Its name is no name, or that of another class.
    """
    name = kind.name
    if not (isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_-]{0,30}", name)):
        rule = f"the name of a {what} must be a lower-case letter and up to 30 more letters, digits, _ or -"
        refuse(rule, shown(name), f'Write name = "my-{what}", for example.')
    registered = known.setdefault(name, kind)
    if (registered.__module__, registered.__qualname__) != (kind.__module__, kind.__qualname__):
        received = f"{name!r}, which is {registered.__module__}.{registered.__qualname__}"
        refuse(f"the name of a {what} must be its own", received, "Choose another name.")
    known[name] = kind


def number(name: str, value: object, least: float = 0.0, most: float = math.inf) -> float:
    """Return a value as a float, if it is a number within bounds and not NaN.

    Args:
        name: What it is, for the error message.
        value: What was given.
        least: The smallest value that is allowed.
        most: The largest value that is allowed.

    Returns:
        The value as a float.

    Raises:
        InputError: It is not such a number.
    """
    if type(value) is float and least <= value <= most:  # the common case, ten times faster
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        refuse(f"{name} must be a number", shown(value), f"Pass a number of at least {least:g}.")
    try:
        result = float(value)
    except OverflowError:
        refuse(f"{name} must be a number that a float can hold", shown(value), "Pass a smaller number.")
    if not result >= least:
        refuse(f"{name} must be at least {least:g}", result, f"Pass a number of at least {least:g}.")
    if result > most:
        refuse(f"{name} must be at most {most:g}", result, f"Pass {most:g} or less.")
    return result


def positive(name: str, value: object, example: float) -> float:
    """Return a number that is positive and finite.

    Args:
        name: What the number is, for the error message.
        value: The value.
        example: A number that would do, for the error message.

    Returns:
        The number.

    Raises:
        InputError: It is not.
    """
    try:
        result = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        result = math.inf
    if not 0 < result < math.inf:
        refuse(f"{name} must be positive and finite", shown(value), f"Pass {example:g}, for example.")
    return result


def flag(name: str, value: object) -> bool:
    """Return a value as a bool, if it is True or False.

    Args:
        name: What it is, for the error message.
        value: What was given.

    Returns:
        The value as a bool.

    Raises:
        InputError: It is neither.
    """
    if not isinstance(value, bool | np.bool_):
        refuse(f"{name} must be True or False", shown(value), "Pass True or False.")
    return bool(value)


def choice(name: str, value: object, known: Collection[Text], remedy: str = "Choose one of these.") -> Text:
    """Return a text, if it is one of the known ones.

    Args:
        name: What it is, for the error message.
        value: What was given, of any type.
        known: The known texts.
        remedy: What to do about anything else, for the error message.

    Returns:
        The text.

    Raises:
        InputError: It is none of them.
    """
    if isinstance(value, str) and value in known:
        return value  # type: ignore[return-value]
    words = " or ".join(known) if len(known) == 2 else "one of " + ", ".join(known)
    refuse(f"{name} must be {words}", shown(value), remedy)


def precision(dtype: object) -> type[np.float32] | type[np.float64]:
    """Return float32 or float64, whichever is named.

    Args:
        dtype: Anything that NumPy takes for a dtype.

    Returns:
        `np.float32` or `np.float64`.

    Raises:
        InputError: It names neither.
    """
    for allowed in (np.float32, np.float64):
        try:
            if np.dtype(dtype) == allowed:  # type: ignore[call-overload]
                return allowed
        except Exception:  # NumPy raises many types for what is no dtype
            break
    refuse("dtype must be float32 or float64", shown(dtype), "Pass np.float32 or np.float64.")


def integer(name: str, value: object, least: int = 1, most: int = MOST) -> int:
    """Return a value as an int, if it is a whole number within bounds.

    Args:
        name: What it is, for the error message.
        value: What was given.
        least: The smallest value that is allowed.
        most: The largest value that is allowed. By default 2^64 - 1: what 64 bits can hold.

    Returns:
        The value as an int.

    Raises:
        InputError: It is not such a number.
    """
    if type(value) is int and least <= value <= most:  # the common case, ten times faster
        return value
    if isinstance(value, bool) or not isinstance(value, Integral):
        refuse(f"{name} must be a whole number", shown(value), f"Pass a whole number of at least {least}.")
    result = int(value)
    if result < least:
        refuse(f"{name} must be at least {least}", shown(result), f"Pass {least} or more.")
    if result > most:
        refuse(f"{name} must be at most {most}", shown(result), f"Pass {most} or less.")
    return result


def listed(name: str, value: object, example: str) -> list[Any]:
    """Return what a list or another iterable holds.

    Args:
        name: What it is, for the error message.
        value: What was given.
        example: Such a list, for the error message.

    Returns:
        Its elements.

    Raises:
        InputError: It cannot be iterated over, or is a text.
    """
    if not isinstance(value, str | bytes):
        try:
            return list(value)  # type: ignore[call-overload, no-any-return]
        except TypeError:  # an array without axes has the method, but no elements
            pass
    refuse(f"{name} must be a list", shown(value), f"Pass {example}.")


def layer_number(value: object, layers: int) -> int:
    """Return the number of a layer, counted from 0; negative numbers count from the end.

    Args:
        value: What was given.
        layers: How many layers there are.

    Returns:
        The number, from 0 to layers - 1.

    Raises:
        InputError: There is no such layer.
    """
    if isinstance(value, Integral) and int(value) >= layers:
        remedy = "Layers are counted from 0, and -1 is the last one."
        refuse(f"layer must be at most {layers - 1}", shown(int(value)), remedy)
    return integer("layer", value, -layers, layers - 1) % layers


def unmasked(name: str, value: Value) -> Value:
    """Return a value without masked entries, below which NumPy, JAX and scikit-learn would use what lies there.

    Args:
        name: What it is, for the error message.
        value: Anything.

    Returns:
        The same value.

    Raises:
        InputError: It is a masked array in which something is masked.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):  # objects may fail where they are asked more
        refuse(f"{name} must have no masked entries", "a masked array", "Fill them or drop them first.")
    return value


def real(name: str, value: ArrayLike) -> Float:
    """Return a value as an array of real numbers, of any shape.

    Args:
        name: What it is, for the error message.
        value: An array or nested lists.

    Returns:
        The array: float32 if it is that already, else float64.

    Raises:
        InputError: It is not rectangular, or does not hold real numbers.
    """
    unmasked(name, value)
    try:
        data = np.asarray(value)
    except ValueError:
        refuse(f"{name} must be a rectangular array", shown(value), "Pass rows of equal length.")
    except Exception:  # whatever a class of the user's own does
        refuse(f"{name} must be an array of numbers", shown(value), f"Convert it, e.g. np.asarray({name}, float).")
    if data.dtype.kind not in "fiu":
        refuse(f"{name} must hold real numbers", f"dtype {data.dtype}", f"Convert it, e.g. np.asarray({name}, float).")
    result: Float = data.astype(np.float32 if data.dtype == np.float32 else np.float64, copy=False)
    return result


def axes(value: object) -> int:
    """Return how many axes an array or nested lists have; -1 for lists of different lengths, which are no array.

    Args:
        value: Anything.

    Returns:
        The number of axes; 0 for what is no list.
    """
    try:
        return np.ndim(value)  # type: ignore[arg-type]
    except ValueError:
        return -1
    except Exception:  # whatever a class of the user's own does
        return 0


def fits(shape: Sequence[int], wanted: Sequence[int | str]) -> bool:
    """Tell whether an array has a shape.

    Args:
        shape: Its shape.
        wanted: The extent of every axis; a letter stands for any extent.

    Returns:
        Whether it has.
    """
    pairs = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all(isinstance(want, str) or have == want for have, want in pairs)


def array(name: str, value: ArrayLike, shape: tuple[int | str, ...]) -> Float:
    """Return a value as an array of finite real numbers of a given shape.

    Args:
        name: What it is, for the error message.
        value: An array or nested lists.
        shape: The shape; a text in it, such as "L", stands for any extent.

    Returns:
        The array: float32 if it is that already, else float64.

    Raises:
        InputError: It has another shape, is empty, or holds something that is not a finite real number.
    """
    result = real(name, value)
    if result.ndim == 0 and len(shape) == 1:
        refuse(f"{name} must be a list of numbers", "one number", f"Pass [{float(result)!r}].")
    if not fits(result.shape, shape):
        expected = ", ".join(map(str, shape))
        refuse(f"{name} must have shape ({expected})", f"shape {result.shape}", "Reshape or slice it to fit.")
    if result.size == 0:
        refuse(f"{name} must not be empty", f"shape {result.shape}", "Pass at least one element along every axis.")
    if not np.isfinite(result).all():
        refuse(f"{name} must be finite", "NaN or infinity in it", "Drop or repair those entries first.")
    return result


def check_covariance(
    name: str, matrix: ArrayLike, *, definite: bool = False, shape: tuple[int | str, ...] = ("d", "d")
) -> Array:
    """Return covariance matrices as float64.

    Args:
        name: What they are, for messages.
        matrix: The matrices, [..., d, d].
        definite: Whether all eigenvalues must be positive; otherwise they may also be zero.
        shape: The shape, as for `array`; one matrix by default.

    Returns:
        The matrices, exactly symmetric.

    Raises:
        InputError: One is not square, not symmetric, or has a negative eigenvalue, or a zero one where none may be.
    """
    matrices = array(name, matrix, shape)
    if matrices.shape[-2] != matrices.shape[-1]:
        refuse(f"{name} must be square", f"shape {matrices.shape}", "Pass a matrix [d, d].")
    transposed, scale = np.swapaxes(matrices, -2, -1), np.abs(matrices).max((-2, -1), keepdims=True)
    slack = (1e-5 if matrices.dtype == np.float32 else 1e-9) * scale
    excess = np.abs(matrices - transposed) - slack
    if excess.max() > 0:
        place = np.unravel_index(excess.argmax(), excess.shape)
        i, j = map(int, place[-2:])
        received = f"{matrices[place]:g} at [{i}, {j}] and {transposed[place]:g} at [{j}, {i}]"
        refuse(f"{name} must be symmetric", received, "Pass (A + A.T) / 2, if A is meant to be symmetric.")
    values = np.asarray((matrices.astype(np.float64) + transposed) / 2)
    least = np.linalg.eigvalsh(values)[..., :1, None]
    if definite and not (least > 1e-12 * scale).all():
        received = f"a smallest eigenvalue of {least.min():.3g}"
        refuse(f"{name} must be positive definite", received, "Add a multiple of the identity.")
    if (least < -slack).any():
        remedy = "Pass A @ A.T for some matrix A, for example."
        refuse(f"{name} must have no negative eigenvalue", f"{least.min():.3g}", remedy)
    return values


def check_metric(metric: object, count: int, dim: int) -> Array:
    """Return the metric of a loss, if it is symmetric and has no negative eigenvalue.

    Args:
        metric: The covariance of the queries, [d, d] for all sequences or [B, d, d].
        count: The number of sequences, B.
        dim: The dimension d.

    Returns:
        The metric.

    Raises:
        InputError: It is no covariance, or its shape does not fit.
    """
    matrices = real("metric", metric)  # type: ignore[arg-type]
    return check_covariance("metric", matrices, shape=(dim, dim) if matrices.ndim == 2 else (count, dim, dim))


def fitting(name: str, value: Array, dim: int) -> Array:
    """Return an array whose length is the dimension.

    Args:
        name: What it is, for the error message.
        value: The array, [d, ...].
        dim: The dimension d.

    Returns:
        The array.

    Raises:
        InputError: It is one for another dimension.
    """
    if len(value) != dim:
        remedy = f"Use dim={len(value)}, or pass one for dimension {dim}."
        refuse(f"{name} must fit the dimension {dim}", f"one for dimension {len(value)}", remedy)
    return value
