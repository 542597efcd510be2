"""The interface of engines: they sample moments, and compute losses and gradients in moment form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ridgeformer.engine.arguments import (
    EvaluateArguments,
    Key,
    SampleArguments,
    StepArguments,
    Target,
    check_batch,
    check_key,
    check_sample,
    check_sequences,
    check_threads,
)
from ridgeformer.engine.kernels import Float, Kernel, check_kernel
from ridgeformer.engine.law import PAPER_LAYOUT, Choices, Law, Layout
from ridgeformer.errors import refuse
from ridgeformer.validation import choice, flag, integer, number, precision


class Sample(NamedTuple):
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
    ) -> Sample:
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
                'Pass target="task", or let the problem compute its oracle: problem.step(...).',
            )
        gradient, unadjusted = flag("gradient", gradient), flag("unadjusted", unadjusted)
        return self._step(StepArguments(kernel, sample, target, ceiling, gradient, unadjusted))

    @abstractmethod
    def _uniforms(self, key: Key, count: int, first: int, word: int) -> NDArray[np.float64]:
        """See `uniforms`."""

    @abstractmethod
    def _sample(self, given: SampleArguments, dtype: np.dtype[np.floating]) -> Sample:
        """See `sample`."""

    @abstractmethod
    def _evaluate(self, given: EvaluateArguments) -> Evaluation:
        """See `evaluate`."""

    @abstractmethod
    def _step(self, given: StepArguments) -> Evaluation:
        """See `step`."""
