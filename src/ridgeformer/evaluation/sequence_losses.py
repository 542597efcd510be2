"""The losses of single sequences, and their means, standard errors and extremes.

`check_predictor` finds out once what a predictor is; from then on the `Candidate` is asked. A predictor with
`weights(moments)` or `token_weights(x, y)` has exact losses. One that only has `predict(x, y, queries)` is asked for
the labels of sampled queries. All see the same sequences.

Only an object whose class is `LinearTransformer` itself is evaluated without calling `weights`, because a subclass may
predict something else: the engine then computes its losses.

Statistics are added up block by block: memory does not grow with the number of sequences. A row of losses gives the
same bits whatever the other rows are: sums run along one row at a time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ridgeformer.engine import PAPER_LAYOUT, Layout
from ridgeformer.errors import kind_of, refuse
from ridgeformer.losses import capped, exploded
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.predictors.base import LinearTokenPredictor, Predictor, TokenPredictor
from ridgeformer.problems import BaseProblem, Draw, Problem, Sequences
from ridgeformer.problems.base import check_any_problem
from ridgeformer.validation import Array, integer

Estimator = Literal["exact", "query"]
Progress = Callable[[int, int], None]
AnyPredictor = Predictor | TokenPredictor
LARGEST, AT_ONCE = 1 << 25, 1 << 22  # numbers in a block of usual size, at most; and otherwise
EVALUATION = 1 << 30  # the stream that evaluation draws from
QUERIES = 4  # of each sequence, where predictors need tokens
TOKENS = 1 << 25  # numbers in the tokens of a block of sequences, at most


def how_many(problem: BaseProblem, sequences: int) -> int:
    """Return the number of sequences to evaluate on: as many as asked for, but no more than a data set has.

    Args:
        problem: The distribution of sequences.
        sequences: How many are asked for, at least 2.

    Returns:
        The number.
    """
    count = integer("sequences", sequences, 2)
    return count if problem.size is None else min(count, problem.size)


def blocks(sequences: int, dim: int, most: int) -> Iterator[tuple[int, int]]:
    """Divide sequences into blocks, whose Gram matrices fit into some hundred megabytes at once.

    Args:
        sequences: How many sequences.
        dim: Their dimension.
        most: How many make a block where the dimension is not large.

    Yields:
        The number of the first sequence of every block, and how many it has.
    """
    size = (dim + 1) ** 2
    block = most if most * size <= LARGEST else max(1, AT_ONCE // size)
    for first in range(0, sequences, block):
        yield first, min(block, sequences - first)


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
        tokens: Whether to draw their tokens and a few queries, too. All else stays the same, to the bit.

    Returns:
        The draw.

    Raises:
        InputError: Tokens are asked for, and the problem only draws moments.
    """
    key: dict[str, Any] = {"seed": seed, "stream": EVALUATION, "first": first}
    if not tokens:
        return problem.moments(count, sums=sums, **key)
    if problem.has_known_laws:
        draw = problem.moments(count, sums=True, **key)
        return replace(draw, tokens=_tokens_of(draw, np.random.default_rng((seed, first, EVALUATION, 1))))
    return problem.moments(count, tokens=True, **key)


def _tokens_of(draw: Draw, rng: np.random.Generator) -> Sequences:
    """Random tokens with the moments of a draw, and queries.

    Given the mean and the covariance of the tokens (x, y) of a context, all rotations of the examples that keep the
    vector of ones are equally likely: rows are independent and normal before any standardisation.
    """
    moments, (count, dim) = draw.moments, draw.task.shape
    e = np.zeros((count, int(moments.counts.max()), dim + 1))
    for index, part in moments.by_length():
        n, sums = int(part.counts[0]), np.asarray(part.sums, np.float64)
        scatter, free = part.gram - sums[:, :, None] * sums[:, None, :] / n, min(n - 1, dim + 1)
        if free > dim:
            root = np.swapaxes(_root(scatter), 1, 2)
        else:  # the scatter has this rank
            values, basis = (part[..., dim + 1 - free :] for part in np.linalg.eigh(scatter))
            root = np.swapaxes(basis * np.sqrt(np.maximum(values, 0.0))[:, None, :], 1, 2)
        noise = rng.standard_normal((len(sums), n, free))
        frame, triangle = np.linalg.qr(noise - noise.mean(1, keepdims=True))
        signs = np.where(np.einsum("bii->bi", triangle) < 0, -1.0, 1.0)  # makes all frames equally likely
        e[index, :n] = (frame * signs[:, None, :]) @ root + sums[:, None, :] / n
    queries = rng.standard_normal((count, QUERIES, dim))
    metric = None if draw.metric is None else np.asarray(draw.metric, np.float64)
    if metric is not None:
        queries = queries @ np.swapaxes(_root(metric), -1, -2)
    task = np.asarray(draw.task, np.float64)
    answers, context = np.einsum("bmd,bd->bm", queries, task), moments.context
    counts = None if isinstance(context, int) else context
    return Sequences(e[..., :dim], e[..., dim], queries, answers, task, draw.sigma, counts, metric)


class Oracle:
    """The predictor that losses are adjusted by: E[w | context, sigma], which knows the noise level and any pool.

    Args:
        problem: A built-in problem.
    """

    knows_sigma = True

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def weights(self, moments: Moments) -> Array:
        """Return the posterior means of the tasks.

        Args:
            moments: The contexts, with their noise levels.

        Returns:
            The weights, [B, d].
        """
        return self.problem.oracle(moments)


class Candidate:
    """A predictor with `weights(moments)`, as an evaluation asks it; other kinds of predictors are subclasses.

    Args:
        predictor: The predictor.

    Attributes:
        layers: The number of layers after which it can be read out; None where there are none.
        needs_tokens: Whether it needs tokens.
        needs_sums: Whether its tokens have a further coordinate, so that it needs their sums.
        knows_sigma: Whether it uses the true noise level; see `Predictor`.
        actual: The model that it really is, where that is a simpler or shallower one than it says; else nothing.
    """

    layers: int | None = None
    needs_tokens = False
    actual = ""

    def __init__(self, predictor: Any) -> None:
        self.predictor = predictor
        self.needs_sums = needs_sums(predictor)
        self.knows_sigma: bool = getattr(predictor, "knows_sigma", False)

    def at(self, problem: BaseProblem, *, moved: bool = False) -> Candidate:
        """Return the predictor for a problem.

        Args:
            problem: The distribution of sequences.
            moved: Whether a model for another dimension is taken to the dimension of the problem.

        Returns:
            The predictor.

        Raises:
            InputError: It is a model for another dimension.
        """
        if isinstance(self.predictor, LinearTransformer) and self.predictor.dim != problem.dim:
            rule = f"a model for dimension {self.predictor.dim} needs a problem of that dimension"
            refuse(rule, f"dimension {problem.dim}", "Use a problem or a model of the same dimension.")
        return self

    def after(self, layer: int | None) -> Candidate:
        """Return the readout after a layer.

        Args:
            layer: The layer, 0 for the readout before the first one; None for the predictor itself.

        Returns:
            The readout.
        """
        return self

    def estimates(self, draw: Draw) -> tuple[Array, Array | None]:
        """Ask for the weights.

        Args:
            draw: The sequences.

        Returns:
            The weights, [B, d], and the intercepts, [B], if there are any.
        """
        weights = _numbers(self.predictor.weights(draw.moments), "weights", draw.task.shape)
        return weights, _numbers(self.predictor.intercepts(draw.moments)) if _layout(self.predictor).counted else None

    def losses(self, draw: Draw, estimator: Estimator = "exact", key: tuple[int, int] = (0, 0)) -> tuple[Array, Array]:
        """Compute the adjusted and the unadjusted losses; they are equal where there is no oracle.

        The bits do not depend on what else is computed: the engine evaluates models, and NumPy everything else.

        Args:
            draw: The sequences.
            estimator: `exact`, or `query` for losses at one sampled query.
            key: Seed and number of the first sequence, for the sampled queries.

        Returns:
            Both losses, [B] each.
        """
        weights, bias = self.estimates(draw)
        if estimator == "exact":
            return draw.both_losses(weights, bias)
        query = np.random.default_rng((*key, EVALUATION)).standard_normal(draw.task.shape)
        if draw.metric is not None:
            root = _root(np.asarray(draw.metric, np.float64))
            query = query @ root.T if root.ndim == 2 else np.einsum("bij,bj->bi", root, query)
        unadjusted = 0.5 * np.square(((weights - draw.task) * query).sum(1) + (0.0 if bias is None else bias))
        if bias is not None:
            unadjusted = unadjusted + bias * draw.mean_error(weights, draw.task)
        total = unadjusted if draw.offset is None else unadjusted + draw.offset
        if not draw.oracle:
            return total, total
        return unadjusted - 0.5 * np.square(((draw.ridge - draw.task) * query).sum(1)), total


class _Oracle(Candidate):
    """The oracle, which moments are not enough for where noise differs from token to token."""

    def estimates(self, draw: Draw) -> tuple[Array, Array | None]:
        per_token = self.predictor.problem.noise.per_token
        return (np.asarray(draw.ridge, np.float64), None) if per_token else super().estimates(draw)


class _Zero:
    """The readout before the first layer, which predicts 0."""

    def weights(self, moments: Moments) -> Array:
        return np.zeros((len(moments), moments.dim))


class _Model(Candidate):
    """A linear transformer, whose exact losses the engine computes."""

    predictor: LinearTransformer

    def __init__(self, predictor: LinearTransformer) -> None:
        super().__init__(predictor)
        self.layers, self.actual = predictor.layers, predictor.actual

    def at(self, problem: BaseProblem, *, moved: bool = False) -> Candidate:
        return _Model(self.predictor.at_dim(problem.dim)) if moved else super().at(problem)

    def after(self, layer: int | None) -> Candidate:
        if layer is None:
            return self
        return _Model(self.predictor.truncate(layer)) if layer else Candidate(_Zero())

    def losses(self, draw: Draw, estimator: Estimator = "exact", key: tuple[int, int] = (0, 0)) -> tuple[Array, Array]:
        if estimator == "query" or not draw.oracle:
            return super().losses(draw, estimator, key)
        goal = draw.with_intercept() if self.predictor.layout.counted else draw
        model = self.predictor.astype(np.float64)
        evaluation = model.evaluate(draw.moments, goal.ridge, metric=goal.metric, weights=True)
        assert evaluation.weights is not None
        unadjusted = goal.losses(evaluation.weights, goal.task)
        return evaluation.losses.astype(np.float64), unadjusted + (0.0 if goal.offset is None else goal.offset)


class _OfTokens(Candidate):
    """A predictor that needs tokens, and is judged through the queries of the sequences or by weights made of tokens.

    Given the context, the query and sigma, the answer is the oracle's prediction plus something of mean 0. So the mean
    squared difference from the oracle's prediction is the adjusted loss.
    """

    needs_tokens = True

    def losses(self, draw: Draw, estimator: Estimator = "exact", key: tuple[int, int] = (0, 0)) -> tuple[Array, Array]:
        tokens, predictor = draw.tokens, self.predictor
        assert tokens is not None
        linear = estimator == "exact" and isinstance(predictor, LinearTokenPredictor)
        values = np.empty(draw.task.shape if linear else tokens.answers.shape)
        for index, part in draw.moments.by_length():
            n = part.counts[0]
            x, y = tokens.x[index, :n], tokens.y[index, :n]
            estimates = predictor.token_weights(x, y) if linear else predictor.predict(x, y, tokens.queries[index])
            values[index] = _numbers(estimates, "weights" if linear else "predictions", values[index].shape)
        if linear:
            return draw.both_losses(values)
        answers = np.asarray(tokens.answers, np.float64)
        unadjusted = 0.5 * np.square(values - answers).mean(1)
        if not draw.oracle:
            return unadjusted, unadjusted
        oracle = np.einsum("bmd,bd->bm", tokens.queries, draw.ridge)
        if estimator == "query":
            return unadjusted - 0.5 * np.square(oracle - answers).mean(1), unadjusted
        return 0.5 * np.square(values - oracle).mean(1), unadjusted


def check_predictor(name: str, predictor: object, problem: BaseProblem) -> Candidate:
    """Return a predictor as evaluations ask it.

    Args:
        name: The name of the predictor, for the message.
        predictor: The predictor.
        problem: The distribution of sequences.

    Returns:
        The candidate.

    Raises:
        InputError: It is no predictor, or a model of another dimension; or the other object is no problem.
    """
    kind: type[Candidate] | None = _OfTokens if _predicts(predictor) else None
    if isinstance(predictor, Predictor):
        kind = _Oracle if isinstance(predictor, Oracle) else Candidate
        kind = _Model if type(predictor) is LinearTransformer else kind
    if isinstance(predictor, type) or kind is None:
        rule = f"{name} must be a predictor, with weights(moments) or predict(x, y, queries)"
        substitute = "its attribute model" if hasattr(predictor, "model") else "a model, or a baseline such as AdaRR()"
        refuse(rule, kind_of(predictor), f"Pass {substitute}.")
    return kind(predictor).at(check_any_problem(problem))


def _predicts(predictor: object) -> bool:
    """Whether there is a method `predict(x, y, queries)`."""
    if not isinstance(predictor, TokenPredictor):
        return False
    try:
        inspect.signature(predictor.predict).bind(None, None, None)
    except (TypeError, ValueError):  # predicts from something else
        return False
    return True


def needs_sums(predictor: object) -> bool:
    """Return whether a model has tokens with a further coordinate, so that it needs their sums.

    Args:
        predictor: The model, or another predictor.

    Returns:
        Whether it does.
    """
    return _layout(predictor).coordinate != "none"


def _layout(predictor: object) -> Layout:
    """The layout of the tokens of a predictor; a model, its module in PyTorch and a guarded model have one."""
    layout = getattr(predictor, "layout", None)
    return layout if isinstance(layout, Layout) else PAPER_LAYOUT


def _numbers(value: Any, name: str = "", shape: tuple[int, ...] = ()) -> Array:
    """The estimates of a predictor as an array, of this shape where it has a name."""
    if hasattr(value, "detach"):  # by a module of PyTorch
        value = value.detach().cpu()
    if name and np.shape(value) != shape:
        refuse(f"{name} must have shape {shape}", f"shape {np.shape(value)}", "Correct the predictor.")
    kind = "complex numbers" if np.iscomplexobj(value) else "masked entries" if np.ma.is_masked(value) else ""
    if not kind:
        try:
            return np.asarray(value, np.float64)
        except (TypeError, ValueError):
            kind = kind_of(value)
    refuse("a predictor must return real numbers", kind, "Correct the predictor.")


def _root(metric: Array) -> Array:
    """R with R R' = metric, [..., d, d]; the metric of a few queries is singular."""
    try:
        return np.asarray(np.linalg.cholesky(metric), np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(metric)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


class Tally:
    """Means of rows of losses, with their standard errors and covariance, the largest losses, and how many exploded.

    Args:
        rows: How many rows there are, such as (2, K): the covariance is that of the K last ones.
        signal: The mean square of what is to be predicted, which decides when a loss counts as exploded and when it is
            too large for a mean.
        sequences: How many sequences there will be in all; 1 in 10,000 of the largest losses is stored.

    Attributes:
        count: How many sequences there are so far.
        mean: The means, [*rows].
        exploded: How many sequences exploded, [*rows].
    """

    def __init__(self, rows: tuple[int, ...], signal: float, sequences: int) -> None:
        self.signal, self.count, self.mean = signal, 0, np.zeros(rows)
        self._squares, self._products = np.zeros(rows), np.zeros((*rows, rows[-1]))
        self.exploded, self._calm = np.zeros(rows, np.int64), np.zeros(rows)
        self._most, self._top = max(int(np.ceil(sequences * 1e-4)), 1), np.empty((*rows, 0))

    def add(self, losses: Array) -> Array:
        """Add one block of losses.

        Args:
            losses: The losses, [*rows, b].

        Returns:
            The losses capped, as they enter the mean, [*rows, b].
        """
        explosions, losses = exploded(losses, self.signal), capped(losses, self.signal)
        count, mean = losses.shape[-1], losses.mean(-1)
        centred, shift, total = losses - mean[..., None], mean - self.mean, self.count + count
        weight = self.count * count / total
        # Chan's update keeps the sums accurate over any number of blocks.
        squares = [np.einsum("b,b->", row, row) for row in centred.reshape(-1, count)]
        self._squares += np.reshape(squares, shift.shape) + shift * shift * weight
        products = centred @ np.swapaxes(centred, -1, -2)
        self._products += products + shift[..., :, None] * shift[..., None, :] * weight
        self.mean += shift * count / total
        self.count = total
        self.exploded += explosions.sum(-1)
        self._calm += np.where(explosions, 0.0, losses).sum(-1)
        highest = np.concatenate([self._top, losses], -1)
        if highest.shape[-1] > self._most:
            highest = np.partition(highest, highest.shape[-1] - self._most, axis=-1)[..., -self._most :]
        self._top = np.sort(highest, axis=-1)
        return losses

    @property
    def error(self) -> Array:
        """Standard errors of the means, [*rows]."""
        return np.asarray(np.sqrt(self._squares / max(self.count - 1, 1) / self.count))

    @property
    def covariance(self) -> Array:
        """The covariance of the means, [*rows, K]."""
        covariance = self._products / max(self.count - 1, 1) / self.count
        diagonal = np.arange(covariance.shape[-1])
        covariance[..., diagonal, diagonal] = self.error**2
        return np.asarray(covariance)

    @property
    def unexploded(self) -> Array:
        """Means over the sequences that did not explode, [*rows]; NaN where all did."""
        left = self.count - self.exploded
        return np.where(left > 0, self._calm / np.maximum(left, 1), np.nan)

    @property
    def largest(self) -> Array:
        """The largest losses, [*rows]."""
        return np.asarray(self._top[..., -1])

    @property
    def tail(self) -> Array:
        """The 99.99 % quantiles of the losses, [*rows]."""
        return np.asarray(self._top[..., 0])
