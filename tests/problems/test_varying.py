"""Problems whose dimension varies, against their cells and against sequences with features that are 0."""

import numpy as np
import pytest

from ridgeformer import LinearTransformer, Problem, compare
from ridgeformer.engine import Layout
from ridgeformer.evaluation import floor
from ridgeformer.problems import VaryingDimension, problem_from_dict
from ridgeformer.problems.parts import ContextRule, dimensions
from ridgeformer.training.batch import Batch
from support import close, each, refused

LAWS = {"noise": "uniform(0,1.6)", "tasks": "gaussian(signal=1)"}


@pytest.fixture(scope="module")
def problem():
    return Problem(dim="2..4", context="d..2d", **LAWS)


@pytest.fixture(scope="module")
def model():
    return LinearTransformer.random("channels(1,4)", dim=4, layers=2, scale=0.3, layout=Layout("mean", "length"))


@each(
    ("d..2d", 3, [3, 4, 5, 6]),
    ("1.25d", 5, [7]),
    ("1.25d", 4, [5]),
    ("d+2,2d", 2, [4]),
    ("20", 7, [20]),
    ("d-1..5", 4, [3, 4, 5]),
)
def test_contexts_that_depend_on_the_dimension(text, dim, numbers):
    assert ContextRule(text).at(dim).values.tolist() == numbers
    assert Problem(dim=dim, context=text, noise=1).lengths.values.tolist() == numbers


def test_dimensions():
    assert dimensions("2..4,8") == dimensions([8, 2, 3, 4]) == (2, 3, 4, 8)


def test_it_is_a_value(problem):
    assert isinstance(problem, VaryingDimension)
    same = Problem.parse(str(problem))
    assert same == problem == problem_from_dict(problem.as_dict()) == eval(repr(problem), {"Problem": Problem, **LAW})
    assert hash(same) == hash(problem)
    assert problem != problem.replace(context="d..3d")
    assert problem.replace(dim=3) == Problem(3, "3..6", **LAWS) == problem.cell(3)
    assert "2..4" in problem.describe()["dimension"]


LAW = {"uniform": lambda a, b: f"uniform({a},{b})", "gaussian": lambda signal: f"gaussian(signal={signal})"}


def test_signal_of_tasks():
    """E |w|^2 is the signal at every dimension: the mean square of the tasks, and the loss of predicting 0."""
    cell = Problem(5, 10, **LAWS)
    assert np.square(cell.moments(20_000).task).sum(1).mean() == pytest.approx(1, abs=0.03)
    assert cell.signal == pytest.approx(1)
    assert Problem(5, 10, noise=1, tasks="gaussian(signal=5)").prior.factor == pytest.approx(np.eye(5))
    both = "gaussian(covariance=[[1,0],[0,1]],signal=1)"
    refused(lambda: Problem(2, 10, noise=1, tasks=both), "takes the place of a covariance")


def test_sequences_are_those_of_the_cells(problem):
    """Whatever the first sequence and the count; features beyond the dimension are 0."""
    draw, part = problem.moments(12, sums=True), problem.moments(5, first=4, sums=True)
    assert draw.dims.tolist() == [2, 3, 4] * 4
    assert np.array_equal(draw.moments.gram[4:9], part.moments.gram)
    assert np.array_equal(draw.ridge[4:9], part.ridge)
    assert np.array_equal(draw.moments.counts[4:9], part.moments.counts)
    for d, S, n in zip(draw.dims, draw.moments.S, draw.moments.counts, strict=True):
        assert not S[d:].any()
        assert np.linalg.matrix_rank(S) == d
        assert n in range(d, 2 * d + 1)


def test_oracle_and_floor_are_those_of_the_cells(problem):
    draw = problem.moments(30)
    oracle, best = problem.oracle(draw), problem.best_predictor().weights(draw.moments)
    assert oracle == pytest.approx(draw.ridge, abs=1e-9)
    for i in range(30):
        d, m = draw.dims[i], draw.moments
        kept = np.append(np.arange(d), 4)
        own = type(m)(m.gram[i : i + 1, kept[:, None], kept], int(m.counts[i]), m.sigma[i : i + 1])
        assert best[i, :d] == pytest.approx(problem.cell(int(d)).best_predictor().weights(own)[0], rel=1e-6)
        assert not best[i, d:].any()


def test_losses_over_the_floor_are_means_over_cells(problem):
    """loss / floor of the whole problem is the mean of loss / floor over dimensions and numbers of examples."""
    model = LinearTransformer.random("channels(1,2)", dim=4, layers=1, layout=Layout("mean", "length"))
    whole = compare(problem, {"model": model}, sequences=30_000)["model"]
    ratios = []
    for d in problem.dims:
        at = problem.cell(d).lengths.values.tolist()
        each = compare(problem, {"m": model}, over={"dim": [d], "context": at}, sequences=4_000)
        ratios.append(float(each.ratio.mean()))
    shares = [problem.importance(cell.dim, cell.lengths.values).mean() for cell in problem.cells]
    assert np.mean(shares) == pytest.approx(1)  # so that losses have the size of a loss
    assert whole.ratio == pytest.approx(np.mean(ratios), rel=0.06)  # floors of 4,000 sequences
    assert floor(problem, sequences=2_000).ratio == 1


def test_batches_by_blocks_are_those_of_the_largest_dimension(problem, model):
    """Losses and gradients of a batch, of a step and of the tokens with features that are 0 are the same."""
    batch = Batch.of(problem.moments(30, sums=True), model.layout)
    whole = Batch(batch.gram, batch.target, batch.metric).evaluate(model, 1.0)
    step = model.step(problem, 30, ceiling=1.0)
    for found in (batch.evaluate(model, 1.0), step):
        assert found.losses == pytest.approx(whole.losses, rel=1e-10)
        close(found.gradient, whole.gradient)


def test_maps_of_dimension_and_context(problem, model, tmp_path):
    losses = compare(problem, {"model": model}, over={"dim": [2, 5], "context": ["d", "2d", 8]}, sequences=500)
    assert losses.loss.shape == (1, 2, 3)
    assert losses.axes == {"dim": (2, 5), "context": ("d", "2d", "8")}
    assert losses.in_distribution["dim"] == (True, False)
    alone = compare(Problem(5, 10, **LAWS), {"model": model.at_dim(5)}, sequences=500)["model"]
    assert losses.at(dim=5, context="2d")["model"].loss == alone.loss
    assert "ratio" in str(losses)
    losses.plot(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000


@pytest.mark.slow
def test_baselines_are_those_of_each_dimension(problem):
    """Every baseline, tuned for each dimension, is at least as far from the oracle as the floor."""
    from ridgeformer.predictors import baselines

    chosen, left_out = baselines(problem.replace(context="d+1..2d"))
    losses = compare(problem.replace(context="d+1..2d"), chosen, sequences=1_000)
    assert losses["OracleRR"].loss == pytest.approx(0, abs=1e-20)
    assert losses["Bayes floor"].ratio == pytest.approx(1)
    assert 1.5 < losses["ConstRR"].ratio < losses["LeastSquares"].ratio
    assert any("IterativeRR" in reason for reason in left_out)


@pytest.mark.slow
def test_training(problem, tmp_path):
    """A search over all dimensions beats predicting 0 at each of them, and its run is read back as it was."""
    from ridgeformer import train
    from ridgeformer.training import Runs, Search

    found = train(problem, "channels(1,2)", layers=1, protocol=Search(effort=0.1), sequences=3_000, out=tmp_path)
    assert found.loss < 0.25
    assert found.spec in [run.spec for run in Runs.load(tmp_path)]  # its ancestors are equally good
    each = compare(problem, {"m": found.model}, over={"dim": [2, 3, 4]}, sequences=2_000)
    assert (each.loss < 0.25).all()
