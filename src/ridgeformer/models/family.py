"""The base class of parameter families, and how families are named: each by its own name, or by one with sizes.

A family holds the numbers that are trained and stored, and says what they mean: dense P and Q in the paper's
convention, and the parameters an engine takes. A class is one parametrisation, such as `Full`; an object of it is the
parameters of one model.
"""

from __future__ import annotations

import copyreg
import re
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.engine import Kernel, Layout, Matrices
from ridgeformer.errors import refuse, shown
from ridgeformer.validation import Float, array, fits, integer, layer_number, precision, real, register
from ridgeformer.values import Value, read_only

EDIT = "Make a new model with other parameters: model.edit(layer, name=values)."
FAMILIES: dict[str, type[Family]] = {}  # by name; a subclass of Family enters itself
Gradient = Kernel | None


class Family(Value, ABC):
    """Parameters of every layer and head.

    A family cannot change once it is made: arrays that it holds become read-only copies. `family(**arrays)` must make
    the same parameters again. Layers come first in every array, or `layer_axis` says where they are.

    Attributes:
        name: By which the family is trained, saved and loaded.
        contains: A simpler family, whose every model `embed` turns into one of this family; None where there is none.
        useful_heads: How many heads add expressive power; None where every head does.
        further_scalars: How many coordinates tokens have beside x, y and further vectors; None for any number.
        further_vectors: How many vectors of the length of x tokens have beside x.
        has_sizes: Whether the class was made by a function with sizes, such as `Channels(1, 3)`.
        built_in: Whether the class is ridgeformer's own, and so needs no check; subclasses do not inherit it.
        layer_axis: The axis that counts the layers, in every array. None where no axis does: the class then needs its
            own `layers`, and `select`, `inserted` and `edit` for models that are shortened, grown and edited.
        loops: How often the layers that the arrays hold are repeated.
        isotropic: Whether every model of the family treats all directions of x alike.
    """

    name: ClassVar[str]
    contains: ClassVar[type[Family] | None] = None
    useful_heads: ClassVar[int | None] = None
    further_scalars: ClassVar[int | None] = 0
    further_vectors: ClassVar[int] = 0
    has_sizes: ClassVar[bool] = False
    built_in: ClassVar[bool] = False
    layer_axis: ClassVar[int | None] = 0
    loops: ClassVar[int] = 1
    isotropic: ClassVar[bool] = False
    _remedy = EDIT

    def __init_subclass__(cls, **keywords: Any) -> None:
        """A subclass with a name can be trained, saved and loaded by that name."""
        super().__init_subclass__(**keywords)
        cls.has_sizes = bool(cls.__dict__.get("has_sizes"))  # not inherited: a name with sizes leads to one class
        cls.built_in = cls.__dict__.get("built_in", cls.__module__.startswith("ridgeformer."))
        if "name" in cls.__dict__ and not cls.has_sizes:
            register("family", cls, FAMILIES)

    @classmethod
    def layout_for(cls, layout: Layout, dim: int) -> Layout:
        """Return a layout of tokens with as many coordinates as the family needs.

        Args:
            layout: The layout that was asked for.
            dim: The dimension d of the features.

        Returns:
            The layout, with more coordinates that start at zero where the family has further scalars or vectors.

        Raises:
            InputError: The layout has coordinates for which the family has no room.
        """
        if cls.further_scalars is None:
            return layout
        coordinate = int(layout.coordinate != "none")
        needed = cls.further_scalars + cls.further_vectors * dim - coordinate
        if coordinate > cls.further_scalars or layout.scratch not in (0, needed):
            refuse(
                f"the family {cls.name} has room for {needed + coordinate or 'no'} further coordinates in its tokens",
                f"a layout with {layout.extra}",
                "The families full, lowrank(r) and looped models of these, such as looped(full,2), take any number of "
                f"them, and channels(1,1+k) takes k: use full, or channels(1,{1 + layout.extra}).",
            )
        return replace(layout, scratch=needed)

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
        """The parameters by name, as the constructor takes them; `layer_axis` counts the layers."""

    @abstractmethod
    def dense(self, dim: int) -> tuple[Float, Float]:
        """Return P and Q in the paper's convention.

        Args:
            dim: The dimension d of the features.

        Returns:
            P and Q, each [L, H, D, D], where D counts all coordinates of a token.
        """

    @classmethod
    def kernel_of(cls, arrays: Mapping[str, Any], xp: Any) -> Kernel | None:
        """Return what an engine takes, from parameters in any array library; gradients flow through it.

        Args:
            arrays: The parameters by the names of `arrays`.
            xp: The module that computes with them: `numpy`, `torch` or `jax.numpy`.

        Returns:
            The kernel; None where the class does not say how, and `kernel` and `pullback` are used instead.
        """
        return None

    def kernel(self, dim: int) -> Kernel:
        """Return what an engine takes: Matrices(P, Q) as in `dense`, unless the family has a faster form.

        Args:
            dim: The dimension d of the features.

        Returns:
            Matrices; for Diag and GD++ Omegas; for channels Mixings.
        """
        kernel = self.kernel_of(self.arrays, np)
        if kernel is None:
            return Matrices(*self.dense(dim))
        stored = list(map(id, self.arrays.values()))
        return type(kernel)(*(value if id(value) in stored else read_only(value) for value in kernel))

    @abstractmethod
    def pullback(self, gradient: Gradient) -> dict[str, NDArray[np.float64]]:
        """Apply the chain rule: from a gradient with respect to `kernel(dim)` to that with respect to `arrays`.

        Args:
            gradient: The gradient that an engine returned, of the shapes of `kernel(dim)`.

        Returns:
            The gradient by the names of `arrays`.

        Raises:
            InputError: There is none, or its shapes differ.
        """

    @staticmethod
    def _checked(gradient: Gradient, *expected: tuple[int | str, ...]) -> tuple[Any, ...]:
        """Return a gradient if it has these shapes; a letter stands for any length."""
        if gradient is None:
            refuse("pullback needs a gradient", "None", "Evaluate with gradient=True.")
        shapes = [np.shape(piece) for piece in gradient]
        if len(shapes) != len(expected) or not all(map(fits, shapes, expected)):
            rule = f"a gradient must have the shapes {list(expected)} of the kernel"
            refuse(rule, shapes, "Pass evaluate(...).gradient as it is.")
        return gradient

    @classmethod
    @abstractmethod
    def random(cls, width: int, layers: int, heads: int, scale: float, rng: np.random.Generator) -> Self:
        """Make random parameters: independent normal numbers.

        Args:
            width: How many coordinates tokens have beside y: d, and more where tokens have further coordinates.
            layers: How many layers.
            heads: How many heads per layer.
            scale: The standard deviation of the numbers.
            rng: The random numbers.

        Returns:
            The parameters.
        """

    @abstractmethod
    def identity_layer(self) -> dict[str, Float]:
        """Return the arrays of one layer that changes nothing, but whose gradient need not vanish.

        Returns:
            The values by name, without the axis of the layers.
        """

    @property
    def width(self) -> int | None:
        """How many coordinates beside y the arrays are for; None where they fit any dimension."""
        return None

    @property
    def layers(self) -> int:
        """How many layers the arrays describe."""
        return int(next(iter(self.arrays.values())).shape[self._axis("layers")])

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

    def with_arrays(self, arrays: dict[str, Float]) -> Self:
        """Return parameters of the same shapes, for code that evaluates many and shows none of them.

        Args:
            arrays: The arrays by name, of the shapes and names of `arrays`. Built-in families neither check nor copy
                them.

        Returns:
            The parameters.
        """
        return type(self)(**arrays)

    def edit(self, layer: int, **parameters: ArrayLike) -> Family:
        """Return the same parameters but for those of one layer, which are replaced.

        Args:
            layer: The layer, from 0 to L - 1; negative numbers count from the end.
            **parameters: New values by name, each of the shape that one layer has in `arrays`, without the axis of the
                layers, or a number for all of its entries.

        Returns:
            The new parameters.

        Raises:
            InputError: There is no such layer or name, or the values have another shape or are not finite.
        """
        axis = self._axis("edit")
        layer = layer_number(layer, self.layers)
        arrays = {name: np.array(value, subok=False) for name, value in self.arrays.items()}
        if not parameters or not parameters.keys() <= arrays.keys():
            unknown = ", ".join(sorted(parameters.keys() - arrays.keys())) or "no name"
            refuse(f"the parameters of a {self.name} layer are {', '.join(arrays)}", unknown, "Choose among these.")
        for name, value in parameters.items():
            new, old = real(name, value), np.moveaxis(arrays[name], axis, 0)
            if new.ndim == 0:
                new = np.full(old.shape[1:], new, old.dtype)
            changed = old.astype(np.result_type(old, new))  # promoted, never cut
            changed[layer] = array(name, new, old.shape[1:])
            arrays[name] = np.moveaxis(changed, 0, axis)
        return type(self)(**arrays)

    def stretched(self, by: float) -> Self:
        """Return the family whose attention P G Q is `by` times as strong in every layer and head.

        Args:
            by: The factor.

        Returns:
            The new parameters.

        Raises:
            InputError: The family does not say how.
        """
        refuse(f"a {self.name} model cannot be stretched", by, "Write a method stretched(by) in its class.")

    def natural_sizes(self, dim: int, scale: float, feature: float, label: float) -> dict[str, NDArray[np.float64]]:
        """Return the natural size of each array on a problem, relative to the usual one, 1 / scale.

        Descents are faster where all numbers have one size. Where features have the size f and labels the size g,
        relative to N(0, I) and isotropic tasks, tokens change by D = diag(f, g): P becomes D P D^-1 and Q becomes
        D^-1 Q D^-1.

        Args:
            dim: The dimension d of the features.
            scale: The square root of n where attention is a sum, or 1.
            feature: The size f of features.
            label: The size g of labels.

        Returns:
            Sizes by name, which fit the arrays; arrays that are not named have the usual size.
        """
        return {}

    @property
    def editable(self) -> tuple[str, ...]:
        """The names that `edit` takes."""
        return tuple(self.arrays)

    def to_diag(self) -> Any:
        """Return the same model as Diag; None where it is neither Diag nor GD++."""
        return None

    def unrolled(self) -> Family:
        """Return the same model with parameters of its own for every layer; this one unless layers are repeated."""
        return self

    def select(self, layers: slice) -> Family:
        """Return the parameters of some layers only.

        Args:
            layers: Which layers.

        Returns:
            Their parameters.

        Raises:
            InputError: No axis of the arrays counts the layers, and the class has no `select` of its own.
        """
        axis = self._axis("select")
        parts = {name: np.moveaxis(value, axis, 0)[layers] for name, value in self.arrays.items()}
        return type(self)(**{name: np.moveaxis(value, 0, axis) for name, value in parts.items()})

    def inserted(self, at: int, layer: Self | dict[str, Float]) -> Self:
        """Insert a layer.

        Args:
            at: The layer before which it is inserted, or L for the end.
            layer: The parameters of one layer, as a family with one layer or as in `identity_layer`.

        Returns:
            The parameters of L + 1 layers.

        Raises:
            InputError: There is no such position, or no axis of the arrays counts the layers and the class has no
                `inserted` of its own.
        """
        axis = self._axis("inserted")
        at = integer("the position of a new layer", at, 0, self.layers)
        new = {n: np.moveaxis(v, axis, 0) for n, v in layer.arrays.items()} if isinstance(layer, Family) else layer
        return type(self)(**{name: np.insert(value, at, new[name], axis=axis) for name, value in self.arrays.items()})

    def _axis(self, method: str) -> int:
        """The axis of the layers; refuse the default method where there is none."""
        if self.layer_axis is None:
            refuse(
                f"a family in whose arrays no axis counts the layers needs {method} of its own",
                f"the family {self.name} without it",
                f"Write {method} in its class, or set layer_axis if an axis does; see docs/explanations/families.md.",
            )
        return self.layer_axis


def joined(*families: Family) -> Family:
    """Return the layers of several parameters of one family in a row.

    Args:
        *families: The parameters, whose layers have the same shapes.

    Returns:
        The parameters of all layers.
    """
    longer, *further = families
    for family in further:
        for layer in range(family.layers):
            longer = longer.inserted(longer.layers, family.select(slice(layer, layer + 1)))
    return longer


_SIZED: dict[str, tuple[str, Callable[..., type[Family]]]] = {}  # by the word before the bracket: sizes and function
_MADE: dict[tuple[object, ...], type] = {}  # families with sizes, by what they were made from
AnyFamily = TypeVar("AnyFamily", bound=Family)


def sized(word: str, sizes: str) -> Callable[[Callable[..., type[Family]]], Callable[..., type[Family]]]:
    """Register a function that makes families of different sizes, so that these are found by names with arguments.

    Args:
        word: What names begin with, such as `channels`.
        sizes: An example of what follows in brackets, such as `1,3`. The function must always return the same class
            for the same arguments; it is called with the parts between the commas, whole numbers as such.

    Returns:
        A decorator.
    """

    def register(make: Callable[..., type[Family]]) -> Callable[..., type[Family]]:
        _SIZED[word] = (sizes, make)
        return make

    return register


def with_sizes(base: type[AnyFamily], word: str, sizes: str, **facts: Any) -> type[AnyFamily]:
    """Make a family of one size, for a function that `sized` registers.

    Args:
        base: The class that does not know its sizes.
        word: What its name begins with, such as `channels`.
        sizes: What follows in brackets, such as `1,3`.
        **facts: The class attributes that hold the sizes; hashable.

    Returns:
        A subclass with these attributes; the same class for the same arguments.
    """
    key = base, word, sizes, *facts.items()
    if key not in _MADE:
        body = {"name": f"{word}({sizes})", "has_sizes": True, "__module__": base.__module__, "__doc__": base.__doc__}
        body |= facts
        _MADE[key] = types.new_class(word.capitalize(), (base,), exec_body=lambda space: space.update(body))
    return cast("type[AnyFamily]", _MADE[key])


def known_families() -> list[str]:
    """Return the names of all families, and an example of each that has sizes, for messages and help texts."""
    return [*FAMILIES, *(f"{word}({sizes})" for word, (sizes, _) in _SIZED.items())]


def family_named(name: object) -> type[Family]:
    """Return a family by its name.

    Args:
        name: Such as `diag`, `full` or `channels(1,3)`, or a family itself.

    Returns:
        The class.

    Raises:
        InputError: There is no such family, or its class lacks a method.

    >>> family_named("channels(1,3)").name
    'channels(1,3)'
    """
    if isinstance(name, type) and issubclass(name, Family):
        return _complete(name)
    if isinstance(name, str):
        if name in FAMILIES:
            return _complete(FAMILIES[name])
        parts = re.fullmatch(r"\s*([a-z]+)\s*\((.{1,200})\)\s*", name)
        if parts and parts[1] in _SIZED:
            arguments = [part.strip() for part in re.split(r",(?![^(]*\))", parts[2])]  # commas outside inner brackets
            numbers = [int(part) if re.fullmatch(r"\d{1,9}", part) else part for part in arguments]
            try:
                return _SIZED[parts[1]][1](*numbers)
            except TypeError:
                example = f"{parts[1]}({_SIZED[parts[1]][0]})"
                refuse(f"{parts[1]} must be given as in {example}", shown(name), f"Write {example}, for example.")
    for word, (sizes, make) in _SIZED.items():
        if name is make or (isinstance(name, str) and name == word):
            written = make.__name__ if name is make else word
            received = written if name is make else shown(name)
            refuse(f"the family {word} needs its sizes", received, f"Write {written}({sizes}), for example.")
    refuse(
        f"the family must be one of {', '.join(known_families())}",
        shown(name),
        "Name one of these. A family of your own has a name once its class is defined: pass the class, or import its "
        "module in Python. The command line knows built-in families only.",
    )


def _complete(family: type[Family]) -> type[Family]:
    """The class, if it has everything that a family needs."""
    missing = sorted(getattr(family, "__abstractmethods__", ())) + ["name"] * (not hasattr(family, "name"))
    if missing:
        rule = "a family needs name, arrays, dense, heads, identity_layer, pullback and random"
        received = f"the class {family.__qualname__} without {', '.join(missing)}"
        refuse(rule, received, 'Write these; see "Families of your own" in docs/explanations/families.md.')
    return family


def check_registered(family: type[Family]) -> str:
    """Return the name of a family, under which its models are stored; refuse a class that the name does not lead to.

    Args:
        family: The class.

    Returns:
        Its name.

    Raises:
        InputError: The class has no name of its own, so that its models would be read back as those of another family.
    """
    inner = getattr(family, "inner", family)  # of a looped family: the one that is repeated
    registered = family_named(inner.name)
    if registered is not inner:
        rule = "a family that is stored must have a name of its own"
        received = f"{inner.__qualname__} with the name {inner.name!r}, which is {registered.__qualname__}"
        refuse(rule, received, 'Write name = "my_family" in its class.')
    return family.name


def _reduced(kind: type[Any]) -> Any:
    """How a class is pickled: families with sizes by their names, others by where they are defined."""
    return (family_named, (kind.name,)) if issubclass(kind, Family) and kind.has_sizes else kind.__qualname__


copyreg.pickle(type(Family), _reduced)
