"""Whole sequences of a problem, or their moments with the known facts about each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import kind_of, refuse
from ridgeformer.moments import Moments, solve
from ridgeformer.problems.tasks import Prior
from ridgeformer.validation import Array, Float, array, axes, check_metric
from ridgeformer.values import Batched


@dataclass(eq=False, repr=False)
class Sequences(Batched):
    """Whole sequences, token by token.

    Attributes:
        x: The features of the contexts, [B, n, d].
        y: Their labels, [B, n].
        queries: The features of the queries, [B, m, d].
        answers: Their labels without noise, [B, m].
        task: The w of each sequence, [B, d]; None where labels are not linear in the features.
        sigma: The noise level of each sequence, [B], or of each token, [B, n]; None where there is none.
        context: How many of the n tokens each context has, [B], where that varies; the tokens beyond are 0.
        metric: The covariance of the queries, [d, d] for all sequences or [B, d, d], where it is known and queries have
            mean 0. The losses of sequences with tasks then need no sampled queries; others do not use it.
    """

    x: Array
    y: Array
    queries: Array
    answers: Array
    task: Array | None = None
    sigma: Array | None = None
    context: NDArray[np.int64] | None = None
    metric: Array | None = None

    def __post_init__(self) -> None:
        B, n, d = array("x", self.x, ("B", "n", "d")).shape
        m = array("queries", self.queries, (B, "m", d)).shape[1]
        levels, metric = (B, n) if axes(self.sigma) == 2 else (B,), (d, d) if axes(self.metric) == 2 else (B, d, d)
        held = {"x": (B, n, d), "y": (B, n), "queries": (B, m, d), "answers": (B, m)}
        facts = {"task": (B, d), "sigma": levels, "metric": metric}
        for name, shape in (held | {name: facts[name] for name in facts if getattr(self, name) is not None}).items():
            setattr(self, name, array(name, getattr(self, name), shape))
        if self.sigma is not None and (self.sigma < 0).any():
            refuse("noise levels must not be negative", float(self.sigma.min()), "Pass standard deviations >= 0.")

    def __repr__(self) -> str:
        count, n, d = self.x.shape
        return f"Sequences({count} of {n} tokens, dim={d}, {self.queries.shape[1]} queries each)"

    @property
    def moments(self) -> Moments:
        """The moments of the contexts; their noise levels are those of the sequences, not of single tokens."""
        moments = Moments.from_tokens(self.x, self.y, self.context)
        sigma = self.sigma if np.ndim(self.sigma) == 1 else None  # type: ignore[arg-type]
        return Moments._trusted(moments.gram, moments.context, sigma, moments.sums)

    def ridge(self, prior: Prior | None = None) -> Array:
        """Compute E[w | context, noise levels] for Gaussian tasks and noise: the oracle, also of tokens of own levels.

        With X the features of a context, D the diagonal matrix of the noise variances of its tokens and tasks from
        N(mu, Gamma), it is mu + Gamma X' (X Gamma X' + D)^-1 (y - X mu).

        Args:
            prior: The law of the tasks; None for N(0, I).

        Returns:
            The weights, [B, d].

        Raises:
            InputError: The sequences have no noise levels.
        """
        if self.sigma is None:
            refuse("an oracle needs to know the noise levels", "sequences without sigma", "Pass sigma to Sequences.")
        prior = Prior() if prior is None else prior
        x, n = self.x if prior.factor is None else self.x @ prior.factor, self.x.shape[1]
        y = self.y if prior.mean is None else self.y - self.x @ prior.mean
        there = np.arange(n) < (n if self.context is None else self.context[:, None])
        variance = np.where(there, np.square(self.sigma if np.ndim(self.sigma) == 2 else self.sigma[:, None]), 1.0)
        y = np.where(there, y, 0.0)
        inner = x @ np.swapaxes(x, 1, 2) + variance[:, :, None] * np.eye(n)
        return prior.back(np.einsum("bnr,bn->br", x, solve(inner, y)))


@dataclass(eq=False, repr=False)
class Draw(Batched):
    """Moments of random sequences and what is known about each.

    The loss of weights w_hat on a sequence is 1/2 (w_hat - task)' metric (w_hat - task) + offset: half the mean squared
    error over its queries. The adjusted loss is 1/2 (w_hat - ridge)' metric (w_hat - ridge).

    Attributes:
        moments: Of B contexts.
        task: The w of each sequence, [B, d]; where labels are not linear, the weights that fit the queries best.
        ridge: E[w | context, sigma], [B, d]: the best prediction when sigma is known; the task where that is not known.
        sigma: The noise levels, [B]; None where there are none.
        metric: The covariance of the queries, [d, d] for all sequences or [B, d, d]; None for the identity.
        offset: What no weights can predict, [B]; None for 0.
        mean: The mean of the queries, [d] for all sequences or [B, d]; None for 0. Only the losses of models with an
            intercept depend on it.
        surplus: The mean of what the task leaves of the answers, [B], where labels are not linear; None for 0.
        oracle: Whether `ridge` is an oracle's, so that there is an adjusted loss. Without one, losses are not adjusted.
        tokens: The whole sequences, where they were drawn: what predictors that need tokens see.
        dims: The dimension of each sequence, [B], where it varies; features beyond are 0. None where it does not.
    """

    moments: Moments
    task: Float
    ridge: Float
    sigma: Array | None
    metric: Float | None = None
    offset: Array | None = None
    oracle: bool = True
    mean: Float | None = None
    surplus: Array | None = None
    tokens: Sequences | None = None
    dims: NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        return f"Draw({self.moments!r}, task, ridge, sigma)"

    @classmethod
    def from_sequences(cls, sequences: Sequences) -> Draw:
        """Return the draw whose loss is that of these sequences' own queries, or of their tasks where these are known.

        Args:
            sequences: Sequences whose labels need not be linear in the features.

        Returns:
            The draw.

        Raises:
            InputError: Answers are not those of the tasks, numbers of examples do not fit, or a metric is indefinite.
        """
        (B, _, d), moments = sequences.x.shape, sequences.moments
        queries, answers = sequences.queries.astype(np.float64), sequences.answers.astype(np.float64)
        metric, mean = np.swapaxes(queries, 1, 2) @ queries / queries.shape[1], queries.mean(1)
        if sequences.task is None:
            # The least-squares fit to the queries, of least norm; what it leaves is the offset.
            fit = (np.linalg.pinv(queries) @ answers[..., None])[..., 0]
            left = answers - np.einsum("bmd,bd->bm", queries, fit)
            offset = 0.5 * np.square(left).mean(1)
            return cls(moments, fit, fit, moments.sigma, metric, offset, False, mean, left.mean(1), sequences)
        task = sequences.task
        right = np.einsum("bmd,bd->bm", queries, task)
        if not np.allclose(answers, right, rtol=1e-5, atol=1e-5 * max(float(np.abs(right).max()), 1e-300)):
            rule = "where tasks are given, answers must be <task, query>, without noise"
            refuse(rule, "others", "Correct them, or leave out the tasks.")
        if sequences.metric is not None:
            metric, mean = check_metric(sequences.metric, B, d), None
        return cls(moments, task, task, moments.sigma, metric, oracle=False, mean=mean, tokens=sequences)

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, without tokens."""
        arrays = {id(value): value for value in (*vars(self.moments).values(), *vars(self).values())}
        return sum(value.nbytes for value in arrays.values() if isinstance(value, np.ndarray))

    def by_length(self) -> Iterator[Draw]:
        """Split the sequences by their number of examples: draws whose `moments.context` is a number."""
        for index, moments in self.moments.by_length():
            yield replace(self.chosen(index), moments=moments)

    def losses(self, weights: Float, goal: Float) -> Array:
        """Compute 1/2 (weights - goal)' metric (weights - goal) of every sequence.

        Args:
            weights: Weights, [B, d].
            goal: `task` or `ridge`, [B, d].

        Returns:
            The losses, [B].
        """
        error = np.asarray(weights, np.float64) - np.asarray(goal, np.float64)
        if self.metric is None:
            return np.asarray(0.5 * np.square(error).sum(1))
        metric = np.asarray(self.metric, np.float64)
        weighed = error @ metric if metric.ndim == 2 else np.einsum("bij,bj->bi", metric, error)
        return np.asarray(0.5 * (error * weighed).sum(1))

    def both_losses(self, weights: Float, intercepts: Float | None = None) -> tuple[Array, Array]:
        """Compute the adjusted and the unadjusted losses of weights; they are equal if there is no oracle.

        Args:
            weights: Weights, [B, d].
            intercepts: Intercepts, [B]; None for 0.

        Returns:
            Both losses, [B] each.
        """
        unadjusted = self.losses(weights, self.task)
        if self.offset is not None:
            unadjusted = unadjusted + self.offset
        adjusted = self.losses(weights, self.ridge) if self.oracle else unadjusted
        if intercepts is None:
            return adjusted, unadjusted
        # 1/2 E (<error, x> + b - rest)^2 = 1/2 E (<error, x> - rest)^2 + b (<error, E x> - E rest) + b^2 / 2.
        b, goals = np.asarray(intercepts, np.float64), (self.ridge if self.oracle else self.task, self.task)
        extra = [0.5 * b**2 + b * self.mean_error(weights, goal) for goal in goals]
        return adjusted + extra[0], unadjusted + extra[1]

    def mean_error(self, weights: Float, goal: Float) -> Array | float:
        """Compute the mean over queries of <weights - goal, x> minus what the task leaves: what an intercept meets.

        Args:
            weights: Weights, [B, d].
            goal: `task` or `ridge`, [B, d].

        Returns:
            The means, [B]; 0 where queries have mean 0.
        """
        error = np.asarray(weights, np.float64) - np.asarray(goal, np.float64)
        risk = 0.0 if self.mean is None else (error * np.asarray(self.mean, np.float64)).sum(1)
        return risk if self.surplus is None else risk - self.surplus

    def with_intercept(self) -> Draw:
        """Return the draw of features (x, 1) as far as losses are concerned: moments are as before.

        Returns:
            The draw: task, ridge and metric have d + 1 coordinates, of which the last one is the intercept.
        """
        (B, d), dtype = self.task.shape, self.task.dtype
        joint = None
        if self.metric is not None or self.mean is not None:
            metric = np.eye(d) if self.metric is None else np.asarray(self.metric, np.float64)
            mean = np.zeros(d) if self.mean is None else np.asarray(self.mean, np.float64)
            joint = np.zeros((*np.broadcast_shapes(metric.shape[:-2], mean.shape[:-1]), d + 1, d + 1))
            joint[..., :d, :d], joint[..., :d, d], joint[..., d, :d], joint[..., d, d] = metric, mean, mean, 1.0
        shift, offset = np.zeros((B, d + 1)), self.offset
        if self.surplus is not None:  # the weights and the intercept that predict what the task leaves
            inverse = np.eye(d + 1) if joint is None else np.linalg.pinv(joint, hermitian=True)
            shift = inverse[..., d] * np.asarray(self.surplus)[:, None]
            offset = (0.0 if offset is None else offset) - 0.5 * shift[:, d] * np.asarray(self.surplus)
        task, ridge = ((np.pad(w, ((0, 0), (0, 1))) + shift).astype(dtype) for w in (self.task, self.ridge))
        joint = None if joint is None else joint.astype(dtype)
        return replace(self, task=task, ridge=ridge, metric=joint, offset=offset, mean=None, surplus=None)

    def checked(self, dim: int, count: int) -> Draw:
        """Return this draw, if its shapes fit and its numbers are finite.

        Args:
            dim: The dimension that it must have.
            count: How many sequences it must have.

        Returns:
            This draw.

        Raises:
            InputError: A shape does not fit, or something is not finite.
        """
        if not isinstance(self.moments, Moments):
            refuse("a draw needs Moments", kind_of(self.moments), "Use Moments.from_tokens(x, y).")
        if self.moments.dim != dim or len(self.moments) != count:
            rule = f"a problem must draw {count} contexts of dimension {dim}"
            refuse(rule, f"{len(self.moments)} of dimension {self.moments.dim}", "Correct its draw method.")
        array("gram", self.moments.gram, (count, dim + 1, dim + 1))
        array("task", self.task, (count, dim))
        array("ridge", self.ridge, (count, dim))
        if self.metric is not None and self.tokens is None:
            check_metric(self.metric, count, dim)
        if self.mean is not None:
            array("mean", self.mean, (dim,) if np.ndim(self.mean) == 1 else (count, dim))
        for name, value in (("offset", self.offset), ("surplus", self.surplus), ("sigma", self.sigma)):
            if value is not None and (array(name, value, (count,)) < 0).any() and name != "surplus":
                what = "noise levels" if name == "sigma" else "offsets, which are mean squares,"
                refuse(f"{what} must not be negative", float(np.min(value)), "Correct the draw method.")
        return self

    def astype(self, dtype: type) -> Draw:
        """Return the same numbers, with moments, task, ridge and metric in another precision.

        Args:
            dtype: float32 or float64.

        Returns:
            The draw.
        """
        names = ("gram", "sums", "task", "ridge", "metric", "mean")
        same = self.moments.dtype == dtype
        return self if same else self.mapped(lambda name, value: value.astype(dtype) if name in names else value)
