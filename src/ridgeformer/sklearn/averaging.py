"""The posterior of weights and noise given sums over rows: an average over subsets and noise-to-signal ratios.

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
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import one_blas_thread
from ridgeformer.noise import Noise
from ridgeformer.predictors.subsets import (
    FURTHER,
    ListedSubsets,
    SubsetTree,
    beam,
    every_subset,
    gaussian_evidence,
    share_evidence,
)
from ridgeformer.sklearn.mixture import PosteriorMixture
from ridgeformer.sklearn.posterior import StandardisedSums, Sums

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Beta = tuple[float, float]
SubsetMoments = Callable[[Array, Array], tuple[Array, Array]]  # of weights, given weights and variances of subsets
Solve = Callable[[Array], tuple[Array, Array, SubsetMoments]]  # log det, residual and moments, given penalties
Scored = tuple[
    Array, Array, SubsetMoments
]  # log p(labels, subset, node) and the variance of the noise, [M, K]; moments
EXACT = 11  # features up to which all subsets count
NODES, ROUNDS, REACH, LOW, HIGH = 25, 12, 10.0, -24.0, 16.0  # of log v; e^-10 of the peak is nothing
DIGITS = 9  # of sums, in a search
ROUNDING = 1e-14  # of the sum of squares: a residual below that is rounding
WIDTH, WORK, MOST, FAR = 16, 6e6, 256, 14.0  # of the beam; of eigendecompositions; subsets; log evidence
UNLIKELY, FAINT = 18.0, 28.0  # e^-18 of the largest term: a subset at a node is left out; e^-28: a noise level is


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
        given = StandardisedSums(sums, self.noise)
        with one_blas_thread():
            return given, tuple(_Label(given, k, self).posterior() for k in range(len(given.total)))


class _Label:
    """One output: its sums and its posterior."""

    def __init__(self, given: StandardisedSums, k: int, law: RegressionPrior) -> None:
        self.S, self.a, self.total, self.law = given.S, given.a[k], float(given.total[k]), law
        self.dim, self.examples, self.level = given.dim, given.examples, given.level

    def posterior(self) -> PosteriorMixture:
        """Average over subsets and nodes; one more part is for no feature."""
        members, solve = self._subsets()
        empty, freedom = -np.inf, np.inf
        if self.law.noise is not None:
            score, variance, moments = self._by_level(self.law.noise, solve)
        else:
            empty = float(self._score(np.zeros(()), np.asarray(self.total), 1.0, 0))
            freedom = self.examples + FURTHER
            score, variance, moments = self._by_share(members.sum(1)[:, None], solve)
        top = max(score.max(), empty)
        weights, rest = np.exp(score - top), float(np.exp(empty - top))
        kept = np.flatnonzero(weights.any(0))
        node, mass = weights.sum(0)[kept], float(weights.sum()) + rest
        first, second = (part[kept] for part in moments(weights, variance))
        means = first / node[:, None]
        covariances = second / node[:, None, None] - means[:, :, None] * means[:, None]
        noise, root = ((weights * part).sum(0)[kept] / node for part in (variance, np.sqrt(variance)))
        alone = (self.total + FURTHER) / max(self.examples + FURTHER - 2, 1e-9)  # the noise without features
        return PosteriorMixture(
            np.append(node, rest) / mass,
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
        residual = np.maximum(residual, ROUNDING * self.total)
        evidence = share_evidence(log_det, residual, penalty, self.examples, sizes, self.law.r2_prior)
        return evidence + self._log_prior(sizes)

    def _by_share(self, sizes: Array, solve: Solve) -> Scored:
        """With a beta distribution of R^2: nodes of log v that resolve the posterior, of which steps are weights."""
        low, high = LOW, HIGH
        for _ in range(ROUNDS):
            log_v = np.linspace(low, high, NODES)
            log_det, residual, moments = solve(np.exp(log_v))
            score = self._score(log_det, residual, np.exp(log_v), sizes)
            profile, step = score.max(0), log_v[1] - log_v[0]
            kept = np.flatnonzero(profile > profile.max() - REACH)
            low, high = max(log_v[kept[0]] - step, LOW), min(log_v[kept[-1]] + step, HIGH)
            if high - low > 0.75 * (log_v[-1] - log_v[0]):
                break
        v, residual = np.exp(log_v), np.maximum(residual, ROUNDING * self.total)
        variance = (residual + FURTHER * v / (sizes + v)) / max(self.examples + FURTHER - 2, 1e-9)
        likely = (sizes > 0) & (score > score.max() - UNLIKELY)
        return np.where(likely, score + np.log(step), -np.inf), variance, moments

    def _by_level(self, noise: Noise, solve: Solve) -> Scored:
        """With a law of the noise level: those of its nodes that matter."""
        levels, prior = noise.fine_quadrature(self.examples)
        v = np.maximum(levels**2, ROUNDING * self.total / max(self.examples, 1.0) + 1e-300)
        log_det, residual, _ = solve(v)
        score = np.log(prior) + gaussian_evidence(log_det, residual, v, v, self.examples, [self.dim])
        kept = score[0] > score.max() - FAINT
        return score[:, kept], v[None, kept], solve(v[kept])[2]

    def _subsets(self) -> tuple[Mask, Solve]:
        """The subsets that count, without the empty one, and how ridge regression on them is solved."""
        S, a, total, d = self.S, self.a, self.total, self.dim
        every = self.law.noise is not None or self.law.size_prior is None
        if every or d > EXACT or not d:
            members = np.ones((1, d), bool) if every or not d else self._likely()
            listed = ListedSubsets(members, S, a, total)

            def by_list(penalty: Array) -> tuple[Array, Array, SubsetMoments]:
                return *listed.solve(penalty), lambda *weighted: listed.second_moments(penalty, *weighted)

            return members, by_list
        tree = _tree(d)

        def by_tree(penalty: Array) -> tuple[Array, Array, SubsetMoments]:
            count = len(penalty)
            batch = np.broadcast_to(S, (count, d, d)), np.broadcast_to(a, (count, d)), np.full(count, total)
            solved = tree.solve(*batch, penalty)
            return solved.log_det, solved.residual, solved.second_moments

        return tree.members, by_tree

    def _likely(self) -> Mask:
        """The subsets that a beam search finds, without the unlikely ones; and the one with all features.

        The search has one penalty: that of a subset of an eighth of the features whose R^2 is the most likely one of
        all features together.
        """
        d, every = self.dim, np.ones((1, self.dim), bool)
        unit = np.abs(self.S).max()  # a search takes steps: without rounding, the last digits could change them
        S, a = np.round(self.S / unit, DIGITS) * unit, np.round(self.a / unit, DIGITS) * unit
        v = np.exp(np.linspace(LOW, HIGH, 200))
        best = v[int(np.argmax(self._score(*ListedSubsets(every, S, a, self.total).solve(v), v, d)))]
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
