"""The rule that selects tables, wins, and the page that shows the results."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import laws, tables
from benchmarks.depth import bound, degree, features
from benchmarks.study import OURS, STORE, tables_of, wins
from ridgeformer import LinearTransformer, Problem, compare, load
from ridgeformer.exact import exact_loss

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "regression.md"


def frame(rows=50):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((rows, 4))
    found = pd.DataFrame(values, columns=list("abcd"))
    return found.assign(rownames=range(rows), year=1900 + 2 * np.arange(rows), name="text", same=1.0)


def test_columns_that_the_rule_leaves_out():
    found = frame()
    found["gaps"] = np.where(np.arange(50) % 5 == 0, np.nan, found["a"])  # a fifth is missing
    found.loc[3, "b"] = np.inf
    columns = tables._columns(found)
    assert columns.shape == (49, 4)
    np.testing.assert_array_equal(columns, np.delete(found[list("abcd")].to_numpy(), 3, 0))
    assert tables._columns(pd.Series([1.0, 2.0])).size == 0


def test_labels_and_tables_that_the_rule_leaves_out():
    columns = tables._columns(frame())
    name, x, y = tables._with_label("package/table", columns)
    assert (name, x.shape, y.shape) == ("package/table", (50, 3), (50,))
    assert any(np.array_equal(y, column) for column in columns.T)
    np.testing.assert_array_equal(tables._with_label("package/table", columns)[2], y)  # the name is the seed
    assert tables._with_label("few rows", columns[:39]) is None
    assert tables._with_label("few features", columns[:, :3]) is None
    assert tables._with_label("few values", np.round(columns)) is None
    exact = np.column_stack([columns[:, :3], columns[:, :3].sum(1)])
    assert tables._with_label("nothing uncertain", exact) is None
    assert tables._with_label("many", np.random.default_rng(0).standard_normal((60, 40)))[1].shape == (60, 20)


def test_wins_count_tables_with_smaller_errors():
    results = [{"mean": {OURS: ours, "other": 1.0}} for ours in (0.5, 0.5, 2.0, 0.5)]
    share, error, ratio = wins(results, "other", "mean")
    assert (share, error) == pytest.approx((75, 100 * np.sqrt(0.75 * 0.25 / 4)))
    assert ratio == pytest.approx(2**-0.5)


def test_the_page_shows_the_stored_results():
    printed = set(tables_of(STORE))
    text = PAGE.read_text()
    shown = [line[4:] for line in text[text.index("## On real tables") :].splitlines() if line.startswith("    ")]
    assert len(shown) >= 20
    assert set(shown) <= printed


def test_the_book_shows_the_stored_losses_on_new_laws():
    text = (PAGE.parents[1] / "explanations" / "other-problems.md").read_text()
    rows = list(json.loads(laws.STORE.read_text()).values())
    assert len(rows) == len(laws.LAWS)
    for row in rows:
        ratios = (f"{row[name][0] / row['floor'][0]:.2f}" for name in laws.COLUMNS[1:])
        assert f"| {row['floor'][0]:.3g} +- {row['floor'][1]:.1g} | {' | '.join(ratios)} |" in text


# ---- The lower bound for depth against closed forms and models


@pytest.mark.parametrize("family", ["diag", "channels(1,3)"])
@pytest.mark.parametrize("layers", [1, 2])
def test_models_are_sums_of_the_monomials(layers, family):
    """Models that treat all directions alike are in the span of the monomials, exactly; deeper ones are not."""
    moments = Problem(4, 9, "uniform(0,2)").moments(200).moments
    X = features(moments, layers).reshape(200 * 4, -1)
    X = X / np.sqrt((X**2).mean(0))

    def residual(depth):
        model = LinearTransformer.random(family, dim=4, layers=depth, context=9, scale=0.4)
        w = model.weights(moments).ravel()
        return np.abs(X @ np.linalg.lstsq(X, w, rcond=None)[0] - w).max() / np.abs(w).max()

    assert residual(layers) < 1e-8
    assert residual(layers + 1) > 1e-3


def test_one_layer_is_known():
    """With one layer there is one monomial, a, and the best loss has a closed form."""
    problem = Problem(noise="uniform(0,5)")
    least = bound(problem, 1, sequences=40_000)
    exact = exact_loss(problem, load("zoo:gdpp/1/uniform(0,5)"))
    assert least.monomials == 1
    assert least.fitted == pytest.approx(exact, rel=0.02)  # the error of a mean over 40,000 sequences is below 1 %


def test_two_layers():
    """No shipped model is below the bound, and on new sequences the polynomial is above what it has where fitted."""
    problem = Problem(noise="uniform(0,5)")
    least = bound(problem, 2, sequences=40_000)
    assert (least.monomials, degree(2), degree(3)) == (30, 4, 13)
    losses = compare(problem, {f: load(f"zoo:{f}/2/uniform(0,5)") for f in ("diag", "full")}, sequences=40_000)
    assert losses.floor < least.fitted < least.new < losses.loss.min()
