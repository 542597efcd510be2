"""Distributions as text: `parse` and `str` are inverse to each other."""

from __future__ import annotations

import numpy as np

from ridgeformer.errors import InputError, refuse
from ridgeformer.noise.base import EXAMPLES, Noise
from ridgeformer.noise.basic import Categorical, Fixed, Uniform
from ridgeformer.noise.frozen import Frozen, parse_scipy, read_call

__all__ = ["as_noise", "check_text", "parse"]


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
    refuse("noise must be a distribution", f"a {type(value).__name__}", EXAMPLES)


def check_text(noise: Noise) -> str:
    """The text of a distribution, which names runs; refuses a distribution that has none.

    Raises:
        InputError: The distribution is of a class of the user's own, so no text can be read back as the same law.
    """
    if not noise.has_text:
        refuse(
            "a run is named after its problem, so its noise must be one that text can describe",
            f"a {type(noise).__name__} of your own",
            f"Evaluate with it without naming a run, or train on a built-in one. {EXAMPLES}",
        )
    return str(noise)


def parse(text: str) -> Noise:
    """The distribution that `text` names; the inverse of `str`.

    >>> parse("categorical(1,3)").second_moment
    5.0
    """
    name, positional, named = read_call(text)
    try:
        if name == "fixed":
            return Fixed(*positional, **named)
        if name == "uniform":
            return Uniform(*positional, **named)
        if name == "categorical":
            return Categorical(positional, **named)
        found: Noise = Frozen(parse_scipy(text))
        return found
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"noise must have the arguments its name takes; got {text[:80]!r}. {EXAMPLES}") from error
