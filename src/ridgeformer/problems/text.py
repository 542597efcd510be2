"""Parts of a problem as text: `str` and `parse` are inverse to each other, and equality is equality of the text.

>>> from ridgeformer.problems.features import Rotated, PowerLaw, parse_features
>>> str(Rotated(PowerLaw(1)))
'rotated(powerlaw(1))'
>>> parse_features("rotated(powerlaw(1))") == Rotated(PowerLaw(1))
True
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from ridgeformer.errors import InputError, missing_bracket, refuse, shown
from ridgeformer.noise.base import number_text
from ridgeformer.values import Value

__all__ = ["Described", "parse_call"]

Part = TypeVar("Part")
LONGEST_TEXT = 10_000_000


class Described(Value, ABC):
    """A part of a problem that is decided by its class and the arguments that its text shows."""

    name: ClassVar[str]

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

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments that make this value, positional and named, without those that have their defaults."""
        return [], {}

    def __str__(self) -> str:
        positional, named = self._arguments()
        parts = [_written(value) for value in positional]
        return f"{self.name}({','.join(parts + [f'{name}={_written(value)}' for name, value in named.items()])})"

    def __repr__(self) -> str:
        return shown_text(str(self))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash((type(self), str(self)))


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
        node = ast.parse(text.strip(), mode="eval").body
        found: Part = _made(node if isinstance(node, ast.Call) else ast.Call(node, [], []), what, known)
        return found
    except InputError:
        raise
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, KeyError, OverflowError):
        refuse(f"{what} must be written as name(arguments)", shown(text) + missing_bracket(text), examples)


def _made(node: ast.expr, what: str, known: Mapping[str, Callable[..., Any]]) -> Any:
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Name):
            raise ValueError
        make = known.get(node.func.id)
        if make is None:
            name = shown(node.func.id, 40)
            raise InputError(f"there is no law of {what} called {name}. Write one of {', '.join(known)}.")
        return make(
            *(_made(item, what, known) for item in node.args),
            **{str(item.arg): _made(item.value, what, known) for item in node.keywords},
        )
    return ast.literal_eval(node)
