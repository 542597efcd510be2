"""Parts of a problem: laws, dimensions and numbers of examples, each written as a text that is read back.

>>> Lengths("10..40").mean
25.0
>>> ContextRule("d..4d").at(3), ContextRule("d+2,1.5d").at(4)
(3..12, 6)
>>> dimensions("2..4,8")
(2, 3, 4, 8)
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable
from itertools import chain
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse, shown
from ridgeformer.validation import axes, integer
from ridgeformer.values import Described, Written, read_only

MOST_EXAMPLES, MOST_LENGTHS, MOST_DIM = 1 << 52, 10_000, 4096
TERM = re.compile(r"(?:(?P<factor>\d*\.?\d*)d(?P<more>[+-]\d+)?|(?P<number>\d+))")
DEPENDING = "a context that depends on d must be made of terms such as 2d, d+2 or 20, ranges of them or lists"
TERMS = 'Pass "d..4d", "2d" or "d+2,2d,4d".'


class PartOfProblem(Described):
    """The law of features or of tasks.

    Attributes:
        words: A sentence that says what the law is, with the names of its attributes in braces.
        usual: The name of the law of the seed paper.
    """

    words: ClassVar[str]
    usual: ClassVar[str]

    @classmethod
    def converted(cls, value: object) -> Any:
        """See `Described.converted`: None is the usual law, everything else a covariance."""
        return cls.known[cls.usual]() if value is None else cls.from_covariance(value)

    @classmethod
    @abstractmethod
    def from_covariance(cls, value: object) -> Self:
        """Return the Gaussian law with a covariance.

        Args:
            value: The covariance matrix, [d, d], or variances, [d].

        Returns:
            The law.

        Raises:
            InputError: It is neither.
        """

    @abstractmethod
    def law(self, dim: int) -> dict[str, Any]:
        """Return the arguments of an engine's `Law` that describe this part.

        Args:
            dim: The dimension d of features and tasks.

        Returns:
            The arguments by name.

        Raises:
            InputError: The part does not fit the dimension.
        """

    def describe(self, dim: int) -> str:
        """Say what this part is: `words`, with the attributes of the part filled in.

        Args:
            dim: The dimension d of features and tasks.

        Returns:
            A sentence without its full stop.
        """
        parts = {k: v.describe(dim) if isinstance(v, PartOfProblem) else v for k, v in vars(self).items()}
        return self.words.format(dim=dim, **parts)


def _ranges(text: str, term: Callable[[str], int]) -> list[range]:
    """The ranges that a text such as `2..8,16` lists, both ends included; a number alone is a range of one."""
    ends = [part.partition("..") for part in text.split(",")]
    return [range(term(first), term(last if dots else first) + 1) for first, dots, last in ends]


class _Numbers(NamedTuple):
    """Whole numbers of which a problem takes one or several: their names, the largest, a rule and a remedy."""

    name: str
    plural: str
    most: int
    rule: str
    remedy: str

    def listed(self, argument: Any) -> list[int]:
        """Different numbers, ascending, from one, a range or list of them, or text such as `2..8,16`."""
        parts = [argument] if isinstance(argument, range) else []
        if isinstance(argument, str):
            try:
                parts = _ranges(argument, int)
            except ValueError:
                refuse(self.rule, shown(argument), self.remedy)
            if not all(parts):
                refuse(self.rule, f"{shown(argument)}, which ends before it begins", self.remedy)
            for end in (end for part in parts for end in (part[0], part[-1])):  # before a range is written out
                integer(self.name, end, 1, self.most)
        if (many := sum(map(len, parts))) > MOST_LENGTHS:
            rule = f"there may be at most {MOST_LENGTHS:,} {self.plural}"
            refuse(rule, f"{many:,}", "Pass a range with a larger step.")
        values = list(chain(*parts)) if parts else [argument] if isinstance(argument, Integral) else argument
        if isinstance(argument, bool) or axes(values) != 1:
            refuse(self.rule, shown(argument), self.remedy)
        numbers = sorted(integer(self.name, value, 1, self.most) for value in values)
        if not numbers:
            refuse(self.rule, "an empty range or list", self.remedy)
        if len(set(numbers)) < len(numbers):
            refuse(f"{self.plural} must differ from each other", shown(argument), "Name each of them once.")
        return numbers


CONTEXTS = _Numbers(
    "context",
    "context lengths",
    MOST_EXAMPLES,
    "the context must be a number of examples, a range or a list of them",
    'Pass 20, range(10, 41), [10, 20, 40], "10..40" or "10,20,40".',
)
DIMENSIONS = _Numbers(
    "dim",
    "dimensions",
    MOST_DIM,
    "dim must be a dimension, or a range or list of them",
    'Pass 10, "2..32" or [2, 4, 8].',
)


class Lengths(Written):
    """The number of examples n in a context, each of the given values with the same probability.

    Args:
        context: A number; a range or a list of different numbers; or text: `20`, `10..40` (both ends included),
            `10,20,40` or `10..20,40`. A `Lengths` is taken as it is.

    Attributes:
        values: The possible numbers, ascending, [K].
    """

    def __init__(self, context: object) -> None:
        if isinstance(context, Lengths):
            self.values: NDArray[np.int64] = context.values
            return
        self.values = read_only(np.array(CONTEXTS.listed(context), np.int64))

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

    @property
    def plain(self) -> int | str:
        """The number, or the text of several, as JSON has it."""
        return self.most if self.fixed else str(self)

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


class ContextRule(Written):
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
        rule: Any = context._rule if isinstance(context, ContextRule) else context
        self.depends = isinstance(rule, str) and "d" in rule
        self._rule = rule if self.depends else Lengths(rule)
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
        parts = _ranges(self._rule, lambda text: self._term(text, dim))
        for part in parts:
            if not part:
                wrong = f"{shown(self._rule)}, whose range is {part.start}..{part.stop - 1} at d = {dim}"
                refuse(DEPENDING, wrong, TERMS)
        return Lengths(sorted(set(chain(*parts))))

    @property
    def plain(self) -> str:
        """The text, as JSON has it."""
        return str(self)

    def _term(self, text: str, dim: int) -> int:
        term = TERM.fullmatch(text.strip())
        if term is None or term["factor"] == ".":
            refuse(DEPENDING, shown(self._rule), TERMS)
        if term["number"]:
            return int(term["number"])
        return math.ceil(float(term["factor"] or 1) * dim - 1e-9) + int(term["more"] or 0)

    def __str__(self) -> str:
        return str(self._rule)

    def __repr__(self) -> str:
        return repr(str(self))


def varies(dim: object) -> bool:
    """Return whether a dimension is given as several.

    Args:
        dim: A number, or a range or list of them, or text such as `2..32`.

    Returns:
        Whether there are several.
    """
    return not dim.strip().isdigit() if isinstance(dim, str) else axes(dim) != 0


def dimensions(dim: object) -> tuple[int, ...]:
    """Return the dimensions that are named, in ascending order.

    Args:
        dim: A number; a range or a list; or text such as `10`, `2..32`, `2,4,8` or `2..8,16`.

    Returns:
        The dimensions.

    Raises:
        InputError: One of them is not a whole number from 1 to 4096, or is named twice.
    """
    return tuple(DIMENSIONS.listed(dim))
