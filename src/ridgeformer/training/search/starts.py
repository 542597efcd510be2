"""The job of a search: where it starts, what it is grown from, and the contexts on which its models are checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ridgeformer.engine import Key
from ridgeformer.models.family import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.training.job import SEARCH, SELECT, Job, Parent
from ridgeformer.training.search.failures import Among, Failures, mine

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

    def scaled(self, count: int) -> int:
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

    def dtype(self) -> type[np.float32] | type[np.float64]:
        """Return what stochastic descents compute in.

        Returns:
            The precision of the job; for `auto` float32, unless the losses of its first model are so small that
            float32's rounding matters.
        """
        if self.precision == "auto":
            known = self.first().astype(np.float64)
            sample = known.step(self.problem, 4096, stream=SELECT, step=1, gradient=False, threads=self.threads)
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
        models = [self.fresh(i) for i in range(self.scaled(fresh))]
        if self.shallower is not None:
            models += [self._grown(self.shallower.model, i) for i in range(self.scaled(grown))]
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
        among = Among(self.problem.edges(), Key(self.seed, SEARCH, turn), self.problem.affordable(sequences))
        return mine(model, known, among, caution=self.caution, threads=self.threads)

    def checked(self, model: LinearTransformer, known: Failures) -> Failures:
        """Return contexts on which models fail: those already known, and those among the sequences that will decide.

        Args:
            model: The model that is about to be a candidate.
            known: Contexts that are known already.

        Returns:
            The contexts; where `exploded` is not zero, the model loses against ancestors that explode less often.
        """
        among = Among(self.problem, Key(self.seed, SELECT), self.problem.affordable(SELECTION))
        return mine(model, known, among, caution=self.caution, threads=self.threads, deciding=True)

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
