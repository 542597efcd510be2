"""Problems whose rare contexts are drawn often, and count by as much less.

Deep models pay most for contexts that are long in one direction, and a plain sample has none of these: its mean loss is
too low, and training on it neglects them. A `Stretched` problem draws long contexts often. The metric of the loss of a
sequence is multiplied by the ratio of the two densities, so that every expected loss is that of the problem, and rare
contexts enter the standard error. It can be trained on and measured as any problem.

>>> from ridgeformer import LinearTransformer, evaluate
>>> from ridgeformer.exact import exact_loss, least_excess_loss
>>> problem = Problem(dim=5, context=20, noise=0)
>>> model = LinearTransformer(least_excess_loss(problem, 3, shallower=None), 5)
>>> loss = evaluate(Stretched(problem), model, sequences=20_000).loss
>>> bool(abs(loss / exact_loss(problem, model) - 1) < 0.1)
True
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.evaluation.tilts import TokenMoments, log_stretch, multiple, unit_vectors, whitened
from ridgeformer.exact import eigenvalues
from ridgeformer.moments import Moments
from ridgeformer.predictors.base import check_problem
from ridgeformer.problems import CustomProblem, Draw, Problem
from ridgeformer.validation import number

Array = NDArray[np.float64]
PLAIN, COSTS = 0.2, (2.0, 6.0, 11.0, 16.0, 21.0, -6.0)  # share of plain contexts; stretches, see `tilts.multiple`


class Stretched(CustomProblem):
    """A built-in problem with one covariance of the features, whose rare contexts are drawn often.

    Only means of its losses have a meaning: the metric of each sequence contains its weight, which is 1 on average.

    Args:
        problem: The problem, or its text.
        rare: Contexts do not count if their largest eigenvalue, in whitened features, is above the one that this share
            of contexts exceeds; 1e-8 by default, as for `exact.exact_loss`. Without a limit, contexts that no one will
            ever see may decide the expected loss of a deep model.

    Attributes:
        problem: The text of the problem.
        rare: The share.

    Raises:
        InputError: The problem has another law of features, several numbers of examples, or noise of its own for each
            token; or the share is not between 0 and 0.01.
    """

    name = "stretched"

    def __init__(self, problem: str | Problem, rare: float = 1e-8) -> None:
        of = Problem.parse(problem) if isinstance(problem, str) else check_problem(problem)
        if not of.one_covariance or not of.lengths.fixed or of.noise.per_token:
            rule = "contexts are stretched where features have one covariance, all contexts one length, and sequences "
            refuse(f"{rule}one noise level", of, "Choose another problem.")
        if not 0 < number("rare", rare) <= 0.01:
            refuse("the share of contexts that do not count must be above 0, and at most 0.01", rare, "Pass 1e-8.")
        self.problem, self.rare = str(of), float(rare)
        self.dim, self.context, self.noise = of.dim, of.lengths.most, of.noise

    @property
    def arguments(self) -> dict[str, Any]:
        """See `BaseProblem.arguments`."""
        return {"problem": self.problem, "rare": self.rare}

    @cached_property
    def _parts(self) -> tuple[Problem, Any, Array, float]:
        """The problem, a root of its covariance, the factors of variance, and the largest eigenvalue that counts."""
        of = Problem.parse(self.problem)
        values, weights = eigenvalues(self.dim, self.context)
        beyond = np.cumsum(weights[::-1])[::-1] - weights
        root = None if of.is_isotropic else np.linalg.cholesky(of.features.mean_covariance(self.dim))
        return of, root, multiple(COSTS, np.float64(self.context)), float(values[beyond > self.rare].max())

    def draw(self, rng: np.random.Generator, count: int) -> Draw:
        """See `CustomProblem.draw`."""
        of, root, factors, most = self._parts
        plain = of.moments(count, seed=int(rng.integers(1 << 32)))
        m: Any = plain.moments
        w: Any = plain.task
        none = np.zeros(count)
        Sw = np.einsum("bij,bj->bi", m.S, w)
        tokens = TokenMoments(m.S, m.b - Sw, m.q - (w * (2 * m.b - Sw)).sum(1), np.zeros_like(w), none)
        v, u = factors[rng.integers(len(factors), size=count)], unit_vectors(rng.standard_normal(w.shape))
        v = np.where(rng.random(count) < PLAIN, 1.0, v)
        gram = tokens.stretched(root, v, u).moments(w, none + 1, self.context).gram
        values = np.maximum(np.linalg.eigvalsh(whitened(gram[:, :-1, :-1], root)), 0.0)
        ratios = [np.exp(log_stretch(values, np.full(count, v), self.context)) for v in factors]
        counts = values[:, -1] <= most
        moments = Moments._trusted(np.where(counts[:, None, None], gram, m.gram), self.context, plain.sigma)
        metric = np.eye(self.dim) if plain.metric is None else plain.metric
        weights = np.where(counts, 1 / (PLAIN + (1 - PLAIN) * np.mean(ratios, 0)), 0.0)
        return replace(plain, moments=moments, ridge=of.oracle(moments), metric=weights[:, None, None] * metric)

    def at_noise(self, sigma: float) -> Stretched:
        """See `BaseProblem.at_noise`."""
        return Stretched(self._parts[0].at_noise(sigma), self.rare)

    def best_predictor(self) -> Any:
        """See `BaseProblem.best_predictor`: that of the problem itself."""
        return self._parts[0].best_predictor()
