"""What all results share: they print as a table, and convert to a dict and to a pandas DataFrame.

Every type of result uses the same names for the same things:

- `name`: what was evaluated.
- `loss`: the mean adjusted loss. `error`: its standard error. Losses are halves of squared errors.
- `floor`: the adjusted loss of the Bayes predictor on the same sequences, NaN if it was not asked for. `floor_error`:
  its standard error. `ratio`: loss over floor. A profile has none of these, because the floor is an average over all
  noise levels.
- `exploded`: how many sequences exploded; see `ridgeformer.losses`, also for what a single loss counts at most.
- `sequences`: how many sequences were used. In a profile, that many were used at each noise level.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ridgeformer.errors import MissingPackageError
from ridgeformer.jsonable import jsonable
from ridgeformer.losses import ROUNDING

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

__all__ = ["Table", "aligned", "lines", "named", "ratio", "ratios", "without_rounding"]

Found = TypeVar("Found")
SAYS_NOTHING = 1e6  # a ratio: that of a model that diverged


class Table(ABC):
    """The base class of results: dataclasses whose content can be written as rows with named columns.

    `print(result)` shows a readable table, which may leave out columns to fit on a page. `rows`, `as_dict` and
    `to_pandas` leave out nothing.
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
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingPackageError(
                "a DataFrame needs pandas, which is not installed. Run pip install pandas, or use rows() or as_dict()."
            ) from error
        return pd.DataFrame(self.rows())

    def __str__(self) -> str:
        parts = self._title(), aligned(self._printed()), self._note()
        return "\n\n".join(part for part in parts if part)


def ratio(loss: float, floor: float) -> float:
    """Divide a loss by its floor: 1 is the best possible value.

    Args:
        loss: The loss.
        floor: The floor.

    Returns:
        The ratio; infinite where it says nothing (above a million, or where the floor is 0 to rounding and the loss is
        not), and NaN where the floor is not known.
    """
    if floor > ROUNDING or math.isnan(floor):
        found = without_rounding(loss) / floor
        return math.inf if found >= SAYS_NOTHING else found
    return 1.0 if loss <= ROUNDING else math.inf


def ratios(loss: NDArray[Any], floor: NDArray[Any]) -> NDArray[Any]:
    """Divide the losses of several predictors by the floors that they share; see `ratio`.

    Args:
        loss: The losses, [M, K].
        floor: The floors, [K].

    Returns:
        The ratios, [M, K].
    """
    return np.array([list(map(ratio, row, floor.tolist())) for row in loss.tolist()])


def without_rounding(loss: float) -> float:
    """Return a loss, or 0 where it is 0 to rounding: that of the oracle, or the floor of a known noise level.

    Args:
        loss: The loss.

    Returns:
        The loss.
    """
    return 0.0 if abs(loss) <= ROUNDING else float(loss)


def named(found: Mapping[str, Found], name: str) -> Found:
    """Look up a result by its name.

    Args:
        found: The results by name.
        name: One of their names.

    Returns:
        The result.

    Raises:
        KeyError: There is no such name. A mapping must raise this error, here with words.
    """
    if name not in found:
        raise KeyError(f"the name must be one of {', '.join(found)}; got {name!r}. Choose one of these.")
    return found[name]


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
        rows: At least one row; all rows have the keys of the first.

    Returns:
        A line of names, and one line per row, without spaces at their ends.

    >>> print(aligned([{"name": "AdaRR", "loss": 0.06912345}, {"name": "a model", "loss": float("nan")}]))
    name        loss
    AdaRR    0.06912
    a model        -
    """
    columns = []
    for name in rows[0]:
        cells = [name, *(_cell(row[name]) for row in rows)]
        width, is_text = max(map(len, cells)), isinstance(rows[0][name], str)
        columns.append([cell.ljust(width) if is_text else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _cell(value: Any) -> str:
    """One value: a number that is not known, or a ratio that says nothing, is a dash."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return "-" if not math.isfinite(value) else "0" if value == 0 else f"{value:#.4g}".rstrip(".")
    return str(value)
