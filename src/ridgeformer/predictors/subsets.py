"""Ridge regression on many subsets of the features at once: what averages over subsets are made of.

Given moments S, a, l and a penalty c, a subset g of the features has the ridge solution w_g = (S_g + c)^-1 a_g. All
that its evidence needs are log det(S_g + c) and the penalised residual l - a_g'(S_g + c)^-1 a_g. Which prior over
subsets, weights and noise turns these into a probability is the caller's business. `gaussian_evidence` is that of
N(0, t) weights with noise of variance c t; `share_evidence` is that of a prior on the share of the variance of labels
that the features of the subset explain.

Subsets form a tree: the features are decided one after another, and including one sweeps it out of the Gram matrix of
those that follow. Subsets that agree on the first features share that work, so all 2^d subsets cost about as much as
a few passes over an array of 2^d numbers.

>>> members = every_subset(3)
>>> solved = SubsetTree(members).solve(np.eye(3), np.array([3.0, 1.0, 0.0]), 12.0, np.ones(1))
>>> solved.residual[:, 0].tolist()
[12.0, 12.0, 11.5, 11.5, 7.5, 7.5, 7.0, 7.0]
>>> solved.average(np.eye(8)[:, 6:7]).tolist()
[[1.5, 0.5, 0.0]]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import refuse
from ridgeformer.validation import Array, integer

Mask = NDArray[np.bool_]
Where = NDArray[np.intp]
MOST_SUBSETS = 1 << 22  # that are listed
FURTHER = 2.0  # examples that the variance of labels in the sample counts for
RANK = 1e-12  # of the largest eigenvalue: what is smaller is 0 with rounding
FAR = 30.0  # a size of subsets whose best one has e^-30 of the best evidence ends a beam search


def count_subsets(dim: int, least: int = 0, most: int | None = None) -> int:
    """Count the subsets of features that have a size in a range.

    Args:
        dim: The number of features d.
        least: The least size.
        most: The largest size; None for d.

    Returns:
        The number of subsets.

    >>> count_subsets(10), count_subsets(20, 3, 3)
    (1024, 1140)
    """
    return sum(comb(dim, size) for size in range(least, (dim if most is None else most) + 1))


def every_subset(dim: int, least: int = 0, most: int | None = None) -> Mask:
    """List the subsets of features that have a size in a range.

    Args:
        dim: The number of features d.
        least: The least size.
        most: The largest size; None for d.

    Returns:
        Which features each subset has, [M, d], in lexicographic order.

    Raises:
        InputError: There are more than four million of them.
    """
    dim = integer("dim", dim, 1)
    most = integer("the largest size of a subset", dim if most is None else most, 0, dim)
    least = integer("the least size of a subset", least, 0, most)
    if (count := count_subsets(dim, least, most)) > MOST_SUBSETS:
        refuse(f"at most {MOST_SUBSETS:,} subsets can be listed", f"{count:,} of them", "Use beam, or fewer features.")
    members = np.zeros((count, dim), bool)
    subsets = (subset for size in range(least, most + 1) for subset in combinations(range(dim), size))
    for row, subset in zip(members, subsets, strict=True):
        row[list(subset)] = True
    return members[np.lexsort(members.T[::-1])]


class SubsetTree:
    """Subsets of features as a tree, in which each level decides one feature.

    Args:
        members: Which features each subset has, [M, d]; no subset may come twice.

    Raises:
        InputError: It is no such array.
    """

    def __init__(self, members: ArrayLike) -> None:
        self.members = np.array(members, bool)
        if self.members.ndim != 2 or 0 in self.members.shape:
            refuse("subsets must be an array of booleans [M, d]", f"shape {self.members.shape}", "Use every_subset.")
        count, self.dim = self.members.shape
        node, nodes = np.zeros(count, np.intp), 1
        self._levels: list[tuple[Where, Where]] = []  # nodes above each feature with a child without it, and with it
        for feature in range(self.dim):
            name = node + nodes * self.members[:, feature]
            there, node = np.unique(name, return_inverse=True)
            self._levels.append((there[there < nodes], there[there >= nodes] - nodes))
            nodes = len(there)
        if nodes < count:
            refuse("each subset must be given once", f"{count - nodes} repeated ones", "Leave out the repetitions.")
        self._leaf = node  # which leaf each subset is

    def __len__(self) -> int:
        return len(self.members)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many features each subset has, [M]."""
        return np.asarray(self.members.sum(1))

    def solve(self, S: Array, a: Array, l: Array | float, penalty: Array) -> Subsets:  # noqa: E741
        """Solve ridge regression on every subset, for a batch of contexts, or for one context with several penalties.

        Args:
            S: The matrices sum x x', [B, d, d], or one for all, [d, d].
            a: The vectors sum y x, [B, d], or one for all, [d].
            l: The numbers sum y^2, [B], or one for all.
            penalty: The penalties c, positive, [B].

        Returns:
            The solutions.
        """
        count, d = len(penalty), self.dim
        S, a, l = np.broadcast_to(S, (count, d, d)), np.broadcast_to(a, (count, d)), np.broadcast_to(l, count)  # noqa: E741
        gram = np.moveaxis(np.asarray(S, np.float64), 0, -1)[None]  # [N, r, r, B]: the batch is innermost
        right, residual = np.asarray(a, np.float64).T[None], np.asarray(l, np.float64)[None]
        log_det, steps = np.zeros((1, count)), list[tuple[Array, Array, Array]]()
        for feature, (out, into) in enumerate(self._levels):
            pivot = gram[into, 0, 0] + penalty
            slope, gain = gram[into, 0, 1:] / pivot[:, None], right[into, 0] / pivot
            new_gram = np.empty((len(out) + len(into), d - feature - 1, d - feature - 1, count))
            new_gram[: len(out)] = gram[out, 1:, 1:]
            np.multiply(gram[into, 1:, :1], slope[:, None], out=new_gram[len(out) :])
            np.subtract(gram[into, 1:, 1:], new_gram[len(out) :], out=new_gram[len(out) :])
            later = right[into, 1:] - right[into, :1] * slope
            residual = np.concatenate([residual[out], residual[into] - right[into, 0] * gain])
            log_det = np.concatenate([log_det[out], log_det[into] + np.log(pivot)])
            gram, right = new_gram, np.concatenate([right[out, 1:], later])
            steps.append((slope, gain, pivot))
        return Subsets(self, log_det[self._leaf], np.maximum(residual[self._leaf], 0.0), steps)


@dataclass(eq=False)
class Subsets:
    """The solutions of ridge regression on the subsets of a tree.

    Attributes:
        tree: The subsets.
        log_det: The logarithm of det(S_g + c) of each subset g, [M, B].
        residual: The penalised residual l - a_g'(S_g + c)^-1 a_g, [M, B].
        steps: What each level of the tree computed.
    """

    tree: SubsetTree
    log_det: Array
    residual: Array
    steps: list[tuple[Array, Array, Array]]

    def average(self, weights: Array) -> Array:
        """Average the ridge solutions of the subsets.

        Args:
            weights: The weight of each subset in each context, [M, B]; they need not sum to 1.

        Returns:
            The sum over the subsets of weight times (S_g + c)^-1 a_g, which is 0 at other features, [B, d].
        """
        return self._averages(weights[None])[0]

    def second_moments(self, weights: Array, variance: Array) -> tuple[Array, Array]:
        """Average the first and second moments of weights that are N((S_g + c)^-1 a_g, u (S_g + c)^-1) on each subset.

        Args:
            weights: The weight of each subset in each context, [M, B]; they need not sum to 1.
            variance: The factor u, the variance of the noise, [M, B].

        Returns:
            The sums over the subsets of weight times mean, [B, d], and of weight times second moment, [B, d, d].
        """
        return self._averages(np.stack([weights, weights * variance]))

    def _averages(self, weights: Array) -> tuple[Array, Array]:
        """Both sums for weights, and weights times variances where these are given, [1 or 2, M, B]; or the first sum.

        Given the weights of the features after it, the weight of a feature is normal with the variance u / pivot.
        """
        mass, squared = np.empty_like(weights), len(weights) == 2
        mass[:, self.tree._leaf] = weights
        first, second = np.zeros((mass.shape[1], 0, mass.shape[2])), np.zeros((mass.shape[1], 0, 0, mass.shape[2]))
        for (out, into), (slope, gain, pivot) in zip(self.tree._levels[::-1], self.steps[::-1], strict=True):
            nodes, size, split = 1 + max(out.max(initial=-1), into.max(initial=-1)), first.shape[1] + 1, len(out)
            means, inner = np.zeros((nodes, size, mass.shape[2])), (slope * first[split:]).sum(1)
            means[out, 1:] = first[:split]
            means[into, 1:] += first[split:]
            means[into, 0] = mass[0, split:] * gain - inner
            if squared:
                squares = np.zeros((nodes, size, size, mass.shape[2]))
                squares[out, 1:, 1:] = second[:split]
                squares[into, 1:, 1:] += second[split:]
                later = np.einsum("nib,nijb->njb", slope, second[split:])  # slope' E w w' of the later features
                squares[into, 0, 1:] = squares[into, 1:, 0] = gain[:, None] * first[split:] - later
                own_square = mass[0, split:] * gain**2 - 2 * gain * inner + (slope * later).sum(1)
                squares[into, 0, 0] = own_square + mass[1, split:] / pivot
                second = squares
            parents = np.zeros((len(mass), nodes, mass.shape[2]))
            parents[:, out] = mass[:, :split]
            parents[:, into] += mass[:, split:]
            first, mass = means, parents
        return np.ascontiguousarray(first[0].T), np.ascontiguousarray(np.moveaxis(second[0], -1, 0))


def gaussian_evidence(
    log_det: Array, residual: Array, variance: Array, penalty: Array, count: ArrayLike, sizes: ArrayLike
) -> Array:
    """Compute log p(context | subset, noise level) for weights from N(0, t), with c = variance / t.

    -2 log p = n log variance + log det(S_g + c) - |g| log c + residual / variance, up to a constant.

    Args:
        log_det: The logarithm of det(S_g + c), [M, B].
        residual: The penalised residual l - a_g'(S_g + c)^-1 a_g, [M, B].
        variance: The variance of the noise, [B].
        penalty: The penalty c, [B].
        count: The numbers of examples n, one or [B].
        sizes: The sizes of the subsets, [M].

    Returns:
        The logarithms, [M, B].
    """
    size = np.asarray(sizes, np.float64)[:, None]
    score = log_det - size * np.log(penalty) + residual / variance + np.asarray(count) * np.log(variance)
    return np.asarray(-0.5 * score)


def share_evidence(
    log_det: Array,
    residual: Array,
    penalty: ArrayLike,
    count: float,
    sizes: ArrayLike,
    r2_prior: tuple[float, float] = (1.0, 1.0),
) -> Array:
    """Compute log p(labels, log c | subset), where the features explain a share R^2 of the variance V of the labels.

    With k features, weights are N(0, V R^2 / k) and the noise has the variance V (1 - R^2), so c = k (1 - R^2) / R^2.
    R^2 has a beta distribution. Labels are standardised: V is inverse gamma with mean square 1, as if `FURTHER` more
    examples had shown it. Without features R^2 is 0 and log c has no density: the value is log p(labels).

    Args:
        log_det: The logarithm of det(S_g + c), any shape that broadcasts with the others.
        residual: The penalised residual l - a_g'(S_g + c)^-1 a_g.
        penalty: The penalty c.
        count: The number of examples n.
        sizes: The sizes k of the subsets.
        r2_prior: The parameters of the beta distribution of R^2. Default: the uniform one.

    Returns:
        The logarithms, to which the integral over log c of their exponentials belongs.
    """
    from scipy.special import betaln, gammaln

    c, k, n = np.asarray(penalty, np.float64), np.asarray(sizes, np.float64), count + FURTHER
    x = np.log(c) - np.log(np.maximum(k, 1.0))  # log (1 - R^2) / R^2
    prior = np.where(k > 0, r2_prior[1] * x - sum(r2_prior) * np.logaddexp(0.0, x) - betaln(*r2_prior), 0.0)
    size = log_det + (count - k) * np.log(c) - count * np.log(k + c)
    constant = gammaln(n / 2) - gammaln(FURTHER / 2) + 0.5 * FURTHER * np.log(FURTHER) - 0.5 * count * np.log(np.pi)
    return np.asarray(prior + constant - 0.5 * (size + n * np.log(residual * (k + c) / c + FURTHER)))


def beam(
    S: Array,
    a: Array,
    l: float,  # noqa: E741
    penalty: float,
    score: Callable[[Array, Array, int], Array],
    *,
    width: int = 32,
) -> tuple[Mask, Array]:
    """Search for the subsets of one context that have the largest evidence, one size after another.

    Of the subsets of each size, the `width` best ones are kept, and the next size adds one feature to each of them in
    every way. The search ends where all features are in, or where a size has e^-30 of the best evidence at most.

    Args:
        S: The matrix sum x x', [d, d].
        a: The vector sum y x, [d].
        l: The number sum y^2.
        penalty: The penalty c, positive.
        score: Computes the logarithm of the evidence and of the prior from log det(S_g + c), the penalised residual
            (arrays of one shape) and the size.
        width: How many subsets of each size are kept.

    Returns:
        All subsets that were kept, [M, d], each once; `SubsetTree` takes them. And their scores, [M].
    """
    d = len(a)
    table = np.empty((1, d + 1, d + 1))
    table[0, :d, :d], table[0, :d, d], table[0, d, :d], table[0, d, d] = S, a, a, l
    table[0, np.arange(d), np.arange(d)] += penalty
    members, log_det, by_size = np.zeros((1, d), bool), np.zeros(1), [np.zeros((1, d), bool)]
    best = float(score(log_det, table[:, d, d], 0)[0])
    reached = [np.array([best])]
    for size in range(1, d + 1):
        pivots = np.where(members, 1.0, np.maximum(np.einsum("mii->mi", table)[:, :d], penalty))
        dets, left = log_det[:, None] + np.log(pivots), table[:, d, d, None] - table[:, :d, d] ** 2 / pivots
        scores = np.where(members, -np.inf, score(dets, np.maximum(left, 0.0), size))
        parent, feature = _best_children(members, scores, width)
        reached.append(scores[parent, feature])
        best = max(best, float(reached[-1].max()))
        members = members[parent]
        members[np.arange(len(parent)), feature] = True
        by_size.append(members)
        if reached[-1].max() < best - FAR:
            break
        log_det, column = dets[parent, feature], table[parent, feature]
        table = table[parent] - column[:, :, None] * (column / pivots[parent, feature][:, None])[:, None, :]
    return np.concatenate(by_size), np.concatenate(reached)


def _best_children(members: Mask, scores: Array, width: int) -> tuple[Where, Where]:
    """The best ways to add a feature, which lead to different subsets: the parents and the features, [width] at most.

    The same subset is reached from several parents, and with the same score up to rounding.
    """
    order = np.argsort(-scores, axis=None)[: width * (members[0].sum() + 1)]
    order = order[np.isfinite(scores.ravel()[order])]
    parent, feature = np.divmod(order, members.shape[1])
    children = members[parent]
    children[np.arange(len(order)), feature] = True
    _, first = np.unique(np.packbits(children, axis=1), axis=0, return_index=True)
    first = np.sort(first)[:width]
    return parent[first], feature[first]


class ListedSubsets:
    """Some subsets of many features of one context, each with its own eigendecomposition.

    For few subsets of many features, this takes less time and room than a tree.

    Args:
        members: Which features each subset has, [M, d].
        S: The matrix sum x x', [d, d].
        a: The vector sum y x, [d].
        l: The number sum y^2.
    """

    def __init__(self, members: Mask, S: Array, a: Array, l: float) -> None:  # noqa: E741
        self.members, sizes = members, members.sum(1)
        total, ends = int(sizes.sum()), np.cumsum(sizes)
        self._values, self._c, self._basis = np.zeros(total), np.zeros(total), np.zeros((total, members.shape[1]))
        self._some, self._starts = np.flatnonzero(sizes), (ends - sizes)[sizes > 0]
        self._subset = np.repeat(np.arange(len(members)), sizes)  # of each direction, of which there are `total`
        for size in np.unique(sizes[self._some]):
            index = np.flatnonzero(sizes == size)
            features = np.nonzero(members[index])[1].reshape(len(index), size)
            values, vectors = np.linalg.eigh(S[features[:, :, None], features[:, None, :]])
            there = values > RANK * values.max(1, keepdims=True)  # other directions are rounding
            rows = (ends - sizes)[index, None] + np.arange(size)
            self._values[rows] = np.where(there, values, 0.0)
            self._c[rows] = np.where(there, np.einsum("mij,mi->mj", vectors, a[features]), 0.0)
            self._basis[rows[:, :, None], features[:, None, :]] = np.swapaxes(vectors, 1, 2)
        self._explained = self._c**2 / np.where(self._values > 0, self._values, 1.0)  # by least squares
        left = l - self._sums(self._explained[:, None])
        self._least = np.where(left > RANK * l, left, 0.0)  # the residual of least squares, [M, 1]

    def _sums(self, directions: Array) -> Array:
        """Sums over the directions of each subset, [M, ...]."""
        sums = np.zeros((len(self.members), *directions.shape[1:]))
        if len(directions):
            sums[self._some] = np.add.reduceat(directions, self._starts)
        return sums

    def solve(self, penalty: Array) -> ListedSolutions:
        """Solve ridge regression on every subset.

        Args:
            penalty: Penalties c, [B].

        Returns:
            The solutions.
        """
        shifted = self._values[:, None] + penalty
        residual = self._least + penalty * self._sums(self._explained[:, None] / shifted)
        return ListedSolutions(self, penalty, self._sums(np.log(shifted)), residual)


@dataclass(eq=False)
class ListedSolutions:
    """The solutions of ridge regression on listed subsets of one context; see `Subsets`.

    Attributes:
        subsets: The subsets.
        penalty: The penalties, [B].
        log_det: The logarithm of det(S_g + c) of each subset g, [M, B].
        residual: The penalised residual l - a_g'(S_g + c)^-1 a_g, [M, B].
    """

    subsets: ListedSubsets
    penalty: Array
    log_det: Array
    residual: Array

    def second_moments(self, weights: Array, variance: Array) -> tuple[Array, Array]:
        """See `Subsets.second_moments`."""
        of, batch, d = self.subsets, len(self.penalty), self.subsets.members.shape[1]
        first, second = np.zeros((batch, d)), np.zeros((batch, d, d))
        for k in np.flatnonzero(weights.any(0)):
            inverse = 1 / (of._values + self.penalty[k])
            means = of._sums((inverse * of._c)[:, None] * of._basis)  # [M, d]
            spread = np.sqrt((weights[:, k] * variance[:, k])[of._subset] * inverse)
            there = spread > 0
            roots = np.concatenate([spread[there, None] * of._basis[there], np.sqrt(weights[:, k, None]) * means])
            first[k], second[k] = weights[:, k] @ means, roots.T @ roots
        return first, second
