"""Averages of readings: over the problem's own noise, and at fixed noise levels.

The loss after a layer has three parts. With w rescaled by the best factor for each noise level, what is left is its
error of *direction*; with one factor for all levels, there is an error of *shrinkage* more; and without a factor, one
of *size*. Factors range from 1/4 to 4: w a thousand times too small is not a solution that only lacks a scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.explanation.readings import Readings
from ridgeformer.losses import exploded as has_exploded, warn_below_floor, without_rounding
from ridgeformer.noise import Categorical, Fixed, Noise, Uniform
from ridgeformer.values import Array

RESCALING = 4.0
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
STRATA = 10  # of a continuous distribution of noise levels
BINS = 8  # of eigenvalues
ROUNDING = 1e-10  # of a loss
HARDLY = 0.1  # of the influence of the noise on the Bayes predictor


class Behaviour:
    """Averages over the problem's noise. States are L+1, the input first; layers are L.

    Args:
        readings: The readings.
        signal: The mean square of what is to be predicted, `problem.signal`.
        floor: The adjusted loss of the best predictor, where the readings do not know it.

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

    Raises:
        InputError: The model explodes on every sequence.
    """

    def __init__(self, readings: Readings, signal: float, floor: float | None = None) -> None:
        survived = survivors(readings, signal)
        readings = readings.select(survived)
        sigma, count, offset = readings.sigma[0], readings.count[0], 0.5 * float(readings.offset.mean())
        free = count - readings.spectrum.shape[-1]
        least = without_rounding(0.5 * float((readings.floor + readings.offset).mean()), signal)
        self.loss = 0.5 * readings.to_goal.mean(1) + offset
        self.direction, self.shrinkage, self.size = _parts(readings)
        self.offset = offset
        self.floor = least if floor is None else floor
        self.has_levels = bool(np.isfinite(sigma).all())
        with np.errstate(all="ignore"):
            self.known = np.array([rank_correlation(labels / count, sigma) for labels in readings.labels])
            self.knowable = rank_correlation((readings.residual[0] / free)[free > 0], sigma[free > 0])
            self.moved = _quotient(readings.moved.sum(1), readings.own.sum(1), 0.0)
            self.moved_bayes = float(readings.bayes_moved.sum() / readings.bayes.sum())
            self.through = _quotient(readings.through.sum(1), readings.moved[-1].sum(), 0.0)
            self.spectrum = np.quantile(readings.spectrum, QUANTILES, axis=(1, 2)).T
            self.condition = np.median(readings.spectrum[..., -1] / readings.spectrum[..., 0], axis=1)
            self.momentum = _quotient(readings.momentum.sum(1), readings.delta.sum(1))
            self.kept = _quotient(readings.kept.sum(1), readings.u.sum(1))
            product, gram = readings.by_gram.sum(1), readings.gram.sum(1)  # their quotients are the best omegas
            self.diagonal = _quotient((_quotient(product, gram, 0.0) * product).sum(1), readings.act.sum(1), 1.0)
        self.sequences = len(readings)
        self.exploded = len(survived) - self.sequences
        if not self.exploded:
            model_loss, best = 0.5 * readings.to_goal[-1], 0.5 * readings.floor[0]
            model, bayes = (
                (float(values.mean()), float(values.std()) / np.sqrt(len(values))) for values in (model_loss, best)
            )
            warn_below_floor("the model", *model, *bayes, signal)

    @property
    def hardly_moved(self) -> bool:
        """Whether swapping the noise moves w by less than a tenth of what it moves the Bayes predictor by."""
        return bool(self.moved[-1] < HARDLY * self.moved_bayes)


class ByNoise:
    """Averages at fixed noise levels, K of them.

    Args:
        sigma: The noise levels, [K].
        readings: The readings at each level.
        signal: As for `Behaviour`.

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

    Raises:
        InputError: The model explodes on every sequence of a level.
    """

    def __init__(self, sigma: Array, readings: list[Readings], signal: float) -> None:
        readings = [r.select(survivors(r, signal)) for r in readings]

        def across(numerator: str, denominator: str, layers: slice = slice(None)) -> Array:
            pairs = [(getattr(r, numerator)[layers].sum(1), getattr(r, denominator)[layers].sum(1)) for r in readings]
            return np.stack([_quotient(top, bottom) for top, bottom in pairs], -1)

        def mean(name: str) -> Array:
            return np.stack([vars(r)[name].mean(1) for r in readings], -1)

        self.sigma = sigma
        self.factor = mean("factor")
        self.best = across("with_goal", "own", slice(0, -1))
        self.shrinkage = np.array([float(np.nansum(r.goal_along) / np.nansum(r.least)) for r in readings])
        self.step = across("by_gradient", "gradient")
        self.newton_step = across("by_newton", "newton")
        self.to_ols, self.to_goal, self.to_bayes = mean("to_ols"), mean("to_goal"), mean("to_bayes")
        every = np.concatenate([r.values[np.isfinite(r.values)] for r in readings])
        edges = np.quantile(every, np.linspace(0, 1, BINS + 1))
        self.eigenvalues = np.array([np.median(every[_bin(every, edges) == j]) for j in range(BINS)])
        filters, ideals = zip(*(_filter(r, edges) for r in readings), strict=True)
        self.filter, self.ideal = np.stack(filters, 1), np.stack(ideals)


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


def survivors(readings: Readings, signal: float) -> NDArray[np.bool_]:
    """Find the sequences on which the model does not explode.

    Args:
        readings: The readings.
        signal: As for `Behaviour`.

    Returns:
        A mask, [B].

    Raises:
        InputError: There are none.
    """
    good = ~has_exploded(0.5 * readings.to_goal[-1], signal)
    for name in ("own", "labels", "moved", "momentum", "kept", "act", "through"):
        good &= (np.abs(getattr(readings, name)) < 1e100).all(0)
    good &= np.isfinite(readings.spectrum).all((0, 2))
    if not good.any():
        levels = f"sigma from {readings.sigma.min():g} to {readings.sigma.max():g}"
        remedy = "Its training diverged, or it was trained for another problem: train it again, or choose other sigmas."
        refuse("a model must not explode on every sequence", f"one that does, {levels}", remedy)
    return np.asarray(good)


def _parts(readings: Readings) -> tuple[Array, Array, Array]:
    """Errors of direction, shrinkage and size, [L+1] each."""
    sigma = readings.sigma[0]
    distinct, group = np.unique(sigma, return_inverse=True)
    if len(distinct) > 16:
        group = np.argsort(np.argsort(sigma, kind="stable")) * STRATA // len(sigma)
    loss = 0.5 * readings.to_goal.mean(1)
    rescaled = _rescaled(readings).sum(1) / len(readings)
    size = np.where(loss - rescaled > ROUNDING * loss, loss - rescaled, 0.0)
    if np.isnan(sigma).any():
        return rescaled, np.full_like(rescaled, np.nan), size
    by_group = np.stack([_rescaled(readings.select(group == g)).sum(1) for g in np.unique(group)]).sum(0)
    direction = by_group / len(readings)
    return direction, np.where(rescaled - direction > ROUNDING * loss, rescaled - direction, 0.0), size


def _rescaled(readings: Readings) -> Array:
    """Losses of w times the best factor for these sequences, [L+1, B]."""
    best = _quotient(readings.with_goal.sum(1), readings.own.sum(1), 1.0)
    factor = np.clip(best, 1 / RESCALING, RESCALING)[:, None]
    return 0.5 * (readings.goal - 2 * factor * readings.with_goal + factor**2 * readings.own)


def _filter(readings: Readings, edges: Array) -> tuple[Array, Array]:
    """[L+1, J] and [J]: the coefficient of w, and of the goal, on least squares, by eigenvalue."""
    exists = np.isfinite(readings.values[0])
    group = _bin(readings.values[0][exists], edges)

    def binned(values: Array) -> Array:
        return np.stack([values[:, exists][:, group == j].sum(1) for j in range(len(edges) - 1)], -1)

    weight = binned(readings.least)[0]
    return _quotient(binned(readings.along), weight), _quotient(binned(readings.goal_along)[0], weight)


def _bin(values: Array, edges: Array) -> NDArray[np.intp]:
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def _quotient(top: Array, bottom: Array | float, otherwise: float = float("nan")) -> Array:
    """Return top / bottom, or `otherwise` where bottom is 0."""
    top, bottom = np.broadcast_arrays(np.asarray(top, float), np.asarray(bottom, float))
    return np.asarray(np.divide(top, bottom, out=np.full(top.shape, otherwise), where=bottom != 0))


def rank_correlation(values: Array, sigma: NDArray[Any] | None) -> float:
    """Compute Spearman's rank correlation with the noise levels.

    Args:
        values: One number per sequence, [B].
        sigma: The noise levels, [B]; None where there are none.

    Returns:
        The correlation; NaN where sigma or the values do not vary or sigma is not known.
    """
    if sigma is None or len(sigma) == 0 or np.isnan(sigma).any():
        return float("nan")
    first, second = _ranks(values), _ranks(np.asarray(sigma))
    spread = float(first.std() * second.std())
    return float(((first - first.mean()) * (second - second.mean())).mean() / spread) if spread > 0 else float("nan")


def _ranks(values: Array) -> Array:
    """From 0, equal values sharing the mean of theirs."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count + 1) / 2)[group])
