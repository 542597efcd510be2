"""Diagonal layers are gradient descent with momentum: the paper's second lemma, every term of it by name.

With w* the least-squares solution, r its residuals, rho = sum r^2, and F = M + u w*', the tokens of layer l sum to

    Sigma_l = F S F' + rho u u'        alpha_l = F g + a rho u        lambda_l = (a w* - w)'g + a^2 rho

where g = S (a w* - w) is minus half the gradient of sum (a y - <w, x>)^2. So a layer with flows omega makes

    u <- (I - Lambda) u + Gamma g            Lambda = -omega_xy a^2 rho I - omega_xx Sigma_l,   Gamma = a omega_xy F
    w <- (1 + s) w - Pi g - Phi u            s = omega_yy lambda_l,   Pi = omega_yx M'F,   Phi = a rho omega_yx M'
    M <- (I + omega_xx Sigma_l) M - omega_xy alpha_l w'          a <- (1 + s) a + omega_yx <alpha_l, u>

and needs to know of the data only S, w* and rho. The paper's appendix prints F = M + a u w*'. With n < d the lemma
holds as it stands for the solution of least norm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ridgeformer.errors import refuse
from ridgeformer.models.families import Diag, GDpp
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.papers.vladymyrov2024.theory.linear_model import LinearModels, initial, read_off, stacked, times
from ridgeformer.papers.vladymyrov2024.theory.verification import Bound, random_cases, random_model, relative_error
from ridgeformer.problems import Problem
from ridgeformer.validation import Float

Factor = Callable[[Float, Float, Float, Float], Float]
ROUNDING = 1e-9  # relative, in float64; the least-squares solution costs some digits
CASES = [("diag", 1, 5, 20), ("diag", 2, 5, 20), ("diag", 2, 6, 4)]  # family, heads, d, n


class Terms(NamedTuple):
    """The momentum form of a model on B contexts: what each layer does to u and w, and what it finds.

    Attributes:
        Lambda: What the layer takes from u, [L, B, d, d].
        Gamma: What it adds to u along the gradient, [L, B, d, d].
        s: How it rescales w, [L, B].
        Pi: The preconditioner: the layer subtracts Pi g from w, [L, B, d, d].
        Phi: The momentum: the layer subtracts Phi u from w, [L, B, d, d].
        g: The gradient, [L, B, d].
        states: The linear models before and after, [L+1, ...].
    """

    Lambda: Float
    Gamma: Float
    s: Float
    Pi: Float
    Phi: Float
    g: Float
    states: LinearModels

    def parts(self) -> dict[str, Float]:
        """Return what each term adds to w, [L, B, d] each: they sum to the change of w, layer by layer."""
        return {
            "rescaling": self.s[..., None] * self.states.w[:-1],
            "gradient": -times(self.Pi, self.g),
            "momentum": -times(self.Phi, self.states.u[:-1]),
        }


def factor(M: Float, u: Float, a: Float, w_star: Float) -> Float:
    """Compute F = M + u w*': what a layer makes of the part of y that x explains.

    Args:
        M: Of the linear model, [B, d, d].
        u: Of the linear model, [B, d].
        a: Of the linear model, [B].
        w_star: The least-squares solution, [B, d].

    Returns:
        F, [B, d, d].
    """
    return np.asarray(M + u[:, :, None] * w_star[:, None, :])


def printed_factor(M: Float, u: Float, a: Float, w_star: Float) -> Float:
    """Compute M + a u w*', as the appendix prints it. See `factor`."""
    return np.asarray(M + (a[:, None] * u)[:, :, None] * w_star[:, None, :])


def terms(model: LinearTransformer, moments: Moments, factor: Factor = factor) -> Terms:
    """Compute the momentum form of a Diag or GD++ model, from S, w* and rho alone.

    Args:
        model: A Diag or GD++ model.
        moments: The contexts.
        factor: Computes F; `printed_factor` for the paper's formula.

    Returns:
        The terms of every layer.

    Raises:
        InputError: The model is a Full one, or the dimensions differ.
    """
    if not isinstance(model.family, Diag | GDpp):
        refuse("the momentum form is for Diag and GD++ models", model, "Use linear_model for Full ones.")
    model._check(moments)
    S, spectrum = np.asarray(moments.S, np.float64), moments.spectrum
    w_star, rho = spectrum.ridge(0.0), spectrum.residual
    states, layers = [initial(len(moments), model.dim)], []
    for omega in model.family.omega.astype(np.float64):
        layer, state = _layer(omega, states[-1], S, w_star, rho, factor)
        layers.append(layer)
        states.append(state)
    Lambda, Gamma, s, Pi, Phi, g = (np.stack(part) for part in zip(*layers, strict=True))
    return Terms(Lambda, Gamma, s, Pi, Phi, g, stacked(states))


def _layer(
    omega: Float, state: LinearModels, S: Float, w_star: Float, rho: Float, factor: Factor
) -> tuple[tuple[Float, ...], LinearModels]:
    """(Lambda, Gamma, s, Pi, Phi, g) of one layer, and the state after it."""
    (xx, xy), (yx, yy) = omega
    M, u, a, w = state
    gap, turned = a[:, None] * w_star - w, np.swapaxes(M, 1, 2)
    F, g = factor(M, u, a, w_star), times(S, gap)
    alpha = times(F, g) + (a * rho)[:, None] * u
    shifted = M + u[:, :, None] * w_star[:, None, :]
    sigma = shifted @ S @ np.swapaxes(shifted, 1, 2) + rho[:, None, None] * u[:, :, None] * u[:, None, :]
    Lambda = -xy * (a**2 * rho)[:, None, None] * np.eye(len(M[0])) - xx * sigma
    Gamma = xy * a[:, None, None] * F
    s = yy * ((gap * g).sum(1) + a**2 * rho)
    Pi, Phi = yx * turned @ F, yx * (a * rho)[:, None, None] * turned
    after = LinearModels(
        M + xx * sigma @ M - xy * alpha[:, :, None] * w[:, None, :],
        u - times(Lambda, u) + times(Gamma, g),
        (1 + s) * a + yx * (alpha * u).sum(1),
        (1 + s)[:, None] * w - times(Pi, g) - times(Phi, u),
    )
    return (Lambda, Gamma, s, Pi, Phi, g), after


def check(seed: int = 0) -> list[Bound]:
    """Compare u and w of every layer in momentum form with those that the tokens themselves show.

    Args:
        seed: Seed of the models and sequences.

    Returns:
        The checks.
    """
    from ridgeformer.loading import load

    cases = random_cases("u and w of 7 layers", CASES, seed, "{}, d = {}, n = {}")
    cases["u and w of 7 trained layers, diag"] = load("zoo:diag/7/uniform(0,5)"), Problem(noise="uniform(0,5)")
    bounds = []
    for what, (model, problem) in cases.items():
        error, printed = (_error(model, problem, seed, rule) for rule in (factor, printed_factor))
        bounds.append(Bound(what, error, ROUNDING, as_printed=printed))
    bounds.append(Bound("g is minus half the gradient of sum (a y - <w, x>)^2", _slope(seed), ROUNDING))
    bounds.append(Bound("GD++ has no momentum: u = 0, Phi u = 0", _momentum_of_gdpp(seed), 0.0))
    return bounds


def _error(model: LinearTransformer, problem: Problem, seed: int, factor: Factor) -> float:
    s = problem.sequences(8, seed=seed)
    by_tokens = read_off(model, s.x, s.y)
    with np.errstate(over="ignore", invalid="ignore"):  # a wrong factor may explode
        states = terms(model, Moments.from_tokens(s.x, s.y), factor).states
    return max(relative_error(states.u, by_tokens.u, apart=2), relative_error(states.w, by_tokens.w, apart=2))


def _slope(seed: int) -> float:
    """Compare g of every layer with the sum over context tokens of y_l x: no S, no w*."""
    model = random_model("diag", dim=5, context=20, layers=7, heads=2, seed=seed)
    s = Problem(5, 20, "uniform(0,1)").sequences(8, seed=seed)
    labels = model.tokens(s.x, s.y, s.queries)[:-1, :, :20, 5]
    gradient = terms(model, Moments.from_tokens(s.x, s.y)).g
    return relative_error(gradient, np.einsum("lbn,bnd->lbd", labels, s.x), apart=2)


def _momentum_of_gdpp(seed: int) -> float:
    model = random_model("gdpp", dim=5, context=20, layers=7, seed=seed)
    form = terms(model, Problem(5, 20, "uniform(0,1)").moments(8, seed=seed).moments)
    return float(max(np.abs(form.states.u).max(), np.abs(form.parts()["momentum"]).max()))
