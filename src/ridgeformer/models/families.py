"""Parameter families of linear transformers: Full matrices, Diag ones, and GD++.

A family holds the numbers that are trained and stored, and says what they mean: dense P and Q in the paper's
convention, and the parameters an engine takes. Layers come first in every array.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import refuse
from ridgeformer.validation import array, integer, precision, real
from ridgeformer.values import ReadOnlyDict, Value, read_only

__all__ = ["FAMILIES", "Diag", "Family", "Full", "GDpp", "check_registered"]

Float = NDArray[np.floating[Any]]
EDIT = "Make a new model with other parameters: model.edit(layer, name=values)."
FAMILIES: dict[str, type[Family]] = {}  # by name; a subclass of Family enters itself


def check_registered(family: type[Family]) -> str:
    """Return the name of a family, under which its models are stored; refuse a class that the name does not lead to.

    Args:
        family: The class.

    Returns:
        Its name.

    Raises:
        InputError: The class has no name of its own, so that its models would be read back as those of another family.
    """
    known = FAMILIES.get(family.name)
    if known is not family:
        refuse(
            "a family that is stored must have a name of its own",
            f"{family.__qualname__} with the name {family.name!r}, which is {known and known.__qualname__}",
            'Write name = "my_family" in its class.',
        )
    return family.name


def _check_name(family: type[Family]) -> None:
    """Refuse a name that is no name, or that another class has; the same class may be defined again."""
    name, module = family.name, family.__module__
    if not (isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_-]{0,30}", name)):
        refuse(
            "the name of a family must be a lower-case letter and up to 30 more letters, digits, _ or -",
            repr(name)[:80],
            'Write name = "my_family", for example.',
        )
    known = FAMILIES.get(name)
    if known is not None and (known.__module__, known.__qualname__) != (module, family.__qualname__):
        refuse(
            "the name of a family must be its own",
            f"{name!r}, which is {known.__module__}.{known.__qualname__}",
            "Choose another name.",
        )


class Family(Value, ABC):
    """Parameters of every layer and head.

    A family cannot change once it is made: arrays that it holds become read-only copies.
    """

    name: ClassVar[str]
    contains: ClassVar[type[Family] | None] = None  # a simpler family, whose every model `embed` turns into one of this
    useful_heads: ClassVar[int | None] = None  # further heads add no expressive power; None: every head adds some
    _remedy = EDIT

    def __init_subclass__(cls, **keywords: Any) -> None:
        """A subclass with a name can be trained, saved and loaded by that name."""
        super().__init_subclass__(**keywords)
        if "name" in cls.__dict__:
            _check_name(cls)
            FAMILIES[cls.name] = cls

    @classmethod
    def embed(cls, other: Family, dim: int, heads: int) -> Self:
        """Make a model of this family from one of the family that it `contains`, with the same layers and function.

        Args:
            other: The parameters of the simpler family.
            dim: The dimension d of the features.
            heads: How many heads the result has.

        Returns:
            The parameters of this family.

        Raises:
            InputError: This family contains no other, or the heads are too few.
        """
        refuse(f"{cls.name} contains no other family", other, "Train without growing from one.")

    @property
    @abstractmethod
    def arrays(self) -> dict[str, Float]:
        """The parameters by name, layers first."""

    @abstractmethod
    def dense(self, dim: int) -> tuple[Float, Float]:
        """Return P and Q in the paper's convention.

        Args:
            dim: The dimension d of the features.

        Returns:
            P and Q, each [L, H, D, D].
        """

    @abstractmethod
    def kernel(self) -> tuple[Float, ...]:
        """What an engine takes: (omega,) or (P, Q)."""

    @abstractmethod
    def pullback(self, gradient: tuple[NDArray[np.float64], ...] | None) -> dict[str, NDArray[np.float64]]:
        """Apply the chain rule: from a gradient with respect to `kernel()` to that with respect to `arrays`.

        Args:
            gradient: The gradient that an engine returned, of the shapes of `kernel()`.

        Returns:
            The gradient by the names of `arrays`.

        Raises:
            InputError: There is none, or its shapes differ.
        """

    def _checked(self, gradient: tuple[NDArray[np.float64], ...] | None) -> tuple[NDArray[np.float64], ...]:
        if gradient is None:
            refuse("pullback needs a gradient", "None", "Evaluate with gradient=True.")
        wanted = [value.shape for value in self.kernel()]
        given = [np.shape(piece) for piece in gradient]
        if given != wanted:
            refuse(
                f"a gradient must have the shapes {wanted} of kernel()", given, "Pass evaluate(...).gradient as it is."
            )
        return gradient

    @classmethod
    @abstractmethod
    def random(cls, dim: int, layers: int, heads: int, scale: float, rng: np.random.Generator) -> Self:
        """Make random parameters: independent normal numbers.

        Args:
            dim: The dimension d of the features.
            layers: How many layers.
            heads: How many heads per layer.
            scale: The standard deviation of the numbers.
            rng: The random numbers.

        Returns:
            The parameters.
        """

    @abstractmethod
    def identity_layer(self) -> dict[str, Float]:
        """One layer that changes nothing, but whose gradient need not vanish."""

    @property
    def layers(self) -> int:
        """L."""
        return len(next(iter(self.arrays.values())))

    @property
    @abstractmethod
    def heads(self) -> int:
        """H, as the dense form has them."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return next(iter(self.arrays.values())).dtype

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in self.arrays.items())
        return f"{type(self).__name__}({shapes})"

    def astype(self, dtype: type) -> Self:
        """Return the same parameters in another precision.

        Args:
            dtype: float32 or float64.

        Returns:
            The parameters.
        """
        dtype = precision(dtype)
        return type(self)(**{name: value.astype(dtype) for name, value in self.arrays.items()})

    def edit(self, layer: int, **parameters: ArrayLike) -> Family:
        """Return the same parameters but for those of one layer, which are replaced.

        Args:
            layer: The layer, from 0 to L - 1; negative numbers count from the end.
            **parameters: New values by name, each of the shape that one layer has in `arrays`, or a number for all of
                its entries.

        Returns:
            The new parameters.

        Raises:
            InputError: There is no such layer or name, or the values have another shape or are not finite.
        """
        layer = _check_layer(layer, self.layers)
        arrays = {name: np.array(value, subok=False) for name, value in self.arrays.items()}
        if not parameters or not parameters.keys() <= arrays.keys():
            given = ", ".join(sorted(parameters.keys() - arrays.keys())) or "no name"
            refuse(f"the parameters of a {self.name} layer are {', '.join(arrays)}", given, "Choose among these.")
        for name, value in parameters.items():
            new, old = real(name, value), arrays[name]
            if new.ndim == 0:
                new = np.full(old.shape[1:], new, old.dtype)
            arrays[name] = old.astype(np.result_type(old, new))  # promoted, never cut
            arrays[name][layer] = array(name, new, old.shape[1:])
        return type(self)(**arrays)

    def scaled(self, by: float) -> Self:
        """Return the family whose attention P G Q is `by` times as strong in every layer and head.

        Args:
            by: The factor.

        Returns:
            The new parameters.

        Raises:
            InputError: The family does not say how.
        """
        refuse(f"a {self.name} model cannot be scaled", by, "Write a method scaled(by) in its class.")

    def select(self, layers: slice) -> Self:
        """Return the parameters of some layers only.

        Args:
            layers: Which layers.

        Returns:
            Their parameters.
        """
        return type(self)(**{name: value[layers] for name, value in self.arrays.items()})

    def with_identity(self, at: int) -> Self:
        """Insert one layer that leaves the function as it was.

        Args:
            at: The layer before which it is inserted, or L for the end.

        Returns:
            The parameters of L + 1 layers.

        Raises:
            InputError: There is no such position.
        """
        at = integer("the position of a new layer", at, 0, self.layers)
        new = self.identity_layer()
        return type(self)(**{name: np.insert(value, at, new[name], axis=0) for name, value in self.arrays.items()})


class Full(Family):
    """Unrestricted P and Q.

    Args:
        P: The matrices P, [L, H, D, D].
        Q: The matrices Q, [L, H, D, D].

    Raises:
        InputError: The shapes do not fit, or a number is not finite.
    """

    name = "full"

    def __init__(self, P: ArrayLike, Q: ArrayLike) -> None:
        self._P = array("P", P, ("L", "H", "D", "D"))
        _check_layers("P", self._P)
        if self._P.shape[2] != self._P.shape[3] or self._P.shape[2] < 2:
            refuse("P must have shape (L, H, d+1, d+1)", f"shape {self._P.shape}", "Make its last two axes equal.")
        given = real("Q", Q).shape
        if given != self._P.shape:
            refuse("P and Q must have the same shape", f"P {self._P.shape}, Q {given}", "Give both (L, H, d+1, d+1).")
        self._P, self._Q = _promoted(self._P, array("Q", Q, self._P.shape))

    @property
    def arrays(self) -> dict[str, Float]:
        """P and Q."""
        return ReadOnlyDict(P=self._P, Q=self._Q)

    @property
    def heads(self) -> int:
        """H."""
        return int(self._P.shape[1])

    @property
    def dim(self) -> int:
        """The d these matrices are for."""
        return int(self._P.shape[2]) - 1

    def dense(self, dim: int) -> tuple[Float, Float]:
        """See `Family.dense`."""
        return self._P, self._Q

    def kernel(self) -> tuple[Float, ...]:
        """P and Q themselves."""
        return self._P, self._Q

    def scaled(self, by: float) -> Self:
        """See `Family.scaled`."""
        return type(self)(by * self._P, self._Q)

    def pullback(self, gradient: tuple[NDArray[np.float64], ...] | None) -> dict[str, NDArray[np.float64]]:
        """See `Family.pullback`."""
        P, Q = self._checked(gradient)
        return {"P": P, "Q": Q}

    @classmethod
    def random(cls, dim: int, layers: int, heads: int, scale: float, rng: np.random.Generator) -> Self:
        """See `Family.random`."""
        shape = (layers, heads, dim + 1, dim + 1)
        return cls(scale * rng.standard_normal(shape), scale * rng.standard_normal(shape))

    @classmethod
    def embed(cls, other: Family, dim: int, heads: int) -> Self:
        """See `Family.embed`: dense matrices; further heads do nothing."""
        P, Q = other.dense(dim)
        return cls(_more_heads(P, heads, 0.0), _more_heads(Q, heads, 0.1))

    def identity_layer(self) -> dict[str, Float]:
        """See `Family.identity_layer`."""
        D = self.dim + 1
        return {"P": np.zeros((self.heads, D, D)), "Q": np.broadcast_to(np.eye(D), (self.heads, D, D))}


class _Diagonal(Family):
    """What Diag and GD++ share: a layer is four omegas, T = I + (omega by blocks) o G."""

    _arrays: dict[str, Float]

    @property
    def arrays(self) -> dict[str, Float]:
        """Return p and q, or omega."""
        return self._arrays

    @property
    def heads(self) -> int:
        """H; two for omegas."""
        return self._arrays["p"].shape[1] if "p" in self._arrays else 2

    @property
    @abstractmethod
    def omega(self) -> Float:
        """[L, 2, 2]: row to, column from, x first: [[xx, xy], [yx, yy]]."""

    def kernel(self) -> tuple[Float, ...]:
        """The omegas."""
        return (self.omega,)

    def scaled(self, by: float) -> Self:
        """See `Family.scaled`."""
        return type(self)(**{name: value if name == "q" else by * value for name, value in self._arrays.items()})


class Diag(_Diagonal):
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

    def __init__(
        self, p: ArrayLike | None = None, q: ArrayLike | None = None, *, omega: ArrayLike | None = None
    ) -> None:
        self._arrays = _factors_or_omega(p, q, omega, ("L", "H", 2), (2, 2))

    @property
    def omega(self) -> Float:
        """[L, 2, 2]."""
        if "omega" in self._arrays:
            return self._arrays["omega"]
        return read_only(np.einsum("lhi,lhj->lij", self._arrays["p"], self._arrays["q"]), EDIT)

    def dense(self, dim: int) -> tuple[Float, Float]:
        """See `Family.dense`."""
        if "p" in self._arrays:
            return _spread(self._arrays["p"], dim), _spread(self._arrays["q"], dim)
        omega = self._arrays["omega"]
        return _spread(np.broadcast_to(np.eye(2, dtype=omega.dtype), omega.shape), dim), _spread(omega, dim)

    def pullback(self, gradient: tuple[NDArray[np.float64], ...] | None) -> dict[str, NDArray[np.float64]]:
        """See `Family.pullback`."""
        (slope,) = self._checked(gradient)
        if "omega" in self._arrays:
            return {"omega": slope}
        return {
            "p": np.einsum("lij,lhj->lhi", slope, self._arrays["q"]),
            "q": np.einsum("lij,lhi->lhj", slope, self._arrays["p"]),
        }

    @classmethod
    def random(cls, dim: int, layers: int, heads: int, scale: float, rng: np.random.Generator) -> Self:
        """See `Family.random`."""
        shape = (layers, heads, 2)
        return cls(scale * rng.standard_normal(shape), scale * rng.standard_normal(shape))

    @classmethod
    def embed(cls, other: Family, dim: int, heads: int) -> Self:
        """See `Family.embed`: GD++ with q_y = 0; further heads do nothing."""
        if not isinstance(other, GDpp):
            refuse("Diag contains GD++ models", other, "Pass GDpp parameters.")
        column = other.omega[:, :, 0]
        size = np.sqrt(np.abs(column).max(1) + np.finfo(column.dtype).tiny)
        p, q = column / size[:, None], np.stack([size, np.zeros_like(size)], -1)
        return cls(_more_heads(p[:, None], heads, 0.0), _more_heads(q[:, None], heads, 0.1))

    def identity_layer(self) -> dict[str, Float]:
        """See `Family.identity_layer`."""
        if "omega" in self._arrays:
            return {"omega": np.zeros((2, 2))}
        return {"p": np.zeros((self.heads, 2)), "q": np.ones((self.heads, 2))}


class GDpp(_Diagonal):
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

    def __init__(
        self, p: ArrayLike | None = None, q: ArrayLike | None = None, *, omega: ArrayLike | None = None
    ) -> None:
        self._arrays = _factors_or_omega(p, q, omega, ("L", "H"), (2,))

    @property
    def omega(self) -> Float:
        """[L, 2, 2] with a second column of zeros."""
        column = self._arrays.get("omega")
        if column is None:
            column = np.einsum("lhi,lh->li", self._arrays["p"], self._arrays["q"])
        return read_only(np.stack([column, np.zeros_like(column)], axis=-1), EDIT)

    def to_diag(self) -> Diag:
        """The same model as Diag."""
        if "omega" in self._arrays:
            return Diag(omega=self.omega)
        q = self._arrays["q"]
        return Diag(self._arrays["p"], np.stack([q, np.zeros_like(q)], axis=-1))

    def dense(self, dim: int) -> tuple[Float, Float]:
        """See `Family.dense`."""
        return self.to_diag().dense(dim)

    def pullback(self, gradient: tuple[NDArray[np.float64], ...] | None) -> dict[str, NDArray[np.float64]]:
        """See `Family.pullback`."""
        column = self._checked(gradient)[0][:, :, 0]
        if "omega" in self._arrays:
            return {"omega": column}
        return {
            "p": np.einsum("li,lh->lhi", column, self._arrays["q"]),
            "q": np.einsum("li,lhi->lh", column, self._arrays["p"]),
        }

    @classmethod
    def random(cls, dim: int, layers: int, heads: int, scale: float, rng: np.random.Generator) -> Self:
        """See `Family.random`."""
        return cls(scale * rng.standard_normal((layers, heads, 2)), scale * rng.standard_normal((layers, heads)))

    def identity_layer(self) -> dict[str, Float]:
        """See `Family.identity_layer`."""
        if "omega" in self._arrays:
            return {"omega": np.zeros(2)}
        return {"p": np.zeros((self.heads, 2)), "q": np.ones(self.heads)}


Diag.contains, Full.contains = GDpp, Diag


def _more_heads(values: Float, heads: int, fill: float) -> Float:
    """[L, H, ...] with further heads of constant parameters."""
    if heads < values.shape[1]:
        refuse(f"the embedded model needs {values.shape[1]} heads", heads, "Pass at least as many.")
    extra = np.full((values.shape[0], heads - values.shape[1], *values.shape[2:]), fill, values.dtype)
    return np.concatenate([values, extra], axis=1)


def _factors_or_omega(
    p: ArrayLike | None,
    q: ArrayLike | None,
    omega: ArrayLike | None,
    q_shape: tuple[int | str, ...],
    omega_shape: tuple[int, ...],
) -> dict[str, Float]:
    if omega is not None:
        if p is not None or q is not None:
            refuse("give p and q or omega, not both", "both", "Drop one of them.")
        found = array("omega", omega, ("L", *omega_shape))
        _check_layers("omega", found)
        return {"omega": found}
    if p is None or q is None:
        refuse("give both p and q, or omega", "neither or one", "Pass the missing array.")
    p_ = array("p", p, ("L", "H", 2))
    _check_layers("p", p_)
    wanted = (*p_.shape[:2], *q_shape[2:])
    shape = real("q", q).shape
    if shape != wanted:
        refuse(
            f"q must match p {p_.shape} with shape {wanted}",
            f"shape {shape}",
            "Give both the same layers and heads.",
        )
    p_, q_ = _promoted(p_, array("q", q, wanted))
    return {"p": p_, "q": q_}


def _promoted(first: Float, second: Float) -> tuple[Float, Float]:
    """Both in the wider of their two precisions."""
    dtype = np.result_type(first, second)
    return first.astype(dtype, copy=False), second.astype(dtype, copy=False)


def _check_layer(layer: int, layers: int) -> int:
    """A layer's number, counted from the front."""
    layer = integer("layer", layer, -layers, layers - 1)
    return layer % layers


def _check_layers(name: str, value: Float) -> None:
    if value.shape[0] > 1 << 16:
        refuse(f"{name} must have at most 65536 layers", value.shape[0], "Use fewer layers.")


def _spread(values: Float, dim: int) -> Float:
    """[L, H, 2] as diagonal matrices [L, H, D, D], the first number d times."""
    diagonal = np.repeat(values, [dim, 1], axis=-1)
    return read_only(np.asarray(diagonal)[..., None] * np.eye(dim + 1, dtype=values.dtype), EDIT)
