"""Rates that follow from the problem, and clipped gradients."""

import re

import numpy as np
import pytest

from ridgeformer import Diag, Full, Layout, LinearTransformer, Problem, train
from ridgeformer.losses import CAP
from ridgeformer.population import Quadratic
from ridgeformer.theory import one_layer
from ridgeformer.training import (
    SGD,
    Adam,
    GradientDescent,
    gradients,
)
from ridgeformer.training.descent import _clipped, _risen
from ridgeformer.training.history import COLUMNS
from ridgeformer.training.spec import make_spec, parse_spec

SMALL = Problem(dim=3, context=6, noise="uniform(0,2)")
FEW = {"sequences": 1000, "threads": 1}


def descent(**options):
    return GradientDescent(**{"rate": 1e-3, "steps": 40, "scale": 0.05, **options})


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_clip_shortens_gradients_of_a_plain_loop(momentum):
    """Before momentum, by the norm over all arrays; the history has the norms before it."""
    start = LinearTransformer.random("full", dim=3, layers=1, context=6, scale=0.3, seed=1)
    protocol = descent(clip=2.0, momentum=momentum, record=1)
    found = train(SMALL, "full", 1, protocol=protocol, init=start, **FEW)
    quadratic, velocity = Quadratic.of_problem(SMALL), 0.0
    point, shape = np.concatenate([start.family.arrays[name].ravel() for name in "PQ"]), start.family.arrays["P"].shape
    losses, norms = [], []
    for _ in range(41):
        P, Q = (half.reshape(shape) for half in np.split(point, 2))
        loss, slopes = quadratic(LinearTransformer(Full(P, Q), 3))
        slope = np.concatenate([slopes[name].ravel() for name in "PQ"])
        losses.append(loss)
        norms.append(np.linalg.norm(slope))
        velocity = momentum * velocity + slope * min(1.0, 2.0 / norms[-1])
        point = point - 1e-3 * velocity
    assert max(norms) > 2.0 > min(norms)
    np.testing.assert_allclose(found.history.loss, losses, rtol=1e-11)
    np.testing.assert_allclose(found.history.gradient_norm, norms, rtol=1e-9)


def test_a_clip_shortens_gradients_whose_squares_overflow():
    slope = np.array([3e200, -4e200])
    np.testing.assert_allclose(_clipped(slope, 10.0), [6.0, -8.0], rtol=1e-15)
    assert _clipped(slope, 1e201) is slope
    assert _clipped(np.zeros(2), 1.0).tolist() == [0.0, 0.0]


def test_a_clipped_descent_survives_sequences_that_overflow():
    problem = Problem(5, 10, "uniform(0,2)")
    found, without = (
        train(problem, "diag", 7, protocol=SGD(steps=300, record=1, batch=64, clip=clip), **FEW)
        for clip in (None, np.inf)
    )
    assert without.status == "diverged"
    assert "the loss was not finite" in without.message
    assert len(found.history) == 301
    assert found.history.loss.max() > 1e9  # it went through explosions, and
    assert found.loss < 0.5 * problem.signal / 2  # came back


def test_a_clipped_descent_without_any_gradient_ends():
    """Where every sequence overflows, nothing is left in the gradient."""
    problem = Problem(5, 10, "uniform(0,2)")
    found = train(problem, "diag", 7, protocol=SGD(rate=1, clip=10, steps=200, batch=64), **FEW)
    assert found.status == "diverged"
    assert re.search(r"the loss was not finite at step \d+; a rate of 0.1 with a clip of 10 may help", found.message)
    assert len(found.history) < 100


def test_losses_above_those_that_overflow_count_as_these(monkeypatch):
    """A finite loss of 1e30 is no better than one that overflows."""
    slopes = {1: (1e30, np.ones(4)), 2: (np.inf, np.ones(4))}
    monkeypatch.setattr(
        gradients.Course, "_of_fresh", lambda *_: lambda point, step: slopes.get(step, (1.0, np.ones(4)))
    )
    found = train(SMALL, "diag", 1, protocol=SGD(rate=0.01, clip=1, steps=3, record=1), **FEW)
    assert found.history.adjusted_loss.tolist() == [1.0, CAP, CAP, 1.0]


@pytest.mark.parametrize("kind", [GradientDescent, Adam])
def test_without_a_rate_sums_and_means_learn_alike(kind):
    """Attention by mean has parameters sqrt(n) times as large: natural units hide it, but for three digits of rates."""
    protocol, error = kind(steps=200, batch="population", record=10), 2e-3
    runs = [train(SMALL, "full", 1, protocol=protocol, layout=Layout(kind), **FEW) for kind in ("sum", "mean")]
    np.testing.assert_allclose(runs[0].history.loss, runs[1].history.loss, rtol=error)
    assert runs[0].history.loss[-1] < 0.9 * runs[0].history.loss[0]
    clips = [run.spec.protocol.clip for run in runs]
    assert clips[0] / clips[1] == pytest.approx(np.sqrt(6), rel=0.01)


def test_without_a_rate_omegas_learn_like_p_and_q():
    """Their natural size is that of a product: n times smaller, not sqrt(n) times."""
    problem, small = Problem(3, 100, "uniform(0,2)"), np.full((1, 1, 2), 0.01)
    best = one_layer.risk(problem, one_layer.optimum(problem))
    for family in (Diag(omega=np.zeros((1, 2, 2))), Diag(p=-small, q=small)):
        start = LinearTransformer(family, 3)
        found = train(problem, "diag", 1, start.heads, protocol=GradientDescent(steps=3000), init=start, **FEW)
        assert found.history.loss[-1] == pytest.approx(best, rel=1e-3)


def test_a_rate_and_a_clip_are_chosen_only_where_none_is_given():
    """Runs with a rate have the names that they had before there were clips and rates of the problem."""

    def spec(protocol):
        return make_spec(Problem(10, 20, "uniform(0,5)"), "diag", layers=3, sequences=10, protocol=protocol)

    assert spec(GradientDescent(rate=0.01)).name == "diag-3x1-uniform-0-5-d10n20-s0-a95d99fa5a"
    assert "clip" not in spec(SGD(rate=0.01)).as_dict()["protocol"]
    assert spec(Adam(rate=1e-3, clip=np.inf)).protocol.clip is None
    assert spec(Adam(clip=np.inf)).protocol.clip is None
    assert spec(Adam(clip=2.5)).protocol.clip == 2.5
    assert spec(Adam(clip=2)).name == spec(Adam(clip=2.0)).name == spec(Adam(clip=np.float32(2))).name
    plain, heavy = spec("descent"), spec(GradientDescent(momentum=0.9))
    assert plain.protocol.rate == pytest.approx(0.1 / (20 * 10))  # 0.1 / (n signal)
    assert plain.protocol.clip == 4.47  # 0.1 signal sqrt(n), to three digits
    assert heavy.protocol.rate == pytest.approx(0.1 * plain.protocol.rate)
    assert parse_spec(plain.as_dict()) == plain
    assert spec("adam").name != spec(Adam(rate=spec("adam").protocol.rate)).name  # which has no clip


@pytest.mark.parametrize("features", ["isotropic", "spectrum(9,9,9,4)", "spectrum(0.1,0.1,0.1,0.1)"])
def test_without_a_rate_descents_learn(features):
    problem = Problem(4, 12, "uniform(0,2)", features=features)
    for protocol in (GradientDescent(steps=500), SGD(steps=500, batch=128), Adam(steps=500, batch=128)):
        found = train(problem, "diag", 2, protocol=protocol, **FEW)
        assert found.status != "diverged"
        assert found.loss < 0.8 * found.history.adjusted_loss[0]


def test_a_loss_that_rises_at_the_end_is_pointed_out():
    table = np.zeros((100, len(COLUMNS)))
    table[:, 0], table[:, 4] = np.arange(100), np.append(np.geomspace(5, 0.1, 90), np.full(10, 2.0))
    assert _risen(table) == (
        "; the adjusted loss was 0.122 at step 85 and is 2 at the end: a smaller rate or clip may help"
    )
    table[50, 4] = table[-1, 4] = 1e6  # single batches say nothing
    table[90:99, 4] = 0.1
    assert _risen(table) == ""
    table[:, 4] = np.append(np.full(50, 1.0), np.geomspace(1e-18, 1e-16, 50))  # nor does rounding
    assert _risen(table) == ""
