"""What every layer of a model does on every sequence, as numbers.

With C_l = T_{l-1} ... T_0 = [M u; -w' a], a context token is (M x + y u, a y - <w, x>) at layer l. Let w* be the
context's least-squares solution and rho its residual sum of squares. Then

    G_0 = [I w*]' S [I w*] + rho e_y e_y'      and so      G_l = (a part of the signal) + rho (u, a)(u, a)'.

The second fact splits every update into a gradient part and a momentum part, as the paper's lemma 'diagonal update'
does for Diag, and for any P and Q. The first allows an experiment: give a sequence the rho of another one, leave S and
w* as they are, and see what moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation import EVALUATION
from ridgeformer.models.trace import Trace
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise
from ridgeformer.predictors.bayes import BayesRR
from ridgeformer.problems import Draw, Problem

__all__ = ["Readings", "inner", "read"]

Array = NDArray[np.float64]
BLOCK = 2048  # sequences at a time


@dataclass(frozen=True, eq=False)
class Readings:
    """One number for every sequence, B of them, and every state (L+1), layer (L), or neither (1).

    w* is the least-squares solution of a context, rho its residual sum of squares. How far something moved is the
    squared distance by which it moves when a sequence gets the rho of another one, while S and w* stay as they are.
    Lengths, products and distances of weights are those in the covariance of the queries, so that halves of squared
    distances are losses.

    Attributes:
        sigma: The noise level, [1, B].
        residual: rho, [1, B].
        values: Eigenvalues of S, [1, B, m].
        least: Squares of w* along the eigenvectors of S, [1, B, m].
        ridge: |w_ridge|^2, [1, B].
        floor: |w_bayes - w_ridge|^2, [1, B].
        bayes: |w_bayes|^2, [1, B].
        bayes_moved: How far w_bayes moved, [1, B].
        own: |w_l|^2, [L+1, B].
        with_ridge: <w_l, w_ridge>, [L+1, B].
        to_ols: |w_l - w*|^2, [L+1, B].
        to_ridge: |w_l - w_ridge|^2, [L+1, B].
        to_bayes: |w_l - w_bayes|^2, [L+1, B].
        labels: Sum of the squared labels of layer l, [L+1, B].
        spectrum: Eigenvalues of M S M', ascending, [L+1, B, d].
        along: w_l times w* along the eigenvectors of S, [L+1, B, m].
        moved: How far w_l moved, [L+1, B].
        factor: T_yy, by which the layer multiplies w, [L, B]. The rest of its update of w is called delta.
        delta: |delta|^2, [L, B].
        by_gradient: <delta, g> with the gradient g = a_l a - S w_l, [L, B].
        gradient: |g|^2, [L, B].
        by_newton: <delta, a_l w* - w_l>, [L, B].
        newton: |a_l w* - w_l|^2, [L, B].
        momentum: The squared part of delta that is due to rho, [L, B].
        kept: <what the layer leaves of u, u>, [L, B].
        u: |u|^2, [L, B].
        through: How far w_L moved when rho is swapped in this layer's attention for the query alone, [L, B].
        act: |T - I|^2, [L, B].
        by_gram: <T - I, G> for the four blocks xx, xy, yx, yy, [L, B, 4].
        gram: |G|^2 for these blocks, [L, B, 4].
    """

    sigma: Array
    residual: Array
    values: Array
    least: Array
    ridge: Array
    floor: Array
    bayes: Array
    bayes_moved: Array
    own: Array
    with_ridge: Array
    to_ols: Array
    to_ridge: Array
    to_bayes: Array
    labels: Array
    spectrum: Array
    along: Array
    moved: Array
    factor: Array
    delta: Array
    by_gradient: Array
    gradient: Array
    by_newton: Array
    newton: Array
    momentum: Array
    kept: Array
    u: Array
    through: Array
    act: Array
    by_gram: Array
    gram: Array

    def select(self, chosen: NDArray[np.bool_]) -> Readings:
        """Return the readings of some of the sequences.

        Args:
            chosen: A mask, [B].

        Returns:
            The readings.
        """
        return Readings(**{f.name: getattr(self, f.name)[:, chosen] for f in fields(self)})

    def __len__(self) -> int:
        return int(self.sigma.shape[1])


def read(
    model: LinearTransformer,
    problem: Problem,
    noise: Noise,
    *,
    sequences: int,
    seed: int,
    progress: Callable[[int], None] = lambda count: None,
) -> Readings:
    """Read what a model does on fresh sequences of a problem.

    Args:
        model: The model.
        problem: The problem.
        noise: The noise distribution that the Bayes predictor assumes; it may differ from the problem's.
        sequences: How many sequences.
        seed: Seed of the sequences.
        progress: Is called with the number of sequences that were just done.

    Returns:
        The readings.
    """
    pieces = []
    for first in range(0, sequences, BLOCK):
        count = min(BLOCK, sequences - first)
        draw = problem.moments(count, seed=seed, stream=EVALUATION, first=first)
        with np.errstate(all="ignore"):
            pieces.append(_block(model, draw, BayesRR(noise)))
        progress(count)
    return Readings(**{f.name: np.concatenate([getattr(p, f.name) for p in pieces], axis=1) for f in fields(Readings)})


def _block(model: LinearTransformer, draw: Draw, bayes: BayesRR) -> Readings:
    moments, found, ridge = draw.moments, draw.moments.spectrum, np.asarray(draw.ridge, np.float64)
    ols, rho = found.ridge(0.0), found.residual
    swapped = np.array(moments.gram, np.float64)
    swapped[:, -1, -1] += np.roll(rho, 1) - rho
    other = Moments._trusted(swapped, moments.context)
    mean, moved = bayes.weights(moments), bayes.weights(other)
    here, there = model.trace(moments).compute("G", "T", "C"), model.trace(other).compute("T", "w")
    w, coordinates = here.w, np.einsum("bim,bi->bm", found.vectors, ols)

    def size(weights: Array) -> Array:
        return inner(weights, weights, draw.metric)

    return Readings(
        sigma=np.asarray(draw.sigma)[None],
        residual=rho[None],
        values=found.values[None],
        least=coordinates[None] ** 2,
        ridge=size(ridge)[None],
        floor=size(mean - ridge)[None],
        bayes=size(mean)[None],
        bayes_moved=size(moved - mean)[None],
        own=size(w),
        with_ridge=inner(w, ridge, draw.metric),
        to_ols=size(w - ols),
        to_ridge=size(w - ridge),
        to_bayes=size(w - mean),
        labels=here.G[:, :, -1, -1],
        spectrum=_eigenvalues(here.M @ moments.S.astype(np.float64) @ np.swapaxes(here.M, 2, 3)),
        along=np.einsum("bim,lbi->lbm", found.vectors, w) * coordinates,
        moved=size(there.w - w),
        through=size(_patched(here, there.T) - w[-1]),
        **_updates(model, here, draw, ols, rho),
    )


def _updates(model: LinearTransformer, here: Trace, draw: Draw, ols: Array, rho: Array) -> dict[str, Array]:
    """How each layer changes w and u, split as the paper's lemma does."""
    T, M, u, a, w = here.T, here.M[:-1], here.u[:-1], here.a[:-1], here.w
    factor = T[:, :, -1, -1]
    delta = w[1:] - factor[..., None] * w[:-1]
    gradient = a[..., None] * draw.moments.a - np.einsum("bij,lbj->lbi", draw.moments.S, w[:-1])
    newton = a[..., None] * ols - w[:-1]
    P, Q = model.P.astype(np.float64), model.Q.astype(np.float64)
    noise = np.concatenate([u, a[..., None]], -1)  # the noise of a token: r_i (u, a)
    left, right = np.einsum("lkij,lbj->lkbi", P, noise), np.einsum("lbj,lkji->lkbi", noise, Q)
    by_noise = np.einsum("b,lkbi,lkbj->lbij", rho, left, right, optimize=True)  # that part of T - I
    momentum = -np.einsum("lbij,lbi->lbj", M, by_noise[:, :, -1, :-1])
    kept = np.einsum("lbij,lbj->lbi", T[:, :, :-1, :-1], u) + a[..., None] * by_noise[:, :, :-1, -1]
    act, G = T - np.eye(model.dim + 1), here.G[:-1]
    return {
        "factor": factor,
        "delta": _squared(delta),
        "by_gradient": (delta * gradient).sum(-1),
        "gradient": _squared(gradient),
        "by_newton": (delta * newton).sum(-1),
        "newton": _squared(newton),
        "momentum": _squared(momentum),
        "kept": (kept * u).sum(-1),
        "u": _squared(u),
        "act": np.square(act).sum((-1, -2)),
        "by_gram": _blocks(act * G),
        "gram": _blocks(G * G),
    }


def _blocks(values: Array) -> Array:
    """Sums over the blocks xx, xy, yx, yy of [..., D, D]."""
    x, y = values[..., :-1, :], values[..., -1, :]
    parts = [x[..., :-1].sum((-1, -2)), x[..., -1].sum(-1), y[..., :-1].sum(-1), y[..., -1]]
    return np.stack(parts, -1)


def _patched(here: Trace, other: Array) -> Array:
    """The last w when the query meets another T in one layer, [L, B, d]: for each layer in turn."""
    L, B, D = other.shape[:3]
    row, found = np.broadcast_to(np.eye(D)[-1:], (B, 1, D)), [np.empty(0)] * L
    for layer in reversed(range(L)):
        found[layer] = -(row @ other[layer] @ here.C[layer])[:, 0, :-1]
        row = row @ here.T[layer]
    return np.stack(found)


def _eigenvalues(matrices: Array) -> Array:
    """Ascending; NaN where a matrix has overflowed."""
    good = np.asarray(np.isfinite(matrices).all((-1, -2)))
    values = np.linalg.eigvalsh(np.where(good[..., None, None], matrices, 0.0))
    return np.where(good[..., None], np.maximum(values, 0.0), np.nan)


def inner(first: Array, second: Array, metric: NDArray[Any] | None) -> Array:
    """Compute products of weights in the covariance of the queries.

    Args:
        first: Weights, [..., B, d].
        second: Weights, [..., B, d].
        metric: The covariance, [d, d] or [B, d, d]; None for the identity.

    Returns:
        The products, [..., B].
    """
    if metric is None:
        return np.asarray((first * second).sum(-1))
    weigh = np.asarray(metric, np.float64)
    weighed = second @ weigh if weigh.ndim == 2 else np.einsum("bij,...bj->...bi", weigh, second)
    return np.asarray((first * weighed).sum(-1))


def _squared(values: Array) -> Array:
    return np.asarray(np.square(values).sum(-1))
