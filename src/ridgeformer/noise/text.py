"""Distributions as text: `parse` and `str` are inverse to each other."""

from __future__ import annotations

import re

import numpy as np

from ridgeformer.errors import InputError, kind_of, refuse
from ridgeformer.noise.base import EXAMPLES, Categorical, Fixed, Noise, Uniform
from ridgeformer.noise.frozen import Frozen, parse_scipy, read_call
from ridgeformer.noise.tokens import Student, Tokens

NUMBER = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?")
PER_TOKEN = re.compile(r"tokens\((.*)\)", re.DOTALL)


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
    if isinstance(value, Noise):
        return value
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return Fixed(float(value))
    if hasattr(value, "ppf"):
        noise: Noise = Frozen(value)
        return noise
    refuse("noise must be a distribution", kind_of(value), EXAMPLES)


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
        refuse(
            "a run is named after its problem, so its noise must be one that text can describe",
            f"{kind_of(noise)} of your own",
            f"Evaluate with it without naming a run, or train on a built-in one. {EXAMPLES}",
        )
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
    if isinstance(text, str) and NUMBER.fullmatch(text.strip()):
        return Fixed(float(text))
    inner = PER_TOKEN.fullmatch(text.strip()) if isinstance(text, str) else None
    if inner is not None:
        return Tokens(parse(inner[1]))
    name, positional, named = read_call(text)
    try:
        if name == "student":
            return Student(*positional, **named)
        if name == "fixed":
            return Fixed(*positional, **named)
        if name == "uniform":
            return Uniform(*positional, **named)
        if name == "categorical":
            return Categorical(positional, **named)
        noise: Noise = Frozen(parse_scipy(text))
        return noise
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"noise must have the arguments its name takes; got {text[:80]!r}. {EXAMPLES}") from error
