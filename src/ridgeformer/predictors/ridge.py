"""Classical predictors, with the interface that models have: `weights(moments)` gives w_hat, [B, d].

>>> from ridgeformer import Problem
>>> problem = Problem(noise="uniform(0,5)")
>>> ConstRR.tune(problem)  # E[sigma^2] is the best constant, exactly
ConstRR(variance=8.33333)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.problem import Draw, Problem
from ridgeformer.spectrum import Spectrum, share_basis
from ridgeformer.validation import integer, number

__all__ = ["AdaRR", "ConstRR", "IterativeRR", "LeastSquares", "OracleRR", "Predictor", "TunedRR"]

Float = NDArray[np.floating[Any]]
Array = NDArray[np.float64]


@runtime_checkable
class Predictor(Protocol):
    """Whatever maps moments to weights: models and baselines alike.

    A predictor that uses `moments.sigma`, which no predictor can know, declares it with `knows_sigma = True`. Its loss
    may then be below the Bayes floor without a warning.
    """

    def weights(self, moments: Moments) -> Float:
        """w_hat, [B, d]: the prediction for a query x is <w_hat, x>."""


class OracleRR:
    """Ridge regression that knows each sequence's sigma: what adjusted losses are measured from.

    Its adjusted loss is 0 by definition, below the floor of all predictors that do not know sigma.
    """

    knows_sigma = True

    def weights(self, moments: Moments) -> Array:
        """(S + sigma^2)^-1 a."""
        found = spectrum_of(moments)
        if moments.sigma is None:
            refuse(
                "OracleRR needs to know sigma", "moments without it", "Use Problem.moments, or pass sigma to Moments."
            )
        return found.ridge(moments.sigma**2)

    def __repr__(self) -> str:
        return "OracleRR()"


class ConstRR:
    """Ridge regression with one noise variance for all sequences."""

    def __init__(self, variance: float) -> None:
        self.variance = number("variance", variance)

    @classmethod
    def tune(cls, problem: Problem) -> ConstRR:
        """The best constant is E[sigma^2]: the risk of any weights that are linear in y is linear in sigma^2."""
        return cls(check_problem(problem).noise.second_moment)

    def weights(self, moments: Moments) -> Array:
        """(S + variance)^-1 a."""
        return spectrum_of(moments).ridge(self.variance)

    def __repr__(self) -> str:
        return f"ConstRR(variance={self.variance:g})"


class LeastSquares:
    """Ordinary least squares; with n < d, where many weights fit, those of least norm."""

    def weights(self, moments: Moments) -> Array:
        """S^-1 a, or its pseudo-inverse form."""
        return spectrum_of(moments).ridge(0.0)

    def __repr__(self) -> str:
        return "LeastSquares()"


class AdaRR:
    """Ridge regression with the unbiased estimate of the variance, residual sum of squares over n - d."""

    def weights(self, moments: Moments) -> Array:
        """(S + estimate)^-1 a."""
        return spectrum_of(moments).ridge(estimate(moments))

    def __repr__(self) -> str:
        return "AdaRR()"


class TunedRR:
    """AdaRR with the estimate multiplied by `factor` and cut at `ceiling`."""

    def __init__(self, factor: float, ceiling: float) -> None:
        self.factor, self.ceiling = number("factor", factor), number("ceiling", ceiling)

    @classmethod
    def tune(cls, problem: Problem, *, sequences: int = 100_000, seed: int = 1) -> TunedRR:
        """The factor and ceiling with the least adjusted loss on random sequences.

        Args:
            problem: The distribution of sequences.
            sequences: How many fresh sequences to use.
            seed: Seed of these sequences.

        Returns:
            The tuned predictor.

        Raises:
            InputError: The problem is none, has n <= d, or a number is out of range.
        """
        return cls.tune_all([problem], sequences=sequences, seed=seed)[0]

    @classmethod
    def tune_all(cls, problems: Sequence[Problem], *, sequences: int = 100_000, seed: int = 1) -> list[TunedRR]:
        """Tune for several problems, with one eigendecomposition for all that share dimension and context length.

        Args:
            problems: The distributions of sequences.
            sequences: How many fresh sequences to use for each.
            seed: Seed of these sequences.

        Returns:
            The tuned predictors, one for every problem. They are the same as those that `tune` finds one by one.

        Raises:
            InputError: A problem is none, has n <= d, or a number is out of range.
        """
        sequences, known, found = integer("sequences", sequences), None, []
        for problem in problems:
            if check_problem(problem).noise.second_moment == 0:
                found.append(cls(0.0, 0.0))
                continue
            draw = problem.moments(sequences, seed=seed, stream=TUNING)
            if known is not None:
                share_basis(draw.moments, known)
            found.append(cls._fit(problem, draw))
            known = draw.moments
        return found

    @classmethod
    def _fit(cls, problem: Problem, draw: Draw) -> TunedRR:
        from scipy.optimize import minimize

        found, raw = draw.moments.spectrum, estimate(draw.moments)
        exact, room = found.c / (found.values + draw.sigma[:, None] ** 2), np.empty_like(found.c)

        def loss(logarithms: Array) -> float:
            variance = np.minimum(np.exp(logarithms[0]) * raw, np.exp(logarithms[1]))
            np.add(found.values, variance[:, None], out=room)
            np.subtract(np.divide(found.c, room, out=room), exact, out=room)
            return 0.5 * float(np.square(room, out=room).sum(1).mean())

        scale = problem.noise.upper**2
        runs = [
            minimize(loss, np.log([f, c * scale]), method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-8})
            for f, c in ((1.0, 4.0), (0.7, 0.7), (1e3, problem.noise.second_moment / scale))  # the last is ConstRR
        ]
        best = min(runs, key=lambda run: float(run.fun))
        factor, ceiling = np.exp(best.x)
        return cls(float(factor), float(ceiling))

    def weights(self, moments: Moments) -> Array:
        """(S + min(factor * estimate, ceiling))^-1 a."""
        return spectrum_of(moments).ridge(np.minimum(self.factor * estimate(moments), self.ceiling))

    def __repr__(self) -> str:
        return f"TunedRR(factor={self.factor:.4g}, ceiling={self.ceiling:.4g})"


class IterativeRR:
    """AdaRR without a matrix inversion: gradient descent on least squares estimates the noise, and at the same time
    gradient descent on ridge regression, with the estimate so far, the weights.

    Both use the step 1 / (largest absolute row sum of S, plus the estimate), which needs no eigenvalue and never
    diverges. (The computation here goes by the eigenbasis, where a step costs O(d); the algorithm does not need it.)
    """

    def __init__(self, steps: int) -> None:
        self.steps = integer("steps", steps)

    def weights(self, moments: Moments) -> Array:
        """The weights after the last step."""
        for coordinates in self._steps(moments):
            last = coordinates
        return spectrum_of(moments).back(last)

    def weights_by_step(self, moments: Moments) -> Array:
        """The weights after every step, [steps + 1, B, d]; zero at the start."""
        trace = [spectrum_of(moments).back(coordinates) for coordinates in self._steps(moments)]
        return np.stack([np.zeros_like(trace[0]), *trace])

    def _steps(self, moments: Moments) -> Iterator[Array]:
        """Coordinates in the eigenbasis after each step, [B, m]."""
        _enough(moments)
        found = spectrum_of(moments)
        values, c = found.values, found.c
        largest = np.abs(moments.S.astype(np.float64)).sum(2).max(1)[:, None]
        w, v = np.zeros_like(c), np.zeros_like(c)
        for _ in range(self.steps):
            slope = values * w - c
            residual = np.maximum(found.total + (w * (slope - c)).sum(1), 0.0)
            variance = (residual / (moments.context - moments.dim))[:, None]
            w = w - slope / largest
            v = v - ((values + variance) * v - c) / (largest + variance)
            yield v

    def __repr__(self) -> str:
        return f"IterativeRR(steps={self.steps})"


TUNING = 1 << 31  # the stream that tuning draws from, apart from every evaluation's


def check_problem(problem: Problem) -> Problem:
    """A problem, and nothing else."""
    if not isinstance(problem, Problem):
        refuse("this needs a Problem", f"a {type(problem).__name__}", 'Use Problem(noise="uniform(0,5)").')
    return problem


def spectrum_of(moments: Moments) -> Spectrum:
    """The spectrum of moments, and of nothing else."""
    if not isinstance(moments, Moments):
        refuse("a predictor takes Moments", f"a {type(moments).__name__}", "Use draw.moments or Moments.from_tokens.")
    return moments.spectrum


def estimate(moments: Moments) -> Array:
    """The unbiased estimate of the noise variance, [B]; needs n > d."""
    _enough(moments)
    return spectrum_of(moments).unbiased_variance()


def _enough(moments: Moments) -> None:
    spectrum_of(moments)
    if moments.context <= moments.dim:
        refuse(
            "estimating the noise needs more examples than dimensions, n > d",
            f"n = {moments.context}, d = {moments.dim}",
            "Use ConstRR or BayesRR here.",
        )
