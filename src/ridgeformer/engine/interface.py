"""The interface of engines: they sample moments, and compute losses and gradients in moment form.

An engine gets its arguments checked, in one value per method. Its fields have the one form that engines compute with:
Python ints and floats, and arrays whose type is `np.ndarray` itself, which may be read-only and need not be contiguous.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ridgeformer.engine.kernels import DOUBLE, Float, Kernel, cast, check_kernel, floats, plain_array
from ridgeformer.engine.law import MOST_DIM, PAPER_LAYOUT, Choices, Law, Layout
from ridgeformer.errors import refuse, shown
from ridgeformer.validation import choice, flag, integer, number, precision

T = TypeVar("T")
Target = Literal["ridge", "task"]
MOST_SEQUENCES = 1 << 32
MOST_THREADS = 1024


class Key(NamedTuple):
    """Names a stream of random sequences. Sequence i of a key is the same whatever the batch and the threads.

    Between engines, and between float32 and float64, it is the same to rounding; in about one sequence of a million
    rounding decides whether a random number is rejected, and then that sequence differs.

    Attributes:
        seed: The seed, 0 to 2^64 - 1.
        stream: A number that tells independent streams of one seed apart, 0 to 2^32 - 1.
        step: A further such number, 0 to 2^64 - 1.
    """

    seed: int = 0
    stream: int = 0
    step: int = 0


class SampleArguments(NamedTuple):
    """Which sequences an engine draws; see `Engine.sample`.

    Attributes:
        law: What sequences are drawn from.
        choices: What was drawn for each sequence before.
        key: The stream of random sequences.
        layout: What the tokens hold.
        first: The index of the first sequence in the stream.
        threads: How many; None for the default.
    """

    law: Law
    choices: Choices
    key: Key
    layout: Layout
    first: int
    threads: int | None


class EvaluateArguments(NamedTuple):
    """The arguments of an evaluation on given moments; see `Engine.evaluate`.

    Attributes:
        kernel: The parameters, in the dtype of `gram`.
        gram: Gram matrices, [B, D, D].
        target: What w_hat is compared with, [B, c], in the dtype of `gram`.
        metric: The metric of the loss, [c, c] or [B, c, c], in the dtype of `gram`; None for the identity.
        ceiling: Losses above it enter the gradient by their logarithm.
        weights: Whether to return w_hat.
        gradient: Whether to return the gradient.
        threads: How many; None for the default.
    """

    kernel: Kernel
    gram: Float
    target: Float
    metric: Float | None
    ceiling: float
    weights: bool
    gradient: bool
    threads: int | None


class StepArguments(NamedTuple):
    """The arguments of an evaluation on sequences that the engine draws; see `Engine.step`.

    Attributes:
        kernel: The parameters, in the dtype to compute in.
        sample: Which sequences.
        target: `ridge` or `task`.
        ceiling: Losses above it enter the gradient by their logarithm.
        gradient: Whether to return the gradient.
        unadjusted: Whether to return the losses against the task vectors as well.
    """

    kernel: Kernel
    sample: SampleArguments
    target: Target
    ceiling: float
    gradient: bool
    unadjusted: bool


def make_key(seed: object, stream: object, step: object, of: str = "") -> Key:
    """Return the key that names a stream of sequences.

    Args:
        seed: The seed, 0 to 2^64 - 1.
        stream: A number that tells independent streams of one seed apart, 0 to 2^32 - 1.
        step: A further such number, 0 to 2^64 - 1.
        of: What stands before the names of these numbers in messages.

    Returns:
        The key, with Python ints.

    Raises:
        InputError: A number is out of range.
    """
    return Key(
        integer(f"{of}seed", seed, 0, (1 << 64) - 1),
        integer(f"{of}stream", stream, 0, (1 << 32) - 1),
        integer(f"{of}step", step, 0, (1 << 64) - 1),
    )


def check_key(key: object) -> Key:
    """Return a key whose numbers are Python ints in range.

    Args:
        key: What was given.

    Returns:
        The key.

    Raises:
        InputError: It is no key, or a number is out of range.
    """
    return make_key(*_instance("key must be a Key", key, Key, "Pass Key(seed, stream, step)."), of="the key's ")


def check_sequences(count: object, first: object) -> tuple[int, int]:
    """Return how many sequences there are, and the index of the first; `first + count` is at most 2^32.

    Args:
        count: How many, at least 1.
        first: The index of the first, at least 0.

    Returns:
        Count and first, as Python ints.

    Raises:
        InputError: A number is out of range.
    """
    start = integer("first", first, 0, MOST_SEQUENCES - 1)
    return integer("the number of sequences", count, 1, MOST_SEQUENCES - start), start


def check_sample(
    law: object, choices: object, key: object, layout: object, first: object, threads: object
) -> SampleArguments:
    """Return which sequences to draw. See `SampleArguments` for the arguments.

    Raises:
        InputError: An argument is of the wrong type or out of range, or choices and law do not fit.
    """
    law = _instance("law must be a Law", law, Law, "Pass Law(dim, context), for example.")
    layout = _instance("layout must be a Layout", layout, Layout, "Pass Layout(), for example.")
    if layout.opening:
        remedy = "Draw moments, and use moments.gram_of(layout)."
        refuse("engines draw tokens without one that shows 2 d / n", "the coordinate ratio", remedy)
    integer("the number of coordinates beside y", law.dim + layout.extra, 1, MOST_DIM)
    choices, key = _choices(choices, law), check_key(key)
    _, first = check_sequences(len(choices), first)
    return SampleArguments(law, choices, key, layout, first, check_threads(threads))


def _instance(rule: str, value: object, kind: type[T], remedy: str) -> T:
    if not isinstance(value, kind):
        refuse(rule, shown(value), remedy)
    return value


def _choices(choices: object, law: Law) -> Choices:
    """The choices for each sequence, as far as the law needs them."""
    choices = _instance("choices must be Choices", choices, Choices, "Pass Choices(sigma), for example.")
    sigma = _levels(choices.sigma)
    counts, task = None, None
    if law.least < law.context:
        counts = _whole("counts", choices.counts, len(sigma), law.least, law.context)
    elif choices.counts is not None:
        refuse("counts are for laws whose n varies", f"counts and n = {law.context}", "Leave out counts.")
    if law.pool is not None:
        task = _whole("task", choices.task, len(sigma), -1, len(law.pool) - 1)
    elif choices.task is not None:
        refuse("task numbers are for laws with a pool", "task numbers without a pool", "Leave out task.")
    pairs = (choices.sigma, sigma), (choices.counts, counts), (choices.task, task)
    same = all(old is None or new is None or old.dtype == new.dtype for old, new in pairs)
    return choices if same else Choices(sigma, counts, task)  # a copy takes longer than all checks


def _levels(sigma: object) -> NDArray[np.float64]:
    """Noise levels [B], finite and not negative, as float64."""
    values = plain_array("sigma", sigma, "fiu", "real numbers")
    if values.ndim != 1 or values.size == 0:
        refuse(
            "sigma must have shape (B,) with at least one sequence",
            f"shape {values.shape}",
            "Pass one level per sequence.",
        )
    levels = cast(values, DOUBLE)
    if not (levels.min() >= 0 and levels.max() < np.inf):  # NaN passes neither
        wrong = levels[~((levels >= 0) & (levels < np.inf))][0]
        refuse("sigma must be finite and not negative", f"{wrong} in it", "Pass noise levels of 0 or more.")
    return levels


def _whole(name: str, value: object, count: int, least: int, most: int) -> NDArray[np.int64]:
    """Whole numbers [B] within bounds, as int64."""
    numbers = plain_array(name, value, "iu", "whole numbers")
    if numbers.shape != (count,):
        refuse(f"{name} must have shape ({count},) to fit sigma", f"shape {numbers.shape}", "Pass one per sequence.")
    if numbers.min() < least or numbers.max() > most:
        wrong = numbers[(numbers < least) | (numbers > most)][0]
        refuse(f"{name} must lie between {least} and {most}", f"{wrong} in it", "Draw them from the law's own range.")
    return numbers.astype(np.int64, copy=False)


def check_batch(gram: object, target: object, metric: object, counted: object) -> tuple[Float, Float, Float | None]:
    """Return Gram matrices, targets and a metric in the dtype of the Gram matrices.

    Values that are not finite are let through.

    Args:
        gram: Gram matrices, [B, D, D].
        target: Targets, [B, c].
        metric: A metric, [c, c] or [B, c, c], or None.
        counted: c, from 1 to D - 1; None for D - 1.

    Returns:
        The three arrays.

    Raises:
        InputError: An array has the wrong type or shape.
    """
    moments = floats("gram", gram)
    shape = moments.shape
    if len(shape) != 3 or shape[1] != shape[2]:
        refuse("gram must have shape (B, d+1, d+1)", f"shape {shape}", "Pass one square matrix for each sequence.")
    if shape[0] == 0:
        refuse("gram must hold at least one sequence", f"shape {shape}", "Leave out the call if there are none.")
    if not 2 <= shape[1] <= MOST_DIM + 1:
        refuse(f"gram must be for a dimension d of 1 to {MOST_DIM}", f"shape {shape}", "Make its last two axes d+1.")
    integer("the number of sequences in gram", shape[0], 1, MOST_SEQUENCES)
    length = shape[1] - 1 if counted is None else integer("counted", counted, 1, shape[1] - 1)
    goal = floats("target", target)
    expected = shape[0], length
    if goal.shape != expected:
        refuse(f"target must have shape {expected} to fit gram", f"shape {goal.shape}", "Pass a vector of d for each.")
    weight = None
    if metric is not None:
        weight = cast(floats("metric", metric), moments.dtype)
        if weight.shape not in ((length, length), (shape[0], length, length)):
            refuse(
                f"metric must have shape {(length, length)} or {(shape[0], length, length)} to fit target",
                f"shape {weight.shape}",
                "Pass one for all sequences or one for each.",
            )
    return moments, cast(goal, moments.dtype), weight


def check_threads(threads: object) -> int | None:
    """Return a number of threads, or None for the default.

    Args:
        threads: What was given.

    Returns:
        The number from 1 to 1024, or None.

    Raises:
        InputError: It is out of range.
    """
    return None if threads is None else integer("threads", threads, 1, MOST_THREADS)


class SampledMoments(NamedTuple):
    """Moments of B random sequences.

    Attributes:
        gram: Gram matrices of the tokens, [B, D, D].
        task: The task vectors, [B, d].
        ridge: E[w | context, sigma], [B, d]; for laws with a pool the task vectors once more. It is NaN without noise
            where `Law.lacks_ridge`.
        metric: The covariance of the queries of each sequence, [B, d, d], if it is not the same for all.
    """

    gram: Float
    task: Float
    ridge: Float
    metric: Float | None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Losses, estimates and the gradient of a model on a batch.

    Attributes:
        losses: [B], 1/2 (w_hat - target)' M (w_hat - target) of every sequence, with the metric M (the identity if
            there is none); infinite where the model overflowed.
        weights: [B, c], the w_hat, if asked for; infinite or NaN where they overflowed.
        gradient: of the mean loss, float64, a kernel of the same kind, if asked for. Of a loss above the ceiling it
            is that of ceiling (1 + log(loss / ceiling)): the direction at a bounded size. Sequences whose loss is not
            finite, or whose own gradient is not or has an element above 1e298, are left out. It is always finite.
        limited: how many sequences the gradient does not count in full: losses above the ceiling, and sequences left
            out because their loss or gradient is not finite. Without a gradient, only the losses are looked at.
        unadjusted: [B], losses against the task vectors, if `step` was asked for them.
    """

    losses: Float
    weights: Float | None
    gradient: Kernel | None
    limited: int
    unadjusted: Float | None = None

    def __repr__(self) -> str:
        return f"Evaluation({len(self.losses)} sequences, loss {self.loss:g}, {self.limited} limited)"

    @property
    def loss(self) -> float:
        """The mean of the losses, all sequences included; infinite if one of them, or their sum, is."""
        with np.errstate(all="ignore"):
            return float(self.losses.mean(dtype=np.float64))


class Engine(ABC):
    """Computes. All engines do the same, to rounding.

    The public methods check every argument and raise `InputError` if one breaks a rule; subclasses implement the
    methods with an underscore, which receive checked arguments in one value.

    Attributes:
        name: `numpy`, or the instruction set that the engine uses.
    """

    name: str

    def uniforms(self, key: Key, count: int, first: int = 0, word: int = 0) -> NDArray[np.float64]:
        """Random numbers from which noise levels, numbers of tokens and tasks of a pool are made, one per sequence.

        Args:
            key: the stream of random sequences.
            count: how many, B.
            first: index of the first sequence in the stream; `first + count` may be at most 2^32.
            word: which of four independent kinds, 0 to 3.

        Returns:
            Numbers in (0, 1), float64, [B].

        Raises:
            InputError: an argument is of the wrong type or out of range.
        """
        checked = check_key(key)
        return self._uniforms(checked, *check_sequences(count, first), integer("word", word, 0, 3))

    def sample(
        self,
        law: Law,
        choices: Choices,
        key: Key,
        *,
        layout: Layout = PAPER_LAYOUT,
        first: int = 0,
        dtype: DTypeLike = np.float64,
        threads: int | None = None,
    ) -> SampledMoments:
        """Moments of random sequences.

        Args:
            law: what sequences are drawn from.
            choices: noise level of every sequence, and where the law needs it, number of tokens and task. Where the
                square of a noise level is too large for the dtype, the moments are not finite.
            key: the stream of random sequences.
            layout: what the tokens hold beside (x, y), and whether Gram matrices are sums or means.
            first: index of the first sequence in the stream; `first + B` may be at most 2^32.
            dtype: float32 or float64, of the results.
            threads: how many, 1 to 1024; None for the default.

        Returns:
            Gram matrices, task vectors, ridge solutions and metrics.

        Raises:
            InputError: an argument is of the wrong type or out of range.
        """
        checked = check_sample(law, choices, key, layout, first, threads)
        drawn = self._sample(checked, np.dtype(precision(dtype)))
        if not law.lacks_ridge or checked.choices.sigma.all():
            return drawn
        ridge = np.where(checked.choices.sigma[:, None] > 0, drawn.ridge, np.nan)
        return drawn._replace(ridge=ridge.astype(drawn.ridge.dtype))

    def evaluate(
        self,
        kernel: Kernel,
        gram: Float,
        target: Float,
        *,
        metric: Float | None = None,
        counted: int | None = None,
        ceiling: float = np.inf,
        weights: bool = False,
        gradient: bool = True,
        threads: int | None = None,
    ) -> Evaluation:
        """Losses of a batch, and on request weights and gradient, in the dtype of `gram`.

        Entries of `gram`, `target` and `metric` are not checked, which would take longer than the rest of the checks
        together: a sequence with NaN or infinity among them has an infinite loss and is left out of the gradient.

        Args:
            kernel: Omegas, Matrices or Mixings, finite, as `Family.kernel` gives them.
            gram: symmetric Gram matrices, [B, D, D], float32 or float64.
            target: what w_hat is compared with, [B, c], float32 or float64.
            metric: the symmetric matrix M of the loss 1/2 (w_hat - target)' M (w_hat - target), [c, c] for all
                sequences or [B, c, c]; None for the identity.
            counted: c, how many coordinates beside y have a weight in the loss, the first ones; None for all.
            ceiling: losses above it enter the gradient by their logarithm; at least 0, or infinity.
            weights: whether to return w_hat, [B, c].
            gradient: whether to return the gradient.
            threads: how many, 1 to 1024; None for the default.

        Returns:
            Losses and what else was asked for.

        Raises:
            InputError: an argument is of the wrong type, shape or dtype, out of range, or empty.
        """
        gram, target, metric = check_batch(gram, target, metric, counted)
        dim = gram.shape[1] - 1
        kernel = check_kernel(kernel, dim, gram.dtype, dim - target.shape[1])
        ceiling, threads = number("ceiling", ceiling), check_threads(threads)
        weights, gradient = flag("weights", weights), flag("gradient", gradient)
        return self._evaluate(EvaluateArguments(kernel, gram, target, metric, ceiling, weights, gradient, threads))

    def step(
        self,
        kernel: Kernel,
        law: Law,
        choices: Choices,
        key: Key,
        *,
        layout: Layout = PAPER_LAYOUT,
        target: Target = "ridge",
        ceiling: float = np.inf,
        gradient: bool = True,
        unadjusted: bool = False,
        first: int = 0,
        threads: int | None = None,
    ) -> Evaluation:
        """`sample` then `evaluate`, in the parameters' dtype, without storing the moments.

        Args:
            kernel: Omegas, Matrices or Mixings, finite, as `Family.kernel` gives them, in one dtype.
            law: what sequences are drawn from.
            choices: noise level of every sequence, and where the law needs it, number of tokens and task.
            key: the stream of random sequences.
            layout: what the tokens hold beside (x, y), and whether attention is a sum or a mean.
            target: what w_hat is compared with: `ridge`, the ridge solution, or `task`, the task vector. For laws with
                a pool it must be `task`.
            ceiling: losses above it enter the gradient by their logarithm; at least 0, or infinity.
            gradient: whether to return the gradient.
            unadjusted: whether to return the losses against the task vectors as well.
            first: index of the first sequence in the stream; `first + B` may be at most 2^32.
            threads: how many, 1 to 1024; None for the default.

        Returns:
            Losses and what else was asked for.

        Raises:
            InputError: an argument is of the wrong type, shape or dtype, out of range, or empty.
        """
        sample = check_sample(law, choices, key, layout, first, threads)
        kernel = check_kernel(kernel, law.dim + layout.extra, extra=layout.extra, length=law.dim)
        target, ceiling = choice("target", target, ("ridge", "task")), number("ceiling", ceiling)
        if target == "ridge" and law.pool is not None:
            refuse("the target of a law with a pool must be task", "ridge", 'Pass target="task".')
        if target == "ridge" and law.lacks_ridge and not sample.choices.sigma.all():
            refuse(
                "without noise, the target must be task where n may be below and above the rank of the tasks",
                "ridge",
                'Pass target="task", or let the problem compute its oracle: model.step(problem, ...).',
            )
        gradient, unadjusted = flag("gradient", gradient), flag("unadjusted", unadjusted)
        return self._step(StepArguments(kernel, sample, target, ceiling, gradient, unadjusted))

    @abstractmethod
    def _uniforms(self, key: Key, count: int, first: int, word: int) -> NDArray[np.float64]:
        """See `uniforms`."""

    @abstractmethod
    def _sample(self, args: SampleArguments, dtype: np.dtype[np.floating]) -> SampledMoments:
        """See `sample`."""

    @abstractmethod
    def _evaluate(self, args: EvaluateArguments) -> Evaluation:
        """See `evaluate`."""

    @abstractmethod
    def _step(self, args: StepArguments) -> Evaluation:
        """See `step`."""
