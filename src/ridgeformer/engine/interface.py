"""What an engine is: two jobs, sampling moments, and loss and gradient in moment form.

Parameters are the tuple that a family's `kernel()` gives: `(omega,)` with omega [L, 2, 2] for Diag and GD++, row
where the flow goes to and column where it comes from, x first; or `(P, Q)`, each [L, H, D, D], for Full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["Engine", "Evaluation", "Key", "Target"]

Float = NDArray[np.floating[Any]]
Parameters = tuple[Float, ...]
Target = Literal["ridge", "task"]


class Key(NamedTuple):
    """Names a stream of random sequences. Sequence i of a key is the same whatever the batch and the threads.

    Between engines, and between float32 and float64, it is the same to rounding; in about one sequence of a million
    rounding decides whether a random number is rejected, and then that sequence differs.
    """

    seed: int = 0
    stream: int = 0
    step: int = 0


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
        plain: [B], losses against the task vectors, if `step` was asked for them.
    """

    losses: Float
    weights: Float | None
    gradient: tuple[NDArray[np.float64], ...] | None
    limited: int
    plain: Float | None = None

    def __repr__(self) -> str:
        return f"Evaluation({len(self.losses)} sequences, loss {self.loss:g}, {self.limited} limited)"

    @property
    def loss(self) -> float:
        """The mean of the losses, all sequences included; infinite if one of them, or their sum, is."""
        with np.errstate(all="ignore"):
            return float(self.losses.mean(dtype=np.float64))


class Engine(Protocol):
    """Both engines have these methods, with the same meaning to rounding."""

    @property
    def name(self) -> str:
        """`numpy`, or the instruction set."""

    def uniforms(self, key: Key, count: int, first: int = 0) -> NDArray[np.float64]:
        """Numbers in (0, 1), one a sequence, [B]: what noise levels are made from."""

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
        """Gram matrices [B, D, D], task vectors [B, d] and ridge solutions E[w | context, sigma] [B, d]."""

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
        """Losses of a batch, and on request weights and gradient."""

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
        plain: bool = False,
        first: int = 0,
        threads: int | None = None,
    ) -> Evaluation:
        """`sample` then `evaluate`, in the parameters' dtype, without storing the moments."""
