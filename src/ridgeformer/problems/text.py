"""Parts of a problem as text: `str` and `parse` are inverse to each other, and equality is equality of the text.

>>> from ridgeformer.problems.features import Rotated, PowerLaw, parse_features
>>> str(Rotated(PowerLaw(1)))
'rotated(powerlaw(1))'
>>> parse_features("rotated(powerlaw(1))") == Rotated(PowerLaw(1))
True
"""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from ridgeformer.errors import InputError, missing_bracket, refuse, shown
from ridgeformer.files import parse_json
from ridgeformer.noise.base import number_text
from ridgeformer.validation import axes
from ridgeformer.values import Value

__all__ = ["Described", "parse_call", "parse_problem", "short"]

Part = TypeVar("Part")
LONGEST_TEXT = 10_000_000
MOST_NUMBERS = 250_000  # of a text, as in a covariance of 500 features
MANY = 4  # numbers, beyond which a label gives their number only


class Described(Value, ABC):
    """A part of a problem that is decided by its class and the arguments that its text shows.

    Attributes:
        name: The name in texts.
        words: A sentence that says what the part is, with the names of its attributes in braces.
    """

    name: ClassVar[str]
    words: ClassVar[str]

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

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments that make this value, positional and named, without those that have their defaults."""
        return [], {}

    def _text(self, written: Callable[[Any], str]) -> str:
        positional, named = self._arguments()
        parts = [f"{len(positional)} values"] if written is short and len(positional) > MANY else None
        parts = parts or [written(value) for value in positional]
        return f"{self.name}({','.join(parts + [f'{name}={written(value)}' for name, value in named.items()])})"

    def __str__(self) -> str:
        return self._text(_written)

    def __repr__(self) -> str:
        return shown_text(str(self))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash((type(self), str(self)))


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


def parse_call(text: str, what: str, known: Mapping[str, Callable[..., Part]], examples: str) -> Part:
    """Make the value that a text such as `scales(0.5,factors(2))` names.

    Args:
        text: The text.
        what: What the text describes, for messages.
        known: What each name makes.
        examples: What to write instead, for messages.

    Returns:
        The value.

    Raises:
        InputError: The text names nothing known, or its arguments do not fit.
    """
    if not isinstance(text, str) or len(text) > LONGEST_TEXT:
        refuse(f"{what} must be written as text of at most {LONGEST_TEXT:,} characters", shown(text), examples)
    try:
        short, lists = _without_lists(text.strip())
        node = ast.parse(short, mode="eval").body
        part: Part = _made(node if isinstance(node, ast.Call) else ast.Call(node, [], []), what, known, lists)
        return part
    except InputError:
        raise
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, LookupError, OverflowError):
        refuse(f"{what} must be written as name(arguments)", shown(text) + missing_bracket(text), examples)


def _without_lists(text: str) -> tuple[str, list[Any]]:
    """A text with `_[0]`, `_[1]`, ... in place of its lists of numbers, and the lists: a syntax tree would be huge."""
    if text.count(",") > MOST_NUMBERS:
        raise ValueError
    pieces: list[str] = []
    lists: list[Any] = []
    start = depth = 0
    for match in re.finditer(r"[\[\]]", text):
        at = match.start()
        if text[at] == "[":
            if not depth:
                pieces += [text[start:at], f"_[{len(lists)}]"]
                start = at
            depth += 1
        else:
            depth -= 1
            if not depth:
                lists.append(parse_json(text[start : at + 1]))
                start = at + 1
    return "".join([*pieces, text[start:]]), lists


def _made(node: ast.expr, what: str, known: Mapping[str, Callable[..., Any]], lists: list[Any]) -> Any:
    if isinstance(node, ast.Subscript):
        return lists[ast.literal_eval(node.slice)]
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name):
            raise ValueError
        make = known.get(node.func.id)
        if make is None:
            name = shown(node.func.id, 40)
            raise InputError(f"there is no law of {what} called {name}. Write one of {', '.join(known)}.")
        return make(
            *(_made(item, what, known, lists) for item in node.args),
            **{str(item.arg): _made(item.value, what, known, lists) for item in node.keywords},
        )
    return ast.literal_eval(node)


def parse_problem(text: str) -> dict[str, Any]:
    """Return the arguments of `Problem` that a text names.

    Args:
        text: Such as `d=10 n=20 uniform(0,5) features=powerlaw(1)`.

    Returns:
        The arguments by name.

    Raises:
        InputError: The text describes no problem.
    """
    names = {"d": "dim", "n": "context"}
    arguments: dict[str, Any] = {}
    if not isinstance(text, str):
        refuse("a problem must be described by text", shown(text), "Write 'd=10 n=20 uniform(0,5)'.")
    for part in text.split():
        name, _, value = part.partition("=")
        if name not in ("d", "n", "features", "tasks", "query"):
            name, value = "noise", part
        if not value or names.get(name, name) in arguments:
            refuse("a problem must be described part by part", shown(text), "Write 'd=10 n=20 uniform(0,5)'.")
        arguments[names.get(name, name)] = value
    return arguments
