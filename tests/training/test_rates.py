"""Rates that follow from the problem, and clipped gradients."""

from types import SimpleNamespace

import numpy as np
import pytest

from ridgeformer import Diag, Full, Layout, LinearTransformer, Problem, train
from ridgeformer.losses import CAP
from ridgeformer.population import Quadratic
from ridgeformer.problems import Gaussian
from ridgeformer.theory import one_layer
from ridgeformer.training import SGD, Adam, Fresh, GradientDescent, GradientFlow
from ridgeformer.training.descent.walk import DescentState, risen
from ridgeformer.training.spec import make_spec, parse_spec
from support import FEW, SMALL, descent


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip", [None, 6.0])
def test_gradient_descent_is_that_of_a_plain_loop(momentum, clip):
    """A clip shortens gradients before momentum, by the norm over all arrays; the history has the norms before it."""
    start = LinearTransformer.random("full", dim=3, layers=1, context=6, scale=0.3, seed=1)
    protocol = descent(clip=clip, momentum=momentum, schedule="cosine", warmup=5, record=1)
    history = train(SMALL, "full", 1, protocol=protocol, init=start, **FEW).history
    quadratic, velocity, time = Quadratic.of_problem(SMALL), 0.0, 0.0
    point, shape = np.concatenate([start.family.arrays[name].ravel() for name in "PQ"]), start.family.arrays["P"].shape
    rows = []
    for rate in [*1e-3 * 0.5 * (1 + np.cos(np.pi * np.arange(40) / 40)) * np.minimum(1, np.arange(1, 41) / 6), 0.0]:
        P, Q = (half.reshape(shape) for half in np.split(point, 2))
        loss, slopes = quadratic(LinearTransformer(Full(P, Q), 3))
        slope = np.concatenate([slopes[name].ravel() for name in "PQ"])
        norm = np.linalg.norm(slope)
        rows.append((loss, norm, time))
        share = 1.0 if clip is None else min(1.0, clip / norm)
        time += np.nan if momentum else rate * share
        velocity = momentum * velocity + slope * share
        point = point - rate * velocity
    losses, norms, times = np.transpose(rows)
    assert max(norms) > 6.0 > min(norms)
    np.testing.assert_allclose(history.loss, losses, rtol=1e-11)
    np.testing.assert_allclose(history.gradient_norm, norms, rtol=1e-9)
    np.testing.assert_allclose(history.time, times, rtol=1e-11)


def test_a_clip_shortens_gradients_whose_squares_overflow():
    slope, state = np.array([3e200, -4e200]), DescentState(np.zeros(2), np.zeros(2), np.zeros(2))
    protocol, walk = descent(clip=10.0), SimpleNamespace(state=state, rate=lambda: 2.0)
    np.testing.assert_allclose(protocol.advance(walk, 1.0, slope)[0], [-12.0, 16.0], rtol=1e-15)
    assert (state.clipped, state.time) == (1, pytest.approx(2.0 * 10 / 5e200))  # a shorter step takes less time
    assert protocol.advance(walk, 1.0, np.zeros(2))[0].tolist() == [0.0, 0.0]
    assert (state.clipped, state.time) == (1, 2.0)


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


def test_in_large_units_a_clipped_descent_records_its_losses():
    """Labels times 10^9, where 10^12 is a small loss: those of the history are 10^18 times as large, not cut."""
    losses = []
    for unit in (1.0, 1e9):
        problem = Problem(3, 6, f"uniform(0,{2 * unit})", tasks=Gaussian(covariance=unit**2 * np.eye(3)))
        start = LinearTransformer.random("gdpp", dim=3, layers=1, context=6, scale=0.01, seed=1)
        protocol = descent(rate=1e-9 / unit**2, clip=1e300, steps=2, record=1)
        losses.append(train(problem, "gdpp", 1, protocol=protocol, init=start, **FEW).history.loss / unit**2)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)


def test_losses_above_those_that_overflow_count_as_these(monkeypatch):
    """A finite loss of 1e30 is no better than one that overflows."""
    slopes = {1: (1e30, np.ones(4)), 2: (np.inf, np.ones(4))}
    monkeypatch.setattr(Fresh, "gradient", lambda *_: (lambda point, step: slopes.get(step, (1.0, np.ones(4))), True))
    found = train(SMALL, "diag", 1, protocol=SGD(rate=0.01, clip=1, steps=3, record=1), **FEW)
    assert found.history.adjusted_loss.tolist() == [1.0, CAP, CAP, 1.0]


@pytest.mark.parametrize("kind", [GradientDescent, Adam])
def test_without_a_rate_sums_and_means_learn_alike(kind):
    """Attention by mean has parameters sqrt(n) times as large: natural units hide it, but for three digits of rates."""
    protocol, error = kind(steps=200, batch="population", record=10), 5e-3
    runs = [train(SMALL, "full", 1, protocol=protocol, layout=Layout(by), **FEW) for by in ("sum", "mean")]
    np.testing.assert_allclose(runs[0].history.loss, runs[1].history.loss, rtol=error)
    assert runs[0].history.loss[-1] < 0.9 * runs[0].history.loss[0]
    sums, means = (run.spec.protocol.rate for run in runs)
    assert means / sums == pytest.approx(6 if kind is GradientDescent else np.sqrt(6), rel=0.01)


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
    assert (plain.protocol.clip, plain.protocol.halving) == (None, True)
    assert heavy.protocol.clip == spec("sgd").protocol.clip == 4.47  # 0.1 signal sqrt(n), to three digits
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


def test_without_a_rate_gradient_descent_is_plain_wherever_that_is_stable():
    """Rates are halved until no step raises the loss; a plain loop at the last rate and the flow end at one loss."""
    problem = Problem(4, 20, "fixed(0.5)", features="powerlaw(1)")
    how = {"sequences": 1000, "threads": 1}
    found = train(problem, "diag", 2, protocol=GradientDescent(steps=4000, scale=0.01, batch="sample(512)"), **how)
    history = found.history
    assert (np.diff(history.loss) <= 1e-9 * problem.signal).all()
    assert history.clipped[-1] == 0
    halved = round(np.log2(history.rate[0] / history.rate[-1]))
    assert halved > 0
    assert f"the rate was halved {halved} times, to {history.rate[-1]:.3g}" in found.message
    flow = GradientFlow(time=float(history.time[-1]), scale=0.01, batch="sample(512)", record=20)
    assert history.loss[-1] == pytest.approx(train(problem, "diag", 2, protocol=flow, **how).history.loss[-1], rel=0.01)
    assert 0 < history.time[-1] < 4000 * history.rate[0]


def test_time_is_that_of_the_flow_or_unknown():
    run = train(SMALL, "diag", 2, protocol=descent(batch="sample(64)", clip=0.01, record=1), **FEW)
    norms = run.history.gradient_norm[:-1]
    np.testing.assert_allclose(np.diff(run.history.time), 1e-3 * np.minimum(1, 0.01 / norms), rtol=1e-9)
    assert run.history.clipped[-1] == (norms > 0.01).sum() > 0
    assert f"{run.history.clipped[-1]:.0f} of 40 steps" in run.message
    for protocol in (descent(momentum=0.5), Adam(rate=1e-3, steps=40)):
        assert np.isnan(train(SMALL, "diag", 2, protocol=protocol, **FEW).history.time[1:]).all()


def test_a_fixed_sample_has_two_losses():
    """The one on the sample, and the one on fresh sequences, which few sequences leave far behind."""
    small, large = (
        train(SMALL, "full", 2, protocol=GradientDescent(steps=1500, batch=f"sample({size})"), **FEW)
        for size in (32, 8192)
    )
    gaps = [run.history.fresh_loss[-1] - run.history.loss[-1] for run in (small, large)]
    assert gaps[0] > 5 * abs(gaps[1])
    fresh, draw = small.history.adjusted_loss[-1] + gaps[0], SMALL.moments(8192, stream=4)
    assert fresh == pytest.approx(small.model.evaluate(draw.moments, draw.ridge).loss, rel=1e-9)
    assert f"on the sample, {fresh:.3g} on fresh sequences" in small.message
    assert np.isnan(train(SMALL, "diag", 1, protocol=descent(), **FEW).history.fresh_loss).all()


def test_a_loss_that_rises_at_the_end_is_pointed_out():
    losses = np.append(np.geomspace(5, 0.1, 90), np.full(10, 2.0))
    column = {"step": np.arange(100.0), "adjusted_loss": losses}
    assert risen(column) == (
        "; the adjusted loss was 0.122 at step 85 and is 2 at the end: a smaller rate or clip may help"
    )
    losses[50] = losses[-1] = 1e6  # single batches say nothing
    losses[90:99] = 0.1
    assert risen(column) == ""
    losses[:] = np.append(np.full(50, 1.0), np.geomspace(1e-18, 1e-16, 50))  # nor does rounding
    assert risen(column) == ""
