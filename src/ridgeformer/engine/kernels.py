"""Kernels: the parameters of all layers in the three forms that engines compute with. Layers come first in every array.

`Omegas` are those of Diag and GD++, `Matrices` the dense P and Q of any model, and `Mixings` those of channels. The
arrays may be of NumPy, PyTorch or JAX; `xp` is the module that computes with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse, shown
from ridgeformer.validation import integer, unmasked

Float = NDArray[np.floating[Any]]
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def plain_array(name: str, value: object, kinds: str, rule: str) -> NDArray[Any]:
    """Return an array whose type is `np.ndarray` itself, read-only or not, with numbers of one of these kinds.

    Args:
        name: What it is, for the error message.
        value: What was given.
        kinds: The kinds of dtype that are allowed, as NumPy's `dtype.kind` names them.
        rule: What the array must hold, for the error message.

    Returns:
        The array.

    Raises:
        InputError: It is no array, has masked entries, or another dtype.
    """
    if not isinstance(value, np.ndarray):
        refuse(
            f"{name} must be a NumPy array", shown(value), f"Convert it, for example with np.asarray({name}, float)."
        )
    if type(value) is not np.ndarray:
        value = np.asarray(unmasked(name, value))
    if value.dtype.kind not in kinds:
        refuse(
            f"{name} must hold {rule}", f"dtype {value.dtype}", f"Convert it, for example with {name}.astype(float)."
        )
    return value


def floats(name: str, value: object) -> Float:
    """Return a float32 or float64 array, in this machine's byte order.

    Args:
        name: What it is, for the error message.
        value: What was given.

    Returns:
        The array.

    Raises:
        InputError: It is not such an array.
    """
    if type(value) is np.ndarray and (value.dtype is SINGLE or value.dtype is DOUBLE):  # the common case
        return value
    values = plain_array(name, value, "f", "float32 or float64 numbers")
    if values.dtype.itemsize not in (4, 8):
        refuse(f"{name} must hold float32 or float64 numbers", f"dtype {values.dtype}", f"Use {name}.astype(float).")
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def cast(value: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the same numbers in another dtype; those too large for it become infinite.

    Args:
        value: An array.
        dtype: The dtype.

    Returns:
        The array, copied only if its dtype is another.
    """
    if value.dtype is dtype or value.dtype == dtype:
        return value
    with np.errstate(all="ignore"):
        return value.astype(dtype)


def pieces(vector: NDArray[Any], shapes: Iterable[tuple[int, ...]]) -> Iterator[NDArray[Any]]:
    """Cut a vector into arrays that follow one another in it.

    Args:
        vector: The numbers of all arrays.
        shapes: The shape of each array.

    Yields:
        The arrays, which are views of the vector.
    """
    start = 0
    for shape in shapes:
        end = start + math.prod(shape)
        yield vector[start:end].reshape(shape)
        start = end


def weighed(error: Any, metric: Any) -> Any:
    """Return metric error, in any array library.

    Args:
        error: Vectors, [..., c].
        metric: Matrices [c, c] or [..., c, c]; None for the identity.

    Returns:
        Vectors, [..., c].
    """
    return error if metric is None else (metric @ error[..., None])[..., 0]


def half_square(error: Any, metric: Any) -> Any:
    """Return 1/2 error' metric error, in any array library.

    Args:
        error: Vectors, [..., c].
        metric: Matrices [c, c] or [..., c, c]; None for the identity.

    Returns:
        Numbers, [...].
    """
    return 0.5 * (error * weighed(error, metric)).sum(-1)


MOST_LAYERS, MOST_HEADS = 1 << 16, 1 << 12
REMEDY = "Pass what family.kernel() gives."


class Omegas(NamedTuple):
    """Kernel of models that scale the blocks of the Gram matrix: T = I + (omega by blocks) o G.

    Attributes:
        omega: [L, 2, 2]: the row says where the flow goes to, the column where it comes from, x first.
    """

    omega: Any

    def attention(self, gram: Any, xp: Any = np) -> Any:
        """Return sum_k P_k G Q_k of one layer: a token e becomes e + (this) e.

        Args:
            gram: Gram matrices of the context's tokens, [..., D, D].
            xp: The module that computes: `numpy`, `torch` or `jax.numpy`.

        Returns:
            Matrices [..., D, D].
        """
        side = xp.asarray(np.arange(gram.shape[-1]) // (gram.shape[-1] - 1))
        return self.omega[side[:, None], side] * gram

    def adjoint(self, gram: Any, slope: Any) -> tuple[Omegas, Any]:
        """Apply the chain rule to `attention` of one layer, in NumPy.

        Args:
            gram: Gram matrices, [B, D, D].
            slope: The gradient with respect to what `attention` returned, [B, D, D].

        Returns:
            The gradient with respect to the kernel, summed over the batch, and that with respect to `gram`.
        """
        product = (slope * gram).sum(0)
        blocks = [[product[:-1, :-1].sum(), product[:-1, -1].sum()], [product[-1, :-1].sum(), product[-1, -1]]]
        return Omegas(np.array(blocks)), self.attention(slope)

    def as_omegas(self) -> Omegas | None:
        """Return the omegas of the same model, in NumPy; None where there are none."""
        return self

    def stretched(self, by: Any) -> Omegas:
        """Return the kernel whose attention is `by` times as strong in every layer.

        Args:
            by: The factor.

        Returns:
            The kernel.
        """
        return Omegas(by * self.omega)

    def check(self, dim: int, extra: int, length: int | None) -> None:
        """Refuse arrays whose shapes do not fit tokens.

        Args:
            dim: How many coordinates a token has beside y.
            extra: How many of these are beside x.
            length: The dimension of x; None for any that fits.

        Raises:
            InputError: They do not fit.
        """
        if self.omega.ndim != 3 or self.omega.shape[1:] != (2, 2):
            refuse("omega must have shape (L, 2, 2)", f"shape {self.omega.shape}", REMEDY)
        if extra:
            refuse("omegas are for tokens (x, y)", f"{extra} further coordinates", "Use a Full model.")


class Matrices(NamedTuple):
    """Kernel of any model: its dense matrices.

    Attributes:
        P: [L, H, D, D].
        Q: [L, H, D, D].
    """

    P: Any
    Q: Any

    def attention(self, gram: Any, xp: Any = np) -> Any:
        """See `Omegas.attention`."""
        return sum(P @ gram @ Q for P, Q in zip(self.P, self.Q, strict=True))

    def adjoint(self, gram: Any, slope: Any) -> tuple[Matrices, Any]:
        """See `Omegas.adjoint`."""
        dP, dQ, direct = np.zeros(self.P.shape), np.zeros(self.Q.shape), np.zeros_like(gram)
        for head, (P, Q) in enumerate(zip(self.P, self.Q, strict=True)):
            dP[head] = (slope @ (gram @ Q).transpose(0, 2, 1)).sum(0)
            dQ[head] = ((P @ gram).transpose(0, 2, 1) @ slope).sum(0)
            direct += P.T @ slope @ Q.T
        return Matrices(dP, dQ), direct

    def as_omegas(self) -> Omegas | None:
        """See `Omegas.as_omegas`: matrices may all have the form of Diag; heads whose P or Q is 0 do not matter."""
        ends, size = [0, -1], self.P.shape[-1] - 1
        works = np.abs(self.P).max((2, 3)) * np.abs(self.Q).max((2, 3)) > 0
        pairs = [np.where(works[..., None], matrices[..., ends, ends], 0) for matrices in self]
        for matrices, pair in zip(self, pairs, strict=True):
            diagonal = np.repeat(pair, [size, 1], axis=-1)[..., None] * np.eye(size + 1)
            if not np.array_equal(np.where(works[..., None, None], matrices, 0), diagonal):
                return None
        return Omegas(np.einsum("lhi,lhj->lij", *pairs))

    def stretched(self, by: Any) -> Matrices:
        """See `Omegas.stretched`."""
        return Matrices(by * self.P, self.Q)

    def check(self, dim: int, extra: int, length: int | None) -> None:
        """See `Omegas.check`."""
        D, P, Q = dim + 1, self.P.shape, self.Q.shape
        if len(P) != 4 or P[2:] != (D, D):
            remedy = "Use parameters of the same dimension."
            refuse(f"P must have shape (L, H, {D}, {D}) for dimension {dim}", f"shape {P}", remedy)
        if Q != P:
            refuse("P and Q must have the same shape", f"P {P}, Q {Q}", "Give both (L, H, d+1, d+1).")


class Mixings(NamedTuple):
    """Kernel of channels: tokens hold v vectors of R^d and s scalars, which P and Q mix alike in every direction.

    x is the first vector and y the last scalar. A token's coordinates are x, the scalars beside y, the vectors beside
    x, and y.

    Attributes:
        Pv: How P mixes the vectors, [L, H, v, v].
        Qv: How Q mixes the vectors, [L, H, v, v].
        Ps: How P mixes the scalars, [L, H, s, s].
        Qs: How Q mixes the scalars, [L, H, s, s].
    """

    Pv: Any
    Qv: Any
    Ps: Any
    Qs: Any

    @property
    def vectors(self) -> int:
        """The number of vectors, v."""
        return int(self.Pv.shape[-1])

    @property
    def scalars(self) -> int:
        """The number of scalars, s."""
        return int(self.Ps.shape[-1])

    def dense(self, dim: int, xp: Any = np) -> Matrices:
        """Return the matrices that these stand for.

        Args:
            dim: The dimension d of the vectors.
            xp: The module that computes.

        Returns:
            P and Q, each [..., D, D] with D = v d + s.

        >>> P, Q = Mixings(*(np.full((1, 1), value) for value in (1.0, 2.0, 3.0, 4.0))).dense(dim=2)
        >>> P.diagonal(), Q.diagonal()
        (array([1., 1., 3.]), array([2., 2., 4.]))
        """
        v, s = self.vectors, self.scalars
        at, single = channel_places(v, s, dim)
        entry = np.full((v * dim + s, v * dim + s), v * v + s * s)  # the place of a zero, unless it is another's
        entry[at[:, None, :], at[None, :, :]] = np.arange(v * v).reshape(v, v, 1)
        entry[single[:, None], single[None, :]] = v * v + np.arange(s * s).reshape(s, s)
        entry = xp.asarray(entry)

        def whole(vectors: Any, scalars: Any) -> Any:
            flat = [block.reshape((*block.shape[:-2], block.shape[-1] ** 2)) for block in (vectors, scalars)]
            return xp.concatenate([*flat, xp.zeros_like(flat[0][..., :1])], -1)[..., entry]

        return Matrices(whole(self.Pv, self.Ps), whole(self.Qv, self.Qs))

    def gather(self, gradient: Matrices, dim: int) -> Mixings:
        """Return the gradient with respect to this kernel from that with respect to `dense(dim)`: its adjoint.

        Args:
            gradient: The gradient of P and Q, each [..., D, D].
            dim: The dimension d of the vectors.

        Returns:
            The gradient, in the shapes of this kernel.
        """
        at, single = channel_places(self.vectors, self.scalars, dim)
        Pv, Qv = (m[..., at[:, None, :], at[None, :, :]].sum(-1) for m in gradient)
        Ps, Qs = (m[..., single[:, None], single[None, :]] for m in gradient)
        return Mixings(Pv, Qv, Ps, Qs)

    def attention(self, gram: Any, xp: Any = np) -> Any:
        """See `Omegas.attention`."""
        return self.dense((gram.shape[-1] - self.scalars) // self.vectors, xp).attention(gram, xp)

    def as_omegas(self) -> Omegas | None:
        """See `Omegas.as_omegas`: none."""
        return None

    def stretched(self, by: Any) -> Mixings:
        """See `Omegas.stretched`."""
        return Mixings(by * self.Pv, self.Qv, by * self.Ps, self.Qs)

    def check(self, dim: int, extra: int, length: int | None) -> None:
        """See `Omegas.check`."""
        first = self.Pv.shape
        for name, value in self._asdict().items():
            shape = value.shape
            if len(shape) != 4 or shape[2] != shape[3] or shape[2] == 0 or shape[:2] != first[:2]:
                received = f"{name} of shape {shape}" + (f" and Pv of shape {first}" if name != "Pv" else "")
                rule = "Pv and Qv must have shape (L, H, v, v), and Ps and Qs shape (L, H, s, s)"
                refuse(rule, received, REMEDY)
        for P, Q, kind in ((self.Pv, self.Qv, "v"), (self.Ps, self.Qs, "s")):
            if P.shape != Q.shape:
                received = f"P{kind} {P.shape}, Q{kind} {Q.shape}"
                refuse(f"P{kind} and Q{kind} must have the same shape", received, REMEDY)
        v, s, D = self.vectors, self.scalars, dim + 1
        d, left = divmod(D - s, v)
        if d < 1 or left or (length is not None and d != length):
            expected = "v d + s" if length is None else f"{v * length + s}"
            refuse(
                f"tokens with v = {v} vectors of length d and s = {s} scalars must have {expected} coordinates",
                f"{D} of them" + ("" if length is None else f" with d = {length}"),
                "Choose a layout with (v - 1) d + s - 1 coordinates beside x and y.",
            )


Kernel = Omegas | Matrices | Mixings
KERNELS = {kind.__name__: kind for kind in (Omegas, Matrices, Mixings)}


def layer_of(kernel: Kernel, layer: int) -> Any:
    """Return one layer of a kernel.

    Args:
        kernel: The kernel.
        layer: The layer, from 0.

    Returns:
        A kernel whose arrays have no axis of layers.
    """
    return type(kernel)(*(value[layer] for value in kernel))


def check_kernel(
    kernel: object, dim: int, dtype: np.dtype[Any] | None = None, extra: int = 0, length: int | None = None
) -> Kernel:
    """Return a kernel with finite NumPy arrays for `dim` coordinates beside y.

    Args:
        kernel: Omegas, Matrices or Mixings.
        dim: How many coordinates a token has beside y.
        dtype: The dtype to convert to; None for the one that the arrays share.
        extra: How many of these coordinates are beside x; omegas have none.
        length: The dimension of x; None for any that fits.

    Returns:
        The kernel.

    Raises:
        InputError: It is none, or its arrays have the wrong type or shape, or are not finite.
    """
    if not isinstance(kernel, Kernel):
        refuse("a kernel must be Omegas(omega), Matrices(P, Q) or Mixings(Pv, Qv, Ps, Qs)", shown(kernel), REMEDY)
    names = kernel._fields
    kernel = type(kernel)(*(floats(name, value) for name, value in zip(names, kernel, strict=True)))
    if len({value.dtype for value in kernel}) > 1:
        received = ", ".join(f"{name} {value.dtype}" for name, value in zip(names, kernel, strict=True))
        listed = ", ".join(names[:-1]) + " and " + names[-1]
        refuse(f"{listed} must have the same dtype", received, "Convert all of them to float64.")
    kernel.check(dim, extra, length)
    if len(names) > 1:
        integer("the number of heads", kernel[0].shape[1], 1, MOST_HEADS)
    integer("the number of layers", kernel[0].shape[0], 1, MOST_LAYERS)
    if dtype is not None:
        kernel = type(kernel)(*(cast(value, dtype) for value in kernel))
    for name, value in zip(names, kernel, strict=True):
        if not np.isfinite(value).all():
            rule = f"{name} must be finite in {value.dtype}"
            refuse(rule, "NaN or infinity in it", "Check the steps that led to them.")
    return kernel


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
