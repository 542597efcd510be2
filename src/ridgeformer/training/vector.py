"""Parameters of any family as one vector of numbers near one, which is what optimisers want."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.models.families import Family
from ridgeformer.models.transformer import LinearTransformer

__all__ = ["Vector"]

Array = NDArray[np.float64]


class Vector:
    """Packs and unpacks the parameters of models of one shape.

    A layer multiplies by P G Q, and G grows as n: parameters times sqrt(n) are of the order of one whatever n is.

    Args:
        model: A model of that shape.
        context: The number n of context tokens.
    """

    def __init__(self, model: LinearTransformer, context: int) -> None:
        self._family: type[Family] = type(model.family)
        self._shapes = {name: value.shape for name, value in model.family.arrays.items()}
        self._dim, self.scale = model.dim, float(np.sqrt(context))

    def pack(self, model: LinearTransformer) -> Array:
        """Return the numbers of a model.

        Args:
            model: The model.

        Returns:
            All parameters, scaled, [k].
        """
        return self.scale * self._join({name: value.astype(np.float64) for name, value in model.family.arrays.items()})

    def model(self, vector: Array, dtype: type = np.float64) -> LinearTransformer:
        """Return the model with given numbers.

        Args:
            vector: The numbers, [k].
            dtype: The precision of the model.

        Returns:
            The model.
        """
        arrays: dict[str, NDArray[Any]] = {}
        start = 0
        for name, shape in self._shapes.items():
            end = start + int(np.prod(shape))
            arrays[name] = (vector[start:end] / self.scale).astype(dtype).reshape(shape)
            start = end
        return LinearTransformer(self._family(**arrays), self._dim)

    def slope(self, gradient: dict[str, Array]) -> Array:
        """Return the gradient with respect to the numbers.

        Args:
            gradient: The gradient with respect to the arrays of the family, by name.

        Returns:
            The gradient, [k].
        """
        return self._join(gradient) / self.scale

    def _join(self, arrays: dict[str, Array]) -> Array:
        return np.concatenate([arrays[name].ravel() for name in self._shapes])
