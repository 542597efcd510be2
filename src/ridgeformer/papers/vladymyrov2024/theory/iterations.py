"""Classical iterations for S w = a, and how many steps they take.

S has eigenvalues lambda in [mu, nu], kappa = nu / mu, and w = (1 - e(lambda)) w* along each eigenvector. After k steps,
with g = 1 - 2 lambda / (nu + mu),

    gradient descent     e = g^k
    heavy ball           e_{k+1} = e_k - step lambda e_k + momentum (e_k - e_{k-1}), with Polyak's constants
    conjugate gradients  the best e(lambda) of degree k with e(0) = 1 for this spectrum and w*, in the energy norm
    Newton               e = g^(2^(k-1)): X = 2 / (nu + mu) I, then X <- X (2 I - S X) k - 1 times, and w = X a

Steps are counted until |w - w*| <= epsilon |w*|: in closed form for the worst spectrum and w*, or by running on one
spectrum, with w* = (1, ..., 1) in its eigenbasis. Everything starts at w = 0. For conjugate gradients,
which minimise another norm, it is a lower bound, Chebyshev's: no method that multiplies by S once per step needs fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer.predictors.iterations import heavy_ball

__all__ = ["METHODS", "Method", "chebyshev_degree", "log_spaced"]

Array = NDArray[np.float64]
LONGEST = 1_000_000  # steps of heavy ball that are run one by one


class Method(NamedTuple):
    """How many steps a method takes.

    Attributes:
        worst: Maps (kappa, epsilon) to the steps in the worst case.
        on: Maps (eigenvalues, epsilon) to the steps on that spectrum; None if there are too many to run.
    """

    worst: Callable[[float, float], int]
    on: Callable[[Array, float], int | None]


def log_spaced(kappa: float, count: int = 50) -> Array:
    """Return eigenvalues from 1 / kappa to 1, ascending and evenly spaced in their logarithms.

    Args:
        kappa: The condition number.
        count: How many.

    Returns:
        The eigenvalues, [count].
    """
    return np.geomspace(1 / kappa, 1.0, count)


def chebyshev_degree(kappa: float, epsilon: float) -> int:
    """Compute the least degree of a polynomial with e(0) = 1 and |e| <= epsilon on [1, kappa].

    No polynomial is smaller there than Chebyshev's, of which the largest value is 1 / T_k((kappa + 1) / (kappa - 1)).

    Args:
        kappa: The condition number.
        epsilon: The accuracy.

    Returns:
        The degree.
    """
    return _whole(math.acosh(1 / epsilon) / _contraction(_root_excess(kappa)))


def _whole(steps: float) -> int:
    """Rounded up, unless a rounding error is all that is above a whole number."""
    return max(1, math.ceil(steps * (1 - 1e-14)))


def _contraction(excess: float) -> float:
    """Return log((r + 1) / (r - 1)) from r - 1, where r is kappa or its root."""
    return math.log1p(2 / excess) if excess > 0 else math.inf


def _root_excess(kappa: float) -> float:
    """sqrt(kappa) - 1."""
    return (kappa - 1) / (math.sqrt(kappa) + 1)


def _least(enough: Callable[[int], bool]) -> int:
    """The least k >= 1 with enough(k), which stays true from there on."""
    high = 1
    while not enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _rms_of_power(logs: Array, power: float) -> float:
    return float(np.sqrt(np.mean(np.exp(2 * power * logs))))


def _logs(values: Array) -> Array:
    """Return log |1 - 2 lambda / (nu + mu)|, which is the same from either end of the spectrum."""
    least, largest = values[0], values[-1]
    nearer = np.minimum(values, (largest - values) + least)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log1p(-2 * nearer / (largest + least)))


def _gradient_descent_worst(kappa: float, epsilon: float) -> int:
    return _whole(_gradient_steps(kappa, epsilon))


def _gradient_steps(kappa: float, epsilon: float) -> float:
    """Steps of gradient descent, not rounded up."""
    return -math.log(epsilon) / _contraction(kappa - 1)


def _gradient_descent_on(values: Array, epsilon: float) -> int:
    logs = _logs(values)
    return _least(lambda k: _rms_of_power(logs, k) <= epsilon)


def _heavy_ball_worst(kappa: float, epsilon: float) -> int:
    """At the largest eigenvalue |e_k| = rate^k (1 + k (1 + rate)), and nowhere more."""
    log_rate = -_contraction(_root_excess(kappa))
    return _least(lambda k: k * log_rate + math.log1p(k * (1 + math.exp(log_rate))) <= math.log(epsilon))


def _heavy_ball_on(values: Array, epsilon: float) -> int | None:
    kappa = values[-1] / values[0]
    if _heavy_ball_worst(kappa, epsilon) > LONGEST:
        return None
    momentum = ((math.sqrt(kappa) - 1) / (math.sqrt(kappa) + 1)) ** 2
    errors = heavy_ball(values, 4 / (math.sqrt(values[-1]) + math.sqrt(values[0])) ** 2, momentum)
    goal = epsilon**2 * len(values)
    return next(steps for steps, e in enumerate(errors) if steps and float(e @ e) <= goal)


def _conjugate_gradients_on(values: Array, epsilon: float) -> int:
    """Run in 50 digits and 4 more per eigenvalue: enough to keep the directions conjugate to the end."""
    with localcontext(prec=50 + 4 * len(values)):
        spectrum = [Decimal(value) for value in values.tolist()]
        w, goal = [Decimal(0)] * len(spectrum), Decimal(epsilon) ** 2 * len(spectrum)
        residual = direction = spectrum
        square = _dot(residual, residual)
        for steps in range(1, len(spectrum) + 1):
            image = [s * p for s, p in zip(spectrum, direction, strict=True)]
            step = square / _dot(direction, image)
            w = _plus(w, step, direction)
            if sum((1 - x) ** 2 for x in w) <= goal:
                return steps
            residual = _plus(residual, -step, image)
            square, old = _dot(residual, residual), square
            direction = _plus(residual, square / old, direction)
    return len(spectrum)


def _newton_worst(kappa: float, epsilon: float) -> int:
    return 1 + max(0, math.ceil(math.log2(max(_gradient_steps(kappa, epsilon), 1) * (1 - 1e-14))))


def _newton_on(values: Array, epsilon: float) -> int:
    logs = _logs(values)
    return _least(lambda k: _rms_of_power(logs, 2.0 ** (k - 1)) <= epsilon)


def _dot(left: list[Decimal], right: list[Decimal]) -> Decimal:
    return sum((x * y for x, y in zip(left, right, strict=True)), Decimal(0))


def _plus(left: list[Decimal], factor: Any, right: list[Decimal]) -> list[Decimal]:
    return [x + factor * y for x, y in zip(left, right, strict=True)]


METHODS = {
    "Newton (Schulz)": Method(_newton_worst, _newton_on),
    "conjugate gradients": Method(chebyshev_degree, _conjugate_gradients_on),
    "heavy ball": Method(_heavy_ball_worst, _heavy_ball_on),
    "gradient descent": Method(_gradient_descent_worst, _gradient_descent_on),
}
