"""A stack of layers: the parameters of a family, the dimension of the features and the layout of the tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import PAPER_LAYOUT, Kernel, Layout
from ridgeformer.errors import kind_of, refuse
from ridgeformer.models.check import check_family
from ridgeformer.models.family import EDIT, Family
from ridgeformer.validation import integer
from ridgeformer.values import Value, read_only

Float = NDArray[np.floating[Any]]


class Stack(Value):
    """A stack of linear self-attention layers; see `LinearTransformer`.

    Args:
        family: The parameters.
        dim: The dimension d of the features; not needed where the parameters are for one dimension.
        layout: What tokens hold beside (x, y), and whether attention sums over tokens or takes their mean.

    Raises:
        InputError: The arguments do not fit together.
    """

    _remedy = EDIT

    def __init__(self, family: Family, dim: int | None = None, layout: Layout = PAPER_LAYOUT) -> None:
        if not isinstance(layout, Layout):
            refuse("the layout of tokens must be a Layout", kind_of(layout), 'Pass Layout("mean").')
        if not isinstance(family, Family):
            refuse("a model needs a parameter family", kind_of(family), "Pass Full or Diag parameters, for example.")
        if family.width is not None:
            fitting = family.width - layout.extra
            if dim is not None and dim != fitting:
                refuse(f"dim must fit the parameters, which are for {fitting}", dim, "Leave dim out.")
            dim = fitting
        if dim is None:
            refuse(
                f"parameters of the family {family.name} fit any dimension, so dim must be given",
                "none",
                "Pass dim=10, for example.",
            )
        check_family(type(family))
        self.family = family
        self.dim = integer("dim", dim, 1, 4096)
        self.layout = family.layout_for(layout, self.dim)

    @property
    def layers(self) -> int:
        """L."""
        return self.family.layers

    @property
    def heads(self) -> int:
        """H."""
        return self.family.heads

    @property
    def P(self) -> Float:
        """Dense, [L, H, D, D], the paper's convention."""
        return read_only(self.family.dense(self.dim)[0])

    @property
    def Q(self) -> Float:
        """Dense, [L, H, D, D], the paper's convention."""
        return read_only(self.family.dense(self.dim)[1])

    @property
    def kernel(self) -> Kernel:
        """The parameters as an engine takes them; see `Family.kernel`."""
        return self.family.kernel(self.dim)

    @property
    def width(self) -> int:
        """How many coordinates a token has beside y: d and the further ones of the layout."""
        return self.dim + self.layout.extra
