"""Pictures of training, and what is written on them."""

import numpy as np
import pytest

from ridgeformer import BayesRR, Problem, compare, explain, train
from ridgeformer.errors import StorageError
from ridgeformer.plotting.dynamics import draw_curves
from ridgeformer.plotting.explanation import draw_explanation
from ridgeformer.plotting.problems import draw_problem
from ridgeformer.plotting.training import draw_training
from ridgeformer.training import SGD, Paper, Runs, Search

pytest.importorskip("matplotlib")
from matplotlib.text import Text

PROBLEM = Problem(3, 6, "uniform(0,3)")


def labels(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def level(figure, word):
    """The height of the horizontal line whose label has a word."""
    (line,) = [line for line in figure.axes[0].get_lines() if word in line.get_label()]
    return line.get_ydata()[0]


@pytest.fixture(scope="module")
def paper():
    return train(PROBLEM, "diag", 2, protocol=Paper(steps=400, batch=256, rate=1e-3), sequences=4000)


@pytest.fixture(scope="module")
def search():
    return train(PROBLEM, "diag", 2, protocol=Search(effort=0.2), sequences=4000)


def test_the_papers_learning_curve_is_of_unadjusted_losses(paper):
    """Training losses, the reported loss and that of the Bayes predictor, measured here on other sequences."""
    figure, result = draw_training(paper), paper.result
    assert figure.axes[0].get_ylabel() == "unadjusted loss"
    assert level(figure, "on fresh sequences") == result.unadjusted
    draw = PROBLEM.moments(40_000, seed=9)
    bayes = 0.5 * np.square(BayesRR(PROBLEM.noise).weights(draw.moments) - draw.task).sum(1)
    error = np.hypot(bayes.std() / 200, result.unadjusted_error)
    assert level(figure, "of the Bayes predictor") == pytest.approx(bayes.mean(), abs=4 * error)
    assert all("unadjusted loss" in text for text in labels(figure) if "adam" not in text)
    adam = next(line for line in figure.axes[0].get_lines() if line.get_label() == "adam")
    assert adam.get_ydata().tolist() == paper.history.loss.tolist()
    assert adam.get_ydata()[-1] > level(figure, "of the Bayes predictor")


def test_the_searchs_learning_curve_is_of_adjusted_losses(search):
    figure, result = draw_training(search), search.result
    assert figure.axes[0].get_ylabel() == "adjusted loss"
    assert level(figure, "on fresh sequences") == result.loss
    assert level(figure, "floor of the adjusted loss") == result.floor
    assert not any("unadjusted" in text for text in labels(figure))
    assert any("on the sequences trained on" in text for text in labels(figure))
    assert "heats: all starts, few sequences" in labels(figure)


def test_a_floor_of_zero_is_not_drawn():
    known = train(Problem(2, 4, "fixed(1)"), "gdpp", 1, sequences=500)
    assert not any("floor" in text for text in labels(draw_training(known)))


def test_pictures_are_written_whole(search, tmp_path, monkeypatch):
    """A picture that cannot be written leaves the older one as it is, and the message says so."""
    path = tmp_path / "curve.png"
    draw_training(search, path)
    before = path.read_bytes()
    assert before[:4] == b"\x89PNG"

    def full_disk(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ridgeformer.files.os.replace", full_disk)
    losses = compare(PROBLEM, {"Bayes": BayesRR(PROBLEM.noise)}, {"sigma": [1.0]}, sequences=100)
    for draw in (lambda: draw_training(search, path), lambda: losses.plot(path)):
        with pytest.raises(StorageError, match="No space left on device"):
            draw()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_every_picture_shows_in_a_notebook_and_has_no_matrix_in_its_title():
    """Descents, trainings, explanations, problems and losses: the label of the problem has the size alone."""
    problem = Problem(3, 6, 0.5, features=[[1.0, 0.2, 0.0], [0.2, 1.0, 0.0], [0.0, 0.0, 0.5]])
    descent = train(problem, "diag", 1, protocol=SGD(steps=3, batch=8), sequences=50)
    figures = [
        draw_curves({"descent": descent}),
        draw_training(descent),
        draw_explanation(explain(problem, descent.model, sequences=200)),
        draw_problem(problem),
        compare(problem, {"model": descent.model}, sequences=50).plot(),
        Runs.of([descent]).plot(),
    ]
    for figure in figures:
        words = [text.get_text() for text in figure.findobj(Text)]
        assert any("covariance(3 x 3)" in text for text in words)
        assert not any("[[" in text for text in words)
        assert figure._repr_png_().startswith(b"\x89PNG")
    assert "covariance(3 x 3)" in repr(descent)
