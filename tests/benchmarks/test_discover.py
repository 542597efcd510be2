"""The command that trains models for every dimension: its objective against `compare` and finite differences."""

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import discover
from benchmarks.universal import cell
from ridgeformer import LinearTransformer, load
from ridgeformer.moments import Moments
from ridgeformer.predictors import Universal
from ridgeformer.training.batch import damped


@pytest.fixture(scope="module")
def objective():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discover, "STRETCHED", 0.0)
        return discover.Objective("2,5,40", share=0.1, seed=3)


def test_ratios_are_those_of_compare(objective):
    """On the same sequences the ratio of a cell is that of the predictor, which translates units by itself."""
    model = load("zoo:universal/5")
    objective(discover.packed(model))
    cells = {(one.dim, one.context): (one, ratio) for one, ratio in zip(objective.cells, objective.ratios, strict=True)}
    assert list(cells)[:6] == [(2, 2), (2, 3), (2, 4), (2, 6), (2, 8), (5, 5)]
    for place in ((2, 2), (5, 7), (40, 80)):
        one, ratio = cells[place]
        draw = cell(*place).moments(round(20 + 300 / place[0]), seed=3)
        losses = draw.losses(Universal(model, signal=1).weights(draw.moments), draw.ridge)
        assert ratio == pytest.approx(damped(losses, discover.LIMIT).mean() / one.floor)


def test_stretched_contexts_are_contexts():
    """They are those of tokens that are larger along one direction, or have larger labels."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 9, 3)), rng.normal(size=(2, 9))
    u = np.linalg.eigh(x[0].T @ x[0])[1][:, -1]
    long = x[0] + 0.2 * np.outer(x[0] @ u, u)
    moments = Moments._trusted(np.array(Moments.from_tokens(x, y).gram), 9, np.array([1.0, 2.0]))
    found, expected = discover._stretched(moments), Moments.from_tokens([long, x[1]], [y[0], 1.2 * y[1]])
    assert found.gram == pytest.approx(expected.gram)
    assert np.asarray(found.sigma).tolist() == [1.0, 2.4]


def test_gradient_is_that_of_finite_differences(objective):
    model = LinearTransformer.random(discover.FAMILY, dim=32, layers=2, scale=0.3, layout=discover.LAYOUT)
    point, rng = discover.packed(model), np.random.default_rng(0)
    direction = rng.normal(size=len(point))
    ahead, behind = (objective(point + step * direction)[0] for step in (1e-5, -1e-5))
    assert objective(point)[1] @ direction == pytest.approx((ahead - behind) / 2e-5, rel=1e-5)


def test_growth_improves_and_the_parameters_come_back(objective):
    one = discover.grow(None, objective, 5, seed=1)
    two = discover.grow(one, objective, 5, seed=1)
    assert (one.layers, two.layers) == (1, 2)
    assert objective(discover.packed(two))[0] < objective(discover.packed(one))[0]
    assert np.array_equal(discover.packed(discover.unpacked(discover.packed(two))), discover.packed(two))


def test_an_interrupted_run_gives_the_same_bits(tmp_path):
    arguments = ["--layers", "1", "--iterations", "3", "--rounds", "2", "--dim", "2,5", "--share", "0.02", "--out"]
    for name, rounds in (("a", "2"), ("b", "1"), ("b", "2")):
        arguments[5] = rounds
        done = CliRunner().invoke(discover.main, [*arguments, str(tmp_path / name)])
        assert "largest" in done.output, done.output
    a, b = (discover.packed(load(tmp_path / name)) for name in ("a", "b"))
    assert np.array_equal(a, b)
