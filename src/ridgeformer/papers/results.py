"""Results of a paper as its checks and pictures read them: values by name, and tables of rows by column."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ridgeformer.validation import Array

NOTHING: Mapping[str, Any] = MappingProxyType({})
Rows = Iterator[dict[str, Any]]  # what a part yields: a row for each measurement


class Results(Mapping[str, Any]):
    """Stored values by name: lists of numbers are arrays, lists of dicts are tables, and dicts are results again.

    A name is an attribute too. Settings of the part that measured the values are further attributes.

    Args:
        stored: The values, as JSON holds them. A number that was not finite is None there, and NaN in an array.
        parts: Where the names are those of parts, the settings of each part by name.
        settings: The settings of the part that measured these values, by name.

    >>> results = Results({"losses": [{"n": 2, "loss": 0.5}, {"n": 4, "loss": None}]}, {"losses": {"d": 3}})
    >>> results.losses.loss, results.losses.d
    (array([0.5, nan]), 3)
    """

    def __init__(
        self,
        stored: Mapping[str, Any],
        parts: Mapping[str, Mapping[str, Any]] = NOTHING,
        settings: Mapping[str, Any] = NOTHING,
    ) -> None:
        self.stored, self.parts, self.settings = stored, parts, settings

    def __getitem__(self, name: str) -> Any:
        return _read(self.stored[name], self.parts.get(name, NOTHING))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a notebook asks for these
            raise AttributeError(name)
        return self.settings[name] if name in self.settings and name not in self.stored else self[name]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


class Measured(Results):
    """Rows that a part measured, by column. See `Results`.

    Args:
        rows: The rows; what a row lacks is None in its column.
        settings: The settings of the part.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any] = NOTHING) -> None:
        columns = dict.fromkeys(name for row in rows for name in row)
        super().__init__({name: [row.get(name) for row in rows] for name in columns}, settings=settings)
        self.rows = [Results(row, settings=settings) for row in rows]

    def where(self, **known: Any) -> Measured:
        """Choose the rows with known values.

        Args:
            **known: A value by column.

        Returns:
            The table of these rows.
        """
        matching = (row.stored for row in self.rows if all(row.stored[name] == value for name, value in known.items()))
        return Measured(list(matching), self.settings)

    def by(self, column: str) -> Iterator[tuple[Any, Measured]]:
        """Group the rows by a column.

        Args:
            column: The column.

        Yields:
            Each value of the column, in the order of the rows, with the table of its rows.
        """
        for value in dict.fromkeys(self.stored[column]):
            yield value, self.where(**{column: value})

    def compute(self, function: Callable[..., Any]) -> Array:
        """Compute a number for every row.

        Args:
            function: Is called with columns and settings, by the names of its arguments.

        Returns:
            The numbers, one for each row.

        >>> Measured([{"n": 2}, {"n": 4}], {"d": 3}).compute(lambda n, d: n * d)
        array([ 6, 12])
        """
        names = inspect.signature(function).parameters
        return np.array([function(**{name: getattr(row, name) for name in names}) for row in self.rows])

    def names(self, form: str) -> list[str]:
        """Name every row.

        Args:
            form: The name, with columns in braces, as for `str.format`.

        Returns:
            The names.
        """
        return [form.format(**row.stored) for row in self.rows]


def _read(value: Any, settings: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return Results(value, settings=settings)
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], Mapping):
        return Measured(value, settings)
    try:
        array = np.array(value)
        return array if array.dtype != object else array.astype(np.float64)
    except (TypeError, ValueError):  # lists of different lengths, or texts of which one is missing
        return value
