"""The engine in C++: prepares arrays for the core, which checks them again."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ridgeformer import _core
from ridgeformer.engine.interface import Evaluation, Float, Key, Parameters, Target
from ridgeformer.engine.threads import default_threads
from ridgeformer.errors import integer, refuse

Scalar = TypeVar("Scalar", bound=np.floating[Any])

__all__ = ["NativeEngine", "instruction_sets"]


def instruction_sets() -> dict[str, int]:
    """Instruction sets of this CPU that the core was compiled for, best first, with the float lanes of each."""
    return dict(_core.instruction_sets())


class NativeEngine:
    """See `Engine`. `name` is the instruction set."""

    def __init__(self, name: str | None = None) -> None:
        known = instruction_sets()
        if name is not None and name not in known:
            refuse(f"the instruction set must be one of {', '.join(known)}", repr(name), "Choose one this CPU has.")
        self.name = name or next(iter(known))

    def uniforms(self, key: Key, count: int, first: int = 0) -> NDArray[np.float64]:
        """See `Engine.uniforms`."""
        out = np.empty(count)
        _core.uniforms(key.seed, key.stream, key.step, first, out)
        return out

    def sample(
        self,
        dim: int,
        context: int,
        sigma: NDArray[np.float64],
        key: Key,
        *,
        first: int = 0,
        dtype: DTypeLike = np.float64,
        threads: int | None = None,
    ) -> tuple[Float, Float, Float]:
        """See `Engine.sample`."""
        count, D = len(sigma), dim + 1
        gram, task, ridge = np.empty((D, D, count), dtype), np.empty((dim, count), dtype), np.empty((dim, count), dtype)
        _core.sample(self.name, dim, context, *key, first, _ready(sigma), gram, task, ridge, _threads(threads))
        return gram.transpose(2, 0, 1), task.T, ridge.T

    def evaluate(
        self,
        parameters: Parameters,
        gram: Float,
        target: Float,
        *,
        ceiling: float = np.inf,
        weights: bool = False,
        gradient: bool = True,
        threads: int | None = None,
    ) -> Evaluation:
        """See `Engine.evaluate`."""
        dtype, dim = gram.dtype, gram.shape[1] - 1
        losses = np.empty(len(gram), dtype)
        found = np.empty((dim, len(gram)), dtype) if weights else None
        slope = _slope(parameters) if gradient else None
        first, second = _pair(parameters, dtype)
        innermost = _ready(gram.transpose(1, 2, 0)), _ready(target.T.astype(dtype, copy=False))
        threads = _threads(threads)
        limited = _core.evaluate(self.name, dim, first, second, *innermost, ceiling, losses, found, slope, threads)
        return _evaluation(parameters, losses, found, slope, limited, ceiling)

    def step(
        self,
        parameters: Parameters,
        dim: int,
        context: int,
        sigma: NDArray[np.float64],
        key: Key,
        *,
        target: Target = "ridge",
        ceiling: float = np.inf,
        gradient: bool = True,
        plain: bool = False,
        first: int = 0,
        threads: int | None = None,
    ) -> Evaluation:
        """See `Engine.step`."""
        dtype = parameters[0].dtype
        losses = np.empty(len(sigma), dtype)
        others = np.empty(len(sigma), dtype) if plain else None
        slope = _slope(parameters) if gradient else None
        pair = _pair(parameters, dtype)
        ridge = target == "ridge"
        where = (self.name, dim, context, *key, first, _ready(sigma))
        limited = _core.step(*where, *pair, ridge, ceiling, losses, others, slope, _threads(threads))
        return _evaluation(parameters, losses, None, slope, limited, ceiling, others)


def _slope(parameters: Parameters) -> NDArray[np.float64]:
    return np.empty(sum(p.size for p in parameters))


def _threads(threads: int | None) -> int:
    return default_threads() if threads is None else integer("threads", threads, 1, 1024)


def _ready(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Contiguous and aligned, copied only if it is not."""
    return np.require(array, requirements=["C", "A"])


def _pair(parameters: Parameters, dtype: np.dtype[Any]) -> tuple[Float, Float | None]:
    ready = [_ready(p.astype(dtype, copy=False)) for p in parameters]
    return ready[0], ready[1] if len(ready) > 1 else None


def _evaluation(
    parameters: Parameters,
    losses: Float,
    found: Float | None,
    slope: NDArray[np.float64] | None,
    limited: int,
    ceiling: float,
    plain: Float | None = None,
) -> Evaluation:
    weights = None if found is None else found.T
    if slope is None:
        highest = min(ceiling, float(np.finfo(losses.dtype).max))
        limited = int(np.count_nonzero(~(losses.astype(np.float64) <= highest)))
        return Evaluation(losses, weights, None, limited, plain)
    with np.errstate(under="ignore"):
        slope /= len(losses)
    pieces = np.split(slope, np.cumsum([p.size for p in parameters])[:-1])
    gradient = tuple(piece.reshape(p.shape) for piece, p in zip(pieces, parameters, strict=True))
    return Evaluation(losses, weights, gradient, limited, plain)
