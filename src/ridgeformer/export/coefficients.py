"""What the formats share: the numbers of a model, and text that can hold them."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Omegas
from ridgeformer.models.families import Diag, Full, GDpp
from ridgeformer.models.family import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.validation import array

Float = NDArray[np.floating[Any]]
NAMES = ("xx", "xy", "yx", "yy")  # what omega's entries act on and come from, row by row


def omegas(model: LinearTransformer) -> Float | None:
    """Return omega of every layer and head.

    A layer's heads add up. A model stored as `omega` has one of them. A Full model whose matrices are all of Diag's
    form has them too: training grows such models from Diag ones, and keeps them where it finds nothing better.

    Args:
        model: The model.

    Returns:
        The omegas in float64, [L, H, 2, 2]; None where P and Q are dense.
    """
    family: Family | None = model.family.astype(np.float64)
    if isinstance(family, Full):
        family = _as_diag(family)
    if family is None:
        return None
    kernel = family.kernel(model.dim)
    if not isinstance(kernel, Omegas):
        return None
    if isinstance(family, GDpp):
        family = family.to_diag()
    if isinstance(family, Diag) and "p" in family.arrays:
        p, q = family.arrays["p"], family.arrays["q"]
        with np.errstate(over="ignore"):
            return array("omega", p[..., :, None] * q[..., None, :], (*p.shape, 2))
    return np.asarray(kernel.omega)[:, None]


def _as_diag(full: Full) -> Diag | None:
    (P, Q), ends = full.dense(full.width), [0, -1]
    diag = Diag(P[..., ends, ends], Q[..., ends, ends])
    same = all(np.array_equal(one, other) for one, other in zip(diag.dense(full.width), (P, Q), strict=True))
    return diag if same else None


def exact(value: float) -> str:
    """Write a number as the shortest text that reads back as this float64; zero without a sign.

    Args:
        value: The number.

    Returns:
        The text.
    """
    return repr(float(value) + 0.0)


def title(model: LinearTransformer) -> str:
    """Describe a model, as in `Diag, 2 layers, 1 head, for d = 10`.

    Args:
        model: The model.

    Returns:
        One line of text.
    """
    name = {"full": "Full", "diag": "Diag", "gdpp": "GD++"}.get(model.family.name, model.family.name)
    same = " (with the matrices of a Diag)" if isinstance(model.family, Full) and omegas(model) is not None else ""
    return f"{name}{same}, {count(model.layers, 'layer')}, {count(model.heads, 'head')}, for d = {model.dim}"


def count(number: int, noun: str) -> str:
    """Write a number with its noun, as in `1 layer` and `2 layers`.

    Args:
        number: The number.
        noun: The noun in its singular.

    Returns:
        The text.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def harmless_lines(text: str, width: int = 110) -> list[str]:
    """Break a text into lines that may stand in a docstring or a comment of any format, whatever was in it.

    Args:
        text: The text.
        width: Characters per line, at most.

    Returns:
        The lines.
    """
    harmless = "".join(letter if letter.isprintable() and letter not in '\\"' else " " for letter in text)
    return textwrap.wrap(harmless, width)


def length_check(n: str, context: int | None) -> str:
    """Write the lines of a function that refuse contexts of another length.

    Args:
        n: The expression for the number of examples.
        context: The only number that is allowed; None for any.

    Returns:
        Python source, which ends with a new line unless it is empty.
    """
    if context is None:
        return ""
    message = f"this model is valid for contexts of exactly n = {context} examples; got {{{n}}}"
    return f'    if {n} != {context}:\n        raise ValueError(f"{message}")\n'


def paragraph(about: str) -> str:
    """Make a paragraph of a docstring.

    Args:
        about: The text.

    Returns:
        The paragraph, with an empty line before and after; nothing for an empty text.
    """
    lines = harmless_lines(about)
    return "\n".join(["", *lines, ""]) if lines else ""


def flat(values: Float, width: int = 116) -> str:
    """Write an array as lines of one flat list of numbers that read back exactly, a new line for every row.

    Args:
        values: The array, [L, ...]; [L, H, D, D] for matrices.
        width: Characters per line, at most.

    Returns:
        The lines, with a comment for every layer, and for every head if there are matrices.
    """
    lines = []
    for place in np.ndindex(values.shape[: 2 if values.ndim == 4 else 1]):
        block = np.atleast_1d(values[place])
        rows = block.reshape(-1, block.shape[-1])
        comment = "# " + ", ".join(f"{what} {k + 1}" for what, k in zip(("layer", "head"), place, strict=False))
        text = [line for row in rows for line in wrapped(", ".join(map(exact, row)) + ",", width - 20)]
        lines += [f"{text[0]}  {comment}"] if len(text) == 1 else [f"    {comment}", *text]
    return "\n".join(lines)


def wrapped(numbers: str, width: int) -> list[str]:
    """Break numbers separated by spaces into lines, without breaking a number.

    Args:
        numbers: The numbers.
        width: Characters per line, at most.

    Returns:
        The lines, indented.
    """
    return textwrap.wrap(
        numbers,
        width,
        initial_indent="    ",
        subsequent_indent="        ",
        break_on_hyphens=False,
        break_long_words=False,
    )
