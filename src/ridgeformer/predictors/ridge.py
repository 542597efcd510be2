"""Classical predictors, with the interface that models have: `weights(moments)` gives w_hat, [B, d].

>>> from ridgeformer import Problem
>>> problem = Problem(noise="uniform(0,5)")
>>> ConstRR.tune(problem)  # E[sigma^2] is the best constant, exactly
ConstRR(variance=8.33333)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ridgeformer.errors import refuse
from ridgeformer.moments import Moments, share_basis
from ridgeformer.noise import Noise
from ridgeformer.predictors.base import check_enough
from ridgeformer.predictors.bayes import Ridge, in_whitened
from ridgeformer.problems import BaseProblem, Draw, Prior
from ridgeformer.problems.base import check_any_problem
from ridgeformer.validation import Array, integer, keywords, number

Variances = Callable[[Moments], "Array | float"]  # which noise variance ridge regression takes for contexts
TUNING = 1 << 31  # the stream that tuning draws from, apart from every evaluation's
GENERAL = 20_000  # sequences at most for tuning where the problem is not isotropic, where they cost more
LARGEST = 300.0  # the logarithm of the largest factor and ceiling


class OracleRR(Ridge):
    """Ridge regression that knows each sequence's sigma: what adjusted losses are measured from.

    Its adjusted loss is 0 by definition, below the floor of all predictors that do not know sigma.
    """

    knows_sigma = True

    def _weights(self, moments: Moments) -> Array:
        """(S + sigma^2)^-1 a."""
        if moments.sigma is None:
            remedy = "Use Problem.moments, or pass sigma to Moments."
            refuse("OracleRR needs to know sigma", "moments without it", remedy)
        return moments.spectrum.ridge(moments.sigma**2)


@keywords()
class ConstRR(Ridge):
    """Ridge regression with one noise variance for all sequences.

    Args:
        variance: The noise variance; `tune` finds the best one for a problem.
        prior: The law of the tasks; None for N(0, I).

    Raises:
        InputError: The variance is missing or negative.
    """

    def __init__(self, variance: float | None = None, prior: Prior | None = None) -> None:
        super().__init__(prior)
        if variance is None:
            remedy = "Write ConstRR.tune(problem), or ConstRR(1.0), for example."
            refuse("ConstRR needs a noise variance", "none", remedy)
        self.variance = number("variance", variance)

    @classmethod
    def tune(cls, problem: BaseProblem, *, sequences: int = 20_000, seed: int = 1) -> ConstRR:
        """Return the best one for a problem.

        On a `Problem` the best constant is E[sigma^2], exactly: the risk of any weights that are linear in y is linear
        in sigma^2. On problems of your own it is that of least loss on random sequences, for the prior N(0, I).

        Args:
            problem: The distribution of sequences.
            sequences: How many fresh sequences to use on a problem of your own.
            seed: Seed of these sequences.

        Returns:
            The tuned predictor.
        """
        check_any_problem(problem)
        if (noise := _known_noise(problem)) is not None:
            return cls(noise.second_moment, problem.prior)
        from scipy.optimize import minimize_scalar

        draw = _tuning_draw(problem, sequences, seed)
        loss = _general_objective(draw, problem.prior)
        scale = np.log(_label_variance(draw.moments))

        def of(logarithm: float) -> float:
            return loss(lambda part: np.exp(logarithm))

        grid = scale + np.linspace(-30, 10, 41)
        best = grid[int(np.argmin([of(point) for point in grid]))]
        minimum = minimize_scalar(of, bounds=(best - 1, best + 1), method="bounded", options={"xatol": 1e-4})
        return cls(float(np.exp(minimum.x)), problem.prior)

    def _weights(self, moments: Moments) -> Array:
        """(S + variance)^-1 a."""
        return moments.spectrum.ridge(self.variance)

    def __repr__(self) -> str:
        return self._text(f"variance={self.variance:g}")


class LeastSquares(Ridge):
    """Ordinary least squares; with n < d, where many weights fit, those of least norm."""

    def _weights(self, moments: Moments) -> Array:
        """S^-1 a, or its pseudo-inverse form."""
        return moments.spectrum.ridge(0.0)


class AdaRR(Ridge):
    """Ridge regression with the unbiased estimate of the variance, residual sum of squares over n - d."""

    def _weights(self, moments: Moments) -> Array:
        """(S + estimate)^-1 a."""
        return moments.spectrum.ridge(estimate(moments))


@keywords()
class TunedRR(Ridge):
    """AdaRR with the estimate multiplied by `factor` and cut at `ceiling`.

    Args:
        factor: What the unbiased estimate of the variance is multiplied by.
        ceiling: The largest variance.
        prior: The law of the tasks; None for N(0, I).
    """

    def __init__(self, factor: float, ceiling: float, prior: Prior | None = None) -> None:
        super().__init__(prior)
        self.factor, self.ceiling = number("factor", factor), number("ceiling", ceiling)

    @classmethod
    def tune(cls, problem: BaseProblem, *, sequences: int = 100_000, seed: int = 1) -> TunedRR:
        """The factor and ceiling with the least loss on random sequences; for the prior N(0, I) on your own problems.

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
    def tune_all(cls, problems: Sequence[BaseProblem], *, sequences: int = 100_000, seed: int = 1) -> list[TunedRR]:
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
        sequences, previous, tuned = integer("sequences", sequences), None, []
        for problem in problems:
            check_any_problem(problem)
            noise = _known_noise(problem)
            if noise is not None and noise.second_moment == 0:
                tuned.append(cls(0.0, 0.0, problem.prior))
                continue
            draw = _tuning_draw(problem, sequences, seed)
            if previous is not None and problem.is_isotropic:
                share_basis(draw.moments, previous)
            tuned.append(cls._fit(problem, draw))
            previous = draw.moments
        return tuned

    @classmethod
    def _fit(cls, problem: BaseProblem, draw: Draw) -> TunedRR:
        from scipy.optimize import minimize

        prior, scale, const = problem.prior, _label_variance(draw.moments), 1.0
        if (noise := _known_noise(problem)) is not None:
            scale = noise.upper**2
            const = noise.second_moment / scale
        general = None if problem.is_isotropic else _general_objective(draw, prior)

        def sampled(logarithms: Array) -> float:
            factor, ceiling = np.exp(np.minimum(logarithms, LARGEST))
            assert general is not None
            return general(lambda part: np.minimum(factor * estimate(part), ceiling))

        objective = _plain_objective(draw) if general is None else sampled
        runs = [
            minimize(objective, np.log([f, c * scale]), method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-8})
            for f, c in ((1.0, 4.0), (0.7, 0.7), (1e3, const))  # the last is ConstRR
        ]
        best = min(runs, key=lambda run: float(run.fun))
        factor, ceiling = np.exp(np.minimum(best.x, LARGEST))
        return cls(float(factor), float(ceiling), prior)

    def _weights(self, moments: Moments) -> Array:
        """(S + min(factor * estimate, ceiling))^-1 a."""
        return moments.spectrum.ridge(np.minimum(self.factor * estimate(moments), self.ceiling))

    def __repr__(self) -> str:
        return self._text(f"factor={self.factor:.4g}", f"ceiling={self.ceiling:.4g}")


def _plain_objective(draw: Draw) -> Callable[[Array], float]:
    """The adjusted loss of TunedRR on isotropic sequences, as a function of the logarithms of factor and ceiling."""
    spectrum, raw = draw.moments.spectrum, estimate(draw.moments)
    assert draw.sigma is not None
    exact, room = spectrum.c / (spectrum.values + draw.sigma[:, None] ** 2), np.empty_like(spectrum.c)

    def loss(logarithms: Array) -> float:
        variance = np.minimum(np.exp(logarithms[0]) * raw, np.exp(logarithms[1]))
        np.add(spectrum.values, variance[:, None], out=room)
        np.subtract(np.divide(spectrum.c, room, out=room), exact, out=room)
        return 0.5 * float(np.square(room, out=room).sum(1).mean())

    return loss


def _general_objective(draw: Draw, prior: Prior) -> Callable[[Variances], float]:
    """The mean loss of ridge regression on any sequences, as a function of the variances that it takes."""
    parts = list(in_whitened(draw.moments, prior).by_length())
    coordinates = np.empty((len(draw.moments), parts[0][1].dim))

    def loss(variances: Variances) -> float:
        for index, part in parts:
            coordinates[index] = part.spectrum.ridge(variances(part))
        return float(draw.losses(prior.back(coordinates), draw.ridge).mean())

    return loss


def _known_noise(problem: BaseProblem) -> Noise | None:
    """The distribution of noise levels, if noise is Gaussian given its level."""
    return problem.noise if problem.has_known_laws else None


def _tuning_draw(problem: BaseProblem, sequences: int, seed: int) -> Draw:
    """Fresh sequences to tune on: no more than a data set has, and fewer where they cost more."""
    count = sequences if problem.is_isotropic else min(sequences, GENERAL)
    return problem.moments(min(count, problem.size or count), seed=seed, stream=TUNING)


def _label_variance(moments: Moments) -> float:
    """The mean square of the labels, or 1 where they are all 0."""
    return float((moments.q.astype(np.float64) / moments.counts).mean()) or 1.0


def estimate(moments: Moments) -> Array:
    """Estimate the noise variance without bias; needs n > d.

    Args:
        moments: The contexts.

    Returns:
        The estimates, [B].

    Raises:
        InputError: There are too few examples.
    """
    check_enough(moments)
    return moments.spectrum.unbiased_variance()
