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
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import Choices, Engine, Evaluation, Kernel, Key, Law, Layout
from ridgeformer.engine.interface import check_sequences, make_key
from ridgeformer.engine.sampler import task_uniforms
from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.noise import Fixed, Noise, as_noise, check_text
from ridgeformer.problems.base import Ask, BaseProblem, Precision
from ridgeformer.problems.draws import Draw, Sequences
from ridgeformer.problems.features import Features, Isotropic, as_features
from ridgeformer.problems.parts import ContextRule, dimensions, parse_problem, shown_text, varies
from ridgeformer.problems.tasks import Gaussian, Prior, Tasks, as_tasks
from ridgeformer.problems.tokens import Bank, draw_with_tokens
from ridgeformer.validation import integer, keywords, number
from ridgeformer.values import read_only

Float = NDArray[np.floating[Any]]
Array = NDArray[np.float64]
SUMS = Layout("sum", "constant")
LENGTH, TASK = 1, 2  # which random words decide the number of examples and the task of a pool; 0 is the noise level


class Problem(BaseProblem):
    """In-context linear regression with Gaussian features.

    Args:
        dim: The dimension d of features and tasks, 1 to 4096; or several of them, such as `range(2, 33)`, `[2, 4, 8]`
            or `"2..32"`, which gives a `VaryingDimension`.
        context: How many examples a context has: a number, or a range or list of which each sequence draws one, such as
            `range(10, 41)`, `[10, 20, 40]` or `"10..40"`. It may depend on d: `"2d"`, `"d+2..4d"`.
        noise: The distribution of noise levels sigma: a `Noise`, its text such as `"uniform(0,5)"`, a number for one
            level, or a frozen scipy.stats distribution. It has no default.
        features: The law of the features: `Features`, their text such as `"powerlaw(1)"`, a covariance matrix [d, d] or
            variances [d]; None for N(0, I).
        tasks: The law of the tasks w: `Tasks`, their text such as `"lowrank(3)"` or `"pool(64)"`, a covariance matrix
            [d, d] or variances [d]; None for N(0, I).
        query: The covariance of the queries, given like features that are the same for all sequences; None for that of
            the features.

    Raises:
        InputError: An argument is of the wrong type or out of range, or they do not fit together.
    """

    law: Law
    noise: Noise

    def __new__(cls, dim: object = 10, *args: Any, **others: Any) -> Any:
        """Make a problem; one whose dimension varies is a `VaryingDimension`."""
        if not varies(dim):
            return super().__new__(cls)
        from ridgeformer.problems.varying import VaryingDimension

        return VaryingDimension(dim, *args, **others)

    @keywords()
    def __init__(
        self,
        dim: Any = 10,
        context: object = 20,
        noise: object = None,
        *,
        features: object = None,
        tasks: object = None,
        query: object = None,
    ) -> None:
        if noise is None:
            refuse("a problem needs a noise distribution", "none", 'Pass noise="uniform(0,5)", for example.')
        self.dim = integer("dim", dimensions(dim)[0] if isinstance(dim, str) else dim, 1, 4096)
        self.lengths = ContextRule(context).at(self.dim)
        self.noise = as_noise(noise)
        self.features: Features = as_features(features)
        self.tasks: Tasks = as_tasks(tasks)
        self.query: Features | None = None if query is None else as_features(query)
        self.features.check(self.query, self.lengths)
        self.law = self._law()

    def _law(self) -> Law:
        return Law(
            self.dim,
            self.lengths.most,
            self.lengths.least,
            **self.features.law(self.dim),
            **self.tasks.law(self.dim),
            query=None if self.query is None else self.query.mean_covariance(self.dim),
        )

    def __init_subclass__(cls, **keywords: object) -> NoReturn:
        """Refuse subclasses: what they override would be used in some places and not in others."""
        refuse("Problem has no subclasses", cls.__name__, "Derive a problem of your own from CustomProblem.")

    @property
    def context(self) -> int:
        """The number of examples n, where it is the same for all sequences.

        Raises:
            InputError: It varies; see `lengths`.
        """
        if not self.lengths.fixed:
            refuse("this needs a fixed number of examples", f"n = {self.lengths}", "Use one context length.")
        return self.lengths.most

    @property
    def is_isotropic(self) -> bool:
        """Whether features, tasks and queries are N(0, I) and n is fixed, as in the seed paper."""
        return self.law.is_isotropic and self.tasks.is_gaussian and not self.noise.per_token

    @cached_property
    def prior(self) -> Prior:
        """The Gaussian law of tasks that ridge predictors assume."""
        return self.tasks.prior(self.dim)

    @property
    def has_pool(self) -> bool:
        """Whether tasks come from a pool, wholly or in part."""
        return self.law.pool is not None

    @property
    def has_ridge_oracle(self) -> bool:
        """See `BaseProblem.has_ridge_oracle`."""
        return self.tasks.is_gaussian

    @cached_property
    def query_covariance(self) -> Array:
        """The covariance of the queries, [d, d]; its average where each sequence has its own."""
        return read_only((self.query or self.features).mean_covariance(self.dim))

    @cached_property
    def signal(self) -> float:  # type: ignore[override]
        """E[<w, x>^2] over tasks and queries: twice the loss of predicting 0. It is d for isotropic problems.

        Of standardised features it is infinite for n <= 3, where that for n = 4 takes its place.
        """
        if self.is_isotropic:
            return float(self.dim)
        tasks = self.tasks.second_moment(self.dim)
        if not self.features.standardised:
            return float((self.query_covariance * tasks).sum())
        covariances = [self.features.query_moment(self.dim, n) for n in self.lengths.values.tolist()]
        return float((np.mean(covariances, axis=0) * tasks).sum())

    @property
    def feature_scale(self) -> float:
        """The root mean square of a feature."""
        return 1.0 if self.is_isotropic else float(np.sqrt(np.diag(self.features.mean_covariance(self.dim)).mean()))

    @property
    def has_known_laws(self) -> bool:
        """See `BaseProblem.has_known_laws`."""
        return not self.noise.per_token

    @property
    def one_covariance(self) -> bool:
        """See `BaseProblem.one_covariance`."""
        return self.features.fixed

    def differences(self) -> str:
        """See `BaseProblem.differences`."""
        words = {"features": "the features", "tasks": "the tasks", "query": "the queries"}
        names = [words[name] for name in self.unusual()]
        laws = [f"{' and '.join(names)} are not"] if names else []
        return " and ".join([*laws, *([] if self.lengths.fixed else [f"n is {self.lengths}"])])

    def at_noise(self, sigma: float) -> Problem:
        """See `BaseProblem.at_noise`."""
        return self.replace(noise=Fixed(number("sigma", sigma)))

    @property
    def arguments(self) -> dict[str, Any]:
        """See `BaseProblem.arguments`."""
        laws = {"features": self.features, "tasks": self.tasks, "query": self.query}
        return {"dim": self.dim, "context": self.lengths, "noise": self.noise, **laws}

    def edges(self) -> Problem:
        """See `BaseProblem.edges`."""
        return self if self.lengths.fixed else self.replace(context=[self.lengths.least, self.lengths.most])

    def oracle(self, drawn: Sequences | Draw | Moments) -> Array:
        """See `BaseProblem.oracle`."""
        from ridgeformer.predictors.best import oracle

        return oracle(self, drawn)

    def best_predictor(self) -> Any:
        """See `BaseProblem.best_predictor`: `DMMSE` for pools, `SparseBayes` for sparse tasks, else `BayesRR`."""
        from ridgeformer.predictors.bayes import best_predictor

        return best_predictor(self)

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
        return cls(**parse_problem(text))

    def unusual(self) -> dict[str, Features | Tasks]:
        """Features, tasks and query, where they are not those of the seed paper."""
        parts = {"features": self.features, "tasks": self.tasks, "query": self.query}
        usual = Isotropic(), Gaussian(), None
        return {name: part for (name, part), one in zip(parts.items(), usual, strict=True) if part not in (None, one)}

    @property
    def label(self) -> str:
        """See `BaseProblem.label`."""
        extra = "".join(f" {name}={value.label}" for name, value in self.unusual().items())
        return f"d={self.dim} n={shown_text(str(self.lengths), 40)} {shown_text(str(self.noise), 60)}{extra}"

    @property
    def stem(self) -> str:
        """See `BaseProblem.stem`."""
        return str(self.noise)

    def describe(self) -> dict[str, str]:
        """Say what the problem is, in a sentence for each of its parts.

        Returns:
            A sentence for `features`, `tasks`, `context`, `noise` and `query`.

        >>> problem = Problem(dim=4, context="10..40", noise="uniform(0,2)", tasks="pool(64)")
        >>> for part, sentence in problem.describe().items():
        ...     print(f"{part}: {sentence}")
        features: x is N(0, I) in 4 dimensions.
        tasks: w is drawn from a pool of 64 vectors, which are themselves drawn from N(0, I) with seed 0.
        context: n is one of the 31 numbers 10..40, each with the same probability; the mean is 25.
        noise: sigma has the distribution uniform(0,2); E[sigma^2] is 1.333.
        query: Queries have the covariance of the features.
        """
        query = "Queries have the covariance of the features."
        if self.query is not None:
            query = f"Queries have another covariance than the features: {self.query.describe(self.dim)}."
        return {
            "features": self.features.describe(self.dim) + ".",
            "tasks": self.tasks.describe(self.dim) + ".",
            "context": self.lengths.describe(),
            "noise": f"{self.noise.words}; E[sigma^2] is {self.noise.second_moment:.4g}.",
            "query": query,
        }

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

    def _drawn_from(self, key: Key, count: int, first: int, engine: Engine) -> tuple[Law, Choices]:
        """What engines draw sequences from: tasks that they cannot draw are a pool, one for each sequence."""
        choices = self.choices(count, **key._asdict(), first=first, engine=engine)
        if not (numbers := self.tasks.numbers(self.dim)):
            return self.law, choices
        tasks = self.tasks.drawn(task_uniforms(key, count, first, numbers))
        return replace(self.law, pool=tasks), replace(choices, task=np.arange(count))

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
        if self.noise.per_token:
            return self._bank.draw(key, count, first).astype(dtype)
        law, choices = self._drawn_from(key, count, first, engine)
        layout = SUMS if sums else Layout()
        drawn = engine.sample(law, choices, key, layout=layout, first=first, dtype=dtype, threads=threads)
        gram, total, ridge = drawn.gram, None, drawn.ridge
        if sums:
            d, kept = self.dim, np.append(np.arange(self.dim), self.dim + 1)
            gram, total = np.asarray(gram[:, kept[:, None], kept]), np.asarray(gram[:, d, kept])
        context = self.lengths.most if choices.counts is None else np.asarray(choices.counts)
        moments = Moments._trusted(gram, context, choices.sigma, total)
        if not self._engine_has_oracle:
            ridge = self.oracle(moments).astype(dtype)
        metric = self.law.metric if drawn.metric is None else drawn.metric
        shown: Any = None if metric is None else read_only(np.asarray(metric, dtype))
        return Draw(moments, read_only(drawn.task), read_only(ridge), choices.sigma, shown)

    @property
    def _engine_has_oracle(self) -> bool:
        """Whether engines compute the oracle: of Gaussian tasks, unless n may be below and above their rank."""
        return self.tasks.is_gaussian and not self.law.lacks_ridge

    def _draw_tokens(self, key: Key, count: int, first: int, queries: int) -> Draw:
        """Draw whole sequences. They have the same law as those of `_moments`, and other numbers."""
        if self.noise.per_token:
            return self._bank.draw(key, count, first, tokens=True)
        return draw_with_tokens(self, np.random.default_rng(np.random.SeedSequence((*key, first))), count, queries)

    @cached_property
    def _bank(self) -> Bank:
        """The sequences that are drawn token by token, because tokens have noise levels of their own."""
        return Bank(partial(draw_with_tokens, self), self.lengths.most * self.dim)

    def affordable(self, count: int) -> int:
        """See `BaseProblem.affordable`."""
        return count // 8 if self.noise.per_token else count

    def _step(self, kernel: Kernel, key: Key, count: int, first: int, ask: Ask) -> Evaluation:
        """Let the engine draw and evaluate at once; oracles of tasks that are not Gaussian come from moments."""
        if self.noise.per_token:
            return self._evaluated(kernel, self._bank.of_step(key, count, first, ask.gradient, ask.dtype), ask)
        if ask.layout.opening or (ask.target == "ridge" and not self._engine_has_oracle):
            return super()._step(kernel, key, count, first, ask)
        law, choices = self._drawn_from(key, count, first, ask.engine)
        return ask.engine.step(
            kernel,
            law,
            choices,
            key,
            layout=ask.layout,
            target=ask.target,
            ceiling=ask.ceiling,
            gradient=ask.gradient,
            unadjusted=ask.unadjusted,
            first=first,
            threads=ask.threads,
        )
