"""What a problem gives: whole sequences, or their moments with what is known about each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.validation import array
from ridgeformer.values import Value, read_only

__all__ = ["Draw", "Sequences"]

Float = NDArray[np.floating[Any]]
Array = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class Sequences(Value):
    """Whole sequences, token by token.

    Attributes:
        x: The features of the contexts, [B, n, d].
        y: Their labels, [B, n].
        queries: The features of the queries, [B, m, d].
        answers: Their labels without noise, [B, m].
        task: The w of each sequence, [B, d]; None where labels are not linear in the features.
        sigma: The noise level of each sequence, [B]; None where there is none.
        context: How many of the n tokens each context has, [B], where that varies; the tokens beyond are 0.
        metric: The covariance of the queries, [d, d] for all sequences or [B, d, d], where it is known and not the
            identity. Losses then need no sampled queries.
    """

    x: Array
    y: Array
    queries: Array
    answers: Array
    task: Array | None = None
    sigma: Array | None = None
    context: NDArray[np.int64] | None = None
    metric: Array | None = None

    def __repr__(self) -> str:
        count, n, d = self.x.shape
        return f"Sequences({count} of {n} tokens, dim={d}, {self.queries.shape[1]} queries each)"

    @property
    def moments(self) -> Moments:
        """The moments of the contexts."""
        found = Moments.from_tokens(self.x, self.y, self.context)
        sigma = None if self.sigma is None else np.asarray(self.sigma)
        return Moments._trusted(found.gram, found.context, sigma, found.sums)

    def chosen(self, index: NDArray[np.integer[Any]]) -> Sequences:
        """Return some of the sequences.

        Args:
            index: Which ones, [b].

        Returns:
            Their tokens.
        """
        shared = np.ndim(self.metric) == 2  # type: ignore[arg-type]
        names = [f.name for f in fields(self) if f.name != "metric" or not shared]
        return replace(self, **{name: _pick(getattr(self, name), index) for name in names})


@dataclass(eq=False, repr=False)
class Draw(Value):
    """Moments of random sequences and what is known about each.

    The loss of weights w_hat on a sequence is 1/2 (w_hat - task)' metric (w_hat - task) + offset: half the mean squared
    error over its queries. The adjusted loss is 1/2 (w_hat - ridge)' metric (w_hat - ridge).

    Attributes:
        moments: Of B contexts.
        task: The w of each sequence, [B, d]; where labels are not linear, the weights that fit the queries best.
        ridge: E[w | context, sigma], [B, d]: the best prediction when sigma is known; the task where that is not known.
        sigma: The noise levels, [B]; None where there are none.
        metric: The covariance of the queries, [d, d] for all sequences or [B, d, d]; None for the identity.
        offset: What no weights can predict, [B]; None for 0.
        oracle: Whether `ridge` is an oracle's, so that there is an adjusted loss. Without one, losses are not adjusted.
        tokens: The whole sequences, where they were drawn: what predictors that need tokens see.
    """

    moments: Moments
    task: Float
    ridge: Float
    sigma: Array | None
    metric: Float | None = None
    offset: Array | None = None
    oracle: bool = True
    tokens: Sequences | None = None

    def __repr__(self) -> str:
        return f"Draw({self.moments!r}, task, ridge, sigma)"

    @classmethod
    def from_sequences(cls, sequences: Sequences) -> Draw:
        """Return the draw whose loss is that of these sequences' own queries, or of their tasks where these are known.

        Args:
            sequences: Sequences whose labels need not be linear in the features.

        Returns:
            The draw.
        """
        moments, queries = sequences.moments, np.asarray(sequences.queries, np.float64)
        metric = sequences.metric
        if metric is None:
            metric = np.swapaxes(queries, 1, 2) @ queries / queries.shape[1]
        if sequences.task is not None:
            return cls(moments, sequences.task, sequences.task, sequences.sigma, metric, oracle=False)
        answers = np.asarray(sequences.answers, np.float64)
        # The least-squares fit to the queries, of least norm; what it leaves is the offset.
        fit = (np.linalg.pinv(queries) @ answers[..., None])[..., 0]
        left = answers - np.einsum("bmd,bd->bm", queries, fit)
        return cls(moments, fit, fit, sequences.sigma, metric, 0.5 * np.square(left).mean(1), False)

    def chosen(self, index: NDArray[np.integer[Any]]) -> Draw:
        """Return some of the sequences.

        Args:
            index: Which ones, [b].

        Returns:
            Their draw.
        """
        shared = self.metric is None or np.ndim(self.metric) == 2
        metric = self.metric if shared else _pick(self.metric, index)
        return replace(
            self,
            moments=self.moments.chosen(index),
            task=_pick(self.task, index),
            ridge=_pick(self.ridge, index),
            sigma=_pick(self.sigma, index),
            metric=metric,
            offset=_pick(self.offset, index),
            tokens=None if self.tokens is None else self.tokens.chosen(index),
        )

    def by_length(self) -> Iterator[Draw]:
        """Split the sequences by their number of examples: draws whose `moments.context` is a number."""
        for index, moments in self.moments.by_length():
            yield replace(self.chosen(index), moments=moments)

    def losses(self, weights: Float, goal: Float) -> Array:
        """Compute 1/2 (weights - goal)' metric (weights - goal) of every sequence.

        Args:
            weights: Weights, [B, d].
            goal: `task` or `ridge`, [B, d].

        Returns:
            The losses, [B].
        """
        error = np.asarray(weights, np.float64) - np.asarray(goal, np.float64)
        if self.metric is None:
            return np.asarray(0.5 * np.square(error).sum(1))
        metric = np.asarray(self.metric, np.float64)
        weighed = error @ metric if metric.ndim == 2 else np.einsum("bij,bj->bi", metric, error)
        return np.asarray(0.5 * (error * weighed).sum(1))

    def both_losses(self, weights: Float) -> tuple[Array, Array]:
        """Compute the adjusted and the unadjusted losses of weights; they are equal if there is no oracle.

        Args:
            weights: Weights, [B, d].

        Returns:
            Both losses, [B] each.
        """
        unadjusted = self.losses(weights, self.task)
        if self.offset is not None:
            unadjusted = unadjusted + self.offset
        return (self.losses(weights, self.ridge) if self.oracle else unadjusted), unadjusted

    def checked(self, dim: int, count: int) -> Draw:
        """Return this draw, if its shapes fit and its numbers are finite.

        Args:
            dim: The dimension that it must have.
            count: How many sequences it must have.

        Returns:
            This draw.

        Raises:
            InputError: A shape does not fit, or something is not finite.
        """
        if not isinstance(self.moments, Moments):
            refuse("a draw needs Moments", f"a {type(self.moments).__name__}", "Use Moments.from_tokens(x, y).")
        if self.moments.dim != dim or len(self.moments) != count:
            refuse(
                f"a problem must draw {count} contexts of dimension {dim}",
                f"{len(self.moments)} of dimension {self.moments.dim}",
                "Correct its draw method.",
            )
        array("gram", self.moments.gram, (count, dim + 1, dim + 1))
        array("task", self.task, (count, dim))
        array("ridge", self.ridge, (count, dim))
        if self.metric is not None:
            array("metric", self.metric, (dim, dim) if np.ndim(self.metric) == 2 else (count, dim, dim))
        if self.offset is not None:
            array("offset", self.offset, (count,))
        if self.sigma is not None and (array("sigma", self.sigma, (count,)) < 0).any():
            refuse("noise levels must not be negative", float(np.min(self.sigma)), "Correct the draw method.")
        return self

    def astype(self, dtype: type) -> Draw:
        """Return the same numbers, with moments, task, ridge and metric in another precision.

        Args:
            dtype: float32 or float64.

        Returns:
            The draw.
        """
        if self.moments.dtype == dtype:
            return self

        def cast(value: Float | None) -> Any:
            return None if value is None else read_only(np.asarray(value).astype(dtype))

        m = self.moments
        moments = Moments._trusted(cast(m.gram), m.context, m.sigma, cast(m.sums))
        arrays = (cast(self.task), cast(self.ridge), self.sigma, cast(self.metric), self.offset)
        return Draw(moments, *arrays, self.oracle)


def _pick(value: Any, index: NDArray[np.integer[Any]]) -> Any:
    """Some rows of an array, if there is one."""
    return None if value is None else np.asarray(value[index])
