"""Distributions of noise levels: their base class, the basic ones, and the quadrature that several share."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.validation import Array, array, axes, integer, number
from ridgeformer.values import Described, read_only

LARGEST = 1e12  # a noise level above which no signal is left
MOST_NODES = 1024  # per octave
TAIL = 1e-12  # probability that quadrature leaves out at each end
NUMBER = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?")


class Noise(Described):
    """A distribution of noise levels sigma >= 0.

    Two distributions are equal if they are of the same class and have the same text, which `parse` reads back. A class
    of your own without a `name` has no such text: each object is equal to itself only, and no run is named after it.

    Attributes:
        words: A description of the law, with the names of its attributes in braces.
    """

    plural = "noise"
    examples = "Write uniform(0,5), categorical(1,3), fixed(2) or a scipy.stats distribution such as expon(scale=2)."
    known: ClassVar[dict[str, Callable[..., Any]]] = {}
    words: ClassVar[str] = "sigma has the distribution {law}"
    per_token: ClassVar[bool] = False  # whether each token has a level of its own
    _remedy = "Make a new distribution, such as Categorical([1, 3], weights=[0.9, 0.1])."

    @classmethod
    def of(cls, value: object) -> Self:
        """See `Described.of`; a text may be a plain number."""
        return super().of(float(value) if isinstance(value, str) and NUMBER.fullmatch(value.strip()) else value)

    @classmethod
    def converted(cls, value: object) -> Any:
        """See `Described.converted`: a number is one level, and a frozen scipy.stats distribution is taken as it is."""
        if isinstance(value, int | float | np.number) and not isinstance(value, bool):
            return Fixed(number("a noise level", value))
        if hasattr(value, "ppf"):
            return cls.known["scipy.stats"](value)
        refuse("noise must be a distribution", kind_of(value), cls.examples)

    @classmethod
    def unknown(cls, name: str) -> Callable[..., Any]:
        """See `Described.unknown`: other names are those of scipy.stats."""
        return partial(cls.known["a name of scipy.stats"], name)

    @abstractmethod
    def quantile(self, u: Array) -> Array:
        """Return the quantiles of the distribution; noise levels are drawn as quantiles of uniform random numbers.

        Args:
            u: Probabilities in (0, 1), of any shape.

        Returns:
            Noise levels, of the same shape.
        """

    @property
    @abstractmethod
    def second_moment(self) -> float:
        """E[sigma^2]."""

    @property
    def fourth_moment(self) -> float:
        """E[sigma^4], which may be infinite."""
        nodes, weights = self.quadrature()
        return float(weights @ nodes**4)

    @abstractmethod
    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Tell which noise levels can occur under this distribution.

        Args:
            sigma: Noise levels, of any shape.

        Returns:
            A mask of the same shape.
        """

    @abstractmethod
    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """Make a quadrature rule for expectations over sigma.

        Continuous distributions get Gauss-Legendre nodes in every factor of two: posteriors over sigma have a width
        proportional to sigma, so nodes must crowd towards zero. Discrete distributions are exact.

        Args:
            per_octave: Nodes in every factor of two, from 1 to 1024.
            tail: Nodes end where less than this probability is left, at both ends.

        Returns:
            Nodes [K] and their probabilities [K].
        """

    def fine_quadrature(self, freedom: float) -> tuple[Array, Array]:
        """Make a quadrature rule that resolves posteriors, whose width in log sigma is about 1 / sqrt(2 freedom).

        Args:
            freedom: How many examples tell of the noise.

        Returns:
            Nodes [K] and their probabilities [K], which are positive.
        """
        nodes, weights = self.quadrature(per_octave=min(12 + int(4 * np.sqrt(freedom)), MOST_NODES))
        return nodes[weights > 0], weights[weights > 0]

    def of_gram(self, context: int) -> Noise:
        """Return the law of one level for each sequence under which Gram matrices have the same law.

        Args:
            context: The number of tokens n.

        Returns:
            This law itself, unless each token has a level of its own.
        """
        return self

    def describe(self) -> str:
        """Say what the law is, in a sentence without its full stop."""
        return self.words.format(law=self, **vars(self))

    @property
    @abstractmethod
    def upper(self) -> float:
        """The largest level, or the one that only 0.1 % of the mass exceeds: where plots may end."""

    @property
    def lower(self) -> float:
        """The least level, or nearly so: where the noise begins in pictures."""
        return float(self.quadrature()[0].min())

    def draw(self, count: int, *, seed: int = 0) -> Array:
        """Draw independent noise levels.

        Args:
            count: How many.
            seed: Seed of NumPy's default generator.

        Returns:
            The levels, [count], read-only.
        """
        count = integer("count", count)
        return read_only(np.array(self.quantile(np.random.default_rng(integer("seed", seed, 0)).random(count))))


def check_tail(tail: float) -> None:
    """Refuse what is not a small probability.

    Args:
        tail: The probability.

    Raises:
        InputError: It is not between 0 and 0.5.
    """
    if not 0 < tail < 0.5:
        refuse("tail must lie between 0 and 0.5", tail, "Pass a small probability such as 1e-12.")


def octaves(low: float, high: float) -> Array:
    """Return the edges of panels that halve downwards.

    Args:
        low: The lowest edge, positive.
        high: The highest edge.

    Returns:
        The edges from low to high: high, high / 2, high / 4, ..., and low, in ascending order.
    """
    count = max(1, math.ceil(math.log2(high / low)))
    return np.concatenate([[low], high * 0.5 ** np.arange(count - 1, -1, -1.0)])


def refined(edges: Array, order: int) -> tuple[Array, int]:
    """Spread the same number of nodes over more panels of lower order: rules of hundreds of nodes are slow to make.

    Args:
        edges: Edges of panels, ascending.
        order: Nodes per panel.

    Returns:
        The edges of the smaller panels, and the nodes per panel, at most 32.
    """
    parts = -(-integer("per_octave", order, 1, MOST_NODES) // 32)
    if parts == 1:
        return edges, order
    shares = np.arange(parts) / parts
    inner = [np.geomspace(a, b, parts + 1)[:-1] if a > 0 else a + (b - a) * shares for a, b in pairwise(edges)]
    return np.append(np.concatenate(inner), edges[-1]), -(-order // parts)


def panels(edges: Array, order: int) -> tuple[Array, Array]:
    """Make Gauss-Legendre nodes and weights on every panel between neighbouring edges.

    Args:
        edges: Edges of panels, ascending, [k+1].
        order: Nodes per panel.

    Returns:
        Nodes and weights, [k * order] each.
    """
    x, w = np.polynomial.legendre.leggauss(integer("per_octave", order, 1, MOST_NODES))
    half = np.diff(edges)[:, None] / 2
    nodes = edges[:-1, None] + half * (1 + x)
    return nodes.ravel(), (half * w).ravel()


class _Discrete(Noise):
    """One of the noise levels `levels`, with probabilities `weights`, [K] each."""

    levels: Array
    weights: Array

    def quantile(self, u: Array) -> Array:
        """Return the level whose share of (0, 1) u falls in. See `Noise.quantile`."""
        return np.asarray(self.levels[np.searchsorted(np.cumsum(self.weights)[:-1], u, side="right")])

    @property
    def second_moment(self) -> float:
        """The weighted mean of the squared levels."""
        return float(self.weights @ self.levels**2)

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Tell which levels are among those that have weight. See `Noise.contains`."""
        values = np.asarray(sigma, float)[..., None]
        return np.asarray(np.isclose(values, self.levels[self.weights > 0], rtol=1e-9, atol=0).any(-1), bool)

    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """Return the levels that have weight. See `Noise.quadrature`."""
        positive = self.weights > 0
        return read_only(self.levels[positive]), read_only(self.weights[positive])

    @property
    def upper(self) -> float:
        """The largest level."""
        return float(self.levels.max())


class Fixed(_Discrete):
    """The same noise level for every sequence.

    Args:
        sigma: The noise level, a standard deviation from 0 to 1e12.

    Raises:
        InputError: `sigma` is not such a number.
    """

    name = "fixed"

    def __init__(self, sigma: float) -> None:
        self.sigma = _level("noise level", sigma)
        self.levels, self.weights = np.array([self.sigma]), np.ones(1)


class Categorical(_Discrete):
    """One of several noise levels.

    Args:
        levels: The levels, different standard deviations from 0 to 1e12.
        weights: Their probabilities, which sum to 1; None for equal ones.

    Raises:
        InputError: Levels or weights are not such numbers.
    """

    name = "categorical"

    def __init__(self, levels: Sequence[float] | Array, weights: Sequence[float] | Array | None = None) -> None:
        if axes(levels) != 1:
            refuse("categorical levels must be a list", shown(levels), "Pass levels such as [1, 3].")
        if len(levels) == 0:
            refuse("categorical noise needs at least one level", "none", "Pass levels such as [1, 3].")
        self.levels = np.array([_level("categorical level", level) for level in levels])
        if len(np.unique(self.levels)) < len(self.levels):
            refuse("categorical levels must differ", list(map(float, self.levels)), "Merge equal levels' weights.")
        self.weights, self._equal = np.full(len(levels), 1 / len(levels)), True
        if weights is None:
            return
        chances = array("categorical weights", weights, (len(levels),))
        if (chances < 0).any():
            refuse("categorical weights must not be negative", chances.tolist(), "Pass probabilities.")
        if abs(chances.sum() - 1) > 1e-9:
            refuse("categorical weights must sum to 1", f"a sum of {chances.sum():g}", "Divide them by their sum.")
        self._equal = bool(np.allclose(chances, self.weights, rtol=1e-15, atol=0))
        if not self._equal:
            self.weights = chances.astype(np.float64)

    def _text(self, write: Callable[[Any], str]) -> str:
        weights = [] if self._equal else [f"weights=({','.join(map(write, self.weights))},)"]
        return f"categorical({','.join([*map(write, self.levels), *weights])})"


Noise.known["categorical"] = lambda *levels, **weights: Categorical(levels, **weights)


class Uniform(Noise):
    """A noise level that is uniform on an interval.

    Args:
        low: The least level, a standard deviation from 0 to 1e12.
        high: The largest level, at least `low`.

    Raises:
        InputError: The levels are not such numbers.
    """

    name = "uniform"

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = _level("lower noise level", low), _level("upper noise level", high)
        if self.high < self.low:
            refuse("uniform noise needs low <= high", f"low {self.low:g}, high {self.high:g}", "Swap the two.")

    def quantile(self, u: Array) -> Array:
        """Return a straight line from low to high. See `Noise.quantile`."""
        return self.low + (self.high - self.low) * np.asarray(u, float)

    @property
    def second_moment(self) -> float:
        """(low^2 + low high + high^2) / 3."""
        return (self.low**2 + self.low * self.high + self.high**2) / 3

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Tell which levels are at least low and at most high. See `Noise.contains`."""
        values = np.asarray(sigma, float)
        return (values >= self.low) & (values <= self.high)

    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """Make a Gauss-Legendre rule on panels that halve towards zero. See `Noise.quadrature`."""
        check_tail(tail)
        if self.high == self.low:
            return read_only(np.array([self.low])), read_only(np.ones(1))
        width = self.high - self.low
        edges = octaves(max(self.low, tail * self.high), self.high)
        if self.low < edges[0]:
            edges = np.concatenate([[self.low], edges])
        nodes, spacing = panels(*refined(edges, per_octave))
        return read_only(nodes), read_only(spacing / width)

    @property
    def lower(self) -> float:
        """The least level."""
        return self.low

    @property
    def upper(self) -> float:
        """The largest level."""
        return self.high


def _level(name: str, value: object) -> float:
    """`value` as a level that is not negative, nor too large."""
    level = number(name, value) + 0.0  # -0.0 becomes 0.0
    if level > LARGEST:
        refuse(f"{name} must be at most {LARGEST:g}, where no signal is left", level, "Pass a smaller number.")
    return level


def as_noise(value: object) -> Noise:
    """Make a `Noise` of anything that can stand for one.

    Args:
        value: A `Noise`, its text, a number (a fixed level), or a frozen scipy.stats distribution.

    Returns:
        The distribution.

    Raises:
        InputError: It is none of these.

    >>> as_noise(2), as_noise("uniform(0,5)")
    (fixed(2), uniform(0,5))
    """
    return Noise.of(value)


def check_text(noise: Noise) -> str:
    """Return the text of a distribution, after which runs are named.

    Args:
        noise: The distribution.

    Returns:
        A text that `parse` reads back as the same distribution.

    Raises:
        InputError: The distribution is of a class of the user's own, so no text can be read back as the same law.
    """
    if not noise.has_text:
        rule = "a run is named after its problem, so its noise must be one that text can describe"
        received = f"{kind_of(noise)} of your own"
        refuse(rule, received, f"Evaluate with it without naming a run, or train on a built-in one. {Noise.examples}")
    return str(noise)


def parse(text: str) -> Noise:
    """Make the distribution that a text names; the inverse of `str`. A plain number names one level.

    Args:
        text: `fixed(2)`, or `2` for short, `uniform(0,5)`, `categorical(1,3)`, a scipy.stats distribution such as
            `expon(scale=2)`, or noise that differs from token to token: `tokens(uniform(0,5))` and `student(4,1)`.

    Returns:
        The distribution.

    Raises:
        InputError: There is no such distribution, or its arguments are not allowed.

    >>> parse("categorical(1,3)").second_moment
    5.0
    >>> parse("1")
    fixed(1)
    """
    if not isinstance(text, str):
        refuse("noise must be written as text", shown(text), Noise.examples)
    return Noise.of(text)
