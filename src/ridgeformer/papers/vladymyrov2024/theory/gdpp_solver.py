"""GD++ as a solver of least squares: its layers for a given condition number and accuracy.

A layer (xx, yx) = (-gamma, -step) maps an eigenvalue s of the current S, and the share e of w* that is still missing
along its eigenvector (w = (1 - e) w*), as

    e <- e (1 - step s),        s <- s (1 - gamma s)^2.

All eigenvalues go towards each other; when they are nearly equal, one step of gradient descent ends it. In terms of
kappa, the largest over the least of them, a layer of the paper's plan (gamma = 1 / (3 largest)) gives exactly

    kappa' - 1 = (kappa - 1)^2 (4 kappa - 1) / (3 kappa - 1)^2,

so kappa shrinks by 4/9 a layer while it is large, and kappa - 1 is squared once it is small. Neither constant is the
best: gamma = 1 / (largest + sqrt(largest least) + least) makes both ends of the spectrum equal, and then

    kappa' - 1 = (m - 3)^2 (4 m - 3) / (27 (m - 1)^2),        m = kappa + sqrt(kappa) + 1,

a factor of 4/27. No gamma below 1 / largest does better, and beyond that an eigenvalue may vanish.

Numbers are decimals, of as many digits as kappa and epsilon need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal, localcontext
from typing import NamedTuple

from ridgeformer.errors import refuse, shown
from ridgeformer.models.families import GDpp
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.validation import integer, number

MOST = 1000  # layers, more than three times what kappa = 1e100 needs
FINEST = 1e-14  # accuracy that parameters in float64 can still express


class Interval(NamedTuple):
    """Where the eigenvalues lie.

    Attributes:
        least: The least eigenvalue.
        largest: The largest eigenvalue.
    """

    least: Decimal
    largest: Decimal

    @property
    def excess(self) -> Decimal:
        """The condition number kappa minus 1."""
        return (self.largest - self.least) / self.least


class Layer(NamedTuple):
    """The two numbers of a GD++ layer.

    Attributes:
        xx: From x to x.
        yx: From x to y.
    """

    xx: Decimal
    yx: Decimal


class Plan(NamedTuple):
    """How layers are chosen.

    Attributes:
        gamma: Maps the interval of eigenvalues to gamma, minus xx of the layer.
        every: Whether all layers take a gradient step, or the last alone.
    """

    gamma: Callable[[Interval], Decimal]
    every: bool


def third(interval: Interval) -> Decimal:
    """Return the paper's gamma: the largest eigenvalue comes to rest at the top of s (1 - gamma s)^2.

    Args:
        interval: Where the eigenvalues lie.

    Returns:
        gamma.
    """
    return 1 / (3 * interval.largest)


def balanced(interval: Interval) -> Decimal:
    """Return the gamma that maps both ends of the interval to one value.

    Args:
        interval: Where the eigenvalues lie.

    Returns:
        gamma.
    """
    least, largest = interval
    return 1 / (largest + (largest * least).sqrt() + least)


PAPER, BALANCED = Plan(third, every=False), Plan(balanced, every=True)
PLANS = {"paper": PAPER, "balanced": BALANCED}


def image(interval: Interval, gamma: Decimal) -> Interval:
    """Compute where s (1 - gamma s)^2 lies for s in an interval.

    Args:
        interval: Where the eigenvalues s lie.
        gamma: Any number.

    Returns:
        Where the eigenvalues lie after the layer.
    """
    ends = [s * (1 - gamma * s) ** 2 for s in interval]
    if gamma > 0:
        if interval.least < 1 / (3 * gamma) < interval.largest:
            ends.append(4 / (27 * gamma))
        if interval.least < 1 / gamma < interval.largest:
            ends.append(Decimal(0))
    return Interval(min(ends), max(ends))


def digits(kappa: float, epsilon: float) -> Context:
    """Make decimals with room for eigenvalues kappa apart, differences of epsilon, and thirty digits more.

    Args:
        kappa: The condition number.
        epsilon: The accuracy.

    Returns:
        The context for decimals.
    """
    return Context(prec=30 + 3 * math.ceil(math.log10(kappa)) + 2 * math.ceil(-math.log10(epsilon)))


def layers_of(
    kappa: Decimal, plan: Plan = PAPER, largest: Decimal = Decimal(1)
) -> Iterator[tuple[Layer, Layer, Decimal]]:
    """Yield, for every depth, its layer and what it guarantees.

    The error is |w - w*| / |w*|, for eigenvalues anywhere in [largest / kappa, largest].

    Args:
        kappa: The condition number.
        plan: How layers are chosen.
        largest: The largest eigenvalue.

    Yields:
        The layer of this depth if more follow, its layer if it is the last, and then the bound on the error. It ends if
        an eigenvalue may vanish.
    """
    interval, left = Interval(largest / kappa, largest), Decimal(1)
    while interval.least > 0:
        if plan.every:  # the step that serves both ends equally
            step, factor = 2 / (interval.largest + interval.least), interval.excess / (2 + interval.excess)
        else:
            step, factor = 1 / interval.least, interval.excess
        gamma = plan.gamma(interval)
        yield Layer(-gamma, -step if plan.every else Decimal(0)), Layer(Decimal(0), -step), left * factor
        if plan.every:
            left *= factor
        interval = image(interval, gamma)


def schedule(kappa: Decimal, epsilon: Decimal, plan: Plan = PAPER, largest: Decimal = Decimal(1)) -> list[Layer]:
    """Find the fewest layers of a plan that guarantee |w - w*| <= epsilon |w*|.

    Args:
        kappa: The condition number.
        epsilon: The accuracy.
        plan: How layers are chosen.
        largest: The largest eigenvalue.

    Returns:
        The layers; none if 1000 layers do not suffice.
    """
    layers: list[Layer] = []
    for depth, (more, last, error) in enumerate(layers_of(kappa, plan, largest), 1):
        if error <= epsilon:
            return [*layers, last]
        if depth == MOST:
            break
        layers.append(more)
    return []


def missing(layers: Sequence[Layer], eigenvalues: Sequence[Decimal]) -> list[Decimal]:
    """Compute what layers leave of every eigenvalue's direction: e = (w* - w) / w* along its eigenvector.

    Args:
        layers: The layers.
        eigenvalues: Eigenvalues of S.

    Returns:
        e of every eigenvalue.
    """
    left = []
    for s in eigenvalues:
        e = Decimal(1)
        for xx, yx in layers:
            e, s = e * (1 + yx * s), s * (1 + xx * s) ** 2
        left.append(e)
    return left


def second_order_solver(
    kappa: float, epsilon: float, dim: int, *, largest: float = 1.0, plan: str = "paper"
) -> LinearTransformer:
    """Make a GD++ model with |prediction - <x, w*>| <= epsilon |x| |w*|, where w* is the least-squares solution.

    It holds wherever S has eigenvalues in [largest / kappa, largest], in exact arithmetic; float64 adds about 1e-16
    kappa.

    Args:
        kappa: The condition number, from 1 to 1e100.
        epsilon: The accuracy, from 1e-14 to 1.
        dim: The dimension d.
        largest: The largest eigenvalue of S.
        plan: `paper`, or `balanced`, which needs about half as many layers.

    Returns:
        The model.

    Raises:
        InputError: An argument is not allowed.

    >>> second_order_solver(1e6, 1e-10, dim=10)
    LinearTransformer(gdpp, dim=10, layers=23, heads=2)
    >>> second_order_solver(1e6, 1e-10, dim=10, plan="balanced")
    LinearTransformer(gdpp, dim=10, layers=12, heads=2)
    """
    kappa, epsilon = check_kappa(kappa), check_epsilon(epsilon)
    dim, scale = integer("dim", dim, 1, 4096), number("largest", largest)
    if not 0 < scale < math.inf:
        refuse("the largest eigenvalue must be positive and finite", scale, "Pass a bound on the eigenvalues of S.")
    if plan not in PLANS:
        refuse(f"a plan must be one of {', '.join(PLANS)}", shown(plan), "Choose one of these.")
    if epsilon < FINEST:
        rule = f"parameters in float64 express an accuracy of {FINEST:g} at best"
        refuse(rule, epsilon, "Pass a larger epsilon; schedule works in decimals of any length.")
    with localcontext(digits(kappa, epsilon)):
        layers = schedule(Decimal(kappa), Decimal(epsilon), PLANS[plan], Decimal(scale))
    return as_model(layers, dim)


def as_model(layers: Sequence[Layer], dim: int) -> LinearTransformer:
    """Make a model of layers, in float64.

    Args:
        layers: The layers; without any, the model predicts zero.
        dim: The dimension d.

    Returns:
        The model.
    """
    omega = [[float(xx), float(yx)] for xx, yx in layers]
    return LinearTransformer(GDpp(omega=omega or [[0.0, 0.0]]), dim)


def check_kappa(kappa: float) -> float:
    """Check a condition number.

    Args:
        kappa: The number.

    Returns:
        It, as a float.

    Raises:
        InputError: It is not a number from 1 to 1e100.
    """
    kappa = number("the condition number kappa", kappa, 1.0)
    if kappa > 1e100:
        refuse("the condition number kappa must be at most 1e100", kappa, "Drop the directions without data.")
    return kappa


def check_epsilon(epsilon: float) -> float:
    """Check an accuracy.

    Args:
        epsilon: The number.

    Returns:
        It, as a float.

    Raises:
        InputError: It is not a number from 1e-100 to 1.
    """
    epsilon = number("the accuracy epsilon", epsilon)
    if not 1e-100 <= epsilon < 1:
        refuse("the accuracy epsilon must lie in [1e-100, 1)", epsilon, "Pass a small number such as 1e-10.")
    return epsilon
