"""The one type of losses and its row: names of fields, printing, selection, conversion to dicts and to DataFrames."""

import json
import math
import pickle
import re
import sys
from dataclasses import fields

import numpy as np
import pytest

from own_problems import HeavyTails
from ridgeformer import (
    AdaRR,
    ConstRR,
    GDpp,
    LinearTransformer,
    Loss,
    Losses,
    OracleRR,
    Problem,
    compare,
    evaluate,
    load,
)
from ridgeformer.errors import MissingPackageError
from ridgeformer.evaluation.results import OPTIONAL
from ridgeformer.evaluation.table import Table, aligned
from ridgeformer.models import Looped
from ridgeformer.problems import Gaussian
from support import each, refused

PROBLEM = Problem(noise="uniform(0,5)")
MODEL = load("zoo:diag/3/uniform(0,5)")
FEW = {"sequences": 200, "seed": 1}
BOTH = {"AdaRR": AdaRR(), "diag": MODEL}
LEVELS = {"sigma": [0.0, 2.0, 6.0]}
# How each kind is made, and how many rows it has.
MADE = {
    "row": (lambda: evaluate(PROBLEM, AdaRR(), **FEW), 1),
    "several": (lambda: compare(PROBLEM, BOTH, **FEW, with_query_errors=True), 2),
    "levels": (lambda: compare(PROBLEM, AdaRR(), LEVELS, **FEW), 3),
    "several levels": (lambda: compare(PROBLEM, BOTH, LEVELS, **FEW), 6),
    "layers": (lambda: compare(PROBLEM, {"diag": MODEL}, "layer", **FEW), 4),
    "two axes": (lambda: compare(PROBLEM, {"diag": MODEL}, {"layer": None, **LEVELS}, **FEW), 12),
    "prefixes": (lambda: compare(PROBLEM, BOTH, {"context": [12, 20]}, **FEW), 4),
}


@pytest.fixture(params=MADE)
def made(request):
    make, count = MADE[request.param]
    return make(), count


def test_every_result_has_rows_with_the_same_names(made):
    losses, count = made
    rows = losses.rows()
    assert len(rows) == count
    names = {"name", "loss", "error", "floor", "floor_error", "ratio", "unadjusted", "exploded", "unexploded"}
    assert names | {"largest", "tail", "sequences"} <= rows[0].keys()
    for row in rows:
        assert row.keys() == rows[0].keys()
        assert type(row["loss"]) is type(row["error"]) is type(row["ratio"]) is float
        assert type(row["exploded"]) is type(row["sequences"]) is int
        assert row["sequences"] == 200
    axes = getattr(losses, "axes", {})
    assert set(axes) <= rows[0].keys()
    assert ("in_distribution" in rows[0]) == bool(set(axes) - {"layer"})


def test_every_result_prints_as_an_aligned_table_and_has_a_short_repr(made):
    losses, _ = made
    title, empty, header, *lines = str(losses).splitlines()
    assert title.startswith("Adjusted loss")
    assert "200 sequences" in title
    assert empty == ""
    assert lines
    assert all(line == line.rstrip() for line in (header, *lines))
    ends = {len(line) for line in (header, *lines)}
    assert len(ends) == 1, "the last column holds numbers or yes and no, which are aligned to the right"
    assert max(ends) <= 100
    page = losses._repr_html_()
    assert page.count("<tr>") == len(lines) + 1
    assert title in page
    assert re.fullmatch(rf"{type(losses).__name__}\(.{{,110}}", repr(losses))


def test_every_result_is_a_dict_for_json_and_can_be_pickled(made):
    losses, _ = made
    converted = losses.as_dict()
    names = {field.name for field in fields(losses)} | {"ratio"}
    if isinstance(losses, Loss):  # what was not asked for is left out
        asked = {name for name in OPTIONAL if getattr(losses, name) is not None}
        assert converted.keys() == names - (set(OPTIONAL) - asked)
    else:
        assert names <= converted.keys()
    assert json.loads(json.dumps(converted, allow_nan=False)) == converted
    assert pickle.loads(pickle.dumps(losses)).as_dict() == converted


def test_every_result_is_a_data_frame(made, monkeypatch):
    pytest.importorskip("pandas")
    losses, count = made
    frame, rows = losses.to_pandas(), losses.rows()
    assert frame.shape == (count, len(rows[0]))
    for column in frame.columns:
        np.testing.assert_array_equal(frame[column], [row[column] for row in rows])
    assert frame["loss"].dtype == np.float64
    monkeypatch.setitem(sys.modules, "pandas", None)
    refused(losses.to_pandas, "needs pandas, which is not installed. Run pip install pandas", MissingPackageError)


def test_the_fields_of_a_row_are_those_of_stored_records():
    """Records of runs and of the zoo have these names: they must not change."""
    names = ["name", "loss", "error", "unadjusted", "unadjusted_error", "floor", "floor_error", "largest", "tail"]
    names += ["exploded", "unexploded", "sequences", "estimator", "signal", "adjusted"]
    loss = evaluate(PROBLEM, AdaRR(), **FEW)
    assert list(loss.as_dict()) == [*names, "ratio"]
    assert loss.as_dict()["ratio"] == loss.ratio == loss.loss / loss.floor


def test_what_is_not_known_is_none_in_a_dict_and_a_dash_in_print():
    loss = evaluate(PROBLEM, AdaRR(), **FEW, with_floor=False)
    converted = loss.as_dict()
    assert converted["floor"] is converted["floor_error"] is converted["ratio"] is None
    assert str(loss).splitlines()[-1].split()[3:5] == ["-", "-"]
    loss = evaluate(Problem(noise="fixed(1)"), AdaRR(), **FEW)  # whose floor is 0
    assert (loss.ratio, loss.as_dict()["ratio"]) == (math.inf, None)
    layers = compare(PROBLEM, MODEL, "layer", **FEW, with_floor=False)
    assert layers.as_dict()["floor"] == layers.as_dict()["ratio"][0] == [None] * 4


def test_a_row_as_text():
    """Of a predictor whose losses are known by definition."""
    loss = Loss("it", 0.0691234, 0.0002, 1.6, 0.01, 0.03456170, 1e-4, 3.0, 2.0, 0, 0.07, 100_000, "exact", 10.0, True)
    assert str(loss).splitlines() == [
        "Adjusted loss on 100,000 sequences",
        "",
        "name     loss      error    floor  ratio  unadjusted  unadjusted_error  largest  exploded",
        "it    0.06912  0.0002000  0.03456  2.000       1.600           0.01000    3.000         0",
    ]
    assert repr(loss) == "Loss('it', loss=0.06912, error=0.0002, floor=0.03456)"


def test_losses_are_a_mapping_by_name():
    losses = compare(PROBLEM, {"AdaRR": AdaRR(), "oracle": OracleRR()}, **FEW, with_query_errors=True)
    assert list(losses) == ["AdaRR", "oracle"]
    assert [row["query_error"] for row in losses.rows()] == losses.query_error.tolist()
    assert losses["AdaRR"].loss == losses.loss[0] == losses.as_dict()["loss"][0]
    assert isinstance(losses["AdaRR"], Loss)
    assert [line.split()[0] for line in str(losses).splitlines()[2:]] == ["name", "AdaRR", "oracle"]
    assert str(losses).splitlines()[-1].split()[1] == "0"  # a loss of 1e-30
    assert "query_error" not in compare(PROBLEM, {"AdaRR": AdaRR()}, **FEW).rows()[0]
    refused(lambda: losses["zz"], "the name must be one of AdaRR, oracle; got 'zz'", KeyError)
    refused(lambda: losses.difference("AdaRR", "x"), "one of AdaRR, oracle; got 'x'")


def test_predictors_may_be_a_list_or_one():
    assert compare(PROBLEM, [AdaRR(), ConstRR(1), AdaRR()], **FEW).names == (
        "AdaRR()",
        "ConstRR(variance=1)",
        "AdaRR() (2)",
    )
    assert compare(PROBLEM, AdaRR(), **FEW).names == ("AdaRR()",)


def test_selection_by_name_and_by_value():
    losses = compare(PROBLEM, BOTH, {"noise": ["uniform(0,5)", 2], "context": [12, 20]}, **FEW)
    assert losses.loss.shape == (2, 2, 2)
    assert losses.covariance.shape == (2, 2, 2, 2)
    one = losses["diag"]
    assert isinstance(one, Losses)
    assert one.names == ("diag",)
    assert one.loss.tolist() == losses.loss[1:].tolist()
    there = losses.at(noise=2)
    assert there.axes == {"context": (12, 20)}
    assert there.in_distribution == {"context": (False, True)}
    assert there.loss.tolist() == losses.loss[:, 1].tolist()
    assert there.floor.tolist() == losses.floor[1].tolist()
    single = losses.at(noise="uniform(0,5)", context=20)
    assert single["AdaRR"].floor == losses.floor[0, 1]
    assert single.difference("AdaRR", "diag")[1] == losses.difference("AdaRR", "diag")[1][0, 1]
    refused(lambda: losses.at(sigma=2), "the axes are noise, context; got sigma")
    refused(lambda: losses.at(noise=3), "the axis noise has the values uniform(0,5), 2.0; got 3")


def test_tables_have_a_column_per_predictor_and_say_where_sequences_exploded():
    model, problem = load("zoo:full/7/uniform(0,1)"), Problem(noise="uniform(0,1)")
    losses = compare(problem, {"full": model, "AdaRR": AdaRR()}, {"sigma": [1.0, 2.0]}, sequences=5000)
    lines = str(losses).splitlines()
    assert lines[2].split() == ["sigma", "full", "AdaRR", "full:", "exploded", "in_distribution"]
    assert lines[-1] == "Sequences exploded at 1 of 2 points: see `exploded` and `unexploded`."
    both = str(compare(problem, model, {"layer": None, "sigma": [1.0, 2.0]}, sequences=5000)).splitlines()
    assert both[2].endswith("layer 6    layer 7  in_distribution")
    assert "Sequences exploded at" in both[-1]
    whole = compare(problem.at_noise(2), {"full": model, "AdaRR": AdaRR()}, sequences=5000)
    assert whole.exploded[0] > 0
    assert str(whole).splitlines()[2].endswith("exploded  unexploded")


def test_a_model_that_is_really_a_smaller_one_is_named():
    """In a column of its own, and below a table along axes; nothing is said of models that are what they say."""
    full = load("zoo:gdpp/2/uniform(0,5)").with_identity(1).to_full()
    losses = compare(PROBLEM, {"full": full, "diag": MODEL}, **FEW)
    assert losses.actual == ("gdpp, 2 layers", "")
    assert [row["actual"] for row in losses.rows()] == ["gdpp, 2 layers", ""]
    assert str(losses).splitlines()[2].split()[:3] == ["name", "actual", "loss"]
    assert losses["full"].loss == evaluate(PROBLEM, full, **FEW).loss
    levels = compare(PROBLEM, {"full": full, "diag": MODEL}, LEVELS, **FEW)
    assert "full is really a smaller model: gdpp, 2 layers." in str(levels)
    assert "really" not in str(levels["diag"])
    assert "actual" not in compare(PROBLEM, {"diag": MODEL}, **FEW).rows()[0]
    looped = LinearTransformer(Looped(GDpp, 3)(p=[[[0.1, -0.03]]], q=[[0.5]]), 10)
    assert not looped.actual


@pytest.mark.parametrize("unit", [1e-10, 1e6, 1e10])
def test_units_change_no_ratio(unit):
    """Tasks and noise times a number: losses of ridge regression scale with its square, ratios and zeros stay."""
    tasks = Gaussian(covariance=unit**2 * np.eye(3))
    problems = Problem(3, 8, "uniform(0,2)"), Problem(3, 8, f"uniform(0,{2 * unit})", tasks=tasks)
    plain, scaled = (compare(one, {"const": ConstRR(1.0), "oracle": OracleRR(one.prior)}, **FEW) for one in problems)
    np.testing.assert_allclose(scaled.ratio[0], plain.ratio[0], rtol=1e-6)
    assert plain.ratio[0] > 1.1
    assert [line.split()[1] == "0" for line in str(scaled).splitlines()[3:]] == [False, True]


def test_without_an_oracle_nothing_says_adjusted():
    losses = compare(HeavyTails(), {"a": ConstRR(1), "b": ConstRR(2)}, {"freedom": [3.0, 9.0]}, **FEW)
    assert not losses.adjusted
    assert losses.loss.tolist() == losses.unadjusted.tolist()
    for one in (losses, losses.at(freedom=3.0), losses["a"], losses.at(freedom=3.0)["a"]):
        assert str(one).startswith("Loss")
        assert "djusted" not in str(one)
        assert "djusted" not in one._repr_html_()


# ---- tables


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


@each(
    (0.0, "0"),
    (31.0, "31.00"),
    (1234.0, "1234"),
    (-0.5, "-0.5000"),
    (1e-29, "1.000e-29"),
    (math.nan, "-"),
    (math.inf, "-"),
)
def test_numbers_have_four_significant_digits_or_are_dashes(value, text):
    assert aligned([{"x": value}]).split() == ["x", text]


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
