"""Pictures of problems: what is drawn is what was measured."""

import numpy as np
import pytest

from ridgeformer import InputError, Problem
from ridgeformer.plotting.problems import draw_problem

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
    figure = draw_problem(problem, seed=1)
    assert str(problem) in figure.get_suptitle()
    tokens = problem.sequences(20, seed=1)
    for index, axis in enumerate(figure.axes[:4]):
        n = tokens.x.shape[1] if tokens.context is None else tokens.context[index]
        drawn = line(axis, "examples")
        np.testing.assert_allclose(drawn.get_xdata(), tokens.x[index, :n] @ tokens.task[index])
        np.testing.assert_array_equal(drawn.get_ydata(), tokens.y[index, :n])
        assert line(axis, "query").get_ydata()[0] == tokens.answers[index, 0]
        assert f"n = {n}," in axis.get_title()
    draw_problem(problem, tmp_path / "problem.png")
    assert (tmp_path / "problem.png").stat().st_size > 5000


def test_eigenvalues_are_those_of_the_covariance():
    axis = draw_problem(Problem(3, 50, 1, features=[1.0, 3.0, 2.0])).axes[4]
    np.testing.assert_allclose(line(axis, "covariance of x").get_ydata(), [3, 2, 1])
    drawn = draw_problem(Problem(3, 50, 1, features="rotated(1.0,3.0,2.0)")).axes[4]
    np.testing.assert_allclose(line(drawn, "covariance of x, median").get_ydata(), [3, 2, 1], rtol=1e-9)


def test_lengths_and_levels_are_shown_with_their_shares():
    axes = draw_problem(Problem(2, "3..6", "categorical(1,3)")).axes
    heights = [bar.get_height() for bar in axes[5].patches]
    np.testing.assert_allclose(heights, 0.25)
    shares = [bar.get_height() for bar in axes[6].patches]
    assert len(shares) == 2
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize("noise", ["uniform(0,2)", "lognorm(1)"])
def test_titles_stay_on_the_page(noise):
    """Also the longest ones: a signal of many digits, and noise levels that are not shown."""
    figure = draw_problem(Problem(8, 20, noise, features=np.eye(8) + 0.123))
    figure.draw_without_rendering()
    for axis in figure.axes:
        place = axis.title.get_window_extent()
        assert 0 <= place.x0 < place.x1 <= figure.bbox.width, axis.get_title()


def test_sequences_that_are_too_long_are_refused():
    with pytest.raises(InputError, match=r"a picture shows sequences of at most .*; got 1,000,000,000 examples of 3"):
        draw_problem(Problem(3, 10**9, 1))
