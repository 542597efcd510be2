"""The posterior of weights and noise given sums over rows: an average over subsets and noise-to-signal ratios.

Sums are weighted counts, means and centred sums, which add over batches of rows: centred sums of two batches are merged
with the difference of their means. Sums of raw squares, whose difference gives the same, would lose digits where means
are large.

Features are standardised, and a flat prior on the intercept takes one example: n - 1 are left. Weights are N(0, t) in
every direction. Given t and the noise variance t v, they are normal with the mean (S + v)^-1 a and the covariance
t v (S + v)^-1; what is not known is averaged over. There are three priors.

- With a law of the noise level, t is 1 and sigma^2 = v follows the law, as in a `Problem`. Labels are scaled to a
  standard deviation of sqrt(d + E sigma^2), which is theirs in that problem.
- Without one, the share R^2 of the variance of labels that features explain has a beta distribution. With V the
  variance of labels, t = V R^2 / d and t v = V (1 - R^2). V is known to be about the variance in the sample, as if
  two further examples had shown it.
- With a prior over subsets, the weights of the other features are 0, and the same holds within each subset, with the
  number of its features in place of d.

All subsets share the nodes of log v: at each node, ridge regression with the penalty v is solved on every subset. Up
to `EXACT` features all subsets count. With more, a beam search finds those with the largest evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import one_blas_thread
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise
from ridgeformer.predictors.subsets import (
    FURTHER,
    RANK,
    ListedSolutions,
    ListedSubsets,
    Subsets,
    SubsetTree,
    beam,
    every_subset,
    gaussian_evidence,
    share_evidence,
)
from ridgeformer.sklearn.mixture import PosteriorMixture
from ridgeformer.values import Value

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Beta = tuple[float, float]
Solver = Callable[[Array], Subsets | ListedSolutions]  # ridge regression on all subsets, given penalties
Scored = tuple[Array, Array, Subsets | ListedSolutions]  # log p(labels, subset, node), the noise's variance, [M, K]
EXACT = 11  # features up to which all subsets count
NODES, ROUNDS, REACH, LOW, HIGH = 25, 12, 10.0, -24.0, 16.0  # of log v; e^-10 of the peak is nothing
DIGITS = 9  # of sums, in a search
RESIDUAL = 1e-14  # of the sum of squares: a residual below that is rounding
WIDTH, WORK, MOST, FAR = 16, 6e6, 256, 14.0  # of the beam; of eigendecompositions; subsets; log evidence
UNLIKELY, FAINT = 18.0, 28.0  # e^-18 of the largest term: a subset at a node is left out; e^-28: a noise level is
ROUNDING = 10 * np.finfo(np.float64).eps  # of its mean: a standard deviation below that is rounding
CONSTANT = np.sqrt(np.finfo(np.float64).eps)  # the standard deviation of constant labels, as a share of their value


@dataclass(eq=False)
class Sums(Value):
    """Centred sums over rows with weights.

    Attributes:
        weight: The sum of the weights, the number of rows where all are 1.
        x_mean: The means of the features, [d].
        y_mean: The means of the labels, [q].
        xx: sum weight (x - mean)(x - mean)', [d, d].
        xy: sum weight (x - mean)(y - mean)', [d, q].
        yy: sum weight (y - mean)^2, [q].
        centred: Whether means are subtracted, as for a model with an intercept; otherwise they are 0.
    """

    weight: float
    x_mean: Array
    y_mean: Array
    xx: Array
    xy: Array
    yy: Array
    centred: bool = True

    @classmethod
    def of(cls, x: Array, y: Array, weights: Array, centred: bool = True) -> Sums:
        """Sum over rows.

        Args:
            x: Features, [n, d].
            y: Labels, [n, q].
            weights: Weights, [n], not negative and not all zero.
            centred: Whether to subtract means. Default: True.

        Returns:
            The sums.
        """
        total = float(weights.sum())
        if not centred:
            weighted, means = weights[:, None] * x, (np.zeros(x.shape[1]), np.zeros(y.shape[1]))
            return cls(total, *means, weighted.T @ x, weighted.T @ y, weights @ y**2, False)
        # Means of differences from the first row: those of constant columns are exactly 0, whatever the number of rows.
        x_mean, y_mean = (part[0] + weights @ (part - part[0]) / total for part in (x, y))
        x, y = x - x_mean, y - y_mean
        weighted = weights[:, None] * x
        return cls(total, x_mean, y_mean, weighted.T @ x, weighted.T @ y, weights @ y**2)

    def plus(self, other: Sums) -> Sums:
        """Merge the sums of two batches.

        Args:
            other: The sums of the other batch.

        Returns:
            The sums over the rows of both.
        """
        total = self.weight + other.weight
        share, x, y = other.weight / total, other.x_mean - self.x_mean, other.y_mean - self.y_mean
        between = self.weight * share
        return Sums(
            total,
            self.x_mean + share * x,
            self.y_mean + share * y,
            self.xx + other.xx + between * np.outer(x, x),
            self.xy + other.xy + between * np.outer(x, y),
            self.yy + other.yy + between * y**2,
            self.centred,
        )

    @property
    def examples(self) -> float:
        """How many examples the centred rows are: an intercept takes one."""
        return self.weight - self.centred

    @property
    def level(self) -> float:
        """The variance of the mean of the labels over that of the noise; 0 without an intercept."""
        return self.centred / self.weight

    @property
    def x_scale(self) -> Array:
        """The standard deviations of the features, [d]; exactly 0 where a feature is constant."""
        return _deviation(self.xx.diagonal(), self.x_mean, self.weight)

    @property
    def y_scale(self) -> Array:
        """The standard deviations of the labels, [q]; exactly 0 where a label is constant."""
        return _deviation(self.yy, self.y_mean, self.weight)


def _deviation(squares: Array, mean: Array, weight: float) -> Array:
    deviation = np.sqrt(squares / weight)
    return np.where(deviation > ROUNDING * np.abs(mean), deviation, 0.0)


class StandardisedSums(Value):
    """Sums in the units of a problem with standardised features; constant features are left out.

    Args:
        sums: The sums over the rows.
        noise: The law of the noise level. None if there is none: labels then have a standard deviation of 1.
    """

    def __init__(self, sums: Sums, noise: Noise | None = None) -> None:
        scale = sums.x_scale
        self.kept, self.noise, self.weight = np.flatnonzero(scale > 0), noise, sums.weight
        self.examples, self.level = sums.examples, sums.level
        self.x_mean, self.y_mean = sums.x_mean, sums.y_mean
        self.dim, self.x_scale = len(self.kept), scale[self.kept]
        deviation = 1.0 if noise is None else np.sqrt(self.dim + noise.second_moment)
        constant = sums.y_scale == 0  # such labels become 0, in units of about half the digits of a float
        scale = np.where(constant, CONSTANT * np.where(sums.y_mean == 0, 1.0, np.abs(sums.y_mean)), sums.y_scale)
        self.unit = scale / (deviation or 1.0)  # what 1 is in units of the labels, [q]
        inner = np.where(constant, np.inf, self.unit)
        self.S = sums.xx[np.ix_(self.kept, self.kept)] / np.outer(self.x_scale, self.x_scale)
        self.a = (sums.xy[self.kept] / self.x_scale[:, None] / inner).T  # [q, d]
        self.total = sums.yy / inner**2  # [q]

    def moments(self, dim: int, context: int | None) -> Moments:
        """Moments for a model: with further features that are 0, and as if there were as many examples as it knows.

        n examples with noise sigma say about w what m examples with noise sigma sqrt(m / n) do: S / sigma^2 is the
        same. So S, a and what least squares explains of l are multiplied by m / n, and its residual becomes that of
        m examples with this noise. Where there are no more rows than features, nothing is changed.

        Args:
            dim: The dimension of the model.
            context: The number of examples m that it was trained on; None to leave the moments as they are.

        Returns:
            The moments, one context for each label.
        """
        with one_blas_thread():
            values, vectors = np.linalg.eigh(self.S)
        there = values > RANK * values.max(initial=0.0)  # directions in which rows do not differ are left out
        residual = np.maximum(self.total - ((self.a @ vectors[:, there]) ** 2 / values[there]).sum(1), 0.0)
        rank, share, total, n = int(there.sum()), 1.0, self.total, max(1, round(self.weight))
        freedom = self.examples - rank
        if context is not None and freedom > 0 and context > rank:
            n, share = context, context / self.weight
            total = share * (self.total + residual * ((context - rank) / freedom - 1))
        gram = np.zeros((len(total), dim + 1, dim + 1))
        gram[:, : self.dim, : self.dim] = share * self.S
        gram[:, : self.dim, dim] = gram[:, dim, : self.dim] = share * self.a
        gram[:, dim, dim] = total
        return Moments(gram, n, sums=np.zeros((len(total), dim + 1)))  # of centred rows


@dataclass(frozen=True)
class RegressionPrior:
    """The prior.

    Attributes:
        noise: The law of the noise level; None for a beta distribution of R^2 instead.
        r2_prior: The parameters of that beta distribution.
        size_prior: The beta-binomial law of the number of features that matter, in which subsets of one size are
            equally likely; None if all features matter. It does not apply with a law of the noise level.
    """

    noise: Noise | None
    r2_prior: Beta
    size_prior: Beta | None

    def posterior(self, sums: Sums) -> tuple[StandardisedSums, tuple[PosteriorMixture, ...]]:
        """Compute the posterior.

        Args:
            sums: The sums over the rows.

        Returns:
            The sums in the units of the problem, and the posterior of each output in these units.
        """
        scaled = StandardisedSums(sums, self.noise)
        with one_blas_thread():
            return scaled, tuple(_Label(scaled, k, self).posterior() for k in range(len(scaled.total)))


class _Label:
    """One output: its sums and its posterior."""

    def __init__(self, sums: StandardisedSums, k: int, law: RegressionPrior) -> None:
        self.S, self.a, self.total, self.law = sums.S, sums.a[k], float(sums.total[k]), law
        self.dim, self.examples, self.level = sums.dim, sums.examples, sums.level

    def posterior(self) -> PosteriorMixture:
        """Average over subsets and nodes; one more part is for no feature."""
        members, solve = self._subsets()
        empty, freedom = -np.inf, np.inf
        if self.law.noise is not None:
            score, variance, solved = self._by_level(self.law.noise, solve)
        else:
            empty = float(self._score(np.zeros(()), np.asarray(self.total), 1.0, 0))
            freedom = self.examples + FURTHER
            score, variance, solved = self._by_share(members.sum(1)[:, None], solve)
        top = max(score.max(), empty)
        weights, empty_weight = np.exp(score - top), float(np.exp(empty - top))
        relevant = np.flatnonzero(weights.any(0))
        node, mass = weights.sum(0)[relevant], float(weights.sum()) + empty_weight
        first, second = (part[relevant] for part in solved.second_moments(weights, variance))
        means = first / node[:, None]
        covariances = second / node[:, None, None] - means[:, :, None] * means[:, None]
        noise, root = ((weights * part).sum(0)[relevant] / node for part in (variance, np.sqrt(variance)))
        alone = (self.total + FURTHER) / max(self.examples + FURTHER - 2, 1e-9)  # the noise without features
        return PosteriorMixture(
            np.append(node, empty_weight) / mass,
            np.concatenate([means, np.zeros((1, self.dim))]),
            np.concatenate([covariances, np.zeros((1, self.dim, self.dim))]),
            np.append(noise, alone),
            np.append(root, np.sqrt(alone)) * _root_ratio(freedom),
            members.T @ weights.sum(1) / mass,
            freedom,
            self.level,
            np.nan if self.law.noise is not None else float(np.log(mass) + top),
        )

    def _log_prior(self, sizes: Array | int) -> Array:
        """The logarithm of the prior probability of a subset of each size."""
        from scipy.special import betaln

        if self.law.size_prior is None:
            return np.where(np.asarray(sizes) == self.dim, 0.0, -np.inf)
        few, many = self.law.size_prior
        return np.asarray(betaln(sizes + few, self.dim - np.asarray(sizes) + many) - betaln(few, many))

    def _score(self, log_det: Array, residual: Array, penalty: Array | float, sizes: Array | int) -> Array:
        """The logarithm of p(labels, subset, log v)."""
        residual = np.maximum(residual, RESIDUAL * self.total)
        evidence = share_evidence(log_det, residual, penalty, self.examples, sizes, self.law.r2_prior)
        return evidence + self._log_prior(sizes)

    def _by_share(self, sizes: Array, solve: Solver) -> Scored:
        """With a beta distribution of R^2: nodes of log v that resolve the posterior, of which steps are weights."""
        low, high = LOW, HIGH
        for _ in range(ROUNDS):
            log_v = np.linspace(low, high, NODES)
            solved = solve(np.exp(log_v))
            score = self._score(solved.log_det, solved.residual, np.exp(log_v), sizes)
            profile, step = score.max(0), log_v[1] - log_v[0]
            relevant = np.flatnonzero(profile > profile.max() - REACH)
            low, high = max(log_v[relevant[0]] - step, LOW), min(log_v[relevant[-1]] + step, HIGH)
            if high - low > 0.75 * (log_v[-1] - log_v[0]):
                break
        v, residual = np.exp(log_v), np.maximum(solved.residual, RESIDUAL * self.total)
        variance = (residual + FURTHER * v / (sizes + v)) / max(self.examples + FURTHER - 2, 1e-9)
        likely = (sizes > 0) & (score > score.max() - UNLIKELY)
        return np.where(likely, score + np.log(step), -np.inf), variance, solved

    def _by_level(self, noise: Noise, solve: Solver) -> Scored:
        """With a law of the noise level: those of its nodes that matter."""
        levels, prior = noise.fine_quadrature(self.examples)
        v = np.maximum(levels**2, RESIDUAL * self.total / max(self.examples, 1.0) + 1e-300)
        solved = solve(v)
        score = np.log(prior) + gaussian_evidence(solved.log_det, solved.residual, v, v, self.examples, [self.dim])
        relevant = score[0] > score.max() - FAINT
        return score[:, relevant], v[None, relevant], solve(v[relevant])

    def _subsets(self) -> tuple[Mask, Solver]:
        """The subsets that count, without the empty one, and how ridge regression on them is solved."""
        d, every = self.dim, self.law.noise is not None or self.law.size_prior is None
        if d and d <= EXACT and not every:
            tree = _tree(d)
            return tree.members, partial(tree.solve, self.S, self.a, self.total)
        members = np.ones((1, d), bool) if every or not d else self._likely()
        return members, ListedSubsets(members, self.S, self.a, self.total).solve

    def _likely(self) -> Mask:
        """The subsets that a beam search finds, without the unlikely ones; and the one with all features.

        The search has one penalty: that of a subset of an eighth of the features whose R^2 is the most likely one of
        all features together.
        """
        d, every = self.dim, np.ones((1, self.dim), bool)
        unit = np.abs(self.S).max()  # a search takes steps: without rounding, the last digits could change them
        S, a = np.round(self.S / unit, DIGITS) * unit, np.round(self.a / unit, DIGITS) * unit
        v = np.exp(np.linspace(LOW, HIGH, 200))
        solved = ListedSubsets(every, S, a, self.total).solve(v)
        best = v[int(np.argmax(self._score(solved.log_det, solved.residual, v, d)))]
        penalty = float(best / d * max(1.0, d / 8))

        def score(log_det: Array, residual: Array, size: int) -> Array:
            return self._score(log_det, residual, penalty, size)

        members, scores = beam(S, a, self.total, penalty, score, width=max(4, min(WIDTH, int(WIDTH * 30 / d))))
        order = np.argsort(-scores)
        order = order[(scores[order] > scores.max() - FAR) & (members[order].any(1))]
        work = np.cumsum(np.maximum(members[order].sum(1), 8).astype(float) ** 3)
        return np.unique(np.concatenate([members[order[work <= WORK][:MOST]], every]), axis=0)


def _root_ratio(freedom: float) -> float:
    """The mean of the standard deviation of the noise over the root of its mean square."""
    from scipy.special import gammaln

    if np.isinf(freedom):
        return 1.0
    return float(np.sqrt(max(freedom - 2, 1e-9) / 2) * np.exp(gammaln((freedom - 1) / 2) - gammaln(freedom / 2)))


@lru_cache(maxsize=16)
def _tree(dim: int) -> SubsetTree:
    return SubsetTree(every_subset(dim, 1))
