"""All statements, run one after another."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable

from ridgeformer.papers.vladymyrov2024.theory.statement import Bound
from ridgeformer.validation import choice, integer

__all__ = ["STATEMENTS", "verify"]

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
    chosen = [name for name in STATEMENTS if not only or name in only]
    checks: list[Bound] = []
    for done, name in enumerate(chosen):
        if progress is not None:
            progress(name, done, len(chosen))
        checks += importlib.import_module(f"ridgeformer.papers.vladymyrov2024.theory.{name}").check(seed)
    return checks
