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

from dataclasses import replace
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
    log_stretch,
    multiple,
    unit_vectors,
    whitened,
)
from ridgeformer.problems import Draw, Problem
from ridgeformer.validation import Array

STREAM = 1 << 29  # the stream that proposals draw from, apart from every evaluation's and training's
DIRECTION = (0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0, 36.0, -3.0, -10.0, -20.0)  # see `multiple`; < 0 compresses
WHOLE = (3.0, 9.0, 20.0, 32.0, -9.0)  # the same for the whole context
WIDEN = (0.0, 1.0, 4.0, 9.0)  # of scales, see `multiple`
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
        proposal = Proposal(self.problem, estimates=_second(directions, weights))
        stretch = np.append(self.shares["stretch"], np.full(len(OWN_STRETCH), self.shares["stretch"].mean()))
        proposal.shares = {**self.shares, "stretch": stretch / stretch.sum(), "labels": proposal.widest["labels"]}
        return proposal

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
        return Tilted(self, count, seed, step)


class Tilted:
    """Sequences of a proposal.

    Args:
        proposal: The proposal.
        count: How many, B.
        seed: The seed.
        step: A number that tells draws of one seed apart.

    Attributes:
        draw: The sequences, with the oracle's weights.
        directions: Where the least-squares estimates point, in coordinates of the tasks, [B, r].
    """

    def __init__(self, proposal: Proposal, count: int, seed: int, step: int) -> None:
        self.proposal, self.problem, law = proposal, proposal.problem, proposal.problem.law
        self._rng = np.random.default_rng([seed, STREAM, step])
        wide = self._rng.random(count) < WIDEST
        self._chosen = {
            name: np.where(wide, self._rng.choice(len(share), count), self._rng.choice(len(share), count, p=share))
            for name, share in proposal.shares.items()
        }
        self._ratios: dict[str, Ratio] = {}  # for each axis, log q / p [H, K] of sequences by their indices [H]
        self.n = self._lengths(count)
        tokens, covariance = self._features(seed, step)
        if law.standardised:
            tokens = tokens.centred(self.n)
        root = None if covariance is None else np.asarray(np.linalg.cholesky(covariance), np.float64)
        tokens = self._stretched(tokens, root)
        metric = covariance if law.query is None else law.query
        if law.spread or law.standardised:
            by = self._scales(tokens.S)
            tokens = tokens.scaled(by)
            if law.query is None:
                metric = np.eye(law.dim) if covariance is None else covariance
                metric = metric * by[:, :, None] * by[:, None, :] * (1 + law.standardised / self.n)[:, None, None]
        sigma = self._levels()
        tokens, w, self.directions = self._labels(tokens, sigma)
        moments = tokens.moments(w, sigma, self.problem.lengths.most if self.problem.lengths.fixed else self.n)
        self.draw = Draw(moments, w, self.problem.oracle(moments), sigma, metric)

    def log_ratios(self, index: Index) -> dict[str, Array]:
        """Compute log q / p of some sequences, for each strength of each axis.

        Args:
            index: Which sequences, [H].

        Returns:
            The logarithms, [H, K] for each axis.
        """
        return {name: ratio(index) for name, ratio in self._ratios.items()}

    def _lengths(self, count: int) -> NDArray[np.int64]:
        """The numbers of examples, [B]."""
        values = self.problem.lengths.values
        if len(values) == 1:
            return np.full(count, values[0])
        chances = np.exp(np.multiply.outer(ENDS, np.arange(len(values)) / (len(values) - 1)))
        chances /= chances.sum(1, keepdims=True)
        below = np.cumsum(chances, 1)[self._chosen["length"]] < self._rng.random(count)[:, None]
        index = np.minimum(below.sum(1), len(values) - 1)
        self._ratios["length"] = np.log(chances * len(values)).T[index].__getitem__
        return np.asarray(values[index])

    def _features(self, seed: int, step: int) -> tuple[TokenMoments, Array | None]:
        """Moments of features with noise of level 1 as labels, and the covariance of the features.

        The law is that of the features before they are scaled or standardised, with tasks that are 0.
        """
        count, d = len(self.n), self.problem.dim
        bare: dict[str, Any] = {"mean": None, "task_factor": None, "query": None, "spread": 0.0, "standardised": False}
        law = replace(self.problem.law, **bare, pool=np.zeros((1, d)))
        choices = Choices(np.ones(count), None if self.problem.lengths.fixed else self.n, np.zeros(count, np.int64))
        key, layout = make_key(seed, STREAM, step), Layout("sum", "constant")
        drawn = engines.resolve(None).sample(law, choices, key, layout=layout)
        gram = np.array(drawn.gram, np.float64, order="C")
        metric = law.metric if drawn.metric is None else np.array(drawn.metric, np.float64, order="C")
        e, r, x, xi = gram[:, :d, d + 1], gram[:, d + 1, d + 1], gram[:, d, :d], gram[:, d, d + 1]
        return TokenMoments(gram[:, :d, :d], e, r, x, xi), metric

    def _stretched(self, tokens: TokenMoments, root: Array | None) -> TokenMoments:
        """Tokens after the stretch; its ratio depends on eigenvalues of whitened S, and on S along the direction."""
        (count, d), choices = tokens.e.shape, self._chosen["stretch"]
        freedom = np.asarray(self.n - 1.0 * self.problem.law.standardised, np.float64)
        along, costs = self._along(root), np.array([*DIRECTION, *WHOLE, *OWN_STRETCH])[choices]
        u = self._rng.standard_normal((count, d))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        if along is not None:
            u = np.where((choices < AXES["stretch"])[:, None], u, along)
        isotropic = (choices >= len(DIRECTION)) & (choices < AXES["stretch"])
        result = tokens.stretched(root, multiple(np.where(isotropic, 0.0, costs), freedom), u)
        by = multiple(np.where(isotropic, costs, 0.0), freedom * d)
        result = result.scaled(np.sqrt(np.broadcast_to(by[:, None], (count, d))))

        def ratio(index: Index) -> Array:
            S, n = whitened(result.S[index], root if root is None or root.ndim == 2 else root[index]), freedom[index]
            values = np.maximum(np.linalg.eigvalsh(S), 0.0)
            logs = [log_stretch(values, multiple(cost, n), n) for cost in DIRECTION]
            squares = [(cost, values.sum(1), n * d) for cost in WHOLE]
            if along is not None:
                line = np.broadcast_to(along, u.shape)[index]
                size = np.einsum("bi,bij,bj->b", line, S, line)
                squares += [(cost, size, n) for cost in OWN_STRETCH]
            for cost, size, degrees in squares:
                v = multiple(cost, degrees)
                logs.append(0.5 * (1 - 1 / v) * size - 0.5 * degrees * np.log(v))
            return np.stack(logs, 1)

        self._ratios["stretch"] = ratio
        return result

    def _along(self, root: Array | None) -> Array | None:
        """The direction of the proposal as a unit vector of whitened features, [1 or B, d]."""
        line, F = self.proposal.direction, self.problem.prior.factor
        if line is None:
            return None
        line = line if F is None else F @ line
        return unit_vectors(np.atleast_2d(line if root is None else np.einsum("...ji,j->...i", root, line)))

    def _scales(self, S: Array) -> Array:
        """The factors of the features, [B, d]."""
        law, (count, d) = self.problem.law, S.shape[:2]
        by = np.ones((count, d))
        if law.spread:
            factors = multiple(WIDEN, np.float64(d))
            g = self._rng.standard_normal((count, d)) * np.sqrt(factors[self._chosen["scales"]])[:, None]
            squares = np.square(g).sum(1, keepdims=True)
            self._ratios["scales"] = (0.5 * (1 - 1 / factors) * squares - 0.5 * d * np.log(factors)).__getitem__
            by = np.exp(law.spread * g - law.spread**2)
        return np.sqrt(self.n[:, None] / np.einsum("bii->bi", S)) if law.standardised else by

    def _levels(self) -> Array:
        """The noise levels, [B]."""
        share, choices = 10.0 ** -np.array(TAILS), self._chosen["level"]
        tail = self._rng.random(len(choices)) * share[choices]  # 1 - u
        with np.errstate(divide="ignore"):
            self._ratios["level"] = np.log(np.where(tail[:, None] <= share, 1 / share, 0.0)).__getitem__
        return np.asarray(self.problem.noise.quantile(np.clip(1 - tail, 1e-16, 1 - 1e-16)), np.float64)

    def _labels(self, tokens: TokenMoments, sigma: Array) -> tuple[TokenMoments, Array, Array]:
        """Tokens with their noise, tasks [B, d], and the directions of least-squares estimates [B, r].

        With features in the coordinates g of the tasks as U diag(root) V', labels are t = root g + sigma z along the
        columns of U, and sigma times the rest of the noise across them. Everything is first made larger, and then t
        and the rest are multiplied by (1 - 2 theta kappa)^(-1/2); g and z change in proportion to their shares of t.
        """
        law, F, count, n, rng = self.problem.law, self.problem.prior.factor, len(sigma), self.n, self._rng
        F = np.eye(law.dim) if F is None else F
        values, V = np.linalg.eigh(F.T @ tokens.S @ F)
        rank = np.minimum(n - law.standardised, values.shape[1])
        there = np.arange(values.shape[1]) >= values.shape[1] - rank[:, None]
        inverse = np.where(there, 1 / np.sqrt(np.where(there, values, 1.0)), 0.0)
        FV = np.einsum("ij,bjk->bik", F, V) * inverse[:, None, :]
        W, root = np.einsum("bij,bjk->bik", tokens.S, FV), np.sqrt(np.where(there, values, 0.0))  # W = X'U
        z, ones = (np.einsum("bi,bij->bj", value, FV) for value in (tokens.e, tokens.x))  # U'xi, U'1
        g, pool, tasks = rng.standard_normal(z.shape), None, np.empty(0)
        if law.pool is not None:
            number = self.problem.tasks.choose(rng.random(count), law.dim)
            pool, root, tasks = number >= 0, root * (number < 0)[:, None], law.pool[number]
        if numbers := self.problem.tasks.numbers(law.dim):
            pool, root, tasks = np.ones(count, bool), 0 * root, self.problem.tasks.drawn(rng.random((count, numbers)))
        strength, choices = LabelStrengths(root, sigma, there, n), self._chosen["labels"]
        old, (tilt, *costs) = (z, tokens.r - np.square(z).sum(1)), self.proposal.labels[choices].T
        factors = [multiple(cost, freedom) for cost, freedom in zip(costs, strength.freedoms, strict=True)]
        along, across, task, own_noise, own_task = factors
        g, z, residual = g * np.sqrt(task)[:, None], z * np.sqrt(along)[:, None], old[1] * across
        lines: tuple[Array, ...] = ()  # unit vectors of noise and tasks that move the estimate in the direction
        if self.proposal.direction is not None:
            line = np.einsum("i,bij->bj", self.proposal.direction, V)
            lines = unit_vectors(line * inverse), line
            z, g = (
                value + ((np.sqrt(v) - 1) * (line * value).sum(1))[:, None] * line
                for value, v, line in zip((z, g), (own_noise, own_task), lines, strict=True)
            )
        kappa, beyond, theta = strength.kappas(along, across, task, tilt)
        t = root * g + sigma[:, None] * z
        move = (1 / np.sqrt(1 - 2 * theta[:, None] * kappa) - 1) * t / np.where(kappa > 0, kappa, 1.0)
        g, z = g + task[:, None] * root * move, z + (along * sigma)[:, None] * move * there
        rise = 1 / np.sqrt(1 - 2 * theta * beyond)
        residual, t = residual * rise**2, root * g + sigma[:, None] * z
        squares = np.square(t).sum(1) + sigma**2 * residual
        sums = [np.square(z).sum(1), residual, np.square(g).sum(1)]
        sums += [np.square((line * v).sum(1)) for line, v in zip(lines, (z, g), strict=False)]
        self._ratios["labels"] = strength.ratio(self.proposal.labels, sums, squares)
        far, dz = np.sqrt(across) * rise - 1, z - old[0]
        e = tokens.e + np.einsum("bij,bj->bi", W, dz) + far[:, None] * (tokens.e - np.einsum("bij,bj->bi", W, old[0]))
        xi = tokens.xi + (ones * dz).sum(1) + far * (tokens.xi - (ones * old[0]).sum(1))
        w = self.problem.prior.back(np.einsum("bij,bj->bi", V, g))
        if pool is not None:
            w = np.where(pool[:, None], tasks, w)
        estimates = np.einsum("bij,bj->bi", V, t * inverse)
        return TokenMoments(tokens.S, e, np.square(z).sum(1) + residual, tokens.x, xi), w, unit_vectors(estimates)


def _second(directions: Array, weights: Array) -> Array:
    """Weighted second moments of directions, [r, r]."""
    return np.asarray(np.einsum("b,bi,bj->ij", weights / weights.sum(), directions, directions))
