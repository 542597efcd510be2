"""What an engine is: two jobs, sampling moments, and loss and gradient in moment form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ridgeformer.engine.arguments import (
    Float,
    Key,
    Parameters,
    Target,
    check_batch,
    check_ceiling,
    check_flag,
    check_key,
    check_parameters,
    check_sequences,
    check_shape,
    check_sigma,
    check_target,
    check_threads,
)
from ridgeformer.validation import precision

__all__ = ["Engine", "Evaluation", "Key", "Target"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a model does on a batch.

    Attributes:
        losses: [B], 1/2 |w_hat - target|^2 of every sequence; infinite where the model overflowed.
        weights: [B, d], the w_hat, if asked for; infinite or NaN where they overflowed.
        gradient: of the mean loss, float64, shaped like the parameters, if asked for. Of a loss above the ceiling it
            is that of ceiling (1 + log(loss / ceiling)): the direction at a bounded size. Sequences whose loss is not
            finite, or whose own gradient is not or has an element above 1e298, are left out. It is always finite.
        limited: how many sequences the gradient does not count in full: losses above the ceiling, and sequences left
            out because their loss or gradient is not finite. Without a gradient, only the losses are looked at.
        unadjusted: [B], losses against the task vectors, if `step` was asked for them.
    """

    losses: Float
    weights: Float | None
    gradient: tuple[NDArray[np.float64], ...] | None
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
    methods with an underscore, which receive checked arguments: Python ints and floats, and arrays whose type is
    `np.ndarray` itself, which may be read-only and need not be contiguous. `name` is `numpy`, or the instruction set.
    """

    name: str

    def uniforms(self, key: Key, count: int, first: int = 0) -> NDArray[np.float64]:
        """Random numbers from which noise levels are made, one per sequence.

        Args:
            key: the stream of random sequences.
            count: how many, B.
            first: index of the first sequence in the stream; `first + count` may be at most 2^32.

        Returns:
            Numbers in (0, 1), float64, [B].

        Raises:
            InputError: an argument is of the wrong type or out of range.
        """
        checked = check_key(key)
        return self._uniforms(checked, *check_sequences(count, first))

    def sample(
        self,
        dim: int,
        context: int,
        sigma: NDArray[np.float64],
        key: Key,
        *,
        first: int = 0,
        dtype: DTypeLike = np.float64,
        threads: int | None = None,
    ) -> tuple[Float, Float, Float]:
        """Moments of random sequences.

        Args:
            dim: d, 1 to 4096; D = d + 1.
            context: how many tokens a context has, n.
            sigma: noise level of every sequence, [B], finite and not negative. Where its square is too large for the
                dtype, the moments are not finite.
            key: the stream of random sequences.
            first: index of the first sequence in the stream; `first + B` may be at most 2^32.
            dtype: float32 or float64, of the results.
            threads: how many, 1 to 1024; None for the default.

        Returns:
            Gram matrices [B, D, D], task vectors [B, d] and ridge solutions E[w | context, sigma] [B, d].

        Raises:
            InputError: an argument is of the wrong type or out of range.
        """
        dim, context = check_shape(dim, context)
        sigma, key = check_sigma(sigma), check_key(key)
        _, first = check_sequences(len(sigma), first)
        return self._sample(dim, context, sigma, key, first, np.dtype(precision(dtype)), check_threads(threads))

    def evaluate(
        self,
        parameters: Parameters,
        gram: Float,
        target: Float,
        *,
        ceiling: float = np.inf,
        weights: bool = False,
        gradient: bool = True,
        threads: int | None = None,
    ) -> Evaluation:
        """Losses of a batch, and on request weights and gradient, in the dtype of `gram`.

        Entries of `gram` and `target` are not checked, which would take longer than the rest of the checks together: a
        sequence with NaN or infinity among them has an infinite loss and is left out of the gradient.

        Args:
            parameters: (omega,) or (P, Q), finite, as `Family.kernel` gives them.
            gram: symmetric Gram matrices, [B, D, D], float32 or float64.
            target: what w_hat is compared with, [B, d], float32 or float64.
            ceiling: losses above it enter the gradient by their logarithm; at least 0, or infinity.
            weights: whether to return w_hat.
            gradient: whether to return the gradient.
            threads: how many, 1 to 1024; None for the default.

        Returns:
            Losses and what else was asked for.

        Raises:
            InputError: an argument is of the wrong type, shape or dtype, out of range, or empty.
        """
        gram, target = check_batch(gram, target)
        parameters = check_parameters(parameters, gram.shape[1] - 1, gram.dtype)
        weights, gradient = check_flag("weights", weights), check_flag("gradient", gradient)
        return self._evaluate(
            parameters, gram, target, check_ceiling(ceiling), weights, gradient, check_threads(threads)
        )

    def step(
        self,
        parameters: Parameters,
        dim: int,
        context: int,
        sigma: NDArray[np.float64],
        key: Key,
        *,
        target: Target = "ridge",
        ceiling: float = np.inf,
        gradient: bool = True,
        unadjusted: bool = False,
        first: int = 0,
        threads: int | None = None,
    ) -> Evaluation:
        """`sample` then `evaluate`, in the parameters' dtype, without storing the moments.

        Args:
            parameters: (omega,) or (P, Q), finite, as `Family.kernel` gives them, in one dtype.
            dim: d, 1 to 4096.
            context: how many tokens a context has, n.
            sigma: noise level of every sequence, [B], finite and not negative.
            key: the stream of random sequences.
            target: what w_hat is compared with: `ridge`, the ridge solution, or `task`, the task vector.
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
        dim, context = check_shape(dim, context)
        parameters = check_parameters(parameters, dim)
        sigma, key = check_sigma(sigma), check_key(key)
        _, first = check_sequences(len(sigma), first)
        target, ceiling = check_target(target), check_ceiling(ceiling)
        gradient, unadjusted = check_flag("gradient", gradient), check_flag("unadjusted", unadjusted)
        return self._step(
            parameters, dim, context, sigma, key, target, ceiling, gradient, unadjusted, first, check_threads(threads)
        )

    @abstractmethod
    def _uniforms(self, key: Key, count: int, first: int) -> NDArray[np.float64]:
        """See `uniforms`."""

    @abstractmethod
    def _sample(
        self,
        dim: int,
        context: int,
        sigma: NDArray[np.float64],
        key: Key,
        first: int,
        dtype: np.dtype[np.floating],
        threads: int | None,
    ) -> tuple[Float, Float, Float]:
        """See `sample`."""

    @abstractmethod
    def _evaluate(
        self,
        parameters: Parameters,
        gram: Float,
        target: Float,
        ceiling: float,
        weights: bool,
        gradient: bool,
        threads: int | None,
    ) -> Evaluation:
        """See `evaluate`; parameters, gram and target have one dtype."""

    @abstractmethod
    def _step(
        self,
        parameters: Parameters,
        dim: int,
        context: int,
        sigma: NDArray[np.float64],
        key: Key,
        target: Target,
        ceiling: float,
        gradient: bool,
        unadjusted: bool,
        first: int,
        threads: int | None,
    ) -> Evaluation:
        """See `step`."""
