"""The engine in C++: prepares arrays for the core, which checks them again."""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ridgeformer import _core
from ridgeformer.engine.interface import (
    Engine,
    EvaluateArguments,
    Evaluation,
    Key,
    SampleArguments,
    SampledMoments,
    StepArguments,
)
from ridgeformer.engine.kernels import Float, Kernel, pieces
from ridgeformer.engine.law import COORDINATES, KINDS, Choices, Law, Layout
from ridgeformer.engine.machine import default_threads
from ridgeformer.errors import refuse, shown

Scalar = TypeVar("Scalar", bound=np.generic)

NUMBERS = ("dim", "context", "unique", "spread", "standardised", "rank", "own_metric")  # of a law, as the core has them
ARRAYS = ("factor", "mean", "task_factor", "pool", "metric")

# Laws as the core reads them, by layout and dtype. A law never changes, and training draws from one thousands of times.
_laws: WeakKeyDictionary[Law, dict[tuple[Layout, np.dtype[Any]], dict[str, Any]]] = WeakKeyDictionary()


def instruction_sets() -> dict[str, int]:
    """Instruction sets of this CPU that the core was compiled for, best first, with the float lanes of each."""
    return dict(_core.instruction_sets())


class NativeEngine(Engine):
    """The engine in C++; see `Engine`. Ctrl-C ends a call within a second.

    Args:
        name: The instruction set; None for the best one that this CPU has.

    Raises:
        InputError: This CPU does not have the instruction set, or the core was not compiled for it.
    """

    def __init__(self, name: str | None = None) -> None:
        sets = instruction_sets()
        if name is not None and (not isinstance(name, str) or name not in sets):
            refuse(f"the instruction set must be one of {', '.join(sets)}", shown(name), "Choose one this CPU has.")
        self.name = name or next(iter(sets))

    def _uniforms(self, key: Key, count: int, first: int, word: int) -> NDArray[np.float64]:
        out = np.empty(count)
        _core.uniforms(key.seed, key.stream, key.step, first, word, out)
        return out

    def _sample(self, args: SampleArguments, dtype: np.dtype[np.floating]) -> SampledMoments:
        law, count = args.law, len(args.choices)
        d, D = law.dim, law.dim + args.layout.extra + 1
        gram, task, ridge = np.empty((D, D, count), dtype), np.empty((d, count), dtype), np.empty((d, count), dtype)
        has_metric = law.own_metric or law.metric is not None
        metric = np.empty((d, d, count), dtype) if has_metric else None
        _core.sample(self.name, *_drawn(args, dtype), gram, task, ridge, metric, args.threads or default_threads())
        shown = metric.transpose(2, 0, 1) if metric is not None and law.own_metric else None
        return SampledMoments(gram.transpose(2, 0, 1), task.T, ridge.T, shown)

    def _evaluate(self, args: EvaluateArguments) -> Evaluation:
        gram, target, metric = args.gram, args.target, args.metric
        dim, count = gram.shape[1] - 1, len(gram)
        losses = np.empty(count, gram.dtype)
        weights = np.empty((target.shape[1], count), gram.dtype) if args.weights else None
        slope = _slope(args.kernel) if args.gradient else None
        if metric is not None:
            metric = _ready(metric if metric.ndim == 2 else metric.transpose(1, 2, 0))
        arrays = [_ready(value) for value in args.kernel], _ready(gram.transpose(1, 2, 0)), _ready(target.T), metric
        threads = args.threads or default_threads()
        limited = _core.evaluate(self.name, dim, *arrays, args.ceiling, losses, weights, slope, threads)
        return _evaluation(args, losses, weights, slope, limited)

    def _step(self, args: StepArguments) -> Evaluation:
        arrays, count = [_ready(value) for value in args.kernel], len(args.sample.choices)
        dtype = arrays[0].dtype
        losses = np.empty(count, dtype)
        unadjusted = np.empty(count, dtype) if args.unadjusted else None
        slope = _slope(args.kernel) if args.gradient else None
        ridge, threads = args.target == "ridge", args.sample.threads or default_threads()
        drawn = _drawn(args.sample, dtype)
        limited = _core.step(self.name, *drawn, arrays, ridge, args.ceiling, losses, unadjusted, slope, threads)
        return _evaluation(args, losses, None, slope, limited, unadjusted)


def _drawn(
    args: SampleArguments, dtype: np.dtype[Any]
) -> tuple[dict[str, Any], int, int, int, int, NDArray[np.float64]]:
    """The arguments by which the core draws sequences: a description, the key, the first index and the noise levels."""
    law = _described(args.law, args.choices, args.layout, dtype)
    return law, *args.key, args.first, _ready(args.choices.sigma)


def _described(law: Law, choices: Choices, layout: Layout, dtype: np.dtype[Any]) -> dict[str, Any]:
    """The law, the choices and the layout as the core reads them: numbers, and arrays in its dtype."""
    descriptions = _laws.setdefault(law, {})
    if (layout, dtype) not in descriptions:
        descriptions[layout, dtype] = _lasting(law, layout, dtype)
    counts, choice = (None if value is None else _ready(value) for value in (choices.counts, choices.task))
    return {**descriptions[layout, dtype], "counts": counts, "choice": choice}


def _lasting(law: Law, layout: Layout, dtype: np.dtype[Any]) -> dict[str, Any]:
    """The description of a law, which is the same for all sequences."""

    def ready(value: NDArray[np.float64] | None) -> NDArray[Any] | None:
        with np.errstate(all="ignore"):  # numbers too large for float32 become infinite
            return None if value is None else _ready(np.asarray(value, dtype))

    return {
        **{name: getattr(law, name) for name in NUMBERS},
        **{name: ready(getattr(law, name)) for name in ARRAYS},
        "shortest": law.least,
        "covariance": KINDS.index(law.covariance),
        "factors": law.factors if law.covariance == "factors" else 0,
        "pool_size": 0 if law.pool is None else len(law.pool),
        "mean_attention": layout.attention == "mean",
        "coordinate": COORDINATES.index(layout.coordinate),
        "scratch": layout.scratch,
    }


def _slope(kernel: Kernel) -> NDArray[np.float64]:
    return np.empty(sum(value.size for value in kernel))


def _ready(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Contiguous and aligned, copied only if it is not."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=["C", "A"])


def _evaluation(
    args: EvaluateArguments | StepArguments,
    losses: Float,
    weights: Float | None,
    slope: NDArray[np.float64] | None,
    limited: int,
    unadjusted: Float | None = None,
) -> Evaluation:
    weights = None if weights is None else weights.T
    if slope is None:
        highest = min(args.ceiling, float(np.finfo(losses.dtype).max))
        limited = int(np.count_nonzero(~(losses.astype(np.float64) <= highest)))
        return Evaluation(losses, weights, None, limited, unadjusted)
    with np.errstate(under="ignore"):
        slope /= len(losses)
    gradient = type(args.kernel)(*(pieces(slope, [value.shape for value in args.kernel])))
    return Evaluation(losses, weights, gradient, limited, unadjusted)
