"""Base class of results that are tables: they print, show in a notebook, and convert to a dict and to pandas."""

from __future__ import annotations

import dataclasses
import html
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ridgeformer.errors import optional
from ridgeformer.files import jsonable

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


class Table(ABC):
    """Base class of results: dataclasses whose content can be written as rows with named columns.

    `print(result)` and a notebook show a readable table, which may leave out columns to fit on a page. `rows`,
    `as_dict` and `to_pandas` leave out nothing.
    """

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per row, which all have the same keys: the names of the columns."""

    @abstractmethod
    def _title(self) -> str:
        """The line above the printed table."""

    def _printed(self) -> Sequence[Mapping[str, Any]]:
        """The rows that are printed, with the columns that are printed."""
        return self.rows()

    def _note(self) -> str:
        """A line below the printed table, or nothing."""
        return ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, ready for JSON: lists for arrays, None for numbers that are not finite."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        converted: dict[str, Any] = jsonable(values)
        return converted

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame.

        Returns:
            A DataFrame with one line for each of `rows()`, and the same columns.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        frame: pd.DataFrame = optional("a DataFrame needs pandas", "pandas").DataFrame(self.rows())
        return frame

    def __str__(self) -> str:
        parts = self._title(), aligned(self._printed()), self._note()
        return "\n\n".join(part for part in parts if part)

    def _repr_html_(self) -> str:
        """The table as a notebook shows it."""
        columns = list(_columns(self._printed()).values())
        lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in zip(*columns, strict=True)]
        head = lines[0].replace("td>", "th>") if lines else ""
        body = "".join(f"<tr>{line}</tr>" for line in lines[1:])
        title, note = html.escape(self._title()), html.escape(self._note())
        table = f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return table + (f"<p>{note}</p>" if note else "")


def lines(columns: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Make one dict per element of columns of the same length, with the values as Python numbers.

    Args:
        columns: Arrays of the same length by name.

    Returns:
        The dicts.

    >>> import numpy as np
    >>> lines({"layer": np.arange(2), "loss": np.array([5.0, 0.5])})
    [{'layer': 0, 'loss': 5.0}, {'layer': 1, 'loss': 0.5}]
    """
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]


def aligned(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as text in columns: words to the left, numbers to the right, four significant digits.

    Args:
        rows: The rows; all of them have the keys of the first.

    Returns:
        A line of names, and one line per row, without spaces at their ends; nothing where there are no rows.

    >>> print(aligned([{"name": "AdaRR", "loss": 0.06912345}, {"name": "a model", "loss": float("nan")}]))
    name        loss
    AdaRR    0.06912
    a model        -
    """
    columns = []
    for name, cells in _columns(rows).items():
        width, is_text = max(map(len, cells)), isinstance(rows[0][name], str)
        columns.append([cell.ljust(width) if is_text else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The cells of every column as text, its name first."""
    return {name: [name, *(_cell(row[name]) for row in rows)] for name in (rows[0] if rows else ())}


def _cell(value: Any) -> str:
    """One value: a number that is not known, or a ratio that says nothing, is a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "-" if not math.isfinite(value) else "0" if value == 0 else f"{value:#.4g}".rstrip(".")
    return str(value)
