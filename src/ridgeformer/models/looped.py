"""Looped models: the layers of any family, repeated with tied weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.engine import Kernel
from ridgeformer.errors import refuse
from ridgeformer.models.family import Family, Gradient, family_named, sized, with_sizes
from ridgeformer.validation import Float, integer

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

    built_in = True
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
        unrolled = self.once
        for _ in range(self.loops - 1):
            for layer in range(self.once.layers):
                unrolled = unrolled.inserted(unrolled.layers, self.once.select(slice(layer, layer + 1)))
        return unrolled

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
