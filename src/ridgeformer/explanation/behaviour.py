"""What the layers do on average: over the problem's own noise, and at fixed noise levels.

The loss after a layer has three parts. With w rescaled by the best factor for each noise level, what is left is its
error of *direction*; with one factor for all levels, there is an error of *shrinkage* more; and without a factor, one
of *size*. Factors range from 1/4 to 4: w a thousand times too small is not a solution that only lacks a scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.explanation.readings import Readings
from ridgeformer.losses import ROUNDING as NO_LOSS
from ridgeformer.losses import exploded as has_exploded
from ridgeformer.losses import warn_below_floor
from ridgeformer.noise import Categorical, Fixed, Noise, Uniform

__all__ = ["Behaviour", "ByNoise", "behaviour", "by_noise", "levels"]

Array = NDArray[np.float64]
RESCALING = 4.0
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
STRATA = 10  # of a continuous distribution of noise levels
BINS = 8  # of eigenvalues
ROUNDING = 1e-10  # of a loss
HARDLY = 0.1  # of the influence of the noise on the Bayes predictor


@dataclass(frozen=True, eq=False)
class Behaviour:
    """What the layers do on average over the problem's noise. States are L+1, the input first; layers are L.

    Attributes:
        loss: Adjusted loss of every state, [L+1]; the loss itself where there is no oracle.
        direction: The part of the loss that is an error of direction, [L+1].
        shrinkage: The part that is an error of shrinkage, [L+1]. NaN where noise levels are not known: it then counts
            as an error of direction.
        size: The part that is an error of size, [L+1].
        offset: The part that no weights can avoid, where labels are not linear in the features.
        floor: Adjusted loss of the best predictor; NaN where that is not known.
        has_levels: Whether the sequences have noise levels.
        known: Rank correlation of sigma with the mean of the squared labels, [L+1]. NaN where sigma does not vary.
        knowable: Rank correlation of sigma with the residual sum of squares of least squares, per degree of freedom,
            over sequences with n > d.
        moved: How far w moves (squared, relative to its mean square) when sequences swap their residual sums of
            squares, [L+1].
        moved_bayes: How far the weights of the Bayes predictor move then.
        through: How far the last w moves when the residual sums of squares are swapped in one layer's attention for the
            query alone, relative to swapping them in all layers, [L].
        spectrum: Quantiles (5, 25, 50, 75, 95 %) of the eigenvalues of M S M', over sequences and directions, [L+1, 5].
        condition: Median of the largest eigenvalue over the smallest, [L+1].
        momentum: The part of the update of w that is due to u, squared, over the whole update squared, [L]. It is more
            than 1 where the gradient's part cancels it. NaN where there is no update.
        kept: The coefficient 1 - beta with which u is carried on, [L]. NaN where there is no u.
        diagonal: Share of the squared T - I on these sequences that the best diagonal layer would do, [L].
        sequences: How many sequences were used.
        exploded: How many were left out, because the model exploded on them; see `ridgeformer.losses`.
    """

    loss: Array
    direction: Array
    shrinkage: Array
    size: Array
    offset: float
    floor: float
    has_levels: bool
    known: Array
    knowable: float
    moved: Array
    moved_bayes: float
    through: Array
    spectrum: Array
    condition: Array
    momentum: Array
    kept: Array
    diagonal: Array
    sequences: int
    exploded: int

    @property
    def hardly_moved(self) -> bool:
        """Whether swapping the noise moves w by less than a tenth of what it moves the Bayes predictor by."""
        return bool(self.moved[-1] < HARDLY * self.moved_bayes)


@dataclass(frozen=True, eq=False)
class ByNoise:
    """What the layers do at fixed noise levels, K of them.

    Attributes:
        sigma: The noise levels, [K]; one NaN stands for all sequences, where there are no fixed levels.
        factor: Mean of T_yy (of a diagonal layer 1 + omega_yy lambda), by which the layer multiplies w, [L, K].
        best: The factor that would bring the layer's w nearest to the goal, the ridge solution, [L, K]. On other
            problems than those with Gaussian tasks, the goal is the oracle's w, or the task where there is no oracle.
        shrinkage: The factor that brings least squares nearest to it, about n / (n + sigma^2), [K].
        step: Effective step size: the coefficient of the layer's update on the gradient g = a_l a - S w_l, [L, K].
        newton_step: The coefficient of the layer's update on a_l w* - w_l, [L, K]: 1 is Newton's step, all of the way
            to least squares.
        to_ols: Mean squared distance of w to least squares, [L+1, K].
        to_goal: Mean squared distance of w to the goal, [L+1, K].
        to_bayes: Mean squared distance of w to the weights of the Bayes predictor, [L+1, K].
        eigenvalues: Middles of J bins of eigenvalues of S, [J].
        filter: w over least squares along eigenvectors with such eigenvalues, [L+1, K, J].
        ideal: The same for the goal, [K, J].
    """

    sigma: Array
    factor: Array
    best: Array
    shrinkage: Array
    step: Array
    newton_step: Array
    to_ols: Array
    to_goal: Array
    to_bayes: Array
    eigenvalues: Array
    filter: Array
    ideal: Array


def levels(noise: Noise) -> Array:
    """Return the noise levels to look at by default.

    Args:
        noise: The noise distribution.

    Returns:
        All levels of a discrete distribution; six over the range of a uniform one; of others six from the 1 % to the
        99 % quantile.
    """
    if isinstance(noise, Fixed | Categorical):
        return np.unique(noise.quadrature()[0])
    ends = [0.0, 1.0] if isinstance(noise, Uniform) else [0.01, 0.99]
    low, high = noise.quantile(np.array(ends))
    return np.unique(np.linspace(low, high, 6))


def behaviour(found: Readings, signal: float | None = None) -> Behaviour:
    """Average readings over the problem's own noise.

    Args:
        found: The readings.
        signal: The mean square of what is to be predicted, `problem.signal`; None for d, as on isotropic problems.

    Returns:
        The averages.

    Raises:
        InputError: The model explodes on every sequence.
    """
    kept = survivors(found, signal)
    exploded, found = int((~kept).sum()), found.select(kept)
    direction, shrinkage, size = _parts(found)
    sigma, count, offset = found.sigma[0], found.count[0], 0.5 * float(found.offset.mean())
    free = count - found.spectrum.shape[-1]
    if not exploded:  # the floor is a property of all sequences, not of those that a model survives
        _check_floor(found)
    with np.errstate(all="ignore"):
        return Behaviour(
            loss=0.5 * found.to_goal.mean(1) + offset,
            direction=direction,
            shrinkage=shrinkage,
            size=size,
            offset=offset,
            floor=_floor(found),
            has_levels=bool(np.isfinite(sigma).all()),
            known=np.array([_rank_correlation(labels / count, sigma) for labels in found.labels]),
            knowable=_rank_correlation((found.residual[0] / free)[free > 0], sigma[free > 0]),
            moved=_quotient(found.moved.sum(1), found.own.sum(1), 0.0),
            moved_bayes=float(found.bayes_moved.sum() / found.bayes.sum()),
            through=_quotient(found.through.sum(1), found.moved[-1].sum(), 0.0),
            spectrum=np.quantile(found.spectrum, QUANTILES, axis=(1, 2)).T,
            condition=np.median(found.spectrum[..., -1] / found.spectrum[..., 0], axis=1),
            momentum=_quotient(found.momentum.sum(1), found.delta.sum(1)),
            kept=_quotient(found.kept.sum(1), found.u.sum(1)),
            diagonal=_diagonal(found),
            sequences=len(found),
            exploded=exploded,
        )


def by_noise(sigma: Array, found: list[Readings], signal: float | None = None) -> ByNoise:
    """Average readings at every noise level.

    Args:
        sigma: The noise levels, [K].
        found: The readings at each of them.
        signal: As for `behaviour`.

    Returns:
        The averages.

    Raises:
        InputError: The model explodes on every sequence of a level.
    """
    found = [readings.select(survivors(readings, signal)) for readings in found]
    every = np.concatenate([r.values[np.isfinite(r.values)] for r in found])
    edges = np.quantile(every, np.linspace(0, 1, BINS + 1))
    middles = np.array([np.median(every[_bin(every, edges) == j]) for j in range(BINS)])
    filters, ideals = zip(*(_filter(r, edges) for r in found), strict=True)

    def across(numerator: str, denominator: str, layers: slice = slice(None)) -> Array:
        pairs = [(getattr(r, numerator)[layers].sum(1), getattr(r, denominator)[layers].sum(1)) for r in found]
        return np.stack([_quotient(top, bottom) for top, bottom in pairs], -1)

    def mean(name: str) -> Array:
        return np.stack([getattr(r, name).mean(1) for r in found], -1)

    return ByNoise(
        sigma=sigma,
        factor=mean("factor"),
        best=across("with_goal", "own", slice(0, -1)),
        shrinkage=np.array([float(np.nansum(r.goal_along) / np.nansum(r.least)) for r in found]),
        step=across("by_gradient", "gradient"),
        newton_step=across("by_newton", "newton"),
        to_ols=mean("to_ols"),
        to_goal=mean("to_goal"),
        to_bayes=mean("to_bayes"),
        eigenvalues=middles,
        filter=np.stack(filters, 1),
        ideal=np.stack(ideals),
    )


def survivors(found: Readings, signal: float | None = None) -> NDArray[np.bool_]:
    """Find the sequences on which the model does not explode.

    Args:
        found: The readings.
        signal: As for `behaviour`.

    Returns:
        A mask, [B].

    Raises:
        InputError: There are none.
    """
    good = ~has_exploded(0.5 * found.to_goal[-1], found.spectrum.shape[-1] if signal is None else signal)
    for name in ("own", "labels", "moved", "momentum", "kept", "act", "through"):
        good &= (np.abs(getattr(found, name)) < 1e100).all(0)
    good &= np.isfinite(found.spectrum).all((0, 2))
    if not good.any():
        levels = f"sigma from {found.sigma.min():g} to {found.sigma.max():g}"
        remedy = "Its training diverged, or it was trained for another problem: train it again, or choose other sigmas."
        refuse("a model must not explode on every sequence", f"one that does, {levels}", remedy)
    return np.asarray(good)


def _check_floor(found: Readings) -> None:
    """Warn if the model's loss is below the floor on the same sequences."""
    (loss, error), (floor, floor_error) = (
        (0.5 * float(values.mean()), 0.5 * float(values.std()) / np.sqrt(len(found)))
        for values in (found.to_goal[-1], found.floor[0])
    )
    warn_below_floor("the model", loss, error, floor, floor_error)


def _floor(found: Readings) -> float:
    """Of the best predictor; 0 where that is all but rounding, NaN where it is not known."""
    least = 0.5 * float((found.floor + found.offset).mean())
    return 0.0 if least <= NO_LOSS else least


def _parts(found: Readings) -> tuple[Array, Array, Array]:
    """Errors of direction, shrinkage and size, [L+1] each."""
    sigma = found.sigma[0]
    distinct, group = np.unique(sigma, return_inverse=True)
    if len(distinct) > 16:
        group = np.argsort(np.argsort(sigma, kind="stable")) * STRATA // len(sigma)
    loss = 0.5 * found.to_goal.mean(1)
    common = _rescaled(found).sum(1)
    if np.isnan(sigma).any():
        whole = common / len(found)
        size = loss - whole
        return whole, np.full_like(whole, np.nan), np.where(size > ROUNDING * loss, size, 0.0)
    chosen = np.stack([_rescaled(found.select(group == g)).sum(1) for g in np.unique(group)]).sum(0)
    direction, whole = chosen / len(found), common / len(found)
    shrinkage, size = whole - direction, loss - whole
    return direction, np.where(shrinkage > ROUNDING * loss, shrinkage, 0.0), np.where(size > ROUNDING * loss, size, 0.0)


def _rescaled(found: Readings) -> Array:
    """Losses of w times the best factor for these sequences, [L+1, B]."""
    best = _quotient(found.with_goal.sum(1), found.own.sum(1), 1.0)
    factor = np.clip(best, 1 / RESCALING, RESCALING)[:, None]
    return 0.5 * (found.goal - 2 * factor * found.with_goal + factor**2 * found.own)


def _diagonal(found: Readings) -> Array:
    """The share of T - I that the best omegas for these sequences explain, [L]."""
    product, gram = found.by_gram.sum(1), found.gram.sum(1)
    return _quotient((_quotient(product, gram, 0.0) * product).sum(1), found.act.sum(1), 1.0)


def _filter(found: Readings, edges: Array) -> tuple[Array, Array]:
    """[L+1, J] and [J]: the coefficient of w, and of the goal, on least squares, by eigenvalue."""
    exists = np.isfinite(found.values[0])
    group = _bin(found.values[0][exists], edges)

    def binned(values: Array) -> Array:
        return np.stack([values[:, exists][:, group == j].sum(1) for j in range(len(edges) - 1)], -1)

    whole = binned(found.least)[0]
    return _quotient(binned(found.along), whole), _quotient(binned(found.goal_along)[0], whole)


def _bin(values: Array, edges: Array) -> NDArray[np.intp]:
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def _quotient(top: Array, bottom: Array | float, otherwise: float = float("nan")) -> Array:
    """Return top / bottom, or `otherwise` where bottom is 0."""
    top, bottom = np.broadcast_arrays(np.asarray(top, float), np.asarray(bottom, float))
    return np.asarray(np.divide(top, bottom, out=np.full(top.shape, otherwise), where=bottom != 0))


def _rank_correlation(values: Array, sigma: Array) -> float:
    """Spearman's; NaN if sigma does not vary."""
    if len(sigma) == 0 or np.isnan(sigma).any():
        return float("nan")
    first, second = _ranks(values), _ranks(sigma)
    spread = float(first.std() * second.std())
    return float(((first - first.mean()) * (second - second.mean())).mean() / spread) if spread > 0 else float("nan")


def _ranks(values: Array) -> Array:
    """From 0, equal values sharing the mean of theirs."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count + 1) / 2)[group])
