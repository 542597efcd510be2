"""The paper's statements as running checks: each module holds one statement's mathematics and its `check`.

>>> from ridgeformer.papers.vladymyrov2024.theory.verification import verify
>>> [check.passed for check in verify(["linear_model"])]
[True, True, True, True, True, True, True, True]
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ridgeformer import exact
from ridgeformer.files import jsonable
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import Problem
from ridgeformer.validation import choice, integer


@dataclass(frozen=True)
class Bound:
    """One measured claim of a statement.

    Attributes:
        what: The claim, in a few words.
        error: The measured error, at least 0: the smaller, the better the claim holds.
        bound: The largest error with which the claim stands.
        facts: Further measured numbers, by name, for the record.
        as_printed: The error of the formula that the paper prints, where it is another one.
        statement: The name of the module, such as `momentum`, which `verify` fills in: the argument of
            `ridgeformer papers verify --only`.

    >>> Bound("w, exactly", error=3e-15, bound=1e-10).passed
    True
    """

    what: str
    error: float
    bound: float
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    as_printed: float | None = None
    statement: str = ""

    @property
    def passed(self) -> bool:
        """Whether the error keeps its bound. An error that is not a number does not."""
        return bool(self.error <= self.bound)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON; what is not finite is None."""
        fields = {name: jsonable(value) for name, value in vars(self).items()}
        return {**fields, "passed": self.passed}


def relative_error(values: ArrayLike, truth: ArrayLike, apart: int = 0) -> float:
    """Compute the largest difference of two arrays, relative to the largest entry of the second.

    Args:
        values: An array.
        truth: An array of the same shape. If all its entries are 0, the difference is divided by 1.
        apart: Along this many first axes every slice is measured by its own largest entry: no large one hides a small
            one's error.

    Returns:
        The error; infinite where either array is not finite.
    """
    values, truth = np.asarray(values, np.float64), np.asarray(truth, np.float64)
    if values.shape != truth.shape or not (np.isfinite(values).all() and np.isfinite(truth).all()):
        return float("inf")
    shape = (*truth.shape[:apart], -1)
    size = np.abs(truth.reshape(shape)).max(-1)
    return float((np.abs(values - truth).reshape(shape).max(-1) / np.where(size > 0, size, 1.0)).max())


def fitted_power(what: str, values: Mapping[float, float], power: float, bound: float, **facts: Any) -> Bound:
    """Check with which power numbers fall or grow, by a straight line through their logarithms.

    Args:
        what: The claim, in a few words.
        values: The numbers by what they depend on.
        power: The power that is claimed.
        bound: The largest difference with which the claim stands.
        **facts: Further measured numbers, for the record.

    Returns:
        The check.
    """
    order = float(np.polyfit(np.log(list(values)), np.log(list(values.values())), 1)[0])
    return Bound(f"{what}, difference of the exponent", abs(order - power), bound, {"order": order, **facts})


@functools.lru_cache(maxsize=64)
def trained_gdpp(problem: Problem, layers: int) -> LinearTransformer:
    """Return the best GD++ model of a problem that a search without sampling finds.

    Args:
        problem: The problem.
        layers: Layers of the model.

    Returns:
        The model.
    """
    return LinearTransformer(exact.least_excess_loss(problem, layers), problem.dim)


def random_model(
    family: str, *, dim: int, context: int, layers: int, heads: int = 1, seed: int = 0
) -> LinearTransformer:
    """Make a random model whose layers move tokens by up to some tenths of their size.

    The Gram matrix has a norm of about n d or more, and Full matrices one of 2 sqrt(D) times their entries' spread.
    Flows out of y feed on themselves, so Diag takes smaller parameters than GD++.

    Args:
        family: The name of a family.
        dim: The dimension d.
        context: The number n of context tokens that it will see.
        layers: Layers of the model.
        heads: Heads per layer.
        seed: Seed of the parameters.

    Returns:
        The model.

    >>> random_model("diag", dim=3, context=9, layers=2)
    LinearTransformer(diag, dim=3, layers=2, heads=1)
    """
    dim, context, heads = integer("dim", dim), integer("context", context), integer("heads", heads)
    size = {"full": 0.7 / np.sqrt(dim + 1), "diag": 0.6}.get(family, 1.2)
    shape: dict[str, Any] = {
        "dim": dim,
        "layers": layers,
        "heads": heads,
        "context": 2 * (context + dim + 1) * (dim + 1),
    }
    return LinearTransformer.random(family, **shape, scale=size / np.sqrt(heads), seed=seed)


def random_cases(
    what: str, cases: Iterable[tuple[str, int, int, int]], seed: int, form: str = "{}"
) -> dict[str, tuple[LinearTransformer, Problem]]:
    """Make random models of seven layers with problems of their size.

    Args:
        what: How the names of the cases begin.
        cases: The family, the heads, d and n of each.
        seed: Seed of the models.
        form: How the heads, d and n are named.

    Returns:
        The models and problems by name.
    """
    models = {}
    for family, heads, dim, context in cases:
        name = f"{what}, {family}, {form.format(f'{heads} head' + 's' * (heads > 1), dim, context)}"
        model = random_model(family, dim=dim, context=context, layers=7, heads=heads, seed=seed)
        models[name] = model, Problem(dim, context, "uniform(0,1)")
    return models


STATEMENTS = {
    "linear_model": "Every layer maintains an implicit linear model",
    "quadratic": "Linear transformers cannot represent a quadratic function",
    "momentum": "Diagonal layers are gradient descent with momentum",
    "heads": "One head constrains the coefficients of a diagonal layer; two heads reach all of them",
    "second_order": "GD++ is a second-order method",
    "rescaling": "omega_yy adapts the scale of the prediction to the noise",
    "step_size": "omega_xy adapts the step size to the noise",
    "fixed_noise": "GD++ depends on the noise only through E[sigma^2]",
}


def verify(
    only: Iterable[str] = (), *, seed: int = 0, progress: Callable[[str, int, int], None] | None = None
) -> list[Bound]:
    """Run the checks of the paper's statements, in the paper's order.

    Args:
        only: Names of statements; all if none is named.
        seed: Seed of the models and sequences.
        progress: Is called before each statement with its name, the number of statements done and that of all.

    Returns:
        The checks.

    Raises:
        InputError: There is no such statement.

    >>> all(check.passed for check in verify(["momentum"]))
    True
    """
    only = [only] if isinstance(only, str) else list(only)
    for name in only:
        choice("a statement", name, STATEMENTS)
    seed = integer("seed", seed, 0)
    names = [name for name in STATEMENTS if not only or name in only]
    checks: list[Bound] = []
    for done, name in enumerate(names):
        if progress is not None:
            progress(name, done, len(names))
        module = importlib.import_module(f"{__package__}.{name}")
        checks += [replace(bound, statement=name) for bound in module.check(seed)]
    return checks
