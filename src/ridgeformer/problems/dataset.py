"""A fixed set of sequences as a problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Engine, Key
from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.problems.base import CustomProblem, Precision, from_tokens
from ridgeformer.problems.draws import Draw, Sequences

__all__ = ["Dataset"]


class Dataset(CustomProblem):
    """A fixed set of sequences to train or evaluate on: finite pretraining data.

    Each key (seed, stream, step) takes the sequences of the set in a random order, each once before any comes again. So
    an evaluation uses each sequence once, and no more sequences than there are.

    Args:
        sequences: The sequences, such as `problem.sequences(1000)` or `Sequences(x, y, queries, answers)`.
    """

    def __init__(self, sequences: Sequences) -> None:
        if not isinstance(sequences, Sequences):
            refuse("a data set is made of Sequences", f"a {type(sequences).__name__}", "Pass Sequences(x, y, ...).")
        self._tokens, self._drawn = sequences, from_tokens(sequences)
        moments = self._drawn.moments
        self._count, self.dim, self.context = len(moments), moments.dim, np.unique(moments.counts).tolist()

    @property
    def size(self) -> int:
        """How many sequences there are."""
        return self._count

    def __len__(self) -> int:
        return self._count

    def sequences(self, count: int, *, seed: int = 0, stream: int = 0, step: int = 0, queries: int = 1) -> Sequences:
        """See `BaseProblem.sequences`."""
        rng = np.random.default_rng(np.random.SeedSequence((seed, stream, step)))
        index, tokens = rng.permutation(self._count)[np.arange(count) % self._count], vars(self._tokens)
        shared = {"metric"} if np.ndim(tokens["metric"]) == 2 else set()
        names = [name for name, value in tokens.items() if isinstance(value, np.ndarray) and name not in shared]
        return replace(self._tokens, **{name: np.asarray(tokens[name][index]) for name in names})

    def draw(self, rng: np.random.Generator, count: int) -> Draw:
        """See `CustomProblem.draw`."""
        return self._at(rng, 0, count)

    def _moments(
        self, key: Key, count: int, first: int, dtype: Precision, sums: bool, engine: Engine, threads: int | None
    ) -> Draw:
        return self._at(np.random.default_rng(np.random.SeedSequence(key)), first, count).astype(dtype)

    def _at(self, rng: np.random.Generator, first: int, count: int) -> Draw:
        """So many sequences of a random order, from the first one on."""
        return _select(self._drawn, rng.permutation(self._count)[(first + np.arange(count)) % self._count])

    def __str__(self) -> str:
        return f"Dataset({self._count} sequences, dim={self.dim}, context={self.lengths})"


def _select(drawn: Draw, index: NDArray[np.integer[Any]]) -> Draw:
    """The chosen sequences of a draw."""

    def pick(value: Any) -> Any:
        return None if value is None else np.asarray(value[index])

    m = drawn.moments
    context = m.context if isinstance(m.context, int) else pick(m.counts)
    moments = Moments._trusted(pick(m.gram), context, pick(m.sigma), pick(m.sums))
    metric = drawn.metric if drawn.metric is None or drawn.metric.ndim == 2 else pick(drawn.metric)
    arrays = (pick(drawn.task), pick(drawn.ridge), pick(drawn.sigma), metric, pick(drawn.offset))
    return Draw(moments, *arrays, drawn.oracle)
