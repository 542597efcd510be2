"""A model for every dimension as a predictor, in units that are made from the context itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.moments import Moments

__all__ = ["Universal"]

Float = NDArray[np.floating[Any]]


class Universal:
    """A model that was trained at many dimensions, with a guard against contexts that are larger than its own.

    A model is a polynomial of its context, and polynomials explode on inputs that are larger than those of training.
    Three changes of units prevent that. Each is exact: the weights are translated back.

    1. Features and labels are divided by c, where c^2 is the largest of three numbers: 1; tr S / (n d), the mean square
       of the features; and the size of (tr S^4)^(1/4) / n, which is at least the largest eigenvalue of S / n, relative
       to `WIDEST` times what it is when d is large. The task stays the same; the noise level is divided by c too.
    2. Labels are divided by sqrt(signal), so that tasks are those of training, N(0, I / d).
    3. Labels whose mean square is still above `LARGEST`, or whose sum y x / n is longer than `LONGEST`, which is rare,
       are divided down to it.

    So the model only sees contexts with tr S <= n d, y'y <= 5 n and eigenvalues of S below a bound.

    Args:
        model: A model whose parameters have no d in them, such as `load("zoo:universal/8")`.
        signal: The mean square of <w, x> for features of size 1. Default: None for d, with tasks N(0, I); noise levels
            from 0 to 1.6 sqrt(d) are then those of training. 1 for tasks N(0, I / d), `tasks="gaussian(signal=1)"`.
        own_scale: Whether to divide labels by their own root mean square instead, times sqrt(1 + E r^2) = 1.36 of
            training: then the weights for labels c y are exactly c times those for y, whatever the unit of the labels.
            Default: False.

    Raises:
        InputError: Both `signal` and `own_scale` are given.
    """

    SIZE = float(np.sqrt(1 + 1.6**2 / 3))  # the root mean square of labels in training
    LARGEST = 5.0  # the largest mean square of labels that a model sees
    LONGEST = 3.5  # the largest length of sum y x / n that a model sees
    WIDEST = 1.15  # the largest (tr S^4)^(1/4) that a model sees, relative to its limit for large d

    def __init__(self, model: Any, *, signal: float | None = None, own_scale: bool = False) -> None:
        if own_scale and signal is not None:
            refuse(
                "labels have either their own scale or a given signal",
                f"signal={signal} with own_scale=True",
                "Leave one out.",
            )
        self.model, self.signal, self.own_scale = model, signal, own_scale

    def weights(self, moments: Moments) -> Float:
        """Return the weights of contexts of any dimension.

        Args:
            moments: The contexts.

        Returns:
            The weights, [B, d].
        """
        scaled, unit = self.scaled(moments)
        return np.asarray(unit[:, None] * self.model.at_dim(moments.dim).weights(scaled))

    def scaled(self, moments: Moments) -> tuple[Moments, Float]:
        """Return the contexts as the model sees them.

        Args:
            moments: The contexts. Features that are 0 in all examples do not count as features.

        Returns:
            The contexts in the model's units; and the unit of their labels, [B], by which what the model returns is
            multiplied.
        """
        gram, n = np.array(moments.gram, np.float64), np.asarray(moments.counts, np.float64)
        squares = np.einsum("bii->bi", gram)[:, :-1]
        d = np.maximum((squares > 0).sum(1), 1)
        r = d / n
        fourth = np.square(np.matmul(gram[:, :-1, :-1], gram[:, :-1, :-1])).sum((1, 2)) / n**4
        wide = (fourth / (d * (1 + 6 * r + 6 * r**2 + r**3))) ** 0.25 / self.WIDEST
        size = np.maximum(np.maximum(squares.sum(1) / (n * d), wide), 1.0)
        gram /= size[:, None, None]
        labels = gram[:, -1, -1] / n
        unit = np.sqrt(d if self.signal is None else np.full(len(n), float(self.signal)))
        if self.own_scale:
            unit = np.where(labels > 0, np.sqrt(labels) / self.SIZE, 1.0)
        moment = np.sqrt(np.square(gram[:, :-1, -1]).sum(1)) / n
        unit = np.maximum(unit, np.maximum(np.sqrt(labels / self.LARGEST), moment / self.LONGEST))
        gram[:, :-1, -1] /= unit[:, None]
        gram[:, -1, :-1] /= unit[:, None]
        gram[:, -1, -1] /= unit**2
        sigma = None if moments.sigma is None else moments.sigma / (np.sqrt(size) * unit)
        return Moments._trusted(gram.astype(moments.dtype, copy=False), moments.context, sigma), unit

    def __repr__(self) -> str:
        signal = "" if self.signal is None else f", signal={self.signal:g}"
        return f"Universal({self.model!r}{signal}{', own_scale=True' if self.own_scale else ''})"
