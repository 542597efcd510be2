"""The engine in NumPy: the readable twin of the native core, and what runs where that could not be built.

One layer is e -> T e with T = I + sum_k P_k G Q_k, hence G <- T G T'. The last row of T_{L-1} ... T_0 is (-w_hat', .).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import threefry
from ridgeformer.engine.arguments import Float, Key, Parameters, Target
from ridgeformer.engine.interface import Engine, Evaluation

__all__ = ["NumpyEngine"]

Array = NDArray[np.float64]
CHUNK = 4096  # sequences at a time, so that memory stays bounded
LARGEST = 1e298  # gradients of sequences up to this size can be summed whatever the batch: 2^32 of them stay finite


class NumpyEngine(Engine):
    """See `Engine`. Computes in float64 and rounds to the dtype asked for; `threads` is ignored."""

    name = "numpy"

    def _uniforms(self, key: Key, count: int, first: int) -> Array:
        sequence = _indices(first, slice(0, count))
        return threefry.uniform(threefry.random_words(key, sequence, _zero(), threefry.NOISE)[0])

    def _sample(
        self,
        dim: int,
        context: int,
        sigma: Array,
        key: Key,
        first: int,
        dtype: np.dtype[np.floating],
        threads: int | None,
    ) -> tuple[Float, Float, Float]:
        count, D = len(sigma), dim + 1
        gram, task, ridge = np.empty((count, D, D), dtype), np.empty((count, dim), dtype), np.empty((count, dim), dtype)
        with np.errstate(all="ignore"):
            for part in _chunks(count):
                drawn = _bartlett(dim, context, sigma[part], key, _indices(first, part))
                gram[part], task[part], ridge[part] = drawn
        return gram, task, ridge

    def _evaluate(
        self,
        parameters: Parameters,
        gram: Float,
        target: Float,
        ceiling: float,
        weights: bool,
        gradient: bool,
        threads: int | None,
    ) -> Evaluation:
        count, dim = target.shape
        losses, found = np.empty(count, gram.dtype), np.empty((count, dim), gram.dtype)
        limited = np.empty(count, bool)
        doubled = tuple(p.astype(np.float64) for p in parameters)
        total = [np.zeros(p.shape) for p in parameters]
        with np.errstate(all="ignore"):
            for part in _chunks(count):
                G, goal = gram[part].astype(np.float64), target[part].astype(np.float64)
                given = np.asarray(np.isfinite(G).all((1, 2)))  # one layer does not read all of G
                w = np.where(given[:, None], -_forward(doubled, G).rows[0][:, :dim], np.nan)
                loss = 0.5 * np.square(w - goal).sum(1)
                found[part], losses[part] = w, np.where(np.isfinite(loss), loss, np.inf)
                finite = np.isfinite(losses[part])
                limited[part] = ~finite | (losses[part].astype(np.float64) > ceiling)
                if gradient:
                    chosen = np.flatnonzero(finite)
                    left_out = _add_gradient(doubled, G[chosen], goal[chosen], ceiling, total)
                    limited[part.start + chosen[left_out]] = True
            mean = tuple(sum_ / count for sum_ in total) if gradient else None
        return Evaluation(losses, found if weights else None, mean, int(limited.sum()))

    def _step(
        self,
        parameters: Parameters,
        dim: int,
        context: int,
        sigma: Array,
        key: Key,
        target: Target,
        ceiling: float,
        gradient: bool,
        unadjusted: bool,
        first: int,
        threads: int | None,
    ) -> Evaluation:
        gram, task, ridge = self._sample(dim, context, sigma, key, first, parameters[0].dtype, threads)
        goal = ridge if target == "ridge" else task
        result = self._evaluate(parameters, gram, goal, ceiling, False, gradient, threads)
        if not unadjusted:
            return result
        other = self._evaluate(parameters, gram, task, np.inf, False, False, threads)
        return replace(result, unadjusted=other.losses)


# ---- sampling ---------------------------------------------------------------------------------------------


def _bartlett(dim: int, context: int, sigma: Array, key: Key, sequence: Any) -> tuple[Array, Array, Array]:
    """Gram matrices, tasks and ridge solutions of the given sequences (see native/sampler.hpp for the mathematics)."""
    count, rank = len(sigma), min(context, dim)
    below = [(i, j) for i in range(dim) for j in range(min(i, rank))]
    draws = _normals(key, sequence, len(below) + dim + rank)
    A = np.zeros((count, dim, rank))
    for column, (i, j) in enumerate(below):
        A[:, i, j] = draws[:, column]
    w, z = draws[:, len(below) : len(below) + dim], draws[:, len(below) + dim :]
    for i in range(rank):
        A[:, i, i] = np.sqrt(_chi2(key, sequence, i, context - i))
    t = np.einsum("bij,bi->bj", A, w) + sigma[:, None] * z
    gram = np.empty((count, dim + 1, dim + 1))
    gram[:, :dim, :dim] = A @ A.transpose(0, 2, 1)
    gram[:, :dim, dim] = gram[:, dim, :dim] = np.einsum("bij,bj->bi", A, t)
    gram[:, dim, dim] = np.square(t).sum(1)
    if context > dim:
        gram[:, dim, dim] += sigma**2 * _chi2(key, sequence, dim, context - dim)
    return gram, w, _ridge(A, gram[:, :dim, :dim], w, z, t, sigma)


def _ridge(A: Array, S: Array, w: Array, z: Array, t: Array, sigma: Array) -> Array:
    """E[w | context, sigma]; exact at sigma = 0, and without S^-1 when n < d."""
    s = sigma[:, None]
    rank = A.shape[2]
    shift = np.square(sigma)[:, None, None] * np.eye(rank)
    if rank == A.shape[1]:
        right = s * (np.einsum("bij,bj->bi", A, z) - s * w)
        return w + np.linalg.solve(S + shift, right[..., None])[..., 0]
    inner = np.linalg.solve(A.transpose(0, 2, 1) @ A + shift, t[..., None])
    return (A @ inner)[..., 0]


def _normals(key: Key, sequence: Any, count: int) -> Array:
    """`count` standard normals for every sequence, [B, count]."""
    slots = np.arange((count + 3) // 4, dtype=np.uint32)
    r = threefry.random_words(key, sequence[:, None], slots[None, :], threefry.NORMALS)
    four = [*threefry.normals(r[0], r[1]), *threefry.normals(r[2], r[3])]
    return np.stack(four, axis=-1).reshape(len(sequence), -1)[:, :count]


def _chi2(key: Key, sequence: Any, slot: int, freedom: int) -> Array:
    """chi2(freedom) for every sequence by Marsaglia and Tsang's method; shape 1/2 from shape 3/2."""
    single = freedom == 1
    c = freedom / 2 - 1 / 3 + single
    out = np.empty(len(sequence))
    waiting = np.arange(len(sequence))
    attempt = 0
    while len(waiting):
        r = threefry.random_words(key, sequence[waiting], _zero() + np.uint32(slot), threefry.CHI + attempt)
        x = threefry.normals(r[0], r[1])[0]
        u, boost = threefry.uniform(r[2]), threefry.uniform(r[3])
        v = 1 + x / (3 * np.sqrt(c))
        e = v - 1
        positive = v > 0
        bound = 3 * c * (np.log(np.where(positive, v, 1)) - e + e**2 / 2 - e**3 / 3)
        good = positive & ((u < 1 - 0.0331 * x**4) | (np.log(u) < bound))
        out[waiting[good]] = (2 * c * v**3 * (boost**2 if single else 1))[good]
        waiting = waiting[~good]
        attempt += 1
    return out


# ---- loss and gradient ------------------------------------------------------------------------------------


class _Trace:
    """What the forward pass leaves: G_l [B, D, D], T_l [B, D, D], and rows r_l = e_D' T_{L-1} ... T_l [B, D]."""

    def __init__(self) -> None:
        self.grams: list[Array] = []
        self.maps: list[Array] = []
        self.rows: list[Array] = []


def _forward(parameters: tuple[Array, ...], gram: Array) -> _Trace:
    trace = _Trace()
    D = gram.shape[1]
    for layer in range(len(parameters[0])):
        T = np.eye(D) + _attention(parameters, layer, gram)
        trace.grams.append(gram)
        trace.maps.append(T)
        gram = T @ gram @ T.transpose(0, 2, 1)
    row = np.broadcast_to(np.eye(D)[-1], gram.shape[:2])
    rows = [row]
    for T in reversed(trace.maps):
        row = np.einsum("bi,bij->bj", row, T)
        rows.append(row)
    trace.rows = rows[::-1]
    return trace


def _backward(parameters: tuple[Array, ...], trace: _Trace, target: Array, ceiling: float) -> list[Array]:
    """Gradient of the summed loss, by the reverse mode that the documentation derives.

    Above the ceiling it is that of ceiling (1 + log(loss / ceiling)).
    """
    gradient = [np.zeros(p.shape) for p in parameters]
    q = np.zeros_like(trace.rows[0])
    error = trace.rows[0][:, :-1] + target
    loss = 0.5 * np.square(error).sum(1, keepdims=True)
    q[:, :-1] = error * np.where(loss > ceiling, ceiling / loss, 1.0)
    carried = [q]
    for T in trace.maps:
        carried.append(np.einsum("bij,bj->bi", T, carried[-1]))
    gram_bar = np.zeros_like(trace.grams[0])
    for layer in reversed(range(len(trace.maps))):
        G, T = trace.grams[layer], trace.maps[layer]
        T_bar = trace.rows[layer + 1][:, :, None] * carried[layer][:, None, :] + 2 * gram_bar @ T @ G
        direct = _attention_adjoint(parameters, layer, G, T_bar, gradient)
        gram_bar = T.transpose(0, 2, 1) @ gram_bar @ T + (direct + direct.transpose(0, 2, 1)) / 2
    return gradient


def _add_gradient(
    parameters: tuple[Array, ...], gram: Array, target: Array, ceiling: float, total: list[Array]
) -> list[int]:
    """Adds the summed gradient to `total`; returns the sequences left out because theirs is too large to be summed.

    Halves a batch whose sum is too large, until such sequences stand alone.
    """
    if len(gram) == 0:
        return []
    pieces = _backward(parameters, _forward(parameters, gram), target, ceiling)
    if all(np.abs(piece).max() <= LARGEST for piece in pieces):
        for sum_, piece in zip(total, pieces, strict=True):
            sum_ += piece
        return []
    if len(gram) == 1:
        return [0]
    half = len(gram) // 2
    left_out = _add_gradient(parameters, gram[:half], target[:half], ceiling, total)
    return left_out + [half + i for i in _add_gradient(parameters, gram[half:], target[half:], ceiling, total)]


def _attention(parameters: tuple[Array, ...], layer: int, G: Array) -> Array:
    """T - I: sum_k P_k G Q_k, or for omegas the blocks of G each times its omega."""
    if len(parameters) == 1:
        return _spread(parameters[0][layer], G.shape[1]) * G
    return np.asarray(sum(P @ G @ Q for P, Q in zip(parameters[0][layer], parameters[1][layer], strict=True)))


def _attention_adjoint(
    parameters: tuple[Array, ...], layer: int, G: Array, T_bar: Array, gradient: list[Array]
) -> Array:
    """Adds to the parameters' gradient and returns the (unsymmetrised) one of G."""
    if len(parameters) == 1:
        product = (T_bar * G).sum(0)
        blocks = [[product[:-1, :-1].sum(), product[:-1, -1].sum()], [product[-1, :-1].sum(), product[-1, -1]]]
        gradient[0][layer] += np.array(blocks)
        return _spread(parameters[0][layer], G.shape[1]) * T_bar
    direct = np.zeros_like(G)
    for head, (P, Q) in enumerate(zip(parameters[0][layer], parameters[1][layer], strict=True)):
        gradient[0][layer, head] += (T_bar @ (G @ Q).transpose(0, 2, 1)).sum(0)
        gradient[1][layer, head] += ((P @ G).transpose(0, 2, 1) @ T_bar).sum(0)
        direct += P.T @ T_bar @ Q.T
    return direct


def _spread(omega: Array, D: int) -> Array:
    """A 2 x 2 of omegas as a D x D matrix of blocks."""
    blocks = np.full((D, D), omega[0, 0])
    blocks[:-1, -1], blocks[-1, :-1], blocks[-1, -1] = omega[0, 1], omega[1, 0], omega[1, 1]
    return blocks


def _zero() -> NDArray[np.uint32]:
    return np.zeros(1, np.uint32)


def _chunks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))


def _indices(first: int, part: slice) -> NDArray[np.uint32]:
    """Indices in the stream of the sequences in `part`."""
    return np.arange(part.start, part.stop, dtype=np.uint32) + np.uint32(first)
