"""Every layer keeps a linear model: whatever P and Q are, tokens of layer l are (M x + y u, a y - <w, x>).

The paper's first theorem, with the recursion of its lemma. Write the layer's map as T = I + [A b; c' d]; then

    M <- (I + A) M - b w'       u <- (I + A) u + a b
    a <- (1 + d) a + <c, u>     w <- (1 + d) w - M'c

from M = I, u = 0, a = 1, w = 0. The paper prints + b w' in the first, and tokens of layer l + 1 beside (M, u, a, w) of
layer l, which with these initial values is one layer late.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.papers.vladymyrov2024.theory.verification import Bound, random_cases, random_model, relative_error
from ridgeformer.problems import Problem
from ridgeformer.validation import Float, array

ROUNDING = 1e-10  # relative, in float64, over at most seven layers of order-one maps
CASES = [("full", 1), ("full", 3), ("diag", 1), ("diag", 2), ("gdpp", 1)]


class Blocks(NamedTuple):
    """The matrix sum_k P_k G Q_k of one layer, by blocks.

    Attributes:
        A: From x to x, [B, d, d].
        b: From y to x, [B, d].
        c: From x to y, [B, d].
        d: From y to y, [B].
    """

    A: Float
    b: Float
    c: Float
    d: Float


class LinearModels(NamedTuple):
    """The linear models of one layer, or of all of them, layer 0 (the input) included.

    Attributes:
        M: [L+1, B, d, d].
        u: [L+1, B, d].
        a: [L+1, B].
        w: [L+1, B, d].
    """

    M: Float
    u: Float
    a: Float
    w: Float


Update = Callable[[Blocks, LinearModels], LinearModels]


def attention(model: LinearTransformer, layer: int, context: Float) -> Blocks:
    """Compute the blocks of a layer by a sum over the context tokens that enter it.

    Args:
        model: The model.
        layer: The layer, from 0.
        context: Context tokens, [B, n, D].

    Returns:
        The blocks.
    """
    gram = np.einsum("bjc,bjd->bcd", context, context)
    attended = np.einsum("kce,bef,kfd->bcd", model.P[layer], gram, model.Q[layer], optimize=True)
    d = model.dim
    return Blocks(attended[:, :d, :d], attended[:, :d, d], attended[:, d, :d], attended[:, d, d])


def update(blocks: Blocks, state: LinearModels, sign: float = -1.0) -> LinearModels:
    """Compute the linear model after a layer from the one before: the lemma, corrected.

    Args:
        blocks: The blocks of the layer.
        state: The linear model before, without the layer axis.
        sign: The sign of b w' in M; the paper prints 1.

    Returns:
        The linear model after, without the layer axis.
    """
    A, b, c, d = blocks
    M, u, a, w = state
    return LinearModels(
        M + A @ M + sign * b[:, :, None] * w[:, None, :],
        u + times(A, u) + a[:, None] * b,
        (1 + d) * a + (c * u).sum(1),
        (1 + d)[:, None] * w - times(np.swapaxes(M, 1, 2), c),
    )


printed_update = functools.partial(update, sign=1.0)


def follow(model: LinearTransformer, x: ArrayLike, y: ArrayLike, update: Update = update) -> LinearModels:
    """Compute the linear model of every layer by the recursion, fed with the sums over the true tokens.

    Args:
        model: The model.
        x: Features of the contexts, [B, n, d].
        y: Labels, [B, n].
        update: The recursion.

    Returns:
        The linear models.
    """
    x_, y_ = array("x", x, ("B", "n", model.dim)), array("y", y, ("B", "n"))
    trace = model.tokens(x_, y_, x_[:, :1])[:, :, : x_.shape[1]]
    states = [initial(len(x_), model.dim)]
    for layer in range(model.layers):
        states.append(update(attention(model, layer, trace[layer]), states[-1]))
    return stacked(states)


def stacked(states: Sequence[LinearModels]) -> LinearModels:
    """Put the linear models of layers together.

    Args:
        states: The linear models, without the layer axis.

    Returns:
        The linear models, with the layer axis.
    """
    return LinearModels(*(np.stack(parts) for parts in zip(*states, strict=True)))


def read_off(model: LinearTransformer, x: ArrayLike, y: ArrayLike) -> LinearModels:
    """Read the linear model of every layer off the tokens alone, without a recursion.

    Queries along the axes show M and w; what the context tokens have beyond these, u and a.

    Args:
        model: The model.
        x: Features of the contexts, [B, n, d].
        y: Labels, [B, n].

    Returns:
        The linear models.
    """
    x_, y_ = array("x", x, ("B", "n", model.dim)), array("y", y, ("B", "n"))
    n, d = x_.shape[1:]
    trace = model.tokens(x_, y_, np.broadcast_to(np.eye(d), (len(x_), d, d)))
    M, w = np.swapaxes(trace[:, :, n:, :d], 2, 3), -trace[:, :, n:, d]
    beyond = trace[:, :, :n] - np.einsum("lbjd,bij->lbid", trace[:, :, n:], x_)
    per_y = np.einsum("lbid,bi->lbd", beyond, y_) / np.square(y_).sum(1)[:, None]
    return LinearModels(M, per_y[..., :d], per_y[..., d], w)


def reconstruct(states: LinearModels, x: Float, y: Float) -> Float:
    """Compute the tokens of every layer from its linear model.

    Args:
        states: The linear models.
        x: Features, [B, n, d].
        y: Labels, [B, n]; 0 for queries.

    Returns:
        Tokens, [L+1, B, n, D].
    """
    features = np.einsum("lbij,bnj->lbni", states.M, x) + y[None, :, :, None] * states.u[:, :, None, :]
    labels = states.a[:, :, None] * y - np.einsum("lbi,bni->lbn", states.w, x)
    return np.concatenate([features, labels[..., None]], axis=-1)


def check(seed: int = 0) -> list[Bound]:
    """Compare the tokens of every layer with the linear model, for every family.

    Args:
        seed: Seed of the models and sequences.

    Returns:
        The checks.
    """
    from ridgeformer.loading import load

    small, usual, bounds = Problem(4, 9, "uniform(0,1)"), Problem(noise="uniform(0,5)"), []
    cases = random_cases("tokens of 7 layers", [(family, heads, 4, 9) for family, heads in CASES], seed)
    cases["tokens of 7 trained layers, full"] = load("zoo:full/7/uniform(0,5)"), usual
    for what, (model, problem) in cases.items():
        error, printed = (_error(model, problem, seed, rule) for rule in (update, printed_update))
        wrong = None if model.family.name == "gdpp" else printed  # b = 0 in GD++
        bounds.append(Bound(what, error, ROUNDING, {"layers": 7, "heads": model.heads}, wrong))
    model = random_model("full", dim=4, context=9, layers=7, heads=2, seed=seed)
    what = "tokens of layer l belong to the linear model of layer l"
    error, printed = (_error(model, small, seed, update, late) for late in (0, 1))
    bounds.append(Bound(what, error, ROUNDING, as_printed=printed))
    what = "(M, u, a, w) agree with those read from the tokens, full, 2 heads"
    error, printed = (_error_of_states(model, small, seed, rule) for rule in (update, printed_update))
    bounds.append(Bound(what, error, ROUNDING, as_printed=printed))
    return bounds


def _error(model: LinearTransformer, problem: Problem, seed: int, update: Update, late: int = 0) -> float:
    """Over context tokens and queries of 8 noisy sequences, and every layer; layer l beside the model of l - late."""
    s = problem.sequences(8, seed=seed, queries=3)
    truth = model.tokens(s.x, s.y, s.queries)
    states = follow(model, s.x, s.y, update)
    x = np.concatenate([s.x, s.queries], axis=1)
    y = np.concatenate([s.y, np.zeros(s.answers.shape)], axis=1)
    built = reconstruct(states, x, y)
    return relative_error(built[: len(built) - late], truth[late:], apart=2)


def _error_of_states(model: LinearTransformer, problem: Problem, seed: int, update: Update) -> float:
    s = problem.sequences(8, seed=seed)
    pairs = zip(follow(model, s.x, s.y, update), read_off(model, s.x, s.y), strict=True)
    return max(relative_error(recursive, by_tokens, apart=2) for recursive, by_tokens in pairs)


def initial(count: int, dim: int) -> LinearModels:
    """Return the linear models of the input: M = I, u = 0, a = 1, w = 0.

    Args:
        count: The number B of contexts.
        dim: The dimension d.

    Returns:
        The linear models, without the layer axis.
    """
    zero = np.zeros((count, dim))
    return LinearModels(np.broadcast_to(np.eye(dim), (count, dim, dim)), zero, np.ones(count), zero)


def times(matrices: Float, vectors: Float) -> Float:
    """Multiply matrices and vectors.

    Args:
        matrices: Matrices, [..., d, d].
        vectors: Vectors, [..., d].

    Returns:
        The products, [..., d].
    """
    return np.asarray(np.einsum("...ij,...j->...i", matrices, vectors))
