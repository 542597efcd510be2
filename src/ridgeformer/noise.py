"""Distributions of the noise level sigma: fixed, uniform, categorical, or any frozen scipy.stats distribution.

>>> noise = parse("uniform(0,5)")
>>> noise.second_moment  # E[sigma^2]
8.333333333333334
>>> print(Categorical([1, 3]))
categorical(1,3)
"""

from __future__ import annotations

import ast
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import InputError, array, integer, refuse

__all__ = ["Categorical", "Fixed", "Frozen", "Noise", "Uniform", "as_noise", "parse"]

Array = NDArray[np.float64]
LARGEST = 1e12
_EXAMPLES = "Write uniform(0,5), categorical(1,3), fixed(2) or a scipy.stats distribution such as expon(scale=2)."


class Noise(ABC):
    """A distribution of noise levels sigma >= 0."""

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
    def quadrature(self, per_octave: int = 12, tail: float = 1e-12) -> tuple[Array, Array]:
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
        return self.quantile(np.random.default_rng(integer("seed", seed, 0)).random(count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Noise) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

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

    def quadrature(self, per_octave: int = 12, tail: float = 1e-12) -> tuple[Array, Array]:
        """One node."""
        return np.array([self.sigma]), np.ones(1)

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
        self._equal = weights is None
        if weights is None:
            self.weights = np.full(len(levels), 1 / len(levels))
            return
        given = array("categorical weights", weights, (len(levels),))
        if (given < 0).any():
            refuse("categorical weights must not be negative", given.tolist(), "Pass probabilities.")
        if abs(given.sum() - 1) > 1e-9:
            refuse("categorical weights must sum to 1", f"a sum of {given.sum():g}", "Divide them by their sum.")
        self.weights = given.astype(np.float64)
        self._equal = bool(np.allclose(self.weights, 1 / len(levels), rtol=1e-15, atol=0))

    def quantile(self, u: Array) -> Array:
        """The level whose share of (0, 1) u falls in."""
        edges = np.cumsum(self.weights)[:-1]
        return self.levels[np.searchsorted(edges, u, side="right")]

    @property
    def second_moment(self) -> float:
        """The weighted mean of the squared levels."""
        return float(self.weights @ self.levels**2)

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Whether each level is one of the categories that have weight."""
        given = np.asarray(sigma, float)[..., None]
        return np.asarray(np.isclose(given, self.levels[self.weights > 0], rtol=1e-9, atol=0).any(-1), bool)

    def quadrature(self, per_octave: int = 12, tail: float = 1e-12) -> tuple[Array, Array]:
        """The levels that have weight."""
        kept = self.weights > 0
        return self.levels[kept], self.weights[kept]

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

    def quadrature(self, per_octave: int = 12, tail: float = 1e-12) -> tuple[Array, Array]:
        """Gauss-Legendre on panels that halve towards zero."""
        _check_tail(tail)
        if self.high == self.low:
            return np.array([self.low]), np.ones(1)
        width = self.high - self.low
        edges = _octaves(max(self.low, tail * self.high), self.high)
        if self.low < edges[0]:
            edges = np.concatenate([[self.low], edges])
        nodes, spacing = _panels(*_refined(edges, per_octave))
        return nodes, spacing / width

    @property
    def upper(self) -> float:
        """High."""
        return self.high

    def __str__(self) -> str:
        return f"uniform({_number(self.low)},{_number(self.high)})"


class Frozen(Noise):
    """A frozen scipy.stats distribution on [0, inf), continuous or discrete, with a finite E[sigma^2]."""

    def __init__(self, distribution: Any) -> None:
        from scipy import stats
        from scipy.stats._distn_infrastructure import rv_frozen

        if not isinstance(distribution, rv_frozen):
            refuse("noise must be a frozen scipy.stats distribution", type(distribution).__name__, _EXAMPLES)
        self.distribution: Any = distribution
        self._discrete = hasattr(distribution, "pmf") and not hasattr(distribution, "pdf")
        self._discrete = self._discrete or hasattr(getattr(distribution, "dist", None), "_nonzero")
        dist = distribution.dist
        named = getattr(stats, str(dist.name), None)
        if type(named) is not type(dist):
            refuse(
                "a distribution must be one that scipy.stats names", dist.name, "Use Categorical for a list of levels."
            )
        if any(np.ndim(value) for value in (*distribution.args, *distribution.kwds.values())):
            refuse("a distribution must have single numbers as parameters", "arrays", "Freeze one distribution.")
        low, high = map(float, distribution.support())
        if math.isnan(low):
            refuse("a distribution must have valid parameters", f"{self}", "Check their signs and ranges.")
        if not low >= 0:
            refuse(
                "noise levels must not be negative", f"a support from {low:g}", "Shift or truncate the distribution."
            )
        self._low, self._high = low, high
        mean, variance = map(float, distribution.stats("mv"))
        moment = mean**2 + variance  # .moment(2) integrates, and is wrong where the integral diverges
        if not math.isfinite(moment):
            refuse("noise needs a finite E[sigma^2]", f"{moment}", "Choose a distribution with a lighter tail.")
        self._second_moment = moment

    def quantile(self, u: Array) -> Array:
        """The distribution's `ppf`."""
        return np.asarray(self.distribution.ppf(u), float)

    @property
    def second_moment(self) -> float:
        """The distribution's second moment."""
        return self._second_moment

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Whether each level lies in the support and has density there."""
        given = np.asarray(sigma, float)
        inside = (given >= self._low) & (given <= self._high)
        if self._discrete:
            return inside & (np.asarray(self.distribution.pmf(given)) > 0)
        return inside

    def quadrature(self, per_octave: int = 12, tail: float = 1e-12) -> tuple[Array, Array]:
        """Gauss-Legendre on octaves cut at the quantiles too; every panel carries exactly its mass."""
        _check_tail(tail)
        law = self.distribution
        low, high = float(law.ppf(tail)), float(law.isf(tail))
        if self._discrete:
            nodes = np.arange(low, high + 1)  # from a point of the support, which may be shifted
            weights = np.asarray(law.pmf(nodes), float)
            kept = weights > 0
            return nodes[kept], weights[kept] / weights.sum()
        ladder = np.array([1e-9, 1e-6, 1e-4, 0.01, 0.1, 0.3])
        quantiles = law.ppf(np.concatenate([ladder, [0.5], 1 - ladder]))
        edges = np.unique(np.concatenate([_octaves(max(low, 1e-300), high), quantiles]))
        edges = edges[(edges >= low) & (edges <= high)]
        edges[0], edges[-1] = min(low, edges[0]), high
        edges, per_octave = _refined(edges, per_octave)
        nodes, spacing = _panels(edges, per_octave)
        shape = (len(edges) - 1, per_octave)
        density = np.nan_to_num(np.asarray(law.pdf(nodes)), posinf=0.0).reshape(shape) * spacing.reshape(shape)
        mass = np.diff(law.cdf(edges))
        mass[0] += float(law.cdf(edges[0]))
        mass[-1] += float(law.sf(edges[-1]))
        total = density.sum(1, keepdims=True)
        share = np.where(total > 0, density / np.where(total > 0, total, 1), 1 / per_octave)
        weights = (share * mass[:, None]).ravel()
        return nodes, weights / weights.sum()

    @property
    def upper(self) -> float:
        """The support's end, or the level that 0.1 % of the mass exceeds."""
        return self._high if math.isfinite(self._high) else float(self.distribution.isf(1e-3))

    def __str__(self) -> str:
        parts = [_number(value) for value in self.distribution.args]
        parts += [f"{name}={_number(value)}" for name, value in self.distribution.kwds.items()]
        return f"{self.distribution.dist.name}({','.join(parts)})"


def as_noise(value: object) -> Noise:
    """A `Noise` from one, from its text, from a number (fixed), or from a frozen scipy.stats distribution."""
    if isinstance(value, Noise):
        return value
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return Fixed(float(value))
    if hasattr(value, "ppf"):
        frozen = Frozen(value)
        # scipy's uniform(1, 2) is ours from 1 to 3: one text must not mean two things.
        return (
            Uniform(*map(float, frozen.distribution.support()))
            if frozen.distribution.dist.name == "uniform"
            else frozen
        )
    refuse("noise must be a distribution", f"a {type(value).__name__}", _EXAMPLES)


def parse(text: str) -> Noise:
    """The distribution that `text` names; the inverse of `str`."""
    if not isinstance(text, str):
        refuse("noise must be written as text", repr(text), _EXAMPLES)
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError
        positional = [ast.literal_eval(item) for item in call.args]
        named = {str(item.arg): ast.literal_eval(item.value) for item in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        refuse("noise must be written as name(numbers)", repr(text[:80]), _EXAMPLES)
    name = call.func.id
    try:
        if name == "fixed":
            return Fixed(*positional, **named)
        if name == "uniform":
            return Uniform(*positional, **named)
        if name == "categorical":
            return Categorical(positional, **named)
        return Frozen(_scipy_distribution(name)(*positional, **named))
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"noise must have the arguments its name takes; got {text[:80]!r}. {_EXAMPLES}") from error


def _scipy_distribution(name: str) -> Any:
    from scipy import stats

    family = getattr(stats, name, None)
    if not isinstance(family, stats.rv_continuous | stats.rv_discrete):
        refuse("noise must name a known distribution", repr(name), _EXAMPLES)
    return family


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
    parts = -(-integer("per_octave", order) // 32)
    if parts == 1:
        return edges, order
    shares = np.arange(parts) / parts
    inner = [np.geomspace(a, b, parts + 1)[:-1] if a > 0 else a + (b - a) * shares for a, b in pairwise(edges)]
    return np.append(np.concatenate(inner), edges[-1]), -(-order // parts)


def _panels(edges: Array, order: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on every panel between neighbouring edges."""
    x, w = np.polynomial.legendre.leggauss(integer("per_octave", order))
    half = np.diff(edges)[:, None] / 2
    nodes = edges[:-1, None] + half * (1 + x)
    return nodes.ravel(), (half * w).ravel()
