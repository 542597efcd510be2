"""Channels: models that treat all directions alike, as Diag does, with room for intermediate results.

A token holds v vectors of R^d and s scalars: x is the first vector, y the last scalar, and the others start at zero. P
and Q mix the vectors by v x v matrices and the scalars by s x s matrices. Diag has one vector and one scalar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.engine import Mixings
from ridgeformer.errors import refuse
from ridgeformer.models.families import Diag, with_more_heads
from ridgeformer.models.family import ArrayFamily, Family, Gradient
from ridgeformer.models.names import sized, with_sizes
from ridgeformer.validation import array, integer
from ridgeformer.values import read_only

Float = NDArray[np.floating[Any]]
NAMES = ("P_v", "Q_v", "P_s", "Q_s")  # in the order of the kernel


class ChannelFamily(ArrayFamily):
    """Parameters of a model with channels; `Channels` makes the class for given numbers of vectors and scalars.

    Args:
        P_v: How P mixes the vectors, [L, H, v, v]; x is the first.
        Q_v: How Q mixes the vectors, [L, H, v, v].
        P_s: How P mixes the scalars, [L, H, s, s]; y is the last.
        Q_s: How Q mixes the scalars, [L, H, s, s].

    Attributes:
        vectors: v.
        scalars: s.

    Raises:
        InputError: The shapes do not fit, or a number is not finite.
    """

    built_in = True
    vectors: ClassVar[int]
    scalars: ClassVar[int]
    contains = Diag
    isotropic = True

    def __init__(self, P_v: ArrayLike, Q_v: ArrayLike, P_s: ArrayLike, Q_s: ArrayLike) -> None:
        v, s = self.vectors, self.scalars
        first = array("P_v", P_v, ("L", "H", v, v))
        layers, heads = first.shape[:2]
        shapes = {"Q_v": (layers, heads, v, v), "P_s": (layers, heads, s, s), "Q_s": (layers, heads, s, s)}
        given = {"Q_v": Q_v, "P_s": P_s, "Q_s": Q_s}
        self._keep(P_v=first, **{name: array(name, given[name], shape) for name, shape in shapes.items()})

    def dense(self, dim: int) -> tuple[Float, Float]:
        """See `Family.dense`."""
        P, Q = self.kernel_of(self._arrays, np).dense(dim)
        return read_only(P), read_only(Q)

    @classmethod
    def kernel_of(cls, arrays: Mapping[str, Any], xp: Any) -> Mixings:
        """See `Family.kernel_of`: the four arrays."""
        return Mixings(*(arrays[name] for name in NAMES))

    def pullback(self, gradient: Gradient) -> dict[str, NDArray[np.float64]]:
        """See `Family.pullback`."""
        pieces = self._checked(gradient, *(value.shape for value in self._arrays.values()))
        return dict(zip(NAMES, pieces, strict=True))

    def scaled(self, by: float) -> Self:
        """See `Family.scaled`."""
        return type(self)(**{name: by * value if name[0] == "P" else value for name, value in self._arrays.items()})

    def factors(self, dim: int, scale: float, feature: float, label: float) -> dict[str, NDArray[np.float64]]:
        """See `Family.factors`: all vectors have the size of x; scalars beside y have size one."""
        D = np.array([1.0] * (self.scalars - 1) + [label])
        return {"Q_v": np.array(1 / feature**2), "P_s": D[:, None] / D, "Q_s": 1 / (D[:, None] * D)}

    @classmethod
    def random(cls, width: int, layers: int, heads: int, scale: float, rng: np.random.Generator) -> Self:
        """See `Family.random`."""
        return cls(*(scale * rng.standard_normal((layers, heads, size, size)) for size in cls._sizes()))

    @classmethod
    def embed(cls, other: Family, dim: int, heads: int) -> Self:
        """See `Family.embed`: a Diag model whose further channels stay empty, but would be read if they were not."""
        if not isinstance(other, Diag) or "p" not in other.arrays:
            refuse("channels contain Diag models with p and q", other, "Pass Diag(p, q).")
        p, q = (with_more_heads(other.arrays[name], heads, fill) for name, fill in (("p", 0.0), ("q", 0.1)))
        layers = other.layers
        made = {name: np.zeros((layers, heads, size, size)) for name, size in zip(NAMES, cls._sizes(), strict=True)}
        made["P_v"][..., 0, 0], made["P_s"][..., -1, -1] = p[..., 0], p[..., 1]
        made["Q_v"][..., 0, 1:] = made["Q_s"][..., -1, :-1] = 0.1 * np.abs(q).max()
        made["Q_v"][..., 0, 0], made["Q_s"][..., -1, -1] = q[..., 0], q[..., 1]
        return cls(**made)

    @classmethod
    def _sizes(cls) -> tuple[int, int, int, int]:
        return cls.vectors, cls.vectors, cls.scalars, cls.scalars

    def identity_layer(self) -> dict[str, Float]:
        """See `Family.identity_layer`."""
        eyes = (np.broadcast_to(np.eye(size), (self.heads, size, size)) for size in self._sizes())
        return {name: eye if name[0] == "Q" else 0 * eye for name, eye in zip(NAMES, eyes, strict=True)}


@sized("channels", "1,3")
def Channels(vectors: int, scalars: int) -> type[ChannelFamily]:
    """Return the family of models with so many channels.

    Args:
        vectors: How many vectors of R^d a token holds, from 1 to 16; the first is x.
        scalars: How many scalars, from 1 to 64; the last is y.

    Returns:
        The family, a class; the same class for the same numbers.

    Raises:
        InputError: A number is out of range.

    >>> Channels(vectors=1, scalars=3).name
    'channels(1,3)'
    """
    vectors, scalars = integer("vectors", vectors, 1, 16), integer("scalars", scalars, 1, 64)
    sizes = {"vectors": vectors, "scalars": scalars}
    room = {"further_vectors": vectors - 1, "further_scalars": scalars - 1}
    return with_sizes(ChannelFamily, "channels", f"{vectors},{scalars}", **sizes, **room)
