"""How good a predictor is: exact losses on fresh sequences, beside the best that can exist.

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

from ridgeformer.baselines import Predictor, check_problem
from ridgeformer.bayes import BayesRR
from ridgeformer.errors import array, integer, refuse
from ridgeformer.model import LinearTransformer
from ridgeformer.noise import Fixed
from ridgeformer.problem import Draw, Problem

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
CAP = 1e12  # a loss counts as at most this, so that one overflow gives a huge mean, not a NaN
EXPLODES = 100  # times d: a loss above which a sequence counts as exploded
ROUNDING = 1e-20  # a floor below this is 0: of a known noise level
EVALUATION = 1 << 30  # the stream that evaluation draws from


@dataclass(frozen=True)
class Result:
    """What an evaluation found. Losses are halves of squared errors, as in the paper's Table 1.

    Attributes:
        loss: adjusted loss, what the predictor loses against knowing sigma; error: its standard error.
        unadjusted: against the true w, which no predictor can know; unadjusted_error: its standard error.
        floor: adjusted loss of the Bayes predictor on the same sequences; floor_error: its standard error.
        largest: the largest loss of a sequence; tail: the 99.99 % quantile.
        exploded: sequences with a loss above 100 d. A loss counts as at most 1e12 in the mean, so that this is finite.
        sequences: how many were used; estimator: `exact` or `query`.
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

    @property
    def ratio(self) -> float:
        """Loss over floor: 1 is the best that can be; infinite where the floor is 0 to rounding and the loss is not."""
        if self.floor > ROUNDING:
            return self.loss / self.floor
        return 1.0 if self.loss <= ROUNDING else float("inf")

    def as_dict(self) -> dict[str, Any]:
        """For JSON; an infinite ratio is None."""
        return {**asdict(self), "ratio": self.ratio if np.isfinite(self.ratio) else None}


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


class _Tally:
    """Running sums over blocks for K loss columns, and the largest losses of each."""

    def __init__(self, columns: int, sequences: int) -> None:
        self.count = 0
        self.mean = np.zeros(columns)
        self.scatter = np.zeros((columns, columns))
        self.keep = max(int(np.ceil(sequences * 1e-4)), 1)
        self.top = np.empty((0, columns))

    def add(self, losses: Array) -> None:
        """One block, [b, K]; Chan's update keeps the sums accurate over any number of blocks."""
        count, mean = len(losses), losses.mean(0)
        centred, shift, total = losses - mean, mean - self.mean, self.count + len(losses)
        self.scatter += np.einsum("bi,bj->ij", centred, centred) + np.outer(shift, shift) * self.count * count / total
        self.mean += shift * count / total
        self.count = total
        self.top = np.sort(np.concatenate([self.top, losses]), axis=0)[-self.keep :]

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

    `with_query_errors` adds the standard errors that the paper's estimator, one query a sequence, has on as many. They
    need no queries: given w, with p, o and l the halves of |w - w_task|^2, |w_ridge - w_task|^2 and |w - w_ridge|^2, a
    query's loss has the mean l and the variance 2 p^2 + 2 o^2 - (p + o - l)^2.
    """
    if not isinstance(predictors, Mapping) or not predictors:
        given = "an empty one" if isinstance(predictors, Mapping) else f"a {type(predictors).__name__}"
        refuse("a comparison needs a dict of at least one predictor", given, "Pass {name: predictor}.")
    for name, predictor in predictors.items():
        _check(name, predictor, problem)
    if estimator not in ("exact", "query"):
        refuse("the estimator must be exact or query", repr(estimator), "Choose one of these.")
    sequences, seed = integer("sequences", sequences, 2), integer("seed", seed, 0)
    adjusted, whole = _Tally(len(predictors), sequences), _Tally(len(predictors), sequences)
    exploded, by_query = np.zeros(len(predictors), int), np.zeros(len(predictors))
    least = _floor(problem, sequences, seed) if with_floor else (float("nan"), float("nan"))
    for first in range(0, sequences, BLOCK):
        count = min(BLOCK, sequences - first)
        losses, plain = _block(predictors, problem, estimator, seed, first, count)
        exploded += (~(np.abs(losses) <= EXPLODES * problem.dim)).sum(0)
        adjusted.add(_capped(losses))
        whole.add(_capped(plain))
        if with_query_errors:
            draw = problem.moments(count, seed=seed, stream=EVALUATION, first=first)
            p, o = _capped(plain), 0.5 * np.square(draw.ridge - draw.task).sum(1)[:, None]
            by_query += (2 * p**2 + 2 * o**2 - (p + o - _capped(losses)) ** 2).sum(0)
        progress(first + count, sequences)
    spread, whole_spread = adjusted.errors, whole.errors
    results = {
        name: Result(
            name=name,
            loss=float(adjusted.mean[i]),
            error=float(spread[i]),
            unadjusted=float(whole.mean[i]),
            unadjusted_error=float(whole_spread[i]),
            floor=least[0],
            floor_error=least[1],
            largest=float(adjusted.top[-1, i]),
            tail=float(adjusted.top[0, i]),
            exploded=int(exploded[i]),
            sequences=sequences,
            estimator=estimator,
        )
        for i, name in enumerate(predictors)
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

    `exact` averages 1/2 |w_hat - w_ridge(sigma)|^2. `query` is the paper's estimator: sample a query, subtract the
    oracle's loss. It has the same mean and a larger error. The floor is computed once a problem, number of sequences
    and seed; without it (`with_floor=False`) it is NaN.
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
    """The Bayes floor: no predictor whatsoever has a smaller expected loss."""
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
    """Adjusted loss against the noise level: sigmas [K], losses and errors [..., K], which sigmas can occur [K].

    `exploded` [..., K] counts sequences with a loss above 100 d, as in `Result`.
    """

    sigmas: Array
    losses: Array
    errors: Array
    in_distribution: NDArray[np.bool_]
    exploded: NDArray[np.int64]


def profile(
    predictor: Predictor,
    problem: Problem,
    sigmas: Sequence[float] | Array | None = None,
    *,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Profile:
    """Adjusted loss at each noise level, by default some 40 of them from 0 to one past the distribution's end."""
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
    """As `profile`, for several predictors on the same sequences."""
    for name, predictor in predictors.items():
        _check(name or "predictor", predictor, problem)

    def weights(draw: Draw) -> Array:
        return np.stack([np.asarray(p.weights(draw.moments), np.float64) for p in predictors.values()])

    found = _profile(weights, problem, sigmas, sequences, seed, progress)
    return {
        name: Profile(found.sigmas, found.losses[i], found.errors[i], found.in_distribution, found.exploded[i])
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
    """As `profile`, for the readout after every layer: losses and errors are [L+1, K]."""
    _check_model(model, problem)
    return _profile(lambda draw: model.weights_by_layer(draw.moments), problem, sigmas, sequences, seed, progress)


def by_layer(
    model: LinearTransformer, problem: Problem, *, sequences: int = 100_000, seed: int = 0
) -> tuple[Array, Array]:
    """Adjusted loss of the readout after every layer, and standard errors, [L+1] each; layer 0 predicts 0."""
    _check_model(model, problem)
    tally = _Tally(model.layers + 1, integer("sequences", sequences, 2))
    for first in range(0, sequences, BLOCK):
        draw = problem.moments(min(BLOCK, sequences - first), seed=seed, stream=EVALUATION, first=first)
        tally.add(_exact(model.weights_by_layer(draw.moments), draw))
    return tally.mean, tally.errors


def _profile(
    weights: Callable[[Draw], Any],
    problem: Problem,
    sigmas: Sequence[float] | Array | None,
    sequences: int,
    seed: int,
    progress: Progress,
) -> Profile:
    levels = array("sigmas", _levels(problem) if sigmas is None else sigmas, ("K",)).astype(np.float64)
    if (levels < 0).any():
        refuse("sigmas must not be negative", float(levels.min()), "Pass standard deviations >= 0.")
    means, errors, exploded = [], [], []
    for done, level in enumerate(levels, 1):
        fixed = Problem(problem.dim, problem.context, Fixed(float(level)))
        tally: _Tally | None = None
        wild: Any = 0
        for first in range(0, integer("sequences", sequences, 2), BLOCK):
            draw = fixed.moments(min(BLOCK, sequences - first), seed=seed, stream=EVALUATION, first=first)
            losses = _exact(weights(draw), draw)
            tally = tally or _Tally(losses.shape[1], sequences)
            tally.add(losses)
            wild = wild + (losses > EXPLODES * problem.dim).sum(0)
        assert tally is not None
        means.append(tally.mean)
        errors.append(tally.errors)
        exploded.append(wild)
        progress(done, len(levels))
    inside = problem.noise.contains(levels)
    return Profile(levels, np.stack(means, -1), np.stack(errors, -1), inside, np.stack(exploded, -1))


def _levels(problem: Problem) -> Array:
    """From 0 to one past the distribution's end, with that end, or the levels of a discrete one, among them."""
    nodes, _ = problem.noise.quadrature()
    special = nodes if len(nodes) <= 16 else np.array([problem.noise.upper])
    return np.union1d(np.linspace(0, problem.noise.upper + 1, 41), special)


def _exact(weights: Any, draw: Draw) -> Array:
    """Capped exact losses of several weights [K, B, d], as [B, K]."""
    return _capped(_losses(np.asarray(weights, np.float64), draw, "exact", (0, 0))[0])


def _block(
    predictors: Mapping[str, Predictor], problem: Problem, estimator: Estimator, seed: int, first: int, count: int
) -> tuple[Array, Array]:
    """Adjusted and unadjusted losses of one block of sequences, each [B, K]."""
    adjusted, plain = np.empty((2, count, len(predictors)))
    fused = [estimator == "exact" and isinstance(p, LinearTransformer) for p in predictors.values()]
    draw = None if all(fused) else problem.moments(count, seed=seed, stream=EVALUATION, first=first)
    for column, predictor in enumerate(predictors.values()):
        if estimator == "exact" and isinstance(predictor, LinearTransformer):
            # The same sequences, drawn and evaluated in one go.
            found = predictor.astype(np.float64).step(
                problem, count, seed=seed, stream=EVALUATION, first=first, gradient=False, plain=True
            )
            adjusted[:, column], plain[:, column] = found.losses, found.plain
        elif draw is not None:
            weights = np.asarray(predictor.weights(draw.moments), np.float64)
            if weights.shape != (count, problem.dim):
                refuse(
                    f"weights must have shape {(count, problem.dim)}", f"shape {weights.shape}", "Mend the predictor."
                )
            pair = _losses(weights[None], draw, estimator, (seed, first))
            adjusted[:, column], plain[:, column] = pair[0][:, 0], pair[1][:, 0]
    return adjusted, plain


def _losses(weights: Array, draw: Draw, estimator: Estimator, key: tuple[int, int]) -> tuple[Array, Array]:
    """Adjusted and unadjusted losses of weights [K, B, d], each [B, K]."""
    with np.errstate(all="ignore"):
        if estimator == "exact":
            adjusted, plain = (0.5 * np.square(weights - goal).sum(-1).T for goal in (draw.ridge, draw.task))
            return adjusted, plain
        query = np.random.default_rng((*key, EVALUATION)).standard_normal(draw.task.shape)
        plain = 0.5 * np.square(((weights - draw.task) * query).sum(-1)).T
        oracle = 0.5 * np.square(((draw.ridge - draw.task) * query).sum(-1))
        return plain - oracle[:, None], plain


def _capped(losses: Array) -> Array:
    return np.where(np.abs(losses) <= CAP, losses, CAP)


def _check_model(model: object, problem: Problem) -> None:
    if not isinstance(model, LinearTransformer):
        refuse("losses by layer need a model", f"a {type(model).__name__}", "Pass a LinearTransformer.")
    _check("model", model, problem)


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
