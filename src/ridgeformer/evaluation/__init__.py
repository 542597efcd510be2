"""How good a predictor is: exact losses on fresh sequences, beside the best that can exist.

A predictor is whatever has `weights(moments)`. Only an object that is a `LinearTransformer` and nothing else is
evaluated without calling `weights`: the engine then draws its sequences and computes its losses in one go.

>>> from ridgeformer import AdaRR, Problem, evaluate
>>> result = evaluate(AdaRR(), Problem(noise="uniform(0,5)"), sequences=20_000)
>>> round(result.loss, 2), round(result.floor, 2)
(0.07, 0.04)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.losses import ROUNDING, capped, exploded, warn_below_floor
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.noise import Fixed
from ridgeformer.predictors.bayes import BayesRR
from ridgeformer.predictors.ridge import Predictor, check_problem
from ridgeformer.problem import Draw, Problem
from ridgeformer.spectrum import share_basis
from ridgeformer.validation import array, integer

__all__ = [
    "Comparison",
    "Profile",
    "Result",
    "by_layer",
    "compare",
    "evaluate",
    "floor",
    "profile",
    "profile_by_layer",
    "profiles",
]

Array = NDArray[np.float64]
Estimator = Literal["exact", "query"]
Progress = Callable[[int, int], None]
BLOCK = 16_384  # sequences at a time: memory does not grow with their number
LEVEL_BLOCK = 4096  # of a profile: the Gram matrices of a block stay in the cache for all predictors
EVALUATION = 1 << 30  # the stream that evaluation draws from


@dataclass(frozen=True)
class Result:
    """What an evaluation found. Losses are halves of squared errors, as in the paper's Table 1.

    Attributes:
        loss: adjusted loss, what the predictor loses against knowing sigma; error: its standard error.
        unadjusted: against the true w, which no predictor can know; unadjusted_error: its standard error.
        floor: adjusted loss of the Bayes predictor on the same sequences; floor_error: its standard error.
        largest: the largest loss of a sequence; tail: the 99.99 % quantile.
        exploded: how many sequences exploded; see `ridgeformer.losses`, also for what a loss counts at most.
        sequences: how many were used; estimator: `exact` or `query`.

    A loss that is more than 4 standard errors below its floor raises a `BelowFloorWarning`, whenever a result is made:
    by an evaluation, by training, or from a stored record.
    """

    name: str
    loss: float
    error: float
    unadjusted: float
    unadjusted_error: float
    floor: float
    floor_error: float
    largest: float
    tail: float
    exploded: int
    sequences: int
    estimator: str

    knows_sigma = False  # no field: whether the predictor knows what the floor assumes to be unknown

    def __post_init__(self) -> None:
        if not self.knows_sigma:
            warn_below_floor(self.name, self.loss, self.error, self.floor, self.floor_error)

    @property
    def ratio(self) -> float:
        """Loss over floor: 1 is the best that can be.

        It is infinite where the floor is 0 to rounding and the loss is not, and NaN where the floor is not known.
        """
        if self.floor > ROUNDING or np.isnan(self.floor):
            return self.loss / self.floor
        return 1.0 if self.loss <= ROUNDING else float("inf")

    def as_dict(self) -> dict[str, Any]:
        """For JSON; a ratio that is infinite or not known is None."""
        return {**asdict(self), "ratio": self.ratio if np.isfinite(self.ratio) else None}


class _OracleResult(Result):
    """Of a predictor that knows sigma, such as `OracleRR`: its loss is below the floor by definition."""

    knows_sigma = True


@dataclass(frozen=True, eq=False)
class Comparison(Mapping[str, Result]):
    """Results of several predictors on the same sequences, by name.

    Attributes:
        covariance: of the means; query_errors: see `compare`, empty if they were not asked for.
    """

    results: dict[str, Result]
    covariance: Array
    query_errors: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Result:
        return self.results[name]

    def __iter__(self) -> Any:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def difference(self, first: str, second: str) -> tuple[float, float]:
        """Loss of `first` minus that of `second`, and the standard error of this difference."""
        names = list(self.results)
        for name in (first, second):
            if name not in names:
                refuse(f"the name must be one of {', '.join(names)}", repr(name), "Choose one of these.")
        i, j = names.index(first), names.index(second)
        spread = self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j]
        return self.results[first].loss - self.results[second].loss, float(np.sqrt(max(spread, 0.0)))


class _Running:
    """Mean and standard error of K loss columns, block by block, and how many losses exploded."""

    def __init__(self, columns: int, dim: int) -> None:
        self.count, self.dim = 0, dim
        self.mean, self.squares = np.zeros(columns), np.zeros(columns)
        self.exploded = np.zeros(columns, np.int64)

    def add(self, losses: Array) -> Array:
        """One block of losses, [b, K]; returns them capped, as they entered the mean."""
        self.exploded += exploded(losses, self.dim).sum(0)
        losses = capped(losses)
        count, mean = len(losses), losses.mean(0)
        centred, shift, total = losses - mean, mean - self.mean, self.count + len(losses)
        self._scatter(centred, shift, self.count * count / total)
        self.mean += shift * count / total
        self.count = total
        return losses

    def _scatter(self, centred: Array, shift: Array, weight: float) -> None:
        """Chan's update keeps the sums accurate over any number of blocks."""
        self.squares += np.square(centred).sum(0) + np.square(shift) * weight

    @property
    def errors(self) -> Array:
        """Standard errors of the means."""
        return np.asarray(np.sqrt(self.squares / max(self.count - 1, 1) / self.count))


class _Tally(_Running):
    """The same with the covariance of the means, and the largest losses of each column."""

    def __init__(self, columns: int, dim: int, sequences: int) -> None:
        super().__init__(columns, dim)
        self.scatter = np.zeros((columns, columns))
        self.keep = max(int(np.ceil(sequences * 1e-4)), 1)
        self.top = np.empty((0, columns))

    def add(self, losses: Array) -> Array:
        """One block of losses, [b, K]; returns them capped, as they entered the mean."""
        losses = super().add(losses)
        highest = np.concatenate([self.top, losses])
        if len(highest) > self.keep:
            highest = np.partition(highest, len(highest) - self.keep, axis=0)[-self.keep :]
        self.top = np.sort(highest, axis=0)
        return losses

    def _scatter(self, centred: Array, shift: Array, weight: float) -> None:
        self.scatter += np.einsum("bi,bj->ij", centred, centred) + np.outer(shift, shift) * weight

    @property
    def covariance(self) -> Array:
        """Of the means."""
        return np.asarray(self.scatter / max(self.count - 1, 1) / self.count)

    @property
    def errors(self) -> Array:
        """Standard errors of the means."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))


def compare(
    predictors: Mapping[str, Predictor],
    problem: Problem,
    *,
    sequences: int = 100_000,
    seed: int = 0,
    estimator: Estimator = "exact",
    with_floor: bool = True,
    with_query_errors: bool = False,
    progress: Progress = lambda done, total: None,
) -> Comparison:
    """Evaluate several predictors on the same sequences, so that their differences are sharper than their losses.

    Args:
        predictors: What to evaluate, by name. A predictor with the attribute `knows_sigma = True`, such as `OracleRR`,
            declares that it uses what the floor assumes to be unknown: its loss may be below the floor.
        problem: The distribution of sequences.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.
        estimator: `exact` or `query`; see `evaluate`.
        with_floor: Whether to compute the Bayes floor on the same sequences. Without it, the floor is NaN.
        with_query_errors: Whether to add the standard errors that the paper's estimator, one query per sequence, has on
            as many sequences. They need no queries: given w, with p, o and l the halves of |w - w_task|^2,
            |w_ridge - w_task|^2 and |w - w_ridge|^2, a query's loss has the mean l and the variance
            2 p^2 + 2 o^2 - (p + o - l)^2.
        progress: Called with the number of sequences done and the number of all.

    Returns:
        The results by name, with the covariance of their losses.

    Raises:
        InputError: There is no predictor, one is none, or a number is out of range.

    Warns:
        BelowFloorWarning: A loss is more than 4 standard errors below the floor.
    """
    if not isinstance(predictors, Mapping) or not predictors:
        given = "an empty one" if isinstance(predictors, Mapping) else f"a {type(predictors).__name__}"
        refuse("a comparison needs a dict of at least one predictor", given, "Pass {name: predictor}.")
    for name, predictor in predictors.items():
        _check(name, predictor, problem)
    if estimator not in ("exact", "query"):
        refuse("the estimator must be exact or query", repr(estimator), "Choose one of these.")
    sequences, seed = integer("sequences", sequences, 2), integer("seed", seed, 0)
    adjusted, whole = (_Tally(len(predictors), problem.dim, sequences) for _ in range(2))
    by_query = np.zeros(len(predictors))
    least = _floor(problem, sequences, seed) if with_floor else (float("nan"), float("nan"))
    for first in range(0, sequences, BLOCK):
        count = min(BLOCK, sequences - first)
        losses, plain, draw = _block(predictors, problem, estimator, seed, first, count)
        losses, plain = adjusted.add(losses), whole.add(plain)
        if with_query_errors:
            draw = draw or _draw(problem, seed, first, count)
            oracle = 0.5 * np.square(draw.ridge - draw.task).sum(1)[:, None]
            by_query += (2 * plain**2 + 2 * oracle**2 - (plain + oracle - losses) ** 2).sum(0)
        progress(first + count, sequences)
    spread, whole_spread = adjusted.errors, whole.errors
    results = {
        name: (_OracleResult if getattr(predictor, "knows_sigma", False) else Result)(
            name=name,
            loss=float(adjusted.mean[i]),
            error=float(spread[i]),
            unadjusted=float(whole.mean[i]),
            unadjusted_error=float(whole_spread[i]),
            floor=least[0],
            floor_error=least[1],
            largest=float(adjusted.top[-1, i]),
            tail=float(adjusted.top[0, i]),
            exploded=int(adjusted.exploded[i]),
            sequences=sequences,
            estimator=estimator,
        )
        for i, (name, predictor) in enumerate(predictors.items())
    }
    errors = np.sqrt(np.maximum(by_query / sequences**2 + spread**2, 0.0))
    queries = dict(zip(predictors, errors.tolist(), strict=True)) if with_query_errors else {}
    return Comparison(results, adjusted.covariance, queries)


def evaluate(
    predictor: Predictor,
    problem: Problem,
    *,
    sequences: int = 100_000,
    seed: int = 0,
    estimator: Estimator = "exact",
    with_floor: bool = True,
    progress: Progress = lambda done, total: None,
) -> Result:
    """Evaluate one predictor on fresh sequences.

    Args:
        predictor: A model, a baseline, or anything else with `weights(moments)`.
        problem: The distribution of sequences.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.
        estimator: `exact` averages 1/2 |w_hat - w_ridge(sigma)|^2. `query` is the paper's estimator: it samples a query
            and subtracts the oracle's loss. It has the same mean and a larger error.
        with_floor: Whether to compute the Bayes floor on the same sequences; it is computed once per problem, number of
            sequences and seed. Without it, the floor is NaN.
        progress: Called with the number of sequences done and the number of all.

    Returns:
        The loss, its standard error, the floor, and how many sequences exploded.

    Raises:
        InputError: The predictor is none, or a number is out of range.

    Warns:
        BelowFloorWarning: The loss is more than 4 standard errors below the floor.
    """
    name = repr(predictor)
    return compare(
        {name: predictor},
        problem,
        sequences=sequences,
        seed=seed,
        estimator=estimator,
        with_floor=with_floor,
        progress=progress,
    )[name]


def floor(problem: Problem, *, sequences: int = 100_000, seed: int = 0) -> Result:
    """The Bayes floor: no predictor has a smaller expected loss on average over the problem's noise levels.

    Args:
        problem: The distribution of sequences.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.

    Returns:
        The Bayes predictor's result, whose loss is the floor.

    Raises:
        InputError: The problem is none, or a number is out of range.
    """
    check_problem(problem)
    found = evaluate(BayesRR(problem.noise), problem, sequences=sequences, seed=seed, with_floor=False)
    return replace(found, floor=found.loss, floor_error=found.error)


@functools.lru_cache(maxsize=64)
def _floor(problem: Problem, sequences: int, seed: int) -> tuple[float, float]:
    """Mean and standard error of the Bayes predictor's adjusted loss."""
    bayes = BayesRR(problem.noise)
    found = compare({"floor": bayes}, problem, sequences=sequences, seed=seed, with_floor=False)["floor"]
    return found.loss, found.error


@dataclass(frozen=True, eq=False)
class Profile:
    """Adjusted loss against the noise level.

    Attributes:
        sigmas: [K], the noise levels; in_distribution: [K], which of them can occur.
        losses: [..., K], mean adjusted losses; errors: their standard errors.
        exploded: [..., K], how many sequences exploded, as in `Result`. Where any did, they dominate the mean, which
            says little about the others.
        sequences: how many were used at each level.
    """

    sigmas: Array
    losses: Array
    errors: Array
    in_distribution: NDArray[np.bool_]
    exploded: NDArray[np.int64]
    sequences: int


def profile(
    predictor: Predictor,
    problem: Problem,
    sigmas: Sequence[float] | Array | None = None,
    *,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Profile:
    """Adjusted loss at each noise level.

    Args:
        predictor: A model, a baseline, or anything else with `weights(moments)`.
        problem: The dimension, the context length, and which noise levels can occur.
        sigmas: [K], the noise levels; by default some 40 of them from 0 to one past the distribution's end.
        sequences: How many fresh sequences to use at each level, at least 2. Fewer than the default can miss the rare
            sequences on which a deep model explodes.
        seed: Seed of these sequences. The levels share them: only sigma differs.
        progress: Called with how much of the work is done, and with all of it.

    Returns:
        Losses, standard errors and explosions at every level.

    Raises:
        InputError: The predictor is none, or a number is out of range.
    """
    return profiles({"": predictor}, problem, sigmas, sequences=sequences, seed=seed, progress=progress)[""]


def profiles(
    predictors: Mapping[str, Predictor],
    problem: Problem,
    sigmas: Sequence[float] | Array | None = None,
    *,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> dict[str, Profile]:
    """As `profile`, for several predictors on the same sequences, which are drawn and decomposed once.

    Args:
        predictors: What to evaluate, by name.
        problem: The dimension, the context length, and which noise levels can occur.
        sigmas: [K], the noise levels; by default some 40 of them from 0 to one past the distribution's end.
        sequences: How many fresh sequences to use at each level, at least 2.
        seed: Seed of these sequences. The levels share them: only sigma differs.
        progress: Called with how much of the work is done, and with all of it.

    Returns:
        A profile for every name.

    Raises:
        InputError: One of the predictors is none, or a number is out of range.
    """
    for name, predictor in predictors.items():
        _check(name or "predictor", predictor, problem)

    def losses(draw: Draw) -> Array:
        return np.stack([_exact(predictor, draw) for predictor in predictors.values()], 1)

    found = _profile(losses, len(predictors), problem, sigmas, sequences, seed, progress)
    return {
        name: replace(found, losses=found.losses[i], errors=found.errors[i], exploded=found.exploded[i])
        for i, name in enumerate(predictors)
    }


def profile_by_layer(
    model: LinearTransformer,
    problem: Problem,
    sigmas: Sequence[float] | Array | None = None,
    *,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Profile:
    """As `profile`, for the readout after every layer.

    Args:
        model: The model. A subclass of `LinearTransformer` is refused: its layers are not known to be its predictions.
        problem: The dimension, the context length, and which noise levels can occur.
        sigmas: [K], the noise levels; by default some 40 of them from 0 to one past the distribution's end.
        sequences: How many fresh sequences to use at each level, at least 2.
        seed: Seed of these sequences. The levels share them: only sigma differs.
        progress: Called with how much of the work is done, and with all of it.

    Returns:
        A profile whose losses, errors and explosions are [L+1, K]; layer 0 predicts 0.

    Raises:
        InputError: The model is none, or a number is out of range.
    """
    readouts = _readouts(model, problem)
    return _profile(
        lambda draw: _by_layer(readouts, draw), model.layers + 1, problem, sigmas, sequences, seed, progress
    )


def by_layer(
    model: LinearTransformer, problem: Problem, *, sequences: int = 100_000, seed: int = 0
) -> tuple[Array, Array]:
    """Adjusted loss of the readout after every layer.

    Args:
        model: The model. A subclass of `LinearTransformer` is refused: its layers are not known to be its predictions.
        problem: The distribution of sequences.
        sequences: How many fresh sequences to use, at least 2.
        seed: Seed of these sequences.

    Returns:
        Losses and their standard errors, [L+1] each; layer 0 predicts 0.

    Raises:
        InputError: The model is none, or a number is out of range.
    """
    readouts = _readouts(model, problem)
    running = _Running(model.layers + 1, problem.dim)
    sequences = integer("sequences", sequences, 2)
    for first in range(0, sequences, LEVEL_BLOCK):
        running.add(_by_layer(readouts, _draw(problem, seed, first, min(LEVEL_BLOCK, sequences - first))))
    return running.mean, running.errors


def _profile(
    losses: Callable[[Draw], Array],
    columns: int,
    problem: Problem,
    sigmas: Sequence[float] | Array | None,
    sequences: int,
    seed: int,
    progress: Progress,
) -> Profile:
    """The profile of losses [b, columns] of every draw."""
    levels = array("sigmas", _levels(problem) if sigmas is None else sigmas, ("K",)).astype(np.float64)
    if (levels < 0).any():
        refuse("sigmas must not be negative", float(levels.min()), "Pass standard deviations >= 0.")
    sequences = integer("sequences", sequences, 2)
    fixed = [Problem(problem.dim, problem.context, Fixed(float(level))) for level in levels]
    running = [_Running(columns, problem.dim) for _ in fixed]
    done, blocks = 0, range(0, sequences, LEVEL_BLOCK)
    for first in blocks:
        before: Moments | None = None
        for one, level in zip(running, fixed, strict=True):
            draw = _draw(level, seed, first, min(LEVEL_BLOCK, sequences - first))
            if before is not None:
                share_basis(draw.moments, before)
            one.add(losses(draw))
            before, done = draw.moments, done + 1
            progress(done, len(levels) * len(blocks))
    means, errors, wild = (np.stack([getattr(one, n) for one in running], -1) for n in ("mean", "errors", "exploded"))
    return Profile(levels, means, errors, problem.noise.contains(levels), wild, sequences)


def _levels(problem: Problem) -> Array:
    """From 0 to one past the distribution's end, with that end, or the levels of a discrete one, among them."""
    nodes, _ = problem.noise.quadrature()
    special = nodes if len(nodes) <= 16 else np.array([problem.noise.upper])
    return np.union1d(np.linspace(0, problem.noise.upper + 1, 41), special)


def _draw(problem: Problem, seed: int, first: int, count: int) -> Draw:
    """Sequences of an evaluation."""
    return problem.moments(count, seed=seed, stream=EVALUATION, first=first)


def _is_plain(predictor: object) -> bool:
    """Whether the engine's results are the predictor's own: a subclass may override `weights`."""
    return type(predictor) is LinearTransformer


def _block(
    predictors: Mapping[str, Predictor], problem: Problem, estimator: Estimator, seed: int, first: int, count: int
) -> tuple[Array, Array, Draw | None]:
    """Adjusted and unadjusted losses of one block of sequences, each [B, K], and the draw if there was one."""
    adjusted, plain = np.empty((2, count, len(predictors)))
    if estimator == "exact" and all(map(_is_plain, predictors.values())):
        for column, model in enumerate(predictors.values()):
            assert isinstance(model, LinearTransformer)
            # The same sequences, drawn and evaluated in one go.
            found = model.astype(np.float64).step(
                problem, count, seed=seed, stream=EVALUATION, first=first, gradient=False, unadjusted=True
            )
            adjusted[:, column], plain[:, column] = found.losses, found.unadjusted
        return adjusted, plain, None
    draw = _draw(problem, seed, first, count)
    for column, predictor in enumerate(predictors.values()):
        adjusted[:, column], plain[:, column] = _losses(_weights(predictor, draw), draw, estimator, (seed, first))
    return adjusted, plain, draw


def _weights(predictor: Predictor, draw: Draw) -> Array:
    """What the predictor says, [B, d]."""
    weights, shape = np.asarray(predictor.weights(draw.moments), np.float64), draw.task.shape
    if weights.shape != shape:
        refuse(f"weights must have shape {shape}", f"shape {weights.shape}", "Correct the predictor.")
    return weights


def _losses(weights: Array, draw: Draw, estimator: Estimator, key: tuple[int, int]) -> tuple[Array, Array]:
    """Adjusted and unadjusted losses of weights [B, d], each [B]."""
    with np.errstate(all="ignore"):
        if estimator == "exact":
            adjusted, plain = (0.5 * np.square(weights - goal).sum(1) for goal in (draw.ridge, draw.task))
            return adjusted, plain
        query = np.random.default_rng((*key, EVALUATION)).standard_normal(draw.task.shape)
        plain = 0.5 * np.square(((weights - draw.task) * query).sum(1))
        oracle = 0.5 * np.square(((draw.ridge - draw.task) * query).sum(1))
        return plain - oracle, plain


def _exact(predictor: Predictor, draw: Draw) -> Array:
    """Adjusted losses of one predictor, [B]."""
    if isinstance(predictor, LinearTransformer) and _is_plain(predictor):
        return predictor.evaluate(draw.moments, draw.ridge).losses.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        return np.asarray(0.5 * np.square(_weights(predictor, draw) - draw.ridge).sum(1))


def _readouts(model: object, problem: Problem) -> list[LinearTransformer]:
    """The models made of the first 1, 2, ... layers: the readout after a layer is their prediction."""
    if not isinstance(model, LinearTransformer):
        refuse("losses by layer need a model", f"a {type(model).__name__}", "Pass a LinearTransformer.")
    if not _is_plain(model):
        refuse(
            "losses by layer need a plain LinearTransformer, because a subclass may predict something else",
            f"a {type(model).__name__}",
            "Pass LinearTransformer(model.family, model.dim), or use evaluate and profile for the whole model.",
        )
    _check("model", model, problem)
    return [model.first(layers) for layers in range(1, model.layers + 1)]


def _by_layer(readouts: list[LinearTransformer], draw: Draw) -> Array:
    """Adjusted losses after every layer, [B, L+1]; the first is that of predicting 0."""
    nothing = 0.5 * np.square(draw.ridge).sum(1)
    return np.stack([nothing, *(_exact(readout, draw) for readout in readouts)], 1)


def _check(name: str, predictor: object, problem: Problem) -> None:
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
