"""A fixed set of sequences as a problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ridgeformer.engine import Key
from ridgeformer.errors import kind_of, refuse, short
from ridgeformer.problems.base import Ask, BaseProblem
from ridgeformer.problems.custom import CustomProblem
from ridgeformer.problems.draws import Draw, Sequences


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
        self._drawn = Draw.from_sequences(sequences)
        moments = self._drawn.moments
        self._count, self.dim, self.context = len(moments), moments.dim, np.unique(moments.counts).tolist()

    @property
    def size(self) -> int:  # type: ignore[override]
        """How many sequences there are."""
        return self._count

    def __len__(self) -> int:
        return self._count

    def draw(self, rng: np.random.Generator, count: int) -> Draw:
        """See `CustomProblem.draw`."""
        return self._at(rng, 0, count)

    def _moments(self, key: Key, count: int, first: int, ask: Ask) -> Draw:
        return replace(self._draw_tokens(key, count, first, 0), tokens=None).astype(ask.dtype)

    step = BaseProblem.step

    def _draw_tokens(self, key: Key, count: int, first: int, queries: int) -> Draw:
        return self._at(np.random.default_rng(np.random.SeedSequence(key)), first, count)

    def _at(self, rng: np.random.Generator, first: int, count: int) -> Draw:
        """Sequences of a random order, from the first one on."""
        return self._drawn.chosen(rng.permutation(self._count)[(first + np.arange(count)) % self._count])

    @property
    def label(self) -> str:
        """See `BaseProblem.label`."""
        return f"Dataset({self._count} sequences, dim={self.dim}, context={short(str(self.lengths), 40)})"
