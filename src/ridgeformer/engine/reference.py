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
from ridgeformer.engine.interface import (
    Engine,
    EvaluateArguments,
    Evaluation,
    Key,
    SampleArguments,
    SampledMoments,
    StepArguments,
)
from ridgeformer.engine.kernels import Kernel, Mixings, half_square, layer_of, weighed

Array = NDArray[np.float64]
CHUNK = 4096  # sequences at a time, so that memory stays bounded
LARGEST = 1e298  # gradients of sequences up to this size can be summed whatever the batch: 2^32 of them stay finite


class NumpyEngine(Engine):
    """See `Engine`. Computes in float64 and rounds to the dtype asked for; `threads` is ignored."""

    name = "numpy"

    def _uniforms(self, key: Key, count: int, first: int, word: int) -> Array:
        return sampler.uniforms(key, count, first, word)

    def _sample(self, args: SampleArguments, dtype: np.dtype[np.floating]) -> SampledMoments:
        law, count = args.law, len(args.choices)
        d, D = law.dim, law.dim + args.layout.extra + 1
        gram, task, ridge = np.empty((count, D, D), dtype), np.empty((count, d), dtype), np.empty((count, d), dtype)
        metric = np.empty((count, d, d), dtype) if law.own_metric else None
        with np.errstate(all="ignore"):
            for part in _chunks(count):
                gram[part], task[part], ridge[part], query_covariance = sampler.draw(args, part)
                if metric is not None:
                    metric[part] = query_covariance
        return SampledMoments(gram, task, ridge, metric)

    def _evaluate(self, args: EvaluateArguments) -> Evaluation:
        kernel = type(args.kernel)(*(value.astype(np.float64) for value in args.kernel))
        if not isinstance(kernel, Mixings):
            return self._computed(args, kernel)
        dim = (args.gram.shape[1] - kernel.scalars) // kernel.vectors
        result = self._computed(args, kernel.dense(dim))
        gradient: Any = result.gradient
        return result if gradient is None else replace(result, gradient=kernel.gather(gradient, dim))

    def _computed(self, args: EvaluateArguments, kernel: Kernel) -> Evaluation:
        """The evaluation of a kernel in float64, the layers of which have an adjoint."""
        dtype, (count, length), ceiling = args.gram.dtype, args.target.shape, args.ceiling
        losses, weights, limited = np.empty(count, dtype), np.empty((count, length), dtype), np.empty(count, bool)
        total = [np.zeros(value.shape) for value in kernel]
        metric = None if args.metric is None else np.broadcast_to(args.metric, (count, length, length))
        with np.errstate(all="ignore"):
            for part in _chunks(count):
                gram, target = args.gram[part].astype(np.float64), args.target[part].astype(np.float64)
                M = None if metric is None else metric[part].astype(np.float64)
                finite_gram = np.asarray(np.isfinite(gram).all((1, 2)))  # one layer does not read all of G
                w = np.where(finite_gram[:, None], -_forward(kernel, gram).rows[0][:, :length], np.nan)
                loss = half_square(w - target, M)
                weights[part], losses[part] = w, np.where(np.isfinite(loss), loss, np.inf)
                finite = np.isfinite(losses[part])
                limited[part] = ~finite | (losses[part].astype(np.float64) > ceiling)
                if args.gradient:
                    index = np.flatnonzero(finite)
                    left_out = _add_gradient(kernel, gram[index], target[index], _part(M, index), ceiling, total)
                    limited[part.start + index[left_out]] = True
            mean = type(kernel)(*(sum_ / count for sum_ in total)) if args.gradient else None
        return Evaluation(losses, weights if args.weights else None, mean, int(limited.sum()))

    def _step(self, args: StepArguments) -> Evaluation:
        law, layout, threads = args.sample.law, args.sample.layout, args.sample.threads
        drawn = self._sample(args.sample, args.kernel[0].dtype)
        metric = layout.metric(law.metric if drawn.metric is None else drawn.metric)
        task = layout.target(drawn.task)
        goal = layout.target(drawn.ridge) if args.target == "ridge" else task
        asked = EvaluateArguments(args.kernel, drawn.gram, goal, metric, args.ceiling, False, args.gradient, threads)
        result = self._evaluate(asked)
        if not args.unadjusted:
            return result
        unadjusted = self._evaluate(asked._replace(target=task, ceiling=np.inf, gradient=False))
        return replace(result, unadjusted=unadjusted.losses)


def _part(metric: Array | None, index: Any) -> Array | None:
    return None if metric is None else metric[index]


class _Trace:
    """The states of the forward pass: G_l [B, D, D], T_l [B, D, D], and rows r_l = e_D' T_{L-1} ... T_l [B, D]."""

    def __init__(self) -> None:
        self.grams: list[Array] = []
        self.maps: list[Array] = []
        self.rows: list[Array] = []


def through_layer(layer: Any, gram: Any) -> tuple[Any, Any]:
    """Compute one layer of the recursion T = I + sum_k P_k G Q_k, G -> T G T'.

    Args:
        layer: One layer of a kernel.
        gram: The Gram matrices G that it reads, [B, D, D].

    Returns:
        T and T G T', each [B, D, D].
    """
    T = np.eye(gram.shape[1], dtype=gram.dtype) + layer.attention(gram)
    return T, T @ gram @ T.transpose(0, 2, 1)


def _forward(kernel: Kernel, gram: Array) -> _Trace:
    trace = _Trace()
    D = gram.shape[1]
    for layer in range(len(kernel[0])):
        trace.grams.append(gram)
        T, gram = through_layer(layer_of(kernel, layer), gram)
        trace.maps.append(T)
    row = np.broadcast_to(np.eye(D)[-1], gram.shape[:2])
    rows = [row]
    for T in reversed(trace.maps):
        row = np.einsum("bi,bij->bj", row, T)
        rows.append(row)
    trace.rows = rows[::-1]
    return trace


def _backward(kernel: Kernel, trace: _Trace, target: Array, metric: Array | None, ceiling: float) -> list[Array]:
    """Gradient of the summed loss, by the reverse mode that the documentation derives.

    Above the ceiling it is that of ceiling (1 + log(loss / ceiling)).
    """
    gradient = [np.zeros(value.shape) for value in kernel]
    q = np.zeros_like(trace.rows[0])
    length = target.shape[1]
    error = trace.rows[0][:, :length] + target
    loss = half_square(error, metric)[:, None]
    q[:, :length] = weighed(error, metric) * np.where(loss > ceiling, ceiling / loss, 1.0)
    carried = [q]
    for T in trace.maps:
        carried.append(np.einsum("bij,bj->bi", T, carried[-1]))
    gram_bar = np.zeros_like(trace.grams[0])
    for layer in reversed(range(len(trace.maps))):
        G, T = trace.grams[layer], trace.maps[layer]
        T_bar = trace.rows[layer + 1][:, :, None] * carried[layer][:, None, :] + 2 * gram_bar @ T @ G
        slopes, direct = layer_of(kernel, layer).adjoint(G, T_bar)
        for sum_, slope in zip(gradient, slopes, strict=True):
            sum_[layer] = slope
        gram_bar = T.transpose(0, 2, 1) @ gram_bar @ T + (direct + direct.transpose(0, 2, 1)) / 2
    return gradient


def _add_gradient(
    kernel: Kernel, gram: Array, target: Array, metric: Array | None, ceiling: float, total: list[Array]
) -> list[int]:
    """Adds the summed gradient to `total`; returns the sequences left out because theirs is too large to be summed.

    Halves a batch whose sum is too large, until such sequences stand alone.
    """
    if len(gram) == 0:
        return []
    pieces = _backward(kernel, _forward(kernel, gram), target, metric, ceiling)
    if all(np.abs(piece).max() <= LARGEST for piece in pieces):
        for sum_, piece in zip(total, pieces, strict=True):
            sum_ += piece
        return []
    if len(gram) == 1:
        return [0]
    half = len(gram) // 2
    left_out = _add_gradient(kernel, gram[:half], target[:half], _part(metric, slice(half)), ceiling, total)
    more = _add_gradient(kernel, gram[half:], target[half:], _part(metric, slice(half, None)), ceiling, total)
    return left_out + [half + i for i in more]


def _chunks(count: int) -> Iterator[slice]:
    return (slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))
