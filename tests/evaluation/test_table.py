import math

import numpy as np
import pytest

from ridgeformer.evaluation.table import Table, aligned, lines


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


class Names(Table):
    def rows(self):
        return [{"name": "<b>", "loss": 0.5}, {"name": "x & y", "loss": float("nan")}]

    def _title(self):
        return "a < b"


def test_a_notebook_shows_an_escaped_table():
    assert Names()._repr_html_() == (
        "<table><caption>a &lt; b</caption><thead><tr><th>name</th><th>loss</th></tr></thead><tbody>"
        "<tr><td>&lt;b&gt;</td><td>0.5000</td></tr><tr><td>x &amp; y</td><td>-</td></tr></tbody></table>"
    )
