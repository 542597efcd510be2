"""Distributions of the noise level sigma: fixed, uniform, categorical, or any frozen scipy.stats distribution.

>>> noise = parse("uniform(0,5)")
>>> noise.second_moment  # E[sigma^2]
8.333333333333334
>>> print(Categorical([1, 3]))
categorical(1,3)
"""

from __future__ import annotations

import ast
import contextlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import InputError, array, integer, refuse
from ridgeformer.values import Value, read_only

__all__ = ["Categorical", "Fixed", "Frozen", "Noise", "Uniform", "as_noise", "check_text", "parse"]

Array = NDArray[np.float64]
LARGEST = 1e12  # a noise level above which no signal is left
MOST_LEVELS = 10_000  # of a discrete distribution: floors are sums over all of them
LONGEST_TEXT = 200_000
MOST_NODES = 1024  # per octave
TAIL = 1e-12  # probability that quadrature leaves out at each end
EXTREMES = (1e-6, 1e6)  # sizes of a scipy distribution's parameters
SLOW = ("ksone", "kstwo", "ncf", "rice", "erlang")  # whose moments or quantiles take scipy seconds for some parameters
_EXAMPLES = "Write uniform(0,5), categorical(1,3), fixed(2) or a scipy.stats distribution such as expon(scale=2)."


class Noise(Value, ABC):
    """A distribution of noise levels sigma >= 0.

    Two distributions are equal if they are of the same built-in class and have the same text, which `parse` reads back.
    A class of your own has no such text: each object is equal to itself only, and no run can be named after it.
    """

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
        return type(self) in (Fixed, Uniform, Categorical, Frozen)

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


class Fixed(Noise):
    """Every sequence has the noise level `sigma`."""

    def __init__(self, sigma: float) -> None:
        self.sigma = _level("noise level", sigma)

    def quantile(self, u: Array) -> Array:
        """The level itself, for every u."""
        return np.full(np.shape(u), self.sigma)

    @property
    def second_moment(self) -> float:
        """sigma^2."""
        return self.sigma**2

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Whether each level equals sigma."""
        return np.isclose(sigma, self.sigma, rtol=1e-9, atol=0)

    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """One node."""
        return read_only(np.array([self.sigma])), read_only(np.ones(1))

    @property
    def upper(self) -> float:
        """sigma."""
        return self.sigma

    def __str__(self) -> str:
        return f"fixed({_number(self.sigma)})"


class Categorical(Noise):
    """One of `levels`, with `weights` as probabilities (equal ones if not given)."""

    def __init__(self, levels: Sequence[float] | Array, weights: Sequence[float] | Array | None = None) -> None:
        if np.ndim(levels) != 1:
            refuse("categorical levels must be a list", repr(levels), "Pass levels such as [1, 3].")
        if len(levels) == 0:
            refuse("categorical noise needs at least one level", "none", "Pass levels such as [1, 3].")
        self.levels = np.array([_level("categorical level", level) for level in levels])
        if len(np.unique(self.levels)) < len(self.levels):
            refuse("categorical levels must differ", list(map(float, self.levels)), "Merge equal levels' weights.")
        self.weights = np.full(len(levels), 1 / len(levels))
        self._equal = True
        if weights is None:
            return
        given = array("categorical weights", weights, (len(levels),))
        if (given < 0).any():
            refuse("categorical weights must not be negative", given.tolist(), "Pass probabilities.")
        if abs(given.sum() - 1) > 1e-9:
            refuse("categorical weights must sum to 1", f"a sum of {given.sum():g}", "Divide them by their sum.")
        self._equal = bool(np.allclose(given, self.weights, rtol=1e-15, atol=0))
        if not self._equal:
            self.weights = given.astype(np.float64)

    def quantile(self, u: Array) -> Array:
        """The level whose share of (0, 1) u falls in."""
        edges = np.cumsum(self.weights)[:-1]
        return np.asarray(self.levels)[np.searchsorted(edges, u, side="right")]

    @property
    def second_moment(self) -> float:
        """The weighted mean of the squared levels."""
        return float(self.weights @ self.levels**2)

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Whether each level is one of the categories that have weight."""
        given = np.asarray(sigma, float)[..., None]
        return np.asarray(np.isclose(given, self.levels[self.weights > 0], rtol=1e-9, atol=0).any(-1), bool)

    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """The levels that have weight."""
        kept = self.weights > 0
        return read_only(self.levels[kept]), read_only(self.weights[kept])

    @property
    def upper(self) -> float:
        """The largest level."""
        return float(self.levels.max())

    def __str__(self) -> str:
        inner = ",".join(map(_number, self.levels))
        if not self._equal:
            inner += ",weights=(" + ",".join(map(_number, self.weights)) + ",)"
        return f"categorical({inner})"


class Uniform(Noise):
    """Uniform between `low` and `high`."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = _level("lower noise level", low), _level("upper noise level", high)
        if self.high < self.low:
            refuse("uniform noise needs low <= high", f"low {self.low:g}, high {self.high:g}", "Swap the two.")

    def quantile(self, u: Array) -> Array:
        """A straight line from low to high."""
        return self.low + (self.high - self.low) * np.asarray(u, float)

    @property
    def second_moment(self) -> float:
        """(low^2 + low high + high^2) / 3."""
        return (self.low**2 + self.low * self.high + self.high**2) / 3

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Whether low <= sigma <= high."""
        given = np.asarray(sigma, float)
        return (given >= self.low) & (given <= self.high)

    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """Gauss-Legendre on panels that halve towards zero."""
        _check_tail(tail)
        if self.high == self.low:
            return read_only(np.array([self.low])), read_only(np.ones(1))
        width = self.high - self.low
        edges = _octaves(max(self.low, tail * self.high), self.high)
        if self.low < edges[0]:
            edges = np.concatenate([[self.low], edges])
        nodes, spacing = _panels(*_refined(edges, per_octave))
        return read_only(nodes), read_only(spacing / width)

    @property
    def upper(self) -> float:
        """High."""
        return self.high

    def __str__(self) -> str:
        return f"uniform({_number(self.low)},{_number(self.high)})"


class Frozen(Noise):
    """A frozen scipy.stats distribution on [0, inf), continuous or discrete, with a finite E[sigma^2].

    scipy's `uniform(1, 2)` is the interval from 1 to 3, so `Frozen(scipy.stats.uniform(1, 2))` gives `Uniform(1, 3)`.
    """

    def __new__(cls, distribution: Any) -> Any:
        """Give a `Uniform` for scipy's uniform distribution, whose parameters mean something else."""
        if cls is Frozen and _is_frozen(distribution) and _name(distribution) == "uniform":
            return Uniform(*map(float, distribution.support()))
        return super().__new__(cls)

    def __init__(self, distribution: Any) -> None:
        if not _is_frozen(distribution):
            refuse("noise must be a frozen scipy.stats distribution", type(distribution).__name__, _EXAMPLES)
        self._text = _describe(distribution)
        try:
            with _quietly():
                self._prepare(distribution)
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            raise InputError(
                f"a distribution must have parameters that scipy can compute with; got {self._text} ({error}). "
                "Check their signs and ranges."
            ) from error

    def _prepare(self, distribution: Any) -> None:
        law = self._law = _rebuilt(distribution, self._text)
        self._discrete = hasattr(law.dist, "_nonzero")
        low, high = map(float, law.support())
        if math.isnan(low):
            refuse("a distribution must have valid parameters", self._text, "Check their signs and ranges.")
        if not low >= 0:
            refuse(
                "noise levels must not be negative", f"a support from {low:g}", "Shift or truncate the distribution."
            )
        self._low, self._high = low, high
        mean, variance = map(float, law.stats("mv"))
        moment = mean**2 + variance  # .moment(2) integrates, and is wrong where the integral diverges
        if not math.isfinite(moment) or moment < 0:
            refuse("noise needs a finite E[sigma^2]", f"{moment}", "Choose a distribution with a lighter tail.")
        # Some quantile functions of scipy never return where the levels are huge: so this comes first.
        if not (moment <= LARGEST**2 and (largest := float(law.isf(TAIL))) <= LARGEST):
            refuse(
                f"noise levels must stay below {LARGEST:g}, where no signal is left",
                f"{self._text} with a mean square of {moment:.3g}",
                "Pass a smaller scale.",
            )
        levels = largest - float(law.ppf(TAIL)) + 1 if variance <= MOST_LEVELS**2 else math.inf
        if self._discrete and not levels <= MOST_LEVELS:
            refuse(
                f"discrete noise must have at most {MOST_LEVELS:,} levels",
                f"{self._text} with more",
                "Choose a continuous distribution, or fewer levels.",
            )
        _check_same(law, distribution, self._text)
        self._second_moment = moment

    @property
    def distribution(self) -> Any:
        """The distribution as a frozen scipy.stats one; changing it changes nothing here."""
        return _parse_scipy(self._text)

    def quantile(self, u: Array) -> Array:
        """The distribution's `ppf`."""
        with _quietly():
            return np.asarray(self._law.ppf(u), float)

    @property
    def second_moment(self) -> float:
        """The distribution's second moment."""
        return self._second_moment

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Whether each level lies in the support and has density there."""
        given = np.asarray(sigma, float)
        inside = (given >= self._low) & (given <= self._high)
        if self._discrete:
            return inside & (np.asarray(self._law.pmf(given)) > 0)
        return inside

    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """Gauss-Legendre on octaves cut at the quantiles too; every panel carries exactly its mass."""
        _check_tail(tail)
        with _quietly():
            nodes, weights = self._levels(tail) if self._discrete else self._octaves(per_octave, tail)
        kept = weights > 0
        nodes, weights = nodes[kept], weights[kept]
        if not (len(nodes) and np.isfinite(nodes).all() and np.isfinite(weights).all()):
            refuse("a distribution must have a finite density", self._text, "Check its parameters.")
        return read_only(nodes), read_only(weights / weights.sum())

    def _levels(self, tail: float) -> tuple[Array, Array]:
        """The levels of a discrete distribution and their probabilities."""
        # From a point of the support, which may be shifted.
        nodes = np.arange(float(self._law.ppf(tail)), float(self._law.isf(tail)) + 1)
        return nodes, np.asarray(self._law.pmf(nodes), float)

    def _octaves(self, per_octave: int, tail: float) -> tuple[Array, Array]:
        """Nodes of a continuous distribution, and weights that give every panel its mass."""
        law = self._law
        low, high = float(law.ppf(tail)), float(law.isf(tail))
        if not low < high:
            return np.array([float(law.ppf(0.5))]), np.ones(1)
        ladder = np.array([1e-9, 1e-6, 1e-4, 0.01, 0.1, 0.3])
        quantiles = law.ppf(np.concatenate([ladder, [0.5], 1 - ladder]))
        # No context tells noise levels apart that are smaller than this: they share one panel.
        smallest = max(low, tail * high)
        edges = np.unique(np.concatenate([_octaves(smallest, high), quantiles]))
        edges = np.unique(np.concatenate([[low], edges[(edges >= smallest) & (edges <= high)], [high]]))
        edges, per_octave = _refined(edges, per_octave)
        nodes, spacing = _panels(edges, per_octave)
        shape = (len(edges) - 1, per_octave)
        density = np.nan_to_num(np.asarray(law.pdf(nodes)), posinf=0.0).reshape(shape) * spacing.reshape(shape)
        mass = np.diff(law.cdf(edges))
        mass[0] += float(law.cdf(edges[0]))
        mass[-1] += float(law.sf(edges[-1]))
        total = density.sum(1, keepdims=True)
        share = np.where(total > 0, density / np.where(total > 0, total, 1), 1 / per_octave)
        return nodes, np.asarray(share * mass[:, None]).ravel()

    @property
    def upper(self) -> float:
        """The support's end, or the level that 0.1 % of the mass exceeds."""
        return self._high if math.isfinite(self._high) else float(self._law.isf(1e-3))

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> Any:
        return parse, (self._text,)


def _is_frozen(distribution: Any) -> bool:
    from scipy.stats._distn_infrastructure import rv_frozen

    return isinstance(distribution, rv_frozen)


def _name(distribution: Any) -> str:
    return str(distribution.dist.name)


def _describe(distribution: Any) -> str:
    """A frozen distribution as text, such as expon(scale=2)."""
    values = (*distribution.args, *distribution.kwds.values())
    if any(np.ndim(value) for value in values):
        refuse("a distribution must have single numbers as parameters", "arrays", "Freeze one distribution.")
    try:
        odd = [value for value in map(float, values) if value and not EXTREMES[0] <= abs(value) <= EXTREMES[1]]
        parts = [_number(value) for value in distribution.args]
        parts += [f"{name}={_number(value)}" for name, value in distribution.kwds.items()]
    except (TypeError, ValueError, OverflowError):
        refuse("a distribution must have numbers as parameters", ", ".join(map(repr, values))[:80], _EXAMPLES)
    if odd:  # some of scipy's functions never return for such parameters
        refuse(
            f"a distribution's parameters must be 0 or have a size from {EXTREMES[0]:g} to {EXTREMES[1]:g}",
            odd[0],
            "Pass a less extreme one.",
        )
    return f"{_name(distribution)}({','.join(parts)})"


def _rebuilt(distribution: Any, text: str) -> Any:
    """A distribution of our own, made from its text; refuses what scipy does not name or is slow to compute."""
    from scipy import stats

    name = _name(distribution)
    if type(getattr(stats, name, None)) is not type(distribution.dist):
        refuse("a distribution must be one that scipy.stats names", name, "Use Categorical for a list of levels.")
    generic = (stats.rv_continuous._ppf, stats.rv_discrete._ppf)
    kind: Any = type(distribution.dist)
    if kind._ppf in generic or name in SLOW:
        refuse(
            "noise must have quantiles that scipy computes directly",
            f"{text}, whose quantiles scipy finds by numerical search, which would take minutes",
            "Choose another distribution, or Categorical with a list of levels.",
        )
    return _parse_scipy(text)


def _check_same(law: Any, distribution: Any, text: str) -> None:
    """Refuse a distribution that is not the one its text describes."""
    chances = np.array([0.01, 0.3, 0.7, 0.99])
    pairs = [(law.support(), distribution.support()), (law.ppf(chances), distribution.ppf(chances))]
    if not all(np.array_equal(mine, given, equal_nan=True) for mine, given in pairs):
        refuse(
            "a distribution must be the one that its name and parameters describe",
            f"another one called {text}",
            "Use scipy.stats directly, without changing the distribution.",
        )
    if not np.isfinite(pairs[1]).all():
        refuse("a distribution must have finite quantiles", text, "Check its parameters.")


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Silences what scipy says about parameters; results are checked instead."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def as_noise(value: object) -> Noise:
    """A `Noise` from one, from its text, from a number (fixed), or from a frozen scipy.stats distribution."""
    if isinstance(value, Noise):
        return value
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return Fixed(float(value))
    if hasattr(value, "ppf"):
        found: Noise = Frozen(value)
        return found
    refuse("noise must be a distribution", f"a {type(value).__name__}", _EXAMPLES)


def check_text(noise: Noise) -> str:
    """The text of a distribution, which names runs; refuses a distribution that has none.

    Raises:
        InputError: The distribution is of a class of the user's own, so no text can be read back as the same law.
    """
    if not noise.has_text:
        refuse(
            "a run is named after its problem, so its noise must be one that text can describe",
            f"a {type(noise).__name__} of your own",
            f"Evaluate with it without naming a run, or train on a built-in one. {_EXAMPLES}",
        )
    return str(noise)


def parse(text: str) -> Noise:
    """The distribution that `text` names; the inverse of `str`.

    >>> parse("categorical(1,3)").second_moment
    5.0
    """
    name, positional, named = _read(text)
    try:
        if name == "fixed":
            return Fixed(*positional, **named)
        if name == "uniform":
            return Uniform(*positional, **named)
        if name == "categorical":
            return Categorical(positional, **named)
        found: Noise = Frozen(_parse_scipy(text))
        return found
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"noise must have the arguments its name takes; got {text[:80]!r}. {_EXAMPLES}") from error


def _read(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """The name, the positional and the named arguments of a text such as expon(0, scale=2)."""
    if not isinstance(text, str):
        refuse("noise must be written as text", repr(text)[:80], _EXAMPLES)
    if len(text) > LONGEST_TEXT:
        refuse(f"noise must be written in at most {LONGEST_TEXT:,} characters", f"{len(text):,}", _EXAMPLES)
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError
        positional = [ast.literal_eval(item) for item in call.args]
        named = {str(item.arg): ast.literal_eval(item.value) for item in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        refuse("noise must be written as name(numbers)", repr(text[:80]), _EXAMPLES)
    return call.func.id, positional, named


def _parse_scipy(text: str) -> Any:
    """The frozen scipy.stats distribution that a text names."""
    from scipy import stats

    name, positional, named = _read(text)
    family = getattr(stats, name, None)
    if not isinstance(family, stats.rv_continuous | stats.rv_discrete):
        refuse("noise must name a known distribution", repr(name[:80]), _EXAMPLES)
    with _quietly():
        return family(*positional, **named)


def _level(name: str, value: object) -> float:
    """`value` as a finite level, not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        refuse(f"{name} must be a number", repr(value), "Pass a float >= 0.")
    try:
        level = float(value)
    except OverflowError:
        level = math.inf
    if not math.isfinite(level):
        refuse(f"{name} must be finite", level, "Pass a float >= 0.")
    if level < 0:
        refuse(f"{name} must not be negative", level, "Pass a float >= 0.")
    if level > LARGEST:
        refuse(f"{name} must be at most {LARGEST:g}, where no signal is left", level, "Pass a smaller one.")
    return level + 0.0  # -0.0 becomes 0.0


def _check_tail(tail: float) -> None:
    if not 0 < tail < 0.5:
        refuse("tail must lie between 0 and 0.5", tail, "Pass a small probability such as 1e-12.")


def _number(value: Any) -> str:
    number = float(value)
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def _octaves(low: float, high: float) -> Array:
    """Edges from low to high, halving downwards from high."""
    count = max(1, math.ceil(math.log2(high / low)))
    return np.concatenate([[low], high * 0.5 ** np.arange(count - 1, -1, -1.0)])


def _refined(edges: Array, order: int) -> tuple[Array, int]:
    """The same number of nodes in more panels of lower order: rules of hundreds of nodes are slow to make."""
    parts = -(-integer("per_octave", order, 1, MOST_NODES) // 32)
    if parts == 1:
        return edges, order
    shares = np.arange(parts) / parts
    inner = [np.geomspace(a, b, parts + 1)[:-1] if a > 0 else a + (b - a) * shares for a, b in pairwise(edges)]
    return np.append(np.concatenate(inner), edges[-1]), -(-order // parts)


def _panels(edges: Array, order: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on every panel between neighbouring edges."""
    x, w = np.polynomial.legendre.leggauss(integer("per_octave", order, 1, MOST_NODES))
    half = np.diff(edges)[:, None] / 2
    nodes = edges[:-1, None] + half * (1 + x)
    return nodes.ravel(), (half * w).ravel()
