"""The engine in NumPy: the readable twin of the native core, and what runs where that could not be built.

One layer is e -> T e with T = I + sum_k P_k G Q_k, hence G <- T G T'. The last row of T_{L-1} ... T_0 is (-w_hat', .).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import sampler
from ridgeformer.engine.arguments import EvaluateArguments, Key, SampleArguments, StepArguments
from ridgeformer.engine.channels import dense_channels, gather_channels
from ridgeformer.engine.interface import Engine, Evaluation, Sample

__all__ = ["NumpyEngine", "through_layer"]

Array = NDArray[np.float64]
CHUNK = 4096  # sequences at a time, so that memory stays bounded
LARGEST = 1e298  # gradients of sequences up to this size can be summed whatever the batch: 2^32 of them stay finite


class NumpyEngine(Engine):
    """See `Engine`. Computes in float64 and rounds to the dtype asked for; `threads` is ignored."""

    name = "numpy"

    def _uniforms(self, key: Key, count: int, first: int, word: int) -> Array:
        return sampler.uniforms(key, count, first, word)

    def _sample(self, given: SampleArguments, dtype: np.dtype[np.floating]) -> Sample:
        law, count = given.law, len(given.choices)
        d, D = law.dim, law.dim + given.layout.extra + 1
        gram, task, ridge = np.empty((count, D, D), dtype), np.empty((count, d), dtype), np.empty((count, d), dtype)
        metric = np.empty((count, d, d), dtype) if law.own_metric else None
        with np.errstate(all="ignore"):
            for part in _chunks(count):
                gram[part], task[part], ridge[part], own = sampler.draw(given, part)
                if metric is not None:
                    metric[part] = own
        return Sample(gram, task, ridge, metric)

    def _evaluate(self, given: EvaluateArguments) -> Evaluation:
        if len(given.parameters) == 4:
            return self._evaluate_channels(given)
        dtype, (count, length), ceiling = given.gram.dtype, given.target.shape, given.ceiling
        losses, found, limited = np.empty(count, dtype), np.empty((count, length), dtype), np.empty(count, bool)
        parameters = tuple(p.astype(np.float64) for p in given.parameters)
        total = [np.zeros(p.shape) for p in parameters]
        metric = None if given.metric is None else np.broadcast_to(given.metric, (count, length, length))
        with np.errstate(all="ignore"):
            for part in _chunks(count):
                gram, target = given.gram[part].astype(np.float64), given.target[part].astype(np.float64)
                M = None if metric is None else metric[part].astype(np.float64)
                whole = np.asarray(np.isfinite(gram).all((1, 2)))  # one layer does not read all of G
                w = np.where(whole[:, None], -_forward(parameters, gram).rows[0][:, :length], np.nan)
                loss = _half_square(w - target, M)
                found[part], losses[part] = w, np.where(np.isfinite(loss), loss, np.inf)
                finite = np.isfinite(losses[part])
                limited[part] = ~finite | (losses[part].astype(np.float64) > ceiling)
                if given.gradient:
                    chosen = np.flatnonzero(finite)
                    left_out = _add_gradient(parameters, gram[chosen], target[chosen], _part(M, chosen), ceiling, total)
                    limited[part.start + chosen[left_out]] = True
            mean = tuple(sum_ / count for sum_ in total) if given.gradient else None
        return Evaluation(losses, found if given.weights else None, mean, int(limited.sum()))

    def _evaluate_channels(self, given: EvaluateArguments) -> Evaluation:
        """Through the dense matrices that the parameters stand for, computed in float64."""
        Pv, Qv, Ps, Qs = (p.astype(np.float64) for p in given.parameters)
        v, s = Pv.shape[-1], Ps.shape[-1]
        d = (given.gram.shape[1] - s) // v
        result = self._evaluate(given._replace(parameters=dense_channels(Pv, Qv, Ps, Qs, d)))
        if result.gradient is None:
            return result
        P, Q = result.gradient
        return replace(result, gradient=gather_channels(P, Q, v, s, d))

    def _step(self, given: StepArguments) -> Evaluation:
        law, layout, threads = given.sample.law, given.sample.layout, given.sample.threads
        drawn = self._sample(given.sample, given.parameters[0].dtype)
        metric = layout.metric(law.metric if drawn.metric is None else drawn.metric)
        task = layout.target(drawn.task)
        goal = layout.target(drawn.ridge) if given.target == "ridge" else task
        asked = EvaluateArguments(
            given.parameters, drawn.gram, goal, metric, given.ceiling, False, given.gradient, threads
        )
        result = self._evaluate(asked)
        if not given.unadjusted:
            return result
        other = self._evaluate(asked._replace(target=task, ceiling=np.inf, gradient=False))
        return replace(result, unadjusted=other.losses)


def _half_square(error: Array, metric: Array | None) -> Array:
    """1/2 e'M e of every sequence, [B]."""
    return np.asarray(0.5 * (error * _weighed(error, metric)).sum(1))


def _weighed(error: Array, metric: Array | None) -> Array:
    """M e of every sequence, [B, c]; without a metric e itself."""
    return error if metric is None else (metric @ error[..., None])[..., 0]


def _part(metric: Array | None, index: Any) -> Array | None:
    return None if metric is None else metric[index]


class _Trace:
    """What the forward pass leaves: G_l [B, D, D], T_l [B, D, D], and rows r_l = e_D' T_{L-1} ... T_l [B, D]."""

    def __init__(self) -> None:
        self.grams: list[Array] = []
        self.maps: list[Array] = []
        self.rows: list[Array] = []


def through_layer(parameters: tuple[Any, ...], layer: int, gram: Any) -> tuple[Any, Any]:
    """Compute one layer of the recursion T = I + sum_k P_k G Q_k, G -> T G T'.

    Args:
        parameters: (P, Q), each [L, H, D, D], or (omega,), [L, 2, 2].
        layer: The layer, from 0 on.
        gram: The Gram matrices G that it reads, [B, D, D].

    Returns:
        T and T G T', each [B, D, D].
    """
    T = np.eye(gram.shape[1], dtype=gram.dtype) + _attention(parameters, layer, gram)
    return T, T @ gram @ T.transpose(0, 2, 1)


def _forward(parameters: tuple[Array, ...], gram: Array) -> _Trace:
    trace = _Trace()
    D = gram.shape[1]
    for layer in range(len(parameters[0])):
        trace.grams.append(gram)
        T, gram = through_layer(parameters, layer, gram)
        trace.maps.append(T)
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


def _chunks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))
