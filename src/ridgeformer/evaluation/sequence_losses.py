"""The losses of single sequences: what a predictor loses on each of them, before any average is taken.

Only an object whose class is `LinearTransformer` itself is evaluated without calling `weights`: the engine then draws
its sequences and computes its losses in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors.ridge import Predictor, check_problem
from ridgeformer.problem import Draw, Problem

__all__ = [
    "EVALUATION",
    "Estimator",
    "Progress",
    "adjusted_losses",
    "block_losses",
    "check_predictor",
    "check_predictors",
    "draw_sequences",
    "evaluated_by_engine",
]

Array = NDArray[np.float64]
Estimator = Literal["exact", "query"]
Progress = Callable[[int, int], None]
EVALUATION = 1 << 30  # the stream that evaluation draws from


def check_predictor(name: str, predictor: object, problem: Problem) -> None:
    """Refuse what is no predictor, what is no problem, and a model of another dimension."""
    if isinstance(predictor, type) or not isinstance(predictor, Predictor):
        refuse(
            f"{name} must be a predictor, with weights(moments)",
            f"a {type(predictor).__name__}",
            "Pass a model or baseline.",
        )
    check_problem(problem)
    if isinstance(predictor, LinearTransformer) and predictor.dim != problem.dim:
        refuse(
            f"a model for dimension {predictor.dim} needs a problem of that dimension",
            f"dimension {problem.dim}",
            "Use a problem or a model of the same dimension.",
        )


def check_predictors(rule: str, predictors: object, problem: Problem) -> None:
    """Refuse what is no dict of at least one predictor; `rule` is what the message says that this is needed for."""
    if not isinstance(predictors, Mapping) or not predictors:
        given = "an empty one" if isinstance(predictors, Mapping) else f"a {type(predictors).__name__}"
        refuse(rule, given, "Pass {name: predictor}.")
    for name, predictor in predictors.items():
        check_predictor(name, predictor, problem)


def draw_sequences(problem: Problem, seed: int, first: int, count: int) -> Draw:
    """Draw sequences number `first` to `first + count` of an evaluation."""
    return problem.moments(count, seed=seed, stream=EVALUATION, first=first)


def evaluated_by_engine(predictor: object) -> TypeGuard[LinearTransformer]:
    """Whether the engine computes what the predictor predicts: a subclass may override `weights`."""
    return type(predictor) is LinearTransformer


def adjusted_losses(predictor: Predictor, draw: Draw) -> Array:
    """Exact adjusted losses of one predictor, [B]."""
    if evaluated_by_engine(predictor):
        return predictor.evaluate(draw.moments, draw.ridge).losses.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        return np.asarray(0.5 * np.square(_weights(predictor, draw) - draw.ridge).sum(1))


def block_losses(
    predictors: Mapping[str, Predictor], problem: Problem, estimator: Estimator, seed: int, first: int, count: int
) -> tuple[Array, Array, Draw | None]:
    """Adjusted and unadjusted losses of one block of sequences, each [B, K], and the draw if there was one."""
    adjusted, unadjusted = np.empty((2, count, len(predictors)))
    models = [predictor for predictor in predictors.values() if evaluated_by_engine(predictor)]
    if estimator == "exact" and len(models) == len(predictors):
        for column, model in enumerate(models):
            # The same sequences, drawn and evaluated in one go.
            found = model.astype(np.float64).step(
                problem, count, seed=seed, stream=EVALUATION, first=first, gradient=False, unadjusted=True
            )
            adjusted[:, column], unadjusted[:, column] = found.losses, found.unadjusted
        return adjusted, unadjusted, None
    draw = draw_sequences(problem, seed, first, count)
    for column, predictor in enumerate(predictors.values()):
        losses = _losses(_weights(predictor, draw), draw, estimator, (seed, first))
        adjusted[:, column], unadjusted[:, column] = losses
    return adjusted, unadjusted, draw


def _weights(predictor: Predictor, draw: Draw) -> Array:
    """The weights that the predictor gives, [B, d]."""
    weights, shape = np.asarray(predictor.weights(draw.moments), np.float64), draw.task.shape
    if weights.shape != shape:
        refuse(f"weights must have shape {shape}", f"shape {weights.shape}", "Correct the predictor.")
    return weights


def _losses(weights: Array, draw: Draw, estimator: Estimator, key: tuple[int, int]) -> tuple[Array, Array]:
    """Adjusted and unadjusted losses of weights [B, d], each [B]."""
    with np.errstate(all="ignore"):
        if estimator == "exact":
            adjusted, unadjusted = (0.5 * np.square(weights - goal).sum(1) for goal in (draw.ridge, draw.task))
            return adjusted, unadjusted
        query = np.random.default_rng((*key, EVALUATION)).standard_normal(draw.task.shape)
        unadjusted = 0.5 * np.square(((weights - draw.task) * query).sum(1))
        oracle = 0.5 * np.square(((draw.ridge - draw.task) * query).sum(1))
        return unadjusted - oracle, unadjusted
