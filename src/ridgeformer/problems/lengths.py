"""How many examples a context has: always the same number, or one drawn for each sequence.

>>> Lengths("10..40").mean
25.0
>>> Lengths([10, 20, 40]), Lengths(20).fixed
(10,20,40, True)
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse, shown
from ridgeformer.validation import integer
from ridgeformer.values import Value, read_only

__all__ = ["Lengths"]

MOST = 1 << 52
MOST_VALUES = 10_000
RULE = "the context must be a number of examples, a range or a list of them"
EXAMPLES = 'Pass 20, range(10, 41), [10, 20, 40], "10..40" or "10,20,40".'


class Lengths(Value):
    """The number of examples n in a context, each of the given values with the same probability.

    Args:
        context: A number; a range or a list of different numbers; or text: `20`, `10..40` (both ends included) or
            `10,20,40`. A `Lengths` is taken as it is.

    Attributes:
        values: The possible numbers, ascending, [K].
    """

    def __init__(self, context: object) -> None:
        if isinstance(context, Lengths):
            self.values: NDArray[np.int64] = context.values
            return
        lengths = _parsed(context) if isinstance(context, str) else context
        if isinstance(lengths, np.ndarray) and not lengths.ndim:  # it says that it is iterable
            lengths = None
        if isinstance(lengths, bool) or not isinstance(lengths, Integral | Iterable):
            refuse(RULE, shown(context), EXAMPLES)
        if isinstance(lengths, Integral):
            lengths = [int(lengths)]
        if isinstance(lengths, range) and len(lengths) > MOST_VALUES:
            refuse(
                f"there may be at most {MOST_VALUES:,} context lengths",
                f"{len(lengths):,}",
                "Pass a range with a larger step.",
            )
        numbers = [integer("context", n, 1, MOST) for n in lengths]
        if not numbers:
            empty = "an empty range or list"
            backwards = isinstance(context, str) and ".." in context
            refuse(RULE, f"{shown(context)}, which ends before it begins" if backwards else empty, EXAMPLES)
        if len(set(numbers)) < len(numbers):
            refuse("context lengths must differ from each other", shown(context), "Name each of them once.")
        self.values = read_only(np.array(sorted(numbers), np.int64))

    @property
    def fixed(self) -> bool:
        """Whether all contexts have the same number of examples."""
        return len(self.values) == 1

    @property
    def least(self) -> int:
        """The smallest number."""
        return int(self.values[0])

    @property
    def most(self) -> int:
        """The largest number."""
        return int(self.values[-1])

    @property
    def mean(self) -> float:
        """The expected number."""
        return float(self.values.mean())

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the numbers of examples for uniform random numbers.

        Args:
            u: Numbers in (0, 1), [B].

        Returns:
            Numbers of examples, [B].
        """
        return np.asarray(self.values[np.minimum((u * len(self.values)).astype(np.int64), len(self.values) - 1)])

    def describe(self) -> str:
        """Say in a sentence how many examples a context has."""
        if self.fixed:
            return f"Every context has n = {self} examples."
        number = f"n is one of the {len(self.values)} numbers {self}"
        return f"{number}, each with the same probability; the mean is {self.mean:g}."

    def __str__(self) -> str:
        if len(self.values) > 2 and self.most - self.least == len(self.values) - 1:
            return f"{self.least}..{self.most}"
        return ",".join(map(str, self.values.tolist()))

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lengths) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(str(self))


def _parsed(text: str) -> list[int] | range:
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            return range(first, last + 1)
        return [int(part) for part in text.split(",")]
    except ValueError:
        refuse(RULE, shown(text), EXAMPLES)
