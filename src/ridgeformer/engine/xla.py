"""The engine in JAX: losses and gradients by XLA, on an accelerator where there is one.

Another engine draws the sequences, so that they are the same everywhere. Losses and gradients are computed in the dtype
of the Gram matrices.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine.interface import Engine, EvaluateArguments, Evaluation, Key, SampleArguments, SampledMoments
from ridgeformer.engine.kernels import Kernel, half_square
from ridgeformer.engine.reference import LARGEST, NumpyEngine

CHUNK = 4096  # sequences at a time, so that memory stays bounded


class JaxEngine(NumpyEngine):
    """See `Engine`. The first call with new shapes compiles; `threads` is ignored for losses and gradients.

    Args:
        sampler: The engine that draws the sequences.
    """

    name = "jax"

    def __init__(self, sampler: Engine) -> None:
        self._sampler = sampler

    def _uniforms(self, key: Key, count: int, first: int, word: int) -> NDArray[np.float64]:
        return self._sampler._uniforms(key, count, first, word)

    def _sample(self, args: SampleArguments, dtype: np.dtype[np.floating]) -> SampledMoments:
        return self._sampler._sample(args, dtype)

    def _evaluate(self, args: EvaluateArguments) -> Evaluation:
        kernel, gram, target, metric, ceiling, *_ = args
        count, length = target.shape
        losses, weights = np.empty(count, gram.dtype), np.empty((count, length), gram.dtype)
        total, limited = [np.zeros(value.shape) for value in kernel], 0
        shared = metric is None or metric.ndim == 2
        with double_precision(), jax.default_matmul_precision("highest"), np.errstate(all="ignore"):
            for first in range(0, count, CHUNK):
                part = slice(first, first + CHUNK)
                M = metric if metric is None or shared else metric[part]
                batch = gram[part], target[part], M
                losses[part], weights[part] = _forward(kernel, *batch)
                finite = np.isfinite(losses[part])
                limits = ~finite | (losses[part] > ceiling)
                if args.gradient:
                    limits |= _add_gradient(kernel, batch, finite, ceiling, total)
                limited += int(limits.sum())
            mean = type(kernel)(*(piece / count for piece in total)) if args.gradient else None
        return Evaluation(losses, weights if args.weights else None, mean, limited)


def double_precision() -> AbstractContextManager[Any]:
    """Let JAX use float64 where it is asked for, inside this block only."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # older versions

    return enable_x64()


def map_of(kernel: Kernel, gram: Any) -> Any:
    """Compute minus the last row of the map that all layers apply to a token: the weights of a prediction.

    Args:
        kernel: What `Family.kernel` gives, layers first.
        gram: Gram matrices, [..., D, D].

    Returns:
        The weights of all coordinates beside y, [..., D - 1].
    """
    identity = jnp.broadcast_to(jnp.eye(gram.shape[-1], dtype=gram.dtype), gram.shape)

    def layer(state: tuple[Any, Any], kernel: Any) -> tuple[tuple[Any, Any], None]:
        G, C = state
        T = identity + kernel.attention(G, jnp)
        return (T @ G @ T.mT, T @ C), None

    start = gram, identity
    (_, C), _ = jax.lax.scan(layer, start, type(kernel)(*(jnp.asarray(value, gram.dtype) for value in kernel)))
    return -C[..., -1, :-1]


@jax.jit
def _forward(kernel: Any, gram: Any, target: Any, metric: Any) -> Any:
    """Losses, infinite where they overflowed, and weights."""
    finite_gram = jnp.isfinite(gram).all((1, 2))  # one layer does not read all of G
    weights = jnp.where(finite_gram[:, None], map_of(kernel, gram)[:, : target.shape[1]], jnp.nan)
    losses = half_square(weights - target, metric)
    return jnp.where(jnp.isfinite(losses), losses, jnp.inf), weights


def _limited(kernel: Any, gram: Any, target: Any, metric: Any, ceiling: Any) -> Any:
    """The summed losses, those above the ceiling at the slope of ceiling (1 + log(loss / ceiling))."""
    losses = half_square(map_of(kernel, gram)[..., : target.shape[-1]] - target, metric)
    size = jax.lax.stop_gradient(losses)
    return (losses * jnp.where(size > ceiling, ceiling / size, 1.0)).sum()


_slope = jax.jit(jax.grad(_limited))
_slopes = jax.jit(jax.vmap(jax.grad(_limited), (None, 0, 0, 0, None)))


def _add_gradient(
    kernel: Kernel, batch: tuple[Any, ...], finite: NDArray[np.bool_], ceiling: float, total: list[Any]
) -> NDArray[np.bool_]:
    """Add the gradient of the sequences with finite losses; return which of these had to be left out."""
    gram, target, metric = batch
    # Zeros instead of a sequence have no gradient, and keep the shapes for which the function is compiled.
    gram, target = np.where(finite[:, None, None], gram, 0), np.where(finite[:, None], target, 0)
    if metric is not None and metric.ndim == 3:
        metric = np.where(finite[:, None, None], metric, 0)
    pieces = [np.asarray(piece, np.float64) for piece in _slope(kernel, gram, target, metric, ceiling)]
    left_out = np.zeros(len(gram), bool)
    if not all(np.abs(piece).max() <= LARGEST for piece in pieces):
        length = target.shape[1]
        each = np.broadcast_to(
            np.eye(length, dtype=gram.dtype) if metric is None else metric, (len(gram), *2 * (length,))
        )
        every = [np.asarray(piece, np.float64) for piece in _slopes(kernel, gram, target, each, ceiling)]
        good = np.all([np.abs(piece).reshape(len(gram), -1).max(1) <= LARGEST for piece in every], axis=0)
        pieces, left_out = [piece[good].sum(0) for piece in every], ~good
    for sum_, piece in zip(total, pieces, strict=True):
        sum_ += piece
    return left_out
