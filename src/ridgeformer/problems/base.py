"""What every problem offers to training and evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ridgeformer import engine as engines
from ridgeformer.engine import Engine, Key, Law
from ridgeformer.engine.arguments import check_sequences, make_key
from ridgeformer.errors import refuse
from ridgeformer.noise import Noise
from ridgeformer.problems.draws import Draw, Sequences
from ridgeformer.problems.lengths import Lengths
from ridgeformer.validation import precision
from ridgeformer.values import Value

__all__ = ["BaseProblem", "Precision"]

Precision = type[np.float32] | type[np.float64]


class BaseProblem(Value, ABC):
    """A distribution of sequences: what training and evaluation ask of a problem.

    Attributes:
        dim: The dimension d of the features.
        law: How an engine draws the sequences by itself; None where only `moments` can.
        lengths: The number of examples in a context.
        noise: The distribution of noise levels; None where there is none to speak of.
        signal: The mean square of what is to be predicted: twice the loss of predicting 0.
    """

    dim: int
    law: Law | None = None
    lengths: Lengths
    noise: Noise | None
    signal: float

    def moments(
        self,
        count: int,
        *,
        seed: int = 0,
        stream: int = 0,
        step: int = 0,
        first: int = 0,
        dtype: DTypeLike = np.float64,
        sums: bool = False,
        engine: Engine | str | None = None,
        threads: int | None = None,
    ) -> Draw:
        """Draw moments of sequences.

        A built-in problem draws them directly by Bartlett's decomposition, at a cost that does not depend on the number
        of examples. Its sequence i of (seed, stream, step) is the same whatever `count`, `first` and the number of
        threads. A problem of your own is asked for whole sequences, and other `first` or `count` give other ones.

        Args:
            count: How many sequences, B.
            seed: The seed.
            stream: A number that tells independent streams of one seed apart.
            step: A further such number.
            first: The number of the first sequence in its stream.
            dtype: float32 or float64.
            sums: Whether to draw the sums of the tokens too, which models with a further coordinate need.
            engine: Where it is computed; None for the current engine.
            threads: How many threads; None for the default.

        Returns:
            Moments, tasks, oracle weights, noise levels and the metric of the loss.

        Raises:
            InputError: A number is out of range, or what a problem of your own draws is not what it should be.
        """
        key, (count, first) = make_key(seed, stream, step), check_sequences(count, first)
        return self._moments(key, count, first, precision(dtype), sums, engines.resolve(engine), threads)

    @abstractmethod
    def _moments(
        self, key: Key, count: int, first: int, dtype: Precision, sums: bool, engine: Engine, threads: int | None
    ) -> Draw:
        """Draw sequences; see `moments`."""

    def sequences(self, count: int, *, seed: int = 0, stream: int = 0, step: int = 0, queries: int = 1) -> Sequences:
        """Draw whole sequences, token by token.

        Args:
            count: How many sequences, B.
            seed: The seed.
            stream: A number that tells independent streams of one seed apart.
            step: A further such number.
            queries: How many queries each sequence has; a problem of your own decides that itself.

        Returns:
            The sequences.

        Raises:
            InputError: The problem only draws moments.
        """
        refuse("this needs a problem that draws tokens", f"{self}, which draws moments", "Return Sequences from draw.")

    @abstractmethod
    def at_noise(self, sigma: float) -> BaseProblem:
        """Return the same problem with one noise level.

        Args:
            sigma: The noise level.

        Returns:
            The problem.
        """

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return what decides the law, as JSON has it."""

    def check_named(self) -> None:
        """Refuse a problem that a stored run could not be read back with."""

    @property
    def has_at_noise(self) -> bool:
        """Whether `at_noise` gives the problem at one noise level."""
        return True

    @property
    def size(self) -> int | None:
        """How many sequences there are; None where new ones can always be drawn."""
        return None

    @property
    def is_isotropic(self) -> bool:
        """Whether features, tasks and queries are N(0, I) and n is fixed, as in the seed paper."""
        return False

    @property
    def feature_scale(self) -> float:
        """The root mean square of a feature, for the size of starts in training."""
        return 1.0

    @property
    def has_pool(self) -> bool:
        """Whether tasks come from a pool, wholly or in part."""
        return False

    def best_predictor(self) -> Any:
        """Return the predictor of least expected loss; None for Gaussian problems, and where it is not known."""
        return None
