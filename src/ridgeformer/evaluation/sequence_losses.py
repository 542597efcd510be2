"""The losses of single sequences: what a predictor loses on each of them, before any average is taken.

Only an object whose class is `LinearTransformer` itself is evaluated without calling `weights`: the engine then draws
its sequences and computes its losses in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors.guarded import Guarded
from ridgeformer.predictors.ridge import Predictor, check_any_problem
from ridgeformer.problems import BaseProblem, Draw
from ridgeformer.validation import integer

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
    "how_many",
    "needs_sums",
]

Array = NDArray[np.float64]
Estimator = Literal["exact", "query"]
Progress = Callable[[int, int], None]
EVALUATION = 1 << 30  # the stream that evaluation draws from


def check_predictor(name: str, predictor: object, problem: BaseProblem) -> None:
    """Refuse an object that is no predictor, an object that is no problem, and a model of another dimension.

    Args:
        name: The name of the predictor, for the message.
        predictor: The predictor.
        problem: The distribution of sequences.

    Raises:
        InputError: They do not fit.
    """
    if isinstance(predictor, type) or not isinstance(predictor, Predictor):
        refuse(
            f"{name} must be a predictor, with weights(moments)",
            f"a {type(predictor).__name__}",
            "Pass its model." if hasattr(predictor, "model") else "Pass a model or baseline.",
        )
    check_any_problem(problem)
    if isinstance(predictor, LinearTransformer) and predictor.dim != problem.dim:
        refuse(
            f"a model for dimension {predictor.dim} needs a problem of that dimension",
            f"dimension {problem.dim}",
            "Use a problem or a model of the same dimension.",
        )


def check_predictors(rule: str, predictors: object, problem: BaseProblem) -> None:
    """Refuse an object that is no dict of at least one predictor; see also `check_predictor`.

    Args:
        rule: What the message says that this is needed for.
        predictors: Predictors by name.
        problem: The distribution of sequences.

    Raises:
        InputError: They do not fit.
    """
    if not isinstance(predictors, Mapping) or not predictors:
        given = "an empty one" if isinstance(predictors, Mapping) else f"a {type(predictors).__name__}"
        refuse(rule, given, "Pass {name: predictor}.")
    for name, predictor in predictors.items():
        check_predictor(name, predictor, problem)


def how_many(problem: BaseProblem, sequences: int) -> int:
    """Return the number of sequences to evaluate on: as many as asked for, but no more than a data set has.

    Args:
        problem: The distribution of sequences.
        sequences: How many are asked for, at least 2.

    Returns:
        The number.
    """
    wanted = integer("sequences", sequences, 2)
    return wanted if problem.size is None else min(wanted, problem.size)


def draw_sequences(problem: BaseProblem, seed: int, first: int, count: int, sums: bool = False) -> Draw:
    """Draw sequences number `first` to `first + count` of an evaluation.

    Args:
        problem: The distribution of sequences.
        seed: Seed of the evaluation.
        first: The number of the first sequence.
        count: How many.
        sums: Whether to draw the sums of their tokens, too.

    Returns:
        The draw.
    """
    return problem.moments(count, seed=seed, stream=EVALUATION, first=first, sums=sums)


def needs_sums(predictors: Iterable[object]) -> bool:
    """Return whether a model among the predictors has tokens with a further coordinate, so that it needs their sums.

    Args:
        predictors: The predictors.

    Returns:
        Whether there is such a model.
    """
    inner = (one.model if isinstance(one, Guarded) else one for one in predictors)
    return any(isinstance(one, LinearTransformer) and one.layout.coordinate != "none" for one in inner)


def evaluated_by_engine(predictor: object) -> TypeGuard[LinearTransformer]:
    """Return whether the engine computes what the predictor predicts: a subclass may override `weights`.

    Args:
        predictor: The predictor.

    Returns:
        Whether its class is `LinearTransformer` itself.
    """
    return type(predictor) is LinearTransformer


def adjusted_losses(predictor: Predictor, draw: Draw) -> Array:
    """Compute the exact adjusted losses of one predictor; unadjusted ones where there is no oracle.

    Args:
        predictor: The predictor.
        draw: The sequences.

    Returns:
        The losses, [B].
    """
    if evaluated_by_engine(predictor) and draw.oracle:
        goal = draw.with_intercept() if predictor.layout.counted else draw
        found = predictor.evaluate(draw.moments, goal.ridge, metric=goal.metric)
        return found.losses.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        return _losses(predictor, draw, "exact", (0, 0))[0]


def block_losses(
    predictors: Mapping[str, Predictor], problem: BaseProblem, estimator: Estimator, seed: int, first: int, count: int
) -> tuple[Array, Array, Draw | None]:
    """Compute adjusted and unadjusted losses of one block of sequences.

    Args:
        predictors: K predictors by name.
        problem: The distribution of sequences.
        estimator: `exact`, or `query` for losses at one sampled query.
        seed: Seed of the evaluation.
        first: The number of the first sequence.
        count: How many, B.

    Returns:
        Adjusted losses [B, K], unadjusted losses [B, K], and the draw if there was one.
    """
    adjusted, unadjusted = np.empty((2, count, len(predictors)))
    models = [predictor for predictor in predictors.values() if evaluated_by_engine(predictor)]
    by_engine = problem.law is not None and not problem.has_pool
    if estimator == "exact" and len(models) == len(predictors) and by_engine:
        for column, model in enumerate(models):
            # The same sequences, drawn and evaluated in one go.
            found = model.astype(np.float64).step(
                problem, count, seed=seed, stream=EVALUATION, first=first, gradient=False, unadjusted=True
            )
            adjusted[:, column], unadjusted[:, column] = found.losses, found.unadjusted
        return adjusted, unadjusted, None
    draw = draw_sequences(problem, seed, first, count, sums=needs_sums(predictors.values()))
    for column, predictor in enumerate(predictors.values()):
        losses = _losses(predictor, draw, estimator, (seed, first))
        adjusted[:, column], unadjusted[:, column] = losses
    return adjusted, unadjusted, draw


def _weights(predictor: Predictor, draw: Draw) -> Array:
    """The weights that the predictor gives, [B, d]."""
    weights, shape = np.asarray(predictor.weights(draw.moments), np.float64), draw.task.shape
    if weights.shape != shape:
        refuse(f"weights must have shape {shape}", f"shape {weights.shape}", "Correct the predictor.")
    return weights


def _losses(predictor: Predictor, draw: Draw, estimator: Estimator, key: tuple[int, int]) -> tuple[Array, Array]:
    """Adjusted and unadjusted losses of a predictor, each [B]."""
    weights = _weights(predictor, draw)
    counted = isinstance(predictor, LinearTransformer) and predictor.layout.counted
    bias = predictor.intercepts(draw.moments) if counted else None  # type: ignore[attr-defined]
    with np.errstate(all="ignore"):
        if estimator == "exact":
            return draw.both_losses(weights, bias)
        query = np.random.default_rng((*key, EVALUATION)).standard_normal(draw.task.shape)
        if draw.metric is not None:
            root = _root(np.asarray(draw.metric, np.float64))
            query = query @ root.T if root.ndim == 2 else np.einsum("bij,bj->bi", root, query)
        unadjusted = 0.5 * np.square(((weights - draw.task) * query).sum(1) + (0.0 if bias is None else bias))
        if bias is not None:
            unadjusted = unadjusted + bias * draw.mean_error(weights, draw.task)
        whole = unadjusted if draw.offset is None else unadjusted + draw.offset
        if not draw.oracle:
            return whole, whole
        oracle = 0.5 * np.square(((draw.ridge - draw.task) * query).sum(1))
        return unadjusted - oracle, whole


def _root(metric: Array) -> Array:
    """R with R R' = metric, [..., d, d]; the metric of a few queries is singular."""
    try:
        return np.asarray(np.linalg.cholesky(metric), np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(metric)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])
