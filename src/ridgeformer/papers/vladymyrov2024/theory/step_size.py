"""omega_xy adapts the step size: a layer with omega_xy alone, then one with omega_yx alone, are one step of descent.

The paper drops what it calls an unknown preconditioning effect and finds the step -omega_yx (1 + omega_xy sum r^2).
Nothing needs to be dropped. A query has y = 0, so the first layer leaves it alone, and the context's tokens become
x + omega_xy y b, where b = sum y x; their sum of y x is (1 + omega_xy sum y^2) b. So, exactly,

    w = -omega_yx (1 + omega_xy sum y^2) b.

The dropped part of sum y^2 = sum r^2 + w*'S w* is of the same order in omega_xy as the kept one, and on average

    (n d + d sigma^2) / ((n - d) sigma^2)

times as large: small only where both n >> d and sigma^2 >> d. The conclusion stands: y^2, too, grows with the noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ridgeformer.errors import refuse
from ridgeformer.models.families import Diag
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.papers.vladymyrov2024.theory.verification import Bound, fitted_power, relative_error
from ridgeformer.problems import Problem
from ridgeformer.validation import Array, integer, number

ROUNDING = 1e-12
SIZES = [1e-7, 1e-6, 1e-5, 1e-4]  # of omega_xy; sum y^2 is about 1e2
NOISE = [1.0, 2.0, 5.0, 10.0, 20.0]


def two_layers(xy: float, yx: float, dim: int) -> LinearTransformer:
    """Make a layer with omega_xy alone, then one with omega_yx alone.

    Args:
        xy: omega_xy of the first layer.
        yx: omega_yx of the second layer.
        dim: The dimension d.

    Returns:
        The model.
    """
    return LinearTransformer(Diag(omega=[[[0.0, xy], [0.0, 0.0]], [[0.0, 0.0], [yx, 0.0]]]), dim)


def step(moments: Moments, xy: float, yx: float) -> Array:
    """Compute the step size of the two layers exactly: w is this times a.

    Args:
        moments: The contexts, B of them.
        xy: omega_xy of the first layer.
        yx: omega_yx of the second layer.

    Returns:
        The step sizes, [B].
    """
    return np.asarray(-yx * (1 + xy * moments.q), np.float64)


def printed_step(moments: Moments, xy: float, yx: float) -> Array:
    """Compute the step size by the paper's approximation: residuals in place of labels.

    Args:
        moments: As for `step`.
        xy: As for `step`.
        yx: As for `step`.

    Returns:
        The step sizes, [B].
    """
    return np.asarray(-yx * (1 + xy * moments.spectrum.residual))


def dropped_over_kept(dim: int, context: int, sigma: float) -> float:
    """Compute the part of the effect that the approximation drops over the part that it keeps.

    It is E[w*'S w*] / E[sum r^2].

    Args:
        dim: The dimension d.
        context: The number n of context tokens.
        sigma: The noise level.

    Returns:
        The quotient.

    >>> round(dropped_over_kept(10, 20, 5.0), 2), round(dropped_over_kept(10, 2000, 50.0), 3)
    (1.8, 0.009)
    """
    dim, context, variance = integer("dim", dim), integer("context", context), number("sigma", sigma) ** 2
    if context <= dim or variance == 0:
        refuse(
            "residuals need n > d and noise", f"n = {context}, d = {dim}, sigma = {sigma:g}", "Use n > d and sigma > 0."
        )
    return (context * dim + dim * variance) / ((context - dim) * variance)


def measured_dropped_over_kept(problem: Problem, *, sequences: int, seed: int = 0) -> tuple[float, float]:
    """Measure the same quotient on random sequences.

    Args:
        problem: The problem.
        sequences: How many sequences.
        seed: Seed of the sequences.

    Returns:
        The quotient and its standard error.
    """
    draw = problem.moments(sequences, seed=seed)
    kept = draw.moments.spectrum.residual
    dropped = draw.moments.q - kept
    ratio = float(dropped.mean() / kept.mean())
    return ratio, float((dropped - ratio * kept).std() / kept.mean() / np.sqrt(sequences))


def check(seed: int = 0) -> list[Bound]:
    """Compare the exact step with tokens, and the approximation with the exact step, by omega_xy and by noise.

    Args:
        seed: Seed of the sequences.

    Returns:
        The checks.
    """
    problem = Problem(10, 20, "uniform(0,5)")
    s = problem.sequences(50, seed=seed, queries=2)
    moments = Moments.from_tokens(s.x, s.y)
    xy, yx = -5e-4, -0.02
    trace = two_layers(xy, yx, 10).tokens(s.x, s.y, s.queries)
    asked = np.einsum("bd,bmd->bm", moments.b, s.queries)
    error, printed = (
        relative_error(-rule(moments, xy, yx)[:, None] * asked, trace[-1, :, 20:, 10]) for rule in (step, printed_step)
    )
    moved = float(np.abs(trace[1, :, 20:] - trace[0, :, 20:]).max())
    return [
        Bound("w = -omega_yx (1 + omega_xy sum y^2) b", error, ROUNDING, as_printed=printed),
        Bound("the query is not changed by omega_xy", moved, 0.0),
        _by_omega(moments, s.x, s.y),
        *_by_noise(seed),
    ]


def _by_omega(moments: Moments, x: Array, y: Array) -> Bound:
    """The power of omega_xy with which the approximation's step departs from that of the tokens."""
    axes, errors = np.broadcast_to(np.eye(10), (len(x), 10, 10)), {}
    for size in SIZES:
        w = two_layers(-size, -0.02, 10).predict(x, y, axes)
        errors[size] = float(np.abs(w - printed_step(moments, -size, -0.02)[:, None] * moments.b).max())
    return fitted_power("the error of the paper's approximation grows as omega_xy^1", errors, 1, 1e-3)


def _by_noise(seed: int) -> list[Bound]:
    """Dropped over kept at several noise levels, and the power of sigma with which it falls to its limit d/(n-d)."""
    problems = [Problem(10, 20, f"fixed({sigma:g})") for sigma in NOISE]
    measured = [measured_dropped_over_kept(problem, sequences=20_000, seed=seed) for problem in problems]
    exact = [dropped_over_kept(10, 20, sigma) for sigma in NOISE]
    deviations = [abs(ratio - truth) / error for (ratio, error), truth in zip(measured, exact, strict=True)]
    ratios = {f"sigma {sigma:g}": ratio for sigma, (ratio, _) in zip(NOISE, measured, strict=True)}
    excess = {sigma: ratio - 10 / (20 - 10) for sigma, (ratio, _) in zip(NOISE[:4], measured[:4], strict=True)}
    least: dict[str, Any] = {"least ratio": min(ratio for ratio, _ in measured)}
    what = "dropped part / kept part agrees with the formula"
    far, _ = measured_dropped_over_kept(Problem(10, 2000, "fixed(50)"), sequences=20_000, seed=seed)
    return [
        Bound(f"{what}: difference in standard errors", max(deviations), 5.0, ratios),
        fitted_power("its excess over d/(n - d) falls as sigma^-2", excess, -2, 0.05, **least),
        Bound("dropped part / kept part is small at n = 2000, sigma = 50", far, 0.02),
    ]
