"""Laws that are written as text, such as `uniform(0,5)` or `scales(0.5,factors(2))`, and read back.

Noise levels, features and tasks share this grammar: a name with arguments, which are numbers, texts, lists or laws of
the same kind. `str` and `Described.parse` are inverse to each other.
"""

from __future__ import annotations

import ast
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from ridgeformer.errors import InputError, refuse, short, shown
from ridgeformer.files import parse_json
from ridgeformer.validation import axes
from ridgeformer.values import Value

LONGEST_TEXT, LONGEST_REST = 10_000_000, 200_000  # characters, with lists of numbers and without them
MOST_NUMBERS = 250_000  # of a text, as in a covariance of 500 features
MANY = 4  # numbers, beyond which a label gives their number only
LIST = re.compile(r"\[(?:[^\[\]]++|\[[^\[\]]*+\])*+\]")  # of numbers, or of lists of numbers


class Written(Value):
    """A value that is decided by its class and its text."""

    @property
    def has_text(self) -> bool:
        """Whether the text is one from which an equal value can be made."""
        return True

    def __repr__(self) -> str:
        return short(str(self))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash((type(self), str(self)))


class Described(Written, ABC):
    """A law that is decided by its class and the arguments that its text shows.

    An object keeps each argument of its `__init__` under the argument's name, with an underscore before it where a
    method has that name. Its text is made of these. A class without a name of its own, such as a subclass of the
    user's, has no such text: each of its objects is equal to itself only.

    Attributes:
        name: The name in texts. A class that has one is found by it.
        named: The arguments whose names texts show, beside those that have no position.
        known: The classes of this kind of law by their names.
        plural: A word for this kind of law, for messages.
        examples: A remedy for messages: texts of this kind of law.
    """

    name: ClassVar[str]
    named: ClassVar[tuple[str, ...]] = ()
    known: ClassVar[dict[str, Callable[..., Any]]]
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
            value: A law, its text, or what else can stand for one: for features and tasks a covariance matrix [d, d],
                variances [d], or None for N(0, I); for noise a level or a frozen scipy.stats distribution.

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
        return cls.parse(value) if isinstance(value, str) else cls.converted(value)

    @classmethod
    @abstractmethod
    def converted(cls, value: object) -> Self:
        """Return the law that a value stands for which is neither a law nor its text.

        Args:
            value: The value.

        Returns:
            The law.

        Raises:
            InputError: It stands for none.
        """

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the law that a text names, such as `scales(0.5,factors(2))`.

        Args:
            text: The name and the arguments; brackets without arguments may be left out.

        Returns:
            The law.

        Raises:
            InputError: It names none.
        """

        def taken_out(match: re.Match[str]) -> str:
            lists.append(parse_json(match[0]))
            return f"_[{len(lists) - 1}]"

        lists: list[Any] = []  # of numbers, for which the text has _[0], _[1], ...: a syntax tree would be huge
        try:
            few = len(text) <= LONGEST_TEXT and text.count(",") <= MOST_NUMBERS
            rest = LIST.sub(taken_out, text.strip()) if few else text
            if len(rest) > LONGEST_REST:
                rule = f"{cls.plural} must be written in at most {LONGEST_REST:,} characters"
                refuse(f"{rule}, beside lists of {MOST_NUMBERS:,} numbers", f"{len(text):,}", cls.examples)
            node = ast.parse(rest, mode="eval").body
            law: Self = cls._made(node if isinstance(node, ast.Call) else ast.Call(node, [], []), lists)
            return law
        except InputError:
            raise
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, LookupError, ArithmeticError):
            rule = f"{cls.plural} must be written as name(arguments), with arguments that the name takes"
            refuse(rule, shown(text) + missing_bracket(text), cls.examples)

    @classmethod
    def _made(cls, node: ast.expr, lists: list[Any]) -> Any:
        """What a part of a syntax tree stands for: a law, or an argument."""
        if isinstance(node, ast.Subscript):
            return lists[ast.literal_eval(node.slice)]
        if not isinstance(node, ast.Call):
            return ast.literal_eval(node)
        if not isinstance(node.func, ast.Name):
            raise ValueError
        make = cls.known.get(node.func.id) or cls.unknown(node.func.id)
        named = {str(item.arg): cls._made(item.value, lists) for item in node.keywords}
        return make(*(cls._made(item, lists) for item in node.args), **named)

    @classmethod
    def unknown(cls, name: str) -> Callable[..., Any]:
        """Return what makes the law of a name that no class has; by default the name is refused.

        Args:
            name: The name.

        Returns:
            A function of the law's arguments.

        Raises:
            InputError: There is no such law.
        """
        known = ", ".join(cls.known)
        raise InputError(f"there is no law of {cls.plural} called {shown(name, 40)}. Write one of {known}.")

    @property
    def has_text(self) -> bool:
        """Whether `of(str(law))` is this law: whether its class has a name of its own."""
        return "name" in vars(type(self))

    @property
    def label(self) -> str:
        """The text with matrices and long lists replaced by their sizes, such as `covariance(8 x 8)`."""
        return self._text(brief)

    def _text(self, write: Callable[[Any], str]) -> str:
        """The name, and the arguments that do not have their defaults."""
        parts: list[str] = []
        for argument in inspect.signature(type(self)).parameters.values():
            name, default = argument.name, argument.default
            value = vars(self)[name if name in vars(self) else f"_{name}"]
            if argument.kind is argument.VAR_POSITIONAL and np.ndim(value):
                parts += [brief(value)] if write is brief and len(value) > MANY else map(write, value)
            elif type(value) is not type(default) or value != default:
                by_name = argument.kind is argument.KEYWORD_ONLY or name in self.named
                parts.append(f"{name}={write(value)}" if by_name else write(value))
        return f"{self.name}({','.join(parts)})"

    def __str__(self) -> str:
        return self._text(written) if self.has_text else f"{type(self).__name__} at {id(self):#x}"


def written(value: Any) -> str:
    """Write an argument of a law as text that is read back.

    Args:
        value: A number, a text, a law, or arrays, lists or tuples of numbers.

    Returns:
        The text; for numbers the shortest one that reads back as the same float64.
    """
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, np.ndarray | list | tuple):
        return f"[{','.join(written(item) for item in value)}]"
    if isinstance(value, int | Written):  # all digits: a seed such as 1000000 is no 1e+06
        return str(value)
    number = float(value) + 0.0  # zero without a sign, so that equal numbers have equal texts
    text = f"{number:g}"
    return text if float(text) == number else repr(number)


def brief(value: Any) -> str:
    """Write a value for a label: arrays and long lists by their sizes, laws by their own labels.

    Args:
        value: An argument of a problem or of a law.

    Returns:
        A text of at most about 40 characters.

    >>> brief(np.eye(8)), brief([1, 2]), brief([0.5] * 9)
    ('8 x 8', '[1,2]', '9 values')
    """
    label = getattr(value, "label", None)
    if isinstance(label, str):
        return label
    if axes(value) > 1:
        return " x ".join(map(str, np.shape(value)))
    if isinstance(value, np.ndarray | list | tuple):
        return f"{len(value)} values" if len(value) > MANY else f"[{','.join(brief(item) for item in value)}]"
    return written(value) if isinstance(value, int | float | np.number) else shown(value, 40)


def missing_bracket(text: str) -> str:
    """Say which kind of bracket a text lacks, to be put after the text in a message.

    Args:
        text: The text.

    Returns:
        The remark; nothing where there are as many opening as closing ones.

    >>> missing_bracket("pool(3")
    ', in which a closing bracket is missing'
    """
    surplus = sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
    return "" if surplus == 0 else f", in which {'a closing' if surplus > 0 else 'an opening'} bracket is missing"
