"""The command that trains models for every dimension: its objective against `compare` and finite differences."""

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import cells, discover
from benchmarks.universal import cell
from ridgeformer import LinearTransformer, Problem, load
from ridgeformer.engine import Layout
from ridgeformer.loading import with_record
from ridgeformer.models import Channels
from ridgeformer.models.family import family_named
from ridgeformer.moments import Moments
from ridgeformer.predictors import Universal
from ridgeformer.training.batch import damped

LAYOUT = Channels(1, 4).layout_for(cells.UNIVERSAL, 32)


@pytest.fixture(scope="module")
def objective():
    return cells.Objective(LAYOUT, "2,5,40", share=0.1, seed=3)


@pytest.fixture(scope="module")
def model():
    return LinearTransformer.random("channels(1,4)", dim=32, layers=2, scale=0.3, layout=LAYOUT)


@pytest.fixture(scope="module")
def vector(objective, model):
    return objective.vector(model)


@pytest.fixture(scope="module")
def point(vector, model):
    return vector.pack(model)


def test_ratios_are_those_of_the_predictor(objective, model):
    """On the same sequences, the excess of a cell is that of the predictor, which translates units by itself."""
    objective.of(model)
    places = {(one.dim, one.context): (one, r) for one, r in zip(objective.cells, objective.ratios, strict=True)}
    assert list(places)[:6] == [(2, 2), (2, 3), (2, 4), (2, 6), (2, 8), (5, 5)]
    assert [one.allowed for one, _ in places.values()] == [0.3, 0.12, 0.12, 0.12, 0.12, 0.3] + 5 * [0.12] + [0.25]
    for place in ((2, 2), (5, 7), (40, 80)):
        one, ratio = places[place]
        problem = cell(*place)
        draw = problem.moments(round(0.1 * (400 + 16_000 / place[0] ** 1.5)), seed=3)
        best = problem.best_predictor().weights(draw.moments)
        mine = Universal(model, signal=1).weights(draw.moments)
        assert one.floor == pytest.approx(np.square(best - draw.ridge).sum(1).mean() / 2)
        excess = damped(np.square(mine - best).sum(1) / 2, cells.LIMIT).mean()
        assert ratio == pytest.approx(1 + excess / one.floor)


def test_stretched_contexts_are_contexts():
    """They are those of tokens that are larger along one direction, with larger labels and longer tasks."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 9, 3)), rng.normal(size=(2, 9))
    other = np.random.default_rng(7)
    by = 1 + other.uniform(0, cells.STRETCH / 3, (2, 2))
    task = cells.TASK / np.sqrt(3) * other.uniform(-1, 1, (2, 1))
    tops = [np.linalg.eigh(one.T @ one)[1][:, -1] for one in x]
    long = [one + (k - 1) * np.outer(one @ u, u) for one, k, u in zip(x, by[0], tops, strict=True)]
    found = cells._stretched(Moments.from_tokens(x, y), seed=7)
    labels = by[1][:, None] * y + task * np.einsum("bnd,bd->bn", x, tops)
    assert found.gram == pytest.approx(Moments.from_tokens(long, labels).gram)


def test_gradient_is_that_of_finite_differences(objective, vector, point):
    direction = np.random.default_rng(0).normal(size=len(point))
    ahead, behind = (objective(vector, point + step * direction)[0] for step in (1e-5, -1e-5))
    assert objective(vector, point)[1] @ direction == pytest.approx((ahead - behind) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("family", ["diag", "full", "channels(1,3)"])
def test_gradient_of_other_families_is_that_of_finite_differences(family):
    """In their natural units, on a problem of one dimension whose noise is given."""
    layout = family_named(family).layout_for(Layout(), 3)
    objective = cells.Objective(layout, "3", "6", share=0.05, noise="uniform(0,2)")
    model = LinearTransformer.random(family, dim=3, layers=2, heads=2, scale=0.3, context=6)
    vector = objective.vector(model)
    point = vector.pack(model)
    assert vector.model(point).family.arrays.keys() == model.family.arrays.keys()
    direction = np.random.default_rng(0).normal(size=len(point))
    ahead, behind = (objective(vector, point + step * direction)[0] for step in (1e-5, -1e-5))
    assert objective(vector, point)[1] @ direction == pytest.approx((ahead - behind) / 2e-5, rel=1e-5)


def test_curvature_is_that_of_gauss_and_newton(vector, point):
    """Random vectors of a cell have the covariance sum J'J, by finite differences; less for losses that are damped."""
    one = cells.Cell.of(cell(3, 4), LAYOUT, share=0.02, seed=3)
    rng, direction = np.random.default_rng(0), np.random.default_rng(1).normal(size=len(point))
    draws = [np.square(one.gradients(vector, vector.model(point), rng) @ direction).sum() for _ in range(400)]
    expected = 0.0
    for batch, counted, limit in one.parts:
        ends = [vector.model(point + step * direction).at_dim(3) for step in (1e-5, -1e-5)]
        ahead, behind = (batch.evaluate(end, np.inf, gradient=False, weights=True).weights for end in ends)
        sizes = np.square((ahead - behind) / 2e-5).sum(1)
        units = 1.0 if batch.metric is None else batch.metric[:, 0, 0]
        units = units * np.minimum(limit / batch.evaluate(ends[0], np.inf, gradient=False).losses, 1)
        expected += counted * (units * sizes).mean() / (one.floor * one.allowed)
    assert np.mean(draws) == pytest.approx(expected, abs=4 * np.std(draws) / 20)
    assert np.std(draws) / 20 < 0.08 * expected


def test_growth_improves(objective):
    one, value = discover.descend(objective, discover.layer_of(Channels(1, 4), 32, 1, objective, seed=1), 3, seed=1)
    two = discover.grow(one, objective, 3, seed=1)
    assert (one.layers, two.layers) == (1, 2)
    assert objective.of(two) < objective.of(one) == value
    assert discover.shorten(two, objective, 1, seed=1).layers == 1


def test_further_scalars_and_heads_change_nothing_where_their_numbers_are_0(model):
    moments = cell(3, 6).moments(5).moments
    wide = discover.widened(model, Channels(1, 6), 2, seed=0, scale=0.0)
    assert (wide.family.scalars, wide.heads) == (6, 2)
    assert wide.at_dim(3).weights(moments) == pytest.approx(model.at_dim(3).weights(moments))
    other = discover.widened(model, Channels(1, 6), 2, seed=0)
    assert not np.allclose(other.at_dim(3).weights(moments), model.at_dim(3).weights(moments), rtol=1e-6)


def test_labels_in_other_units_have_the_same_answer(model):
    """A model for every dimension, at one dimension and tasks N(0, I), is the same model of labels / sqrt(d)."""
    moments = Problem(3, 6, "uniform(0,2)").moments(5).moments
    scaled = Moments._trusted(moments.gram / np.outer([1, 1, 1, 3**0.5], [1, 1, 1, 3**0.5]), moments.context, None)
    own = discover.in_units(model, 3.0).at_dim(3)
    assert own.weights(moments) == pytest.approx(3**0.5 * model.at_dim(3).weights(scaled))


def test_an_interrupted_run_gives_the_same_bits(tmp_path):
    arguments = ["--layers", "1", "--iterations", "3", "--rounds", "2", "--dim", "2,5", "--share", "0.02", "--out"]
    for name, rounds in (("a", "2"), ("b", "1"), ("b", "2")):
        arguments[5] = rounds
        done = CliRunner().invoke(discover.main, [*arguments, str(tmp_path / name)])
        assert "largest" in done.output, done.output
    a, b = (load(tmp_path / name).family.arrays for name in ("a", "b"))
    assert all(np.array_equal(value, b[name]) for name, value in a.items())
    assert with_record(tmp_path / "a")[1]["spec"]["dim"] == "2,5"
