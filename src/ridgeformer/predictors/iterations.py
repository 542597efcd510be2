"""Classical algorithms for S w = a as filters: what they leave of the solution along each eigenvector of S.

Every algorithm here starts at w = 0 and makes w = (1 - e(lambda)) w* along an eigenvector with the eigenvalue lambda,
where w* solves S w* = a. Each function gives e for one step after the other:

    gradient descent, heavy ball   w_{k+1} = w_k + step (a - S w_k) + momentum (w_k - w_{k-1})
    Newton's iteration             w_k = X_k a, X_0 = scale S, X_{k+1} = X_k (2 I - S X_k)
    ridge regression               (S + penalty I)^-1 a, for one penalty after the other
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["heavy_ball", "newton", "ridge_path"]

Array = NDArray[np.float64]


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
