"""A model for every dimension as a predictor of problems in the units of the seed paper, tasks N(0, I)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.moments import Moments

__all__ = ["Universal"]

Float = NDArray[np.floating[Any]]


class Universal:
    """A model that was trained at many dimensions with tasks N(0, I / d), where tasks are N(0, I).

    Labels are divided by sqrt(d) before the model sees them, and its weights are multiplied by sqrt(d). So noise levels
    from 0 to 1.6 sqrt(d) are those of the model's training, at every d and n.

    Args:
        model: A model whose parameters have no d in them, such as `load("zoo:universal/8")`.
        own_scale: Whether to divide labels by their own root mean square instead, times sqrt(1 + E r^2) = 1.36 of
            training: then the weights for labels c y are exactly c times those for y, whatever the unit of the labels.
            Default: False.
    """

    SIZE = float(np.sqrt(1 + 1.6**2 / 3))  # the root mean square of labels in training

    def __init__(self, model: Any, *, own_scale: bool = False) -> None:
        self.model, self.own_scale = model, own_scale

    def weights(self, moments: Moments) -> Float:
        """Return the weights of contexts of any dimension.

        Args:
            moments: The contexts.

        Returns:
            The weights, [B, d].
        """
        scale = np.full(len(moments), np.sqrt(moments.dim))
        if self.own_scale:
            scale = np.sqrt(np.asarray(moments.l, np.float64) / moments.counts) / self.SIZE
            scale = np.where(scale > 0, scale, 1.0)
        gram = np.array(moments.gram)
        gram[:, :-1, -1] /= scale[:, None]
        gram[:, -1, :-1] /= scale[:, None]
        gram[:, -1, -1] /= scale**2
        scaled = Moments._trusted(gram, moments.context, moments.sigma)
        return np.asarray(scale[:, None] * self.model.at_dim(moments.dim).weights(scaled))

    def __repr__(self) -> str:
        return f"Universal({self.model!r}{', own_scale=True' if self.own_scale else ''})"
