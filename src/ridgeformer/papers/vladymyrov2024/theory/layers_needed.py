"""How many layers GD++ needs, beside the steps of classical methods, and how the numbers grow.

>>> for name, steps in compare(1e6, 1e-10).items():
...     print(f"{name:20} {steps:9}")
GD++, paper                 23
GD++, balanced              12
Newton (Schulz)             25
GD++, lower bound           10
conjugate gradients      11860
heavy ball               16722
gradient descent      11512926
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.papers.vladymyrov2024.theory import gdpp_solver as solver
from ridgeformer.validation import Array


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


def _gradient_steps(kappa: float, epsilon: float) -> float:
    """Steps of gradient descent, not rounded up."""
    return -math.log(epsilon) / _contraction(kappa - 1)


def _heavy_ball_worst(kappa: float, epsilon: float) -> int:
    """At the largest eigenvalue |e_k| = rate^k (1 + k (1 + rate)), and nowhere more."""
    log_rate = -_contraction(_root_excess(kappa))
    return _least(lambda k: k * log_rate + math.log1p(k * (1 + math.exp(log_rate))) <= math.log(epsilon))


def _newton_worst(kappa: float, epsilon: float) -> int:
    return 1 + max(0, math.ceil(math.log2(max(_gradient_steps(kappa, epsilon), 1) * (1 - 1e-14))))


METHODS: dict[str, Callable[[float, float], int]] = {
    "Newton (Schulz)": _newton_worst,
    "conjugate gradients": chebyshev_degree,
    "heavy ball": _heavy_ball_worst,
    "gradient descent": lambda kappa, epsilon: _whole(_gradient_steps(kappa, epsilon)),
}


KAPPAS = tuple(float(f"{kappa:.4g}") for kappa in np.geomspace(2, 1e12, 25))
EPSILONS = (1e-1, 1e-2, 1e-3, 1e-5, 1e-8, 1e-12, 1e-18, 1e-30)


class Growth(NamedTuple):
    """The fit layers = kappa log(K) + epsilon log log(1/E) + constant, for condition number K and accuracy E.

    It is by least squares, with natural logarithms.

    Attributes:
        kappa: The coefficient of log(K).
        epsilon: The coefficient of log log(1/E).
        constant: The constant.
        errors: Standard errors of the three.
        farthest: The largest distance of a count from the fit.
    """

    kappa: float
    epsilon: float
    constant: float
    errors: tuple[float, ...]
    farthest: float


def layers_needed(kappa: float, epsilon: float, plan: solver.Plan = solver.PAPER) -> float:
    """Count the layers with which a plan guarantees an accuracy for every spectrum of a condition number.

    Args:
        kappa: The condition number, from 1 to 1e100.
        epsilon: The accuracy, from 1e-100 to 1.
        plan: How layers are chosen.

    Returns:
        The number of layers; infinite if the plan cannot guarantee it.

    Raises:
        InputError: kappa or epsilon is not allowed.

    >>> layers_needed(1e12, 1e-30)
    41
    """
    kappa, epsilon = solver.check_kappa(kappa), solver.check_epsilon(epsilon)
    with localcontext(solver.digits(kappa, epsilon)):
        return len(solver.schedule(Decimal(kappa), Decimal(epsilon), plan)) or math.inf


def least_layers(kappa: float, epsilon: float) -> int:
    """Count the layers below which no GD++ model reaches an accuracy on every spectrum of a condition number.

    What L layers leave, e, is a polynomial of degree 1 + 3 + ... + 3^(L-1), and none is smaller than Chebyshev's.

    Args:
        kappa: The condition number.
        epsilon: The accuracy.

    Returns:
        The number of layers.
    """
    degree, layers = chebyshev_degree(kappa, epsilon), 1
    while (3**layers - 1) // 2 < degree:
        layers += 1
    return layers


SECOND_ORDER: dict[str, Callable[[float, float], float]] = {
    "GD++, paper": layers_needed,
    "GD++, balanced": lambda kappa, epsilon: layers_needed(kappa, epsilon, solver.BALANCED),
    "Newton (Schulz)": _newton_worst,
    "GD++, lower bound": least_layers,
}


def compare(kappa: float, epsilon: float) -> dict[str, int]:
    """Compare all methods, each until |w - w*| <= epsilon |w*| on the worst spectrum of a condition number.

    Args:
        kappa: The condition number, from 1 to 1e100.
        epsilon: The accuracy, from 1e-100 to 1.

    Returns:
        Layers or steps by method.

    Raises:
        InputError: An argument is not allowed.
    """
    kappa, epsilon = solver.check_kappa(kappa), solver.check_epsilon(epsilon)
    return {name: int(count(kappa, epsilon)) for name, count in (SECOND_ORDER | METHODS).items()}


def counts(
    count: Callable[[float, float], float] = layers_needed,
    kappas: Sequence[float] = KAPPAS,
    epsilons: Sequence[float] = EPSILONS,
) -> NDArray[np.float64]:
    """Count layers on a grid.

    Args:
        count: Maps (kappa, epsilon) to a number of layers.
        kappas: Condition numbers.
        epsilons: Accuracies.

    Returns:
        The numbers, [kappas, epsilons].
    """
    return np.array([[count(kappa, epsilon) for epsilon in epsilons] for kappa in kappas], np.float64)


def growth(
    layers: NDArray[np.float64], kappas: Sequence[float] = KAPPAS, epsilons: Sequence[float] = EPSILONS
) -> Growth:
    """Fit the growth of layers on a grid.

    Args:
        layers: Numbers of layers, [kappas, epsilons].
        kappas: Condition numbers.
        epsilons: Accuracies.

    Returns:
        The fit.

    Raises:
        InputError: The grid is too small for a fit.
    """
    if min(len(kappas), len(epsilons)) < 2 or len(kappas) * len(epsilons) < 4:
        refuse("a fit needs two values of each and four counts", layers.shape, "Pass more kappas and epsilons.")
    log_kappa, log_log = np.log(kappas), np.log(-np.log(epsilons))
    design = np.stack(
        [np.repeat(log_kappa, len(epsilons)), np.tile(log_log, len(kappas)), np.ones(layers.size)], axis=1
    )
    if not np.isfinite(layers).all():
        return Growth(math.inf, math.inf, math.inf, (math.inf,) * 3, math.inf)
    solution = np.linalg.lstsq(design, layers.ravel(), rcond=None)[0]
    residual = layers.ravel() - design @ solution
    variance = float(residual @ residual) / (layers.size - 3)
    errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    slopes = [float(value) for value in solution]
    return Growth(slopes[0], slopes[1], slopes[2], (*errors.tolist(),), float(np.abs(residual).max()))
