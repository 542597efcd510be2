"""Methods that the model for every dimension is held against: ridge regression with a chosen penalty, iterations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ridgeformer.moments import Moments
from ridgeformer.predictors import AdaRR, Predictor, TunedRR
from ridgeformer.problems import Problem

Array = NDArray[np.float64]


class ByScore:
    """Ridge regression whose penalty has the least score among 60 noise levels from 0.01 to 3, context by context."""

    def __init__(self, score: Callable[[Array, Array, Array, Array, float], Array]) -> None:
        self.score = score

    def weights(self, moments: Moments) -> Array:
        """The weights, [B, d]."""
        d = moments.dim
        values, vectors = np.linalg.eigh(np.asarray(moments.S, np.float64))
        values = np.maximum(values, 0)
        c = np.einsum("bij,bi->bj", vectors, moments.b)
        levels = np.geomspace(0.01, 3, 60) ** 2
        scores = np.array(
            [self.score(values, c, np.asarray(moments.q), moments.counts.astype(np.float64), v) for v in levels]
        )
        chosen = levels[scores.argmin(0)][:, None]
        return np.asarray(np.einsum("bij,bj->bi", vectors, c / (values + d * chosen)))


def _evidence(values: Array, c: Array, total: Array, n: Array, v: float) -> Array:
    """-2 log p(context | noise variance v) for tasks N(0, I / d)."""
    d = values.shape[1]
    return np.asarray(
        n * np.log(v) + np.log1p(values / (d * v)).sum(1) + (total - (c**2 / (values + d * v)).sum(1)) / v
    )


def _cross_validation(values: Array, c: Array, total: Array, n: Array, v: float) -> Array:
    """Generalised cross-validation: the residual sum of squares over (1 - degrees of freedom / n)^2."""
    shrunk = values + values.shape[1] * v
    residual = total - 2 * (c**2 / shrunk).sum(1) + (values * c**2 / shrunk**2).sum(1)
    return np.asarray(residual / np.maximum(1 - (values / shrunk).sum(1) / n, 1e-3) ** 2)


class ConjugateGradients:
    """Least squares by conjugate gradients from 0, stopped after some iterations."""

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations

    @classmethod
    def tune(cls, problem: Problem) -> ConjugateGradients:
        """The number of iterations from 1 to 100 of least loss on the problem."""
        draw = problem.moments(2_000, seed=1)
        losses = [draw.losses(w, draw.ridge).mean() for w in _iterates(draw.moments, 100)]
        return cls(1 + int(np.argmin(losses)))

    def weights(self, moments: Moments) -> Array:
        """The weights, [B, d]."""
        return _iterates(moments, self.iterations)[-1]


def _iterates(moments: Moments, iterations: int) -> list[Array]:
    """The iterates of conjugate gradients on S w = a; each takes one product with S."""
    S, r = np.asarray(moments.S, np.float64), np.array(moments.b, np.float64)
    w, p, found = np.zeros_like(r), r.copy(), []
    for _ in range(iterations):
        Sp, size = np.einsum("bij,bj->bi", S, p), (r**2).sum(1)
        step = size / np.maximum((p * Sp).sum(1), 1e-300)
        alive = size > 1e-20
        w = w + np.where(alive, step, 0.0)[:, None] * p
        r = r - np.where(alive, step, 0.0)[:, None] * Sp
        p = r + np.where(alive, (r**2).sum(1) / np.maximum(size, 1e-300), 0.0)[:, None] * p
        found.append(w)
    return found


RIVALS: dict[str, Callable[[Problem], Predictor]] = {
    "TunedRR": lambda problem: TunedRR.tune(problem, sequences=10_000),
    "AdaRR": lambda problem: AdaRR(problem.prior),
    "ridge by marginal likelihood": lambda problem: ByScore(_evidence),
    "ridge by generalised cross-validation": lambda problem: ByScore(_cross_validation),
    "conjugate gradients, best of 1 to 100 iterations": lambda problem: ConjugateGradients.tune(problem),
}
