"""What all results have in common: names of fields, printing, conversion to dicts and to DataFrames."""

import json
import math
import pickle
import sys
from dataclasses import fields

import numpy as np
import pytest

from ridgeformer import AdaRR, OracleRR, Problem, by_layer, compare, evaluate, profile, zoo
from ridgeformer.errors import MissingPackageError
from ridgeformer.evaluation import (
    Comparison,
    LayerLosses,
    LayerProfile,
    Profile,
    Profiles,
    Result,
    profile_by_layer,
    profiles,
)

PROBLEM = Problem(noise="uniform(0,5)")
MODEL = zoo.load("diag", 3, "uniform(0,5)")
FEW = {"sequences": 200, "seed": 1}
LEVELS = {"sigma": [0.0, 2.0, 6.0], **FEW}
# How each type is made, and how many rows it has.
MADE = {
    Result: (lambda: evaluate(PROBLEM, AdaRR(), **FEW), 1),
    Comparison: (lambda: compare(PROBLEM, {"AdaRR": AdaRR(), "diag": MODEL}, **FEW, with_query_errors=True), 2),
    Profile: (lambda: profile(PROBLEM, AdaRR(), **LEVELS), 3),
    Profiles: (lambda: profiles(PROBLEM, {"AdaRR": AdaRR(), "diag": MODEL}, **LEVELS), 6),
    LayerLosses: (lambda: by_layer(PROBLEM, MODEL, **FEW), 4),
    LayerProfile: (lambda: profile_by_layer(PROBLEM, MODEL, **LEVELS), 12),
}


@pytest.fixture(params=MADE, ids=lambda kind: kind.__name__)
def made(request):
    make, count = MADE[request.param]
    found = make()
    assert type(found) is request.param
    return found, count


def test_every_result_has_rows_with_the_same_names(made):
    found, count = made
    rows = found.rows()
    assert len(rows) == count
    assert {"name", "loss", "error", "exploded", "sequences"} <= rows[0].keys()
    for row in rows:
        assert row.keys() == rows[0].keys()
        assert type(row["loss"]) is type(row["error"]) is float
        assert type(row["exploded"]) is type(row["sequences"]) is int
        assert row["sequences"] == 200
    has_floor = type(found) in (Result, Comparison, LayerLosses)
    assert ({"floor", "floor_error", "ratio"} <= rows[0].keys()) == has_floor
    has_levels = type(found) in (Profile, Profiles, LayerProfile)
    assert ({"sigma", "in_distribution"} <= rows[0].keys()) == has_levels
    assert ("layer" in rows[0]) == (type(found) in (LayerLosses, LayerProfile))


def test_every_result_prints_as_an_aligned_table(made):
    found, _ = made
    title, empty, header, *lines = str(found).splitlines()
    assert title.startswith("Adjusted loss")
    assert "200 sequences" in title
    assert empty == ""
    assert lines
    assert all(line == line.rstrip() for line in (header, *lines))
    ends = {len(line) for line in (header, *lines)}
    assert len(ends) == 1, "the last column holds numbers or yes and no, which are aligned to the right"
    assert max(ends) <= 100


def test_every_result_has_a_short_repr(made):
    found, _ = made
    assert repr(found).startswith(f"{type(found).__name__}(")
    assert len(repr(found)) <= 120
    assert "\n" not in repr(found)


def test_every_result_is_a_dict_for_json(made):
    found, _ = made
    converted = found.as_dict()
    assert {field.name for field in fields(found)} <= converted.keys()
    assert json.loads(json.dumps(converted, allow_nan=False)) == converted


def test_every_result_can_be_pickled(made):
    found, _ = made
    assert pickle.loads(pickle.dumps(found)).as_dict() == found.as_dict()


def test_every_result_is_a_data_frame(made):
    pytest.importorskip("pandas")
    found, count = made
    frame, rows = found.to_pandas(), found.rows()
    assert frame.shape == (count, len(rows[0]))
    assert list(frame.columns) == list(rows[0])
    for column in frame.columns:
        assert frame[column].tolist() == [row[column] for row in rows]
    assert frame["loss"].dtype == np.float64


def test_without_pandas_the_message_says_what_to_do(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match=r"needs pandas, which is not installed\. Run pip install pandas"):
        made[0].to_pandas()


def test_the_fields_of_a_result_are_those_of_stored_records():
    """Records of runs and of the zoo have these names: they must not change."""
    names = [
        "name",
        "loss",
        "error",
        "unadjusted",
        "unadjusted_error",
        "floor",
        "floor_error",
        "largest",
        "tail",
        "exploded",
        "sequences",
        "estimator",
    ]
    found = evaluate(PROBLEM, AdaRR(), **FEW)
    assert [field.name for field in fields(Result)] == names
    assert list(found.as_dict()) == [*names, "ratio"]
    assert found.as_dict()["ratio"] == found.ratio == found.loss / found.floor


def test_what_is_not_known_is_none_in_a_dict_and_a_dash_in_print():
    found = evaluate(PROBLEM, AdaRR(), **FEW, with_floor=False)
    converted = found.as_dict()
    assert converted["floor"] is converted["floor_error"] is converted["ratio"] is None
    assert str(found).splitlines()[-1].split()[3:5] == ["-", "-"]
    layers = by_layer(PROBLEM, MODEL, **FEW, with_floor=False)
    assert layers.as_dict()["floor"] is None
    assert layers.as_dict()["ratio"] == [None] * 4


def test_a_result_as_text():
    """Of a predictor whose losses are known by definition."""
    found = Result("it", 0.0691234, 0.0002, 1.6, 0.01, 0.03456170, 0.0001, 3.0, 2.0, 0, 100_000, "exact")
    assert str(found).splitlines() == [
        "Adjusted loss on 100,000 sequences",
        "",
        "name     loss      error    floor  ratio  unadjusted  unadjusted_error  largest  exploded",
        "it    0.06912  0.0002000  0.03456  2.000       1.600           0.01000    3.000         0",
    ]
    assert repr(found) == "Result('it', loss=0.06912, error=0.0002, floor=0.03456)"


def test_a_comparison_is_a_mapping_with_a_row_per_predictor():
    found = compare(PROBLEM, {"AdaRR": AdaRR(), "oracle": OracleRR()}, **FEW, with_query_errors=True)
    assert list(found) == ["AdaRR", "oracle"]
    assert [row["name"] for row in found.rows()] == ["AdaRR", "oracle"]
    assert [row["query_error"] for row in found.rows()] == list(found.query_errors.values())
    assert found.as_dict()["results"]["AdaRR"] == found["AdaRR"].as_dict()
    assert found.as_dict()["covariance"] == found.covariance.tolist()
    assert [line.split()[0] for line in str(found).splitlines()[2:]] == ["name", "AdaRR", "oracle"]
    assert "query_error" not in compare(PROBLEM, {"AdaRR": AdaRR()}, **FEW).rows()[0]


def test_profiles_print_a_column_per_predictor_and_say_where_sequences_exploded():
    model, problem = zoo.load("full", 7, "uniform(0,1)"), Problem(noise="uniform(0,1)")
    found = profiles(problem, {"full": model, "AdaRR": AdaRR()}, sigma=[1.0, 2.0], sequences=5000)
    assert (
        found["full"].exploded.tolist() == profile(problem, model, sigma=[1.0, 2.0], sequences=5000).exploded.tolist()
    )
    lines = str(found).splitlines()
    assert lines[2].split() == ["sigma", "full", "AdaRR", "in_distribution"]
    assert lines[-1] == "Sequences exploded at 1 of 2 noise levels: see `exploded`."
    by_layers = str(profile_by_layer(problem, model, sigma=[1.0, 2.0], sequences=5000)).splitlines()
    assert by_layers[2].endswith("layer 6    layer 7  in_distribution")
    assert by_layers[-1] == lines[-1]


def test_a_ratio_to_a_floor_of_zero_is_infinite():
    found = evaluate(Problem(noise="fixed(1)"), AdaRR(), **FEW)
    assert found.ratio == math.inf
    assert found.as_dict()["ratio"] is None
