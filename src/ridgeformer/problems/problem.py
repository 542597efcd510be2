"""The problem: noisy linear regression in context, y_i = <w, x_i> + sigma xi_i.

By default x_i and w are N(0, I), as in the seed paper. Features, tasks, context lengths and queries can follow other
laws.

>>> problem = Problem(dim=10, context=20, noise="uniform(0,5)")
>>> draw = problem.moments(1000, seed=1)
>>> draw.moments
Moments(1000 contexts, dim=10, context=20, float64)
>>> Problem(context="10..40", noise=1, features="factors(2)", tasks="lowrank(3)")
Problem(dim=10, context=10..40, noise=fixed(1), features=factors(2), tasks=lowrank(3))
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import Choices, Engine, Key, Law, Layout
from ridgeformer.engine.arguments import check_sequences, make_key
from ridgeformer.errors import refuse, shown
from ridgeformer.moments import Moments
from ridgeformer.noise import Fixed, Noise, as_noise, check_text
from ridgeformer.problems.base import BaseProblem, Precision
from ridgeformer.problems.draws import Draw, Sequences
from ridgeformer.problems.features import Features, Isotropic, as_features
from ridgeformer.problems.lengths import Lengths
from ridgeformer.problems.posterior import oracle_of_pool
from ridgeformer.problems.tasks import Gaussian, Prior, Tasks, as_tasks
from ridgeformer.problems.tokens import draw_tokens
from ridgeformer.validation import integer
from ridgeformer.values import read_only

__all__ = ["Problem"]

Float = NDArray[np.floating[Any]]
Array = NDArray[np.float64]
SUMS = Layout("sum", "constant")
LENGTH, TASK = 1, 2  # which random words decide the number of examples and the task of a pool; 0 is the noise level


class Problem(BaseProblem):
    """In-context linear regression with Gaussian features.

    Args:
        dim: The dimension d of features and tasks, 1 to 4096.
        context: How many examples a context has: a number, or a range or list of which each sequence draws one, such as
            `range(10, 41)`, `[10, 20, 40]` or `"10..40"`.
        noise: The distribution of noise levels sigma: a `Noise`, its text such as `"uniform(0,5)"`, a number for one
            level, or a frozen scipy.stats distribution. It has no default.
        features: The law of the features: `Features`, their text such as `"powerlaw(1)"`, a covariance matrix [d, d] or
            variances [d]; None for N(0, I).
        tasks: The law of the tasks w: `Tasks` or their text such as `"lowrank(3)"` or `"pool(64)"`; None for N(0, I).
        query: The covariance of the queries, given like features that are the same for all sequences; None for that of
            the features.

    Raises:
        InputError: An argument is of the wrong type or out of range, or they do not fit together.
    """

    law: Law
    noise: Noise

    def __init__(
        self,
        dim: int = 10,
        context: object = 20,
        noise: object = None,
        *,
        features: object = None,
        tasks: object = None,
        query: object = None,
    ) -> None:
        if noise is None:
            refuse("a problem needs a noise distribution", "none", 'Pass noise="uniform(0,5)", for example.')
        self.dim = integer("dim", dim, 1, 4096)
        self.lengths = Lengths(context)
        self.noise = as_noise(noise)
        self.features: Features = as_features(features)
        self.tasks: Tasks = as_tasks(tasks)
        self.query: Features | None = None if query is None else as_features(query)
        if self.query is not None and not self.query.fixed:
            refuse("queries have one covariance for all sequences", self.query, "Pass a matrix or a spectrum.")
        if self.query is not None and self.features.standardised:
            refuse(
                "queries of standardised features have the covariance of the features",
                self.query,
                "Leave out query, or do not standardise.",
            )
        if self.features.standardised and self.lengths.least < 2:
            refuse("standardising needs at least two examples", f"context {self.lengths}", "Pass a larger context.")
        self.law = self._law()

    def _law(self) -> Law:
        query = None if self.query is None else self.query.mean_covariance(self.dim)
        return Law(
            self.dim,
            self.lengths.most,
            self.lengths.least,
            **self.features.law(self.dim),
            **self.tasks.law(self.dim),
            query=query,
        )

    def __init_subclass__(cls, **keywords: object) -> NoReturn:
        """Refuse subclasses: what they override would be used in some places and not in others."""
        refuse("Problem has no subclasses", cls.__name__, "Derive a problem of your own from CustomProblem.")

    # ---- what it is -------------------------------------------------------------------------------------

    @property
    def context(self) -> int:
        """The number of examples n, where it is the same for all sequences.

        Raises:
            InputError: It varies; see `lengths`.
        """
        if not self.lengths.fixed:
            rule = "this needs a fixed number of examples"
            refuse(rule, f"n = {self.lengths}", "Use a problem with one context length.")
        return self.lengths.most

    @property
    def is_isotropic(self) -> bool:
        """Whether features, tasks and queries are N(0, I) and n is fixed, as in the seed paper."""
        return self.law.is_isotropic

    @cached_property
    def prior(self) -> Prior:
        """The Gaussian law of tasks that ridge predictors assume."""
        return self.tasks.prior(self.dim)

    @property
    def has_pool(self) -> bool:
        """Whether tasks come from a pool, wholly or in part."""
        return self.law.pool is not None

    @cached_property
    def query_covariance(self) -> Array:
        """The covariance of the queries, [d, d]; its average where each sequence has its own."""
        return (self.query or self.features).mean_covariance(self.dim)

    @cached_property
    def signal(self) -> float:  # type: ignore[override]
        """E[<w, x>^2] over tasks and queries: twice the loss of predicting 0. It is d for isotropic problems."""
        if self.is_isotropic:
            return float(self.dim)
        found = float((self.query_covariance * self.tasks.second_moment(self.dim)).sum())
        if self.features.standardised:
            # A query standardised by n others has variance (n + 1) / (n - 3), infinite for n <= 3; about that much for
            # the products of two features.
            n = np.maximum(self.lengths.values, 4).astype(np.float64)
            found *= float(np.mean((n + 1) / (n - 3)))
        return found

    @property
    def feature_scale(self) -> float:
        """The root mean square of a feature."""
        return 1.0 if self.is_isotropic else float(np.sqrt(np.diag(self.features.mean_covariance(self.dim)).mean()))

    def at_noise(self, sigma: float) -> Problem:
        """Return the same problem with one noise level.

        Args:
            sigma: The noise level.

        Returns:
            The problem.
        """
        return self.replace(noise=Fixed(float(sigma)))

    def replace(self, **changes: Any) -> Problem:
        """Return a problem that differs in some arguments.

        Args:
            **changes: New values by name, as `Problem` takes them.

        Returns:
            The problem.
        """
        given = {
            "dim": self.dim,
            "context": self.lengths,
            "noise": self.noise,
            "features": self.features,
            "tasks": self.tasks,
            "query": self.query,
        }
        if not changes.keys() <= given.keys():
            refuse(f"a problem has {', '.join(given)}", ", ".join(changes), "Pass only these.")
        return Problem(**{**given, **changes})

    # ---- text and identity ------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Return the arguments as JSON has them, without those that have their defaults; `from_dict` reads them back.

        Raises:
            InputError: The noise is a distribution of your own, which no text describes.
        """
        return {
            "dim": self.dim,
            "context": self.lengths.most if self.lengths.fixed else str(self.lengths),
            "noise": check_text(self.noise),
            **{name: str(value) for name, value in self.unusual().items()},
        }

    @classmethod
    def from_dict(cls, arguments: Mapping[str, Any]) -> Problem:
        """Return the problem that `as_dict` described.

        Args:
            arguments: The arguments by name.

        Returns:
            The problem.
        """
        return cls(**arguments)

    @classmethod
    def parse(cls, text: str) -> Problem:
        """Return the problem that a text describes; the inverse of `str`.

        Args:
            text: Such as `d=10 n=20 uniform(0,5) features=powerlaw(1)`.

        Returns:
            The problem.

        Raises:
            InputError: The text describes no problem.

        >>> Problem.parse("d=10 n=20 uniform(0,5)") == Problem(10, 20, "uniform(0,5)")
        True
        """
        names = {"d": "dim", "n": "context"}
        found: dict[str, Any] = {}
        if not isinstance(text, str):
            refuse("a problem must be described by text", shown(text), "Write 'd=10 n=20 uniform(0,5)'.")
        for part in text.split():
            name, _, value = part.partition("=")
            if name not in ("d", "n", "features", "tasks", "query"):
                name, value = "noise", part
            if not value or names.get(name, name) in found:
                refuse("a problem must be described part by part", shown(text), "Write 'd=10 n=20 uniform(0,5)'.")
            found[names.get(name, name)] = value
        try:
            found["dim"] = int(found.get("dim", 10))
        except ValueError:
            refuse("d must be a whole number", shown(found["dim"]), "Write 'd=10 n=20 uniform(0,5)'.")
        return cls(**found)

    def unusual(self) -> dict[str, Features | Tasks]:
        """Features, tasks and query, where they are not those of the seed paper."""
        found = {"features": self.features, "tasks": self.tasks, "query": self.query}
        usual = Isotropic(), Gaussian(), None
        return {name: part for (name, part), one in zip(found.items(), usual, strict=True) if part not in (None, one)}

    def __str__(self) -> str:
        extra = "".join(f" {name}={value}" for name, value in self.unusual().items())
        return f"d={self.dim} n={self.lengths} {self.noise}{extra}"

    def __repr__(self) -> str:
        extra = "".join(f", {name}={value!r}" for name, value in self.unusual().items())
        return f"Problem(dim={self.dim}, context={self.lengths}, noise={self.noise}{extra})"

    def _identity(self) -> tuple[Any, ...]:
        return self.dim, self.lengths, self.noise, self.features, self.tasks, self.query

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    # ---- sampling ---------------------------------------------------------------------------------------

    def choices(
        self,
        count: int,
        *,
        seed: int = 0,
        stream: int = 0,
        step: int = 0,
        first: int = 0,
        engine: Engine | str | None = None,
    ) -> Choices:
        """Draw what is decided before the tokens: noise levels, numbers of examples, tasks of a pool.

        Args:
            count: How many sequences, B.
            seed: The seed.
            stream: A number that tells independent streams of one seed apart.
            step: A further such number.
            first: The number of the first sequence in its stream.
            engine: Where it is computed; None for the current engine.

        Returns:
            The choices.
        """
        key, engine = make_key(seed, stream, step), engines.resolve(engine)
        count, first = check_sequences(count, first)
        levels = self.noise.quantile(engine.uniforms(key, count, first))
        sigma = read_only(np.array(levels, np.float64, ndmin=1))
        counts = None if self.lengths.fixed else self.lengths.quantile(engine.uniforms(key, count, first, LENGTH))
        task = self.tasks.choose(engine.uniforms(key, count, first, TASK), self.dim) if self.has_pool else None
        return Choices(sigma, counts, task)

    def sigmas(self, count: int, **key: Any) -> Array:
        """Draw the noise levels of sequences, as `choices` does.

        Args:
            count: How many sequences, B.
            **key: Seed, stream, step, first and engine, as in `choices`.

        Returns:
            The noise levels, [B].
        """
        return self.choices(count, **key).sigma

    def _moments(
        self, key: Key, count: int, first: int, dtype: Precision, sums: bool, engine: Engine, threads: int | None
    ) -> Draw:
        choices = self.choices(count, **key._asdict(), first=first, engine=engine)
        layout = SUMS if sums else Layout()
        drawn = engine.sample(self.law, choices, key, layout=layout, first=first, dtype=dtype, threads=threads)
        gram, total, ridge = drawn.gram, None, drawn.ridge
        if sums:
            d = self.dim
            kept = np.append(np.arange(d), d + 1)
            gram, total = np.asarray(gram[:, kept[:, None], kept]), np.asarray(gram[:, d, kept])
        context = self.lengths.most if choices.counts is None else np.asarray(choices.counts)
        moments = Moments._trusted(gram, context, choices.sigma, total)
        if self.has_pool:
            ridge = oracle_of_pool(self.tasks, moments).astype(dtype)
        metric = self.law.metric if drawn.metric is None else drawn.metric
        shown: Any = None if metric is None else read_only(np.asarray(metric, dtype))
        return Draw(moments, read_only(drawn.task), read_only(ridge), choices.sigma, shown)

    def sequences(self, count: int, *, seed: int = 0, stream: int = 0, step: int = 0, queries: int = 1) -> Sequences:
        """Draw whole sequences: tokens, queries, task vectors, noise levels. Same law as `moments`, other numbers.

        Args:
            count: How many sequences, B.
            seed: The seed.
            stream: A number that tells independent streams of one seed apart.
            step: A further such number.
            queries: How many queries each sequence has.

        Returns:
            The sequences; where n varies, contexts are filled up with tokens that are 0.
        """
        key, (count, _) = make_key(seed, stream, step), check_sequences(count, 0)
        return draw_tokens(self, key, count, integer("queries", queries))
