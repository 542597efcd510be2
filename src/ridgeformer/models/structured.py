"""Families of P and Q with a structure: low rank, preconditioned gradient descent, registers, channels, tied layers.

Channels treat all directions alike, as Diag does, with room for intermediate results. A token holds v vectors of R^d
and s scalars: x is the first vector, y the last scalar, and the others start at zero. P and Q mix the vectors by v x v
matrices and the scalars by s x s matrices. Diag has one vector and one scalar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.engine import Kernel, Mixings
from ridgeformer.errors import refuse
from ridgeformer.models.families import ArrayFamily, Diag, natural, with_more_heads
from ridgeformer.models.family import Family, Gradient, family_named, joined, sized, with_sizes
from ridgeformer.validation import Float, integer, real
from ridgeformer.values import read_only


class LowRankFamily(ArrayFamily):
    """Separate keys and queries: Q = K' R of rank r, so that two tokens attend by <K e_j, R e_i>.

    Args:
        P: The values, [L, H, D, D].
        K: The keys, [L, H, r, D].
        R: The queries, [L, H, r, D].

    Attributes:
        rank: r.

    Raises:
        InputError: The shapes do not fit, the rank is larger than D, or a number is not finite.
    """

    rank: ClassVar[int]
    further_scalars = None
    own = 1
    strong = ("P",)

    def __init__(self, P: ArrayLike, K: ArrayLike, R: ArrayLike) -> None:
        self._keep(P=P, K=K, R=R)

    @classmethod
    def shapes(cls, width: int) -> dict[str, tuple[int, ...]]:
        """See `ArrayFamily.shapes`."""
        D = width + 1
        if cls.rank > D:
            rule = f"the rank of keys and queries must be at most {D}, the coordinates of a token"
            refuse(rule, cls.rank, f"Use {D} or less.")
        return {"P": (D, D), "K": (cls.rank, D), "R": (cls.rank, D)}

    def dense(self, dim: int) -> tuple[Float, Float]:
        """See `Family.dense`."""
        return self._arrays["P"], read_only(np.swapaxes(self._arrays["K"], 2, 3) @ self._arrays["R"])

    def pullback(self, gradient: Gradient) -> dict[str, NDArray[np.float64]]:
        """See `Family.pullback`."""
        shape = self._arrays["P"].shape
        P, Q = self._checked(gradient, shape, shape)
        return {"P": P, "K": self._arrays["R"] @ np.swapaxes(Q, 2, 3), "R": self._arrays["K"] @ Q}

    def natural_sizes(self, dim: int, scale: float, feature: float, label: float) -> dict[str, NDArray[np.float64]]:
        """See `Family.natural_sizes`: keys and queries share what Q has alone in other families."""
        D = np.array([feature] * dim + [1.0] * (self._arrays["P"].shape[3] - dim - 1) + [label])
        return {"P": D[:, None] / D, "K": np.sqrt(scale) / D, "R": np.sqrt(scale) / D}


@sized("lowrank", "2")
def LowRank(rank: int) -> type[LowRankFamily]:
    """Return the family with separate keys and queries of a rank.

    Args:
        rank: The rank r of every head's Q, at least 1 and at most the number D of coordinates of a token.

    Returns:
        The family, a class; the same class for the same rank.

    Raises:
        InputError: The rank is less than 1.

    >>> LowRank(rank=2).name
    'lowrank(2)'
    """
    rank = integer("rank", rank, 1, 4097)
    return with_sizes(LowRankFamily, "lowrank", str(rank), rank=rank)


class Preconditioned(ArrayFamily):
    """The sparse form of preconditioned gradient descent: P = diag(B, 1) and Q = diag(A, 0).

    Every layer moves y by <x_j, A x_i> y_j and the features by B. There is nothing that flows out of y.

    Args:
        A: The preconditioners, [L, H, d, d].
        B: How features change, [L, H, d, d].

    Raises:
        InputError: The shapes do not fit, or a number is not finite.
    """

    name = "preconditioned"
    own = 0
    strong = ("A",)
    silent = ("A", "B")

    def __init__(self, A: ArrayLike, B: ArrayLike) -> None:
        self._keep(A=A, B=B)

    @classmethod
    def shapes(cls, width: int) -> dict[str, tuple[int, ...]]:
        """See `ArrayFamily.shapes`."""
        return dict.fromkeys(("A", "B"), (width, width))

    def dense(self, dim: int) -> tuple[Float, Float]:
        """See `Family.dense`."""
        A, B = self._arrays["A"], self._arrays["B"]
        D = A.shape[2] + 1
        P, Q = np.zeros((2, *A.shape[:2], D, D), A.dtype)
        P[..., :-1, :-1], P[..., -1, -1], Q[..., :-1, :-1] = B, 1.0, A
        return read_only(P), read_only(Q)

    def pullback(self, gradient: Gradient) -> dict[str, NDArray[np.float64]]:
        """See `Family.pullback`."""
        layers, heads, d, _ = self._arrays["A"].shape
        P, Q = self._checked(gradient, *[(layers, heads, d + 1, d + 1)] * 2)
        return {"A": Q[..., :-1, :-1], "B": P[..., :-1, :-1]}

    def natural_sizes(self, dim: int, scale: float, feature: float, label: float) -> dict[str, NDArray[np.float64]]:
        """See `Family.natural_sizes`: A alone has the size of P and Q together, and B is of the order of one."""
        return {"A": np.array(1 / (scale * feature**2)), "B": np.array(scale)}


class RegisterFamily(ArrayFamily):
    """Diagonal as Diag is, but for k coordinates of x, the last ones, which may be used freely together with y.

    Args:
        p: P on the coordinates of x that are not set aside: p times the identity, [L, H].
        q: Q on them, [L, H].
        P: P on the k coordinates and y, [L, H, k+1, k+1].
        Q: Q on the k coordinates and y, [L, H, k+1, k+1].

    Attributes:
        count: k.

    Raises:
        InputError: The shapes do not fit, or a number is not finite.
    """

    count: ClassVar[int]
    contains = Diag
    strong = ("p", "P")

    def __init__(self, p: ArrayLike, q: ArrayLike, P: ArrayLike, Q: ArrayLike) -> None:
        self._keep(p=p, q=q, P=P, Q=Q)

    def dense(self, dim: int) -> tuple[Float, Float]:
        """See `Family.dense`."""
        free = _check_registers(self.count, dim)
        P, Q = np.zeros((2, *self._arrays["p"].shape, dim + 1, dim + 1), self.dtype)
        for matrix, diagonal, block in ((P, "p", "P"), (Q, "q", "Q")):
            matrix[..., range(free), range(free)] = self._arrays[diagonal][..., None]
            matrix[..., free:, free:] = self._arrays[block]
        return read_only(P), read_only(Q)

    def pullback(self, gradient: Gradient) -> dict[str, NDArray[np.float64]]:
        """See `Family.pullback`."""
        shape = (*self._arrays["p"].shape, "D", "D")
        P, Q = self._checked(gradient, shape, shape)
        free = P.shape[-1] - 1 - self.count
        p, q = (np.trace(slope[..., :free, :free], axis1=2, axis2=3) for slope in (P, Q))
        return {"p": p, "q": q, "P": P[..., free:, free:], "Q": Q[..., free:, free:]}

    def natural_sizes(self, dim: int, scale: float, feature: float, label: float) -> dict[str, NDArray[np.float64]]:
        """See `Family.natural_sizes`."""
        return {"q": np.array(1 / feature**2), **natural([feature] * self.count + [label])}

    @classmethod
    def shapes(cls, width: int) -> dict[str, tuple[int, ...]]:
        """See `ArrayFamily.shapes`."""
        _check_registers(cls.count, width)
        return {"p": (), "q": (), **dict.fromkeys(("P", "Q"), (cls.count + 1, cls.count + 1))}

    @classmethod
    def embed(cls, other: Family, dim: int, heads: int) -> Self:
        """See `Family.embed`: a Diag model, which treats the coordinates set aside as the others."""
        _check_registers(cls.count, dim)
        if "p" not in other.arrays:
            refuse("registers contain Diag models with p and q", other, "Pass Diag(p, q).")
        diagonals = (real(name, other.arrays[name])[..., 0] for name in "pq")
        pairs = zip((*diagonals, *other.dense(cls.count)), (0.0, 0.1) * 2, strict=True)
        return cls(*(with_more_heads(values.astype(np.float64), heads, fill) for values, fill in pairs))


@sized("registers", "2")
def Registers(count: int) -> type[RegisterFamily]:
    """Return the family that is diagonal but for some coordinates of x, which may be used freely.

    Args:
        count: How many coordinates, from 0 (which is Diag) to d.

    Returns:
        The family, a class; the same class for the same number.

    Raises:
        InputError: The number is negative.

    >>> Registers(2).name
    'registers(2)'
    """
    count = integer("the number of registers", count, 0, 4096)
    return with_sizes(RegisterFamily, "registers", str(count), count=count)


def _check_registers(count: int, dim: int) -> int:
    """How many coordinates of x are left."""
    if count > dim:
        refuse(f"registers are coordinates of x, of which there are {dim}", f"{count} registers", f"Use at most {dim}.")
    return dim - count


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

    vectors: ClassVar[int]
    scalars: ClassVar[int]
    contains = Diag
    isotropic = True
    strong = ("P_v", "P_s")

    def __init__(self, P_v: ArrayLike, Q_v: ArrayLike, P_s: ArrayLike, Q_s: ArrayLike) -> None:
        self._keep(P_v=P_v, Q_v=Q_v, P_s=P_s, Q_s=Q_s)

    @classmethod
    def shapes(cls, width: int) -> dict[str, tuple[int, ...]]:
        """See `ArrayFamily.shapes`."""
        sizes = (cls.vectors, cls.vectors, cls.scalars, cls.scalars)
        return {name: (size, size) for name, size in zip(NAMES, sizes, strict=True)}

    def dense(self, dim: int) -> tuple[Float, Float]:
        """See `Family.dense`."""
        P, Q = self.kernel_of(self._arrays, np).dense(dim)
        return read_only(P), read_only(Q)

    @classmethod
    def kernel_of(cls, arrays: Mapping[str, Any], xp: Any) -> Mixings:
        """See `Family.kernel_of`: the four arrays."""
        return Mixings(*(arrays[name] for name in NAMES))

    def natural_sizes(self, dim: int, scale: float, feature: float, label: float) -> dict[str, NDArray[np.float64]]:
        """See `Family.natural_sizes`: all vectors have the size of x; scalars beside y have size one."""
        scalars = natural([1.0] * (self.scalars - 1) + [label])
        return {"Q_v": np.array(1 / feature**2), "P_s": scalars["P"], "Q_s": scalars["Q"]}

    @classmethod
    def embed(cls, other: Family, dim: int, heads: int) -> Self:
        """See `Family.embed`: a Diag model whose further channels stay empty, but would be read if they were not."""
        if not isinstance(other, Diag) or "p" not in other.arrays:
            refuse("channels contain Diag models with p and q", other, "Pass Diag(p, q).")
        p, q = (with_more_heads(other.arrays[name], heads, fill) for name, fill in (("p", 0.0), ("q", 0.1)))
        arrays = {name: np.zeros((other.layers, heads, *shape)) for name, shape in cls.shapes(0).items()}
        arrays["P_v"][..., 0, 0], arrays["P_s"][..., -1, -1] = p[..., 0], p[..., 1]
        arrays["Q_v"][..., 0, 1:] = arrays["Q_s"][..., -1, :-1] = 0.1 * np.abs(q).max()
        arrays["Q_v"][..., 0, 0], arrays["Q_s"][..., -1, -1] = q[..., 0], q[..., 1]
        return cls(**arrays)


@sized("channels", "1,3")
def Channels(vectors: int, scalars: int) -> type[ChannelFamily]:
    """Return the family of models with a number of channels.

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


SHARED = ("built_in", "useful_heads", "isotropic", "further_scalars", "further_vectors")  # with the other family


class LoopedFamily(Family):
    """The layers of another family, repeated: l layers of parameters make a model of l times `loops` layers.

    Args:
        **arrays: The parameters of the layers that are repeated, as the other family has them.

    Attributes:
        inner: The other family.

    Raises:
        InputError: The other family refuses the arrays.
    """

    layer_axis = None  # the arrays hold one repetition
    inner: ClassVar[type[Family]]

    def __init__(self, **arrays: ArrayLike) -> None:
        self.once = self.inner(**arrays)

    @property
    def arrays(self) -> dict[str, Float]:
        """The numbers of the layers that are repeated."""
        return self.once.arrays

    @property
    def layers(self) -> int:
        """The layers that the model has, repetitions included."""
        return self.loops * self.once.layers

    @property
    def heads(self) -> int:
        """H."""
        return self.once.heads

    @property
    def width(self) -> int | None:
        """As for the other family."""
        return self.once.width

    def unrolled(self) -> Family:
        """See `Family.unrolled`: a model of the other family."""
        return joined(*[self.once] * self.loops)

    def dense(self, dim: int) -> tuple[Float, Float]:
        """See `Family.dense`."""
        P, Q = self.once.dense(dim)
        return self._repeated(P), self._repeated(Q)

    def kernel(self, dim: int) -> Kernel:
        """See `Family.kernel`: that of the other family, repeated."""
        once = self.once.kernel(dim)
        return type(once)(*map(self._repeated, once))

    @classmethod
    def kernel_of(cls, arrays: Mapping[str, Any], xp: Any) -> Kernel | None:
        """See `Family.kernel_of`: as for `kernel`, where the other family is ridgeformer's own."""
        once = cls.inner.kernel_of(arrays, xp) if cls.built_in else None
        return None if once is None else type(once)(*(xp.concatenate([value] * cls.loops) for value in once))

    def _repeated(self, value: Float) -> Float:
        return np.concatenate([np.asarray(value)] * self.loops)

    def pullback(self, gradient: Gradient) -> dict[str, NDArray[np.float64]]:
        """See `Family.pullback`: what all repetitions contribute."""
        if gradient is None:
            return self.once.pullback(None)
        once = self.once.layers
        if any(np.ndim(piece) == 0 or len(piece) != self.layers for piece in gradient):
            rule = f"a gradient must have {self.layers} layers"
            refuse(rule, [np.shape(p) for p in gradient], "Pass all that the engine returned.")
        return self.once.pullback(type(gradient)(*(p.reshape(self.loops, once, *p.shape[1:]).sum(0) for p in gradient)))

    def stretched(self, by: float) -> Self:
        """See `Family.stretched`."""
        return type(self)(**self.once.stretched(by).arrays)

    def natural_sizes(self, dim: int, scale: float, feature: float, label: float) -> dict[str, NDArray[np.float64]]:
        """See `Family.natural_sizes`."""
        return self.once.natural_sizes(dim, scale, feature, label)

    def edit(self, layer: int, **parameters: ArrayLike) -> Family:
        """See `Family.edit`. Only one repetition changes, so the result is a model of the other family."""
        return self.unrolled().edit(layer, **parameters)

    def select(self, layers: slice) -> Family:
        """See `Family.select`. The result is a model of the other family."""
        return self.unrolled().select(layers)

    def inserted(self, at: int, layer: Self | dict[str, Float]) -> Self:
        """See `Family.inserted`. The new layer is repeated with the others, and `at` counts within one repetition."""
        new = layer.once if isinstance(layer, LoopedFamily) else layer
        return type(self)(**self.once.inserted(at, new).arrays)

    @classmethod
    def random(cls, width: int, layers: int, heads: int, scale: float, rng: np.random.Generator) -> Self:
        """See `Family.random`; `layers` are those of one repetition."""
        return cls(**cls.inner.random(width, layers, heads, scale, rng).arrays)

    @classmethod
    def embed(cls, other: Family, dim: int, heads: int) -> Self:
        """See `Family.embed`: a looped model of the family that the other family contains."""
        if not isinstance(other, LoopedFamily):
            refuse("a looped model contains looped models", other, "Pass parameters of a looped family.")
        return cls(**cls.inner.embed(other.once, dim, heads).arrays)

    def identity_layer(self) -> dict[str, Float]:
        """See `Family.identity_layer`."""
        return self.once.identity_layer()


@sized("looped", "diag,4")
def Looped(family: str | type[Family], loops: int) -> type[LoopedFamily]:
    """Return the family of models that repeat the layers of another family with tied weights.

    Args:
        family: The other family, or its name.
        loops: How often its layers are repeated, from 1 to 1000; with 1 they are the plain model.

    Returns:
        The family, a class; the same class for the same arguments.

    Raises:
        InputError: There is no such family, it is looped itself, or the number is out of range.

    >>> Looped("diag", loops=4).name
    'looped(diag,4)'
    """
    inner, loops = family_named(family), integer("loops", loops, 1, 1000)
    if issubclass(inner, LoopedFamily):
        refuse("the family of a looped model must not be looped itself", inner.name, "Multiply the numbers of loops.")
    return with_sizes(
        LoopedFamily,
        "looped",
        f"{inner.name},{loops}",
        inner=inner,
        loops=loops,
        contains=None if inner.contains is None else Looped(inner.contains, loops),
        **{name: getattr(inner, name) for name in SHARED},
    )
