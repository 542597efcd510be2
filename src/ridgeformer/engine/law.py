"""The law that engines draw sequences from, and the layout of the tokens that they make of a sequence.

A `Law` describes Gaussian features x ~ N(0, Lambda) and tasks w = mean + F g with g ~ N(0, I), or a pool of tasks.
`Choices` are what is drawn for each sequence beforehand: its noise level, its number of tokens, its task in the pool.
A `Layout` says what a token holds beside (x, y), and whether attention sums over tokens or takes their mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.validation import array, choice, flag, integer, keywords, number, unmasked
from ridgeformer.values import Batched, Value, read_only

Array = NDArray[np.float64]
Float = NDArray[np.floating[Any]]
Counts = NDArray[np.int64]
Attention = Literal["sum", "mean"]
Coordinate = Literal["none", "constant", "length", "ratio"]
MOST_DIM, MOST_CONTEXT = 4096, 1 << 52
LARGEST = 1e6  # unique variance or spread
REFERENCE = 20.0  # the n at which the coordinate that shows n is 1
KINDS = ("fixed", "rotated", "factors")
COORDINATES = ("none", "constant", "length", "ratio")


@dataclass(eq=False)
class Law(Value):
    """The law of sequences with Gaussian features and tasks.

    Attributes:
        dim: The dimension d of features and tasks.
        context: The number of tokens n, or the largest where it varies.
        shortest: The smallest n; None for `context`.
        covariance: `fixed`, the covariance C C' for all sequences; `rotated`, a spectrum in a random basis of each
            sequence; `factors`, the correlation matrix of L L' + unique I with random loadings L of each sequence.
        factor: For `fixed` the lower triangle C, [d, d], or None for the identity; for `rotated` the square roots of
            the spectrum, [d].
        factors: How many common factors the features have, for `factors`.
        unique: The unique variance of each feature, for `factors`, where loadings have a mean square of 1 in all.
        spread: The standard deviation of the logarithm of a random scale of each feature and sequence; 0 for none.
        standardised: Whether each feature is shifted and scaled to mean 0 and variance 1 within its context.
        mean: The mean of the tasks, [d]; None for 0.
        task_factor: F with the covariance F F' of the tasks, [d, rank]; None for the identity.
        pool: Tasks to choose among, [K, d]; None for none.
        query: The covariance of the queries, [d, d]; None for that of the features.
    """

    dim: int
    context: int
    shortest: int | None = None
    covariance: Literal["fixed", "rotated", "factors"] = "fixed"
    factor: Array | None = None
    factors: int = 0
    unique: float = 0.0
    spread: float = 0.0
    standardised: bool = False
    mean: Array | None = None
    task_factor: Array | None = None
    pool: Array | None = None
    query: Array | None = None

    def __post_init__(self) -> None:
        self.dim = integer("dim", self.dim, 1, MOST_DIM)
        self.context = integer("context", self.context, 1, MOST_CONTEXT)
        self.standardised = flag("standardised", self.standardised)
        least = 2 if self.standardised else 1
        shortest = self.context if self.shortest is None else self.shortest
        self.shortest = integer("the smallest number of tokens", shortest, least, self.context)
        choice("covariance", self.covariance, KINDS)
        d = self.dim
        shapes: dict[str, tuple[int | str, ...]] = {
            "factor": (d,) if self.covariance == "rotated" else (d, d),
            "mean": (d,),
            "task_factor": (d, "r"),
            "pool": ("K", d),
            "query": (d, d),
        }
        for name, shape in shapes.items():
            if (value := getattr(self, name)) is not None:
                setattr(self, name, array(name, value, shape).astype(np.float64))
        self.factors = integer("the number of factors", self.factors, int(self.covariance == "factors"), d)
        self.unique = number("unique", self.unique, 1e-3 if self.covariance == "factors" else 0.0, LARGEST)
        self.spread = number("spread", self.spread, 0.0, LARGEST)
        self._check_matrices()
        if self.task_factor is not None:
            integer("the rank of the tasks", self.task_factor.shape[1], 1, d)
        if self.standardised and self.query is not None:
            rule = "queries of standardised features have the covariance of the features"
            refuse(rule, "another one", "Leave out query, or do not standardise.")

    def _check_matrices(self) -> None:
        if self.covariance == "factors" and self.factor is not None:
            refuse("factor is for other covariances than factors", "a factor", "Leave out factor.")
        if self.covariance == "fixed" and self.factor is not None and np.triu(self.factor, 1).any():
            remedy = "Pass np.linalg.cholesky(covariance)."
            refuse("factor must be lower triangular", "entries above the diagonal", remedy)
        if self.query is not None:
            with np.errstate(all="ignore"):
                asymmetry, size = np.abs(self.query - self.query.T).max(), np.abs(self.query).max()
                symmetric = asymmetry <= 1e-12 * size
            if not symmetric:
                refuse("query must be symmetric", "a matrix that is not", "Pass the covariance of the queries.")

    @property
    def least(self) -> int:
        """The smallest number of tokens."""
        assert self.shortest is not None
        return self.shortest

    @property
    def lacks_ridge(self) -> bool:
        """Whether n may be below and above the rank of the tasks: engines then cannot solve for the mean of the task.

        Their systems are singular without noise. `Problem` computes these oracles from the moments.
        """
        return self.least - self.standardised < self.rank < min(self.context, self.dim)

    @property
    def rank(self) -> int:
        """The rank of the covariance of the tasks."""
        return self.dim if self.task_factor is None else int(self.task_factor.shape[1])

    @property
    def own_metric(self) -> bool:
        """Whether each sequence has a query covariance of its own."""
        return self.query is None and (self.covariance != "fixed" or self.spread > 0 or self.standardised)

    @property
    def metric(self) -> Array | None:
        """The covariance of the queries, [d, d], where it is the same for all sequences; None for the identity."""
        if self.query is not None or self.own_metric or self.factor is None:
            return self.query
        with np.errstate(all="ignore"):
            return read_only(self.factor @ self.factor.T)

    @property
    def is_isotropic(self) -> bool:
        """Whether features, tasks and queries are isotropic, and n is the same for all sequences."""
        arrays = (self.factor, self.mean, self.task_factor, self.pool, self.query)
        same = self.covariance == "fixed" and not self.spread and not self.standardised
        return same and self.least == self.context and all(value is None for value in arrays)


@dataclass(eq=False)
class Choices(Batched):
    """The choices that are drawn for each of B sequences before its tokens.

    Attributes:
        sigma: The noise levels, [B], float64, finite and not negative.
        counts: The numbers of tokens, [B]; None where n does not vary.
        task: Which task of the pool, [B], or -1 for a new one; None where there is no pool.
    """

    sigma: Array
    counts: Counts | None = None
    task: Counts | None = None

    def __post_init__(self) -> None:
        for name in ("sigma", "counts", "task"):
            unmasked(name, getattr(self, name))

    def __len__(self) -> int:
        return len(self.sigma)


@keywords()
@dataclass(frozen=True)
class Layout:
    """The coordinates of a model's tokens beside (x, y), and whether its attention is a sum or a mean.

    Attributes:
        attention: `sum` over the tokens of a context, as in the seed paper, or `mean`.
        coordinate: A further coordinate of every token: `none`; `constant`, a 1, also in queries, which gives an
            intercept; `length`, sqrt(20 / n) in context tokens and 0 in queries, which shows n to attention by mean; or
            `ratio`, 0 in all these tokens and sqrt(2 d) in one more context token, which is 0 otherwise: it shows
            2 d / n to attention by mean, which still divides by n. Features that are 0 throughout do not count in d.
        scratch: How many coordinates beside that start at zero, as room for intermediate results.

    >>> Layout("mean", "length")
    Layout(attention='mean', coordinate='length', scratch=0)
    """

    attention: Attention = "sum"
    coordinate: Coordinate = "none"
    scratch: int = 0

    def __post_init__(self) -> None:
        choice("attention", self.attention, ("sum", "mean"))
        choice("the coordinate", self.coordinate, COORDINATES)
        integer("scratch", self.scratch, 0, MOST_DIM)

    @property
    def extra(self) -> int:
        """How many coordinates a token has beside x and y."""
        return self.scratch + (self.coordinate != "none")

    @property
    def opening(self) -> int:
        """How many context tokens there are beside the examples: one for the coordinate `ratio`."""
        return int(self.coordinate == "ratio")

    @property
    def counted(self) -> int:
        """How many of these enter a query's prediction."""
        return int(self.coordinate == "constant")

    def value(self, context: Any) -> Any:
        """Return the further coordinate of the tokens of a context.

        Args:
            context: The number of tokens, one or an array of them.

        Returns:
            The coordinate, of the same shape.
        """
        if self.coordinate == "ratio":
            return np.zeros(np.shape(context))
        if self.coordinate == "length":
            return np.sqrt(REFERENCE / np.asarray(context, np.float64))
        return np.ones(np.shape(context))

    def gram(self, gram: Float, context: int | Counts, sums: Float | None) -> Float:
        """Return the Gram matrices of these tokens from those of (x, y).

        Args:
            gram: Gram matrices of tokens (x, y), [B, D, D].
            context: The number of tokens, one for all or [B].
            sums: The sums of the tokens (x, y), [B, D]; needed for a further coordinate only.

        Returns:
            Gram matrices [B, D + extra, D + extra], divided by the number of tokens if attention is a mean.
        """
        n = np.broadcast_to(np.asarray(context, np.float64), len(gram))
        grams = gram
        if self.extra:
            B, d = len(gram), gram.shape[1] - 1
            grams = np.zeros((B, d + self.extra + 1, d + self.extra + 1), gram.dtype)
            old = np.append(np.arange(d), -1)
            grams[:, old[:, None], old[None, :]] = gram
            if self.coordinate == "ratio":
                grams[:, d, d] = 2 * (np.diagonal(gram[:, :d, :d], axis1=1, axis2=2) > 0).sum(1)
            elif self.coordinate != "none":
                assert sums is not None
                c = self.value(n)
                grams[:, d, old] = grams[:, old, d] = c[:, None] * sums
                grams[:, d, d] = c**2 * n
        return grams / n.astype(grams.dtype)[:, None, None] if self.attention == "mean" else grams

    def tokens(self, x: Any, y: Any, coordinate: Any, xp: Any = np) -> Any:
        """Return tokens (x, further coordinates, y), in any array library.

        Args:
            x: Features, [..., n, d].
            y: Labels, [..., n], of the same dtype.
            coordinate: The further coordinate, one number, or an array that fits [..., n, 1].
            xp: The module that computes: `numpy`, `torch` or `jax.numpy`.

        Returns:
            The tokens, [..., n, D].
        """
        zero = xp.zeros_like(x[..., :1])
        further = [] if self.coordinate == "none" else [zero + coordinate]
        scratch = xp.broadcast_to(zero, (*zero.shape[:-1], self.scratch))
        return xp.concatenate([x, *further, scratch, y[..., None]], -1)

    def context_tokens(self, x: Any, y: Any, xp: Any = np) -> Any:
        """Return the tokens of contexts: the examples, and one more token where the layout has it.

        Args:
            x: Features, [..., n, d].
            y: Labels, [..., n], of the same dtype.
            xp: The module that computes.

        Returns:
            The tokens, [..., n + opening, D].
        """
        tokens = self.tokens(x, y, float(self.value(x.shape[-2])), xp)
        if not self.opening:
            return tokens
        none = xp.zeros_like(x[..., :1, :])
        used = (x != 0).any(-2).sum(-1) + none[..., 0, 0]  # how many features are not 0 throughout
        return xp.concatenate([tokens, self.tokens(none, none[..., 0], xp.sqrt(2 * used)[..., None, None], xp)], -2)

    def target(self, target: Any, xp: Any = np) -> Any:
        """Return targets with a zero for each further coordinate that enters the prediction.

        Args:
            target: Targets, [B, d].
            xp: The module that computes.

        Returns:
            Targets, [B, d + counted].
        """
        return xp.concatenate([target, xp.zeros_like(target[:, :1])], 1) if self.counted else target

    def metric(self, metric: Any, xp: Any = np) -> Any:
        """Return a metric with a one for each further coordinate that enters the prediction.

        Args:
            metric: A metric, [d, d] or [B, d, d], or None for the identity.
            xp: The module that computes.

        Returns:
            The metric of d + counted coordinates, or None.
        """
        if metric is None or not self.counted:
            return metric
        row = xp.zeros_like(metric[..., :1, :])
        corner = xp.ones_like(row[..., :1])
        below = xp.concatenate([row, corner], -1)
        return xp.concatenate([xp.concatenate([metric, row.swapaxes(-1, -2)], -1), below], -2)


PAPER_LAYOUT = Layout()  # tokens (x, y), and attention by sum, as in the seed paper
