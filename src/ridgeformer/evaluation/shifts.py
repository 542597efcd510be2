"""Losses under a shift: a model that was trained on one problem, evaluated on others that differ in one respect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.evaluation.comparison import compare
from ridgeformer.evaluation.sequence_losses import AnyPredictor, Progress
from ridgeformer.evaluation.series import Series
from ridgeformer.evaluation.table import without_rounding
from ridgeformer.noise import Fixed
from ridgeformer.predictors.base import check_any_problem
from ridgeformer.problems import BaseProblem, CustomProblem, Problem

__all__ = ["Shifts", "shifts"]

Array = NDArray[np.float64]
KINDS = ("context", "noise", "features", "tasks", "query")


@dataclass(frozen=True, eq=False, repr=False)
class Shifts(Series):
    """Losses of predictors on several problems that differ in one respect; see `Series` for the other attributes.

    Attributes:
        what: What differs: `context`, `noise`, `features`, `tasks` or `query`; an argument of a problem of your own; or
            `problem`.
        values: Its values as text, [K].
        numbers: The same as numbers, [K], where they are: fixed context lengths and fixed noise levels; else None.
        unadjusted: The mean losses against the true tasks, [M, K].
    """

    what: str
    values: tuple[str, ...]
    numbers: tuple[float, ...] | None
    unadjusted: Array

    def _points(self) -> tuple[str, Sequence[Any]]:
        return self.what, self.values

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per predictor and problem."""
        unadjusted = self.unadjusted.ravel().tolist()
        return [row | {"unadjusted": value} for row, value in zip(super().rows(), unadjusted, strict=True)]

    def _title(self) -> str:
        kind = (
            "Loss" if np.array_equal(self.loss, self.unadjusted) else "Adjusted loss"
        )  # equal where there is no oracle
        return f"{kind} on {self.sequences:,} sequences per problem; the problems differ in {self.what}"

    def _printed(self) -> list[dict[str, Any]]:
        columns = ["name", self.what, "loss", "error", "floor", "ratio", "exploded"]
        columns += ["unexploded"] if self.exploded.any() else []
        return [
            {name: row[name] for name in columns} | {"floor": without_rounding(row["floor"])} for row in self.rows()
        ]

    def __repr__(self) -> str:
        return f"Shifts({self.what}, {len(self.values)} values, {', '.join(self.name)})"


def shifts(
    problem: BaseProblem,
    predictors: AnyPredictor | Mapping[str, AnyPredictor],
    *,
    sequences: int = 100_000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
    **shift: Iterable[Any],
) -> Shifts:
    """Evaluate predictors on problems that differ from one in a single respect, each beside its own oracle and floor.

    Args:
        problem: The problem to start from.
        predictors: A model or another predictor, or several by name.
        sequences: How many fresh sequences to use for each problem, at least 2.
        seed: Seed of these sequences.
        progress: Called with the number of problems done and the number of all.
        **shift: What differs, with its values: one of `context`, `noise`, `features`, `tasks` and `query`, as `Problem`
            takes them; or one argument of a problem of your own. `to` gives the problems themselves, as a list or by
            name: `shifts(here, model, to={"train": few, "test": other})`.

    Returns:
        Losses, floors and numbers of explosions.

    Raises:
        InputError: There is not exactly one shift, or a value is not allowed.

    >>> from ridgeformer import ConstRR, Problem
    >>> problem = Problem(noise=1)
    >>> shifts(problem, ConstRR.tune(problem), noise=[0.5, 1, 2], sequences=1000)
    Shifts(noise, 3 values, ConstRR(variance=1))
    """
    what, others = _shifted(check_any_problem(problem), shift)
    named = predictors if isinstance(predictors, Mapping) else {repr(predictors): predictors}
    found = []
    for i, other in enumerate(others.values()):
        found.append(compare(other, named, sequences=sequences, seed=seed))
        progress(i + 1, len(others))

    def gathered(field: str) -> Array:
        return np.array([[getattr(one[name], field) for one in found] for name in named])

    first = next(iter(named))
    return Shifts(
        what=what,
        values=tuple(others),
        numbers=_numbers(what, list(others.values())),
        name=tuple(named),
        loss=gathered("loss"),
        error=gathered("error"),
        unadjusted=gathered("unadjusted"),
        exploded=gathered("exploded").astype(np.int64),
        unexploded=np.array([[one.unexploded[name] for one in found] for name in named]),
        floor=np.array([one[first].floor for one in found]),
        floor_error=np.array([one[first].floor_error for one in found]),
        sequences=sequences,
    )


def _shifted(problem: BaseProblem, shift: Mapping[str, Iterable[Any]]) -> tuple[str, dict[str, BaseProblem]]:
    """What differs, and the problem for each of its values, which are given as text."""
    built_in = isinstance(problem, Problem)
    kinds = problem.arguments if isinstance(problem, CustomProblem) else list(KINDS)
    if len(shift) != 1 or not shift.keys() <= {*kinds, "to"}:
        received = ", ".join(shift) or "none"
        example = "Pass noise=[1, 2, 3], for example." if built_in else "Pass to=[...], for example."
        refuse(f"there must be one shift, one of {', '.join([*kinds, 'to'])}", received, example)
    ((what, values),) = shift.items()
    if what == "to":
        what = "problem"
        given = values if isinstance(values, Mapping) else {str(value): value for value in values}
        others = {str(name): check_any_problem(value) for name, value in given.items()}
    else:
        if isinstance(values, str) or not isinstance(values, Iterable):
            values = [values]  # one value alone
        changed = [problem.replace(**{what: value}) for value in values]  # type: ignore[attr-defined]
        others = {_text(other, what): other for other in changed}
    if not others:
        refuse("a shift needs at least one value", "none", "Pass noise=[1, 2, 3], for example.")
    return what, others


def _numbers(what: str, problems: Sequence[BaseProblem]) -> tuple[float, ...] | None:
    """The context lengths or noise levels of problems; None where one has several, or something else differs."""
    if what == "context" and all(problem.lengths.fixed for problem in problems):
        return tuple(float(problem.lengths.most) for problem in problems)
    noises = [getattr(problem, "noise", None) for problem in problems] if what == "noise" else [None]
    levels = [noise.sigma for noise in noises if isinstance(noise, Fixed)]
    return tuple(levels) if len(levels) == len(noises) else None


def _text(problem: BaseProblem, what: str) -> str:
    return str(problem.lengths if what == "context" else getattr(problem, what))
