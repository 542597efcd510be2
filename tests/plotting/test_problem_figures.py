"""Pictures of problems, of shifts and of prefixes: what is drawn is what was measured."""

import numpy as np
import pytest

from ridgeformer import ConstRR, InputError, LinearTransformer, Problem, shifts, zoo
from ridgeformer.evaluation import by_prefix
from ridgeformer.plotting.problems import draw_problem, problem_figure
from ridgeformer.plotting.shifts import draw_prefixes, draw_shifts, prefixes_figure, shifts_figure
from ridgeformer.problems import Lengths

pytest.importorskip("matplotlib")
PROBLEMS = [
    Problem(3, 6, "uniform(0,2)"),
    Problem(1, "2,5", "categorical(1,3)"),
    Problem(4, "5..9", 0, features="standardised(factors(2))", tasks="mixture(pool(4),0.2)"),
    Problem(3, 6, 1, features="rotated(powerlaw(1))"),
    Problem(3, 6, 1, features="scales(1)", query="powerlaw(1)", tasks="gaussian(mean=[1,0,0])"),
]


def labels(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def line(axis, label):
    (found,) = [one for one in axis.get_lines() if one.get_label() == label]
    return found


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.slow
def test_a_picture_shows_sequences_of_the_problem(problem, tmp_path):
    figure = problem_figure(problem, seed=1)
    assert str(problem) in figure.get_suptitle()
    tokens = problem.sequences(20, seed=1)
    for index, axis in enumerate(figure.axes[:4]):
        n = tokens.x.shape[1] if tokens.context is None else tokens.context[index]
        drawn = line(axis, "examples")
        np.testing.assert_allclose(drawn.get_xdata(), tokens.x[index, :n] @ tokens.task[index])
        np.testing.assert_array_equal(drawn.get_ydata(), tokens.y[index, :n])
        assert line(axis, "query").get_ydata()[0] == tokens.answers[index, 0]
        assert f"n = {n}," in axis.get_title()
    for ending in ("png", "svg", "pdf"):
        draw_problem(tmp_path / f"problem.{ending}", problem)
        assert (tmp_path / f"problem.{ending}").stat().st_size > 5000


def test_eigenvalues_are_those_of_the_covariance():
    axis = problem_figure(Problem(3, 50, 1, features=[1.0, 3.0, 2.0])).axes[4]
    np.testing.assert_allclose(line(axis, "covariance of x").get_ydata(), [3, 2, 1])
    drawn = problem_figure(Problem(3, 50, 1, features="rotated(1.0,3.0,2.0)")).axes[4]
    np.testing.assert_allclose(line(drawn, "covariance of x, median").get_ydata(), [3, 2, 1], rtol=1e-9)


def test_lengths_and_levels_are_shown_with_their_shares():
    axes = problem_figure(Problem(2, "3..6", "categorical(1,3)")).axes
    heights = [bar.get_height() for bar in axes[5].patches]
    np.testing.assert_allclose(heights, 0.25)
    shares = [bar.get_height() for bar in axes[6].patches]
    assert len(shares) == 2
    assert sum(shares) == pytest.approx(1)


def test_sequences_that_are_too_long_are_refused():
    with pytest.raises(InputError, match=r"a picture shows sequences of at most .*; got 1,000,000,000 examples of 3"):
        problem_figure(Problem(3, 10**9, 1))


def test_shifts_are_drawn_with_their_floors(tmp_path):
    problem = Problem(3, 6, "uniform(0,2)")
    found = shifts(problem, {"ConstRR": ConstRR.tune(problem)}, noise=["uniform(0,1)", "uniform(0,3)"], sequences=200)
    axis = shifts_figure("title", found).axes[0]
    np.testing.assert_allclose(line(axis, "ConstRR").get_ydata(), found.loss[0])
    np.testing.assert_allclose(line(axis, "floor").get_ydata(), found.floor)
    assert [text.get_text() for text in axis.get_xticklabels()] == ["uniform(0,1)", "uniform(0,3)"]
    assert axis.get_xlabel() == "noise of the problem"
    assert not any("exploded" in text for text in labels(axis))
    draw_shifts(tmp_path / "shifts.png", "title", found)
    assert (tmp_path / "shifts.png").stat().st_size > 5000


def test_explosions_and_floors_of_zero():
    """A cross at each problem on which a sequence exploded, within the axis; a floor of 0 has no line."""
    model = zoo.load("full", 7, "uniform(0,1)")
    found = shifts(Problem(noise="uniform(0,1)"), {"model": model}, noise=[0.5, 3], sequences=1000)
    assert found.exploded[0, 1]
    axis = shifts_figure("title", found).axes[0]
    (crosses,) = [one for one in axis.get_lines() if one.get_marker() == "x" and len(one.get_xdata())]
    assert 1.0 in crosses.get_xdata()
    low, high = axis.get_ylim()
    assert all(low <= y <= high for y in crosses.get_ydata())
    assert "floor" not in labels(axis)
    assert any("a loss above 100 times the signal" in text for text in labels(axis))


def test_losses_that_are_all_zero_can_be_drawn():
    problem = Problem(2, 4, 0)
    found = shifts(problem, {"ConstRR": ConstRR.tune(problem)}, context=[4], sequences=50)
    assert shifts_figure("title", found).axes


def test_losses_below_the_axis_have_a_whole_marker_at_its_edge():
    """One that a line of points has would be cut in half."""
    problem = Problem(2, 4, "uniform(0,2)")
    predictors = {"least squares": ConstRR(0.0), "ridge": ConstRR(1.0)}
    found = shifts(problem, predictors, noise=[0, 1], sequences=50)
    assert found.loss[0, 0] < 1e-20
    axis = shifts_figure("title", found).axes[0]
    edge = line(axis, "below the axis")
    assert (edge.get_xdata().tolist(), edge.get_ydata().tolist()) == ([0.0], [axis.get_ylim()[0]])
    assert not edge.get_clip_on()


def test_prefixes_are_drawn(tmp_path):
    problem = Problem(3, 6, "uniform(0,2)")
    model = LinearTransformer.random("diag", dim=3, layers=1, scale=0.05, context=6)
    found = by_prefix(problem, {"model": model}, sequences=200)
    axis = prefixes_figure("title", found).axes[0]
    np.testing.assert_array_equal(line(axis, "model").get_xdata(), [1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(line(axis, "floor").get_ydata(), found.floor)
    assert axis.get_xlabel() == "number of examples n"
    draw_prefixes(tmp_path / "prefixes.svg", "title", found)
    with pytest.raises(InputError, match=r"must end in .png, .pdf or .svg"):
        draw_prefixes(tmp_path / "prefixes.gif", "title", found)


def test_prefixes_without_noise_are_all_on_the_axis():
    """From 1e-16 with as many examples as in training to 0.1 with others."""
    found = by_prefix(
        Problem(noise=0), {"model": zoo.load("gdpp", 7, "uniform(0,0)")}, context=[5, 10, 20], sequences=200
    )
    low, high = prefixes_figure("title", found).axes[0].get_ylim()
    assert found.loss.max() > 1e6 * found.loss.min() > 0
    assert low < found.loss.min() < found.loss.max() < high


def test_only_problems_with_an_order_are_connected():
    problem = Problem(3, 6, "uniform(0,2)")
    for shift, connected in (
        ({"noise": [0.5, 1]}, True),
        ({"context": [5, 8]}, True),
        ({"context": [8, 5]}, False),
        ({"context": [5, "6..9"]}, False),
        ({"noise": [0.5, "uniform(0,1)"]}, False),
        ({"features": ["isotropic()", "powerlaw(1)"]}, False),
    ):
        found = shifts(problem, {"ConstRR": ConstRR.tune(problem)}, sequences=50, **shift)
        drawn = line(shifts_figure("title", found).axes[0], "ConstRR")
        assert (drawn.get_linestyle() != "None") == connected, shift
        assert drawn.get_marker() == "o"


def test_long_titles_are_wrapped_and_training_is_marked():
    problem = Problem(3, 6, "uniform(0,2)")
    found = by_prefix(problem, {"ConstRR": ConstRR.tune(problem)}, sequences=50)
    axis = prefixes_figure("a title with many words " * 8, found, Lengths("4..9")).axes[0]
    assert max(map(len, axis.get_title().splitlines())) <= 85
    assert "trained on n = 4..9" in labels(axis)
    assert max(axis.get_xlim()) < 7  # training on more examples than are drawn does not widen the axis
    assert all(float(tick).is_integer() for tick in axis.get_xticks())
    assert "trained on n = 5" in labels(prefixes_figure("title", found, Lengths(5)).axes[0])
    assert labels(prefixes_figure("title", found, Lengths(9)).axes[0]) == ["ConstRR", "floor"]
