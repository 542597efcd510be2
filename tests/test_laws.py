"""The grammar of laws: what noise, features and tasks have in common where they are text."""

import numpy as np
import pytest

from ridgeformer.laws import missing_bracket, written
from ridgeformer.noise import Categorical, Noise, Tokens
from ridgeformer.problems import Features, Pool, Tasks
from ridgeformer.values import read_only
from support import each, refused


@each(
    ("pool(3", ", in which a closing bracket is missing"),
    ("[1, 2", ", in which a closing bracket is missing"),
    ("3)", ", in which an opening bracket is missing"),
    ("pool(3)", ""),
    ("", ""),
)
def test_missing_brackets(text, words):
    assert missing_bracket(text) == words


@each((0.1, "0.1"), (2.0, "2"), (-0.0, "0"), (1000000, "1000000"), ("sphere", "'sphere'"), ([1, [0.5]], "[1,[0.5]]"))
def test_arguments_as_text(value, text):
    assert written(value) == text
    assert written(read_only(np.array([1 / 3]))) == f"[{1 / 3!r}]"


@each(
    (Noise, "tokens(uniform(0,5))"),
    (Noise, "tokens(fixed(2))"),
    (Features, "scales(0.5,rotated(powerlaw(1)))"),
    (Tasks, "mixture(pool(4),0.5)"),
)
def test_laws_are_arguments_of_laws(kind, text):
    law = kind.of(f" {text.replace(',', ' , ')}")
    assert str(law) == repr(law) == text
    assert law == kind.of(law) == kind.of(text)
    assert law.has_text
    assert Noise.of("tokens(2)") == Noise.of("tokens(fixed(2))")


def test_long_lists_are_cut_in_labels():
    pool = Pool(np.arange(400.0).reshape(100, 4))
    assert pool.label == "pool(100 x 4)"
    assert len(repr(pool)) < 250 < len(str(pool))


def test_a_law_of_ones_own_with_a_name_has_a_text():
    class Doubled(Tokens):
        name = "doubled"

        def quantile(self, u):
            return 2 * super().quantile(u)

    law = Doubled(Categorical([1, 2]))
    try:
        assert str(law) == "doubled(categorical(1,2))"
        assert Noise.of(str(law)) == law != Tokens(Categorical([1, 2]))
    finally:
        del Noise.known["doubled"]
    refused(lambda: Features.of(str(law)), "there is no law of features called 'doubled'. Write one of isotropic, ")


@pytest.mark.parametrize("kind", [Noise, Features, Tasks])
def test_texts_are_bounded_before_they_are_read(kind):
    refused(lambda: kind.of("x(" + "1+" * 100_000 + "1)"), "in at most 200,000 characters")
    refused(lambda: kind.of("x([" + "1," * 300_000 + "1])"), "beside lists of 250,000 numbers; got 600,006")
