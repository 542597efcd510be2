"""The job of a search: its objective, its starts, and the contexts on which its models fail.

A deep model is a polynomial of high degree: on one sequence in 10^5 its loss can be 10^10, and an average over a batch
either misses that sequence or is ruined by it. Two things keep such models away. Losses above `ceiling` enter by their
logarithm. And a search among many contexts, all stretched by a fifth so that rare ones become common, collects the
contexts on which the model fails (`SearchJob.mine`); these then count in the objective (`SampleAverage`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Evaluation, Key, Layout
from ridgeformer.losses import threshold
from ridgeformer.models.family import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.problems.base import Ask
from ridgeformer.training.batch import STORED, Batch, ceiling, damped
from ridgeformer.training.job import SEARCH, SELECT, Job, Parent

Array = NDArray[np.float64]
Float = NDArray[np.floating[Any]]
STRETCH = 1.2  # contexts are stretched by this in the search for failures
WEIGHT = 0.5  # what a stretched sequence counts, next to one that was met without stretching
STRONGER = 3.0  # what failures count more as long as the model explodes
FAILS = 20  # times the ceiling: a loss from which on a stretched context counts as a failure
MOST = 512  # sequences that are remembered
BLOCK = 1 << 16  # sequences that are looked at together
SINGLY = 256  # sequences up to which they are drawn one by one


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
        dims = arrays["dims"].astype(np.int64) if "dims" in arrays else None
        batch = Batch(arrays["gram"], arrays["target"], arrays.get("metric"), dims)
        return cls(batch, share, strength, int(exploded))

    def arrays(self) -> dict[str, Array]:
        """Return the arrays by name, to be stored."""
        facts = np.array([self.share, self.strength, self.exploded])
        arrays = {"gram": self.batch.gram, "target": self.batch.target, "failures": facts}
        if self.batch.dims is not None:
            arrays["dims"] = self.batch.dims.astype(np.float64)
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

    def _blocks(self) -> list[tuple[int, int]]:
        """The first sequence and the number of sequences of each block."""
        return [(start, min(BLOCK, self.sequences - start)) for start in range(0, self.sequences, BLOCK)]

    def losses(
        self, model: LinearTransformer, index: Sequence[int] | NDArray[np.intp], stretch: float, threads: int | None
    ) -> Float:
        """Return the losses of some sequences with stretched contexts, in float32: one by one where they are few.

        Args:
            model: The model.
            index: The numbers of the sequences.
            stretch: By what the Gram matrices are multiplied.
            threads: Threads of the engine; None for all.

        Returns:
            The losses, [len(index)].
        """
        kernel = model.astype(np.float32).kernel.stretched(np.float32(stretch))  # the same as stretching Gram matrices
        ask = Ask(model.layout, np.float32, gradient=False, threads=threads)
        # A custom problem may draw other sequences in other blocks.
        few = not len(index) or (len(index) < SINGLY and self.problem.has_known_laws)
        parts = [(int(i), 1) for i in index] if few else self._blocks()
        pieces = [self.problem.step(kernel, self.key, count, first, ask).losses for first, count in parts]
        losses = np.concatenate([np.empty(0, np.float32), *pieces])
        return losses if few else losses[np.asarray(index)]

    def drawn(self, layout: Layout, index: list[int]) -> list[Batch]:
        """Return some of the sequences: one by one where an engine draws them, else from blocks that are kept.

        Args:
            layout: The layout of the tokens.
            index: The numbers of the sequences.

        Returns:
            A batch for each of them.
        """
        key: dict[str, Any] = {**self.key._asdict(), "sums": layout.coordinate != "none"}
        if self.problem.has_known_laws:
            return [Batch.of(self.problem.moments(1, first=i, **key), layout) for i in index]
        batches = []
        for first, count in self._blocks():
            block = self.problem.moments(count, first=first, dtype=np.float32, **key)
            places = [i - first for i in index if first <= i < first + count]
            batches += [Batch.of(block.chosen(slice(i, i + 1)).astype(np.float64), layout) for i in places]
        return batches


@dataclass(eq=False)
class SampleAverage:
    """The mean adjusted loss over fixed sequences and failures: a deterministic function to be minimised.

    Args:
        problem: What the sequences are drawn from.
        sequences: How many.
        key: Their stream.
        dtype: float32 or float64, of the computation.
        failures: Contexts on which models failed, which count too.
        threads: Threads of the engine; None for all.
    """

    problem: BaseProblem
    sequences: int
    key: Key
    dtype: type = np.float64
    failures: Failures | None = None
    threads: int | None = None
    _batch: Batch | None = field(default=None, init=False, repr=False)

    def __call__(self, model: LinearTransformer) -> tuple[float, dict[str, Array]]:
        """Value and gradient with respect to the family's arrays; an infinite value where the model overflows.

        The model must have the dtype of the computation.
        """
        limit = ceiling(self.problem)
        if not all(np.isfinite(values).all() for values in model.kernel):  # products of finite parameters
            return np.inf, {name: np.zeros(value.shape) for name, value in model.family.arrays.items()}
        evaluation = self._evaluate(model, limit)
        value = float(damped(evaluation.losses, limit).mean())
        gradient = model.family.pullback(evaluation.gradient)
        if self.failures is not None and len(self.failures):
            more, slopes = self.failures.value(model.astype(np.float64), limit, self.threads)
            value += more
            gradient = {name: slope + slopes[name] for name, slope in gradient.items()}
        return value, gradient

    def _evaluate(self, model: LinearTransformer, limit: float) -> Evaluation:
        key: dict[str, Any] = self.key._asdict()
        size = np.dtype(self.dtype).itemsize * self.sequences * (model.width + 1) ** 2
        if size > STORED:
            return model.step(self.problem, self.sequences, **key, ceiling=limit, threads=self.threads)
        if self._batch is None:
            sums = model.layout.coordinate != "none"
            draw = self.problem.moments(self.sequences, **key, dtype=self.dtype, sums=sums, threads=self.threads)
            self._batch = Batch.of(draw, model.layout)
        return self._batch.evaluate(model, limit, threads=self.threads)


SELECTION = 1 << 17  # sequences that decide between candidates


@dataclass(frozen=True, eq=False)
class SearchJob(Job):
    """A model to be searched for.

    Attributes:
        effort: How many starts and rounds, relative to the default.
        caution: What contexts on which a model explodes count in the objective, relative to the default.
        precision: `auto`, `float32` or `float64`.
    """

    effort: float = 1.0
    caution: float = 1.0
    precision: str = "auto"

    def times_effort(self, count: int) -> int:
        """Return a number of starts or rounds, times the effort; at least 1.

        Args:
            count: The number for an effort of 1.

        Returns:
            The number.
        """
        return max(1, round(count * self.effort))

    def reduced(self, count: int) -> int:
        """Return a number of sequences or iterations, times the effort where that is below 1.

        Args:
            count: The number for an effort of 1.

        Returns:
            The number, at least an eighth of it.
        """
        return round(count * min(1.0, max(self.effort, 0.125)))

    def sized(self, sequences: int) -> int:
        """Return a number of sequences: fewer where each has more than ten targets.

        Args:
            sequences: The number in up to ten dimensions.

        Returns:
            The number; where the dimension varies, it does not depend on the dimension.
        """
        dim = 1 if len(self.problem.by_dimension()) > 1 else self.problem.dim
        return round(sequences * min(1.0, 10 / dim))

    def dtype(self) -> type[np.float32] | type[np.float64]:
        """Return what stochastic descents compute in.

        Returns:
            The precision of the job; for `auto` float32, unless the losses of its first model are so small that
            float32's rounding matters.
        """
        if self.precision == "auto":
            batch = self.first().astype(np.float64)
            sample = batch.step(self.problem, 4096, stream=SELECT, step=1, gradient=False, threads=self.threads)
            return np.float64 if sample.loss < 1e-5 * self.problem.signal else np.float32
        return np.float64 if self.precision == "float64" else np.float32

    def starts(self, fresh: int, grown: int) -> list[LinearTransformer]:
        """Return models to start from.

        Args:
            fresh: How many small random ones, times the effort.
            grown: How many grown from the shallower model, times the effort; none where there is no such model.

        Returns:
            The fresh ones, then the grown ones, then the given one.
        """
        models = [self.fresh(i) for i in range(self.times_effort(fresh))]
        if self.shallower is not None:
            models += [self._grown(self.shallower.model, i) for i in range(self.times_effort(grown))]
        return models if self.spec.init is None else [*models, self.spec.init.astype(np.float64)]

    def mined(self, model: LinearTransformer, known: Failures, turn: int, sequences: int) -> Failures:
        """Return contexts on which models fail: those already known, and further ones on which this model does.

        Args:
            model: The model that may fail.
            known: Contexts that are known already.
            turn: Which fresh contexts to search.
            sequences: How many of them.

        Returns:
            The contexts; `exploded` says on how many fresh ones the model explodes.
        """
        count = self.problem.affordable(self.sized(sequences))
        return self.mine(model, known, Among(self.problem.edges(), Key(self.seed, SEARCH, turn), count))

    def checked(self, model: LinearTransformer, known: Failures) -> Failures:
        """Return contexts on which models fail: those already known, and those among the sequences that will decide.

        Args:
            model: The model that is about to be a candidate.
            known: Contexts that are known already.

        Returns:
            The contexts; where `exploded` is not zero, the model loses against ancestors that explode less often.
        """
        count = self.problem.affordable(self.sized(SELECTION))
        return self.mine(model, known, Among(self.problem, Key(self.seed, SELECT), count), deciding=True)

    def mine(self, model: LinearTransformer, known: Failures, among: Among, deciding: bool = False) -> Failures:
        """Return further contexts on which a model fails, before those already known; no further ones without caution.

        Args:
            model: The model that may fail.
            known: Contexts that are known already.
            among: Where to look.
            deciding: Whether contexts on which the model explodes without stretching come before all others.

        Returns:
            The contexts, at most 512.
        """
        if not self.caution:
            return known
        limit = ceiling(among.problem)
        stretched = among.losses(model, range(among.sequences), STRETCH, self.threads)
        near = np.flatnonzero(~(stretched <= limit))  # elsewhere no model explodes without stretching
        losses = among.losses(model, near, 1.0, self.threads)
        worst = near[~(losses <= threshold(among.problem.signal))].tolist()
        failed = np.flatnonzero(~(stretched <= FAILS * limit)).tolist()
        if deciding:
            failed = list(dict.fromkeys([*worst, *failed]))
        batch = known.batch
        for part in reversed(among.drawn(model.layout, failed[: MOST // 2])):
            batch = part.stretched(STRETCH).joined(batch, MOST)
        strength = known.strength * (STRONGER if worst and len(known) else 1.0)
        share = self.caution * WEIGHT * strength * max(len(failed), len(batch)) / among.sequences
        return Failures(batch, share, strength, len(worst))

    def ancestors(self) -> list[Parent]:
        """Return the shallower and the simpler model as models of this family and depth, with the same function."""
        parents = []
        if self.shallower is not None:
            model = self.shallower.model.with_identity(self.spec.layers - 1)
            parents.append(Parent(model, self.shallower.family))
        if self.simpler is not None:
            embedded = self.spec.family.embed(self.simpler.model.family, self.problem.dim, self.spec.heads)
            parents.append(Parent(self.model(self._widened(embedded)), self.simpler.family))
        return parents

    def _widened(self, family: Family) -> Family:
        """Parameters that ignore the coordinate of the layout, which the simpler family may have no room for."""
        if self.layout.coordinate == "none" or self.simpler is None or self.simpler.model.layout == self.layout:
            return family
        arrays = {name: np.array(value) for name, value in family.arrays.items()}
        if family.width is not None and (missing := self.problem.dim + self.layout.extra - family.width):
            at = [self.problem.dim] * missing
            arrays = {name: np.insert(np.insert(v, at, 0, axis=-1), at, 0, axis=-2) for name, v in arrays.items()}
        if "Q_s" in arrays:
            arrays["Q_s"][..., -1, :-1] = 0  # further scalars need not be zero
        return type(family)(**arrays)

    def first(self) -> LinearTransformer:
        """Return the best model that is known before the search: the last ancestor, or a fresh model."""
        return [self.fresh(0), *(parent.model for parent in self.ancestors())][-1]

    def _grown(self, shallower: LinearTransformer, number: int) -> LinearTransformer:
        """The shallower model with a small random layer somewhere; successive numbers try all positions."""
        rng = self.rng(2, number)
        new = self.random(1, np.exp(rng.uniform(np.log(0.1), np.log(0.4))), rng)
        at = self.rng(3).permutation(self.spec.layers)[number % self.spec.layers]
        return self.model(shallower.family.inserted(at, new))
