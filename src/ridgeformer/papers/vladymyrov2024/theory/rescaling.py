"""Adaptive rescaling: two layers find the ridge solution at either of two noise levels as n grows.

In the theorem x ~ N(0, I/n), w ~ N(0, I) and y = <w, x> + sigma xi, so S -> I, the ridge solution (S + sigma^2 I)^-1 a
tends to a / (1 + sigma^2), and l / n tends to sigma^2. The first layer has yx alone, the second yy alone:

    w_1 = - yx a,    w_2 = (1 + yy l_1) w_1,    l_1 = l + 2 yx a'a + yx^2 a'S a,    l_1 / n -> sigma^2.

So the two levels are both solved if -(1 + n sigma^2 yy) yx = 1 / (1 + sigma^2) at both, and that is

    yx = - (1 + s + t) / ((1 + s)(1 + t)),      n yy = - 1 / (1 + s + t),       s = sigma_1^2, t = sigma_2^2.

The paper prints w_1 = + yx a and no minus in the condition; its solution tends to minus the ridge solution
(`printed_solve`).

The error falls as 1 / sqrt(n), and no faster: S is that far from I, and l_1 / n from sigma^2. To first order

    n E|w_2 - ridge|^2  ->  d (d + 1) / (1 + sigma^2)^3  +  2 d sigma^4 (1 + sigma^2) / ((1 + s)(1 + t))^2.

With x ~ N(0, I) and y multiplied by sqrt(n), as `Problem` has them, sums are n times as large and the noise levels
sqrt(n) times: a level sigma here is sigma sqrt(n) there. At a level that stays fixed there, least squares is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ridgeformer.errors import refuse
from ridgeformer.models.families import Diag
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.noise import Fixed
from ridgeformer.papers.vladymyrov2024.theory.verification import Bound, relative_error
from ridgeformer.problems import Draw, Problem
from ridgeformer.validation import Array, integer, number

Solve = Callable[[float, float], tuple[float, float]]
CONTEXTS = tuple(10**power for power in range(2, 8))
PAIRS = ((0.5, 2.0), (0.0, 1.0), (1.0, 3.0))


def solve(sigma_1: float, sigma_2: float) -> tuple[float, float]:
    """Solve -(1 + sigma^2 n yy) yx = 1 / (1 + sigma^2) at two noise levels.

    Args:
        sigma_1: A noise level.
        sigma_2: Another noise level.

    Returns:
        yx and n yy.

    Raises:
        InputError: The levels are equal or negative.

    >>> solve(0, 1)
    (-1.0, -0.5)
    """
    s, t = _levels(sigma_1, sigma_2)
    return -(1 + s + t) / ((1 + s) * (1 + t)), -1 / (1 + s + t)


def printed_solve(sigma_1: float, sigma_2: float) -> tuple[float, float]:
    """Solve the paper's condition, (1 + sigma^2 n yy) yx = 1 / (1 + sigma^2), at two noise levels.

    Args:
        sigma_1: A noise level.
        sigma_2: Another noise level.

    Returns:
        yx and n yy.
    """
    yx, yy = solve(sigma_1, sigma_2)
    return -yx, yy


def rescaling_model(
    sigma_1: float, sigma_2: float, context: int, dim: int, *, solve: Solve = solve
) -> LinearTransformer:
    """Make the theorem's two layers, for n tokens with x ~ N(0, I/n).

    Args:
        sigma_1: A noise level.
        sigma_2: Another noise level.
        context: The number n of context tokens.
        dim: The dimension d.
        solve: Computes yx and n yy.

    Returns:
        The model.

    >>> rescaling_model(1, 3, context=1000, dim=5)
    LinearTransformer(diag, dim=5, layers=2, heads=2)
    """
    yx, yy = solve(sigma_1, sigma_2)
    n = integer("the context n", context)
    return LinearTransformer(Diag(omega=[[[0.0, 0.0], [yx, 0.0]], [[0.0, 0.0], [0.0, yy / n]]]), dim)


def theorem_moments(sigma: float, context: int, dim: int, count: int, *, seed: int = 0) -> Draw:
    """Draw moments with x ~ N(0, I/n) and one noise level; the cost does not depend on n.

    Args:
        sigma: The noise level.
        context: The number n of context tokens.
        dim: The dimension d.
        count: How many sequences.
        seed: Seed of the sequences.

    Returns:
        The moments, with the tasks and the ridge solutions.
    """
    n, level = integer("the context n", context), number("sigma", sigma)
    draw = Problem(dim, n, Fixed(level * math.sqrt(n))).moments(count, seed=seed)
    moments = Moments(draw.moments.gram / n, n, np.full(count, level))
    return Draw(moments, draw.task, draw.ridge, np.full(count, level))


def limit_error(sigma: float, sigma_1: float, sigma_2: float, dim: int) -> float:
    """Compute the limit of n E|w_2 - ridge|^2 for n to infinity, at one of the two noise levels.

    Args:
        sigma: `sigma_1` or `sigma_2`.
        sigma_1: A noise level of the model.
        sigma_2: The other noise level of the model.
        dim: The dimension d.

    Returns:
        The limit.
    """
    (s, t), v = _levels(sigma_1, sigma_2), sigma * sigma
    from_S = dim * (dim + 1) / (1 + v) ** 3
    from_l = 2 * dim * v * v * (1 + v) / ((1 + s) * (1 + t)) ** 2
    return from_S + from_l


class Decay(NamedTuple):
    """How the error of the theorem's model falls with n.

    Attributes:
        contexts: Context lengths n.
        errors: Root mean square of |w_2 - ridge| at every n.
        power: The power of n in the fit constant * n^power.
        power_error: Its standard error.
    """

    contexts: tuple[int, ...]
    errors: Array
    power: float
    power_error: float


def measure(model: LinearTransformer, sigma: float, context: int, *, sequences: int = 10_000, seed: int = 0) -> float:
    """Measure the root mean square of |w_2 - ridge| on fresh sequences.

    Args:
        model: The theorem's model.
        sigma: The noise level.
        context: The number n of context tokens.
        sequences: How many sequences.
        seed: Seed of the sequences.

    Returns:
        The error.
    """
    draw = theorem_moments(sigma, context, model.dim, sequences, seed=seed)
    return float(np.sqrt(np.mean(np.square(model.weights(draw.moments) - draw.ridge).sum(1))))


def decay(
    sigma: float,
    sigma_1: float,
    sigma_2: float,
    dim: int = 5,
    contexts: Sequence[int] = CONTEXTS,
    *,
    sequences: int = 10_000,
    seed: int = 0,
    solve: Solve = solve,
) -> Decay:
    """Measure how the error of the model made for two noise levels falls with n.

    Args:
        sigma: The noise level of the sequences.
        sigma_1: A noise level of the model.
        sigma_2: The other noise level of the model.
        dim: The dimension d.
        contexts: Context lengths n.
        sequences: How many sequences at each.
        seed: Seed of the sequences.
        solve: Computes yx and n yy.

    Returns:
        The errors and their fit.

    >>> fit = decay(2, 0.5, 2)
    >>> abs(fit.power + 0.5) < 0.02
    True
    """
    if len(contexts) < 3:
        refuse("a power of n needs three contexts at least", len(contexts), "Pass 100, 10_000 and 1_000_000, say.")
    errors = np.zeros(len(contexts))
    for i, n in enumerate(contexts):
        model = rescaling_model(sigma_1, sigma_2, n, dim, solve=solve)
        errors[i] = measure(model, sigma, n, sequences=sequences, seed=seed + i)
    (power, _), covariance = np.polyfit(np.log(contexts), np.log(errors), 1, cov=True)
    return Decay(tuple(contexts), errors, float(power), math.sqrt(covariance[0, 0]))


def check(seed: int = 0) -> list[Bound]:
    """Measure the error at both levels of three pairs, for n from 100 to 10^7.

    Args:
        seed: Seed of the sequences.

    Returns:
        The checks.
    """
    bounds = [_tokens(seed)]
    for pair in PAIRS:
        for sigma in pair:
            what = f"levels {pair[0]:g} and {pair[1]:g}, at {sigma:g}"
            fit = decay(sigma, *pair, seed=seed, solve=solve)
            wrong = decay(sigma, *pair, seed=seed, solve=printed_solve)
            n, limit = fit.contexts[-1], math.sqrt(limit_error(sigma, *pair, 5))
            facts = {"n": fit.contexts, "error": fit.errors.tolist(), "power": fit.power, "+-": fit.power_error}
            claim, (error, printed) = "error falls as n^-1/2", (abs(variant.power + 0.5) for variant in (fit, wrong))
            bounds.append(Bound(f"{what}: {claim}, difference of the exponent", error, 0.05, facts, printed))
            # 10,000 sequences know the root mean square to about 1 %, and a term in 1 / n is left.
            claim = "sqrt(n) x error at n = 10^7"
            at_end = [math.sqrt(n) * float(variant.errors[-1]) for variant in (fit, wrong)]
            error, printed = (abs(value / limit - 1) for value in at_end)
            facts = {"n": n, "sqrt(n) error": at_end[0], "limit": limit}
            bounds.append(Bound(f"{what}: {claim}, difference from the limit", error, 0.05, facts, printed))
    return bounds


def _tokens(seed: int) -> Bound:
    """w_2 by the paper's equation, token by token, against (1 + yy l_1) (-yx) a."""
    n, dim, pair = 40, 3, (0.5, 2.0)
    model = rescaling_model(*pair, n, dim, solve=solve)
    s = Problem(dim, n, "fixed(1)").sequences(16, seed=seed, queries=2)
    x, queries = s.x / math.sqrt(n), s.queries
    yx, yy = solve(*pair)
    a = np.einsum("bnd,bn->bd", x, s.y)
    labels = s.y + yx * np.einsum("bnd,bd->bn", x, a)
    expected, printed = (
        np.einsum("b,bd,bmd->bm", 1 + yy / n * np.square(labels).sum(1), sign * yx * a, queries) for sign in (-1, 1)
    )
    truth = model.predict(x, s.y, queries)
    what = "w_2 = -(1 + yy l_1) yx a, token by token"
    return Bound(what, relative_error(expected, truth), 1e-12, as_printed=relative_error(printed, truth))


def _levels(sigma_1: float, sigma_2: float) -> tuple[float, float]:
    """The two variances."""
    first, second = (number(name, value) for name, value in (("sigma_1", sigma_1), ("sigma_2", sigma_2)))
    if not math.isfinite(first * first + second * second):
        refuse("noise levels must be finite, and their squares too", (first, second), "Pass levels below 1e150.")
    if first == second:
        refuse(
            "the two noise levels must differ", first, "One level needs one layer only: omega_yx = -1 / (1 + sigma^2)."
        )
    return first * first, second * second
