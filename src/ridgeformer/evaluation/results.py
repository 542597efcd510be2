"""The result of evaluating one predictor, and of comparing several on the same sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.evaluation.table import Table, named, ratio, without_rounding
from ridgeformer.losses import warn_below_floor

__all__ = ["Comparison", "OracleResult", "Result"]

Array = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Result(Table):
    """What the evaluation of one predictor found.

    Attributes:
        name: What was evaluated.
        loss: The mean adjusted loss: what the predictor loses against ridge regression that knows sigma.
        error: The standard error of `loss`.
        unadjusted: The mean loss against the true task w, which no predictor can know.
        unadjusted_error: The standard error of `unadjusted`.
        floor: The adjusted loss of the Bayes predictor on the same sequences, NaN if it was not asked for.
        floor_error: The standard error of `floor`.
        largest: The largest adjusted loss of a sequence.
        tail: The 99.99 % quantile of the adjusted losses.
        exploded: How many sequences exploded; see `ridgeformer.losses`, also for what a loss counts at most.
        sequences: How many sequences were used.
        estimator: `exact` or `query`; see `evaluate`.

    A loss that is more than 4 standard errors below its floor raises a `BelowFloorWarning`, whenever a result is made:
    by an evaluation, by training, or from a stored record.
    """

    name: str
    loss: float
    error: float
    unadjusted: float
    unadjusted_error: float
    floor: float
    floor_error: float
    largest: float
    tail: float
    exploded: int
    sequences: int
    estimator: str

    knows_sigma = False  # no field: whether the predictor knows what the floor assumes to be unknown

    def __post_init__(self) -> None:
        if not self.knows_sigma:
            warn_below_floor(self.name, self.loss, self.error, self.floor, self.floor_error)

    @property
    def ratio(self) -> float:
        """Loss over floor: 1 is the best possible value.

        It is infinite where it says nothing: above a million, or where the floor is 0 to rounding and the loss is not.
        It is NaN where the floor is not known.
        """
        return ratio(self.loss, self.floor)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row with all fields and the ratio."""
        return [{**{name: getattr(self, name) for name in self.__dataclass_fields__}, "ratio": self.ratio}]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and the ratio, ready for JSON; a number that is not finite is None."""
        return {**super().as_dict(), "ratio": self.ratio if np.isfinite(self.ratio) else None}

    def _title(self) -> str:
        kind = "Loss" if self.loss == self.unadjusted else "Adjusted loss"  # equal where there is no oracle
        return f"{kind} on {self.sequences:,} sequences"

    def _printed(self) -> list[dict[str, Any]]:
        columns = ("name", "loss", "error", "floor", "ratio", "unadjusted", "unadjusted_error", "largest", "exploded")
        return [self.columns(columns)]

    def columns(self, names: Sequence[str]) -> dict[str, Any]:
        """Return some fields, with 0 for losses that are 0 to rounding.

        Args:
            names: The names of fields, or `ratio`.

        Returns:
            The values by name.
        """
        found = {name: getattr(self, name) for name in names}
        return {name: without_rounding(value) if isinstance(value, float) else value for name, value in found.items()}

    def __repr__(self) -> str:
        return f"Result({self.name!r}, loss={self.loss:.4g}, error={self.error:.2g}, floor={self.floor:.4g})"


class OracleResult(Result):
    """The result of a predictor that knows sigma, such as `OracleRR`: its loss is below the floor by definition."""

    knows_sigma = True


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Table, Mapping[str, Result]):
    """Results of several predictors on the same sequences, by name.

    Attributes:
        results: The results by name.
        covariance: [K, K], the covariance of the mean adjusted losses of the K predictors.
        unexploded: The mean adjusted losses of the sequences that did not explode, by name; NaN where all did.
        query_errors: Standard errors of the paper's estimator by name; see `compare`. Empty if not asked for.
    """

    results: dict[str, Result]
    covariance: Array
    unexploded: dict[str, float]
    query_errors: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Result:
        return named(self.results, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def difference(self, first: str, second: str) -> tuple[float, float]:
        """Return how much larger the loss of one predictor is than that of another.

        Args:
            first: The name of one predictor.
            second: The name of the other predictor.

        Returns:
            The loss of `first` minus that of `second`, and the standard error of this difference.

        Raises:
            InputError: There is no result of that name.
        """
        names = list(self.results)
        for name in (first, second):
            if name not in names:
                refuse(f"the name must be one of {', '.join(names)}", repr(name), "Choose one of these.")
        i, j = names.index(first), names.index(second)
        spread = self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j]
        return self.results[first].loss - self.results[second].loss, float(np.sqrt(max(spread, 0.0)))

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per predictor, with the fields and the ratio of its result, and its query error if known."""
        found = [row for result in self.results.values() for row in result.rows()]
        if self.query_errors:
            found = [{**row, "query_error": self.query_errors[row["name"]]} for row in found]
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, ready for JSON; the results are a dict of dicts by name."""
        return {**super().as_dict(), "results": {name: result.as_dict() for name, result in self.results.items()}}

    def _title(self) -> str:
        return next(iter(self.results.values()))._title()

    def _printed(self) -> list[dict[str, Any]]:
        return [row for result in self.results.values() for row in result._printed()]

    def __repr__(self) -> str:
        losses = ", ".join(f"{name!r}: {result.loss:.4g}" for name, result in self.results.items())
        return f"Comparison({{{losses}}})"
