"""A fixed set of sequences as a problem."""

from __future__ import annotations

import numpy as np

from ridgeformer.engine import Engine, Key
from ridgeformer.errors import kind_of, refuse
from ridgeformer.problems.base import Precision
from ridgeformer.problems.custom import CustomProblem, from_tokens
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
            refuse("a data set is made of Sequences", kind_of(sequences), "Pass Sequences(x, y, ...).")
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
        return self._tokens.chosen(rng.permutation(self._count)[np.arange(count) % self._count])

    def draw(self, rng: np.random.Generator, count: int) -> Draw:
        """See `CustomProblem.draw`."""
        return self._at(rng, 0, count)

    def _moments(
        self, key: Key, count: int, first: int, dtype: Precision, sums: bool, engine: Engine, threads: int | None
    ) -> Draw:
        return self._at(np.random.default_rng(np.random.SeedSequence(key)), first, count).astype(dtype)

    def _at(self, rng: np.random.Generator, first: int, count: int) -> Draw:
        """So many sequences of a random order, from the first one on."""
        return self._drawn.chosen(rng.permutation(self._count)[(first + np.arange(count)) % self._count])

    def __str__(self) -> str:
        return f"Dataset({self._count} sequences, dim={self.dim}, context={self.lengths})"
