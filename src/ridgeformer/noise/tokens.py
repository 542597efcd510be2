"""Noise that differs from token to token: each has a level of its own, or it is Student's t.

Given its level, the noise of a token is Gaussian. Student's t with nu degrees of freedom is such a law, too: its levels
are scale * sqrt(nu / chi^2) with chi^2 of nu degrees of freedom.

Whoever sees the Gram matrix only cannot tell these laws from one level for each sequence. The directions of Gaussian
features are random, so only the length of the vector of noise matters, which is that of n tokens with the level
sqrt(sum_i u_i^2 sigma_i^2), where u is uniform on the unit sphere. `of_gram` is the law of that level.

>>> from ridgeformer.noise import parse
>>> parse("tokens(uniform(0,5))").second_moment == parse("uniform(0,5)").second_moment
True
>>> parse("student(4,1)").second_moment  # scale^2 nu / (nu - 2)
2.0
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import refuse
from ridgeformer.noise.base import TAIL, Categorical, Fixed, Noise, check_tail, octaves, panels, refined
from ridgeformer.validation import Array, number
from ridgeformer.values import read_only

DRAWN, BINS = 1 << 16, 160  # levels that `of_gram` counts, and in how many bins
PER_OCTAVE, REST = 4, 1e-3  # of the nodes between which a Gibbs sampler moves
LEAST = 1e-4  # of the largest level: smaller ones are taken for this one by a Gibbs sampler


class Tokens(Noise):
    """A noise level for each token, drawn from a law of levels.

    Args:
        levels: The law of the levels, which is one of levels of sequences, such as `Uniform(0, 5)`; or a single level.

    Raises:
        InputError: It is no such law.
    """

    name = "tokens"
    words = "each token has a level sigma of its own, from {levels}"
    per_token = True

    def __init__(self, levels: Noise | float) -> None:
        self.levels = Noise.of(levels)
        if self.levels.per_token:
            refuse("the levels of tokens have a law of levels", levels, "Write tokens(uniform(0,5)), for example.")

    def quantile(self, u: Array) -> Array:
        """Return quantiles of the law of levels. See `Noise.quantile`."""
        return self.levels.quantile(u)

    @property
    def second_moment(self) -> float:
        """E[sigma^2] of a token."""
        return self.levels.second_moment

    @property
    def fourth_moment(self) -> float:
        """E[sigma^4] of a token, which may be infinite."""
        return self.levels.fourth_moment

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Tell which levels a token can have. See `Noise.contains`."""
        return self.levels.contains(sigma)

    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """Return the rule of the law of levels. See `Noise.quadrature`."""
        return self.levels.quadrature(per_octave, tail)

    @property
    def lower(self) -> float:
        """The least level of a token."""
        return self.levels.lower

    @property
    def upper(self) -> float:
        """The largest level of a token, or the one that only 0.1 % of the mass exceeds."""
        return self.levels.upper

    @property
    def has_text(self) -> bool:
        """Whether this law and that of levels have texts."""
        return super().has_text and self.levels.has_text

    def of_gram(self, context: int) -> Noise:
        """Return the law of one level for each sequence that gives Gram matrices the same law.

        Args:
            context: The number of tokens n.

        Returns:
            The law, from 65,536 random draws in 160 bins.
        """
        return _of_gram(self, context)

    @property
    def nodes(self) -> tuple[Array, Array]:
        """The levels between which a Gibbs sampler moves, and their probabilities; very small levels are one level."""
        nodes, prior = self.quadrature(per_octave=PER_OCTAVE, tail=REST)
        return np.maximum(nodes[prior > 0], LEAST * self.upper), prior[prior > 0]


class Student(Tokens):
    """Noise that is a multiple of Student's t, which has heavy tails.

    Args:
        freedom: The degrees of freedom nu, more than 2, so that the variance is finite.
        scale: What t is multiplied by.

    Raises:
        InputError: A number is out of range.
    """

    name = "student"
    words = "noise is {scale:g} times Student's t with {freedom:g} degrees of freedom"

    def __init__(self, freedom: float, scale: float = 1.0) -> None:
        self.freedom, self.scale = number("the degrees of freedom of student", freedom), number("the scale", scale)
        if not 2 < self.freedom <= 1e6:
            refuse("student needs more than 2 degrees of freedom, and at most 1e6", self.freedom, "Write student(4,1).")
        if not 0 < self.scale <= 1e12:
            refuse("the scale of student must be positive and at most 1e12", self.scale, "Write student(4,1).")
        super().__init__(_StudentLevels(self.freedom, self.scale))

    @property
    def has_text(self) -> bool:
        """See `Described.has_text`."""
        return "name" in vars(type(self))

    def _text(self, write: Callable[[Any], str]) -> str:
        return f"student({write(self.freedom)},{write(self.scale)})"


class _StudentLevels(Noise):
    """The levels scale * sqrt(nu / chi^2) of Student's t."""

    def __init__(self, freedom: float, scale: float) -> None:
        self.freedom, self.scale = freedom, scale

    def quantile(self, u: Array) -> Array:
        from scipy.special import gammainccinv

        return np.asarray(self.scale * np.sqrt(self.freedom / 2 / gammainccinv(self.freedom / 2, u)))

    @property
    def second_moment(self) -> float:
        return self.scale**2 * self.freedom / (self.freedom - 2)

    @property
    def fourth_moment(self) -> float:
        nu = self.freedom
        return self.scale**4 * nu**2 / ((nu - 2) * (nu - 4)) if nu > 4 else np.inf

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        return np.asarray(sigma, float) > 0

    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        from scipy.special import gammaln

        check_tail(tail)
        low, high = self.quantile(np.array([tail, 1 - tail]))
        nodes, spacing = panels(*refined(octaves(low, high), per_octave))
        half, x = self.freedom / 2, self.freedom * self.scale**2 / nodes**2  # x is chi^2
        weights = spacing * np.exp(half * np.log(x / 2) - x / 2 - gammaln(half)) * 2 / nodes
        return read_only(nodes), read_only(weights / weights.sum())

    @property
    def upper(self) -> float:
        return float(self.quantile(np.array([0.999]))[0])


@lru_cache(maxsize=64)
def _of_gram(noise: Tokens, context: int) -> Noise:
    rng, variances = np.random.default_rng(5), np.empty(DRAWN)
    size = max(1, (1 << 20) // context)
    for start in range(0, DRAWN, size):
        part = variances[start : start + size]
        squares = np.square(rng.standard_normal((len(part), context)))
        levels = noise.levels.quantile(rng.random(squares.shape))
        part[:] = (squares * levels**2).sum(1) / squares.sum(1)
    if np.ptp(variances) < 1e-12 * variances.max():
        return Fixed(float(np.sqrt(variances.mean())))
    logs = np.log(np.maximum(variances, 1e-12 * variances.max()))
    bins = np.minimum(((logs - logs.min()) / np.ptp(logs) * BINS).astype(int), BINS - 1)
    counts, sums = np.bincount(bins, minlength=BINS), np.bincount(bins, variances, BINS)
    occupied = counts > 0
    return Categorical(np.sqrt(sums[occupied] / counts[occupied]), counts[occupied] / DRAWN)
