"""The engine in C++: prepares arrays for the core, which checks them again."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer import _core
from ridgeformer.engine.arguments import Float, Key, Parameters, Target
from ridgeformer.engine.interface import Engine, Evaluation
from ridgeformer.engine.threads import default_threads
from ridgeformer.errors import refuse, shown

Scalar = TypeVar("Scalar", bound=np.floating[Any])

__all__ = ["NativeEngine", "instruction_sets"]


def instruction_sets() -> dict[str, int]:
    """Instruction sets of this CPU that the core was compiled for, best first, with the float lanes of each."""
    return dict(_core.instruction_sets())


class NativeEngine(Engine):
    """See `Engine`. `name` is the instruction set, by default the best one. Ctrl-C ends a call within a second."""

    def __init__(self, name: str | None = None) -> None:
        known = instruction_sets()
        if name is not None and (not isinstance(name, str) or name not in known):
            refuse(f"the instruction set must be one of {', '.join(known)}", shown(name), "Choose one this CPU has.")
        self.name = name or next(iter(known))

    def _uniforms(self, key: Key, count: int, first: int) -> NDArray[np.float64]:
        out = np.empty(count)
        _core.uniforms(key.seed, key.stream, key.step, first, out)
        return out

    def _sample(
        self,
        dim: int,
        context: int,
        sigma: NDArray[np.float64],
        key: Key,
        first: int,
        dtype: np.dtype[np.floating],
        threads: int | None,
    ) -> tuple[Float, Float, Float]:
        count, D = len(sigma), dim + 1
        gram, task, ridge = np.empty((D, D, count), dtype), np.empty((dim, count), dtype), np.empty((dim, count), dtype)
        threads = threads or default_threads()
        _core.sample(self.name, dim, context, *key, first, _ready(sigma), gram, task, ridge, threads)
        return gram.transpose(2, 0, 1), task.T, ridge.T

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
        dim = target.shape[1]
        losses = np.empty(len(gram), gram.dtype)
        found = np.empty((dim, len(gram)), gram.dtype) if weights else None
        slope = _slope(parameters) if gradient else None
        arrays = (*_pair(parameters), _ready(gram.transpose(1, 2, 0)), _ready(target.T))
        threads = threads or default_threads()
        limited = _core.evaluate(self.name, dim, *arrays, ceiling, losses, found, slope, threads)
        return _evaluation(parameters, losses, found, slope, limited, ceiling)

    def _step(
        self,
        parameters: Parameters,
        dim: int,
        context: int,
        sigma: NDArray[np.float64],
        key: Key,
        target: Target,
        ceiling: float,
        gradient: bool,
        unadjusted: bool,
        first: int,
        threads: int | None,
    ) -> Evaluation:
        dtype = parameters[0].dtype
        losses = np.empty(len(sigma), dtype)
        others = np.empty(len(sigma), dtype) if unadjusted else None
        slope = _slope(parameters) if gradient else None
        where = (self.name, dim, context, *key, first, _ready(sigma))
        ridge, threads = target == "ridge", threads or default_threads()
        limited = _core.step(*where, *_pair(parameters), ridge, ceiling, losses, others, slope, threads)
        return _evaluation(parameters, losses, None, slope, limited, ceiling, others)


def _slope(parameters: Parameters) -> NDArray[np.float64]:
    return np.empty(sum(p.size for p in parameters))


def _ready(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Contiguous and aligned, copied only if it is not."""
    return np.require(array, requirements=["C", "A"])


def _pair(parameters: Parameters) -> tuple[Float, Float | None]:
    return _ready(parameters[0]), _ready(parameters[1]) if len(parameters) > 1 else None


def _evaluation(
    parameters: Parameters,
    losses: Float,
    found: Float | None,
    slope: NDArray[np.float64] | None,
    limited: int,
    ceiling: float,
    unadjusted: Float | None = None,
) -> Evaluation:
    weights = None if found is None else found.T
    if slope is None:
        highest = min(ceiling, float(np.finfo(losses.dtype).max))
        limited = int(np.count_nonzero(~(losses.astype(np.float64) <= highest)))
        return Evaluation(losses, weights, None, limited, unadjusted)
    with np.errstate(under="ignore"):
        slope /= len(losses)
    pieces = np.split(slope, np.cumsum([p.size for p in parameters])[:-1])
    gradient = tuple(piece.reshape(p.shape) for piece, p in zip(pieces, parameters, strict=True))
    return Evaluation(losses, weights, gradient, limited, unadjusted)
