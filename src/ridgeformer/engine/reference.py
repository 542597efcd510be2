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
from ridgeformer.engine.channels import dense_channels, gather_channels
from ridgeformer.engine.interface import Engine, Evaluation, Sample
from ridgeformer.engine.law import Choices, Law, Layout

__all__ = ["NumpyEngine"]

Array = NDArray[np.float64]
CHUNK = 4096  # sequences at a time, so that memory stays bounded
LARGEST = 1e298  # gradients of sequences up to this size can be summed whatever the batch: 2^32 of them stay finite


class NumpyEngine(Engine):
    """See `Engine`. Computes in float64 and rounds to the dtype asked for; `threads` is ignored."""

    name = "numpy"

    def _uniforms(self, key: Key, count: int, first: int, word: int) -> Array:
        sequence = _indices(first, slice(0, count))
        return threefry.uniform(threefry.random_words(key, sequence, _zero(), threefry.NOISE)[word])

    def _sample(
        self,
        law: Law,
        choices: Choices,
        key: Key,
        layout: Layout,
        first: int,
        dtype: np.dtype[np.floating],
        threads: int | None,
    ) -> Sample:
        count, d, D = len(choices), law.dim, law.dim + layout.extra + 1
        gram, task, ridge = np.empty((count, D, D), dtype), np.empty((count, d), dtype), np.empty((count, d), dtype)
        metric = np.empty((count, d, d), dtype) if law.own_metric else None
        with np.errstate(all="ignore"):
            for part in _chunks(count):
                drawn = _draw(law, choices[part], key, _indices(first, part), layout)
                gram[part], task[part], ridge[part] = drawn[:3]
                if metric is not None:
                    metric[part] = drawn[3]
        return Sample(gram, task, ridge, metric)

    def _evaluate(
        self,
        parameters: Parameters,
        gram: Float,
        target: Float,
        metric: Float | None,
        ceiling: float,
        weights: bool,
        gradient: bool,
        threads: int | None,
    ) -> Evaluation:
        if len(parameters) == 4:
            return self._evaluate_channels(parameters, gram, target, metric, ceiling, weights, gradient, threads)
        count, length = target.shape
        losses, found = np.empty(count, gram.dtype), np.empty((count, length), gram.dtype)
        limited = np.empty(count, bool)
        doubled = tuple(p.astype(np.float64) for p in parameters)
        total = [np.zeros(p.shape) for p in parameters]
        weight = None if metric is None else np.broadcast_to(metric, (count, length, length))
        with np.errstate(all="ignore"):
            for part in _chunks(count):
                G, goal = gram[part].astype(np.float64), target[part].astype(np.float64)
                M = None if weight is None else weight[part].astype(np.float64)
                given = np.asarray(np.isfinite(G).all((1, 2)))  # one layer does not read all of G
                w = np.where(given[:, None], -_forward(doubled, G).rows[0][:, :length], np.nan)
                loss = _half_square(w - goal, M)
                found[part], losses[part] = w, np.where(np.isfinite(loss), loss, np.inf)
                finite = np.isfinite(losses[part])
                limited[part] = ~finite | (losses[part].astype(np.float64) > ceiling)
                if gradient:
                    chosen = np.flatnonzero(finite)
                    left_out = _add_gradient(doubled, G[chosen], goal[chosen], _part(M, chosen), ceiling, total)
                    limited[part.start + chosen[left_out]] = True
            mean = tuple(sum_ / count for sum_ in total) if gradient else None
        return Evaluation(losses, found if weights else None, mean, int(limited.sum()))

    def _evaluate_channels(
        self, parameters: Parameters, gram: Float, target: Float, metric: Float | None, *options: Any
    ) -> Evaluation:
        """Through the dense matrices that the parameters stand for, computed in float64."""
        Pv, Qv, Ps, Qs = (p.astype(np.float64) for p in parameters)
        v, s = Pv.shape[-1], Ps.shape[-1]
        d = (gram.shape[1] - s) // v
        result = self._evaluate(dense_channels(Pv, Qv, Ps, Qs, d), gram, target, metric, *options)
        if result.gradient is None:
            return result
        P, Q = result.gradient
        return replace(result, gradient=gather_channels(P, Q, v, s, d))

    def _step(
        self,
        parameters: Parameters,
        law: Law,
        choices: Choices,
        key: Key,
        layout: Layout,
        target: Target,
        ceiling: float,
        gradient: bool,
        unadjusted: bool,
        first: int,
        threads: int | None,
    ) -> Evaluation:
        drawn = self._sample(law, choices, key, layout, first, parameters[0].dtype, threads)
        metric = layout.metric(law.metric if drawn.metric is None else drawn.metric)
        task = layout.target(drawn.task)
        goal = layout.target(drawn.ridge) if target == "ridge" else task
        result = self._evaluate(parameters, drawn.gram, goal, metric, ceiling, False, gradient, threads)
        if not unadjusted:
            return result
        other = self._evaluate(parameters, drawn.gram, task, metric, np.inf, False, False, threads)
        return replace(result, unadjusted=other.losses)


# ---- sampling ---------------------------------------------------------------------------------------------


def _draw(law: Law, choices: Choices, key: Key, sequence: Any, layout: Layout) -> tuple[Float, Array, Array, Any]:
    """Gram matrices, tasks, ridge solutions and own metrics (see native/sampler.hpp for the mathematics)."""
    d, count, sigma = law.dim, len(choices), choices.sigma
    n = np.full(count, law.context) if choices.counts is None else np.asarray(choices.counts)
    span = n - law.standardised  # directions that the tokens can span
    rank = min(law.context - law.standardised, d)
    below = [(i, j) for i in range(d) for j in range(min(i, rank))]
    draws = _normals(key, sequence, len(below) + d + rank, threefry.NORMALS)
    there = span[:, None] > np.arange(rank)  # columns that a sequence has
    A = np.zeros((count, d, rank))
    for column, (i, j) in enumerate(below):
        A[:, i, j] = draws[:, column] * there[:, j]
    g, z = draws[:, len(below) : len(below) + d], draws[:, len(below) + d :] * there
    for i in range(rank):
        A[:, i, i] = np.sqrt(_chi2(key, sequence, i, span - i))
    A, metric = _shape_features(law, A, key, sequence, n)
    w = _tasks(law, choices, g)
    t = np.einsum("bij,bi->bj", A, w) + sigma[:, None] * z
    rest = n - np.minimum(span, d)
    beyond = _chi2(key, sequence, d, rest)
    gram = np.empty((count, d + 1, d + 1))
    gram[:, :d, :d] = A @ A.transpose(0, 2, 1)
    gram[:, :d, d] = gram[:, d, :d] = np.einsum("bij,bj->bi", A, t)
    gram[:, d, d] = np.square(t).sum(1) + sigma**2 * beyond
    ridge = w if law.pool is not None else _posterior_mean(law, A, g, z, t, sigma, there)
    sums = _sums(law, A, t, sigma, beyond, n, rest, there, key, sequence) if layout.coordinate != "none" else None
    return layout.gram(gram, n, sums), w, ridge, metric


def _shape_features(law: Law, A: Array, key: Key, sequence: Any, n: Any) -> tuple[Array, Array | None]:
    """A with the features' covariance, and the queries' one of each sequence, [B, d, d]."""
    d, count = law.dim, len(A)
    covariance = np.broadcast_to(np.eye(d), (count, d, d))
    reflections, loadings = d * (d + 1) // 2 - 1, d * law.factors
    used = {"fixed": 0, "rotated": reflections, "factors": loadings}[law.covariance]
    draws = _normals(key, sequence, used + d, threefry.FEATURES)
    if law.covariance == "fixed" and law.factor is not None:
        A, covariance = law.factor @ A, np.broadcast_to(law.factor @ law.factor.T, (count, d, d))
    if law.covariance == "rotated":
        roots = np.ones(d) if law.factor is None else law.factor
        basis = _random_basis(draws[:, :used], d) * roots
        A, covariance = basis @ A, basis @ basis.transpose(0, 2, 1)
    if law.covariance == "factors":
        L = draws[:, :used].reshape(count, d, law.factors) / np.sqrt(law.factors)
        raw = L @ L.transpose(0, 2, 1) + law.unique * np.eye(d)
        scale = np.sqrt(np.einsum("bii->bi", raw))
        covariance = raw / scale[:, :, None] / scale[:, None, :]
        A = np.linalg.cholesky(covariance) @ A
    if law.spread:
        A, covariance = _scaled(A, covariance, np.exp(law.spread * draws[:, used:] - law.spread**2))
    if law.standardised:
        A, covariance = _scaled(A, covariance, np.sqrt(n[:, None] / np.square(A).sum(2)))
        covariance = covariance * (1 + 1 / n)[:, None, None]
    return A, covariance if law.own_metric else None


def _scaled(A: Array, covariance: Array, by: Array) -> tuple[Array, Array]:
    return A * by[:, :, None], covariance * by[:, :, None] * by[:, None, :]


def _random_basis(draws: Array, dim: int) -> Array:
    """A random orthogonal matrix for every sequence, up to the signs of its columns, [B, d, d]."""
    basis = np.broadcast_to(np.eye(dim), (len(draws), dim, dim)).copy()
    at = 0
    for k in range(dim - 2, -1, -1):
        u = draws[:, at : at + dim - k].copy()
        at += dim - k
        u[:, 0] += np.where(u[:, 0] < 0, -1, 1) * np.linalg.norm(u, axis=1)
        u *= np.sqrt(2) / np.linalg.norm(u, axis=1)[:, None]
        basis[:, k:] -= u[:, :, None] * np.einsum("bi,bij->bj", u, basis[:, k:])[:, None, :]
    return basis


def _tasks(law: Law, choices: Choices, g: Array) -> Array:
    """The task vectors, [B, d]."""
    w = g if law.task_factor is None else g[:, : law.rank] @ law.task_factor.T
    if law.mean is not None:
        w = w + law.mean
    if law.pool is None:
        return w
    task = np.asarray(choices.task)
    return np.where((task >= 0)[:, None], law.pool[task], w)


def _sums(
    law: Law, A: Array, t: Array, sigma: Array, beyond: Array, n: Any, rest: Any, there: Any, key: Key, sequence: Any
) -> Array:
    """The sums of the tokens, [B, D]: sqrt(n) times coordinates of a random unit vector in the basis of A and t."""
    rank = A.shape[2]
    draws = _normals(key, sequence, rank + 1, threefry.ONES)
    u = np.zeros((len(A), rank)) if law.standardised else draws[:, 1:] * there
    outside = _chi2(key, sequence, law.dim + 1, rest)
    length = np.sqrt(np.square(u).sum(1) + outside)
    u = u / length[:, None]
    sign = draws[:, 0] / np.sqrt(draws[:, 0] ** 2 + _chi2(key, sequence, law.dim + 2, rest - 1))
    along = (u * t).sum(1) + sigma * np.sqrt(outside) / length * np.sqrt(beyond) * sign
    return np.asarray(np.sqrt(n)[:, None] * np.column_stack([np.einsum("bij,bj->bi", A, u), along]))


def _posterior_mean(law: Law, A: Array, g: Array, z: Array, t: Array, sigma: Array, there: Any) -> Array:
    """E[w | context, sigma]; exact at sigma = 0, and without an inverse of S when there are too few tokens."""
    s, r, m = sigma[:, None], law.rank, A.shape[2]
    H = A if law.task_factor is None else law.task_factor.T @ A
    if law.least - law.standardised >= r:
        shift = np.square(sigma)[:, None, None] * np.eye(r)
        right = s * (np.einsum("bij,bj->bi", H, z) - s * g[:, :r])
        found = g[:, :r] + np.linalg.solve(H @ H.transpose(0, 2, 1) + shift, right[..., None])[..., 0]
    else:
        shift = np.square(sigma)[:, None, None] * np.eye(m) + np.eye(m) * ~there[:, None, :]
        goal = t if law.mean is None else t - np.einsum("bij,i->bj", A, law.mean)
        inner = np.linalg.solve(H.transpose(0, 2, 1) @ H + shift, goal[..., None])
        found = (H @ inner)[..., 0]
    w = found if law.task_factor is None else found @ law.task_factor.T
    return w if law.mean is None else w + law.mean


def _half_square(error: Array, metric: Array | None) -> Array:
    """1/2 e'M e of every sequence, [B]."""
    return np.asarray(0.5 * (error * _weighed(error, metric)).sum(1))


def _weighed(error: Array, metric: Array | None) -> Array:
    """M e of every sequence, [B, c]; without a metric e itself."""
    return error if metric is None else (metric @ error[..., None])[..., 0]


def _part(metric: Array | None, index: Any) -> Array | None:
    return None if metric is None else metric[index]


def _normals(key: Key, sequence: Any, count: int, use: int) -> Array:
    """`count` standard normals for every sequence, [B, count]."""
    slots = np.arange((count + 3) // 4, dtype=np.uint32)
    r = threefry.random_words(key, sequence[:, None], slots[None, :], use)
    four = [*threefry.normals(r[0], r[1]), *threefry.normals(r[2], r[3])]
    return np.stack(four, axis=-1).reshape(len(sequence), -1)[:, :count]


def _chi2(key: Key, sequence: Any, slot: int, freedom: Any) -> Array:
    """chi2(freedom) for every sequence by Marsaglia and Tsang's method; shape 1/2 from shape 3/2; 0 without freedom."""
    single = freedom == 1
    c = freedom / 2 - 1 / 3 + single
    out = np.zeros(len(sequence))
    waiting = np.flatnonzero(freedom > 0)
    attempt = 0
    while len(waiting):
        r = threefry.random_words(key, sequence[waiting], _zero() + np.uint32(slot), threefry.CHI + attempt)
        x = threefry.normals(r[0], r[1])[0]
        u, boost, c_ = threefry.uniform(r[2]), threefry.uniform(r[3]), c[waiting]
        v = 1 + x / (3 * np.sqrt(c_))
        e = v - 1
        positive = v > 0
        bound = 3 * c_ * (np.log(np.where(positive, v, 1)) - e + e**2 / 2 - e**3 / 3)
        good = positive & ((u < 1 - 0.0331 * x**4) | (np.log(u) < bound))
        out[waiting[good]] = (2 * c_ * v**3 * np.where(single[waiting], boost**2, 1))[good]
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


def _backward(
    parameters: tuple[Array, ...], trace: _Trace, target: Array, metric: Array | None, ceiling: float
) -> list[Array]:
    """Gradient of the summed loss, by the reverse mode that the documentation derives.

    Above the ceiling it is that of ceiling (1 + log(loss / ceiling)).
    """
    gradient = [np.zeros(p.shape) for p in parameters]
    q = np.zeros_like(trace.rows[0])
    length = target.shape[1]
    error = trace.rows[0][:, :length] + target
    loss = _half_square(error, metric)[:, None]
    q[:, :length] = _weighed(error, metric) * np.where(loss > ceiling, ceiling / loss, 1.0)
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
    parameters: tuple[Array, ...], gram: Array, target: Array, metric: Array | None, ceiling: float, total: list[Array]
) -> list[int]:
    """Adds the summed gradient to `total`; returns the sequences left out because theirs is too large to be summed.

    Halves a batch whose sum is too large, until such sequences stand alone.
    """
    if len(gram) == 0:
        return []
    pieces = _backward(parameters, _forward(parameters, gram), target, metric, ceiling)
    if all(np.abs(piece).max() <= LARGEST for piece in pieces):
        for sum_, piece in zip(total, pieces, strict=True):
            sum_ += piece
        return []
    if len(gram) == 1:
        return [0]
    half = len(gram) // 2
    left_out = _add_gradient(parameters, gram[:half], target[:half], _part(metric, slice(half)), ceiling, total)
    more = _add_gradient(parameters, gram[half:], target[half:], _part(metric, slice(half, None)), ceiling, total)
    return left_out + [half + i for i in more]


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
