"""The average over subsets of the features, for labels of one table, by quadrature over the noise-to-signal ratio v.

All subsets share the nodes of log v: at each node, ridge regression with the penalty v is solved on every subset. Up
to `EXACT` features all subsets count. With more, a beam search finds those with the largest evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ridgeformer.predictors.subsets import FURTHER, ListedSubsets, SubsetTree, beam, every_subset, share_evidence
from ridgeformer.values import Value

__all__ = ["Average", "Law", "average"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Law = tuple[float, float]
Moments = Callable[[Array, Array], tuple[Array, Array]]
Solve = Callable[[Array], tuple[Array, Array, Moments]]  # log det, residual, moments given weights and variances
EXACT = 11  # features up to which all subsets count
NODES, ROUNDS, REACH, LOW, HIGH = 25, 12, 10.0, -24.0, 16.0  # of log v; e^-10 of the peak is nothing
DIGITS = 9  # of sums, in a search
ROUNDING = 1e-14  # of the sum of squares: a residual below that is rounding
WIDTH, WORK, MOST, FAR = 16, 6e6, 256, 14.0  # of the beam; of eigendecompositions; subsets; log evidence


@dataclass(eq=False)
class Average(Value):
    """The posterior, averaged over subsets, at K nodes of the noise-to-signal ratio; the last is for no feature.

    Attributes:
        chance: The probabilities of the nodes, [K].
        means: The means of the weights, [K, d].
        covariances: Their covariances, [K, d, d].
        noise: The means of the variance of the noise, [K].
        root: The means of its standard deviation, [K].
        inclusion: The probabilities that features matter, [d].
        log_evidence: log p(labels).
    """

    chance: Array
    means: Array
    covariances: Array
    noise: Array
    root: Array
    inclusion: Array
    log_evidence: float

    @property
    def mean(self) -> Array:
        """The mean of the weights, [d]."""
        return np.asarray(self.chance @ self.means)


def average(S: Array, a: Array, total: float, examples: float, r2_prior: Law, size_prior: Law) -> Average:
    """Average over subsets of the features.

    Args:
        S: The matrix sum x x' of standardised features, [d, d].
        a: The vector sum y x, [d], of standardised labels.
        total: The number sum y^2.
        examples: The number of examples n.
        r2_prior: The beta distribution of R^2 within each subset.
        size_prior: The beta-binomial law of the number of features; subsets of one size are equally likely.

    Returns:
        The average.
    """
    from scipy.special import gammaln

    members, solve = _subsets(S, a, total, examples, r2_prior, size_prior)
    sizes = members.sum(1)[:, None]
    prior = _log_prior(sizes, len(a), size_prior)
    log_v, (residual, moments), score = _nodes(solve, sizes, prior, examples, r2_prior, total)
    v, step, freedom = np.exp(log_v), log_v[1] - log_v[0], examples + FURTHER
    empty = share_evidence(np.zeros(()), np.asarray(total), 1.0, examples, 0) + _log_prior(0, len(a), size_prior)
    top = max(score.max(), float(empty))
    weights, rest = step * np.exp(score - top), float(np.exp(empty - top))
    mass = float(weights.sum()) + rest
    variance = (residual + FURTHER * v / (sizes + v)) / max(freedom - 2, 1e-9)
    first, second = moments(weights, variance)
    node = weights.sum(0)
    node = np.where(node > 0, node, 1e-300)
    means, second = first / node[:, None], second / node[:, None, None]
    covariances = second - means[:, :, None] * means[:, None]
    noise = np.append((weights * variance).sum(0) / node, (total + FURTHER) / max(freedom - 2, 1e-9))
    ratio = np.sqrt(max(freedom - 2, 1e-9) / 2) * np.exp(gammaln((freedom - 1) / 2) - gammaln(freedom / 2))
    root = np.append((weights * np.sqrt(variance)).sum(0) / node, np.sqrt(noise[-1])) * ratio
    return Average(
        np.append(node, rest) / mass,
        np.concatenate([means, np.zeros((1, len(a)))]),
        np.concatenate([covariances, np.zeros((1, len(a), len(a)))]),
        noise,
        root,
        members.T @ weights.sum(1) / mass,
        float(np.log(mass) + top),
    )


def _log_prior(sizes: Array | int, dim: int, law: Law) -> Array:
    """The logarithm of the prior probability of a subset of each size."""
    from scipy.special import betaln

    return np.asarray(betaln(sizes + law[0], dim - np.asarray(sizes) + law[1]) - betaln(*law))


def _nodes(
    solve: Solve, sizes: Array, prior: Array, examples: float, r2_prior: Law, total: float
) -> tuple[Array, tuple[Array, Moments], Array]:
    """Nodes of log v that resolve the posterior, what belongs to them, and log p(labels, subset, log v), [M, K]."""
    low, high = LOW, HIGH
    for _ in range(ROUNDS):
        log_v = np.linspace(low, high, NODES)
        log_det, residual, moments = solve(np.exp(log_v))
        residual = np.maximum(residual, ROUNDING * total)
        score = prior + share_evidence(log_det, residual, np.exp(log_v), examples, sizes, r2_prior)
        profile, step = score.max(0), log_v[1] - log_v[0]
        kept = np.flatnonzero(profile > profile.max() - REACH)
        low, high = max(log_v[kept[0]] - step, LOW), min(log_v[kept[-1]] + step, HIGH)
        if high - low > 0.75 * (log_v[-1] - log_v[0]):
            break
    return log_v, (residual, moments), score


@lru_cache(maxsize=16)
def _tree(dim: int) -> SubsetTree:
    return SubsetTree(every_subset(dim, 1))


def _subsets(S: Array, a: Array, total: float, examples: float, r2_prior: Law, size_prior: Law) -> tuple[Mask, Solve]:
    """The subsets with at least one feature that count, and how ridge regression on them is solved."""
    d = len(a)
    if d <= EXACT:
        tree = _tree(d)

        def by_tree(penalty: Array) -> tuple[Array, Array, Moments]:
            count = len(penalty)
            batch = np.broadcast_to(S, (count, d, d)), np.broadcast_to(a, (count, d)), np.full(count, total)
            solved = tree.solve(*batch, penalty)
            return solved.log_det, solved.residual, solved.second_moments

        return tree.members, by_tree
    members = _likely(S, a, total, examples, r2_prior, size_prior)
    listed = ListedSubsets(members, S, a, total)

    def by_list(penalty: Array) -> tuple[Array, Array, Moments]:
        return *listed.solve(penalty), lambda weights, variance: listed.second_moments(penalty, weights, variance)

    return members, by_list


def _likely(S: Array, a: Array, total: float, examples: float, r2_prior: Law, size_prior: Law) -> Mask:
    """The subsets that a beam search finds, without the unlikely ones; and the one with all features.

    The search has one penalty: that of a subset of an eighth of the features whose R^2 is the most likely one of all
    features together.
    """
    d = len(a)
    unit = np.abs(S).max()  # a search takes steps: without rounding, the last digits of the sums could change them
    S, a = np.round(S / unit, DIGITS) * unit, np.round(a / unit, DIGITS) * unit
    every = ListedSubsets(np.ones((1, d), bool), S, a, total)
    v = np.exp(np.linspace(LOW, HIGH, 200))
    log_det, residual = every.solve(v)
    residual = np.maximum(residual, ROUNDING * total)
    best = v[int(np.argmax(share_evidence(log_det, residual, v, examples, d, r2_prior)))]
    penalty = float(best / d * max(1.0, d / 8))

    def score(log_det: Array, residual: Array, size: int) -> Array:
        evidence = share_evidence(log_det, np.maximum(residual, ROUNDING * total), penalty, examples, size, r2_prior)
        return evidence + _log_prior(size, d, size_prior)

    members, scores = beam(S, a, total, penalty, score, width=max(4, min(WIDTH, int(WIDTH * 30 / d))))
    order = np.argsort(-scores)
    order = order[(scores[order] > scores.max() - FAR) & (members[order].any(1))]
    work = np.cumsum(np.maximum(members[order].sum(1), 8).astype(float) ** 3)
    chosen = members[order[work <= WORK][:MOST]]
    return np.unique(np.concatenate([chosen, np.ones((1, d), bool)]), axis=0)
