"""Channels: tokens that hold v vectors of R^d and s scalars, and the matrices that mix them alike in every direction.

x is the first vector and y the last scalar. A token's coordinates are x, the scalars beside y, the vectors beside x,
and y. P acts by a v x v matrix on the vectors and by an s x s matrix on the scalars, and so does Q.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["channel_places", "dense_channels", "gather_channels"]

Array = NDArray[np.float64]
Float = NDArray[np.floating[Any]]


def dense_channels(Pv: Float, Qv: Float, Ps: Float, Qs: Float, dim: int) -> tuple[Float, Float]:
    """Return the matrices P and Q that parameters of channels stand for.

    Args:
        Pv: How P mixes the vectors, [..., v, v].
        Qv: How Q mixes the vectors, [..., v, v].
        Ps: How P mixes the scalars, [..., s, s].
        Qs: How Q mixes the scalars, [..., s, s].
        dim: The dimension d of the vectors.

    Returns:
        P and Q, each [..., D, D] with D = v d + s.

    >>> P, Q = dense_channels(*(np.full((1, 1), value) for value in (1.0, 2.0, 3.0, 4.0)), dim=2)
    >>> P.diagonal(), Q.diagonal()
    (array([1., 1., 3.]), array([2., 2., 4.]))
    """
    return _dense(Pv, Ps, dim), _dense(Qv, Qs, dim)


def gather_channels(P: Array, Q: Array, vectors: int, scalars: int, dim: int) -> tuple[Array, Array, Array, Array]:
    """Return the gradient of parameters of channels from that of the matrices P and Q: the adjoint of `dense_channels`.

    Args:
        P: The gradient of P, [..., D, D] with D = v d + s.
        Q: The gradient of Q, [..., D, D].
        vectors: The number of vectors, v.
        scalars: The number of scalars, s.
        dim: The dimension d of the vectors.

    Returns:
        The gradients of Pv, Qv [..., v, v], Ps and Qs [..., s, s].
    """
    at, single = channel_places(vectors, scalars, dim)
    Pv, Qv = (m[..., at[:, None, :], at[None, :, :]].sum(-1) for m in (P, Q))
    Ps, Qs = (m[..., single[:, None], single[None, :]] for m in (P, Q))
    return Pv, Qv, Ps, Qs


def _dense(vectors: Float, scalars: Float, dim: int) -> Float:
    v, s = vectors.shape[-1], scalars.shape[-1]
    at, single = channel_places(v, s, dim)
    found = np.zeros((*vectors.shape[:-2], v * dim + s, v * dim + s), vectors.dtype)
    found[..., at[:, None, :], at[None, :, :]] = vectors[..., None]
    found[..., single[:, None], single[None, :]] = scalars
    return found


def channel_places(vectors: int, scalars: int, dim: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where vectors and scalars stand among the coordinates of a token.

    Args:
        vectors: The number of vectors, v; x is the first.
        scalars: The number of scalars, s; y is the last.
        dim: The dimension d of the vectors.

    Returns:
        The coordinates of the vectors, [v, d], and of the scalars, [s].

    >>> channel_places(vectors=2, scalars=2, dim=2)
    (array([[0, 1],
           [3, 4]]), array([2, 5]))
    """
    order = np.arange(vectors * dim + scalars)
    single = np.append(order[dim : dim + scalars - 1], order[-1])
    return np.delete(order, single).reshape(vectors, dim), single
