"""Contexts as training evaluates them, and the weight of a single loss."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import Evaluation, Layout
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem, Draw

Array = NDArray[np.float64]
Float = NDArray[np.floating[Any]]
STORED = 1 << 27  # bytes of Gram matrices that are stored; beyond, they are drawn again every time


def ceiling(problem: BaseProblem) -> float:
    """Return the loss above which losses enter by their logarithm: twice that of predicting nothing at all.

    Args:
        problem: The distribution of sequences.

    Returns:
        The signal of the problem.
    """
    return problem.signal


def damped(losses: NDArray[Any], limit: float) -> Array:
    """Return the losses, and limit (1 + log(loss / limit)) for those above the limit.

    Args:
        losses: Losses of single sequences, of any shape.
        limit: The loss above which they enter by their logarithm.

    Returns:
        Losses of the same shape, float64.
    """
    values = losses.astype(np.float64)
    return np.where(values > limit, limit * (1 + np.log(np.maximum(values, limit) / limit)), values)


@dataclass(frozen=True, eq=False)
class Batch:
    """Contexts as an engine evaluates them, in the layout of some model's tokens.

    Attributes:
        gram: Gram matrices of the tokens, [b, D, D].
        target: What weights are compared with, [b, c].
        metric: The metric of the loss, [c, c] or [b, c, c]; None for the identity.
        dims: The dimension of each context, [b], where it varies; features beyond are 0. None where it does not.
    """

    gram: Float
    target: Float
    metric: Float | None
    dims: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, draw: Draw, layout: Layout) -> Batch:
        """Return the contexts of a draw.

        Args:
            draw: Sequences, with the sums of their tokens if the layout needs them.
            layout: The layout of the tokens.

        Returns:
            The contexts.
        """
        counted = draw.with_intercept() if layout.counted else draw
        return cls(draw.moments.gram_of(layout), np.asarray(counted.ridge), counted.metric, draw.dims)

    @classmethod
    def none(cls, problem: BaseProblem, layout: Layout) -> Batch:
        """Return no contexts.

        Args:
            problem: The distribution of sequences that others would come from.
            layout: The layout of the tokens.

        Returns:
            An empty batch of the right shapes.
        """
        single = cls.of(problem.moments(1, sums=layout.coordinate != "none"), layout)
        metric = None if single.metric is None else np.empty((0, *single.metric.shape[-2:]))
        return cls(single.gram[:0], single.target[:0], metric, None if single.dims is None else single.dims[:0])

    def __len__(self) -> int:
        return len(self.gram)

    def stretched(self, by: float) -> Batch:
        """Return the contexts with all their Gram matrices multiplied by a number.

        Args:
            by: The number.

        Returns:
            A new batch.
        """
        return Batch(by * self.gram, self.target, self.metric, self.dims)

    def own_metrics(self) -> Float | None:
        """Return a metric for each context, [b, c, c], or None for the identity."""
        if self.metric is None:
            return None
        return np.broadcast_to(self.metric, (len(self), *self.metric.shape[-2:]))

    def _by_context(self) -> tuple[Any, ...]:
        """All that a batch is made of, with a metric for each context."""
        return self.gram, self.target, self.own_metrics(), self.dims

    def joined(self, other: Batch, most: int) -> Batch:
        """Return the contexts of both, at most a given number.

        Args:
            other: Further contexts, which come after these.
            most: How many to keep.

        Returns:
            A new batch.
        """
        pairs = zip(self._by_context(), other._by_context(), strict=True)
        parts: list[Any] = [None if a is None or b is None else np.concatenate([a, b])[:most] for a, b in pairs]
        return Batch(*parts)

    def part(self, index: list[int]) -> Batch:
        """Return some of the contexts.

        Args:
            index: Which ones.

        Returns:
            A new batch.
        """
        parts: list[Any] = [None if value is None else np.asarray(value[index]) for value in self._by_context()]
        return Batch(*parts)

    def evaluate(
        self,
        model: LinearTransformer,
        limit: float,
        gradient: bool = True,
        threads: int | None = None,
        weights: bool = False,
    ) -> Evaluation:
        """Return losses, and the gradient with respect to the model's `kernel`.

        Args:
            model: The model, with tokens of this layout.
            limit: The loss above which losses enter the gradient by their logarithm.
            gradient: Whether to compute the gradient.
            threads: Threads of the engine; None for all.
            weights: Whether to return the estimates.

        Returns:
            The evaluation of the engine.
        """
        if self.dims is not None and model.family.further_vectors == 0:
            return self._by_blocks(model, limit, gradient, threads)
        gram, target, metric = self._arrays
        return engines.current().evaluate(
            model.kernel,
            gram,
            target,
            metric=metric,
            counted=self.target.shape[1],
            ceiling=limit,
            weights=weights,
            gradient=gradient,
            threads=threads,
        )

    @cached_property
    def _arrays(self) -> tuple[Float, Float, Float | None]:
        """Gram matrices, targets and metric in the memory order of engines, so that no evaluation copies them."""
        metric = self.metric
        if metric is not None and metric.ndim == 3:
            metric = _innermost(metric)
        return _innermost(self.gram), _innermost(self.target), metric

    @cached_property
    def _blocks(self) -> list[tuple[NDArray[np.intp], Batch]]:
        """The contexts of each dimension, without the features that are 0."""
        assert self.dims is not None
        blocks, dim = [], self.target.shape[1]
        for d in np.unique(self.dims).tolist():
            index = np.flatnonzero(self.dims == d)
            columns = np.append(np.arange(d), np.arange(dim, self.gram.shape[1]))
            metric = self.metric if self.metric is None or self.metric.ndim == 2 else self.metric[index]
            own_metric = None if metric is None else metric[..., :d, :d]
            gram = self.gram[np.ix_(index, columns, columns)]
            blocks.append((index, Batch(gram, self.target[index, :d], own_metric)))
        return blocks

    def _by_blocks(self, model: LinearTransformer, limit: float, gradient: bool, threads: int | None) -> Evaluation:
        """Losses and gradient by blocks of equal dimension, which is faster than at the largest dimension."""
        losses, limited, slopes = np.zeros(len(self), self.gram.dtype), 0, list[Any]()
        for index, block in self._blocks:
            evaluation = block.evaluate(model.at_dim(block.target.shape[1]), limit, gradient, threads)
            losses[index], limited = evaluation.losses, limited + evaluation.limited
            if evaluation.gradient is not None:
                slopes.append([len(block) / len(self) * piece for piece in evaluation.gradient])
        total: Any = type(model.kernel)(*map(sum, zip(*slopes, strict=True))) if slopes else None
        return Evaluation(losses, None, total, limited)


def _innermost(values: Float) -> Float:
    """The same numbers with the batch innermost in memory, as the engines like it."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, 0, -1)), -1, 0)
