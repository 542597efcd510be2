"""Values for JSON: nothing of NumPy, nothing that is not finite, and otherwise the same."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeformer.files import jsonable

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20))
def test_what_json_can_hold_stays(value):
    assert jsonable(value) == value
    assert json.loads(json.dumps(jsonable(value), allow_nan=False)) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1.0, np.nan], [np.inf, -np.inf]]), [[1.0, None], [None, None]]),
        (np.array(2.0), 2.0),
        ((1, (2, np.nan)), [1, [2, None]]),
        ({1: np.arange(2), "inner": {"loss": float("nan")}}, {"1": [0, 1], "inner": {"loss": None}}),
    ],
)
def test_arrays_tuples_and_numbers_that_are_not_finite(value, expected):
    found = jsonable(value)
    assert found == expected
    assert json.loads(json.dumps(found, allow_nan=False)) == expected
