"""Noise levels from any frozen scipy.stats distribution, within bounds of time and memory."""

from __future__ import annotations

import ast
import contextlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import InputError, refuse, shown
from ridgeformer.noise.base import LARGEST, TAIL, Noise, Uniform, check_tail, octaves, panels, refined
from ridgeformer.validation import Array
from ridgeformer.values import read_only, written

MOST_LEVELS = 10_000  # of a discrete distribution: floors are sums over all of them
EXTREMES = (1e-6, 1e6)  # sizes of a scipy distribution's parameters
SLOW = ("ksone", "kstwo", "ncf", "rice", "erlang")  # whose moments or quantiles take scipy seconds for some parameters


class Frozen(Noise):
    """A frozen scipy.stats distribution on [0, inf), continuous or discrete, with a finite E[sigma^2].

    scipy's `uniform(1, 2)` is the interval from 1 to 3, so `Frozen(scipy.stats.uniform(1, 2))` gives `Uniform(1, 3)`.

    Args:
        distribution: The distribution, such as `scipy.stats.expon(scale=2)`.

    Raises:
        InputError: It is not a frozen distribution of scipy.stats, has negative or huge levels or an infinite mean
            square, or scipy would take minutes to compute its quantiles.
    """

    name = "scipy.stats"

    def __new__(cls, distribution: Any) -> Any:
        """Give a `Uniform` for scipy's uniform distribution, whose parameters mean something else."""
        if cls is Frozen and _is_frozen(distribution) and _name(distribution) == "uniform":
            return Uniform(*map(float, distribution.support()))
        return super().__new__(cls)

    def __init__(self, distribution: Any) -> None:
        if not _is_frozen(distribution):
            refuse("noise must be a frozen scipy.stats distribution", type(distribution).__name__, Noise.examples)
        self._named, parameters = _described(distribution)
        try:
            with _quietly():
                self._prepare(distribution, *parameters)
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            raise InputError(
                f"a distribution must have parameters that scipy can compute with; got {self._named} ({error}). "
                "Check their signs and ranges."
            ) from error

    def _prepare(self, distribution: Any, positional: list[Any], named: dict[str, Any]) -> None:
        _check_quantiles(distribution, self._named)
        law = self._law = _scipy_law(_name(distribution), *positional, **named)
        self._discrete = hasattr(law.dist, "_nonzero")
        low, high = map(float, law.support())
        if math.isnan(low):
            refuse("a distribution must have valid parameters", self._named, "Check their signs and ranges.")
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
            rule = f"noise levels must stay below {LARGEST:g}, where no signal is left"
            refuse(rule, f"{self._named} with a mean square of {moment:.3g}", "Pass a smaller scale.")
        levels = largest - float(law.ppf(TAIL)) + 1 if variance <= MOST_LEVELS**2 else math.inf
        if self._discrete and not levels <= MOST_LEVELS:
            rule = f"discrete noise must have at most {MOST_LEVELS:,} levels"
            refuse(rule, f"{self._named} with more", "Choose a continuous distribution, or fewer levels.")
        _check_same(law, distribution, self._named)
        self._second_moment = moment

    @property
    def distribution(self) -> Any:
        """The distribution as a frozen scipy.stats one; changing it changes nothing here."""
        return _scipy_law(_name(self._law), *self._law.args, **self._law.kwds)

    def quantile(self, u: Array) -> Array:
        """Return the distribution's `ppf`. See `Noise.quantile`."""
        with _quietly():
            return np.asarray(self._law.ppf(u), float)

    @property
    def second_moment(self) -> float:
        """The distribution's second moment."""
        return self._second_moment

    @property
    def fourth_moment(self) -> float:
        """E[sigma^4]: by quadrature on a bounded support, else from the kurtosis; infinite where that is."""
        if math.isfinite(self._high):
            return super().fourth_moment
        with _quietly():
            mean, variance, skewness, excess = map(float, self._law.stats("mvsk"))
        moment = (excess + 3) * variance**2 + 4 * mean * skewness * variance**1.5 + 6 * mean**2 * variance + mean**4
        return moment if math.isfinite(moment) else math.inf

    def contains(self, sigma: ArrayLike) -> NDArray[np.bool_]:
        """Tell which levels lie in the support and, if it is discrete, have probability. See `Noise.contains`."""
        values = np.asarray(sigma, float)
        inside = (values >= self._low) & (values <= self._high)
        if self._discrete:
            return inside & (np.asarray(self._law.pmf(values)) > 0)
        return inside

    def quadrature(self, per_octave: int = 12, tail: float = TAIL) -> tuple[Array, Array]:
        """Make a Gauss-Legendre rule on octaves that are cut at the quantiles too. See `Noise.quadrature`.

        Every panel carries exactly its probability.
        """
        check_tail(tail)
        with _quietly():
            nodes, weights = self._levels(tail) if self._discrete else self._octaves(per_octave, tail)
        positive = weights > 0
        nodes, weights = nodes[positive], weights[positive]
        if not (len(nodes) and np.isfinite(nodes).all() and np.isfinite(weights).all()):
            refuse("a distribution must have a finite density", self._named, "Check its parameters.")
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
        edges = np.unique(np.concatenate([octaves(smallest, high), quantiles]))
        edges = np.unique(np.concatenate([[low], edges[(edges >= smallest) & (edges <= high)], [high]]))
        edges, per_octave = refined(edges, per_octave)
        nodes, spacing = panels(edges, per_octave)
        shape = (len(edges) - 1, per_octave)
        density = np.nan_to_num(np.asarray(law.pdf(nodes)), posinf=0.0).reshape(shape) * spacing.reshape(shape)
        mass = np.diff(law.cdf(edges))
        mass[0] += float(law.cdf(edges[0]))
        mass[-1] += float(law.sf(edges[-1]))
        total = density.sum(1, keepdims=True)
        share = np.where(total > 0, density / np.where(total > 0, total, 1), 1 / per_octave)
        return nodes, np.asarray(share * mass[:, None]).ravel()

    @property
    def lower(self) -> float:
        """The support's beginning."""
        return self._low

    @property
    def upper(self) -> float:
        """The support's end, or the level that 0.1 % of the mass exceeds."""
        return self._high if math.isfinite(self._high) else float(self._law.isf(1e-3))

    def _text(self, write: Callable[[Any], str]) -> str:
        return self._named

    def __reduce__(self) -> Any:
        return Frozen, (self.distribution,)


def _is_frozen(distribution: Any) -> bool:
    from scipy.stats._distn_infrastructure import rv_frozen

    return isinstance(distribution, rv_frozen)


def _name(distribution: Any) -> str:
    return str(distribution.dist.name)


def _described(distribution: Any) -> tuple[str, tuple[list[Any], dict[str, Any]]]:
    """A frozen distribution as text, such as expon(scale=2), and its parameters as this text has them."""
    values = (*distribution.args, *distribution.kwds.values())
    if any(np.ndim(value) for value in values):
        refuse("a distribution must have single numbers as parameters", "arrays", "Pass one number for each parameter.")
    if not all(isinstance(value, Real) for value in values):
        refuse("a distribution must have numbers as parameters", ", ".join(map(repr, values))[:80], Noise.examples)
    _check_sizes(values)
    positional = [written(float(value)) for value in distribution.args]
    named = {name: written(float(value)) for name, value in distribution.kwds.items()}
    text = f"{_name(distribution)}({','.join([*positional, *(f'{name}={value}' for name, value in named.items())])})"
    numbers = [*map(ast.literal_eval, positional)], {name: ast.literal_eval(value) for name, value in named.items()}
    return text, numbers


def _check_sizes(values: Iterable[Any]) -> None:
    """Refuse extreme parameters: some of scipy's functions never return for them, or fail on their many digits."""
    numbers: list[Any] = [value for value in values if isinstance(value, Real)]
    odd = [value for value in numbers if value and not EXTREMES[0] <= abs(value) <= EXTREMES[1]]
    if odd:
        rule = f"a distribution's parameters must be 0 or have a size from {EXTREMES[0]:g} to {EXTREMES[1]:g}"
        refuse(rule, shown(odd[0]), "Pass a number between these.")


def _check_quantiles(distribution: Any, text: str) -> None:
    """Refuse what scipy does not name or is slow to compute."""
    from scipy import stats

    name = _name(distribution)
    if type(getattr(stats, name, None)) is not type(distribution.dist):
        refuse("a distribution must be one that scipy.stats names", name, "Use Categorical for a list of levels.")
    generic = (stats.rv_continuous._ppf, stats.rv_discrete._ppf)
    kind: Any = type(distribution.dist)
    if kind._ppf in generic or name in SLOW:
        rule = "noise must have quantiles that scipy computes directly"
        received = f"{text}, whose quantiles scipy finds by numerical search, which would take minutes"
        refuse(rule, received, "Choose another distribution, or Categorical with a list of levels.")


def _check_same(law: Any, distribution: Any, text: str) -> None:
    """Refuse a distribution that is not the one its text describes."""
    chances = np.array([0.01, 0.3, 0.7, 0.99])
    pairs = [(law.support(), distribution.support()), (law.ppf(chances), distribution.ppf(chances))]
    if not all(np.array_equal(mine, theirs, equal_nan=True) for mine, theirs in pairs):
        rule = "a distribution must be the one that its name and parameters describe"
        refuse(rule, f"another one called {text}", "Use scipy.stats directly, without changing the distribution.")
    if not np.isfinite(pairs[1]).all():
        refuse("a distribution must have finite quantiles", text, "Check its parameters.")


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Silences what scipy says about parameters; results are checked instead."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _scipy_law(name: str, *positional: Any, **named: Any) -> Any:
    """The frozen scipy.stats distribution with a name and parameters."""
    from scipy import stats

    family = getattr(stats, name, None)
    if not isinstance(family, stats.rv_continuous | stats.rv_discrete):
        refuse("noise must name a known distribution", shown(name), Noise.examples)
    _check_sizes((*positional, *named.values()))  # before scipy sees them: what it raises differs between versions
    with _quietly():
        return family(*positional, **named)


Noise.known["a name of scipy.stats"] = lambda *name, **named: Frozen(_scipy_law(*name, **named))
