"""Classical predictors, with the interface that models have: `weights(moments)` gives w_hat, [B, d].

>>> from ridgeformer import Problem
>>> problem = Problem(noise="uniform(0,5)")
>>> ConstRR.tune(problem)  # E[sigma^2] is the best constant, exactly
ConstRR(variance=8.33333)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.problems import BaseProblem, Draw, Prior, Problem
from ridgeformer.spectrum import Spectrum, share_basis
from ridgeformer.validation import integer, number

__all__ = [
    "AdaRR",
    "ConstRR",
    "IterativeRR",
    "LeastSquares",
    "OracleRR",
    "Predictor",
    "Ridge",
    "TokenPredictor",
    "TunedRR",
    "check_any_problem",
    "check_problem",
    "in_whitened",
    "spectrum_of",
]

Float = NDArray[np.floating[Any]]
Array = NDArray[np.float64]


@runtime_checkable
class Predictor(Protocol):
    """Whatever maps moments to weights: models and baselines alike.

    A predictor that uses `moments.sigma`, which no predictor can know, declares it with `knows_sigma = True`. Its loss
    may then be below the Bayes floor without a warning.
    """

    def weights(self, moments: Moments) -> Float:
        """Return w_hat: the prediction for a query x is <w_hat, x>.

        Args:
            moments: The contexts.

        Returns:
            The weights, [B, d].
        """


@runtime_checkable
class TokenPredictor(Protocol):
    """Whatever predicts from tokens alone, such as a transformer with softmax.

    It is judged through sampled queries. What has both methods is judged by its weights.
    """

    def predict(self, x: Float, y: Float, queries: Float) -> Float:
        """Predict the labels of queries.

        Args:
            x: Features of the contexts, [B, n, d].
            y: Labels of the contexts, [B, n].
            queries: Features of the queries, [B, m, d].

        Returns:
            The predictions, [B, m].
        """


def in_whitened(moments: Moments, prior: Prior) -> Moments:
    """Return moments in coordinates in which tasks are N(0, I). The result is kept with the given moments.

    Args:
        moments: The contexts.
        prior: The law of the tasks.

    Returns:
        The moments in these coordinates.
    """
    if prior.is_standard:
        return moments
    kept = vars(moments).get("_whitened")
    if kept is None or kept[0] is not prior:
        kept = vars(moments)["_whitened"] = prior, prior.whiten(moments)
    return kept[1]


class Ridge(ABC):
    """Ridge regression in some form: the posterior mean of w under a Gaussian prior, for some estimate of the noise.

    Args:
        prior: The law of the tasks; None for N(0, I). Tasks are N(0, I) in other coordinates, where the computation is
            done.
    """

    def __init__(self, prior: Prior | None = None) -> None:
        self.prior = Prior() if prior is None else prior

    def weights(self, moments: Moments) -> Array:
        """Return w_hat.

        Args:
            moments: The contexts, which may differ in their number of examples.

        Returns:
            The weights, [B, d].

        Raises:
            InputError: This is not `Moments`, or the predictor cannot be used on them.
        """
        _check_moments(moments)
        white = in_whitened(moments, self.prior)
        if isinstance(white.context, int):
            return self.prior.back(self._weights(white))
        found = np.empty((len(white), white.dim))
        for index, part in white.by_length():
            found[index] = self._weights(part)
        return self.prior.back(found)

    @abstractmethod
    def _weights(self, moments: Moments) -> Array:
        """Weights in coordinates in which tasks are N(0, I), of contexts with one number of examples, [B, r]."""

    def _more(self) -> str:
        """What to add between the brackets of the predictor's text."""
        return "" if self.prior.is_standard else "prior"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._more()})"


class OracleRR(Ridge):
    """Ridge regression that knows each sequence's sigma: what adjusted losses are measured from.

    Its adjusted loss is 0 by definition, below the floor of all predictors that do not know sigma.
    """

    knows_sigma = True

    def _weights(self, moments: Moments) -> Array:
        """(S + sigma^2)^-1 a."""
        if moments.sigma is None:
            refuse(
                "OracleRR needs to know sigma", "moments without it", "Use Problem.moments, or pass sigma to Moments."
            )
        return moments.spectrum.ridge(moments.sigma**2)


class ConstRR(Ridge):
    """Ridge regression with one noise variance for all sequences.

    Args:
        variance: The noise variance.
        prior: The law of the tasks; None for N(0, I).
    """

    def __init__(self, variance: float, prior: Prior | None = None) -> None:
        super().__init__(prior)
        self.variance = number("variance", variance)

    @classmethod
    def tune(cls, problem: Problem) -> ConstRR:
        """Return the best one for a problem.

        The best constant is E[sigma^2]: the risk of any weights that are linear in y is linear in sigma^2.

        Args:
            problem: The distribution of sequences.

        Returns:
            The tuned predictor.
        """
        return cls(check_problem(problem).noise.second_moment, problem.prior)

    def _weights(self, moments: Moments) -> Array:
        """(S + variance)^-1 a."""
        return moments.spectrum.ridge(self.variance)

    def __repr__(self) -> str:
        more = f", {self._more()}" if self._more() else ""
        return f"ConstRR(variance={self.variance:g}{more})"


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
                found.append(cls(0.0, 0.0, problem.prior))
                continue
            count = sequences if problem.is_isotropic else min(sequences, GENERAL)
            draw = problem.moments(count, seed=seed, stream=TUNING)
            if known is not None and problem.is_isotropic:
                share_basis(draw.moments, known)
            found.append(cls._fit(problem, draw))
            known = draw.moments
        return found

    @classmethod
    def _fit(cls, problem: Problem, draw: Draw) -> TunedRR:
        from scipy.optimize import minimize

        loss = _plain_objective(draw) if problem.is_isotropic else _general_objective(draw, problem.prior)
        scale = problem.noise.upper**2
        runs = [
            minimize(loss, np.log([f, c * scale]), method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-8})
            for f, c in ((1.0, 4.0), (0.7, 0.7), (1e3, problem.noise.second_moment / scale))  # the last is ConstRR
        ]
        best = min(runs, key=lambda run: float(run.fun))
        factor, ceiling = np.exp(best.x)
        return cls(float(factor), float(ceiling), problem.prior)

    def _weights(self, moments: Moments) -> Array:
        """(S + min(factor * estimate, ceiling))^-1 a."""
        return moments.spectrum.ridge(np.minimum(self.factor * estimate(moments), self.ceiling))

    def __repr__(self) -> str:
        more = f", {self._more()}" if self._more() else ""
        return f"TunedRR(factor={self.factor:.4g}, ceiling={self.ceiling:.4g}{more})"


def _plain_objective(draw: Draw) -> Callable[[Array], float]:
    """The adjusted loss of TunedRR on isotropic sequences, as a function of the logarithms of factor and ceiling."""
    found, raw = draw.moments.spectrum, estimate(draw.moments)
    assert draw.sigma is not None
    exact, room = found.c / (found.values + draw.sigma[:, None] ** 2), np.empty_like(found.c)

    def loss(logarithms: Array) -> float:
        variance = np.minimum(np.exp(logarithms[0]) * raw, np.exp(logarithms[1]))
        np.add(found.values, variance[:, None], out=room)
        np.subtract(np.divide(found.c, room, out=room), exact, out=room)
        return 0.5 * float(np.square(room, out=room).sum(1).mean())

    return loss


def _general_objective(draw: Draw, prior: Prior) -> Callable[[Array], float]:
    """The same on any sequences."""
    parts = [(index, part.spectrum, estimate(part)) for index, part in in_whitened(draw.moments, prior).by_length()]
    coordinates = np.empty((len(draw.moments), parts[0][1].dim))

    def loss(logarithms: Array) -> float:
        for index, spectrum, raw in parts:
            coordinates[index] = spectrum.ridge(np.minimum(np.exp(logarithms[0]) * raw, np.exp(logarithms[1])))
        return float(draw.losses(prior.back(coordinates), draw.ridge).mean())

    return loss


class IterativeRR:
    """AdaRR without a matrix inversion.

    Gradient descent on least squares estimates the noise. At the same time, gradient descent on ridge regression, with
    the estimate so far, finds the weights.

    Both use the step 1 / (largest absolute row sum of S, plus the estimate), which needs no eigenvalue and never
    diverges. (The computation here uses the eigenbasis, where a step costs O(d); the algorithm does not need it.)

    Args:
        steps: How many steps.
    """

    def __init__(self, steps: int) -> None:
        self.steps = integer("steps", steps)

    def weights(self, moments: Moments) -> Array:
        """Return the weights after the last step.

        Args:
            moments: The contexts, of one length, with n > d.

        Returns:
            The weights, [B, d].
        """
        _one_length(moments)
        for coordinates in self._steps(moments):
            last = coordinates
        return spectrum_of(moments).back(last)

    def weights_by_step(self, moments: Moments) -> Array:
        """Return the weights after every step.

        Args:
            moments: The contexts, of one length, with n > d.

        Returns:
            The weights, [steps + 1, B, d]; zero at the start.
        """
        _one_length(moments)
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
            variance = (residual / (found.context - moments.dim))[:, None]
            w = w - slope / largest
            v = v - ((values + variance) * v - c) / (largest + variance)
            yield v

    def __repr__(self) -> str:
        return f"IterativeRR(steps={self.steps})"


TUNING = 1 << 31  # the stream that tuning draws from, apart from every evaluation's
GENERAL = 20_000  # sequences at most for tuning where the problem is not isotropic, where they cost more


def check_any_problem(problem: object) -> BaseProblem:
    """Return a problem, built-in or custom.

    Args:
        problem: What was given.

    Returns:
        The problem.

    Raises:
        InputError: It is no problem.
    """
    if not isinstance(problem, BaseProblem):
        refuse("this needs a Problem", f"a {type(problem).__name__}", 'Use Problem(noise="uniform(0,5)").')
    return problem


def check_problem(problem: object) -> Problem:
    """Return a `Problem`, and refuse anything else, custom problems included.

    Args:
        problem: What was given.

    Returns:
        The problem.

    Raises:
        InputError: It is not a `Problem`.
    """
    if isinstance(check_any_problem(problem), Problem):
        return problem  # type: ignore[return-value]
    refuse(
        "this needs a built-in Problem, whose laws of noise and tasks are known",
        f"a {type(problem).__name__}",
        "Use a Problem here, or evaluate and compare.",
    )


def spectrum_of(moments: Moments) -> Spectrum:
    """Return the spectrum of moments with one number of examples.

    Args:
        moments: The contexts.

    Returns:
        Their spectrum.

    Raises:
        InputError: These are no moments, or their numbers of examples differ.
    """
    _one_length(moments)
    return moments.spectrum


def estimate(moments: Moments) -> Array:
    """Estimate the noise variance without bias; needs n > d.

    Args:
        moments: The contexts.

    Returns:
        The estimates, [B].

    Raises:
        InputError: There are too few examples.
    """
    _enough(moments)
    return spectrum_of(moments).unbiased_variance()


def _check_moments(moments: object) -> None:
    if not isinstance(moments, Moments):
        refuse("a predictor takes Moments", f"a {type(moments).__name__}", "Use draw.moments or Moments.from_tokens.")


def _one_length(moments: Moments) -> None:
    _check_moments(moments)
    if not isinstance(moments.context, int):
        refuse("this takes contexts of one length", repr(moments), "Split them with moments.by_length().")


def _enough(moments: Moments) -> None:
    _one_length(moments)
    if moments.counts[0] <= moments.dim:
        refuse(
            "estimating the noise needs more examples than dimensions, n > d",
            f"n = {moments.context}, d = {moments.dim}",
            "Use ConstRR or BayesRR here.",
        )
