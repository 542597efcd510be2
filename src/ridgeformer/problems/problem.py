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

from abc import abstractmethod
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar, NoReturn

import numpy as np

from ridgeformer import engine as engines
from ridgeformer.engine import PAPER_LAYOUT, Choices, Engine, Evaluation, Kernel, Key, Law
from ridgeformer.engine.interface import check_sequences, make_key
from ridgeformer.engine.sampler import task_uniforms
from ridgeformer.errors import refuse, short, shown
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise, as_noise
from ridgeformer.noise.base import check_text
from ridgeformer.problems.base import SUMS, Ask, BaseProblem, check_signal
from ridgeformer.problems.draws import Draw, Sequences
from ridgeformer.problems.features import Features, Isotropic
from ridgeformer.problems.parts import ContextRule, Lengths, dimensions, varies
from ridgeformer.problems.tasks import Gaussian, Prior, Tasks
from ridgeformer.problems.tokens import Bank, draw_with_tokens
from ridgeformer.validation import Array, integer, keywords, number
from ridgeformer.values import read_only

LENGTH, TASK = 1, 2  # which random words decide the number of examples and the task of a pool; 0 is the noise level


class BuiltIn(BaseProblem):
    """Base class of built-in problems, which their arguments decide: what these say about the problem.

    Attributes:
        noise: The distribution of noise levels.
        features: The law of the features.
        tasks: The law of the tasks.
        query: The law of the queries; None for that of the features.
    """

    noise: Noise
    features: Features
    tasks: Tasks
    query: Features | None

    @property
    @abstractmethod
    def sizes(self) -> tuple[int | str, Lengths | ContextRule]:
        """The first two arguments: the dimension, or several as text, and the numbers of examples."""

    @property
    def arguments(self) -> dict[str, Any]:
        """See `BaseProblem.arguments`."""
        laws = {"features": self.features, "tasks": self.tasks, "query": self.query}
        return {"dim": self.sizes[0], "context": self.sizes[1], "noise": self.noise, **laws}

    def at_noise(self, sigma: float) -> Any:
        """See `BaseProblem.at_noise`."""
        return self.replace(noise=number("sigma", sigma))

    def unusual(self) -> dict[str, Features | Tasks]:
        """Features, tasks and query, where they are not those of the seed paper."""
        parts = {"features": self.features, "tasks": self.tasks, "query": self.query}
        usual = Isotropic(), Gaussian(), None
        return {name: part for (name, part), one in zip(parts.items(), usual, strict=True) if part not in (None, one)}

    def as_dict(self) -> dict[str, Any]:
        """Return the arguments as JSON has them, without those that have their defaults.

        Returns:
            The entries, which `problem_from_dict` reads back.

        Raises:
            InputError: The noise is a distribution of your own, which no text describes.
        """
        dim, context = self.sizes
        laws = {name: str(value) for name, value in self.unusual().items()}
        return {"dim": dim, "context": context.plain, "noise": check_text(self.noise), **laws}

    @property
    def label(self) -> str:
        """See `BaseProblem.label`."""
        dim, context = self.sizes
        extra = "".join(f" {name}={value.label}" for name, value in self.unusual().items())
        return f"d={dim} n={short(str(context), 40)} {short(str(self.noise), 60)}{extra}"

    @property
    def stem(self) -> str:
        """See `BaseProblem.stem`."""
        return str(self.noise)

    def __str__(self) -> str:
        dim, context = self.sizes
        return f"d={dim} n={context} {self.noise}" + "".join(f" {name}={law}" for name, law in self.unusual().items())

    def __repr__(self) -> str:
        dim, context = self.sizes
        extra = "".join(f", {name}={value!r}" for name, value in self.unusual().items())
        return f"Problem(dim={dim!r}, context={context!r}, noise={self.noise}{extra})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.arguments == other.arguments

    def __hash__(self) -> int:
        return hash(tuple(self.arguments.values()))


class Problem(BuiltIn):
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
    varying: ClassVar[type[Any]]  # the class of problems with several dimensions, which enters itself

    def __new__(cls, dim: object = 10, *args: Any, **others: Any) -> Any:
        """Make a problem; one whose dimension varies is a `VaryingDimension`."""
        if not varies(dim):
            return super().__new__(cls)
        return cls.varying(dim, *args, **others)

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
        self.features, self.tasks = Features.of(features), Tasks.of(tasks)
        self.query = None if query is None else Features.of(query)
        self.features.check(self.query, self.lengths)
        self.law = Law(
            self.dim,
            self.lengths.most,
            self.lengths.least,
            **self.features.law(self.dim),
            **self.tasks.law(self.dim),
            query=None if self.query is None else self.query.mean_covariance(self.dim),
        )
        self.has_known_laws = not self.noise.per_token
        self.has_ridge_oracle, self.has_pool = self.tasks.is_gaussian, self.law.pool is not None
        self.is_isotropic = self.law.is_isotropic and self.has_ridge_oracle and self.has_known_laws
        self.one_covariance = self.features.fixed

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
    def sizes(self) -> tuple[int, Lengths]:
        """See `BuiltIn.sizes`."""
        return self.dim, self.lengths

    @cached_property
    def prior(self) -> Prior:
        """The Gaussian law of tasks that ridge predictors assume."""
        return self.tasks.prior(self.dim)

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
            return check_signal(float((self.query_covariance * tasks).sum()))
        covariances = [self.features.query_moment(self.dim, n) for n in self.lengths.values.tolist()]
        return check_signal(float((np.mean(covariances, axis=0) * tasks).sum()))

    @property
    def feature_scale(self) -> float:  # type: ignore[override]
        """The root mean square of a feature."""
        return 1.0 if self.is_isotropic else float(np.sqrt(np.diag(self.features.mean_covariance(self.dim)).mean()))

    def differences(self) -> str:
        """See `BaseProblem.differences`."""
        words = {"features": "the features", "tasks": "the tasks", "query": "the queries"}
        names = [words[name] for name in self.unusual()]
        laws = [f"{' and '.join(names)} are not"] if names else []
        return " and ".join([*laws, *([] if self.lengths.fixed else [f"n is {self.lengths}"])])

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
        names = {"d": "dim", "n": "context", "features": "features", "tasks": "tasks", "query": "query"}
        arguments: dict[str, Any] = {}
        if not isinstance(text, str):
            refuse("a problem must be described by text", shown(text), "Write 'd=10 n=20 uniform(0,5)'.")
        for part in text.split():
            start, _, value = part.partition("=")
            name = names.get(start, "noise")
            value = part if name == "noise" else value
            if not value or name in arguments:
                refuse("a problem must be described part by part", shown(text), "Write 'd=10 n=20 uniform(0,5)'.")
            arguments[name] = value
        return cls(**arguments)

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
            "noise": f"{self.noise.describe()}; E[sigma^2] is {self.noise.second_moment:.4g}.",
            "query": query,
        }

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
        """The law that engines draw from: tasks that they cannot draw are a pool, one for each sequence."""
        choices = self.choices(count, **key._asdict(), first=first, engine=engine)
        if not (numbers := self.tasks.numbers(self.dim)):
            return self.law, choices
        tasks = self.tasks.drawn(task_uniforms(key, count, first, numbers))
        return replace(self.law, pool=tasks), replace(choices, task=np.arange(count))

    def _moments(self, key: Key, count: int, first: int, ask: Ask) -> Draw:
        if self.noise.per_token:
            return self._bank.draw(key, count, first, ask.dtype)
        law, choices = self._drawn_from(key, count, first, ask.engine)
        layout, dtype = SUMS if ask.sums else PAPER_LAYOUT, ask.dtype
        drawn = ask.engine.sample(law, choices, key, layout=layout, first=first, dtype=dtype, threads=ask.threads)
        gram, total, ridge = drawn.gram, None, drawn.ridge
        if ask.sums:
            d, xy = self.dim, np.append(np.arange(self.dim), self.dim + 1)
            gram, total = np.asarray(gram[:, xy[:, None], xy]), np.asarray(gram[:, d, xy])
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

    def step(self, kernel: Kernel, key: Key, count: int, first: int, ask: Ask) -> Evaluation:
        """See `BaseProblem.step`: the engine draws and evaluates at once, unless it does not compute the oracle."""
        if self.noise.per_token:
            return self._evaluated(kernel, self._bank.of_step(key, count, first, ask.gradient, ask.dtype), ask)
        target = self._goal(ask)
        if ask.layout.opening or (target == "ridge" and not self._engine_has_oracle):
            return super().step(kernel, key, count, first, ask)
        law, choices = self._drawn_from(key, count, first, ask.engine)
        return ask.engine.step(
            kernel,
            law,
            choices,
            key,
            layout=ask.layout,
            target=target,
            ceiling=ask.ceiling,
            gradient=ask.gradient,
            unadjusted=ask.unadjusted,
            first=first,
            threads=ask.threads,
        )
