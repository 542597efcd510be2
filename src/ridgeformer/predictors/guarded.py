"""Guards of models: a classical predictor where weights cannot be right, and units in which contexts are not too large.

Whatever the noise level is, ridge regression takes every coordinate of the least-squares weights, in the eigenbasis of
S, times a factor between 0 and 1. So the weights of every oracle, and of every average over noise levels, lie in a
box between 0 and least squares. The distance of a model's weights from the box is an error that it certainly makes,
and it can be computed from the moments alone. A model that explodes leaves the box by far. (This is for tasks of mean 0
that are equally likely in all directions; for others use a larger tolerance.)

>>> from ridgeformer import Problem, load
>>> from ridgeformer.predictors import BayesRR, Guarded
>>> model = load("zoo:diag/7/uniform(0,5)")
>>> guarded = Guarded(model, BayesRR("uniform(0,5)"))
>>> print(guarded.check(Problem(noise="uniform(0,5)").moments(1000).moments))
fell back on 0 of 1000 contexts
>>> louder = guarded.check(Problem(noise="fixed(9)").moments(1000).moments)  # trained on noise up to 5
>>> bool(0.01 < louder.share < 0.2)
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse, shown
from ridgeformer.moments import Moments
from ridgeformer.predictors.base import Predictor, check_moments
from ridgeformer.problems import BaseProblem
from ridgeformer.validation import Array, Float, flag, number, positive
from ridgeformer.values import Value

TOLERANCE = 0.3  # of y'y; shipped models of three and more layers stay below it on their own problem


@dataclass(eq=False, repr=False)
class Guarding(Value):
    """On which contexts a guarded model is replaced by its fallback, and why.

    Attributes:
        excess: How far the model's weights are from all that can be right, [B]: the error that they certainly make on
            the context, as a share of the sum of squares of the labels. Infinite where a weight is not finite.
        tolerance: The largest excess that is accepted.
    """

    excess: Array
    tolerance: float

    @property
    def fell_back(self) -> NDArray[np.bool_]:
        """Which contexts the fallback takes, [B]."""
        return np.asarray(~(self.excess <= self.tolerance))

    @property
    def share(self) -> float:
        """The share of contexts that the fallback takes."""
        return float(self.fell_back.mean())

    def __repr__(self) -> str:
        broken = int(np.isinf(self.excess).sum())
        more = f", {broken} of them because weights are not finite" if broken else ""
        return f"fell back on {int(self.fell_back.sum())} of {len(self.excess)} contexts{more}"


class Guarded(Value):
    """A predictor that uses a model where its weights can be right, and a classical predictor where they cannot.

    Args:
        model: The model, or any other predictor that may explode.
        fallback: The predictor that replaces it, such as `BayesRR`.
        tolerance: Which excess is accepted; see `Guarding`. Smaller values fall back more often.

    Raises:
        InputError: One of the two is not a predictor, the model has an intercept, or the tolerance is negative.
    """

    def __init__(self, model: Predictor, fallback: Predictor, tolerance: float = TOLERANCE) -> None:
        for name, predictor in (("model", model), ("fallback", fallback)):
            if isinstance(predictor, type) or not isinstance(predictor, Predictor):
                refuse(
                    f"the {name} must have a method weights(moments)",
                    shown(predictor),
                    "Pass a model or BayesRR(noise).",
                )
        self.model, self.fallback, self.tolerance = model, fallback, number("tolerance", tolerance)
        if getattr(self.layout, "counted", False):
            rule = "a guarded model must have weights alone"
            refuse(rule, f"{model}, with an intercept", "Use a layout without a coordinate.")

    @property
    def layout(self) -> object:
        """The layout of the model's tokens; None where it has none."""
        return getattr(self.model, "layout", None)

    @property
    def knows_sigma(self) -> bool:
        """Whether the model or the fallback uses the true noise level; see `Predictor`."""
        return any(getattr(predictor, "knows_sigma", False) for predictor in (self.model, self.fallback))

    def weights(self, moments: Moments) -> Float:
        """Return w_hat, the model's or the fallback's.

        Args:
            moments: The contexts.

        Returns:
            The weights, [B, d].
        """
        weights, guarding = self._both(moments)
        if len(index := np.flatnonzero(guarding.fell_back)):
            weights = weights.copy()
            weights[index] = self.fallback.weights(moments.chosen(index))
        return weights

    def check(self, moments: Moments) -> Guarding:
        """Report on which contexts the model is replaced, and how often.

        Args:
            moments: The contexts.

        Returns:
            The report.
        """
        return self._both(moments)[1]

    def _both(self, moments: Moments) -> tuple[Float, Guarding]:
        check_moments(moments)
        with np.errstate(all="ignore"):
            weights = np.asarray(self.model.weights(moments))
        excess = np.empty(len(moments))
        for index, part in moments.by_length():
            excess[index] = _excess(weights[index], part)
        return weights, Guarding(excess, self.tolerance)

    def __repr__(self) -> str:
        return f"Guarded({self.model!r}, {self.fallback!r})"


def _excess(weights: Float, moments: Moments) -> Array:
    """The squared distance from the box, over y'y, [B].

    The distance is taken in the metric S, in which it is an error of predictions on the context. Eigenvalues below
    their mean count as the mean, because queries may be larger than the context in these directions.
    """
    spectrum = moments.spectrum
    least_squares = np.zeros((len(weights), spectrum.dim))
    least_squares[:, spectrum.dim - spectrum.c.shape[1] :] = spectrum.c / spectrum.values
    values, vectors = spectrum.values, spectrum.vectors
    if spectrum.c.shape[1] < spectrum.dim:
        values, vectors = np.linalg.eigh(moments.S.astype(np.float64))
    with np.errstate(all="ignore"):
        mine = np.einsum("bim,bi->bm", vectors, weights.astype(np.float64))
        outside = mine - np.clip(mine, np.minimum(least_squares, 0.0), np.maximum(least_squares, 0.0))
        metric = np.maximum(values, values.mean(1, keepdims=True))
        excess = (metric * outside**2).sum(1) / np.maximum(spectrum.total, np.finfo(np.float64).tiny)
    return np.where(np.isfinite(excess), excess, np.inf)


class Universal:
    """A model that was trained at many dimensions, with a guard against contexts that are larger than its own.

    A model is a polynomial of its context, and polynomials explode on inputs that are larger than those of training.
    Three changes of units and a limit prevent that. The changes are exact: the weights are translated back.

    1. Features and labels are divided by c, where c^2 is the largest of three numbers: 1; tr S / (n d), the mean square
       of the features; and the size of (tr S^4)^(1/4) / n, which is at least the largest eigenvalue of S / n, relative
       to `WIDEST` times what it is when d is large. The task stays the same; the noise level is divided by c too.
    2. Labels are divided by sqrt(signal), so that tasks are those of training, N(0, I / d).
    3. Labels whose mean square is still above `LARGEST`, or whose sum y x / n is longer than `LONGEST`, which is rare,
       are divided down to it.
    4. Weights that are longer than `LENGTH` sqrt(signal) are shortened to that length, and weights that overflow are 0.
       Tasks of this length do not occur in practice: for d = 2 their probability is e^-25.

    So the model only sees contexts with tr S <= n d, y'y <= 5 n and eigenvalues of S below a bound, and no estimate is
    longer than 5 sqrt(signal). A loss above 100 signals, which counts as exploded, then needs an oracle that is longer
    than 9.14 sqrt(signal); see `explosion_probability` for what follows.

    Args:
        model: A model whose parameters have no d in them, such as `load("zoo:universal/8")`.
        signal: The mean square of <w, x> for features of size 1. Default: None for d, with tasks N(0, I); noise levels
            from 0 to 1.6 sqrt(d) are then those of training. 1 for tasks N(0, I / d), `tasks="gaussian(signal=1)"`.
        own_scale: Whether to divide labels by their own root mean square instead, times sqrt(1 + E r^2) = 1.36 of
            training: then the weights for labels c y are exactly c times those for y, whatever the unit of the labels.
            Default: False.

    Raises:
        InputError: Both `signal` and `own_scale` are given.
    """

    SIZE = float(np.sqrt(1 + 1.6**2 / 3))  # the root mean square of labels in training
    LARGEST = 5.0  # the largest mean square of labels that a model sees
    LONGEST = 3.5  # the largest length of sum y x / n that a model sees
    WIDEST = 1.15  # the largest (tr S^4)^(1/4) that a model sees, relative to its limit for large d
    LENGTH = 5.0  # the length of the longest weights, in sqrt(signal)

    def __init__(self, model: Any, *, signal: float | None = None, own_scale: bool = False) -> None:
        if flag("own_scale", own_scale) and signal is not None:
            rule = "labels have either their own scale or a given signal"
            refuse(rule, f"signal={shown(signal)} with own_scale=True", "Leave one out.")
        self.model, self.own_scale = model, own_scale
        self.signal = None if signal is None else positive("signal", signal, 1.0)

    def weights(self, moments: Moments) -> Float:
        """Return the weights of contexts of any dimension.

        Args:
            moments: The contexts.

        Returns:
            The weights, [B, d].
        """
        scaled, unit, longest = self.in_units(moments)
        with np.errstate(all="ignore"):
            weights = unit[:, None] * self.model.at_dim(moments.dim).weights(scaled)
            length = np.linalg.norm(weights, axis=1)
            shortened = weights * (longest / np.maximum(length, longest))[:, None]
        return np.where(np.isfinite(length)[:, None], shortened, 0.0)

    def longest(self, problem: BaseProblem) -> float:
        """Return the length that no weights of a problem exceed.

        Args:
            problem: The distribution of sequences.

        Returns:
            The length; infinite where labels have their own scale, because it then depends on the context.
        """
        signal = problem.dim if self.signal is None else self.signal
        return float(np.inf if self.own_scale else self.LENGTH * np.sqrt(signal))

    def in_units(self, moments: Moments) -> tuple[Moments, Float, Float]:
        """Return the contexts as the model sees them.

        Args:
            moments: The contexts. Features that are 0 in all examples do not count as features.

        Returns:
            The contexts in the model's units; the unit of their labels, [B], by which what the model returns is
            multiplied; and the length of the longest weights, [B].
        """
        gram, n = np.array(moments.gram, np.float64), np.asarray(moments.counts, np.float64)
        squares = np.einsum("bii->bi", gram)[:, :-1]
        d = np.maximum((squares > 0).sum(1), 1)
        r = d / n
        fourth = np.square(np.matmul(gram[:, :-1, :-1], gram[:, :-1, :-1])).sum((1, 2)) / n**4
        wide = (fourth / (d * (1 + 6 * r + 6 * r**2 + r**3))) ** 0.25 / self.WIDEST
        size = np.maximum(np.maximum(squares.sum(1) / (n * d), wide), 1.0)
        gram /= size[:, None, None]
        labels = gram[:, -1, -1] / n
        unit = np.sqrt(d if self.signal is None else np.full(len(n), float(self.signal)))
        if self.own_scale:
            unit = np.where(labels > 0, np.sqrt(labels) / self.SIZE, 1.0)
        longest = self.LENGTH * unit
        moment = np.sqrt(np.square(gram[:, :-1, -1]).sum(1)) / n
        unit = np.maximum(unit, np.maximum(np.sqrt(labels / self.LARGEST), moment / self.LONGEST))
        gram[:, :-1, -1] /= unit[:, None]
        gram[:, -1, :-1] /= unit[:, None]
        gram[:, -1, -1] /= unit**2
        sigma = None if moments.sigma is None else moments.sigma / (np.sqrt(size) * unit)
        return Moments._trusted(gram.astype(moments.dtype, copy=False), moments.context, sigma), unit, longest

    def constants(self, library: str) -> dict[str, str]:
        """Return the numbers of the changes of units as source code, for exported modules.

        Args:
            library: `np` or `torch`, whose function `sqrt` may be used.

        Returns:
            The texts: `widest`, `largest`, `longest` and `length`, and `unit`, an expression of the dimension `d` or of
            `size`, the mean square of the labels.
        """
        unit = f"{float(self.signal) ** 0.5!r}" if self.signal is not None else "d**0.5"
        if self.own_scale:
            unit = f"{library}.where(size > 0, {library}.sqrt(size) / {self.SIZE!r}, 1.0)"
        names = ("widest", "largest", "longest", "length")
        return {"unit": unit, **{name: repr(getattr(self, name.upper())) for name in names}}

    def __repr__(self) -> str:
        signal = "" if self.signal is None else f", signal={self.signal:g}"
        return f"Universal({shown(self.model, 200)}{signal}{', own_scale=True' if self.own_scale else ''})"
