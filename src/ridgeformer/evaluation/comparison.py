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
    Candidate,
    Estimator,
    Progress,
    Tally,
    blocks,
    check_predictor,
    how_many,
)
from ridgeformer.losses import warn_below_floor
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
    check_any_problem(problem)
    candidates = {name: check_predictor(name, predictor, problem) for name, predictor in _named(predictors).items()}
    comparison = _Comparison(candidates, Points(problem, over, [each.layers for each in candidates.values()]))
    choice("the estimator", estimator, ("exact", "query"))
    asked = comparison.explosions(integer("seed", seed, 0)) if explosions else {}
    measured = comparison.measure(
        sequences, integer("seed", seed, 0), estimator, with_floor, with_query_errors, progress
    )
    losses = comparison.losses(measured, estimator, with_query_errors, asked)
    for row in losses.rows():
        if not candidates[row["name"]].knows_sigma:
            name = f"{row['name']} after layer {row['layer']}" if "layer" in row else row["name"]
            warn_below_floor(name, *(row[key] for key in ("loss", "error", "floor", "floor_error", "signal")))
    return losses


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


class _Point:
    """One point: a problem or a prefix of its sequences, the readouts there, and the statistics of their losses.

    The best predictor is one more readout, unless the floor is known from earlier.
    """

    def __init__(
        self, problem: BaseProblem, n: int | None, readouts: list[Candidate], count: int, seed: int, with_floor: bool
    ) -> None:
        best = problem.best_predictor() if with_floor else None
        self.problem, self.key, self.adjusted = problem, (problem, n, count, seed), True
        self.known_floor = None if best is None else _floors.get(self.key)
        self.best = None if best is None else check_predictor("the best predictor", best, problem)
        self.candidates = readouts if self.best is None else [*readouts, self.best]
        self.readouts = self.candidates if self.known_floor is None else readouts
        self.tally = Tally((2, len(self.readouts)), problem.signal, count)
        self.by_query = np.zeros(len(self.readouts))

    def add(self, draw: Draw, estimator: Estimator, key: tuple[int, int], with_query_errors: bool) -> None:
        """Add a block of sequences."""
        with np.errstate(all="ignore"):
            losses = [each.losses(draw, "exact" if each is self.best else estimator, key) for each in self.readouts]
        adjusted, unadjusted = self.tally.add(np.stack(losses, 1))
        self.adjusted = draw.oracle
        if with_query_errors:
            # Given w, with p, o and l the halves of |w - w_task|^2, |w_ridge - w_task|^2 and |w - w_ridge|^2, the loss
            # at one query has the mean l and the variance 2 p^2 + 2 o^2 - (p + o - l)^2.
            oracle = draw.losses(draw.ridge, draw.task)
            self.by_query += (2 * unadjusted**2 + 2 * oracle**2 - (unadjusted + oracle - adjusted) ** 2).sum(1)

    def statistics(self) -> dict[str, Array]:
        """The fields of `Losses` for every readout."""
        tally = self.tally
        error = np.sqrt(np.maximum(self.by_query / tally.count**2 + tally.error[0] ** 2, 0.0))
        fields = {"loss": tally.mean[0], "unadjusted": tally.mean[1], "query_error": error}
        fields |= {"error": tally.error[0], "unadjusted_error": tally.error[1]}
        return fields | {name: getattr(tally, name)[0] for name in ("largest", "tail", "exploded", "unexploded")}

    def floor(self) -> Loss | None:
        """The floor, where it is known; one that was measured is remembered."""
        if self.best is None or self.known_floor is not None:
            return self.known_floor
        row: dict[str, Any] = {name: values[-1].item() for name, values in self.statistics().items()}
        row |= {"query_error": None, "floor": row["loss"], "floor_error": row["error"], "signal": self.problem.signal}
        shared: dict[str, Any] = {"adjusted": self.adjusted, "sequences": self.tally.count, "estimator": "exact"}
        return _remember(self.key, Loss(name=repr(self.best.predictor), **row, **shared))


class _Comparison:
    """The readouts of predictors, one each or one after each layer, and arrays of their numbers at all points."""

    def __init__(self, candidates: dict[str, Candidate], points: Points) -> None:
        self.candidates, self.points, layers = candidates, points, points.axes.get("layer", (None,))
        self.shape = len(candidates), len(layers)
        readouts = [
            (k, i, candidate.after(layer))
            for k, candidate in enumerate(candidates.values())
            for i, layer in enumerate(layers)
            if layer is None or layer <= (candidate.layers or 0)
        ]
        self.predictors, self.layers, self.columns = zip(*readouts, strict=True)

    def measure(
        self,
        sequences: int | None,
        seed: int,
        estimator: Estimator,
        with_floor: bool,
        with_query_errors: bool,
        progress: Progress,
    ) -> list[_Point]:
        """Draw the sequences, block by block, and add up the losses at every point."""
        points, problems = self.points, self.points.problems
        usual = 20_000 if {"sigma", "context"} & points.axes.keys() else 100_000
        count = min(how_many(problem, usual if sequences is None else sequences) for problem in problems)
        with_floor = with_floor and "sigma" not in points.axes
        measured = [
            _Point(problem, n, self.at(problem), count, seed, with_floor)
            for problem in problems
            for n in points.prefixes or (None,)
        ]
        every = [candidate for point in measured for candidate in point.candidates]
        sums, tokens = (any(getattr(candidate, need) for candidate in every) for need in ("needs_sums", "needs_tokens"))
        most = max(1, min(BLOCK, TOKENS // points.largest)) if tokens or points.prefixes else BLOCK
        for first, size in blocks(count, max(problem.dim for problem in problems), most):
            draws = points.draws(seed, first, size, sums=sums, tokens=tokens)
            for i, (point, draw) in enumerate(zip(measured, draws, strict=True)):
                point.add(draw, estimator, (seed, first), with_query_errors)
                progress(first * len(measured) + size * (i + 1), count * len(measured))
        return measured

    def losses(
        self, measured: list[_Point], estimator: Estimator, with_query_errors: bool, fields: dict[str, Any]
    ) -> Losses:
        """Gather the losses of all points, beside further fields."""
        statistics, floors = [point.statistics() for point in measured], [point.floor() for point in measured]
        names = (*BY_PREDICTOR, "query_error") if with_query_errors else BY_PREDICTOR
        fields |= {name: self.spread([values[name] for values in statistics]) for name in names}
        return Losses(
            names=tuple(self.candidates),
            axes=self.points.axes,
            in_distribution=self.points.in_distribution,
            floor=self.shared([np.nan if best is None else best.loss for best in floors]),
            floor_error=self.shared([np.nan if best is None else best.error for best in floors]),
            signal=self.shared([point.problem.signal for point in measured]),
            covariance=self.spread_pairs([point.tally.covariance[0] for point in measured]),
            sequences=measured[0].tally.count,
            estimator=estimator,
            adjusted=all(point.adjusted for point in measured),
            problem=short_label(self.points.problem, TITLE),
            actual=tuple(candidate.actual for candidate in self.candidates.values()),
            **fields,
        )

    def at(self, problem: BaseProblem) -> list[Candidate]:
        """The readouts for one of the problems."""
        return [column.at(problem, moved="dim" in self.points.axes) for column in self.columns]

    def explosions(self, seed: int) -> dict[str, Any]:
        """The probabilities of explosions, their errors and effective hits."""
        if self.points.prefixes:
            refuse("explosion probabilities are those of whole contexts", "the axis context", "Leave out one of them.")
        rare = [
            [explosion_probability(problem, readout.predictor, seed=seed) for readout in self.at(problem)]
            for problem in self.points.problems
        ]
        names = ("probability", "error", "hits")
        return {f"explosion_{name}": self.spread([[getattr(r, name) for r in row] for row in rare]) for name in names}

    def shared(self, values: list[float]) -> Array:
        """Numbers of all points, [*points]."""
        return self.points.arranged(np.broadcast_to(values, (self.shape[1], len(values))))

    def spread(self, values: Sequence[Any]) -> Any:
        """Numbers of the readouts at all points, [points, C or more], as [K, *points]; none after the last layer."""
        table = np.stack([np.asarray(numbers)[: len(self.columns)] for numbers in values], -1)
        result = np.full((*self.shape, len(values)), np.nan if table.dtype == np.float64 else 0, table.dtype)
        result[self.predictors, self.layers] = table
        return self.points.arranged(result)

    def spread_pairs(self, values: Sequence[Array]) -> Array:
        """Numbers of pairs of readouts after the same layer, [points, C or more, C or more], as [K, K, *points]."""
        result = np.full((self.shape[0], *self.shape, len(values)), np.nan)
        names, layers = np.array(self.predictors), np.array(self.layers)
        a, b = np.nonzero(layers[:, None] == layers)
        result[names[a], names[b], layers[a]] = np.stack([numbers[a, b] for numbers in values], -1)
        return self.points.arranged(result)


def _named(predictors: Any) -> dict[str, AnyPredictor]:
    """Predictors by name, which is their `repr` where they have none."""
    if isinstance(predictors, Mapping):
        named = dict(predictors)
    else:
        named = {}
        for predictor in predictors if isinstance(predictors, list | tuple) else [predictors]:
            name = shown(predictor, LONG)
            again = sum(shown(earlier, LONG) == name for earlier in named.values())
            named[f"{name} ({again + 1})" if again else name] = predictor
    if not named:
        rule = "a comparison needs at least one predictor"
        refuse(rule, f"an empty {type(predictors).__name__}", "Pass {name: predictor}.")
    return named


def _remember(key: tuple[Any, ...], loss: Loss) -> Loss:
    while len(_floors) >= FLOORS:
        _floors.pop(next(iter(_floors)))
    _floors[key] = loss
    return loss
