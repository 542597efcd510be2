"""Contexts on which a model fails: they are looked for among many, and then count in the objective.

All contexts of the search are stretched by a fifth, so that rare ones become common.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Kernel, Key, Layout
from ridgeformer.losses import threshold
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.training.batch import Batch, ceiling, damped

Array = NDArray[np.float64]
Float = NDArray[np.floating[Any]]
STRETCH = 1.2  # contexts are stretched by this in the search for failures
WEIGHT = 0.5  # what a stretched sequence counts, next to one that was met without stretching
STRONGER = 3.0  # what failures count more as long as the model explodes
FAILS = 20  # times the ceiling: a loss from which on a stretched context counts as a failure
MOST = 512  # sequences that are remembered
BLOCK = 1 << 16  # sequences that are looked at together


@dataclass(frozen=True, eq=False)
class Failures:
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
    def none(cls, problem: BaseProblem, layout: Layout) -> Failures:
        """Return no contexts yet.

        Args:
            problem: The distribution of sequences.
            layout: The layout of the tokens.

        Returns:
            No contexts.
        """
        return cls(Batch.none(problem, layout))

    @classmethod
    def restored(cls, arrays: dict[str, Array]) -> Failures:
        """Return what `arrays` stored.

        Args:
            arrays: The arrays by name.

        Returns:
            The contexts.
        """
        share, strength, exploded = arrays["failures"].tolist()
        return cls(Batch(arrays["gram"], arrays["target"], arrays.get("metric")), share, strength, int(exploded))

    def arrays(self) -> dict[str, Array]:
        """Return the arrays by name, to be stored."""
        facts = np.array([self.share, self.strength, self.exploded])
        arrays = {"gram": self.batch.gram, "target": self.batch.target, "failures": facts}
        metric = self.batch.own_metrics()
        return arrays if metric is None else {**arrays, "metric": np.ascontiguousarray(metric)}

    def __len__(self) -> int:
        return len(self.batch)

    def value(self, model: LinearTransformer, limit: float, threads: int | None) -> tuple[float, dict[str, Array]]:
        """Return their share of the objective, and its gradient.

        Args:
            model: The model, with tokens of their layout.
            limit: The loss above which losses enter by their logarithm.
            threads: Threads of the engine; None for all.

        Returns:
            The share, and the gradient by the names of the family's arrays.
        """
        evaluation = self.batch.evaluate(model, limit, threads=threads)
        worst = damped(np.minimum(evaluation.losses, np.finfo(np.float64).max), limit)
        gradient = model.family.pullback(evaluation.gradient)
        return self.share * float(worst.mean()), {name: self.share * slope for name, slope in gradient.items()}


class Among(NamedTuple):
    """The contexts among which failures are looked for.

    Attributes:
        problem: What they are drawn from.
        key: Their stream.
        sequences: How many of them.
    """

    problem: BaseProblem
    key: Key
    sequences: int

    def blocks(self) -> list[tuple[int, int]]:
        """Return the first sequence and the number of sequences of each block."""
        return [(start, min(BLOCK, self.sequences - start)) for start in range(0, self.sequences, BLOCK)]


def mine(
    model: LinearTransformer,
    known: Failures,
    among: Among,
    *,
    caution: float = 1.0,
    threads: int | None = None,
    deciding: bool = False,
) -> Failures:
    """Return further contexts on which a model fails, before those already known; no further ones without caution.

    Args:
        model: The model that may fail.
        known: Failures contexts that are known already.
        among: Where to look.
        caution: What these contexts count, relative to the default.
        threads: Threads of the engine; None for all.
        deciding: Whether contexts on which the model explodes without stretching come before all others.

    Returns:
        The contexts, at most 512.
    """
    if not caution:
        return known
    problem = among.problem
    worst = _above(model, among, threshold(problem.signal), threads=threads)
    failed = _above(model, among, FAILS * ceiling(problem), stretch=STRETCH, threads=threads)
    if deciding:
        failed = list(dict.fromkeys([*worst, *failed]))
    exploded = len(worst)
    batch = known.batch
    for part in reversed(_drawn(model.layout, among, failed[: MOST // 2])):
        batch = part.stretched(STRETCH).joined(batch, MOST)
    strength = known.strength * (STRONGER if exploded and len(known) else 1.0)
    share = caution * WEIGHT * strength * max(len(failed), len(batch)) / among.sequences
    return Failures(batch, share, strength, exploded)


def _above(
    model: LinearTransformer, among: Among, limit: float, *, stretch: float = 1.0, threads: int | None
) -> list[int]:
    """The numbers of the sequences that have losses above the limit with stretched contexts."""
    kernel = model.astype(np.float32).kernel
    stretched = kernel.stretched(np.float32(stretch))  # the same as stretching the Gram matrix
    above: list[int] = []
    for start, count in among.blocks():
        losses = _losses(stretched, model.layout, among, start, count, threads)
        above += [start + int(i) for i in np.flatnonzero(~(losses <= limit))]
    return above


def _losses(kernel: Kernel, layout: Layout, among: Among, first: int, count: int, threads: int | None) -> Float:
    """The losses of a block of sequences, for parameters in float32."""
    return among.problem.step(
        kernel, count, among.key, first=first, layout=layout, dtype=np.float32, gradient=False, threads=threads
    ).losses


def _drawn(layout: Layout, among: Among, index: list[int]) -> list[Batch]:
    """Some of the sequences, in batches."""
    problem, name, sums = among.problem, among.key._asdict(), layout.coordinate != "none"
    return [Batch.of(problem.moments(1, first=i, sums=sums, **name), layout) for i in index]
