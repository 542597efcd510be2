"""Pictures of losses: what is drawn is what was measured."""

import functools

import numpy as np
import pytest

from own_problems import HeavyTails
from ridgeformer import BayesRR, ConstRR, LeastSquares, LinearTransformer, Problem, compare, explain, load, train
from ridgeformer.errors import StorageError
from ridgeformer.plotting.dynamics import draw_curves, draw_trajectories
from ridgeformer.plotting.explanation import draw_explanation
from ridgeformer.plotting.problems import draw_problem
from ridgeformer.plotting.training import draw_training
from ridgeformer.training import SGD, PaperProtocol, Runs, Search
from support import each, refused

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
    refused(lambda: losses.plot(tmp_path / "losses.gif"), "must end in .png, .pdf or .svg")


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
    refused(losses.plot, "at most two axes; got layer, sigma, query. Choose values")


def test_prefixes_are_drawn_against_their_lengths():
    model = LinearTransformer.random("diag", dim=3, layers=1, scale=0.05, context=6)
    losses = compare(PROBLEM.replace(context="4..6"), {"model": model}, "context", sequences=200)
    (axis,) = losses.plot().axes
    np.testing.assert_array_equal(line(axis, "model").get_xdata(), [1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(line(axis, "floor").get_ydata(), losses.floor)
    assert axis.get_xlabel() == "number of examples n"
    assert "in distribution" in labels(axis)
    assert all(float(tick).is_integer() for tick in axis.get_xticks())


@each(
    ({"noise": [0.5, 1]}, True),
    ({"context": [5, 8]}, True),
    ({"context": [8, 5]}, False),
    ({"context": [5, "6..9"]}, False),
    ({"noise": [0.5, "uniform(0,1)"]}, False),
    ({"features": ["isotropic()", "powerlaw(1)"]}, False),
    ids=str,
)
def test_only_numbers_in_order_are_connected(over, connected):
    drawn = line(compare(PROBLEM, CONST, over, sequences=50).plot().axes[0], "ConstRR")
    assert (drawn.get_linestyle() != "None") == connected
    assert drawn.get_marker() == "o"


# ---- Pictures of training, and what is written on them


TRAINED = Problem(3, 6, "uniform(0,3)")


def level(figure, word):
    """The height of the horizontal line whose label has a word."""
    (line,) = [line for line in figure.axes[0].get_lines() if word in line.get_label()]
    return line.get_ydata()[0]


@pytest.fixture(scope="module")
def paper():
    return train(TRAINED, "diag", 2, protocol=PaperProtocol(steps=400, batch=256, rate=1e-3), sequences=4000)


@pytest.fixture(scope="module")
def search():
    return train(TRAINED, "diag", 2, protocol=Search(effort=0.2), sequences=4000)


def test_the_papers_learning_curve_is_of_unadjusted_losses(paper):
    """Training losses, the reported loss and that of the Bayes predictor, measured here on other sequences."""
    figure, result = draw_training(paper), paper.result
    assert figure.axes[0].get_ylabel() == "unadjusted loss"
    assert level(figure, "on fresh sequences") == result.unadjusted
    draw = TRAINED.moments(40_000, seed=9)
    bayes = 0.5 * np.square(BayesRR(TRAINED.noise).weights(draw.moments) - draw.task).sum(1)
    error = np.hypot(bayes.std() / 200, result.unadjusted_error)
    assert level(figure, "of the Bayes predictor") == pytest.approx(bayes.mean(), abs=4 * error)
    assert all("unadjusted loss" in text for text in labels(figure.axes[0]) if "adam" not in text)
    adam = next(line for line in figure.axes[0].get_lines() if line.get_label() == "adam")
    assert adam.get_ydata().tolist() == paper.history.loss.tolist()
    assert adam.get_ydata()[-1] > level(figure, "of the Bayes predictor")


def test_the_searchs_learning_curve_is_of_adjusted_losses(search):
    figure, result = draw_training(search), search.result
    assert figure.axes[0].get_ylabel() == "adjusted loss"
    assert level(figure, "on fresh sequences") == result.loss
    assert level(figure, "floor of the adjusted loss") == result.floor
    assert not any("unadjusted" in text for text in labels(figure.axes[0]))
    assert any("on the sequences trained on" in text for text in labels(figure.axes[0]))
    assert "heats: all starts, few sequences" in labels(figure.axes[0])


def test_a_floor_of_zero_is_not_drawn():
    known = train(Problem(2, 4, "fixed(1)"), "gdpp", 1, sequences=500)
    assert not any("floor" in text for text in labels(draw_training(known).axes[0]))


def test_pictures_are_written_whole(search, tmp_path, monkeypatch):
    """A picture that cannot be written leaves the older one as it is, and the message says so."""
    path = tmp_path / "curve.png"
    draw_training(search, path)
    before = path.read_bytes()
    assert before[:4] == b"\x89PNG"

    def full_disk(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ridgeformer.files.os.replace", full_disk)
    losses = compare(TRAINED, {"Bayes": BayesRR(TRAINED.noise)}, {"sigma": [1.0]}, sequences=100)
    for draw in (lambda: draw_training(search, path), lambda: losses.plot(path)):
        refused(draw, "No space left on device", StorageError)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_every_picture_shows_in_a_notebook_and_has_no_matrix_in_its_title():
    """Descents, trainings, explanations, problems and losses: the label of the problem has the size alone."""
    from matplotlib.text import Text

    problem = Problem(3, 6, 0.5, features=[[1.0, 0.2, 0.0], [0.2, 1.0, 0.0], [0.0, 0.0, 0.5]])
    descent = train(problem, "diag", 1, protocol=SGD(steps=3, batch=8), sequences=50)
    explained = explain(problem, descent.model, sequences=200)
    losses = compare(problem, {"model": descent.model}, sequences=50)
    drawn = (draw_curves, descent), (draw_training, descent), (draw_explanation, explained), (draw_problem, problem)
    pictures = [functools.partial(draw, value) for draw, value in (*drawn, (draw_trajectories, descent))]
    pictures += [losses.plot, Runs.of([descent]).plot]
    for draw in pictures:
        assert any("my title" in text.get_text() for text in draw(title="my title").findobj(Text))
        figure = draw()
        words = [text.get_text() for text in figure.findobj(Text)]
        assert any("covariance(3 x 3)" in text for text in words) == (draw is not pictures[4])  # its title is the model
        assert not any("[[" in text for text in words)
        assert figure._repr_png_().startswith(b"\x89PNG")
    assert "covariance(3 x 3)" in repr(descent)


def test_runs_without_an_oracle_have_losses_that_are_not_adjusted_and_no_floor():
    run = train(HeavyTails(), "diag", 1, protocol=SGD(steps=3, batch=8), sequences=50)
    axis = Runs.of([run]).plot(baselines={}).axes[0]
    assert axis.get_ylabel() == "loss"
    assert [line.get_label() for line in axis.get_lines() if line.get_xdata().size] == ["diag"]


# ---- Pictures of problems: what is drawn is what was measured


PROBLEMS = [
    Problem(3, 6, "uniform(0,2)"),
    Problem(1, "2,5", "categorical(1,3)"),
    Problem(4, "5..9", 0, features="standardised(factors(2))", tasks="mixture(pool(4),0.2)"),
    Problem(3, 6, 1, features="rotated(powerlaw(1))"),
    Problem(3, 6, 1, features="scales(1)", query="powerlaw(1)", tasks="gaussian(mean=[1,0,0])"),
]


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
    refused(lambda: draw_problem(Problem(3, 10**9, 1)), "a picture shows sequences of at most ... ; got 1,000,000,000")
