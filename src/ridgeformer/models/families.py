"""The families of the seed paper: Full matrices, Diag ones, and GD++. Layers come first in every array."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.engine import Kernel, Matrices, Omegas
from ridgeformer.engine.kernels import MOST_LAYERS
from ridgeformer.engine.law import MOST_DIM
from ridgeformer.errors import refuse
from ridgeformer.models.family import Family, Gradient
from ridgeformer.validation import Float, array, integer, real
from ridgeformer.values import read_only

FLOWS = {"xx": (0, 0), "xy": (0, 1), "yx": (1, 0), "yy": (1, 1)}  # of omegas: to and from
OMEGAS = {f"omega_{flow}": place for flow, place in FLOWS.items()}


class ArrayFamily(Family):
    """Base class of families that store a dict of arrays of one precision, heads after layers.

    Attributes:
        strong: The arrays in which attention is linear: `stretched` multiplies them.
        silent: The arrays that are 0 in a layer that changes nothing; the others are identities there.
        own: How many coordinates of tokens the first array has beside those that `width` counts: 1 where it has a row
            for y. None where arrays fit any width.
    """

    strong: ClassVar[tuple[str, ...]] = ()
    silent: ClassVar[tuple[str, ...]] = ()
    own: ClassVar[int | None] = None
    _arrays: dict[str, Float]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.silent = cls.silent or cls.strong

    @classmethod
    @abstractmethod
    def shapes(cls, width: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of every array for one layer and head.

        Args:
            width: How many coordinates tokens have beside y.

        Returns:
            The shapes by name, in the order in which random numbers are drawn.
        """

    def _keep(self, **values: ArrayLike) -> None:
        """Keep arrays of the shapes that `shapes` says, in the widest of their precisions; the first one decides L."""
        (name, first), *_ = values.items()
        width = MOST_DIM
        if self.own is not None:
            extent = array(name, first, ("L", "H", "D", "D")).shape[3]
            width = integer(f"the last axis of {name}", extent, self.own + 1) - self.own
        shapes = self.shapes(width)
        layers, heads, *_ = array(name, first, ("L", "H", *shapes[name])).shape
        integer(f"the number of layers of {name}", layers, 1, MOST_LAYERS)
        arrays = {name: array(name, value, (layers, heads, *shapes[name])) for name, value in values.items()}
        dtype = np.result_type(*arrays.values())
        self._arrays = {name: value.astype(dtype, copy=False) for name, value in arrays.items()}

    @property
    def arrays(self) -> dict[str, Float]:
        """See `Family.arrays`."""
        return self._arrays

    def with_arrays(self, arrays: dict[str, Float]) -> Self:
        """See `Family.with_arrays`."""
        if not self.built_in:
            return super().with_arrays(arrays)
        new = object.__new__(type(self))
        vars(new).update(vars(self), _arrays=arrays)
        return new

    @property
    def width(self) -> int | None:
        """See `Family.width`."""
        return None if self.own is None else int(next(iter(self._arrays.values())).shape[3]) - self.own

    @property
    def heads(self) -> int:
        """H; two for omegas, whose rows are two heads."""
        return int(next(iter(self._arrays.values())).shape[1])

    def pullback(self, gradient: Gradient) -> dict[str, NDArray[np.float64]]:
        """See `Family.pullback`: for families whose kernel is their arrays."""
        pieces = self._checked(gradient, *(value.shape for value in self._arrays.values()))
        return dict(zip(self._arrays, pieces, strict=True))

    def stretched(self, by: float) -> Self:
        """See `Family.stretched`."""
        return type(self)(**{name: by * v if name in self.strong else v for name, v in self._arrays.items()})

    @classmethod
    def random(cls, width: int, layers: int, heads: int, scale: float, rng: np.random.Generator) -> Self:
        """See `Family.random`."""
        shapes = cls.shapes(width).items()
        return cls(**{name: scale * rng.standard_normal((layers, heads, *shape)) for name, shape in shapes})

    def identity_layer(self) -> dict[str, Float]:
        """See `Family.identity_layer`."""
        shapes = {name: value.shape[1:] for name, value in self._arrays.items()}
        return {name: np.zeros(s) if name in self.silent else _identity(s) for name, s in shapes.items()}


def _identity(shape: tuple[int, ...]) -> Float:
    """Identity matrices for every head, or ones where parameters are no matrices."""
    return np.broadcast_to(np.eye(*shape[1:]), shape) if len(shape) == 3 else np.ones(shape)


def natural(sizes: ArrayLike) -> dict[str, NDArray[np.float64]]:
    """Return the natural sizes of dense matrices; see `Family.natural_sizes`.

    Args:
        sizes: The size of each coordinate of a token, [D].

    Returns:
        The sizes of P and of Q, [D, D] each.
    """
    D = np.asarray(sizes, np.float64)
    return {"P": D[:, None] / D, "Q": 1 / (D[:, None] * D)}


class Full(ArrayFamily):
    """Unrestricted P and Q.

    Args:
        P: The matrices P, [L, H, D, D].
        Q: The matrices Q, [L, H, D, D].

    Raises:
        InputError: The shapes do not fit, or a number is not finite.
    """

    name = "full"
    further_scalars = None
    own = 1
    strong = ("P",)

    def __init__(self, P: ArrayLike, Q: ArrayLike) -> None:
        self._keep(P=P, Q=Q)

    @classmethod
    def shapes(cls, width: int) -> dict[str, tuple[int, ...]]:
        """See `ArrayFamily.shapes`."""
        return dict.fromkeys(("P", "Q"), (width + 1, width + 1))

    def dense(self, dim: int) -> tuple[Float, Float]:
        """See `Family.dense`."""
        return self._arrays["P"], self._arrays["Q"]

    def kernel(self, dim: int) -> Kernel:
        """See `Family.kernel`; a subclass may have a `dense` of its own."""
        return Matrices(*self.dense(dim))

    @classmethod
    def kernel_of(cls, arrays: Mapping[str, Any], xp: Any) -> Kernel:
        """See `Family.kernel_of`."""
        return Matrices(arrays["P"], arrays["Q"])

    def natural_sizes(self, dim: int, scale: float, feature: float, label: float) -> dict[str, NDArray[np.float64]]:
        """See `Family.natural_sizes`."""
        further = self._arrays["P"].shape[3] - dim - 1
        return natural([feature] * dim + [1.0] * further + [label])

    @classmethod
    def embed(cls, other: Family, dim: int, heads: int) -> Self:
        """See `Family.embed`: dense matrices; further heads do nothing."""
        P, Q = other.dense(dim)
        return cls(with_more_heads(P, heads, 0.0), with_more_heads(Q, heads, 0.1))


class Diagonal(ArrayFamily):
    """Base class of Diag and GD++: a layer is four omegas, T = I + (omega by blocks) o G.

    Args:
        p: The diagonals of P, [L, H, 2], x first.
        q: Those of Q, [L, H, 2], or [L, H] for GD++.
        omega: Instead of both, the sums over heads of p q', [L, 2, 2], or [L, 2] for GD++.

    Raises:
        InputError: The shapes do not fit, or a number is not finite.
    """

    isotropic = True
    strong = ("p", "omega")
    _from: ClassVar[tuple[int, ...]]  # the last axis of q and omega: (2,) for x and y, () for x alone

    def __init__(
        self, p: ArrayLike | None = None, q: ArrayLike | None = None, *, omega: ArrayLike | None = None
    ) -> None:
        if omega is not None and (p is not None or q is not None):
            refuse("give p and q or omega, not both", "both", "Leave out omega, or p and q.")
        if omega is not None:
            self._arrays = {"omega": array("omega", omega, ("L", 2, *self._from))}
            integer("the number of layers of omega", self.layers, 1, MOST_LAYERS)
        elif p is None or q is None:
            refuse("give both p and q, or omega", "neither or one", "Pass both p and q, or omega alone.")
        else:
            self._keep(p=p, q=q)

    @property
    def omega(self) -> Float:
        """[L, 2, 2]: row to, column from, x first: [[xx, xy], [yx, yy]]; the second column of GD++ is zero."""
        return read_only(self.kernel_of(self._arrays, np).omega)

    @property
    def editable(self) -> tuple[str, ...]:
        """See `Family.editable`: the omegas too."""
        return (*self._arrays, "omega", *OMEGAS)

    @classmethod
    def of_omega(cls, omega: Float) -> Self:
        """Return the parameters that have these omegas.

        Args:
            omega: The omegas, [L, 2, 2]; the second column of those of GD++ is zero.

        Returns:
            The parameters.
        """
        return cls(omega=omega if cls._from else omega[:, :, 0])

    def edit(self, layer: int, **parameters: ArrayLike) -> Family:
        """See `Family.edit`. Also `omega` or some of its entries, which may need another head, or Diag."""
        if not parameters or not parameters.keys() <= {"omega", *OMEGAS}:
            return super().edit(layer, **parameters)
        values = {name: real(name, value) for name, value in parameters.items()}
        wide = [value.dtype for value in values.values() if value.ndim]  # numbers take the precision of the model
        omega = np.array(self.omega[layer], np.result_type(self.dtype, *wide), subok=False)
        if "omega" in values:
            value = values.pop("omega")
            here = omega if self._from or value.ndim == 2 else omega[:, 0]
            here[...] = value if value.ndim == 0 and np.isfinite(value) else array("omega", value, here.shape)
        for name, value in values.items():
            omega[OMEGAS[name]] = array(name, value, ())
        return self._with_omega(layer, omega)

    def _with_omega(self, layer: int, omega: Float) -> Family:
        """The family with these omegas in one layer, and the same heads if they can hold them."""
        if not self._from and omega[:, 1].any():
            return self.to_diag()._with_omega(layer, omega)
        if "omega" in self._arrays:
            return super().edit(layer, omega=omega if self._from else omega[:, 0])
        if self.heads == 1 and not _rank_one(omega):
            return Diag(omega=self.omega)._with_omega(layer, omega)
        p, q = _split(omega, self.heads)
        return super().edit(layer, p=p, q=q if self._from else q[:, 0])

    def to_diag(self) -> Diag:
        """See `Family.to_diag`."""
        if "omega" in self._arrays:
            return Diag(omega=self.omega)
        p, q = self._arrays.values()
        return Diag(p, np.stack([q, np.zeros_like(q)], axis=-1))

    def dense(self, dim: int) -> tuple[Float, Float]:
        """See `Family.dense`."""
        *p, q = self.to_diag().arrays.values()
        diagonals = p[0] if p else np.broadcast_to(np.eye(2, dtype=q.dtype), q.shape)  # one head writes x, and one y
        return _spread(diagonals, dim), _spread(q, dim)

    def natural_sizes(self, dim: int, scale: float, feature: float, label: float) -> dict[str, NDArray[np.float64]]:
        """See `Family.natural_sizes`: omegas have the size of p and q together."""
        column = np.array([1 / feature**2, 1 / label**2])
        column = column if self._from else column[0]
        return {name: value for name, value in (("q", column), ("omega", column / scale)) if name in self._arrays}

    @classmethod
    def shapes(cls, width: int) -> dict[str, tuple[int, ...]]:
        """See `ArrayFamily.shapes`."""
        return {"p": (2,), "q": cls._from}

    @classmethod
    def kernel_of(cls, arrays: Mapping[str, Any], xp: Any) -> Omegas:
        """See `Family.kernel_of`: the omegas; without a flow out of y, their second column is zero."""
        j, omega = "j" * len(cls._from), arrays.get("omega")
        omega = xp.einsum(f"lhi,lh{j}->li{j}", arrays["p"], arrays["q"]) if omega is None else omega
        return Omegas(omega if j else xp.stack([omega, xp.zeros_like(omega)], -1))

    def pullback(self, gradient: Gradient) -> dict[str, NDArray[np.float64]]:
        """See `Family.pullback`."""
        j, (slope,) = "j" * len(self._from), self._checked(gradient, (self.layers, 2, 2))
        slope = slope if j else slope[:, :, 0]
        if "omega" in self._arrays:
            return {"omega": slope}
        p, q = self._arrays.values()
        return {"p": np.einsum(f"li{j},lh{j}->lhi", slope, q), "q": np.einsum(f"li{j},lhi->lh{j}", slope, p)}


class Diag(Diagonal):
    """Diagonal matrices P_k = diag(p_x I, p_y) and Q_k = diag(q_x I, q_y), given by p and q or by their products.

    One head reaches only omegas of rank one, two heads all of them; the dense form of omegas has two heads.

    Args:
        p: The diagonals of P, [L, H, 2], x first.
        q: The diagonals of Q, [L, H, 2], x first.
        omega: Instead of both, the sums over heads of p q', [L, 2, 2].

    Raises:
        InputError: The shapes do not fit, or a number is not finite.
    """

    name = "diag"
    useful_heads = 2
    _from = (2,)

    def to_diag(self) -> Diag:
        """See `Family.to_diag`."""
        return self

    @classmethod
    def embed(cls, other: Family, dim: int, heads: int) -> Self:
        """See `Family.embed`: GD++ with q_y = 0; further heads do nothing."""
        if not isinstance(other, GDpp):
            refuse("Diag contains GD++ models", other, "Pass GDpp parameters.")
        column = other.omega[:, :, 0]
        size = np.sqrt(np.abs(column).max(1) + np.finfo(column.dtype).tiny)
        p, q = column / size[:, None], np.stack([size, np.zeros_like(size)], -1)
        return cls(with_more_heads(p[:, None], heads, 0.0), with_more_heads(q[:, None], heads, 0.1))


class GDpp(Diagonal):
    """Diag models without any flow out of y: q_y = 0.

    Args:
        p: The diagonals of P, [L, H, 2], x first.
        q: The entry q_x of Q, [L, H].
        omega: Instead of both, (omega_xx, omega_yx) of every layer, [L, 2].

    Raises:
        InputError: The shapes do not fit, or a number is not finite.
    """

    name = "gdpp"
    useful_heads = 1
    _from = ()


Diag.contains, Full.contains = GDpp, Diag


def with_more_heads(values: Float, heads: int, fill: float) -> Float:
    """Return parameters with further heads.

    Args:
        values: The parameters, [L, H, ...].
        heads: How many heads the result has.
        fill: The value of all parameters of the further heads.

    Returns:
        The parameters, [L, heads, ...].

    Raises:
        InputError: There are more heads already.
    """
    if heads < values.shape[1]:
        refuse(f"the embedded model needs {values.shape[1]} heads", heads, f"Pass heads={values.shape[1]}.")
    extra = np.full((values.shape[0], heads - values.shape[1], *values.shape[2:]), fill, values.dtype)
    return np.concatenate([values, extra], axis=1)


def _spread(values: Float, dim: int) -> Float:
    """[L, H, 2] as diagonal matrices [L, H, D, D], the first number d times."""
    diagonal = np.repeat(values, [dim, 1], axis=-1)
    return read_only(np.asarray(diagonal)[..., None] * np.eye(dim + 1, dtype=values.dtype))


def _rank_one(omega: Float) -> bool:
    """Whether the determinant is 0 but for rounding."""
    slack = 8 * np.finfo(omega.dtype).eps
    return bool(abs(np.linalg.det(omega.astype(np.float64))) <= slack * np.abs(omega).max() ** 2)


def _split(omega: Float, heads: int) -> tuple[Float, Float]:
    """Return p and q of one layer, [H, 2] each, with sum p q' = omega."""
    p, q = np.zeros((heads, 2), omega.dtype), np.ones((heads, 2), omega.dtype)
    if not _rank_one(omega):
        p[:2], q[:2] = np.eye(2), omega
    elif omega.any():
        row, column = np.unravel_index(np.abs(omega).argmax(), (2, 2))
        p[0], q[0] = omega[:, column] / omega[row, column], omega[row]
    return p, q
