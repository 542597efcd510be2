import math

import numpy as np
import pytest

from ridgeformer.evaluation.table import aligned, lines, ratio


def test_columns_are_aligned():
    """Words to the left, numbers to the right with four significant digits, no spaces at the ends of lines."""
    rows = [
        {"name": "AdaRR", "loss": 0.0691234, "exploded": 0, "inside": True},
        {"name": "a model", "loss": 1e12, "exploded": 20_000, "inside": False},
    ]
    assert aligned(rows).splitlines() == [
        "name          loss  exploded  inside",
        "AdaRR      0.06912         0     yes",
        "a model  1.000e+12    20,000      no",
    ]
    assert aligned([{"loss": 1.0, "name": "a"}, {"loss": 2.5, "name": "much longer"}]).splitlines() == [
        " loss  name",
        "1.000  a",
        "2.500  much longer",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (31.0, "31.00"), (1234.0, "1234"), (-0.5, "-0.5000"), (1e-29, "1.000e-29")],
)
def test_numbers_have_four_significant_digits(value, text):
    assert aligned([{"x": value}]).split() == ["x", text]


def test_numbers_that_are_not_known_are_dashes():
    assert aligned([{"floor": math.nan, "ratio": math.inf}]).split() == ["floor", "ratio", "-", "-"]


def test_lines_are_python_numbers():
    found = lines({"sigma": np.array([0.0, 2.0]), "exploded": np.array([3, 4]), "inside": np.array([True, False])})
    assert found == [{"sigma": 0.0, "exploded": 3, "inside": True}, {"sigma": 2.0, "exploded": 4, "inside": False}]
    assert [type(value) for value in found[0].values()] == [float, int, bool]


def test_ratio_of_a_floor_that_is_zero_or_not_known():
    assert ratio(3.0, 2.0) == 1.5
    assert ratio(1e-30, 0.0) == 1
    assert ratio(0.1, 1e-25) == math.inf
    assert math.isnan(ratio(0.1, math.nan))


def test_a_ratio_that_says_nothing_is_infinite():
    assert ratio(0.5, 0.25) == 2
    assert ratio(1e12, 0.006) == math.inf  # a model that diverged
    assert ratio(0.1, 1e-31) == math.inf  # a floor that is 0 to rounding
    assert math.isnan(ratio(0.1, math.nan))
