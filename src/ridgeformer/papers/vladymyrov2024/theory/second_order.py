"""GD++ is second order: O(log kappa + log log 1/epsilon) layers solve least squares to accuracy epsilon.

The theorem, its two lemmas and its construction as checks. What the paper proves with room to spare is exact here:

- with eigenvalues of S in [1, 1 + epsilon], w = a misses w* by epsilon |w*| at most, and by that along the largest;
- a layer with gamma = 1 / (3 largest) takes kappa - 1 to (kappa - 1)^2 (4 kappa - 1) / (3 kappa - 1)^2, which is at
  most 3/4 (kappa - 1)^2 for every kappa, where the lemma has 2 (kappa - 1)^2 up to kappa = 1.1;
- M and S commute, so the error of the whole is kappa' - 1, not (kappa' - 1) sqrt(kappa kappa'): it is enough to reach
  kappa' = 1 + epsilon, where the proof goes on to 1 + epsilon / (2 kappa).

The paper writes [nu, mu] for the range of the eigenvalues and kappa = nu / mu, and its proof takes nu for the largest.
With nu the least, as the interval says, gamma = 1 / (3 nu) solves nothing (`PRINTED`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext

import numpy as np

from ridgeformer.models.families import GDpp
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.papers.vladymyrov2024.theory import gdpp_solver as solver
from ridgeformer.papers.vladymyrov2024.theory.layers_needed import counts, growth, layers_needed, log_spaced
from ridgeformer.papers.vladymyrov2024.theory.verification import Bound
from ridgeformer.validation import Array, array

PLAN, STEP = solver.PAPER, 1.0  # how layers are chosen, and the gradient step of the last lemma
PRINTED = solver.Plan(lambda interval: 1 / (3 * interval.least), every=False)
RATE = (4 / 9) / (1 - 1 / 3.3) ** 2  # the lemma's constant c: what a layer makes of kappa = 1.1
HADAMARD = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], object)  # orthogonal, times 2
ROTATION = np.array([[2, -1, 2], [2, 2, -1], [-1, 2, 2]], object)  # orthogonal, times 3


def check(seed: int = 0) -> list[Bound]:
    """Check every claim about GD++ as a second-order solver.

    Args:
        seed: Seed of the sequences.

    Returns:
        The checks.
    """
    lemmas = [_final_step(seed), _large_kappa(), _small_kappa(), _exactly()]
    return [*lemmas, _theorem(), _sequences(seed), _many_digits(), *_growth()]


def sequences_with(
    eigenvalues: Sequence[float] | Array, count: int, context: int, *, noise: float = 1.0, seed: int = 0
) -> tuple[Array, Array, Array]:
    """Draw sequences whose S has given eigenvalues, and whose residuals leave w* as it is.

    Args:
        eigenvalues: Eigenvalues of S, [d].
        count: How many sequences.
        context: The number n of context tokens.
        noise: The norm of the residuals.
        seed: Seed of the sequences.

    Returns:
        x [B, n, d], y [B, n] and w* [B, d].
    """
    values = array("eigenvalues", eigenvalues, ("d",)).astype(np.float64)
    rng, d = np.random.default_rng(seed), len(values)
    frame = np.linalg.qr(rng.standard_normal((count, context, d + 1)))[0]
    basis = np.linalg.qr(rng.standard_normal((count, d, d)))[0]
    x = frame[:, :, :d] * np.sqrt(values) @ np.swapaxes(basis, 1, 2)
    solution = rng.standard_normal((count, d))
    y = np.einsum("bnd,bd->bn", x, solution) + noise * frame[:, :, d]
    return np.asarray(x), np.asarray(y), solution


def _final_step(seed: int) -> Bound:
    """Along every direction of 32 sequences, and along the largest eigenvalue's, where the bound is reached."""
    model = LinearTransformer(GDpp(omega=[[0.0, -STEP]]), dim=5)
    worst, reached = 0.0, math.inf
    for epsilon in (1.0, 0.1, 1e-3, 1e-6):
        x, y, solution = sequences_with(np.linspace(1, 1 + epsilon, 5), 32, 12, seed=seed)
        top = np.linalg.eigh(np.swapaxes(x, 1, 2) @ x)[1][:, :, -1]
        along = np.einsum("bnd,bd->bn", x, top)
        anywhere, along_top = _distance(model, x, y, solution) / epsilon, _distance(model, x, along, top) / epsilon
        worst = max(worst, float(anywhere.max()), float(along_top.max()))
        reached = min(reached, float(along_top.min()))
    # 1e-16 of rounding is 1e-10 of the smallest epsilon.
    return Bound("one step: |w - w*| / (epsilon |w*|)", worst, 1 + 1e-8, {"least along the largest": reached})


def _large_kappa() -> Bound:
    """Return max / min of s (1 - gamma s)^2 over 2001 points, over c kappa."""
    kappas = (1.1, 1.5, 2.0, 3.5, 10.0, 1e3, 1e6, 1e12)
    factors = [_ratio(Decimal(kappa), PLAN) / kappa for kappa in kappas]
    printed = _ratio(Decimal(2), PRINTED) / 2  # from 3 on an eigenvalue vanishes
    facts = {"c": RATE, "kappa' / kappa": dict(zip(map(str, kappas), factors, strict=True))}
    return Bound("kappa >= 1.1: kappa' / (c kappa)", max(factors) / RATE, 1 + 1e-12, facts, printed / RATE)


def _small_kappa() -> Bound:
    """(kappa' - 1) / (2 epsilon^2) at kappa = 1 + epsilon; the proof's last line forgets the 1."""
    with localcontext(prec=120):
        smalls = [Decimal(10) ** -power for power in (1, 2, 4, 8, 16, 32)]
        after = [_exact_ratio(1 + small, PLAN, 101) for small in smalls]
        errors = [float((ratio - 1) / (2 * small**2)) for ratio, small in zip(after, smalls, strict=True)]
        printed = max(float(ratio / (2 * small**2)) for ratio, small in zip(after, smalls, strict=True))
    facts = {"(kappa' - 1) / epsilon^2, from 0.1 to 1e-32": [2 * error for error in errors]}
    return Bound("kappa <= 1.1: (kappa' - 1) / (2 epsilon^2)", max(errors), 1.0, facts, printed)


def _exactly() -> Bound:
    """The closed form of kappa', which holds at every kappa."""
    worst = Decimal(0)
    with localcontext(prec=120):
        for kappa in [1 + Decimal(10) ** power for power in range(-32, 13)]:
            claimed = (kappa - 1) ** 2 * (4 * kappa - 1) / (3 * kappa - 1) ** 2
            worst = max(worst, abs((_exact_ratio(kappa, PLAN, 11) - 1) / claimed - 1))
    return Bound("kappa' - 1 = (kappa-1)^2 (4 kappa-1) / (3 kappa-1)^2: relative error", float(worst), 1e-40)


def _theorem() -> Bound:
    """Measured error over epsilon on 50 log-spaced eigenvalues, with as many layers as the plan asks for."""
    grid = [(kappa, epsilon) for kappa in (2.0, 1e2, 1e4, 1e6, 1e9, 1e12) for epsilon in (1e-1, 1e-3, 1e-10, 1e-30)]
    errors = [_measured(kappa, epsilon, PLAN) for kappa, epsilon in grid]
    printed = max(_measured(kappa, epsilon, PRINTED) for kappa, epsilon in grid)
    most = {"kappa": 1e12, "epsilon": 1e-30, "layers": layers_needed(1e12, 1e-30, PLAN)}
    facts = {**most, "with the proof's slack": layers_needed(1e12, 1e-30 / 2e12, PLAN)}
    return Bound("kappa 2 to 1e12, epsilon to 1e-30: error / epsilon", max(errors), 1.0, facts, printed)


def _sequences(seed: int) -> Bound:
    """The model itself, token by token in float64, on noisy sequences."""
    kappa, epsilon = 1e4, 1e-8
    with localcontext(solver.digits(kappa, epsilon)):
        model = solver.as_model(solver.schedule(Decimal(kappa), Decimal(epsilon), PLAN, largest=Decimal(20)), dim=8)
    x, y, solution = sequences_with(20 * log_spaced(kappa, 8), 16, 20, seed=seed)
    error = float(_distance(model, x, y, solution).max())
    facts = {"kappa": kappa, "layers": model.layers}
    return Bound("tokens in float64: |w - w*| / |w*|", error, epsilon, facts)


def _many_digits() -> Bound:
    """Token by token in decimals."""
    kappa, epsilon = 10**12, Decimal("1e-30")
    with localcontext(prec=200):
        layers = solver.schedule(Decimal(kappa), epsilon, PLAN)
        error = float(token_error(layers, [Decimal(1), Decimal("1e-3"), Decimal("1e-6")]))
    facts = {"kappa": float(kappa), "layers": len(layers)}
    return Bound("tokens in 200 digits: |y - <x, w*>| / (|x| |w*|)", error, float(epsilon), facts)


def _growth() -> list[Bound]:
    """Slopes of the layers needed, for the worst spectrum."""
    fit = growth(counts(lambda kappa, epsilon: layers_needed(kappa, epsilon, PLAN)))
    slopes = {"log kappa": (fit.kappa, 1 / math.log(9 / 4)), "log log 1/epsilon": (fit.epsilon, 1 / math.log(2))}
    checks = []
    for (name, (slope, limit)), error, room in zip(slopes.items(), fit.errors[:2], (0.02, 0.1), strict=True):
        facts = {"slope": slope, "standard error": error, "limit": limit}
        checks.append(Bound(f"layers per {name}: difference from the limit", abs(slope - limit), room, facts))
    checks.append(Bound("layers = a log kappa + b log log 1/epsilon + c: largest difference", fit.farthest, 1.0))
    return checks


def token_error(layers: Sequence[solver.Layer], roots: Sequence[Decimal]) -> Decimal:
    """Compute the largest |prediction - <x, w*>| / (|x| |w*|) of three queries, by the paper's equation in decimals.

    There are four tokens with residuals, in three dimensions; no query lies along an eigenvector.

    Args:
        layers: The layers.
        roots: Roots of the eigenvalues of S.

    Returns:
        The error.
    """
    solution = np.array([Decimal(2), Decimal(-1), Decimal("0.5")])
    x = HADAMARD[:, :3] * np.array(roots) @ ROTATION.T / Decimal(6)
    y = x @ solution + HADAMARD[:, 3]
    tokens = np.vstack([np.column_stack([x, y]), np.eye(3, 4, dtype=int).astype(object)])
    for xx, yx in layers:
        context = tokens[:4]
        scores = tokens[:, :3] @ context[:, :3].T
        tokens = tokens + scores @ context * np.array([xx, xx, xx, yx])
    error: Decimal = max(abs(-tokens[4:, 3] - solution)) / (solution @ solution).sqrt()
    return error


def _exact_ratio(kappa: Decimal, plan: solver.Plan, points: int) -> Decimal:
    """Return max / min of s (1 - gamma s)^2 over s from 1 to kappa, both included."""
    gamma = plan.gamma(solver.Interval(Decimal(1), kappa))
    values = [1 + (kappa - 1) * i / (points - 1) for i in range(points)]
    after = [s * (1 - gamma * s) ** 2 for s in values]
    return max(after) / min(after)


def _ratio(kappa: Decimal, plan: solver.Plan) -> float:
    with localcontext(prec=60):
        return float(_exact_ratio(kappa, plan, 2001))


def _measured(kappa: float, epsilon: float, plan: solver.Plan) -> float:
    """The largest |e| on log-spaced eigenvalues, both ends included, over epsilon; without layers, all is missing."""
    with localcontext(solver.digits(kappa, epsilon)):
        layers = solver.schedule(Decimal(kappa), Decimal(epsilon), plan)
        inner = [Decimal(value) for value in log_spaced(kappa).tolist()[1:-1]]
        values = [1 / Decimal(kappa), *inner, Decimal(1)]
        return float(max(map(abs, solver.missing(layers, values))) / Decimal(epsilon))


def _distance(model: LinearTransformer, x: Array, y: Array, solution: Array) -> Array:
    """|w - w*| / |w*|, with w read off the predictions for queries along the axes, token by token."""
    axes = np.broadcast_to(np.eye(model.dim), (len(x), model.dim, model.dim))
    difference = model.predict(x, y, axes) - solution
    return np.asarray(np.linalg.norm(difference, axis=1) / np.linalg.norm(solution, axis=1))
