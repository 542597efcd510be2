"""The context's Gram matrix: all that a linear transformer's prediction depends on.

With tokens e = (x, y) and D = d + 1,  G = sum e e' = [S a; a' l],  S = sum x x', a = sum y x, l = sum y^2
(in the paper: Sigma, alpha, lambda).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import refuse
from ridgeformer.validation import array, integer, real
from ridgeformer.values import Value, read_only

if TYPE_CHECKING:
    from ridgeformer.spectrum import Spectrum

__all__ = ["Moments"]

Float = NDArray[np.floating[Any]]


@dataclass(eq=False, repr=False)
class Moments(Value):
    """Gram matrices of a batch of contexts; read-only, and independent of the arrays they were made from.

    Attributes:
        gram: [B, D, D], symmetric, y last. The engines keep the batch innermost in memory and show it as a view.
        context: n, the number of tokens that were summed.
        sigma: [B], the true noise levels, where they are known: what an oracle sees.
    """

    gram: Float
    context: int
    sigma: NDArray[np.float64] | None = None
    _remedy = "Copy it, change the copy, and make new ones: Moments(gram, context)."

    def __post_init__(self) -> None:
        gram = array("gram", self.gram, ("B", "D", "D"))
        if gram.shape[1] != gram.shape[2] or gram.shape[1] < 2:
            refuse("gram must have shape (B, d+1, d+1)", f"shape {gram.shape}", "Build it with Moments.from_tokens.")
        if not _symmetric(gram):
            refuse("gram must be symmetric", "one that is not", "Build it with Moments.from_tokens.")
        self.gram, self.context = gram, integer("context", self.context)
        if self.sigma is not None:
            sigma = array("sigma", self.sigma, (len(gram),)).astype(np.float64)
            if (sigma < 0).any():
                refuse("noise levels must not be negative", float(sigma.min()), "Pass standard deviations >= 0.")
            self.sigma = sigma

    @classmethod
    def from_tokens(cls, x: ArrayLike, y: ArrayLike) -> Moments:
        """Sum over the tokens of each context: x [B, n, d], y [B, n]; one context may come without the B axis.

        >>> m = Moments.from_tokens([[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0])
        >>> m.S[0].tolist(), m.a[0].tolist(), m.l[0].item()
        ([[10.0, 14.0], [14.0, 20.0]], [23.0, 34.0], 61.0)
        """
        x, y = real("x", x), real("y", y)
        if x.ndim == 2 and y.ndim == 1:
            x, y = x[None], y[None]
        features = array("x", x, ("B", "n", "d"))
        labels = array("y", y, features.shape[:2])
        tokens = np.concatenate([features, labels[..., None]], axis=-1)
        return cls(np.swapaxes(tokens, 1, 2) @ tokens, features.shape[1])

    @classmethod
    def from_parts(cls, S: ArrayLike, a: ArrayLike, l: ArrayLike, context: int) -> Moments:  # noqa: E741
        """From S [B, d, d], a [B, d] and l [B]."""
        S_ = array("S", S, ("B", "d", "d"))
        count, dim = S_.shape[:2]
        a_, l_ = array("a", a, (count, dim)), array("l", l, (count,))
        gram = np.empty((count, dim + 1, dim + 1), np.result_type(S_, a_, l_))
        gram[:, :dim, :dim] = array("S", S_, (count, dim, dim))
        gram[:, :dim, dim] = gram[:, dim, :dim] = a_
        gram[:, dim, dim] = l_
        return cls(gram, context)

    @classmethod
    def _trusted(cls, gram: Float, context: int, sigma: NDArray[np.float64] | None = None) -> Moments:
        """From an engine, whose output needs no checks and no copy: nobody else has it."""
        moments = object.__new__(cls)
        moments.gram, moments.context = read_only(gram), context
        moments.sigma = None if sigma is None else read_only(sigma)
        return moments._seal()

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigendecomposition of S and what ridge regression needs of it, computed once."""
        from ridgeformer.spectrum import spectrum

        return spectrum(self)

    @property
    def S(self) -> Float:
        """sum x x', [B, d, d]."""
        return self.gram[:, :-1, :-1]

    @property
    def a(self) -> Float:
        """sum y x, [B, d]."""
        return self.gram[:, :-1, -1]

    @property
    def l(self) -> Float:  # noqa: E743
        """sum y^2, [B]."""
        return self.gram[:, -1, -1]

    @property
    def dim(self) -> int:
        """d."""
        return int(self.gram.shape[1]) - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64."""
        return self.gram.dtype

    def __len__(self) -> int:
        return len(self.gram)

    def __getitem__(self, index: slice) -> Moments:
        """The contexts that a slice selects."""
        if not isinstance(index, slice):
            refuse("moments are indexed by slices", index, "Write moments[i:i+1] for one context.")
        try:
            chosen = self.gram[index]
        except TypeError:
            refuse("slices need whole numbers", index, "Write moments[i:j].")
        if len(chosen) == 0:
            refuse("a selection must keep at least one context", f"{index} of {len(self)}", "Widen the slice.")
        return Moments._trusted(chosen, self.context, None if self.sigma is None else self.sigma[index])

    def __repr__(self) -> str:
        return f"Moments({len(self)} contexts, dim={self.dim}, context={self.context}, {self.dtype})"


def _symmetric(gram: Float) -> bool:
    scale = np.abs(gram).max() or 1.0
    slack = 1e-5 if gram.dtype == np.float32 else 1e-12
    return bool(np.abs(gram - np.swapaxes(gram, 1, 2)).max() <= slack * scale)
