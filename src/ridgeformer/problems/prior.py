"""The Gaussian law of tasks that ridge predictors assume."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeformer.moments import Moments
from ridgeformer.values import Value

__all__ = ["Prior"]

Array = NDArray[np.float64]


@dataclass(eq=False)
class Prior(Value):
    """A Gaussian law of tasks, w = mean + factor g with g ~ N(0, I): what ridge predictors assume.

    Attributes:
        mean: [d], or None for 0.
        factor: [d, r], or None for the identity.
    """

    mean: Array | None = None
    factor: Array | None = None

    @property
    def is_standard(self) -> bool:
        """Whether w ~ N(0, I)."""
        return self.mean is None and self.factor is None

    def whiten(self, moments: Moments) -> Moments:
        """Return the moments of the same contexts in the coordinates g, in which tasks are N(0, I).

        Args:
            moments: The contexts.

        Returns:
            The moments, of dimension r.
        """
        if self.is_standard:
            return moments
        S, a, l = (x.astype(np.float64) for x in (moments.S, moments.a, moments.l))  # noqa: E741
        if self.mean is not None:
            Sm = S @ self.mean
            l = np.maximum(l - 2 * (a @ self.mean) + Sm @ self.mean, 0.0)  # noqa: E741
            a = a - Sm
        if self.factor is not None:
            S, a = self.factor.T @ S @ self.factor, a @ self.factor
        d = S.shape[1]
        gram = np.empty((len(S), d + 1, d + 1))
        gram[:, :d, :d], gram[:, d, d] = (S + np.swapaxes(S, 1, 2)) / 2, l
        gram[:, :d, d] = gram[:, d, :d] = a
        return Moments._trusted(gram, moments.context, moments.sigma)

    def back(self, weights: Array) -> Array:
        """Return weights from those in the coordinates g.

        Args:
            weights: Weights in the coordinates g, [B, r].

        Returns:
            Weights, [B, d].
        """
        tasks = weights if self.factor is None else weights @ self.factor.T
        return tasks if self.mean is None else tasks + self.mean
