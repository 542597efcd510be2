"""Checks of numbers and arrays: what they accept, what they give back, and what their errors say."""

from fractions import Fraction

import numpy as np
import pytest

import ridgeformer as rf
from ridgeformer.engine import Layout
from ridgeformer.errors import kind_of
from ridgeformer.noise import Uniform
from ridgeformer.predictors import AdaRR
from ridgeformer.sweeps import Grid
from ridgeformer.training import SGD, GradientDescent, Search
from ridgeformer.validation import array, choice, flag, integer, number, precision, real
from support import each, refusals, refused


@each(2, 2.0, np.float32(2), np.int8(2), Fraction(2))
def test_a_number_may_have_any_real_type(value):
    assert number("rate", value) == 2.0
    assert type(number("rate", value)) is float


test_what_is_no_number_is_refused = refusals(
    ("2", "rate must be a number; got '2'"),
    (True, "rate must be a number; got True"),
    (-1, "rate must be at least 0; got -1.0"),
    (float("nan"), "rate must be at least 0; got nan"),
    (10**400, "rate must be a number that a float can hold; got 1000"),
    by=lambda value: number("rate", value),
)


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_an_integer_may_have_any_integral_type(value):
    assert integer("layers", value, 1, 3) == 3
    assert type(integer("layers", value)) is int


test_what_is_no_integer_is_refused = refusals(
    (3.0, "layers must be a whole number; got 3.0. Pass a whole number of at least 1."),
    (False, "layers must be a whole number; got False"),
    (0, "layers must be at least 1; got 0. Pass 1 or more."),
    (5, "layers must be at most 4; got 5. Pass 4 or less."),
    (10**5000, "layers must be at most 4; got <int too large to show>"),
    by=lambda value: integer("layers", value, 1, 4),
)


class Unreadable:
    """Raises an error of its own when NumPy asks for an array."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not today")

    def __repr__(self):
        raise RuntimeError("not today")


def test_float32_stays_and_everything_else_becomes_float64():
    assert real("x", np.ones(2, np.float32)).dtype == np.float32
    assert array("x", np.ones((5, 2)), ("B", 2)).shape == (5, 2)  # a letter stands for any extent
    for given in ([1, 2], np.ones(2, np.float16), np.ones(2, np.uint8), np.ones(2, ">f8"), (1.0, 2.0)):
        found = real("x", given)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, np.asarray(given, float))


test_what_is_no_array_of_the_shape_is_refused = refusals(
    ([[1, 2], [3]], "x must be a rectangular array"),
    (["a"], "x must hold real numbers; got dtype <U1"),
    ([True], "x must hold real numbers; got dtype bool"),
    (np.ones((2, 3)), "x must have shape (B, 2); got shape (2, 3)"),
    (np.ones(2), "x must have shape (B, 2); got shape (2,)"),
    (np.ones((0, 2)), "x must not be empty; got shape (0, 2)"),
    ([[1, np.nan]], "x must be finite; got NaN or infinity in it"),
    (np.ma.masked_array([[1.0, 2.0]], [[0, 1]]), "x must have no masked entries; got a masked array"),
    (Unreadable(), "x must be an array of numbers; got <Unreadable"),
    by=lambda value: array("x", value, ("B", 2)),
)


def test_a_precision_has_many_names():
    assert {precision(name) for name in ("float32", np.float32, np.dtype("f4"))} == {np.float32}
    assert precision(None) is np.float64  # as for NumPy
    for odd in ("float16", int, 3, [], "double trouble", object()):
        refused(lambda odd=odd: precision(odd), "dtype must be float32 or float64")


def test_a_flag_is_true_or_false():
    assert flag("causal", np.True_) is True
    assert flag("causal", False) is False
    refused(lambda: flag("causal", 1), "causal must be True or False; got 1. Pass True or False.")


@each(
    ("max", ("sum", "mean"), "attention must be sum or mean; got 'max'. Choose one of these."),
    (None, {"softmax": 1, "relu": 2, "linear": 3}, "attention must be one of softmax, relu, linear; got None"),
)
def test_what_is_no_choice_is_refused(value, known, words):
    assert [choice("attention", one, known) for one in known] == [*known]
    refused(lambda: choice("attention", value, known), words)


def test_messages_have_the_right_article():
    given = (1, 1.0, np.zeros(1), AdaRR(), SGD(), Uniform(0, 1), None, AdaRR)
    wanted = ["an int", "a float", "an ndarray", "an AdaRR", "an SGD", "a Uniform", "None", "the class AdaRR"]
    assert [kind_of(value) for value in given] == wanted


@each(
    (rf.Problem, "n", "Write context."),
    (rf.Problem, "n_samples", "Write context."),
    (rf.train, "n_layers", "Write layers."),
    (rf.train, "lr", "Write protocol=GradientDescent(rate=..., steps=..., batch=...)."),
    (rf.train_many, "family", "Write families."),
    (rf.compare, "n_samples", "Write sequences."),
    (rf.evaluate, "random_state", "Write seed."),
    (rf.explain, "sigmas", "Write sigma."),
    (GradientDescent, "lr", "Write rate."),
    (SGD, "batch_size", "Write batch."),
    (Search, "zzz", "Write only these."),
    (Layout, "attn", "Write attention."),
    (Grid, "seed", "Write seeds."),
    (rf.LinearTransformer.random, "n_layers", "Write layers."),
    (rf.BayesRR, "sigma", "Write noise."),
)
def test_a_wrong_keyword_names_the_right_one(function, wrong, remedy):
    message = refused(lambda: function(**{wrong: 1}), f"{function.__name__} has the arguments ")
    assert message.endswith(f"; got {wrong}. {remedy}")


@each(
    (rf.BayesRR, "BayesRR must be given noise; got no noise. Pass noise; help(BayesRR) describes it."),
    (rf.load, "load must be given name; "),
    (lambda: rf.LinearTransformer.random("diag", dim=2), "random must be given family, dim, layers; got no layers."),
    (lambda: rf.Problem(2, 3, 0).moments(), "moments must be given count; "),
    (lambda: rf.train(layers=1), "train must be given problem; got no problem."),
)
def test_a_missing_argument_is_named(function, words):
    refused(function, words)
