"""The moment recursion: what every layer of a linear transformer does to the Gram matrix of a context.

A layer with heads (P_k, Q_k) multiplies every token by T = I + sum_k P_k G Q_k, where G is the Gram matrix of the
context's tokens. So G becomes T G T', and the product C of all T so far says what has become of a token. The engines
compute the same, faster and without keeping what happens between the layers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Trace", "trace"]

Float = NDArray[Any]  # float32 or float64


class Trace(NamedTuple):
    """Every layer's state for given contexts, where D = d + 1.

    Attributes:
        T: The matrices by which the layers multiply tokens, [L, B, D, D].
        C: Their products, layer 0 (the identity) included, [L+1, B, D, D].
        G: The Gram matrices before every layer and after the last, [L+1, B, D, D].
    """

    T: Float
    C: Float
    G: Float

    @property
    def w(self) -> Float:
        """The weights that a query reads after every layer, [L+1, B, d]; zero at layer 0."""
        return -self.C[:, :, -1, :-1]


def trace(P: Float, Q: Float, gram: Float) -> Trace:
    """Follow Gram matrices through all layers.

    Args:
        P: Dense parameters, [L, H, D, D].
        Q: Dense parameters, [L, H, D, D].
        gram: Gram matrices of the contexts, [B, D, D]. Its precision is that of the result.

    Returns:
        The matrices of every layer.
    """
    eye = np.eye(gram.shape[-1], dtype=gram.dtype)
    T: list[Float] = []
    C, G = [np.broadcast_to(eye, gram.shape)], [gram]
    for p, q in zip(P, Q, strict=True):
        T.append(eye + (p[None] @ G[-1][:, None] @ q[None]).sum(1))
        C.append(T[-1] @ C[-1])
        G.append(T[-1] @ G[-1] @ np.swapaxes(T[-1], 1, 2))
    return Trace(np.stack(T), np.stack(C), np.stack(G))
