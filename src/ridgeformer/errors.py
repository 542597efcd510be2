"""Errors that say the rule, what was received and what to do."""

from __future__ import annotations

import importlib
import re
from pathlib import PurePath
from typing import Any, NoReturn

RECEIVED = 500  # characters of what was received that a message shows


class RidgeformerError(Exception):
    """Any error that ridgeformer raises on purpose. Its message says the rule, what was found, and what to do."""


class InputError(RidgeformerError, ValueError):
    """An argument, a command or a file that was given breaks a rule."""


class DamageError(InputError):
    """A stored file is not what it was when it was written.

    It is an `InputError`, because the file was given, and because damaged files and files of another kind often cannot
    be told apart. Whoever reads a file of unknown content catches one class for both.
    """


class StorageError(RidgeformerError, OSError):
    """The system cannot write or read: the disk is full or fails, or the place is read-only or does not exist."""


class UnreachableError(RidgeformerError, ConnectionError):
    """A scheduler does not answer. Finished runs are stored; the same sweep can go on with another scheduler."""


class TrainingError(RidgeformerError, RuntimeError):
    """Training with allowed arguments did not lead to a model."""


class MissingPackageError(RidgeformerError, ImportError):
    """An optional package is not installed."""


class ExplosionWarning(RuntimeWarning):
    """A model's predictions overflow or are absurdly large: its input is not what it was trained on."""


def refuse(rule: str, received: object, remedy: str) -> NoReturn:
    """Raise an `InputError`.

    Args:
        rule: What is required, as the beginning of a sentence.
        received: What was given instead.
        remedy: What to do, as a sentence.

    Raises:
        InputError: Always, with the message `rule; got received. remedy`, in one line: what was received is cut where
            it is long.
    """
    try:
        text = received if isinstance(received, str) else str(received)
    except Exception:  # whatever a class of the user's own does, and numbers of 5,000 digits
        text = shown(received)
    raise InputError(f"{rule}; got {short(text, RECEIVED)}. {remedy}")


def kind_of(value: object) -> str:
    """Say what a value is, for a message: its class, with an article.

    Args:
        value: Anything.

    Returns:
        The text.

    >>> kind_of(3), kind_of("x"), kind_of(None), kind_of(int)
    ('an int', 'a str', 'None', 'the class int')
    """
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"an {name}" if re.match("[AEIOaeio]|[FHLMNRSX][A-Z]|nd", name) else f"a {name}"


def shown(value: object, most: int = 80) -> str:
    """A value as text for a message, cut in the middle where it is long.

    Args:
        value: Anything. A path or an exception is shown by its text, everything else by its `repr`.
        most: Characters that the text may have.

    Returns:
        One line that always fits, also for values of which Python makes no text: deep lists, numbers of 5,000 digits.

    >>> shown([0, "diag"]), shown("9" * 1000, most=20)
    ("[0, 'diag']", "'9999999999...99999'")
    """
    try:
        text = str(value) if isinstance(value, PurePath | BaseException) else repr(value)
    except Exception:  # whatever a class of the user's own does
        text = f"<{type(value).__name__} too large to show>"
    return short(text, most)


def short(value: object, most: int = 200) -> str:
    r"""Write a text, a path or a reason in one line without control characters, cut in the middle where it is long.

    Args:
        value: What to write, as its `str`.
        most: Characters that the line may have before control characters are written as escapes.

    Returns:
        The line.

    >>> short("no\nJSON"), short("x" * 1000, 12)
    ('no JSON', 'xxxxx...xxxx')
    """
    text, end = " ".join(str(value).split()), most // 3
    text = text if len(text) <= most else f"{text[: most - end - 3]}...{text[len(text) - end :]}"
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def optional(rule: str, *names: str, install: str = "") -> Any:
    """Import a package that need not be installed.

    Args:
        rule: The need for the package, for the message, such as `figures need matplotlib`.
        *names: Names of modules, of which the first that is installed is imported.
        install: What to install; the first of the names without it.

    Returns:
        The module.

    Raises:
        MissingPackageError: None of them is installed.
    """
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            cause = error
    raise MissingPackageError(f"{rule}, which is not installed. Run pip install {install or names[0]}.") from cause
