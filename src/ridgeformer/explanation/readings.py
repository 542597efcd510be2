"""Numbers that describe every layer of a model on every sequence.

With C_l = T_{l-1} ... T_0 = [M u; -w' a], a context token is (M x + y u, a y - <w, x>) at layer l. Let w* be the
context's least-squares solution and rho its residual sum of squares. Then

    G_0 = [I w*]' S [I w*] + rho e_y e_y'      and so      G_l = (a part of the signal) + rho (u, a)(u, a)'.

The second fact splits every update into a gradient part and a momentum part, as the paper's lemma 'diagonal update'
does for Diag, and for any P and Q. The first allows an experiment: give a sequence the rho of another one, leave S and
w* as they are, and see what moves.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation.sequence_losses import blocks, draw_sequences, needs_sums
from ridgeformer.models.trace import Trace
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.predictors.base import Predictor
from ridgeformer.problems import BaseProblem, Draw
from ridgeformer.values import Array

BLOCK = 2048  # sequences at a time


class Readings(SimpleNamespace):
    """Arrays by name: one number for every sequence, B of them, and every state (L+1), layer (L), or neither (1).

    w* is the least-squares solution of a context, rho its residual sum of squares. How far something moved is the
    squared distance by which it moves when a sequence gets the rho of another one of the same length, while S and w*
    stay as they are. Lengths, products and distances of weights are those in the covariance of the queries, so that
    halves of squared distances are losses; an intercept counts as one more weight. The goal is what losses are measured
    from: the weights of the oracle, or the task where there is no oracle. With attention by mean, S is
    the mean over the tokens instead of their sum.

    Attributes:
        sigma: The noise level, [1, B]; NaN where there is none.
        count: The number of examples n, [1, B].
        residual: rho, [1, B].
        values: Eigenvalues of S, [1, B, m]; NaN beyond min(n, d).
        least: Squares of w* along the eigenvectors of S, [1, B, m].
        goal_along: The goal times w* along the eigenvectors of S, [1, B, m].
        goal: |w_goal|^2, [1, B].
        offset: Twice the loss that no weights can avoid, [1, B].
        floor: |w_bayes - w_goal|^2, [1, B]; NaN, like all of w_bayes, where the best predictor is not known.
        bayes: |w_bayes|^2, [1, B].
        bayes_moved: How far w_bayes moved, [1, B].
        own: |w_l|^2, [L+1, B].
        with_goal: <w_l, w_goal>, [L+1, B].
        to_ols: |w_l - w*|^2, [L+1, B].
        to_goal: |w_l - w_goal|^2, [L+1, B].
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

    if TYPE_CHECKING:

        def __getattribute__(self, name: str) -> Array: ...

    def select(self, chosen: NDArray[np.bool_]) -> Readings:
        """Return the readings of some of the sequences.

        Args:
            chosen: A mask, [B].

        Returns:
            The readings.
        """
        return Readings(**{name: values[:, chosen] for name, values in vars(self).items()})

    def __len__(self) -> int:
        return int(self.sigma.shape[1])


def read(
    problem: BaseProblem,
    model: LinearTransformer,
    best: Predictor | None,
    *,
    sequences: int,
    seed: int,
    progress: Callable[[int], None] = lambda count: None,
) -> Readings:
    """Read what a model does on fresh sequences of a problem.

    Args:
        problem: The problem.
        model: The model.
        best: The best predictor, which may be that of a problem with other noise; None where it is not known.
        sequences: How many sequences.
        seed: Seed of the sequences.
        progress: Is called with the number of sequences that were just done.

    Returns:
        The readings.
    """
    pieces = []
    for first, count in blocks(sequences, model.dim, BLOCK):
        draw = draw_sequences(problem, seed, first, count, sums=needs_sums(model))
        parts = [draw] if isinstance(draw.moments.context, int) else draw.by_length()
        with np.errstate(all="ignore"):
            pieces += [_block(model, part, best) for part in parts]
        progress(count)
    return Readings(**{name: _joined([vars(piece)[name] for piece in pieces]) for name in vars(pieces[0])})


def _joined(pieces: list[Array]) -> Array:
    """Pieces [., b, ...] as one; short contexts have fewer eigenvalues, and NaN for the others."""
    if pieces[0].ndim == 3 and len({piece.shape[2] for piece in pieces}) > 1:
        most = max(piece.shape[2] for piece in pieces)
        pieces = [np.pad(p, ((0, 0), (0, 0), (0, most - p.shape[2])), constant_values=np.nan) for p in pieces]
    return np.concatenate(pieces, axis=1)


def _block(model: LinearTransformer, draw: Draw, best: Predictor | None) -> Readings:
    """The readings of sequences that all have the same number of examples."""
    draw = draw.with_intercept() if model.layout.counted else draw
    moments, spectrum, goal = draw.moments, draw.moments.spectrum, np.asarray(draw.ridge, np.float64)
    share = 1 / spectrum.context if model.layout.attention == "mean" else 1.0
    ols, rho = spectrum.ridge(0.0), spectrum.residual
    swapped = _swapped(moments, ols, rho)
    here, there = (model.trace(m).compute("G", "T", "C") for m in (moments, swapped))
    w, w_there = _readout(model, here.C[:, :, -1]), _readout(model, there.C[:, :, -1])
    coordinates = np.einsum("bim,bi->bm", spectrum.vectors, ols)
    unknown = np.full_like(ols, np.nan)
    mean, moved = (unknown, unknown) if best is None else (_float(best.weights(m)) for m in (moments, swapped))

    def size(first: Array, second: Array | float = 0.0) -> Array:
        """The squared distance of weights, which need not have an intercept."""
        error = _widened(first, goal) - (second if isinstance(second, float) else _widened(second, goal))
        return inner(error, error, draw.metric)

    M = here.C[:, :, : model.dim, : model.dim]
    nothing = np.zeros(len(moments))
    return Readings(
        sigma=(nothing * np.nan if draw.sigma is None else np.asarray(draw.sigma))[None],
        count=np.array(moments.counts, np.float64)[None],
        residual=rho[None],
        values=share * spectrum.values[None],
        least=coordinates[None] ** 2,
        goal_along=(np.einsum("bim,bi->bm", spectrum.vectors, goal[:, : model.dim]) * coordinates)[None],
        goal=size(goal)[None],
        offset=(nothing if draw.offset is None else 2 * np.asarray(draw.offset))[None],
        floor=size(mean, goal)[None],
        bayes=size(mean)[None],
        bayes_moved=size(moved, mean)[None],
        own=size(w),
        with_goal=inner(w, goal, draw.metric),
        to_ols=size(w, ols),
        to_goal=size(w, goal),
        to_bayes=size(w, mean),
        labels=here.G[:, :, -1, -1] / share,
        spectrum=_eigenvalues(share * M @ _float(moments.S) @ np.swapaxes(M, 2, 3)),
        along=np.einsum("bim,lbi->lbm", spectrum.vectors, w[..., : model.dim]) * coordinates,
        moved=size(w_there, w),
        through=size(_readout(model, _patched(here, there.T)), w[-1]),
        **_updates(model, here, w[..., : model.dim], ols, share * rho),
    )


def _swapped(moments: Moments, ols: Array, rho: Array) -> Moments:
    """The contexts with residuals that are scaled to the sum of squares of those of another one."""
    gram, swapped = np.array(moments.gram, np.float64), np.roll(rho, 1)
    gram[:, -1, -1] += swapped - rho
    if moments.sums is None:
        return Moments._trusted(gram, moments.context)
    sums = np.array(moments.sums, np.float64)
    explained = (sums[:, :-1] * ols).sum(1)
    scale = np.sqrt(np.divide(swapped, rho, out=np.ones_like(rho), where=rho > 0))
    sums[:, -1] = explained + scale * (sums[:, -1] - explained)
    return Moments._trusted(gram, moments.context, sums=sums)


def _readout(model: LinearTransformer, rows: Array) -> Array:
    """The part of the last rows of C that a query reads, [..., D]: the weights, and the intercept if there is one."""
    return -rows[..., : model.dim + model.layout.counted]


def _widened(weights: Array, goal: Array) -> Array:
    """Weights with an intercept of 0 where the goal has an intercept and they have none."""
    missing = goal.shape[-1] - weights.shape[-1]
    return np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, missing)]) if missing else weights


def _updates(model: LinearTransformer, here: Trace, w: Array, ols: Array, rho: Array) -> dict[str, Array]:
    """How each layer changes w and u, split as the paper's lemma does."""
    T, C, d = here.T, here.C[:-1], model.dim
    rows, u, a = C[:, :, :-1, :d], C[:, :, :-1, -1], C[:, :, -1, -1]
    factor = T[:, :, -1, -1]
    delta = w[1:] - factor[..., None] * w[:-1]
    gram = here.G[0]  # of the model's own tokens, as a sum or a mean
    gradient = a[..., None] * gram[:, :d, -1] - np.einsum("bij,lbj->lbi", gram[:, :d, :d], w[:-1])
    newton = a[..., None] * ols - w[:-1]
    P, Q = model.P.astype(np.float64), model.Q.astype(np.float64)
    noise = np.concatenate([u, a[..., None]], -1)  # the noise of a token: r_i (u, a)
    left, right = np.einsum("lkij,lbj->lkbi", P, noise), np.einsum("lbj,lkji->lkbi", noise, Q)
    by_noise = np.einsum("b,lkbi,lkbj->lbij", rho, left, right, optimize=True)  # that part of T - I
    momentum = -np.einsum("lbij,lbi->lbj", rows, by_noise[:, :, -1, :-1])
    carried = np.einsum("lbij,lbj->lbi", T[:, :, :-1, :-1], u) + a[..., None] * by_noise[:, :, :-1, -1]
    xy = np.append(np.arange(d), model.width)
    act, G = (values[..., xy[:, None], xy] for values in (T - np.eye(model.width + 1), here.G[:-1]))
    return {
        "factor": factor,
        "delta": _squared(delta),
        "by_gradient": (delta * gradient).sum(-1),
        "gradient": _squared(gradient),
        "by_newton": (delta * newton).sum(-1),
        "newton": _squared(newton),
        "momentum": _squared(momentum),
        "kept": (carried * u).sum(-1),
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


def _patched(here: Trace, donor: Array) -> Array:
    """The last row of C when the query meets another T in one layer, [L, B, D]: for each layer in turn."""
    L, B, D = donor.shape[:3]
    row, rows = np.broadcast_to(np.eye(D)[-1:], (B, 1, D)), [np.empty(0)] * L
    for layer in reversed(range(L)):
        rows[layer] = (row @ donor[layer] @ here.C[layer])[:, 0]
        row = row @ here.T[layer]
    return np.stack(rows)


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


def _float(values: NDArray[Any]) -> Array:
    return np.asarray(values, np.float64)
