"""The losses of single sequences: what a predictor loses on each of them, before any average is taken.

A predictor with `weights(moments)` has exact losses. One that only has `predict(x, y, queries)` is asked for the labels
of sampled queries. Both kinds then see the same sequences.

Only an object whose class is `LinearTransformer` itself is evaluated without calling `weights`: the engine then draws
its sequences and computes its losses in one go.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import PAPER_LAYOUT, Layout
from ridgeformer.errors import kind_of, refuse
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors.base import Predictor, TokenPredictor, check_any_problem
from ridgeformer.predictors.guarded import Guarded
from ridgeformer.predictors.ridge import OracleRR
from ridgeformer.problems import BaseProblem, Draw, Problem
from ridgeformer.problems.custom import from_tokens
from ridgeformer.problems.posterior import oracle_of_pool
from ridgeformer.validation import integer

__all__ = [
    "EVALUATION",
    "AnyPredictor",
    "Estimator",
    "Progress",
    "adjusted_losses",
    "block_losses",
    "check_predictor",
    "check_predictors",
    "draw_sequences",
    "draw_tokens",
    "evaluated_by_engine",
    "how_many",
    "needed",
    "needs_sums",
    "needs_tokens",
    "with_oracle",
]

Array = NDArray[np.float64]
Estimator = Literal["exact", "query"]
Progress = Callable[[int, int], None]
AnyPredictor = Predictor | TokenPredictor
EVALUATION = 1 << 30  # the stream that evaluation draws from
QUERIES = 4  # of each sequence, where predictors need tokens


def check_predictor(name: str, predictor: object, problem: BaseProblem) -> None:
    """Refuse an object that is no predictor, an object that is no problem, and a model of another dimension.

    Args:
        name: The name of the predictor, for the message.
        predictor: The predictor.
        problem: The distribution of sequences.

    Raises:
        InputError: They do not fit.
    """
    check_any_problem(problem)
    if isinstance(predictor, type) or not (isinstance(predictor, Predictor) or needs_tokens(predictor)):
        refuse(
            f"{name} must be a predictor, with weights(moments) or predict(x, y, queries)",
            kind_of(predictor),
            "Pass its attribute model."
            if hasattr(predictor, "model")
            else "Pass a model, or a baseline such as AdaRR().",
        )
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
    check_any_problem(problem)
    if not isinstance(predictors, Mapping) or not predictors:
        given = "an empty one" if isinstance(predictors, Mapping) else kind_of(predictors)
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


def needs_tokens(predictor: object) -> TypeGuard[TokenPredictor]:
    """Return whether a predictor has no weights, but `predict(x, y, queries)`.

    Args:
        predictor: The predictor.

    Returns:
        Whether it can only be judged through sampled queries.
    """
    if isinstance(predictor, Predictor) or not isinstance(predictor, TokenPredictor):
        return False
    try:
        inspect.signature(predictor.predict).bind(None, None, None)
    except (TypeError, ValueError):  # predicts from something else
        return False
    return True


def draw_sequences(
    problem: BaseProblem, seed: int, first: int, count: int, sums: bool = False, tokens: bool = False
) -> Draw:
    """Draw sequences number `first` to `first + count` of an evaluation.

    Args:
        problem: The distribution of sequences.
        seed: Seed of the evaluation.
        first: The number of the first sequence.
        count: How many.
        sums: Whether to draw the sums of their tokens, too.
        tokens: Whether to draw whole sequences with queries. These are other sequences of the same law.

    Returns:
        The draw.
    """
    if tokens:
        return draw_tokens(problem, count, seed=seed, stream=EVALUATION, step=first, queries=QUERIES)
    return problem.moments(count, seed=seed, stream=EVALUATION, first=first, sums=sums)


def draw_tokens(problem: BaseProblem, count: int, **key: int) -> Draw:
    """Draw whole sequences, with their moments and the weights of the oracle.

    Args:
        problem: The distribution of sequences.
        count: How many.
        **key: Seed, stream, step, and number of queries, as `problem.sequences` takes them.

    Returns:
        The draw, with its `tokens`.
    """
    tokens = problem.sequences(count, **key)
    if isinstance(problem, Problem):
        found = Draw(tokens.moments, np.asarray(tokens.task), np.asarray(tokens.task), tokens.sigma, tokens.metric)
        return replace(with_oracle(found, problem), tokens=tokens)
    return replace(from_tokens(tokens), tokens=tokens)


def with_oracle(draw: Draw, problem: Problem) -> Draw:
    """Return a draw with the weights of the oracle, which knows the noise level.

    Args:
        draw: The draw, whose moments hold the noise levels.
        problem: What it was drawn from.

    Returns:
        The draw with its `ridge`.
    """
    if problem.has_pool:
        return replace(draw, ridge=oracle_of_pool(problem.tasks, draw.moments))
    return replace(draw, ridge=OracleRR(problem.prior).weights(draw.moments))


def needed(predictors: Iterable[object]) -> dict[str, bool]:
    """Return what predictors need beside moments, as options of `draw_sequences`.

    Args:
        predictors: The predictors.

    Returns:
        `sums` and `tokens`: what `needs_sums` and `needs_tokens` say.
    """
    every = list(predictors)
    return {"sums": needs_sums(every), "tokens": any(needs_tokens(one) for one in every)}


def needs_sums(predictors: Iterable[object]) -> bool:
    """Return whether a model among the predictors has tokens with a further coordinate, so that it needs their sums.

    Args:
        predictors: The predictors.

    Returns:
        Whether there is such a model.
    """
    return any(_layout(one.model if isinstance(one, Guarded) else one).coordinate != "none" for one in predictors)


def evaluated_by_engine(predictor: object) -> TypeGuard[LinearTransformer]:
    """Return whether the engine computes what the predictor predicts: a subclass may override `weights`.

    Args:
        predictor: The predictor.

    Returns:
        Whether its class is `LinearTransformer` itself.
    """
    return type(predictor) is LinearTransformer


def adjusted_losses(predictor: AnyPredictor, draw: Draw) -> Array:
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
    predictors: Mapping[str, AnyPredictor],
    problem: BaseProblem,
    estimator: Estimator,
    seed: int,
    first: int,
    count: int,
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
    draw = draw_sequences(problem, seed, first, count, **needed(predictors.values()))
    for column, predictor in enumerate(predictors.values()):
        losses = _losses(predictor, draw, estimator, (seed, first))
        adjusted[:, column], unadjusted[:, column] = losses
    return adjusted, unadjusted, draw


def _layout(predictor: object) -> Layout:
    """What the tokens of a predictor hold: a model and its module in PyTorch say so."""
    found = getattr(predictor, "layout", None)
    return found if isinstance(found, Layout) else PAPER_LAYOUT


def _numbers(given: Any) -> Array:
    """What a predictor gives, as an array."""
    if hasattr(given, "detach"):  # by a module of PyTorch
        given = given.detach().cpu()
    return np.asarray(given, np.float64)


def _weights(predictor: Predictor, draw: Draw) -> Array:
    """The weights that the predictor gives, [B, d]."""
    weights, shape = _numbers(predictor.weights(draw.moments)), draw.task.shape
    if weights.shape != shape:
        refuse(f"weights must have shape {shape}", f"shape {weights.shape}", "Correct the predictor.")
    return weights


def _token_losses(predictor: TokenPredictor, draw: Draw, estimator: Estimator) -> tuple[Array, Array]:
    """The same through the queries of the sequences.

    Given the context, the query and sigma, the answer is the oracle's prediction plus something of mean 0. So the mean
    squared difference from the oracle's prediction is the adjusted loss.
    """
    tokens = draw.tokens
    assert tokens is not None
    answers, found = np.asarray(tokens.answers, np.float64), np.empty(tokens.answers.shape)
    for index, part in draw.moments.by_length():
        n = part.counts[0]
        given: Any = predictor.predict(tokens.x[index, :n], tokens.y[index, :n], tokens.queries[index])
        if np.shape(given) != answers[index].shape:
            wanted = answers[index].shape
            refuse(f"predictions must have shape {wanted}", f"shape {np.shape(given)}", "Correct the predictor.")
        found[index] = given
    with np.errstate(all="ignore"):
        unadjusted = 0.5 * np.square(found - answers).mean(1)
        if not draw.oracle:
            return unadjusted, unadjusted
        oracle = np.einsum("bmd,bd->bm", tokens.queries, draw.ridge)
        if estimator == "query":
            return unadjusted - 0.5 * np.square(oracle - answers).mean(1), unadjusted
        return 0.5 * np.square(found - oracle).mean(1), unadjusted


def _losses(predictor: AnyPredictor, draw: Draw, estimator: Estimator, key: tuple[int, int]) -> tuple[Array, Array]:
    """Adjusted and unadjusted losses of a predictor, each [B]."""
    if not isinstance(predictor, Predictor):
        return _token_losses(predictor, draw, estimator)
    weights = _weights(predictor, draw)
    counted = _layout(predictor).counted
    bias = _numbers(predictor.intercepts(draw.moments)) if counted else None  # type: ignore[attr-defined]
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
