"""Pictures of losses: what is drawn is what was measured."""

import numpy as np
import pytest

from ridgeformer import BayesRR, ConstRR, InputError, LeastSquares, LinearTransformer, Problem, compare, load

pytest.importorskip("matplotlib")
PROBLEM = Problem(3, 6, "uniform(0,2)")
CONST = {"ConstRR": ConstRR(1.0)}


def labels(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def line(axis, label):
    (found,) = [one for one in axis.get_lines() if one.get_label() == label]
    return found


def crosses(axis):
    return [one for one in axis.get_lines() if one.get_marker() == "x" and len(one.get_xdata())]


def test_predictors_side_by_side(tmp_path):
    losses = compare(PROBLEM, {**CONST, "OLS": LeastSquares()}, sequences=200)
    figure = losses.plot(tmp_path / "losses.png", title="a title")
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.get_xticklabels()] == ["ConstRR", "OLS"]
    drawn = next(one for one in axis.get_lines() if one.get_marker() == "o" and len(one.get_xdata()) == 2)
    np.testing.assert_allclose(drawn.get_ydata(), losses.loss)
    assert line(axis, "floor").get_ydata()[0] == losses.floor
    assert figure.get_suptitle() == "a title"
    assert (tmp_path / "losses.png").stat().st_size > 5000
    with pytest.raises(InputError, match=r"must end in .png, .pdf or .svg"):
        losses.plot(tmp_path / "losses.gif")


def test_problems_are_drawn_with_their_floors():
    losses = compare(PROBLEM, CONST, {"noise": ["uniform(0,1)", "uniform(0,3)"]}, sequences=200)
    (axis,) = losses.plot().axes
    np.testing.assert_allclose(line(axis, "ConstRR").get_ydata(), losses.loss[0])
    np.testing.assert_allclose(line(axis, "floor").get_ydata(), losses.floor)
    assert [text.get_text() for text in axis.get_xticklabels()] == ["uniform(0,1)", "uniform(0,3)"]
    assert axis.get_xlabel() == "noise of the problem"
    assert axis.get_ylabel() == "adjusted loss"
    assert not any("exploded" in text for text in labels(axis))


def test_a_profile_marks_explosions_and_the_means_of_the_others():
    problem, sigma = Problem(noise="uniform(0,1)"), np.array([0.5, 1.0, 1.5, 2.0])
    predictors = {"Full": load("zoo:full/7/uniform(0,1)"), "Bayes": BayesRR("uniform(0,1)")}
    losses = compare(problem, predictors, {"sigma": sigma}, sequences=2000)
    (axis,) = losses.plot().axes
    (marks,) = crosses(axis)
    exploded = losses.exploded[0] > 0
    assert exploded.any()
    np.testing.assert_array_equal(marks.get_xdata(), sigma[exploded])
    low, high = axis.get_ylim()
    assert all(low <= loss <= high for loss in marks.get_ydata())
    rings = [one for one in axis.get_lines() if one.get_markerfacecolor() == "none" and len(one.get_xdata())]
    np.testing.assert_allclose(rings[0].get_ydata()[exploded], losses.unexploded[0, exploded])
    assert "at least 1 of 2,000 sequences exploded\n(a loss above 100 times the signal)" in labels(axis)
    (axis,) = losses["Bayes"].plot().axes
    assert not crosses(axis)
    assert labels(axis) == ["in distribution", "Bayes"]


def test_two_axes_have_a_line_for_each_value_of_the_first_and_a_panel_for_each_predictor():
    models = {"long": load("zoo:diag/3/uniform(0,5)"), "short": load("zoo:diag/2/uniform(0,5)")}
    problem = Problem(noise="uniform(0,5)")
    losses = compare(problem, models, {"layer": None, "sigma": [1, 2, 6]}, sequences=200)
    figure = losses.plot()
    assert [axis.get_title() for axis in figure.axes] == ["long", "short"]
    np.testing.assert_allclose(line(figure.axes[0], "layer 3").get_ydata(), losses.loss[0, 3])
    np.testing.assert_allclose(line(figure.axes[1], "layer 1").get_xdata(), [1, 2, 6])
    losses = compare(problem, models, {"layer": None, "sigma": [1, 2], "query": ["powerlaw(1)"]}, sequences=20)
    with pytest.raises(InputError, match=r"at most two axes; got layer, sigma, query. Choose values"):
        losses.plot()


def test_prefixes_are_drawn_against_their_lengths():
    model = LinearTransformer.random("diag", dim=3, layers=1, scale=0.05, context=6)
    losses = compare(PROBLEM.replace(context="4..6"), {"model": model}, "context", sequences=200)
    (axis,) = losses.plot().axes
    np.testing.assert_array_equal(line(axis, "model").get_xdata(), [1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(line(axis, "floor").get_ydata(), losses.floor)
    assert axis.get_xlabel() == "number of examples n"
    assert "in distribution" in labels(axis)
    assert all(float(tick).is_integer() for tick in axis.get_xticks())


@pytest.mark.parametrize(
    ("over", "connected"),
    [
        ({"noise": [0.5, 1]}, True),
        ({"context": [5, 8]}, True),
        ({"context": [8, 5]}, False),
        ({"context": [5, "6..9"]}, False),
        ({"noise": [0.5, "uniform(0,1)"]}, False),
        ({"features": ["isotropic()", "powerlaw(1)"]}, False),
    ],
    ids=str,
)
def test_only_numbers_in_order_are_connected(over, connected):
    drawn = line(compare(PROBLEM, CONST, over, sequences=50).plot().axes[0], "ConstRR")
    assert (drawn.get_linestyle() != "None") == connected
    assert drawn.get_marker() == "o"
