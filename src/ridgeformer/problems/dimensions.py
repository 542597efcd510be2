"""Dimensions that vary, and numbers of examples that depend on the dimension, such as d..4d.

>>> ContextRule("d..4d").at(3)
3..12
>>> ContextRule("d+2,1.5d").at(4)
6
>>> dimensions("2..4,8")
(2, 3, 4, 8)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import islice
from numbers import Integral
from typing import Any

import numpy as np

from ridgeformer.errors import refuse, shown
from ridgeformer.problems.lengths import Lengths
from ridgeformer.validation import integer
from ridgeformer.values import Value

__all__ = ["ContextRule", "dimensions", "varies"]

MOST_DIM = 4096
TERM = re.compile(r"(?:(?P<factor>\d*\.?\d*)d(?P<more>[+-]\d+)?|(?P<number>\d+))")
RULE = "a context that depends on d must be made of terms such as 2d, d+2 or 20, ranges of them or lists"
EXAMPLES = 'Pass "d..4d", "2d" or "d+2,2d,4d".'


class ContextRule(Value):
    """The number of examples as a function of the dimension d: each of the numbers has the same probability.

    Args:
        context: Text with terms such as `2d`, `1.25d`, `d+2` or `20`, ranges `d..4d` of them, or a list `d,2d`; or what
            `Lengths` takes, which is then the same for every dimension. A product such as 1.25d is rounded up. Numbers
            that occur twice at some dimension count once there.

    Raises:
        InputError: It is none of these.
    """

    _rule: Any

    def __init__(self, context: object) -> None:
        given: Any = context._rule if isinstance(context, ContextRule) else context
        self.depends = isinstance(given, str) and "d" in given
        self._rule = given if self.depends else Lengths(given)
        if self.depends:
            for term in self._rule.replace("..", ",").split(","):
                self._term(term, 1)

    def at(self, dim: int) -> Lengths:
        """Return the numbers of examples at one dimension.

        Args:
            dim: The dimension d.

        Returns:
            The numbers.

        Raises:
            InputError: A range ends before it begins at this dimension, or a number is below 1.
        """
        if not self.depends:
            lengths: Lengths = self._rule
            return lengths
        numbers: set[int] = set()
        for part in self._rule.split(","):
            first, *last = (self._term(text, dim) for text in part.split(".."))
            numbers |= set(range(first, last[0] + 1)) if last else {first}
            if len(last) > 1 or (last and last[0] < first):
                refuse(RULE, f"{shown(self._rule)}, whose range is {first}..{last[-1]} at d = {dim}", EXAMPLES)
        return Lengths(sorted(numbers))

    def _term(self, text: str, dim: int) -> int:
        term = TERM.fullmatch(text.strip())
        if term is None or term["factor"] == ".":
            refuse(RULE, shown(self._rule), EXAMPLES)
        if term["number"]:
            return int(term["number"])
        return math.ceil(float(term["factor"] or 1) * dim - 1e-9) + int(term["more"] or 0)

    def __str__(self) -> str:
        return str(self._rule)

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContextRule) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def varies(dim: object) -> bool:
    """Return whether a dimension is given as several.

    Args:
        dim: A number, or a range or list of them, or text such as `2..32`.

    Returns:
        Whether there are several.
    """
    several = isinstance(dim, str) and not dim.strip().isdigit()
    return several or (isinstance(dim, Iterable) and not isinstance(dim, str))


def dimensions(dim: object) -> tuple[int, ...]:
    """Return the dimensions that are named, in ascending order.

    Args:
        dim: A number; a range or a list; or text such as `10`, `2..32`, `2,4,8` or `2..8,16`.

    Returns:
        The dimensions.

    Raises:
        InputError: One of them is not a whole number from 1 to 4096, or is named twice.
    """
    given: Any = dim
    if isinstance(dim, str):
        try:
            ends = [[int(end) for end in part.split("..")] for part in dim.split(",")]
        except ValueError:
            ends = []
        for end in (end for part in ends for end in part):
            integer("dim", end, 1, MOST_DIM)  # before a range of any size is written out
        named = (d for first, *last in ends for d in range(first, (last or [first])[0] + 1))
        given = list(islice(named, MOST_DIM + 1))  # one more than can differ from each other
    if isinstance(given, np.ndarray) and not given.ndim:  # it says that it is iterable
        given = None
    if isinstance(given, Integral):
        given = [given]
    if given is None or not isinstance(given, Iterable) or not (given := list(given)):
        refuse("dim must be a dimension, or a range or list of them", shown(dim), 'Pass 10, "2..32" or [2, 4, 8].')
    numbers = [integer("dim", d, 1, MOST_DIM) for d in given]
    if len(set(numbers)) < len(numbers):
        refuse("dimensions must differ from each other", shown(dim), "Name each of them once.")
    return tuple(sorted(numbers))
