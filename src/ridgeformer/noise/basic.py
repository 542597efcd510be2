"""Noise levels that are fixed, one of a list, or uniform on an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import refuse
from ridgeformer.noise.base import LARGEST, TAIL, Array, Noise, check_tail, number_text, octaves, panels, refined
from ridgeformer.validation import array
from ridgeformer.values import read_only


class Fixed(Noise):
    """The same noise level for every sequence.

    Args:
        sigma: The noise level, a standard deviation from 0 to 1e12.

    Raises:
        InputError: `sigma` is not such a number.
    """

    _built_in = True

    def __init__(self, sigma: float) -> None:
        self.sigma = _level("noise level", sigma)

    def quantile(self, u: Array) -> Array:
        """Return the level itself, for every u. See `Noise.quantile`."""
        return np.full(np.shape(u), self.sigma)

    @property
    def second_moment(self) -> float:
        """The square of sigma."""
        return self.sigma**2

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Tell which levels equal sigma. See `Noise.contains`."""
        return np.isclose(sigma, self.sigma, rtol=1e-9, atol=0)

    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """Return one node. See `Noise.quadrature`."""
        return read_only(np.array([self.sigma])), read_only(np.ones(1))

    @property
    def upper(self) -> float:
        """The level itself."""
        return self.sigma

    def __str__(self) -> str:
        return f"fixed({number_text(self.sigma)})"


class Categorical(Noise):
    """One of several noise levels.

    Args:
        levels: The levels, different standard deviations from 0 to 1e12.
        weights: Their probabilities, which sum to 1; None for equal ones.

    Raises:
        InputError: Levels or weights are not such numbers.
    """

    _built_in = True

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
        """Return the level whose share of (0, 1) u falls in. See `Noise.quantile`."""
        edges = np.cumsum(self.weights)[:-1]
        return np.asarray(self.levels)[np.searchsorted(edges, u, side="right")]

    @property
    def second_moment(self) -> float:
        """The weighted mean of the squared levels."""
        return float(self.weights @ self.levels**2)

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Tell which levels are among those that have weight. See `Noise.contains`."""
        given = np.asarray(sigma, float)[..., None]
        return np.asarray(np.isclose(given, self.levels[self.weights > 0], rtol=1e-9, atol=0).any(-1), bool)

    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """Return the levels that have weight. See `Noise.quadrature`."""
        kept = self.weights > 0
        return read_only(self.levels[kept]), read_only(self.weights[kept])

    @property
    def upper(self) -> float:
        """The largest level."""
        return float(self.levels.max())

    def __str__(self) -> str:
        inner = ",".join(map(number_text, self.levels))
        if not self._equal:
            inner += ",weights=(" + ",".join(map(number_text, self.weights)) + ",)"
        return f"categorical({inner})"


class Uniform(Noise):
    """A noise level that is uniform on an interval.

    Args:
        low: The least level, a standard deviation from 0 to 1e12.
        high: The largest level, at least `low`.

    Raises:
        InputError: The levels are not such numbers.
    """

    _built_in = True

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
        given = np.asarray(sigma, float)
        return (given >= self.low) & (given <= self.high)

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

    def __str__(self) -> str:
        return f"uniform({number_text(self.low)},{number_text(self.high)})"


def _level(name: str, value: object) -> float:
    """`value` as a finite level, not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        refuse(f"{name} must be a number", repr(value), "Pass a number of at least 0.")
    try:
        level = float(value)
    except OverflowError:
        level = math.inf
    if not math.isfinite(level):
        refuse(f"{name} must be finite", level, "Pass a number of at least 0.")
    if level < 0:
        refuse(f"{name} must not be negative", level, "Pass a number of at least 0.")
    if level > LARGEST:
        refuse(f"{name} must be at most {LARGEST:g}, where no signal is left", level, "Pass a smaller number.")
    return level + 0.0  # -0.0 becomes 0.0
