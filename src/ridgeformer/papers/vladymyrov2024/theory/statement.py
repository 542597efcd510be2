"""Measured errors of a statement of the paper, and the bounds that they must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ridgeformer.jsonable import jsonable

__all__ = ["Bound", "relative_error"]


@dataclass(frozen=True)
class Bound:
    """One measured claim of a statement.

    Attributes:
        statement: The module's name, `momentum` for example: the argument of `ridgeformer papers verify --only`.
        what: The claim, in a few words.
        error: The measured error, at least 0: the smaller, the better the claim holds.
        bound: The largest error with which the claim stands.
        facts: Further measured numbers, by name, for the record.
        as_printed: The error of the formula that the paper prints, where it is another one.

    >>> Bound("momentum", "w, exactly", error=3e-15, bound=1e-10).passed
    True
    """

    statement: str
    what: str
    error: float
    bound: float
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    as_printed: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the error keeps its bound. An error that is not a number does not."""
        return bool(self.error <= self.bound)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON; what is not finite is None."""
        fields = {name: jsonable(value) for name, value in vars(self).items()}
        return {**fields, "passed": self.passed}


def relative_error(values: ArrayLike, truth: ArrayLike, apart: int = 0) -> float:
    """Compute the largest difference of two arrays, relative to the largest entry of the second.

    Args:
        values: An array.
        truth: An array of the same shape. If all its entries are 0, the difference is divided by 1.
        apart: Along this many first axes every slice is measured by its own largest entry: no large one hides a small
            one's error.

    Returns:
        The error; infinite where either array is not finite.
    """
    values, truth = np.asarray(values, np.float64), np.asarray(truth, np.float64)
    if values.shape != truth.shape or not (np.isfinite(values).all() and np.isfinite(truth).all()):
        return float("inf")
    rest = (*truth.shape[:apart], -1)
    size = np.abs(truth.reshape(rest)).max(-1)
    return float((np.abs(values - truth).reshape(rest).max(-1) / np.where(size > 0, size, 1.0)).max())
