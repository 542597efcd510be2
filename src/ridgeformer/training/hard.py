"""Hard contexts: those on which a model fails, found by a search among many, which count in the objective.

All contexts of the search are stretched by a fifth, so that rare ones become common.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import Key, Layout, Target
from ridgeformer.losses import threshold
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem, Problem
from ridgeformer.training.batch import Batch, ceiling, damped

__all__ = ["STRETCH", "Among", "Hard", "edges", "mine"]

Array = NDArray[np.float64]
Float = NDArray[np.floating[Any]]
STRETCH = 1.2  # contexts are stretched by this in the search for hard ones
WEIGHT = 0.5  # what a hard sequence counts, next to one that was met without stretching
STRONGER = 3.0  # what hard sequences count more as long as there are such
FAILS = 20  # times the ceiling: a loss from which on a stretched context counts as hard
MOST = 512  # hard sequences that are kept
BLOCK = 1 << 16  # sequences that are looked at together
OWN_BLOCK = (
    1 << 14
)  # the same where sequences are drawn by Python: all that decide in one block, as they are drawn there


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

    def value(self, model: LinearTransformer, limit: float, threads: int | None) -> tuple[float, dict[str, Array]]:
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


class Among(NamedTuple):
    """The contexts among which hard ones are looked for.

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
        size = BLOCK if self.problem.law is not None else OWN_BLOCK
        return [(start, min(size, self.sequences - start)) for start in range(0, self.sequences, size)]


def mine(
    model: LinearTransformer,
    known: Hard,
    among: Among,
    *,
    caution: float = 1.0,
    threads: int | None = None,
    deciding: bool = False,
) -> Hard:
    """Further hard contexts, before those already known; none without caution.

    Args:
        model: The model that may fail.
        known: Hard contexts that are known already.
        among: Where to look.
        caution: What hard contexts count, relative to the default.
        threads: Threads of the engine; None for all.
        deciding: Whether contexts on which the model explodes without stretching come before all others.

    Returns:
        The hard contexts, at most 512.
    """
    if not caution:
        return known
    problem = among.problem
    worst = _above(model, among, threshold(problem.signal), threads=threads)
    found = _above(model, among, FAILS * ceiling(problem), stretch=STRETCH, threads=threads)
    if deciding:
        found = list(dict.fromkeys([*worst, *found]))
    exploded = len(worst)
    batch = known.batch
    for part in reversed(_drawn(model.layout, among, found[: MOST // 2])):
        batch = part.stretched(STRETCH).joined(batch, MOST)
    strength = known.strength * (STRONGER if exploded and len(known) else 1.0)
    share = caution * WEIGHT * strength * max(len(found), len(batch)) / among.sequences
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
    model: LinearTransformer, among: Among, limit: float, *, stretch: float = 1.0, threads: int | None
) -> list[int]:
    """The numbers of the sequences that have losses above the limit with stretched contexts."""
    kernel = model.astype(np.float32).kernel
    # The same as stretching the Gram matrix. Omegas, P and the P of channels come first, each followed by its Q.
    stretched = tuple(value if i % 2 else np.float32(stretch) * value for i, value in enumerate(kernel))
    found: list[int] = []
    for start, count in among.blocks():
        losses = _losses(stretched, model.layout, among, start, count, threads)
        found += [start + int(i) for i in np.flatnonzero(~(losses <= limit))]
    return found


def _losses(
    kernel: tuple[Float, ...], layout: Layout, among: Among, first: int, count: int, threads: int | None
) -> Float:
    """The losses of a block of sequences, for parameters in float32."""
    engine, problem, key = engines.current(), among.problem, among.key
    if problem.law is None:
        sums = layout.coordinate != "none"
        draw = problem.moments(count, **key._asdict(), first=first, dtype=np.float32, sums=sums)
        batch = Batch.of(draw, layout)
        counted = batch.target.shape[1]
        return engine.evaluate(
            kernel, batch.gram, batch.target, metric=batch.metric, counted=counted, gradient=False, threads=threads
        ).losses
    choices = problem.choices(count, **key._asdict(), first=first, engine=engine)  # type: ignore[attr-defined]
    target: Target = "task" if problem.has_pool else "ridge"
    return engine.step(
        kernel, problem.law, choices, key, layout=layout, target=target, gradient=False, first=first, threads=threads
    ).losses


def _drawn(layout: Layout, among: Among, index: list[int]) -> list[Batch]:
    """Some of the sequences, in batches."""
    problem, name, sums = among.problem, among.key._asdict(), layout.coordinate != "none"
    if problem.law is not None:
        return [Batch.of(problem.moments(1, first=i, sums=sums, **name), layout) for i in index]
    found = []
    for start, count in among.blocks():
        chosen = [i - start for i in index if start <= i < start + count]
        if chosen:
            found.append(Batch.of(problem.moments(count, first=start, sums=sums, **name), layout).part(chosen))
    return found
