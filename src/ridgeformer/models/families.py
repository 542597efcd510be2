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
    """The name of a family, under which its models are stored; refuses a class that the name does not lead to.

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
        """A model of the family that this one `contains`, as one of this family with the same layers and function."""
        refuse(f"{cls.name} contains no other family", other, "Train without growing from one.")

    @property
    @abstractmethod
    def arrays(self) -> dict[str, Float]:
        """The parameters by name, layers first."""

    @abstractmethod
    def dense(self, dim: int) -> tuple[Float, Float]:
        """P and Q, each [L, H, D, D]."""

    @abstractmethod
    def kernel(self) -> tuple[Float, ...]:
        """What an engine takes: (omega,) or (P, Q)."""

    @abstractmethod
    def pullback(self, gradient: tuple[NDArray[np.float64], ...] | None) -> dict[str, NDArray[np.float64]]:
        """The gradient with respect to `arrays`, from an engine's with respect to `kernel()`."""

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
        """Independent normal parameters of standard deviation `scale`."""

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
        """The same parameters in float32 or float64."""
        dtype = precision(dtype)
        return type(self)(**{name: value.astype(dtype) for name, value in self.arrays.items()})

    def edit(self, layer: int, **parameters: ArrayLike) -> Family:
        """The same parameters but for those of one layer, which are replaced.

        Args:
            layer: The layer, from 0 to L - 1; negative numbers count from the end.
            **parameters: New values by name, each of the shape that one layer has in `arrays`, or a number for all of
                its entries.

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

        Raises:
            InputError: The family does not say how.
        """
        refuse(f"a {self.name} model cannot be scaled", by, "Write a method scaled(by) in its class.")

    def select(self, layers: slice) -> Self:
        """Only these layers."""
        return type(self)(**{name: value[layers] for name, value in self.arrays.items()})

    def with_identity(self, at: int) -> Self:
        """One layer more, before layer `at` (or last, if `at` is L), that leaves the function as it was."""
        at = integer("the position of a new layer", at, 0, self.layers)
        new = self.identity_layer()
        return type(self)(**{name: np.insert(value, at, new[name], axis=0) for name, value in self.arrays.items()})


class Full(Family):
    """Unrestricted P and Q, each [L, H, D, D]."""

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
        """P and Q themselves."""
        return self._P, self._Q

    def kernel(self) -> tuple[Float, ...]:
        """P and Q themselves."""
        return self._P, self._Q

    def scaled(self, by: float) -> Self:
        """See `Family.scaled`."""
        return type(self)(by * self._P, self._Q)

    def pullback(self, gradient: tuple[NDArray[np.float64], ...] | None) -> dict[str, NDArray[np.float64]]:
        """Nothing to do."""
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
        """P and q, or omega."""
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

    def edit(self, layer: int, **parameters: ArrayLike) -> Family:
        """See `Family.edit`. Parameters p and q can also be replaced by their `omega`."""
        if "omega" in parameters and "p" in self._arrays:
            omega = self.omega if isinstance(self, Diag) else self.omega[:, :, 0]
            return type(self)(omega=omega).edit(layer, **parameters)  # type: ignore[call-arg]
        return super().edit(layer, **parameters)


class Diag(_Diagonal):
    """P_k = diag(p_x I, p_y), Q_k = diag(q_x I, q_y): p and q, each [L, H, 2], x first.

    Or `omega` [L, 2, 2] directly, the sums over heads of p q'. One head reaches those of rank one only,
    two heads all of them; the dense form of omegas has two heads.
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
        """Diagonal matrices."""
        if "p" in self._arrays:
            return _spread(self._arrays["p"], dim), _spread(self._arrays["q"], dim)
        omega = self._arrays["omega"]
        return _spread(np.broadcast_to(np.eye(2, dtype=omega.dtype), omega.shape), dim), _spread(omega, dim)

    def pullback(self, gradient: tuple[NDArray[np.float64], ...] | None) -> dict[str, NDArray[np.float64]]:
        """The product rule."""
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
    """Diag without any flow out of y: q_y = 0. p [L, H, 2] and q [L, H]; or `omega` [L, 2] = (xx, yx)."""

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
        """Diagonal matrices."""
        return self.to_diag().dense(dim)

    def pullback(self, gradient: tuple[NDArray[np.float64], ...] | None) -> dict[str, NDArray[np.float64]]:
        """The product rule, for the first column only."""
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
