"""What training minimises: the adjusted loss over sequences, and what it does about those on which a model explodes.

A deep model is a polynomial of high degree: on one sequence in 10^5 its loss can be 10^10, and an average over a batch
either misses that sequence or is ruined by it. Two things keep such models away. Losses above `ceiling` enter by their
logarithm. And a search among many contexts, all stretched by a fifth so that rare ones become common, collects
those on which the model fails; these then count in the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import Evaluation, Key, Layout, Target
from ridgeformer.losses import threshold
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem, Draw, Problem

__all__ = ["STRETCH", "Batch", "Hard", "SampleAverage", "ceiling", "damped", "edges", "fewer", "mine"]

Array = NDArray[np.float64]
Float = NDArray[np.floating[Any]]
Value = tuple[float, dict[str, Array]]
STRETCH = 1.2  # contexts are stretched by this in the search for hard ones
WEIGHT = 0.5  # what a hard sequence counts, next to one that was met without stretching
STRONGER = 3.0  # what hard sequences count more as long as there are such
FAILS = 20  # times the ceiling: a loss from which on a stretched context counts as hard
MOST = 512  # hard sequences that are kept
STORED = 1 << 27  # bytes of Gram matrices that are kept; beyond, they are drawn again every time
BLOCK = 1 << 16  # sequences that are looked at together
OWN_BLOCK = 1 << 13  # the same where sequences are drawn by Python


def ceiling(problem: BaseProblem) -> float:
    """Return the loss above which losses enter by their logarithm: twice that of predicting nothing at all.

    Args:
        problem: The distribution of sequences.

    Returns:
        The signal of the problem.
    """
    return problem.signal


def fewer(problem: BaseProblem, sequences: int) -> int:
    """Return a number of sequences, or an eighth of it where they are drawn by Python, which takes longer.

    Args:
        problem: The distribution of sequences.
        sequences: How many there are where an engine draws them.

    Returns:
        How many to use.
    """
    return sequences if problem.law is not None else sequences // 8


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
    """

    gram: Float
    target: Float
    metric: Float | None

    @classmethod
    def of(cls, draw: Draw, layout: Layout) -> Batch:
        """Return the contexts of a draw.

        Args:
            draw: Sequences, with the sums of their tokens if the layout needs them.
            layout: The layout of the tokens.

        Returns:
            The contexts.
        """
        moments = draw.moments
        sums = None if moments.sums is None else np.asarray(moments.sums)
        gram = moments.gram if layout.is_plain else layout.gram(np.asarray(moments.gram), moments.context, sums)
        counted = draw.with_intercept() if layout.counted else draw
        return cls(gram, np.asarray(counted.ridge), counted.metric)

    @classmethod
    def none(cls, problem: BaseProblem, layout: Layout) -> Batch:
        """Return no contexts.

        Args:
            problem: The distribution of sequences that others would come from.
            layout: The layout of the tokens.

        Returns:
            An empty batch of the right shapes.
        """
        D, c = problem.dim + layout.extra + 1, problem.dim + layout.counted
        plain = problem.law is not None and problem.law.metric is None and not problem.law.own_metric
        return cls(np.empty((0, D, D)), np.empty((0, c)), None if plain else np.empty((0, c, c)))

    def __len__(self) -> int:
        return len(self.gram)

    def stretched(self, by: float) -> Batch:
        """Return the contexts with all their Gram matrices multiplied by a number.

        Args:
            by: The number.

        Returns:
            A new batch.
        """
        return Batch(by * self.gram, self.target, self.metric)

    def own_metrics(self) -> Float | None:
        """Return a metric for each context, [b, c, c], or None for the identity."""
        if self.metric is None:
            return None
        return np.broadcast_to(self.metric, (len(self), *self.metric.shape[-2:]))

    def joined(self, other: Batch, most: int) -> Batch:
        """Return the contexts of both, at most so many.

        Args:
            other: Further contexts, which come after these.
            most: How many to keep.

        Returns:
            A new batch.
        """
        metrics = self.own_metrics(), other.own_metrics()
        metric = None if metrics[0] is None or metrics[1] is None else np.concatenate([metrics[0], metrics[1]])[:most]
        gram, target = (np.concatenate(pair)[:most] for pair in ((self.gram, other.gram), (self.target, other.target)))
        return Batch(gram, target, metric)

    def part(self, index: list[int]) -> Batch:
        """Return some of the contexts.

        Args:
            index: Which ones.

        Returns:
            A new batch.
        """
        metrics = self.own_metrics()
        metric = None if metrics is None else np.asarray(metrics[index])
        return Batch(np.asarray(self.gram[index]), np.asarray(self.target[index]), metric)

    def evaluate(
        self, model: LinearTransformer, limit: float, gradient: bool = True, threads: int | None = None
    ) -> Evaluation:
        """Return losses, and the gradient with respect to the model's `kernel`.

        Args:
            model: The model, with tokens of this layout.
            limit: The loss above which losses enter the gradient by their logarithm.
            gradient: Whether to compute the gradient.
            threads: Threads of the engine; None for all.

        Returns:
            What the engine found.
        """
        return engines.current().evaluate(
            model.kernel,
            self.gram,
            self.target,
            metric=self.metric,
            counted=self.target.shape[1],
            ceiling=limit,
            gradient=gradient,
            threads=threads,
        )


@dataclass(frozen=True, eq=False)
class Hard:
    """Stretched contexts on which some model failed.

    Attributes:
        batch: The contexts.
        share: Their part of the objective: of all contexts, times what one of them counts.
        strength: What one counts, relative to the first search: it grows as long as the model explodes.
        exploded: How many contexts of the last search the model exploded on without stretching.
    """

    batch: Batch
    share: float = 0.0
    strength: float = 1.0
    exploded: int = 0

    @classmethod
    def none(cls, problem: BaseProblem, layout: Layout) -> Hard:
        """Return no such contexts yet.

        Args:
            problem: The distribution of sequences.
            layout: The layout of the tokens.

        Returns:
            None of them.
        """
        return cls(Batch.none(problem, layout))

    @classmethod
    def restored(cls, arrays: dict[str, Array]) -> Hard:
        """Return what `arrays` stored.

        Args:
            arrays: The arrays by name.

        Returns:
            The contexts.
        """
        share, strength, exploded = arrays["hard"].tolist()
        return cls(Batch(arrays["gram"], arrays["target"], arrays.get("metric")), share, strength, int(exploded))

    def arrays(self) -> dict[str, Array]:
        """To be stored."""
        facts = np.array([self.share, self.strength, self.exploded])
        found = {"gram": self.batch.gram, "target": self.batch.target, "hard": facts}
        metric = self.batch.own_metrics()
        return found if metric is None else {**found, "metric": np.ascontiguousarray(metric)}

    def __len__(self) -> int:
        return len(self.batch)

    def value(self, model: LinearTransformer, limit: float, threads: int | None) -> Value:
        """Return their share of the objective, and its gradient.

        Args:
            model: The model, with tokens of their layout.
            limit: The loss above which losses enter by their logarithm.
            threads: Threads of the engine; None for all.

        Returns:
            The share, and the gradient by the names of the family's arrays.
        """
        found = self.batch.evaluate(model, limit, threads=threads)
        worst = damped(np.minimum(found.losses, np.finfo(np.float64).max), limit)
        gradient = model.family.pullback(found.gradient)
        return self.share * float(worst.mean()), {name: self.share * slope for name, slope in gradient.items()}


def mine(
    model: LinearTransformer,
    problem: BaseProblem,
    known: Hard,
    key: Key,
    sequences: int,
    caution: float = 1.0,
    threads: int | None = None,
) -> Hard:
    """Further hard contexts, found among `sequences` of a key, before those already known; none without caution.

    Args:
        model: The model that may fail.
        problem: What the contexts are drawn from.
        known: Hard contexts that are known already.
        key: The stream of the contexts.
        sequences: How many of them.
        caution: What hard contexts count, relative to the default.
        threads: Threads of the engine; None for all.

    Returns:
        The hard contexts, at most 512.
    """
    if not caution:
        return known
    exploded = len(_above(model, problem, key, sequences, 1.0, threshold(problem.signal), threads))
    found = _above(model, problem, key, sequences, STRETCH, FAILS * ceiling(problem), threads)
    batch = known.batch
    for part in reversed(_drawn(model.layout, problem, key, sequences, found[: MOST // 2])):
        batch = part.stretched(STRETCH).joined(batch, MOST)
    strength = known.strength * (STRONGER if exploded and len(known) else 1.0)
    share = caution * WEIGHT * strength * max(len(found), len(batch)) / sequences
    return Hard(batch, share, strength, exploded)


def edges(problem: BaseProblem) -> BaseProblem:
    """Return the problem with its shortest and longest contexts only, where n varies: models fail there first.

    Args:
        problem: The distribution of sequences.

    Returns:
        The problem itself where n is fixed, and for problems of your own.
    """
    if problem.lengths.fixed or not isinstance(problem, Problem):
        return problem
    return problem.replace(context=[problem.lengths.least, problem.lengths.most])


def _above(
    model: LinearTransformer,
    problem: BaseProblem,
    key: Key,
    sequences: int,
    stretch: float,
    limit: float,
    threads: int | None,
) -> list[int]:
    """Which of a key's sequences, with stretched contexts, have losses above the limit."""
    kernel = model.astype(np.float32).kernel
    # The same as stretching the Gram matrix. Omegas, P and the P of channels come first, each followed by its Q.
    stretched = tuple(value if i % 2 else np.float32(stretch) * value for i, value in enumerate(kernel))
    found: list[int] = []
    for start, count in _blocks(problem, sequences):
        losses = _losses(stretched, model.layout, problem, key, start, count, threads)
        found += [start + int(i) for i in np.flatnonzero(~(losses <= limit))]
    return found


def _blocks(problem: BaseProblem, sequences: int) -> list[tuple[int, int]]:
    """The first sequence and the number of sequences of each block."""
    size = BLOCK if problem.law is not None else OWN_BLOCK
    return [(start, min(size, sequences - start)) for start in range(0, sequences, size)]


def _losses(
    kernel: tuple[Float, ...],
    layout: Layout,
    problem: BaseProblem,
    key: Key,
    first: int,
    count: int,
    threads: int | None,
) -> Float:
    """The losses of a block of sequences, for parameters in float32."""
    engine = engines.current()
    name: dict[str, Any] = {"seed": key.seed, "stream": key.stream, "step": key.step, "first": first}
    if problem.law is None:
        batch = Batch.of(problem.moments(count, dtype=np.float32, sums=layout.coordinate != "none", **name), layout)
        counted = batch.target.shape[1]
        return engine.evaluate(
            kernel, batch.gram, batch.target, metric=batch.metric, counted=counted, gradient=False, threads=threads
        ).losses
    choices = problem.choices(count, engine=engine, **name)  # type: ignore[attr-defined]
    target: Target = "task" if problem.has_pool else "ridge"
    return engine.step(
        kernel, problem.law, choices, key, layout=layout, target=target, gradient=False, first=first, threads=threads
    ).losses


def _drawn(layout: Layout, problem: BaseProblem, key: Key, sequences: int, index: list[int]) -> list[Batch]:
    """Some of a key's sequences, in batches."""
    name: dict[str, Any] = {"seed": key.seed, "stream": key.stream, "step": key.step}
    sums = layout.coordinate != "none"
    if problem.law is not None:
        return [Batch.of(problem.moments(1, first=i, sums=sums, **name), layout) for i in index]
    found = []
    for start, count in _blocks(problem, sequences):
        chosen = [i - start for i in index if start <= i < start + count]
        if chosen:
            found.append(Batch.of(problem.moments(count, first=start, sums=sums, **name), layout).part(chosen))
    return found


@dataclass(eq=False)
class SampleAverage:
    """The mean adjusted loss over fixed sequences, and hard ones: a deterministic function to be minimised.

    Args:
        problem: What the sequences are drawn from.
        sequences: How many.
        key: Their stream.
        dtype: float32 or float64, of the computation.
        hard: Hard contexts that count too.
        threads: Threads of the engine; None for all.
    """

    problem: BaseProblem
    sequences: int
    key: Key
    dtype: type = np.float64
    hard: Hard | None = None
    threads: int | None = None
    _batch: Batch | None = field(default=None, init=False, repr=False)

    def __call__(self, model: LinearTransformer) -> Value:
        """Value and gradient with respect to the family's arrays; an infinite value where the model overflows."""
        limit = ceiling(self.problem)
        model = model.astype(self.dtype)
        if not all(np.isfinite(values).all() for values in model.kernel):  # products of finite parameters
            return np.inf, {name: np.zeros(value.shape) for name, value in model.family.arrays.items()}
        found = self._evaluate(model, limit)
        value = float(damped(found.losses, limit).mean())
        gradient = model.family.pullback(found.gradient)
        if self.hard is not None and len(self.hard):
            more, slopes = self.hard.value(model.astype(np.float64), limit, self.threads)
            value += more
            gradient = {name: slope + slopes[name] for name, slope in gradient.items()}
        return value, gradient

    def _evaluate(self, model: LinearTransformer, limit: float) -> Evaluation:
        seed, stream, step = self.key
        size = np.dtype(self.dtype).itemsize * self.sequences * (model.width + 1) ** 2
        if size > STORED:
            return model.step(
                self.problem, self.sequences, seed=seed, stream=stream, step=step, ceiling=limit, threads=self.threads
            )
        if self._batch is None:
            draw = self.problem.moments(
                self.sequences,
                seed=seed,
                stream=stream,
                step=step,
                dtype=self.dtype,
                sums=model.layout.coordinate != "none",
                threads=self.threads,
            )
            self._batch = Batch.of(draw, model.layout)
        return self._batch.evaluate(model, limit, threads=self.threads)
