"""Parameters of any family as one vector of numbers near one, which is what optimisers want."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Layout
from ridgeformer.engine.arrays import pieces
from ridgeformer.models.family import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem

Array = NDArray[np.float64]
AnyFamily = TypeVar("AnyFamily", bound=Family)


class Units:
    """The natural size of a model's parameters on a problem.

    A layer multiplies tokens by P G Q, and G grows as n where attention is a sum: parameters times sqrt(n) are of the
    order of one whatever n is. `Family.factors` says what sizes of features and labels change.

    Args:
        problem: What the model is trained on.
        layout: The layout of its tokens.
    """

    def __init__(self, problem: BaseProblem, layout: Layout) -> None:
        self.scale = 1.0 if layout.attention == "mean" else float(np.sqrt(problem.lengths.mean))
        self.dim = problem.dim
        self.feature = problem.feature_scale
        self.label = float(np.sqrt(problem.signal / problem.dim))

    def factors(self, family: Family) -> dict[str, Array]:
        """Return what each parameter is multiplied by.

        Args:
            family: The parameters.

        Returns:
            The factors by name; arrays that are not named have the factor one.
        """
        return family.factors(self.dim, self.scale, self.feature, self.label)

    def applied(self, family: AnyFamily) -> AnyFamily:
        """Return the parameters times their factors.

        Args:
            family: The parameters.

        Returns:
            The product.
        """
        factors = self.factors(family)
        if not factors:
            return family
        arrays = {name: value * factors.get(name, np.ones(())) for name, value in family.arrays.items()}
        return type(family)(**arrays)


class Vector:
    """Packs and unpacks the parameters of models shaped like `model`, in their natural units.

    Args:
        model: A model of that shape.
        units: The units; None for the numbers of the family as they are.
    """

    def __init__(self, model: LinearTransformer, units: Units | None) -> None:
        self._like, self.scale = model, 1.0 if units is None else units.scale
        self._shapes = {name: value.shape for name, value in model.family.arrays.items()}
        self._factors = {} if units is None else units.factors(model.family)

    def pack(self, model: LinearTransformer) -> Array:
        """Return the numbers of a model.

        Args:
            model: The model.

        Returns:
            The numbers, one after another.
        """
        arrays = {name: value.astype(np.float64) for name, value in model.family.arrays.items()}
        return self.scale * self._join(
            {**arrays, **{n: arrays[n] / f for n, f in self._factors.items() if n in arrays}}
        )

    def model(self, vector: Array, dtype: type = np.float64) -> LinearTransformer:
        """Return the model with these numbers.

        Args:
            vector: The numbers.
            dtype: The precision of the model.

        Returns:
            The model.
        """
        family = type(self._like.family)(**self._arrays(vector, dtype))
        return LinearTransformer(family, self._like.dim, self._like.layout)

    def passing(self, vector: Array, dtype: type = np.float64) -> LinearTransformer:
        """Return the model with these numbers for one evaluation: its parameters are not checked, which is faster.

        Args:
            vector: The numbers.
            dtype: The precision of the model.

        Returns:
            The model, which must not be kept.
        """
        return LinearTransformer(
            self._like.family.with_arrays(self._arrays(vector, dtype)), self._like.dim, self._like.layout
        )

    def _arrays(self, vector: Array, dtype: type) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {}
        for name, values in zip(self._shapes, pieces(vector / self.scale, self._shapes.values()), strict=True):
            arrays[name] = (values * self._factors[name] if name in self._factors else values).astype(dtype)
        return arrays

    def matrices(self) -> list[tuple[int, int, int]]:
        """Return the shapes of the numbers: stacks of K matrices m x n, as (K, m, n).

        Returns:
            One entry for each run of arrays whose axes after layers and heads are the same.
        """
        stacks: list[tuple[int, int, int]] = []
        for shape in self._shapes.values():
            m, n = (1, 1, *shape[2:])[-2:]
            count = int(np.prod(shape)) // (m * n)
            if stacks and stacks[-1][1:] == (m, n):
                count += stacks.pop()[0]
            stacks.append((count, m, n))
        return stacks

    def slope(self, gradient: dict[str, Array]) -> Array:
        """Convert a gradient.

        Args:
            gradient: The gradient with respect to the arrays of the family, by name.

        Returns:
            The gradient with respect to the numbers.
        """
        scaled = {n: gradient[n] * f for n, f in self._factors.items() if n in gradient}
        return self._join({**gradient, **scaled}) / self.scale

    def _join(self, arrays: dict[str, Array]) -> Array:
        return np.concatenate([arrays[name].ravel() for name in self._shapes])
