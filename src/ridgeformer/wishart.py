"""The eigenvalues of S = sum x x': their exact expected density, as a quadrature rule. No sampling.

The eigenvalues of a Wishart matrix repel each other by |Delta|, so averages over them are Pfaffians (de Bruijn). With
f_j any basis of the weight times polynomials, F_j(t) = int_0^t f_j, and A_jk = int (F_j f_k - f_j F_k), the density is

    rho(t) = sum_jk (A^-1)_jk f_j(t) (2 F_k(t) - F_k(inf))

with one more row and column in A, int f_j, where the number of eigenvalues is odd. In t = sqrt(eigenvalue) the
basis is t^a exp(-t^2/2) L_j(t^2), smooth for every n and d.

>>> values, weights = eigenvalues(10, 20)
>>> round(float(weights.sum()), 9), round(float(weights @ values), 9)  # d of them, and E[tr S] = n d
(10.0, 200.0)
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.polynomial import legendre

from ridgeformer.validation import Array, integer

PANEL = 16  # Gauss-Legendre nodes per panel


@functools.lru_cache(maxsize=32)
def eigenvalues(dim: int, context: int, panels: int = 64) -> tuple[Array, Array]:
    """Make a quadrature rule for sums over the non-zero eigenvalues of S = sum x x', with x standard normal.

    Args:
        dim: The dimension d.
        context: The number of vectors n.
        panels: Panels of 16 nodes each.

    Returns:
        Nodes [K] and weights [K] with E[sum_i g(lambda_i)] = weights @ g(nodes). The weights sum to min(n, d).
    """
    dim, context = integer("dim", dim), integer("context", context)
    count, freedom = min(dim, context), max(dim, context)
    t, weights = _panels(count, freedom, panels)
    f = _basis(count, freedom - count, t)
    F, total = _cumulative(f, weights, panels)
    A = (F * weights) @ f.T
    A = A - A.T
    centred = 2 * F - total[:, None]
    if count % 2:
        A = np.block([[A, total[:, None]], [-total[None], np.zeros((1, 1))]])
        f = np.vstack([f, np.zeros_like(t)])
        centred = np.vstack([centred, -np.ones_like(t)])
    density = np.einsum("jk,jt,kt->t", np.linalg.inv(A), f, centred)
    density *= count / (weights @ density)
    rule = t**2, weights * density
    for result in rule:
        result.setflags(write=False)
    return rule


def _panels(count: int, freedom: int, panels: int) -> tuple[Array, Array]:
    """Nodes and weights over every t = sqrt(lambda) that matters: the edges are near sqrt(n) -+ sqrt(d)."""
    low = max(np.sqrt(freedom) - np.sqrt(count) - 9.0, 0.0)
    edges = np.linspace(low, np.sqrt(freedom) + np.sqrt(count) + 9.0, panels + 1)
    x, w = legendre.leggauss(PANEL)
    half = np.diff(edges)[:, None] / 2
    return ((edges[:-1, None] + half) + half * x).ravel(), (half * w).ravel()


def _basis(count: int, excess: int, t: Array) -> Array:
    """t^excess exp(-t^2/2) L_j^(alpha)(t^2), alpha = excess - 1/2, of norm one: orthonormal on t > 0, [count, K]."""
    from scipy.special import gammaln

    alpha, x = excess - 0.5, t**2
    rows = np.empty((count, len(t)))
    with np.errstate(divide="ignore"):
        power = excess * np.log(t) if excess else np.zeros_like(t)
    rows[0] = np.exp(power - x / 2 + 0.5 * (np.log(2) - gammaln(alpha + 1)))
    if count > 1:
        rows[1] = (alpha + 1 - x) / np.sqrt(alpha + 1) * rows[0]
    for j in range(1, count - 1):
        up, down = np.sqrt((j + 1) * (j + 1 + alpha)), np.sqrt(j * (j + alpha))
        rows[j + 1] = ((2 * j + 1 + alpha - x) * rows[j] - down * rows[j - 1]) / up
    return rows


def _cumulative(f: Array, weights: Array, panels: int) -> tuple[Array, Array]:
    """Integrals of f from 0 to every node, and to infinity: exact for polynomials on each panel."""
    x, w = legendre.leggauss(PANEL)
    # Row i integrates the interpolating polynomial from -1 to x_i.
    vandermonde = legendre.legvander(x, PANEL - 1)
    antiderivative = np.stack([legendre.legval(x, legendre.legint(c, lbnd=-1)) for c in np.eye(PANEL)], -1)
    inner = antiderivative @ np.linalg.inv(vandermonde)
    cells = f.reshape(len(f), panels, PANEL)
    half = weights.reshape(panels, PANEL)[:, 0] / w[0]
    whole = (cells * weights.reshape(panels, PANEL)).sum(-1)
    before = np.cumsum(whole, -1) - whole
    F = before[..., None] + half[:, None] * np.einsum("ij,cpj->cpi", inner, cells)
    return F.reshape(f.shape), whole.sum(-1)
