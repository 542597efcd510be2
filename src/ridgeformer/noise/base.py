"""What a distribution of noise levels is, and the quadrature that several of them share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import refuse
from ridgeformer.validation import integer
from ridgeformer.values import Value, read_only

__all__ = ["EXAMPLES", "LARGEST", "TAIL", "Array", "Noise", "check_tail", "number_text", "octaves", "panels", "refined"]

Array = NDArray[np.float64]
LARGEST = 1e12  # a noise level above which no signal is left
MOST_NODES = 1024  # per octave
TAIL = 1e-12  # probability that quadrature leaves out at each end
EXAMPLES = "Write uniform(0,5), categorical(1,3), fixed(2) or a scipy.stats distribution such as expon(scale=2)."


class Noise(Value, ABC):
    """A distribution of noise levels sigma >= 0.

    Two distributions are equal if they are of the same built-in class and have the same text, which `parse` reads back.
    A class of your own has no such text: each object is equal to itself only, and no run can be named after it.
    """

    _built_in: ClassVar[bool] = False  # set in the class itself, so that subclasses do not inherit it
    _remedy = "Make a new distribution, such as Categorical([1, 3], weights=[0.9, 0.1])."

    @abstractmethod
    def quantile(self, u: Array) -> Array:
        """Levels for uniforms `u` in (0, 1): drawing is `quantile` of uniform numbers."""

    @property
    @abstractmethod
    def second_moment(self) -> float:
        """E[sigma^2]."""

    @abstractmethod
    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Whether each level can occur under this distribution."""

    @abstractmethod
    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """Nodes and probabilities for expectations over sigma, shapes [K] and [K].

        Continuous distributions get `per_octave` Gauss-Legendre nodes in every factor of two, down to where less
        than `tail` of the mass is left: posteriors over sigma have a width proportional to sigma, so nodes must
        crowd towards zero. Discrete ones are exact.
        """

    @property
    @abstractmethod
    def upper(self) -> float:
        """The largest level, or the one that only 0.1 % of the mass exceeds: where plots may end."""

    def draw(self, count: int, seed: int = 0) -> Array:
        """`count` independent levels."""
        count = integer("count", count)
        return read_only(np.array(self.quantile(np.random.default_rng(integer("seed", seed, 0)).random(count))))

    @property
    def has_text(self) -> bool:
        """Whether `parse(str(noise))` is this distribution."""
        return bool(vars(type(self)).get("_built_in"))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Noise) or type(self) is not type(other) or not self.has_text:
            return self is other
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self)) if self.has_text else id(self)

    def __str__(self) -> str:
        return f"{type(self).__name__} at {id(self):#x}"

    def __repr__(self) -> str:
        return str(self)


def check_tail(tail: float) -> None:
    """Refuse what is no small probability."""
    if not 0 < tail < 0.5:
        refuse("tail must lie between 0 and 0.5", tail, "Pass a small probability such as 1e-12.")


def number_text(value: Any) -> str:
    """The shortest text that reads back as the same float64."""
    number = float(value)
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def octaves(low: float, high: float) -> Array:
    """Edges from low to high, halving downwards from high."""
    count = max(1, math.ceil(math.log2(high / low)))
    return np.concatenate([[low], high * 0.5 ** np.arange(count - 1, -1, -1.0)])


def refined(edges: Array, order: int) -> tuple[Array, int]:
    """The same number of nodes in more panels of lower order: rules of hundreds of nodes are slow to make."""
    parts = -(-integer("per_octave", order, 1, MOST_NODES) // 32)
    if parts == 1:
        return edges, order
    shares = np.arange(parts) / parts
    inner = [np.geomspace(a, b, parts + 1)[:-1] if a > 0 else a + (b - a) * shares for a, b in pairwise(edges)]
    return np.append(np.concatenate(inner), edges[-1]), -(-order // parts)


def panels(edges: Array, order: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on every panel between neighbouring edges."""
    x, w = np.polynomial.legendre.leggauss(integer("per_octave", order, 1, MOST_NODES))
    half = np.diff(edges)[:, None] / 2
    nodes = edges[:-1, None] + half * (1 + x)
    return nodes.ravel(), (half * w).ravel()
