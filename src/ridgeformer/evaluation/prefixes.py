"""Losses after each number of examples: all prefixes of the same sequences, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.evaluation.sequence_losses import (
    EVALUATION,
    QUERIES,
    AnyPredictor,
    Progress,
    adjusted_losses,
    check_predictors,
    needed,
    with_oracle,
)
from ridgeformer.evaluation.series import Series
from ridgeformer.evaluation.statistics import Running
from ridgeformer.evaluation.table import lines, without_rounding
from ridgeformer.moments import Moments
from ridgeformer.predictors.base import check_problem
from ridgeformer.predictors.bayes import best_predictor
from ridgeformer.problems import Draw, Lengths, Problem
from ridgeformer.validation import integer

__all__ = ["PrefixLosses", "by_prefix"]

Array = NDArray[np.float64]
BLOCK = 2048  # sequences at a time


@dataclass(frozen=True, eq=False, repr=False)
class PrefixLosses(Series):
    """Losses of predictors after each number of examples; see `Series` for the other attributes.

    Attributes:
        context: The numbers of examples, [K].
    """

    context: NDArray[np.int64]

    def _points(self) -> tuple[str, Sequence[Any]]:
        return "context", self.context.tolist()

    def _title(self) -> str:
        return f"Adjusted loss after each number of examples on {self.sequences:,} sequences"

    def _printed(self) -> list[dict[str, Any]]:
        columns = {"context": self.context, **dict(zip(self.name, self.loss, strict=True))}
        wild = [k for k in range(len(self.name)) if self.exploded[k].any()]
        for k in wild:
            of = f" of {self.name[k]}" if len(wild) > 1 else ""
            columns |= {f"exploded{of}": self.exploded[k], f"unexploded{of}": self.unexploded[k]}
        return lines({**columns, "floor": np.array(list(map(without_rounding, self.floor)))})

    def __repr__(self) -> str:
        return f"PrefixLosses({', '.join(self.name)}, n = {Lengths(self.context.tolist())})"


def by_prefix(
    problem: Problem,
    predictors: AnyPredictor | Mapping[str, AnyPredictor],
    *,
    context: Iterable[int] | str | None = None,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> PrefixLosses:
    """Measure losses after each number of examples, on all prefixes of the same sequences.

    Args:
        problem: The distribution of sequences; its own context length does not matter.
        predictors: A model or another predictor, or several by name.
        context: The numbers of examples, such as `range(1, 41)` or `"10..40"`; None for 1 to the problem's largest.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.
        progress: Called with the number of sequences done and the number of all.

    Returns:
        Losses, standard errors, floors and numbers of explosions at each number of examples.

    Raises:
        InputError: Features are standardised within the context, so that prefixes are other sequences. Or an argument
            is not allowed.
    """
    check_problem(problem)
    if problem.features.standardised:
        refuse(
            "prefixes need features that are not standardised within the context",
            problem.features,
            "Use shifts with context=[...].",
        )
    named = dict(predictors) if isinstance(predictors, Mapping) else {repr(predictors): predictors}
    check_predictors("losses by prefix need a dict of at least one predictor", named, problem)
    wanted = Lengths(range(1, problem.lengths.most + 1) if context is None else context).values
    longest = problem.replace(context=int(wanted[-1]))
    sequences, seed = integer("sequences", sequences, 2), integer("seed", seed, 0)
    columns = {**named, "": best_predictor(problem)}
    queries = QUERIES if needed(named.values())["tokens"] else 1
    running = [Running(len(columns), problem.signal) for _ in wanted]
    for first in range(0, sequences, BLOCK):
        count = min(BLOCK, sequences - first)
        for one, draw in zip(running, _prefixes(longest, wanted, seed, first, count, queries), strict=True):
            one.add(np.stack([adjusted_losses(predictor, draw) for predictor in columns.values()], 1))
        progress(first + count, sequences)
    names = ("mean", "errors", "exploded", "unexploded")
    loss, error, wild, others = (np.stack([getattr(one, name) for one in running], -1) for name in names)
    arrays = (loss[:-1], error[:-1], wild[:-1], others[:-1], loss[-1], error[-1])
    return PrefixLosses(tuple(named), *arrays, sequences, np.array(wanted))


def _prefixes(
    problem: Problem, wanted: NDArray[np.int64], seed: int, step: int, count: int, queries: int
) -> Iterator[Draw]:
    """The draws of the first so many tokens of the same sequences, one for each number of tokens."""
    tokens = problem.sequences(count, seed=seed, stream=EVALUATION, step=step, queries=queries)
    assert tokens.sigma is not None
    assert tokens.task is not None
    e = np.concatenate([tokens.x, tokens.y[..., None]], axis=-1)
    gram, sums, before = np.zeros((count, e.shape[2], e.shape[2])), np.zeros((count, e.shape[2])), 0
    for n in wanted.tolist():
        part = np.asarray(e[:, before:n])
        gram, sums, before = gram + np.swapaxes(part, 1, 2) @ part, sums + part.sum(1), n
        moments = Moments._trusted(gram.copy(), n, np.array(tokens.sigma), sums.copy())
        found = Draw(moments, tokens.task, tokens.task, tokens.sigma, tokens.metric, tokens=tokens)
        yield with_oracle(found, problem)
