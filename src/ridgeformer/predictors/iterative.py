"""Ridge regression by gradient descent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ridgeformer.moments import Moments
from ridgeformer.predictors.base import check_enough, check_one_length
from ridgeformer.predictors.ridge import spectrum_of
from ridgeformer.validation import integer

__all__ = ["IterativeRR"]

Array = NDArray[np.float64]


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
        check_one_length(moments)
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
        check_one_length(moments)
        trace = [spectrum_of(moments).back(coordinates) for coordinates in self._steps(moments)]
        return np.stack([np.zeros_like(trace[0]), *trace])

    def _steps(self, moments: Moments) -> Iterator[Array]:
        """Coordinates in the eigenbasis after each step, [B, m]."""
        check_enough(moments)
        spectrum = spectrum_of(moments)
        values, c = spectrum.values, spectrum.c
        largest = np.abs(moments.S.astype(np.float64)).sum(2).max(1)[:, None]
        w, v = np.zeros_like(c), np.zeros_like(c)
        for _ in range(self.steps):
            slope = values * w - c
            residual = np.maximum(spectrum.total + (w * (slope - c)).sum(1), 0.0)
            variance = (residual / (spectrum.context - spectrum.rank))[:, None]
            w = w - slope / largest
            v = v - ((values + variance) * v - c) / (largest + variance)
            yield v

    def __repr__(self) -> str:
        return f"IterativeRR(steps={self.steps})"
