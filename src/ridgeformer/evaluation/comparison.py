"""The one way to measure losses: of several predictors, of one, and of the best possible one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ridgeformer.errors import refuse, shown
from ridgeformer.evaluation.axes import TITLE, Over, Points, short_label
from ridgeformer.evaluation.explosions import explosion_probability
from ridgeformer.evaluation.results import BY_PREDICTOR, Loss, Losses
from ridgeformer.evaluation.sequence_losses import (
    TOKENS,
    AnyPredictor,
    Estimator,
    Progress,
    Tally,
    blocks,
    check_predictor,
    evaluated_by_engine,
    how_many,
    losses,
    needed,
)
from ridgeformer.losses import warn_below_floor
from ridgeformer.moments import Moments
from ridgeformer.problems import BaseProblem, Draw
from ridgeformer.problems.base import check_any_problem
from ridgeformer.validation import Array, choice, integer, keywords

BLOCK = 16_384  # sequences at a time, at most: memory does not grow with their number
FLOORS = 64  # floors that are remembered
LONG = 200  # characters that the name of a predictor may have
_floors: dict[tuple[Any, ...], Loss] = {}  # by problem, prefix, number of sequences and seed


@keywords()
def compare(
    problem: BaseProblem,
    predictors: AnyPredictor | Mapping[str, AnyPredictor] | Sequence[AnyPredictor],
    over: Over = None,
    *,
    sequences: int | None = None,
    seed: int = 0,
    estimator: Estimator = "exact",
    with_floor: bool = True,
    with_query_errors: bool = False,
    explosions: bool = False,
    progress: Progress = lambda done, total: None,
) -> Losses:
    """Measure the losses of predictors on the same sequences, so that differences are sharper than the losses.

    A predictor has the same losses, to the bit, whatever it is compared with, and on the axis `layer`.

    Args:
        problem: The distribution of sequences.
        predictors: What to evaluate: a dict by name, a list, or one predictor. A predictor with the attribute
            `knows_sigma = True`, such as `OracleRR`, may have a loss below the floor.
        over: None; the name of an axis, whose default values are used; or a dict of values by axis, where None stands
            for the defaults. Several axes give all combinations. The axes are `layer` (the readout after each layer of
            models; 0 predicts 0), `sigma` (noise levels), `context` (numbers of examples: prefixes of the same
            sequences; for ranges of numbers, for standardised features and for contexts of more than 33 million
            numbers, other sequences), `noise`, `features`, `tasks` and `query` as `Problem` takes them, or the
            arguments of a problem of your own, and `problem` (a list, or a dict by name).
        sequences: How many fresh sequences to use at each point, at least 2. The default is 100,000, and 20,000 with
            the axes `sigma` and `context`.
        seed: Seed of these sequences.
        estimator: `exact` or `query`; see `evaluate`.
        with_floor: Whether to measure the floor on the same sequences. Without it, the floor is NaN.
        with_query_errors: Whether to add the standard errors that the paper's estimator has on as many sequences.
        explosions: Whether to add the probabilities that a sequence explodes, as `explosion_probability` measures them;
            a few seconds for each predictor and point. Prefixes of sequences have none.
        progress: Called with the work done and the whole work, in sequences.

    Returns:
        The losses: a table that prints, and can be drawn with `plot()`.

    Raises:
        InputError: There is no predictor, one of them is not a predictor, or an argument is not allowed.

    Warns:
        BelowFloorWarning: A loss is more than 4 standard errors below the floor.
    """
    comparison = _Comparison(problem, predictors, over, sequences, seed, estimator, with_floor, with_query_errors)
    rare: dict[str, Any] = comparison.explosions() if explosions else {}
    comparison.run(progress)
    return replace(comparison.losses(), **rare)


@keywords()
def evaluate(
    problem: BaseProblem,
    predictor: AnyPredictor,
    *,
    sequences: int = 100_000,
    seed: int = 0,
    estimator: Estimator = "exact",
    with_floor: bool = True,
    progress: Progress = lambda done, total: None,
) -> Loss:
    """Evaluate one predictor on fresh sequences: one row of `compare`.

    Args:
        problem: The distribution of sequences.
        predictor: A model, a baseline, or anything else with `weights(moments)` or `predict(x, y, queries)`. What only
            has the latter is evaluated through four sampled queries per sequence.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.
        estimator: `exact` averages 1/2 |w_hat - w_ridge(sigma)|^2. `query` is the paper's estimator: it samples a query
            and subtracts the oracle's loss. It has the same mean and a larger error.
        with_floor: Whether to measure the floor on the same sequences; it is measured once per problem, number of
            sequences and seed. Without it, the floor is NaN.
        progress: Called with the number of sequences done and the number of all.

    Returns:
        The loss, its standard error, the floor, and how many sequences exploded.

    Raises:
        InputError: The predictor is not a predictor, or a number is out of range.

    Warns:
        BelowFloorWarning: The loss is more than 4 standard errors below the floor.
    """
    name = shown(predictor, LONG)
    losses = compare(
        problem,
        {name: predictor},
        sequences=sequences,
        seed=seed,
        estimator=estimator,
        with_floor=with_floor,
        progress=progress,
    )
    loss: Loss = losses[name]
    return loss


@keywords()
def floor(problem: BaseProblem, *, sequences: int = 100_000, seed: int = 0) -> Loss:
    """Measure the floor: no predictor has a smaller expected loss on average over the problem's noise levels.

    Args:
        problem: The distribution of sequences.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.

    Returns:
        The loss of the best predictor, which is the floor.

    Raises:
        InputError: The problem is not a `Problem`, or a number is out of range.
    """
    best = check_any_problem(problem).best_predictor()
    if best is None:
        rule = "a floor needs a problem whose best predictor is known"
        received = f"{problem}, which supplies none"
        refuse(rule, received, "Write a method best_predictor() in its class, or leave the floor unknown.")
    key = (problem, None, how_many(problem, sequences), integer("seed", seed, 0))
    if key in _floors:
        return _floors[key]
    loss = compare(problem, {"floor": best}, sequences=sequences, seed=seed, with_floor=False)["floor"]
    return _remember(key, replace(loss, floor=loss.loss, floor_error=loss.error))


class Zero:
    """The readout before the first layer, which predicts 0."""

    def weights(self, moments: Moments) -> Array:
        """Return zeros.

        Args:
            moments: The contexts.

        Returns:
            The weights, [B, d].
        """
        return np.zeros((len(moments), moments.dim))


class _PointStatistics:
    """Statistics of the losses at one point: of all columns, and of the best predictor if it is to be measured."""

    def __init__(self, columns: Sequence[AnyPredictor], signal: float, sequences: int) -> None:
        self.columns, self.signal, self.adjusted = list(columns), signal, True
        self.tally, self.whole = (Tally(len(columns), signal, sequences) for _ in range(2))
        self.by_query = np.zeros(len(columns))

    def add(self, draw: Draw, estimators: Sequence[Estimator], key: tuple[int, int], with_query_errors: bool) -> None:
        """Add a block of sequences; each column has its estimator."""
        both = np.empty((2, len(self.columns), len(draw.moments)))
        for i, (predictor, estimator) in enumerate(zip(self.columns, estimators, strict=False)):
            both[:, i] = losses(predictor, draw, estimator, key)
        adjusted, unadjusted = self.tally.add(both[0]), self.whole.add(both[1])
        self.adjusted = draw.oracle
        if with_query_errors:
            # Given w, with p, o and l the halves of |w - w_task|^2, |w_ridge - w_task|^2 and |w - w_ridge|^2, the loss
            # at one query has the mean l and the variance 2 p^2 + 2 o^2 - (p + o - l)^2.
            oracle = draw.losses(draw.ridge, draw.task)
            self.by_query += (2 * unadjusted**2 + 2 * oracle**2 - (unadjusted + oracle - adjusted) ** 2).sum(1)

    def columns_of(self, field: str) -> Array:
        """A field of `Losses` for every column."""
        if field == "query_error":
            return np.sqrt(np.maximum(self.by_query / self.tally.count**2 + self.tally.error**2, 0.0))
        source = self.whole if field.startswith("unadjusted") else self.tally
        names = {"loss": "mean", "unadjusted": "mean", "unadjusted_error": "error"}
        return np.asarray(getattr(source, names.get(field, field)))

    def row(self, i: int, **shared: Any) -> Loss:
        """One column as a floor."""
        values = {field: self.columns_of(field)[i].item() for field in BY_PREDICTOR}
        values |= {"floor": values["loss"], "floor_error": values["error"], "signal": self.signal}
        return Loss(**values, adjusted=self.adjusted, sequences=self.tally.count, **shared)


class _Comparison:
    """The work of `compare`, which describes the arguments."""

    def __init__(
        self,
        problem: BaseProblem,
        predictors: Any,
        over: Over,
        sequences: int | None,
        seed: int,
        estimator: Estimator,
        with_floor: bool,
        with_query_errors: bool,
    ) -> None:
        check_any_problem(problem)
        self.predictors = _named(predictors)
        for name, predictor in self.predictors.items():
            check_predictor(name, predictor, problem)
        models = [one for one in self.predictors.values() if evaluated_by_engine(one)]
        deepest = max(model.layers for model in models) if len(models) == len(self.predictors) else None
        self.points = Points(problem, over, deepest)
        for other in self.points.problems:
            for name, predictor in self.predictors.items():
                check_predictor(name, self._fitting(predictor, other), other)
        self.estimator: Estimator = choice("the estimator", estimator, ("exact", "query"))
        many = not {"sigma", "context"} & self.points.axes.keys()
        wanted = sequences if sequences is not None else 100_000 if many else 20_000
        self.sequences = min(how_many(one, wanted) for one in self.points.problems)
        self.seed, self.with_query_errors = integer("seed", seed, 0), with_query_errors
        self.places, self.columns = self._columns()
        self._prepare(with_floor and "sigma" not in self.points.axes)

    def _fitting(self, predictor: AnyPredictor, problem: BaseProblem) -> AnyPredictor:
        """The predictor at the dimension of a problem, along the axis of dimensions."""
        along = "dim" in self.points.axes and evaluated_by_engine(predictor)
        return predictor.at_dim(problem.dim) if along else predictor  # type: ignore[union-attr]

    def _columns(self) -> tuple[list[tuple[int, int]], list[AnyPredictor]]:
        """The readouts that are evaluated on every draw, with their predictors and layers."""
        layers = self.points.axes.get("layer")
        self.layers = len(layers or (0,))
        if layers is None:
            return [(k, 0) for k in range(len(self.predictors))], list(self.predictors.values())
        places, columns = [], list[AnyPredictor]()
        for k, model in enumerate(self.predictors.values()):
            assert evaluated_by_engine(model)
            for i, layer in enumerate(layers):
                if layer <= model.layers:
                    places.append((k, i))
                    columns.append(model.truncate(layer) if layer else Zero())
        return places, columns

    def _prepare(self, with_floor: bool) -> None:
        """Set up the points: each measures its floor, unless that is known from earlier."""
        bests = [one.best_predictor() if with_floor else None for one in self.points.problems]
        self.needs = needed([*self.columns, *(best for best in bests if best is not None)])
        lengths = self.points.prefixes or (None,)
        self.measured, self.floors = list[_PointStatistics](), list[Any]()
        for problem, best in zip(self.points.problems, bests, strict=True):
            for n in lengths:
                key = (problem, n, self.sequences, self.seed)
                known = None if best is None else _floors.get(key, (key, best))
                columns: list[Any] = [self._fitting(column, problem) for column in self.columns]
                columns += [best] if isinstance(known, tuple) else []
                self.measured.append(_PointStatistics(columns, problem.signal, self.sequences))
                self.floors.append(known)

    def run(self, progress: Progress) -> None:
        """Draw and evaluate, block by block."""
        estimators: list[Estimator] = [*[self.estimator] * len(self.columns), "exact"]
        many, seed, most = len(self.measured), self.seed, BLOCK
        if self.needs["tokens"] or self.points.prefixes:
            numbers = [max(self.points.prefixes or (one.lengths.most,)) * (one.dim + 1) for one in self.points.problems]
            most = max(1, min(BLOCK, TOKENS // max(numbers)))
        for first, count in blocks(self.sequences, max(one.dim for one in self.points.problems), most):
            draws = self.points.draws(seed, first, count, self.needs)
            for i, (point, draw) in enumerate(zip(self.measured, draws, strict=True)):
                point.add(draw, estimators, (seed, first), self.with_query_errors)
                progress(first * many + count * (i + 1), self.sequences * many)
        for i, (point, known) in enumerate(zip(self.measured, self.floors, strict=True)):
            if isinstance(known, tuple):
                key, best = known
                self.floors[i] = _remember(key, point.row(-1, name=repr(best), estimator="exact"))

    def losses(self) -> Losses:
        """Gather the losses, and warn of those that are below their floors."""
        points, arranged, layers = self.points, self.points.arranged, self.layers
        signals = [point.signal for point in self.measured]
        shared = [signals] + [
            [np.nan if one is None else getattr(one, name) for one in self.floors] for name in ("loss", "error")
        ]
        signal, least, spread = (arranged(np.broadcast_to(one, (layers, len(one)))) for one in shared)
        losses = Losses(
            names=tuple(self.predictors),
            axes=points.axes,
            in_distribution=points.in_distribution,
            **{field: self._gathered(field) for field in BY_PREDICTOR},
            floor=least,
            floor_error=spread,
            signal=signal,
            covariance=arranged(self._covariance()),
            query_error=self._gathered("query_error") if self.with_query_errors else None,
            sequences=self.sequences,
            estimator=self.estimator,
            adjusted=all(point.adjusted for point in self.measured),
            problem=short_label(points.problem, TITLE),
        )
        for row in losses.rows():
            if not getattr(self.predictors[row["name"]], "knows_sigma", False):
                name = f"{row['name']} after layer {row['layer']}" if "layer" in row else row["name"]
                warn_below_floor(name, *(row[key] for key in ("loss", "error", "floor", "floor_error", "signal")))
        return losses

    def explosions(self) -> dict[str, Any]:
        """The probabilities of explosions, their errors and effective hits, [K, *points] each."""
        if self.points.prefixes:
            refuse("explosion probabilities are those of whole contexts", "the axis context", "Leave out one of them.")
        points, seed = self.points.problems, self.seed
        rare = [[explosion_probability(q, self._fitting(p, q), seed=seed) for q in points] for p in self.columns]
        fields = {}
        for name in ("probability", "error", "hits"):
            values = np.array([[getattr(one, name) for one in row] for row in rare])
            fields[f"explosion_{name}"] = self._spread(values, np.nan)
        return fields

    def _gathered(self, field: str) -> Any:
        """A field of `Losses`, [K, *points]."""
        values = np.stack([point.columns_of(field)[: len(self.columns)] for point in self.measured], -1)
        return self._spread(values, 0 if field == "exploded" else np.nan)

    def _spread(self, values: Any, empty: float) -> Any:
        """Values of all columns [C, points] as [K, *points], with `empty` after the last layer of a model."""
        whole = np.full((len(self.predictors), self.layers, len(self.measured)), empty, values.dtype)
        whole[tuple(np.transpose(self.places))] = values
        return self.points.arranged(whole)

    def _covariance(self) -> Array:
        """The covariance of predictors at the same layer, [K, K, layers, points]."""
        whole = np.full((len(self.predictors),) * 2 + (self.layers, len(self.measured)), np.nan)
        names, layers = np.transpose(self.places)
        a, b = np.nonzero(layers[:, None] == layers)
        whole[names[a], names[b], layers[a]] = np.stack([one.tally.covariance[a, b] for one in self.measured], -1)
        return whole


def _named(predictors: Any) -> dict[str, AnyPredictor]:
    """Predictors by name, which is their `repr` where they have none."""
    if isinstance(predictors, Mapping):
        named = dict(predictors)
    else:
        named = {}
        for one in predictors if isinstance(predictors, list | tuple) else [predictors]:
            name = shown(one, LONG)
            again = sum(shown(known, LONG) == name for known in named.values())
            named[f"{name} ({again + 1})" if again else name] = one
    if not named:
        rule = "a comparison needs at least one predictor"
        refuse(rule, f"an empty {type(predictors).__name__}", "Pass {name: predictor}.")
    return named


def _remember(key: tuple[Any, ...], loss: Loss) -> Loss:
    while len(_floors) >= FLOORS:
        _floors.pop(next(iter(_floors)))
    _floors[key] = loss
    return loss
