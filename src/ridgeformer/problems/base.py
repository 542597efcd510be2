"""The interface of problems for training and evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from ridgeformer import engine as engines
from ridgeformer.engine import PAPER_LAYOUT, Engine, Evaluation, Kernel, Key, Layout, Target
from ridgeformer.engine.interface import check_sequences, make_key
from ridgeformer.errors import kind_of, refuse
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise
from ridgeformer.problems.draws import Draw, Sequences
from ridgeformer.problems.parts import Lengths
from ridgeformer.problems.tasks import Prior
from ridgeformer.validation import Float, flag, integer, keywords, precision
from ridgeformer.values import Value

Precision = type[np.float32] | type[np.float64]
LEAST, LARGEST = 1e-280, 1e140  # signals between which losses and their squares are numbers
SUMS = Layout("sum", "constant")


@dataclass(frozen=True, eq=False)
class Ask:
    """The form in which drawn sequences are asked for, and what of a model is computed on them; all of it checked.

    Attributes:
        layout: The layout of the model's tokens; moments have sums where it has a further coordinate.
        dtype: The precision.
        target: `ridge` for adjusted losses, or `task`; None for `ridge`, or `task` for tasks that are not Gaussian,
            whose oracle no engine computes.
        ceiling: Losses above it enter the gradient by their logarithm.
        gradient: Whether to compute the gradient.
        unadjusted: Whether to return the losses against the tasks as well.
        engine: The engine.
        threads: The number of threads; None for the default.
    """

    layout: Layout = PAPER_LAYOUT
    dtype: Precision = np.float64
    target: Target | None = None
    ceiling: float = np.inf
    gradient: bool = True
    unadjusted: bool = False
    engine: Engine = field(default_factory=engines.current)
    threads: int | None = None

    @property
    def sums(self) -> bool:
        """Whether the sums of the tokens are needed."""
        return self.layout.coordinate != "none"


class BaseProblem(Value, ABC):
    """A distribution of sequences.

    Attributes:
        dim: The dimension d of the features.
        lengths: The number of examples in a context.
        noise: The distribution of noise levels; None where there are none.
        signal: The mean square of what is to be predicted: twice the loss of predicting 0.
        context: The number of examples, where all contexts have the same.
        size: The number of sequences of a data set; None where new sequences can always be drawn.
        is_isotropic: Whether features, tasks and queries are N(0, I) and n is fixed, as in the seed paper.
        one_covariance: Whether features are Gaussian with one covariance for all sequences, so that their moments are
            known.
        feature_scale: The root mean square of a feature, for the size of starts in training.
        has_pool: Whether tasks come from a pool, wholly or in part.
        has_ridge_oracle: Whether the oracle is ridge regression, as for Gaussian tasks; other oracles are too slow for
            steps of training.
        has_known_laws: Whether the laws of tasks and of noise levels are known, with Gaussian noise: those of a
            built-in problem.
        has_oracle: Whether the best weights are known when the noise levels are: whether losses can be adjusted.
    """

    dim: int
    lengths: Lengths
    noise: Noise | None
    signal: float
    context: Any
    size: int | None = None
    is_isotropic: bool = False
    one_covariance: bool = False
    feature_scale: float = 1.0
    has_pool: bool = False
    has_ridge_oracle: bool = True
    has_known_laws: bool = False
    has_oracle: bool = True

    @property
    def prior(self) -> Prior:
        """The Gaussian law of tasks that ridge predictors assume; N(0, I) where the problem does not say."""
        return Prior()

    @property
    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """The arguments that make the problem, by name."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The problem in one short line, without matrices, for titles and tables."""

    @property
    @abstractmethod
    def stem(self) -> str:
        """The part of the folder names of runs that says which problem this is."""

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """Say what the problem is, in a sentence for each of its parts, by the name of the part."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return the entries that decide the law, as JSON has them; `problem_from_dict` reads them."""

    def check_named(self) -> None:
        """Refuse a problem that a stored run could not be read back with."""

    def differences(self) -> str:
        """Say in which respects a built-in problem is not isotropic; nothing of other problems."""
        return ""

    def replace(self, **changes: Any) -> Self:
        """Return a problem of the same class that differs in some arguments.

        Args:
            **changes: New values by name.

        Returns:
            The problem.

        Raises:
            InputError: There is no such argument.

        >>> from ridgeformer import Problem
        >>> Problem(noise=1).replace(context=40)
        Problem(dim=10, context=40, noise=fixed(1))
        """
        unknown, names = [name for name in changes if name not in self.arguments], ", ".join(self.arguments) or "none"
        if unknown:
            refuse(f"{kind_of(self)} has the arguments {names}", ", ".join(unknown), "Pass only these.")
        problem: Self = self._made(**{**self.arguments, **changes})
        return problem

    def _made(self, **arguments: Any) -> Any:
        """The problem of this class with these arguments."""
        return type(self)(**arguments)

    def at_noise(self, sigma: float) -> BaseProblem:
        """Return the same problem with one noise level; a problem of your own may offer it.

        Args:
            sigma: The noise level.

        Returns:
            The problem.

        Raises:
            InputError: The problem does not offer it.
        """
        rule, received = "a profile needs the problem at single noise levels", f"{kind_of(self)} without at_noise"
        refuse(rule, received, "Write a method at_noise(sigma) that returns the problem with that noise level.")

    @property
    def has_at_noise(self) -> bool:
        """Whether the problem has a method `at_noise` of its own."""
        return type(self).at_noise is not BaseProblem.at_noise

    def edges(self) -> BaseProblem:
        """Return the problem with its shortest and longest contexts only, where it can draw these by themselves."""
        return self

    def by_dimension(self) -> dict[int, Any]:
        """Return the problems of one dimension that this one consists of, by dimension."""
        return {self.dim: self}

    def affordable(self, count: int) -> int:
        """Return the number of sequences to use where an engine would draw `count`.

        Args:
            count: The number where an engine draws sequences.

        Returns:
            The number; a problem of your own, which draws tokens in Python, returns an eighth.
        """
        return count

    def race_precision(self, dtype: Precision) -> Precision:
        """Return the precision of the first descents of a search, which only have to find good starts.

        Args:
            dtype: The precision for a built-in problem, for which float32 is good enough.

        Returns:
            The precision; a problem of your own returns float64, because its labels may be large now and then, and a
            line search among the rounding errors of their losses takes many evaluations.
        """
        return dtype

    def oracle(self, drawn: Sequences | Draw | Moments) -> Float | None:
        """Return the best weights when the noise levels are known, E[w | context, noise levels].

        Args:
            drawn: The sequences, as the problem drew them. A built-in problem also takes moments with noise levels.

        Returns:
            The weights, [B, d]; None where they are not known.
        """
        return None

    def best_predictor(self) -> Any:
        """Return the predictor of least expected loss, whose loss is the floor; None where it is not known."""
        return None

    @keywords()
    def moments(
        self,
        count: int,
        *,
        seed: int = 0,
        stream: int = 0,
        step: int = 0,
        first: int = 0,
        dtype: DTypeLike = np.float64,
        sums: bool = False,
        tokens: bool = False,
        queries: int = 4,
        engine: Engine | str | None = None,
        threads: int | None = None,
    ) -> Draw:
        """Draw moments of sequences.

        A built-in problem draws them directly by Bartlett's decomposition, at a cost that does not depend on the number
        of examples. A problem of your own draws tokens and sums over them. Sequence i of (seed, stream, step) is the
        same whatever `count`, `first` and the number of threads.

        Args:
            count: The number of sequences, B.
            seed: The seed.
            stream: A number that tells independent streams of one seed apart.
            step: A further such number.
            first: The number of the first sequence in its stream.
            dtype: float32 or float64.
            sums: Whether to draw the sums of the tokens too, which models with a further coordinate need.
            tokens: Whether to draw whole sequences and to return them as `tokens`. For a built-in problem these are
                other sequences of the same law, and they depend on `count` and `first`.
            queries: The number of queries of each sequence, if whole sequences are drawn; a problem of your own decides
                that itself.
            engine: The engine that computes; None for the current one.
            threads: The number of threads; None for the default.

        Returns:
            Moments, tasks, oracle weights, noise levels and the metric of the loss.

        Raises:
            InputError: A number is out of range, or a problem of your own draws something that it should not.
        """
        key, (count, first) = make_key(seed, stream, step), check_sequences(count, first)
        if tokens:
            return self._draw_tokens(key, count, first, integer("queries", queries, 1, 1 << 20)).astype(
                precision(dtype)
            )
        layout = SUMS if flag("sums", sums) else PAPER_LAYOUT
        ask = Ask(layout, precision(dtype), engine=engines.resolve(engine), threads=threads)
        return self._moments(key, count, first, ask)

    @abstractmethod
    def _moments(self, key: Key, count: int, first: int, ask: Ask) -> Draw:
        """Draw moments of sequences; see `moments`."""

    @abstractmethod
    def _draw_tokens(self, key: Key, count: int, first: int, queries: int) -> Draw:
        """Draw whole sequences, with their moments, in float64; see `moments`."""

    @keywords()
    def sequences(
        self, count: int, *, seed: int = 0, stream: int = 0, step: int = 0, first: int = 0, queries: int = 1
    ) -> Sequences:
        """Draw whole sequences, token by token: the `tokens` of `moments(..., tokens=True)`.

        Args:
            count: The number of sequences, B.
            seed: The seed.
            stream: A number that tells independent streams of one seed apart.
            step: A further such number.
            first: The number of the first sequence in its stream.
            queries: The number of queries of each sequence; a problem of your own decides that itself.

        Returns:
            The sequences; where n varies, contexts are filled up with tokens that are 0.

        Raises:
            InputError: The problem only draws moments.
        """
        draw = self.moments(count, seed=seed, stream=stream, step=step, first=first, tokens=True, queries=queries)
        assert draw.tokens is not None
        return draw.tokens

    def step(self, kernel: Kernel, key: Key, count: int, first: int, ask: Ask) -> Evaluation:
        """Compute losses and gradient of a model on sequences that are drawn, used and forgotten; see `model.step`.

        Args:
            kernel: The parameters of the model, as engines take them, in the precision that is asked for.
            key: Seed, stream and step.
            count: The number of sequences.
            first: The number of the first sequence in its stream.
            ask: What is computed, and where.

        Returns:
            Losses and what else was asked for.
        """
        return self._evaluated(kernel, self._moments(key, count, first, ask), ask)

    def _goal(self, ask: Ask) -> Target:
        """The weights that a model is compared with."""
        return ask.target or ("ridge" if self.has_ridge_oracle else "task")

    def _evaluated(self, kernel: Kernel, draw: Draw, ask: Ask) -> Evaluation:
        """Evaluate a model on sequences; see `step`."""
        layout, engine, draw, target = ask.layout, ask.engine, draw.astype(ask.dtype), self._goal(ask)
        goal = draw.with_intercept() if layout.counted else draw
        gram, targets = draw.moments.gram_of(layout), {"ridge": goal.ridge, "task": goal.task}

        metric, counted = goal.metric, goal.task.shape[1]
        evaluate = partial(engine.evaluate, kernel, gram, metric=metric, counted=counted, ceiling=ask.ceiling)
        evaluation = evaluate(targets[target], gradient=ask.gradient, threads=ask.threads)
        if not ask.unadjusted:
            return evaluation
        against_tasks = evaluation if target == "task" else evaluate(goal.task, gradient=False, threads=ask.threads)
        losses = against_tasks.losses
        if goal.offset is not None:
            losses = losses + goal.offset.astype(losses.dtype)
        return replace(evaluation, unadjusted=losses)


def check_signal(signal: float) -> float:
    """Return the signal of a problem, if losses of that size and their squares are numbers.

    Args:
        signal: The mean square of what is to be predicted.

    Returns:
        The signal.

    Raises:
        InputError: It is not 0, and too small or too large.
    """
    if signal and not LEAST <= signal <= LARGEST:
        rule = f"the signal, the mean square of the answers, must lie between {LEAST:g} and {LARGEST:g}"
        refuse(rule, signal, "Use other units for the labels.")
    return signal


def check_any_problem(problem: object) -> BaseProblem:
    """Return a problem, built-in or custom.

    Args:
        problem: What was given.

    Returns:
        The problem.

    Raises:
        InputError: It is no problem.
    """
    if not isinstance(problem, BaseProblem):
        swapped = isinstance(problem, Mapping) or hasattr(problem, "weights") or hasattr(problem, "predict")
        first = "The problem comes first, as in evaluate(problem, model)."
        remedy = first if swapped else 'Pass Problem(noise="uniform(0,5)"), for example.'
        refuse("the problem must be a Problem", kind_of(problem), remedy)
    return problem
