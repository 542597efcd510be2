"""Sequences drawn from a wider law, with the ratio of the two densities: importance sampling for rare contexts.

Models explode on contexts that hardly ever occur: long in one direction, or with large labels. A `Proposal` draws such
contexts often. Each of its axes widens one part of the law given those before it, and mixes several strengths:

- `length`: numbers of examples come more often from one end of their range;
- `stretch`: tokens are stretched or compressed by sqrt(v), along a random direction u of whitened features or as a
  whole;
- `scales`: random scales of features vary more;
- `level`: noise levels come from the upper tail of their distribution;
- `labels`: tasks and noise are larger, and their density is multiplied by exp(theta |y|^2) / constant. A proposal that
  has a direction makes them larger still along it: the least-squares estimate then points there. Full models have such
  directions of their own, and no average over all directions finds them.

The density of tokens X, mixed over all directions u, has a ratio to the original one that depends on the eigenvalues of
S = X'X alone: v^(-n/2) E_u exp((1 - 1/v)/2 u'S u). The average over the sphere is a contour integral in one
dimension, see `tilts.log_sphere_average`. Labels are N(0, K) given X, with eigenvalues kappa of K = XX' + sigma^2, so
E exp(theta |y|^2) is the product of (1 - 2 theta kappa)^(-1/2). All ratios are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import Choices, Layout
from ridgeformer.engine.interface import make_key
from ridgeformer.evaluation.tilts import (
    Index,
    LabelStrengths,
    Ratio,
    TokenMoments,
    chosen_factor,
    factor,
    log_sphere_average,
    unit_vectors,
)
from ridgeformer.problems import Draw, Problem
from ridgeformer.validation import Array

STREAM = 1 << 29  # the stream that proposals draw from, apart from every evaluation's and training's
DIRECTION = (0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0, 36.0, -3.0, -10.0, -20.0)  # see `factor`; < 0 compresses
WHOLE = (3.0, 9.0, 20.0, 32.0, -9.0)  # the same for the whole context
WIDEN = (0.0, 1.0, 4.0, 9.0)  # of scales, see `factor`
TAILS = (0.0, 0.5, 1.0, 1.5, 2.0, 4.0)  # noise levels from the upper 10^-k of their distribution
ENDS = (0.0, 4.0, -4.0)  # the logarithm of how much more often the longest contexts come than the shortest
TILTS = (0.0, 0.5, 0.8, 0.93)  # 2 theta, times the largest kappa
NOISE = ((0, 0), (2, 2), (5, 5), (9, 9), (0, 4), (0, 8), (2, 7), (0, 14))  # along and across the features
LABELS = np.array([(tilt, *noise, task, 0, 0) for tilt in TILTS for noise in NOISE for task in (0.0, 4.0, 9.0)])
PAIRS = ((0, 0), (1, 0), (3, 0), (7, 0), (0, 3), (0, 9), (1, 1), (3, 1), (3, 3), (3, 9), (7, 3))  # noise, tasks along
OWN = np.array([(0, *noise, 0, *pair) for noise in ((0, 0), (1, 1), (2, 2), (1, 3), (0, 4), (2, 5)) for pair in PAIRS])
OWN_STRETCH = (2.0, -1.0, -3.0, -7.0, -13.0)  # of the features along a direction
AXES = {
    "stretch": len(DIRECTION) + len(WHOLE),
    "scales": len(WIDEN),
    "level": len(TAILS),
    "labels": len(LABELS),
    "length": len(ENDS),
}
WIDEST = 0.3  # share of sequences that come from the widest law, whatever a proposal was adapted to
DEFENSIVE = 0.1  # share of every axis that stays spread over all strengths when a proposal is adapted


@dataclass(eq=False)
class Tilted:
    """Sequences of a proposal.

    Attributes:
        draw: The sequences, with the oracle's weights.
        ratios: For each axis, a function of indices [H] that computes log q / p of these sequences for each strength,
            [H, K].
        directions: Where the least-squares estimates point, in coordinates of the tasks, [B, r].
    """

    draw: Draw
    ratios: dict[str, Ratio]
    directions: Array

    def log_ratios(self, index: Index) -> dict[str, Array]:
        """Compute log q / p of some sequences, for each strength of each axis.

        Args:
            index: Which sequences, [H].

        Returns:
            The logarithms, [H, K] for each axis.
        """
        return {name: ratio(index) for name, ratio in self.ratios.items()}


class Proposal:
    """A law that is wider than that of a problem: a mixture of the widest one and of one that can be adapted.

    Args:
        problem: The distribution of sequences.
        shares: For each axis the probability of each strength, [K]; None for equal ones, which is the widest law.
        estimates: Second moments of directions in coordinates of the tasks, [r, r]: labels may be larger, and features
            smaller, along the one that most of them share. None for no direction.
    """

    def __init__(
        self, problem: Problem, shares: dict[str, Array] | None = None, estimates: Array | None = None
    ) -> None:
        self.problem, self.estimates = problem, estimates
        self.direction = None if estimates is None else np.linalg.eigh(estimates)[1][:, -1]
        self.labels = LABELS if estimates is None else np.concatenate([LABELS, OWN])
        absent = {"scales": not problem.law.spread, "length": problem.lengths.fixed}
        more = 0 if estimates is None else len(OWN_STRETCH)
        counts = {**AXES, "labels": len(self.labels), "stretch": AXES["stretch"] + more}
        self.widest = {name: np.full(count, 1 / count) for name, count in counts.items() if not absent.get(name)}
        self.shares = self.widest if shares is None else shares

    @cached_property
    def _tokens(self) -> Any:
        """The law of the features before they are scaled or standardised, with labels that are noise of level 1."""
        bare: dict[str, Any] = {"mean": None, "task_factor": None, "query": None, "spread": 0.0, "standardised": False}
        return replace(self.problem.law, **bare, pool=np.zeros((1, self.problem.dim)))

    @property
    def largest_weight(self) -> float:
        """A bound of p / q: the first strength of every axis is the law itself."""
        return float(1 / WIDEST * np.prod([1 / shares[0] for shares in self.widest.values()]))

    def adapted(self, ratios: dict[str, Array], weights: Array, directions: Array) -> Proposal:
        """Return the proposal under which weighted sequences are most likely, with a defensive share of all strengths.

        Args:
            ratios: The result of `Tilted.log_ratios` for the sequences, [H, K] for each axis.
            weights: Their weights, [H].
            directions: Their `Tilted.directions`, [H, r]; a proposal that has a direction takes them into account.

        Returns:
            The proposal.
        """
        shares, second = {}, _second(directions, weights)
        for name, old in self.shares.items():
            scores = ratios[name] + np.log(old)
            member = np.exp(scores - scores.max(1, keepdims=True))
            member /= member.sum(1, keepdims=True)
            best = weights @ member / weights.sum()
            shares[name] = (1 - DEFENSIVE) * best + DEFENSIVE / len(best)
        return Proposal(self.problem, shares, self.estimates if self.estimates is None else self.estimates + second)

    def directed(self, directions: Array, weights: Array) -> Proposal:
        """Return the proposal with the direction that most estimates share, at equal shares of all labels.

        Args:
            directions: `Tilted.directions` of some sequences, [H, r].
            weights: Their weights, [H].

        Returns:
            The proposal.
        """
        made = Proposal(self.problem, estimates=_second(directions, weights))
        known = np.append(self.shares["stretch"], np.full(len(OWN_STRETCH), self.shares["stretch"].mean()))
        made.shares = {**self.shares, "stretch": known / known.sum(), "labels": made.widest["labels"]}
        return made

    def log_weights(self, ratios: dict[str, Array]) -> Array:
        """Compute log p / q.

        Args:
            ratios: The result of `Tilted.log_ratios`, [H, K] for each axis.

        Returns:
            The logarithms, [H].
        """
        wide, narrow = (
            sum(np.logaddexp.reduce(ratios[name] + np.log(share), axis=1) for name, share in shares.items())
            for shares in (self.widest, self.shares)
        )
        return np.asarray(-np.logaddexp(np.log(WIDEST) + wide, np.log(1 - WIDEST) + narrow))

    def draw(self, count: int, seed: int, step: int) -> Tilted:
        """Draw sequences.

        Args:
            count: How many, B.
            seed: The seed.
            step: A number that tells draws of one seed apart.

        Returns:
            The sequences.
        """
        problem, law, rng = self.problem, self.problem.law, np.random.default_rng([seed, STREAM, step])
        wide = rng.random(count) < WIDEST
        chosen = {
            name: np.where(wide, rng.choice(len(share), count), rng.choice(len(share), count, p=share))
            for name, share in self.shares.items()
        }
        ratios: dict[str, Ratio] = {}
        n = self._lengths(chosen, ratios, rng, count)
        tokens, covariance = self._features(n, seed, step)
        if law.standardised:
            tokens = tokens.centred(n)
        root = None if covariance is None else np.asarray(np.linalg.cholesky(covariance), np.float64)
        freedom = np.asarray(n - 1.0 * law.standardised, np.float64)
        tokens = _stretched(tokens, root, freedom, chosen["stretch"], ratios, rng, self._along(root))
        metric = covariance if law.query is None else law.query
        if law.spread or law.standardised:
            by = self._scales(tokens.S, n, chosen, ratios, rng)
            tokens = tokens.scaled(by)
            if law.query is None:
                metric = np.eye(law.dim) if covariance is None else covariance
                metric = metric * by[:, :, None] * by[:, None, :] * (1 + law.standardised / n)[:, None, None]
        sigma = self._levels(chosen, ratios, rng)
        tokens, w, directions = self._labels(tokens, sigma, n, chosen, ratios, rng)
        moments = tokens.moments(w, sigma, problem.lengths.most if problem.lengths.fixed else n)
        return Tilted(Draw(moments, w, problem.oracle(moments), sigma, metric), ratios, directions)

    def _along(self, root: Array | None) -> Array | None:
        """The direction as a unit vector of whitened features, [1 or B, d]."""
        if self.direction is None:
            return None
        F = self.problem.prior.factor
        line = self.direction if F is None else F @ self.direction
        line = line if root is None else np.einsum("...ji,j->...i", root, line)
        return unit_vectors(np.atleast_2d(line))

    def _lengths(self, chosen: dict[str, Any], ratios: dict[str, Ratio], rng: Any, count: int) -> NDArray[np.int64]:
        """The numbers of examples, [B]."""
        values = self.problem.lengths.values
        if len(values) == 1:
            return np.full(count, values[0])
        place = np.arange(len(values)) / (len(values) - 1)
        chances = np.exp(np.multiply.outer(ENDS, place))
        chances /= chances.sum(1, keepdims=True)
        below = np.cumsum(chances, 1)[chosen["length"]] < rng.random(count)[:, None]
        index = np.minimum(below.sum(1), len(values) - 1)
        ratios["length"] = np.log(chances * len(values)).T[index].__getitem__
        return np.asarray(values[index])

    def _features(self, n: NDArray[np.int64], seed: int, step: int) -> tuple[TokenMoments, Array | None]:
        """TokenMoments with noise of level 1 as labels, and the covariance of the features."""
        count, d = len(n), self.problem.dim
        choices = Choices(np.ones(count), None if self.problem.lengths.fixed else n, np.zeros(count, np.int64))
        layout = Layout("sum", "constant")
        drawn = engines.resolve(None).sample(self._tokens, choices, make_key(seed, STREAM, step), layout=layout)
        gram = np.array(drawn.gram, np.float64, order="C")
        metric = self._tokens.metric if drawn.metric is None else np.array(drawn.metric, np.float64, order="C")
        e, r, x, xi = gram[:, :d, d + 1], gram[:, d + 1, d + 1], gram[:, d, :d], gram[:, d, d + 1]
        return TokenMoments(gram[:, :d, :d], e, r, x, xi), metric

    def _scales(self, S: Array, n: Any, chosen: dict[str, Any], ratios: dict[str, Ratio], rng: Any) -> Array:
        """The factors of the features, [B, d]."""
        law, (count, d) = self.problem.law, S.shape[:2]
        by = np.ones((count, d))
        if law.spread:
            factors = np.array([factor(cost, np.full(1, float(d)))[0] for cost in WIDEN])
            g = rng.standard_normal((count, d)) * np.sqrt(factors[chosen["scales"]])[:, None]
            squares = np.square(g).sum(1, keepdims=True)
            ratios["scales"] = (0.5 * (1 - 1 / factors) * squares - 0.5 * d * np.log(factors)).__getitem__
            by = np.exp(law.spread * g - law.spread**2)
        return np.sqrt(n[:, None] / np.einsum("bii->bi", S)) if law.standardised else by

    def _levels(self, chosen: dict[str, Any], ratios: dict[str, Ratio], rng: Any) -> Array:
        """The noise levels, [B]."""
        share = 10.0 ** -np.array(TAILS)
        rest = rng.random(len(chosen["level"])) * share[chosen["level"]]  # 1 - u
        with np.errstate(divide="ignore"):
            ratios["level"] = np.log(np.where(rest[:, None] <= share, 1 / share, 0.0)).__getitem__
        return np.asarray(self.problem.noise.quantile(np.clip(1 - rest, 1e-16, 1 - 1e-16)), np.float64)

    def _labels(
        self, tokens: TokenMoments, sigma: Array, n: Any, chosen: dict[str, Any], ratios: dict[str, Ratio], rng: Any
    ) -> tuple[TokenMoments, Array, Array]:
        """Tokens with their noise, tasks [B, d], and the directions of least-squares estimates [B, r].

        With features in the coordinates g of the tasks as U diag(root) V', labels are t = root g + sigma z along the
        columns of U, and sigma times the rest of the noise across them. Everything is first made larger, and then t
        and the rest are multiplied by (1 - 2 theta kappa)^(-1/2); g and z change in proportion to their shares of t.
        """
        law, F, count = self.problem.law, self.problem.prior.factor, len(sigma)
        F = np.eye(law.dim) if F is None else F
        values, V = np.linalg.eigh(F.T @ tokens.S @ F)
        rank = np.minimum(n - law.standardised, values.shape[1])
        there = np.arange(values.shape[1]) >= values.shape[1] - rank[:, None]
        inverse = np.where(there, 1 / np.sqrt(np.where(there, values, 1.0)), 0.0)
        FV = np.einsum("ij,bjk->bik", F, V) * inverse[:, None, :]
        W, root = np.einsum("bij,bjk->bik", tokens.S, FV), np.sqrt(np.where(there, values, 0.0))  # W = X'U
        z, ones = (np.einsum("bi,bij->bj", value, FV) for value in (tokens.e, tokens.x))  # U'xi, U'1
        g, pool, known = rng.standard_normal(z.shape), None, np.empty(0)
        if law.pool is not None:
            number = self.problem.tasks.choose(rng.random(count), law.dim)
            pool, root, known = number >= 0, root * (number < 0)[:, None], law.pool[number]
        if numbers := self.problem.tasks.numbers(law.dim):
            pool, root, known = np.ones(count, bool), 0 * root, self.problem.tasks.drawn(rng.random((count, numbers)))
        strength = LabelStrengths(root, sigma, there, n)
        old, (tilt, *costs) = (z, tokens.r - np.square(z).sum(1)), self.labels[chosen["labels"]].T
        along, across, task, own, own_task = (strength.multiples(cost, i) for i, cost in enumerate(costs))
        g, z, rest = g * np.sqrt(task)[:, None], z * np.sqrt(along)[:, None], old[1] * across
        lines = _lines(self.direction, V, inverse)
        if lines is not None:
            z, g = (
                value + ((np.sqrt(v) - 1) * (line * value).sum(1))[:, None] * line
                for value, v, line in zip((z, g), (own, own_task), lines, strict=True)
            )
        kappa, beyond, theta = strength.kappas(along, across, task, tilt)
        t, own = root * g + sigma[:, None] * z, np.where(kappa > 0, kappa, 1.0)
        move = (1 / np.sqrt(1 - 2 * theta[:, None] * kappa) - 1) * t / own
        g, z = g + task[:, None] * root * move, z + (along * sigma)[:, None] * move * there
        rise = 1 / np.sqrt(1 - 2 * theta * beyond)
        rest, t = rest * rise**2, root * g + sigma[:, None] * z
        squares = np.square(t).sum(1) + sigma**2 * rest
        sums = [np.square(z).sum(1), rest, np.square(g).sum(1)]
        sums += [] if lines is None else [np.square((line * v).sum(1)) for line, v in zip(lines, (z, g), strict=True)]
        ratios["labels"] = strength.ratio(self.labels, sums, squares)
        far, dz = np.sqrt(across) * rise - 1, z - old[0]
        e = tokens.e + np.einsum("bij,bj->bi", W, dz) + far[:, None] * (tokens.e - np.einsum("bij,bj->bi", W, old[0]))
        xi = tokens.xi + (ones * dz).sum(1) + far * (tokens.xi - (ones * old[0]).sum(1))
        w = self.problem.prior.back(np.einsum("bij,bj->bi", V, g))
        if pool is not None:
            w = np.where(pool[:, None], known, w)
        estimates = np.einsum("bij,bj->bi", V, t * inverse)
        return TokenMoments(tokens.S, e, np.square(z).sum(1) + rest, tokens.x, xi), w, unit_vectors(estimates)


def _second(directions: Array, weights: Array) -> Array:
    """Weighted second moments of directions, [r, r]."""
    return np.asarray(np.einsum("b,bi,bj->ij", weights / weights.sum(), directions, directions))


def _lines(direction: Array | None, V: Array, inverse: Array) -> tuple[Array, Array] | None:
    """Unit vectors of the noise along the features and of the tasks that move the estimate in a direction, [B, r]."""
    if direction is None:
        return None
    task = np.einsum("i,bij->bj", direction, V)
    return unit_vectors(task * inverse), task


def _stretched(
    tokens: TokenMoments,
    root: Array | None,
    freedom: Array,
    chosen: Any,
    ratios: dict[str, Ratio],
    rng: np.random.Generator,
    along: Array | None,
) -> TokenMoments:
    """Tokens after the stretch, whose ratio depends on S in whitened features: eigenvalues, and a known direction."""
    (count, d), costs = tokens.e.shape, np.array([*DIRECTION, *WHOLE, *OWN_STRETCH])[chosen]
    one, whole = chosen < len(DIRECTION), chosen < AXES["stretch"]
    u = rng.standard_normal((count, d))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    if along is not None:
        u = np.where(whole[:, None], u, along)
    result = tokens.stretched(root, chosen_factor(np.where(one | ~whole, costs, 0.0), freedom), u)
    by = chosen_factor(np.where(one | ~whole, 0.0, costs), freedom * d)
    result = result.scaled(np.sqrt(np.broadcast_to(by[:, None], (count, d))))

    def ratio(index: Index) -> Array:
        S: Any = result.S[index]
        n = freedom[index]
        if root is not None:
            inner = root if root.ndim == 2 else root[index]
            S = np.linalg.solve(inner, np.swapaxes(np.linalg.solve(inner, S), 1, 2))
        values, logs = np.maximum(np.linalg.eigvalsh(S), 0.0), []
        for cost in DIRECTION:
            v = factor(cost, n)
            logs.append(log_sphere_average(0.5 * (1 - 1 / v)[:, None] * values) - 0.5 * n * np.log(v))
        for cost in WHOLE:
            v = factor(cost, n * d)
            logs.append(0.5 * (1 - 1 / v) * values.sum(1) - 0.5 * n * d * np.log(v))
        if along is not None:
            line = np.broadcast_to(along, u.shape)[index]
            size = np.einsum("bi,bij,bj->b", line, S, line)
            for cost in OWN_STRETCH:
                v = factor(cost, n)
                logs.append(0.5 * (1 - 1 / v) * size - 0.5 * n * np.log(v))
        return np.stack(logs, 1)

    ratios["stretch"] = ratio
    return result
