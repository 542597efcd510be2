"""The arguments of the methods of an engine: one value per method, and the checks that make it.

Its fields have the one form that engines compute with: Python ints and floats, and arrays whose type is `np.ndarray`
itself, which may be read-only and need not be contiguous.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine.kernels import DOUBLE, Float, Kernel, cast, floats, plain_array
from ridgeformer.engine.law import MOST_DIM, Choices, Law, Layout
from ridgeformer.errors import refuse, shown
from ridgeformer.validation import integer

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
    given = plain_array("sigma", sigma, "fiu", "real numbers")
    if given.ndim != 1 or given.size == 0:
        refuse(
            "sigma must have shape (B,) with at least one sequence",
            f"shape {given.shape}",
            "Pass one level per sequence.",
        )
    levels = cast(given, DOUBLE)
    if not (levels.min() >= 0 and levels.max() < np.inf):  # NaN passes neither
        wrong = levels[~((levels >= 0) & (levels < np.inf))][0]
        refuse("sigma must be finite and not negative", f"{wrong} in it", "Pass noise levels of 0 or more.")
    return levels


def _whole(name: str, value: object, count: int, least: int, most: int) -> NDArray[np.int64]:
    """Whole numbers [B] within bounds, as int64."""
    given = plain_array(name, value, "iu", "whole numbers")
    if given.shape != (count,):
        refuse(f"{name} must have shape ({count},) to fit sigma", f"shape {given.shape}", "Pass one per sequence.")
    if given.min() < least or given.max() > most:
        wrong = given[(given < least) | (given > most)][0]
        refuse(f"{name} must lie between {least} and {most}", f"{wrong} in it", "Draw them from the law's own range.")
    return given.astype(np.int64, copy=False)


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
    wanted = shape[0], length
    if goal.shape != wanted:
        refuse(f"target must have shape {wanted} to fit gram", f"shape {goal.shape}", "Pass a vector of d for each.")
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
