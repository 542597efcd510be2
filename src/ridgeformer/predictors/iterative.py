"""Classical iterative algorithms: ridge regression by gradient descent, and what others leave of a solution.

Heavy ball, Newton's iteration and the path of ridge regression are given as filters. Each starts at w = 0 and makes
w = (1 - e(lambda)) w* along an eigenvector of S with the eigenvalue lambda, where S w* = a. Each function gives e for
one step after the other:

    gradient descent, heavy ball   w_{k+1} = w_k + step (a - S w_k) + momentum (w_k - w_{k-1})
    Newton's iteration             w_k = X_k a, X_0 = scale S, X_{k+1} = X_k (2 I - S X_k)
    ridge regression               (S + penalty I)^-1 a, for one penalty after the other
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ridgeformer.moments import Moments
from ridgeformer.predictors.base import check_enough
from ridgeformer.validation import Array, integer


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
        check_enough(moments)
        spectrum = moments.spectrum
        values, c = spectrum.values, spectrum.c
        largest = np.abs(moments.S.astype(np.float64)).sum(2).max(1)[:, None]
        w, v = np.zeros_like(c), np.zeros_like(c)
        for _ in range(self.steps):
            slope = values * w - c
            residual = np.maximum(spectrum.total + (w * (slope - c)).sum(1), 0.0)
            variance = (residual / (spectrum.context - spectrum.rank))[:, None]
            w = w - slope / largest
            v = v - ((values + variance) * v - c) / (largest + variance)
        return spectrum.back(v)

    def __repr__(self) -> str:
        return f"IterativeRR(steps={self.steps})"


def heavy_ball(values: Array, step: Any, momentum: Any = 0.0) -> Iterator[Array]:
    """Give what heavy ball leaves, or gradient descent if there is no momentum.

    Args:
        values: Eigenvalues, of any shape.
        step: The step size; an array is broadcast with the values.
        momentum: The momentum; an array is broadcast with the values.

    Yields:
        e after 0, 1, 2, ... steps.
    """
    slope = step * values
    before = e = np.ones(np.broadcast_shapes(np.shape(slope), np.shape(momentum)))
    while True:
        yield e
        before, e = e, (1 - slope) * e + momentum * (e - before)


def newton(values: Array, scale: Any) -> Iterator[Array]:
    """Give what Newton's iteration leaves: I - S X is squared by every step.

    Args:
        values: Eigenvalues, of any shape.
        scale: The factor of X_0 = scale S; an array is broadcast with the values.

    Yields:
        e after 0, 1, 2, ... steps.
    """
    e = 1 - scale * np.square(values)
    while True:
        yield e
        e = np.square(e)


def ridge_path(values: Array, penalties: Iterable[float]) -> Iterator[Array]:
    """Give what ridge regression leaves.

    Args:
        values: Eigenvalues, of any shape.
        penalties: The penalties.

    Yields:
        e for each penalty.
    """
    for penalty in penalties:
        yield penalty / (values + penalty)
