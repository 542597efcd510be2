"""Kinds of errors, and the texts that their messages are made of."""

from pathlib import Path

import pytest

from ridgeformer import errors
from ridgeformer.errors import missing_bracket, refuse, shown


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.InputError, ValueError),
        (errors.DamageError, ValueError),
        (errors.StorageError, OSError),
        (errors.MissingPackageError, ImportError),
    ],
)
def test_every_error_is_also_the_builtin_one_that_callers_expect(kind, builtin):
    assert issubclass(kind, builtin)
    assert issubclass(kind, errors.RidgeformerError)


def test_a_message_has_the_rule_the_value_and_the_remedy():
    with pytest.raises(errors.InputError) as refused:
        refuse("layers must be at least 1", 0, "Pass 1 or more.")
    assert str(refused.value) == "layers must be at least 1; got 0. Pass 1 or more."


def deep(levels):
    found = []
    for _ in range(levels):
        found = [found]
    return found


class Nameless:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    "value", ["x\ny", "x" * 1000, 10**5000, deep(100_000), Nameless(), b"\xff" * 500, None], ids=range(7)
)
def test_any_value_is_shown_in_one_line_that_fits(value):
    text = shown(value, most=50)
    assert 0 < len(text) <= 50
    assert "\n" not in text


def test_what_is_shown():
    assert shown(Path("runs") / "one") == "runs/one"
    assert shown(ValueError("why")) == "why"
    assert shown("abc") == "'abc'"
    assert shown("0123456789" * 3, most=10) == "'012...89'"
    assert shown(10**5000) == "<int too large to show>"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pool(3", ", in which a closing bracket is missing"),
        ("[1, 2", ", in which a closing bracket is missing"),
        ("3)", ", in which an opening bracket is missing"),
        ("pool(3)", ""),
        ("", ""),
    ],
)
def test_missing_brackets(text, words):
    assert missing_bracket(text) == words
