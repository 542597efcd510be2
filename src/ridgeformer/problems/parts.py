"""Parts of a problem: laws, dimensions and numbers of examples, each written as a text that is read back.

Two parts are equal where their texts are.

>>> from ridgeformer.problems.features import Features, PowerLaw, Rotated
>>> str(Rotated(PowerLaw(1)))
'rotated(powerlaw(1))'
>>> Features.of("rotated(powerlaw(1))") == Rotated(PowerLaw(1))
True
>>> Lengths("10..40").mean
25.0
>>> ContextRule("d..4d").at(3), ContextRule("d+2,1.5d").at(4)
(3..12, 6)
>>> dimensions("2..4,8")
(2, 3, 4, 8)
"""

from __future__ import annotations

import ast
import inspect
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import chain
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import InputError, missing_bracket, refuse, shown
from ridgeformer.files import parse_json
from ridgeformer.validation import axes, integer, number_text
from ridgeformer.values import Value, read_only

LONGEST_TEXT = 10_000_000
MOST_NUMBERS = 250_000  # of a text, as in a covariance of 500 features
MANY = 4  # numbers, beyond which a label gives their number only
MOST_EXAMPLES, MOST_LENGTHS, MOST_DIM = 1 << 52, 10_000, 4096
LIST = re.compile(r"\[(?:[^\[\]]++|\[[^\[\]]*+\])*+\]")  # of numbers, or of lists of numbers
CONTEXT = "the context must be a number of examples, a range or a list of them"
CONTEXTS = 'Pass 20, range(10, 41), [10, 20, 40], "10..40" or "10,20,40".'
DIMENSION = "dim must be a dimension, or a range or list of them"
DIMENSIONS = 'Pass 10, "2..32" or [2, 4, 8].'
TERM = re.compile(r"(?:(?P<factor>\d*\.?\d*)d(?P<more>[+-]\d+)?|(?P<number>\d+))")
DEPENDING = "a context that depends on d must be made of terms such as 2d, d+2 or 20, ranges of them or lists"
TERMS = 'Pass "d..4d", "2d" or "d+2,2d,4d".'


class _Written(Value):
    """A value that is decided by its class and its text."""

    def __repr__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash((type(self), str(self)))


class Described(_Written, ABC):
    """A part of a problem that is decided by its class and the arguments that its text shows.

    An object keeps each argument of its `__init__` under the argument's name, with an underscore before it where a
    method has that name. Its text is made of these.

    Attributes:
        name: The name in texts. A class that has one is found by it.
        words: A sentence that says what the part is, with the names of its attributes in braces.
        named: The arguments whose names texts show, beside those that have no position.
        known: The classes of this part by their names.
        usual: The name of the law of the seed paper.
        plural: A word for this part, for messages.
        examples: A remedy for messages: texts of this part.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    named: ClassVar[tuple[str, ...]] = ()
    known: ClassVar[dict[str, Callable[..., Any]]]
    usual: ClassVar[str]
    plural: ClassVar[str]
    examples: ClassVar[str]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" in vars(cls):
            cls.known[cls.name] = cls

    @classmethod
    def of(cls, value: object) -> Self:
        """Return a law in any of the forms that `Problem` takes.

        Args:
            value: A law, its text, a covariance matrix [d, d], variances [d], or None for the usual law, N(0, I).

        Returns:
            The law.

        Raises:
            InputError: It describes no such law.

        >>> from ridgeformer.problems.features import Features
        >>> Features.of("standardised(factors(2))"), Features.of([1, 4])
        (standardised(factors(2)), spectrum(1,4))
        """
        if isinstance(value, cls):
            return value
        if value is None or isinstance(value, str):
            law: Self = cls.known[cls.usual]() if value is None else _parsed(value, cls)
            return law
        return cls.from_covariance(value)

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
        parts = {k: v.describe(dim) if isinstance(v, Described) else v for k, v in vars(self).items()}
        return self.words.format(dim=dim, **parts)

    @property
    def label(self) -> str:
        """The text with matrices and long lists replaced by their sizes, such as `covariance(8 x 8)`."""
        return self._text(short)

    def _text(self, written: Callable[[Any], str]) -> str:
        """The name, and the arguments that do not have their defaults."""
        parts: list[str] = []
        for argument in inspect.signature(type(self)).parameters.values():
            name, default = argument.name, argument.default
            value = vars(self)[name if name in vars(self) else f"_{name}"]
            if argument.kind is argument.VAR_POSITIONAL and np.ndim(value):
                parts += [short(value)] if written is short and len(value) > MANY else map(written, value)
            elif type(value) is not type(default) or value != default:
                by_name = argument.kind is argument.KEYWORD_ONLY or name in self.named
                parts.append(f"{name}={written(value)}" if by_name else written(value))
        return f"{self.name}({','.join(parts)})"

    def __str__(self) -> str:
        return self._text(_written)

    def __repr__(self) -> str:
        return shown_text(str(self))


def short(value: Any) -> str:
    """Return a value as text for a label: arrays and long lists by their sizes, laws by their own labels.

    Args:
        value: An argument of a problem or of one of its parts.

    Returns:
        A text of at most about 40 characters.

    >>> short(np.eye(8)), short([1, 2]), short([0.5] * 9)
    ('8 x 8', '[1,2]', '9 values')
    """
    label = getattr(value, "label", None)
    if isinstance(label, str):
        return label
    if axes(value) > 1:
        return " x ".join(map(str, np.shape(value)))
    if isinstance(value, np.ndarray | list | tuple):
        return f"{len(value)} values" if len(value) > MANY else f"[{','.join(short(item) for item in value)}]"
    return _written(value) if isinstance(value, int | float | np.number) else shown(value, 40)


def shown_text(text: str, most: int = 200) -> str:
    """Cut a text in the middle where it is long.

    Args:
        text: The text.
        most: How many characters it may have.

    Returns:
        The text, or its beginning and end.
    """
    return text if len(text) <= most else f"{text[: most - 30]}...{text[-27:]}"


def _written(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, np.ndarray | list | tuple):
        return f"[{','.join(_written(item) for item in value)}]"
    if isinstance(value, int):  # all digits: a seed such as 1000000 is no 1e+06
        return str(value)
    return str(value) if isinstance(value, Described) else number_text(value)


def _parsed(text: str, kind: type[Described]) -> Any:
    """The law that a text such as `scales(0.5,factors(2))` names."""
    what, examples = kind.plural, kind.examples
    if len(text) > LONGEST_TEXT:
        refuse(f"{what} must be written as text of at most {LONGEST_TEXT:,} characters", shown(text), examples)
    try:
        short, lists = _without_lists(text.strip())
        node = ast.parse(short, mode="eval").body
        return _made(node if isinstance(node, ast.Call) else ast.Call(node, [], []), kind, lists)
    except InputError:
        raise
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, LookupError, OverflowError):
        refuse(f"{what} must be written as name(arguments)", shown(text) + missing_bracket(text), examples)


def _without_lists(text: str) -> tuple[str, list[Any]]:
    """A text with `_[0]`, `_[1]`, ... in place of its lists of numbers, and the lists: a syntax tree would be huge."""
    if text.count(",") > MOST_NUMBERS:
        raise ValueError
    lists: list[Any] = []

    def kept(match: re.Match[str]) -> str:
        lists.append(parse_json(match[0]))
        return f"_[{len(lists) - 1}]"

    return LIST.sub(kept, text), lists


def _made(node: ast.expr, kind: type[Described], lists: list[Any]) -> Any:
    if isinstance(node, ast.Subscript):
        return lists[ast.literal_eval(node.slice)]
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    if not isinstance(node.func, ast.Name):
        raise ValueError
    make = kind.known.get(node.func.id)
    if make is None:
        name, known = shown(node.func.id, 40), ", ".join(kind.known)
        raise InputError(f"there is no law of {kind.plural} called {name}. Write one of {known}.")
    return make(
        *(_made(item, kind, lists) for item in node.args),
        **{str(item.arg): _made(item.value, kind, lists) for item in node.keywords},
    )


def _ranges(text: str, term: Callable[[str], int]) -> list[range]:
    """The ranges that a text such as `2..8,16` lists, both ends included; a number alone is a range of one."""
    ends = [part.partition("..") for part in text.split(",")]
    return [range(term(first), term(last if dots else first) + 1) for first, dots, last in ends]


def _whole_numbers(given: Any, name: str, plural: str, most: int, rule: str, remedy: str) -> list[int]:
    """Different whole numbers, ascending, from one, a range or list of them, or text such as `2..8,16`."""
    parts = [given] if isinstance(given, range) else []
    if isinstance(given, str):
        try:
            parts = _ranges(given, int)
        except ValueError:
            refuse(rule, shown(given), remedy)
        if not all(parts):
            refuse(rule, f"{shown(given)}, which ends before it begins", remedy)
        for part in parts:
            integer(name, part[-1], integer(name, part[0], 1, most), most)  # before a range of any size is written out
    if (many := sum(map(len, parts))) > MOST_LENGTHS:
        refuse(f"there may be at most {MOST_LENGTHS:,} {plural}", f"{many:,}", "Pass a range with a larger step.")
    values = chain(*parts) if parts else [given] if isinstance(given, Integral) else given
    if isinstance(given, bool) or not isinstance(values, Iterable) or _single(values):
        refuse(rule, shown(given), remedy)
    numbers = [integer(name, value, 1, most) for value in values]
    if not numbers:
        refuse(rule, "an empty range or list", remedy)
    if len(set(numbers)) < len(numbers):
        refuse(f"{plural} must differ from each other", shown(given), "Name each of them once.")
    return sorted(numbers)


class Lengths(_Written):
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
        numbers = _whole_numbers(context, "context", "context lengths", MOST_EXAMPLES, CONTEXT, CONTEXTS)
        self.values = read_only(np.array(numbers, np.int64))

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


class ContextRule(_Written):
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
    return tuple(_whole_numbers(dim, "dim", "dimensions", MOST_DIM, DIMENSION, DIMENSIONS))


def _single(value: object) -> bool:
    """Whether a value is an array without axes, which claims to be iterable."""
    return isinstance(value, np.ndarray) and not value.ndim
