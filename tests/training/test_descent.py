"""Descents against independent loops and closed forms; histories, snapshots, starts, callbacks and stored runs."""

import csv
import dataclasses
import json
import re
from contextlib import suppress

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from ridgeformer import Diag, Full, InputError, Layout, LinearTransformer, Problem, load_run, train
from ridgeformer.errors import DamageError, MissingPackageError
from ridgeformer.evaluation import oracle_risk
from ridgeformer.losses import CAP
from ridgeformer.models import Looped, LowRank
from ridgeformer.population import Quadratic
from ridgeformer.theory import one_layer
from ridgeformer.training import (
    SGD,
    Adam,
    Callback,
    CSVLogger,
    GradientDescent,
    GradientFlow,
    Paper,
    Search,
    TensorBoardLogger,
    WandbLogger,
    gradients,
    loggers,
)
from ridgeformer.training.descent import _clipped, _risen
from ridgeformer.training.history import COLUMNS
from ridgeformer.training.job import RACE
from ridgeformer.training.journal import DamagedRunWarning
from ridgeformer.training.runs import Folder
from ridgeformer.training.spec import make_spec, parse_spec

SMALL = Problem(dim=3, context=6, noise="uniform(0,2)")
FEW = {"sequences": 1000, "threads": 1}
PLATEAUS = (1.0, 0.641, 0.377, 0.210, 0.136)
FACTORS = Problem(3, 6, 1, features="factors(1)")
YZHANG = Problem(dim=4, context=31, noise="fixed(0)", features="spectrum(0.4,0.3,0.2,0.1)")


def descent(**options):
    return GradientDescent(**{"rate": 1e-3, "steps": 40, "scale": 0.05, **options})


def same_model(one, other):
    return all((a == other.family.arrays[name]).all() for name, a in one.family.arrays.items())


# ---- what is computed ---------------------------------------------------------------------------------------


def plain_loop(problem, start, steps, update):
    """Gradient descent as one would write it: arrays, the exact gradient, an update."""
    quadratic, arrays = Quadratic.of_problem(problem), {k: np.array(v) for k, v in start.family.arrays.items()}
    losses = []
    for step in range(steps + 1):
        loss, slopes = quadratic(LinearTransformer(Full(**arrays), start.dim))
        losses.append(loss)
        arrays = {name: update(step, name, value, slopes[name]) for name, value in arrays.items()}
    return np.array(losses)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_gradient_descent_is_that_of_a_plain_loop(momentum):
    start = LinearTransformer.random("full", dim=3, layers=1, context=6, scale=0.3, seed=1)
    protocol = descent(momentum=momentum, schedule="cosine", warmup=5, record=1)
    found = train(SMALL, "full", 1, protocol=protocol, init=start, **FEW)
    velocity, rates = {"P": 0.0, "Q": 0.0}, protocol.rates()

    def update(step, name, value, slope):
        velocity[name] = momentum * velocity[name] + slope
        return value - rates[min(step, 39)] * velocity[name]

    losses = plain_loop(SMALL, start, 40, update)
    np.testing.assert_allclose(found.history.loss, losses, rtol=1e-12)
    assert found.history.step.tolist() == list(range(41))
    np.testing.assert_allclose(found.history.time, np.append(0, np.cumsum(rates)))


def test_a_schedule_may_be_a_function(tmp_path):
    """It is stored as a table, so that a run is found again."""
    falling = descent(schedule=lambda step: 1 / (1 + step), warmup=3)
    np.testing.assert_allclose(falling.rates(), 1e-3 / np.arange(1, 41) * np.minimum(1, np.arange(1, 41) / 4))
    steps = descent(schedule=lambda step: 1.0 if step < 20 else 0.1)
    assert steps.schedule == ((0, 1.0), (19, 1.0), (20, 0.1), (39, 0.1))
    found = train(SMALL, "diag", 1, protocol=falling, out=tmp_path, **FEW)
    assert load_run(found.folder).spec == found.spec


def test_adam_is_that_of_pytorch():
    torch = pytest.importorskip("torch")
    start = LinearTransformer.random("full", dim=3, layers=1, context=6, scale=0.3, seed=1)
    protocol = Adam(rate=1e-2, steps=30, batch="population", record=1, second=0.99)
    found = train(SMALL, "full", 1, protocol=protocol, init=start, **FEW)
    quadratic = Quadratic.of_problem(SMALL)
    parameters = {name: torch.tensor(np.array(value)) for name, value in start.family.arrays.items()}
    optimiser = torch.optim.Adam(list(parameters.values()), lr=1e-2, betas=(0.9, 0.99))
    losses = []
    for _ in range(31):
        loss, slopes = quadratic(LinearTransformer(Full(**{k: v.numpy() for k, v in parameters.items()}), 3))
        losses.append(loss)
        for name, value in parameters.items():
            value.grad = torch.tensor(slopes[name])
        optimiser.step()
    np.testing.assert_allclose(found.history.loss, losses, rtol=1e-10)


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


def test_a_fixed_sample_is_followed_with_one_layer_and_with_more():
    """One layer is a quadratic form, two go through the engine: both descend, to the bit with any number of threads."""
    for layers in (1, 2):
        protocol = descent(batch="sample(500)", steps=400, rate=3e-4, scale=0.1)
        found, other = (train(SMALL, "diag", layers, protocol=protocol, sequences=1000, threads=n) for n in (1, 2))
        assert same_model(found.model, other.model)
        losses = found.history.adjusted_loss
        assert (np.diff(losses) < 1e-12).all()
        assert losses[-1] < 0.9 * losses[0]


def test_random_covariances_need_a_sample():
    problem = Problem(3, 6, 1, features="rotated(powerlaw(1))")
    found = train(problem, "full", 1, protocol=descent(batch="sample(300)"), **FEW)
    assert found.history.loss[-1] < found.history.loss[0]


@pytest.mark.parametrize(
    ("family", "layers", "features", "batch"),
    [
        ("diag", 1, "isotropic", "population"),
        ("diag", 2, "isotropic", "sample(8192)"),
        (Looped("diag", 2), 1, "isotropic", "sample(8192)"),
        ("diag", 1, "factors(1)", "sample(8192)"),
    ],
)
def test_without_a_batch_the_population_is_followed_where_it_is_known(family, layers, features, batch):
    problem = Problem(3, 6, 1, features=features)
    for protocol in (descent(steps=3), GradientFlow(time=1e-3, record=2, scale=0.05)):
        found = train(problem, family, layers, protocol=protocol, **FEW)
        assert found.spec.protocol.batch == batch
        assert ("population" if batch == "population" else "fixed sample of 8,192") in found.message
        assert found.history.loss[-1] < found.history.loss[0]
        named = train(problem, family, layers, protocol=dataclasses.replace(protocol, batch=batch), **FEW)
        assert named.spec.name == found.spec.name


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    "family",
    ["full", "diag", "gdpp", "channels(1,3)", "lowrank(1)", "registers(1)", "preconditioned", "looped(diag,2)"],
)
def test_sgd_is_that_of_a_loop_that_makes_a_model_for_every_step(family, layers):
    start = LinearTransformer.random(family, dim=3, layers=layers, heads=1, context=6, scale=0.1, seed=1)
    found = train(SMALL, family, layers, protocol=SGD(rate=1e-4, steps=20, batch=100, momentum=0.5), init=start, **FEW)
    arrays = {name: np.array(value, np.float64) for name, value in start.family.arrays.items()}
    velocity, losses = dict.fromkeys(arrays, 0.0), []
    for step in range(21):
        model = LinearTransformer(type(start.family)(**arrays), start.dim, start.layout).astype(np.float32)
        drawn = model.step(SMALL, 100, stream=RACE, step=step)
        losses.append(drawn.loss)
        if step < 20:
            slopes = model.family.pullback(drawn.gradient)
            velocity = {name: 0.5 * value + slopes[name] for name, value in velocity.items()}
            arrays = {name: value - 1e-4 * velocity[name] for name, value in arrays.items()}
    np.testing.assert_array_equal(found.history.adjusted_loss, losses)
    assert all((found.model.family.arrays[name] == value).all() for name, value in arrays.items())


@pytest.mark.parametrize("record", [1, 7, 20])
@pytest.mark.parametrize("batch", [64, "sample(64)"])
def test_a_descent_computes_one_gradient_per_point(monkeypatch, batch, record):
    asked, initialise = [], gradients.Course.__init__

    def counting(course, *given):
        initialise(course, *given)
        gradient = course.gradient
        course.gradient = lambda point, step: asked.append(step) or gradient(point, step)

    monkeypatch.setattr(gradients.Course, "__init__", counting)
    train(SMALL, "diag", 2, protocol=SGD(rate=1e-3, steps=20, batch=batch, record=record, scale=0.05), **FEW)
    assert asked == list(range(21))


def test_sgd_follows_the_population_gradient_on_average():
    start = LinearTransformer.random("diag", dim=3, layers=1, context=6, scale=0.2, seed=3)
    noisy = train(SMALL, "diag", 1, protocol=SGD(rate=1e-3, steps=300, batch=2000, record=300), init=start, **FEW)
    exact = train(SMALL, "diag", 1, protocol=descent(steps=300, record=300), init=start, **FEW)
    moved = exact.model.family.omega - start.family.omega
    assert np.abs(noisy.model.family.omega - exact.model.family.omega).max() < 0.05 * np.abs(moved).max()
    assert noisy.history.sequences[-1] == 300 * 2000
    assert exact.history.sequences[-1] == 0


@pytest.mark.parametrize(
    "problem",
    [
        Problem(dim=3, context=8, noise=1),
        Problem(dim=3, context=6, noise="uniform(0,2)", features="powerlaw(1)"),
        Problem(dim=2, context="4..8", noise="categorical(1,3)", tasks="gaussian(covariance=[[1,0.5],[0.5,2]])"),
    ],
)
def test_gradient_flow_ends_in_the_closed_form(problem):
    """The loss of the best one-layer weights, to 1e-6, from small starts that only use a = sum y x.

    Random starts of Full sometimes stop above the optimum, so the start uses the sum of y x only.
    """
    layout = Layout("mean") if not problem.lengths.fixed else Layout()
    W = 0.01 * np.random.default_rng(0).standard_normal((problem.dim, problem.dim))
    init = LinearTransformer(one_layer.model_of(W).family.scaled(0.1), problem.dim, layout)
    protocol = GradientFlow(time=1e4, scale=0.1, record=40, snapshots=2)
    found = train(problem, "full", 1, protocol=protocol, init=init, **FEW)
    fixed = problem.lengths.fixed
    best = one_layer.risk(problem, one_layer.optimum(problem)) if fixed else mean_optimum(problem)
    assert found.history.loss[-1] == pytest.approx(best, rel=1e-6)
    assert (np.diff(found.history.loss) < 1e-9).all()
    assert found.status == "converged"


def mean_optimum(problem):
    """The least risk of w_hat = W a / n: the closed form with E[a/n w'] and E[a a'/n^2] instead of those of a."""
    L, gamma = problem.features.mean_covariance(problem.dim), problem.tasks.second_moment(problem.dim)
    n = problem.lengths.values.astype(float)
    power = (L * gamma).sum() + problem.noise.second_moment
    first, second = L @ gamma, np.mean((n + 1) / n) * L @ gamma @ L + np.mean(1 / n) * power * L
    return 0.5 * (np.trace(L @ gamma) - np.trace(L @ first.T @ np.linalg.solve(second, first)))


def plateaus(history):
    """The squared errors at which the loss stands still: less than 1 % over a fifth of the time so far."""
    error, found = 2 * history.loss, []
    for i, time in enumerate(history.time):
        later = np.searchsorted(history.time, 1.2 * time)
        still = 0 < i < later < len(error) and error[i] - error[later] < 0.01 * error[i]
        if still and (not found or error[i] < 0.9 * found[-1]):
            found.append(float(error[i]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_separate_keys_and_queries_learn_in_plateaus(seed):
    """Training dynamics of linear attention (Zhang et al. 2025): rank-one heads learn one direction after another."""
    protocol = GradientDescent(rate=0.2, steps=75_000, scale=0.01, record=50)
    found = train(YZHANG, LowRank(1), 1, 5, seed=seed, protocol=protocol, layout=Layout("mean"), **FEW)
    levels = plateaus(found.history)
    assert levels == pytest.approx(PLATEAUS, rel=0.02)


def test_merged_keys_and_queries_drop_once():
    protocol = GradientDescent(rate=0.2, steps=5000, scale=0.01, record=10)
    found = train(YZHANG, "full", 1, protocol=protocol, layout=Layout("mean"), **FEW)
    assert plateaus(found.history) == pytest.approx([PLATEAUS[0], PLATEAUS[-1]], rel=0.02)


# ---- what is recorded ---------------------------------------------------------------------------------------


def test_a_printed_history_says_how_many_rows_it_shows():
    history = train(SMALL, "diag", 1, protocol=descent(record=1), **FEW).history
    title, rows = str(history).split("\n\n")
    assert title == "20 of 41 recorded steps"
    assert len(rows.splitlines()) == 1 + 20
    assert len(history) == 41


def test_the_history_is_a_table():
    found = train(SMALL, "full", 1, protocol=descent(record=[0, 3, 10]), **FEW)
    history = found.history
    assert history.step.tolist() == [0, 3, 10, 40]
    frame = history.to_pandas()
    assert list(frame) == [
        "phase", "step", "time", "sequences", "loss", "adjusted_loss", "ratio", "gradient_norm", "seconds",
    ]  # fmt: skip
    assert frame["loss"].is_monotonic_decreasing
    np.testing.assert_allclose(frame["ratio"], frame["adjusted_loss"] / found.floor)
    oracle = found.result.unadjusted - found.result.loss
    assert (frame["loss"] - frame["adjusted_loss"]).to_numpy() == pytest.approx(oracle, rel=0.2)
    assert (np.diff(history.seconds) >= 0).all()
    assert history[-1]["step"] == 40
    assert len(list(history)) == len(history) == 4
    assert str(history).startswith("4 recorded steps")
    assert "gradient_norm" in str(history)
    with pytest.raises(InputError, match="must not change"):
        history.loss[0] = 1
    assert json.dumps(history.as_dict())


@pytest.mark.parametrize("problem", [SMALL, Problem(4, 8, 1, features="spectrum(2,1,1,0.5)", tasks="lowrank(2)")])
def test_the_oracle_of_a_history_is_not_measured_on_few_sequences(problem):
    """Its loss, the difference of both losses, against a million sequences; the same for every seed."""
    found = [train(problem, "diag", 1, seed=seed, protocol=descent(steps=1), **FEW).history for seed in (0, 1)]
    oracle = oracle_risk(problem, sequences=1_000_000)
    for history in found:
        difference = history.loss - history.adjusted_loss
        assert difference == pytest.approx(oracle.loss, abs=4 * oracle.error)
        assert difference == pytest.approx(found[0].loss - found[0].adjusted_loss)


def test_the_adjusted_loss_of_a_history_is_that_of_the_result():
    problem = Problem(dim=2, context=40, noise="fixed(3)")
    init = one_layer.model_of(one_layer.optimum(problem))
    found = train(problem, "full", 1, protocol=descent(rate=1e-9, steps=1), init=init, sequences=100_000)
    assert found.history.adjusted_loss[-1] == pytest.approx(found.loss, abs=4 * found.result.error)


def test_the_gradient_norm_is_that_of_the_parameters():
    found = train(SMALL, "full", 1, protocol=descent(record=40, snapshots=[0, 40]), **FEW)
    for row, snapshot in zip(found.history, found.snapshots, strict=True):
        loss, slopes = Quadratic.of_problem(SMALL)(snapshot.model)
        assert row["step"] == snapshot.step
        assert row["loss"] == pytest.approx(loss)
        assert row["gradient_norm"] == pytest.approx(np.sqrt(sum(np.square(s).sum() for s in slopes.values())))
    assert same_model(found.snapshots[-1].model, found.model)


def test_searches_have_a_history_too():
    found = train(SMALL, "diag", 1, protocol=Search(effort=0.1), **FEW)
    assert {"race", "best", "final"} <= set(found.history.phase)
    assert np.isnan(found.history.gradient_norm).all()
    np.testing.assert_array_equal(found.history.loss, found.history.adjusted_loss)
    assert "gradient_norm" not in str(found.history)
    assert found.snapshots == ()
    assert (np.diff(found.history.seconds) >= 0).all()
    assert 0 < found.history.seconds[-1] <= found.seconds


def test_the_paper_records_adjusted_losses_too():
    """On a batch the query loss is noisy: the mean over all rows against the loss of the result, nearly that of 0."""
    found = train(SMALL, "diag", 1, protocol=Paper(steps=400, batch=2048, rate=1e-9), **FEW)
    assert len(found.history) == 200
    assert found.history.sequences.tolist() == list(range(4096, 400 * 2048 + 1, 4096))
    assert found.history.adjusted_loss.mean() == pytest.approx(found.loss, rel=0.1)  # 1,000 sequences in the result
    np.testing.assert_allclose(found.history.ratio, found.history.adjusted_loss / found.floor)
    assert (np.diff(found.history.seconds) > 0).all()


def test_a_descent_that_diverges_says_so():
    told = []
    protocol = descent(rate=50.0, scale=1.0, record=1)
    found = train(SMALL, "full", 1, protocol=protocol, callbacks=[lambda now: told.append(now.record["step"])], **FEW)
    assert told == found.history.step.tolist()
    assert len(told) > 1
    assert found.status == "diverged"
    assert "the loss was not finite at step 3; a rate of 5 may help" in found.message
    assert found.message.endswith("a rate of 5 may help")
    assert len(found.history) < 41


def test_a_descent_that_is_lost_has_diverged_whatever_its_last_model_does():
    """A sequence of a step explodes, but no fresh one, on which the last model is no worse than predicting 0."""
    problem = Problem(5, 10, "uniform(0,2)")
    found = train(problem, "full", 7, protocol=Adam(rate=1e-3, steps=50), sequences=500)
    assert found.loss < problem.signal / 2
    assert found.result.exploded == 0
    assert found.history.step[-1] < 50
    assert found.status == "diverged"
    assert re.fullmatch(r"the loss was not finite at step \d+; a rate of 0.0001 may help", found.message)


def test_a_flow_is_that_of_another_solver():
    """At recorded times within legs, at their ends and beyond, against DOP853 with a tolerance of 1e-11."""
    start = LinearTransformer.random("full", dim=3, layers=1, context=6, scale=0.3, seed=1)
    protocol = GradientFlow(time=0.5, record=45, snapshots=[7, 20, 33, 45])
    found = train(SMALL, "full", 1, protocol=protocol, init=start, **FEW)
    quadratic, shape = Quadratic.of_problem(SMALL), start.family.arrays["P"].shape

    def downhill(_, point):
        P, Q = (half.reshape(shape) for half in np.split(point, 2))
        slopes = quadratic(LinearTransformer(Full(P, Q), 3))[1]
        return -np.concatenate([slopes[name].ravel() for name in "PQ"])

    first = np.concatenate([start.family.arrays[name].ravel() for name in "PQ"])
    times = protocol.times()[[7, 20, 33, 45]]
    other = solve_ivp(downhill, (0, 0.5), first, "DOP853", t_eval=times, rtol=1e-11, atol=1e-13).y.T
    for shot, point in zip(found.snapshots, other, strict=True):
        ours = np.concatenate([shot.model.family.arrays[name].ravel() for name in "PQ"])
        np.testing.assert_allclose(ours, point, atol=1e-6 * np.abs(point).max())  # a hundred steps of 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("family", ["full", "looped(full,1)"])
def test_parameters_that_overflow_float32_end_a_descent(family):
    found = train(SMALL, family, 1, protocol=SGD(rate=1e45, steps=5, batch=64, scale=0.5), **FEW)
    assert "the loss was not finite at step 1" in found.message


def test_a_flow_that_cannot_be_followed_ends_early():
    """Without a warning of LSODA; a flow has no rate that could be smaller."""
    protocol = GradientFlow(scale=1.0, batch="sample(64)", record=5)
    found = train(Problem(3, 6, "uniform(0,2)"), "full", 3, protocol=protocol, **FEW)
    assert found.status == "diverged"
    assert "could not be followed beyond time" in found.message
    assert "a smaller scale of the start or an earlier end time may help" in found.message
    assert len(found.history) < 6


# ---- starts -------------------------------------------------------------------------------------------------


def test_a_start_is_random_by_scale_and_seed():
    first, again, other, larger = (
        train(SMALL, "full", 1, seed=seed, protocol=descent(steps=1, scale=scale, snapshots=[0]), **FEW).snapshots[0]
        for seed, scale in ((0, 0.01), (0, 0.01), (1, 0.01), (0, 0.02))
    )
    assert same_model(first.model, again.model)
    assert not same_model(first.model, other.model)
    P = np.concatenate([value.ravel() for value in first.model.family.arrays.values()])
    assert 0.005 < P.std() < 0.02
    np.testing.assert_allclose(larger.model.family.arrays["P"], 2 * first.model.family.arrays["P"])


@pytest.mark.parametrize("protocol", [descent, GradientFlow])
def test_a_scale_does_not_tell_runs_from_a_given_start_apart(protocol):
    start = LinearTransformer.random("diag", dim=3, layers=1)
    specs = [
        make_spec(SMALL, "diag", layers=1, sequences=9, protocol=protocol(scale=s), init=start) for s in (None, 0.1)
    ]
    assert specs[0] == specs[1]
    assert specs[0].name == specs[1].name


@pytest.mark.parametrize("protocol", [Search(effort=0.1), Paper(steps=20, batch=16), SGD(rate=1e-6, steps=5, batch=16)])
@pytest.mark.slow
def test_every_protocol_starts_from_a_model(tmp_path, protocol):
    init = train(SMALL, "diag", 2, protocol=Search(effort=0.2), **FEW).model
    found = train(SMALL, "diag", 2, protocol=protocol, init=init, out=tmp_path, **FEW)
    assert found.loss < 1.1 * train(SMALL, "diag", 2, protocol=Search(effort=0.2), **FEW).loss
    again = load_run(found.folder)
    assert again.spec.name == found.spec.name == found.folder.name
    assert same_model(again.spec.init, init)
    assert same_model(again.model, found.model)


def test_gdpp_starts_from_a_model():
    init = train(SMALL, "gdpp", 2, **FEW).model
    assert train(SMALL, "gdpp", 2, init=init, **FEW).loss == pytest.approx(
        train(SMALL, "gdpp", 2, **FEW).loss, rel=1e-3
    )


def test_omegas_can_be_descended_in_themselves():
    """A Diag model given by omegas has other dynamics than one given by p and q."""
    init = LinearTransformer(Diag(omega=[[[0, 0], [-0.01, 0]]]), dim=3)
    found = train(SMALL, "diag", 1, 2, protocol=descent(steps=2000, rate=1e-4), init=init, **FEW)
    assert "omega" in found.model.family.arrays
    best = -1 / (6 + 3 + 1 + SMALL.noise.second_moment)
    assert found.model.family.omega[0, 1, 0] == pytest.approx(best, rel=0.05)
    with pytest.raises(InputError, match="a search starts from models given by p and q; got one given by omega"):
        train(SMALL, "diag", 1, 2, init=init)


def test_a_looped_model_starts_from_one(tmp_path):
    """`layers` are those of one repetition, for the start too."""
    init = LinearTransformer.random("looped(diag,3)", dim=3, layers=2, context=6)
    protocol = SGD(rate=1e-6, steps=2, batch=16)
    found = train(SMALL, "looped(diag,3)", 2, protocol=protocol, init=init, out=tmp_path, **FEW)
    assert (found.spec.layers, found.model.layers) == (2, 6)
    assert same_model(load_run(found.folder).spec.init, init)
    with pytest.raises(InputError, match="got layers 2, not 6"):
        train(SMALL, "looped(diag,3)", 6, protocol=SGD(), init=init)
    with pytest.raises(InputError, match="in closed form for one layer; got 3 layers"):
        train(SMALL, "looped(diag,3)", 1, protocol=descent(batch="population"))
    omegas = LinearTransformer(Looped("diag", 3)(omega=np.zeros((2, 2, 2))), dim=3)
    with pytest.raises(InputError, match="models given by p and q; got one given by omega"):
        train(SMALL, "looped(diag,3)", 2, 2, init=omegas)


def test_the_start_is_part_of_the_spec():
    one, two = (LinearTransformer.random("diag", dim=3, layers=1, seed=seed) for seed in (0, 1))
    names = {
        train(SMALL, "diag", 1, protocol=descent(steps=1), init=init, **FEW).spec.name for init in (one, two, None)
    }
    assert len(names) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train(SMALL, "full", 1, init=LinearTransformer.random("diag", dim=3, layers=1)), "diag, not full"),
        (lambda: train(SMALL, "diag", 1, init=LinearTransformer.random("diag", dim=3, layers=2)), "layers 2, not 1"),
        (lambda: train(SMALL, "diag", 1, init=LinearTransformer.random("diag", dim=4, layers=1)), "dimension 4, not 3"),
        (lambda: train(SMALL, "full", 1, 2, init=LinearTransformer.random("full", dim=3, layers=1)), "heads 1, not 2"),
        (lambda: train(SMALL, "diag", 1, init=Diag(omega=[[[0, 0], [0, 0]]])), "LinearTransformer; got a Diag"),
        (lambda: GradientDescent(rate=-1), "the learning rate must be positive and finite; got -1. Pass 0.01"),
        (lambda: GradientDescent(rate=0), "must be positive and finite; got 0"),
        (lambda: GradientDescent(steps=0), "steps must be at least 1"),
        (lambda: Adam(clip=0), "clip must be positive; got 0. Pass 1, for example, or infinity for no clipping"),
        (lambda: Adam(clip="1"), "clip must be positive; got '1'"),
        (lambda: Adam(clip=float("nan")), "clip must be positive; got nan"),
        (lambda: SGD().rates(), "rates of a descent need a rate; got None. Choose one, or ask the spec of a run"),
        (lambda: GradientDescent(momentum=1), r"momentum must lie in \[0, 1\); got 1"),
        (lambda: Adam(second=1.5), r"second must lie in \[0, 1\)"),
        (lambda: GradientDescent(schedule="x"), "schedule must be constant, linear, cosine or .*got 'x'"),
        (lambda: GradientDescent(schedule=[(5, 1), (2, 1)]), "steps of a schedule must ascend"),
        (lambda: GradientDescent(schedule=lambda step: -1), "a factor of the schedule must be at least 0; got -1"),
        (lambda: GradientDescent(schedule=abs, steps=50_000), "tabulated, for at most 20,000 steps; got 50,000 steps"),
        (
            lambda: GradientDescent(schedule=[(0, 1), (50, -1)]),
            "a factor of the schedule must be at least 0; got -1.0. Pass a number of at least 0",
        ),
        (lambda: GradientDescent(schedule=[(-1, 1)]), "a step of the schedule must be at least 0; got -1"),
        (lambda: GradientDescent(schedule=3), "a schedule must be a name or pairs"),
        (lambda: GradientDescent(snapshots=[]), "snapshots must be a number or a list .*got an empty list"),
        (lambda: GradientDescent(record=[]), "record must be a number or a list"),
        (lambda: GradientDescent(steps=10, snapshots=[11]), "a step of snapshots must be at most 10; got 11"),
        (lambda: GradientDescent(batch="all"), "batch must be population, sample.N. or .*got 'all'"),
        (lambda: GradientDescent(scale=-0.1), "scale of a start must be positive and finite; got -0.1"),
        (lambda: GradientFlow(batch=512), "gradient flow follows one function; .*got 512"),
        (lambda: GradientFlow(time=0), "time of gradient flow must be positive"),
        (lambda: GradientFlow(tolerance=1), "tolerance must lie between"),
        (lambda: train(SMALL, "diag", 2, protocol=descent(batch="population")), "for one layer; got 2 layers.*=512"),
        (
            lambda: train(FACTORS, "diag", 1, protocol=GradientFlow(batch="population")),
            r"one covariance for all sequences; got factors.* Use a fixed sample \(batch='sample\(8192\)' in Python",
        ),
        (
            lambda: train(SMALL, "diag", 2, protocol="descent", init=LinearTransformer.random("diag", dim=3, layers=1)),
            "layers 1, not 2",
        ),
        (lambda: train(SMALL, "diag", 1, callbacks=print), "callbacks must be a list"),
        (lambda: train(SMALL, "diag", 1, callbacks=[3]), "a callback must be a Callback or a function; got 3"),
        (lambda: train(SMALL, "diag", 1, callbacks=[Callback]), "a callback must be a Callback or a function"),
        (lambda: CSVLogger(""), "a CSV logger needs the name of a file"),
    ],
)  # fmt: skip
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()


# ---- stored runs --------------------------------------------------------------------------------------------


class Stop(Exception):
    pass


@pytest.mark.parametrize(
    "protocol",
    [
        descent(record=10, momentum=0.5, snapshots=4),
        Adam(steps=30, batch=16, record=7, scale=0.1, schedule="linear"),
        Adam(steps=30, batch=16, record=7, clip=0.5),
        GradientFlow(time=10, record=45, scale=0.1, snapshots=[2, 25]),  # three legs
    ],
)
def test_an_interrupted_descent_ends_with_the_same_bits(tmp_path, protocol):
    def stop(progress):
        if progress.record["step"] > reached[0]:
            reached[0] = progress.record["step"]
            raise Stop

    reached, tries = [-1], 0
    runs = Folder(tmp_path, interval=0.0)
    while True:
        try:
            found = train(SMALL, "full", 1, protocol=protocol, out=runs, callbacks=[stop], **FEW)
            break
        except Stop:
            tries += 1
    whole = train(SMALL, "full", 1, protocol=protocol, **FEW)
    assert tries >= 2
    assert same_model(found.model, whole.model)
    assert found.history == whole.history
    assert [s.step for s in found.snapshots] == [s.step for s in whole.snapshots] == protocol.kept().tolist()
    assert all(same_model(a.model, b.model) for a, b in zip(found.snapshots, whole.snapshots, strict=True))
    again = load_run(found.folder)
    assert again.history == whole.history
    assert again.spec == whole.spec
    assert all(same_model(a.model, b.model) for a, b in zip(again.snapshots, whole.snapshots, strict=True))
    assert train(SMALL, "full", 1, protocol=protocol, out=runs, callbacks=[pytest.fail], **FEW).history == whole.history


@pytest.mark.parametrize("name", ["course.safetensors", "init.safetensors"])
def test_damaged_files_of_a_descent_are_noticed(tmp_path, name):
    init = LinearTransformer.random("diag", dim=3, layers=1)
    found = train(SMALL, "diag", 1, protocol=descent(), init=init, out=tmp_path, **FEW)
    path = found.folder / name
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DamageError, match=r"damaged|another one|must be one that ridgeformer saved"):
        load_run(found.folder)
    path.unlink()
    with pytest.raises(DamageError, match="does not exist"):
        load_run(found.folder)
    if name.startswith("course"):
        with pytest.warns(DamagedRunWarning, match="trained again"):
            again = train(SMALL, "diag", 1, protocol=descent(), init=init, out=tmp_path, **FEW)
        assert again.history == found.history


# ---- callbacks ----------------------------------------------------------------------------------------------


def test_callbacks_are_told_everything():
    class Told(Callback):
        def __init__(self):
            self.calls = []

        def on_start(self, spec):
            self.calls.append(("start", spec.name))

        def on_step(self, progress):
            self.calls.append(("step", progress.record["step"], progress.loss))

        def on_end(self, training):
            self.calls.append(("end", training.spec.name))

    told, seen = Told(), []
    found = train(SMALL, "diag", 1, protocol=descent(record=8), callbacks=[told, seen.append], **FEW)
    rows = [("step", row["step"], row["loss"]) for row in found.history]
    assert told.calls == [("start", found.spec.name), *rows, ("end", found.spec.name)]
    for name in ("gradient_norm", "ratio", "step"):
        assert [progress.record[name] for progress in seen] == getattr(found.history, name).tolist()
    assert {type(progress.record["step"]) for progress in seen} == {int}
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)


def test_a_csv_file_holds_the_history(tmp_path):
    path = tmp_path / "logs" / "history.csv"
    found = train(SMALL, "diag", 1, protocol=descent(), callbacks=[CSVLogger(path)], **FEW)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [float(row["loss"]) for row in rows] == found.history.loss.tolist()
    assert {row["run"] for row in rows} == {found.spec.name}
    search = train(SMALL, "diag", 1, protocol=Search(effort=0.1), callbacks=[CSVLogger(path)], **FEW)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len({row["run"] for row in rows}) == 2  # with the simpler family
    assert sum(row["run"] == search.spec.name for row in rows) == len(search.history)


def test_a_csv_file_is_complete_at_any_moment(tmp_path):
    """Also after an error, and of a run that resumes: the rows before the interruption come first."""
    path, told = tmp_path / "history.csv", []

    def stop(progress):
        told.append(progress.record["step"])
        rows = list(csv.DictReader(path.read_text().splitlines()))
        assert [int(row["step"]) for row in rows] == told
        if len(told) == 30:
            raise Stop

    options = {"protocol": descent(record=1), "out": Folder(tmp_path, interval=0.0), **FEW}
    with pytest.raises(Stop):
        train(SMALL, "diag", 1, callbacks=[CSVLogger(path), stop], **options)
    assert len(path.read_text().splitlines()) == 31
    told.clear()
    with pytest.raises(Stop):
        train(SMALL, "diag", 1, callbacks=[CSVLogger(path), stop], **options)
    assert told == list(range(30))


def test_a_csv_logger_that_is_used_again_writes_its_file_anew(tmp_path):
    logger, counts = CSVLogger(tmp_path / "history.csv"), []

    def stop(progress):
        counts.append(len((tmp_path / "history.csv").read_text().splitlines()) - 1)
        if len(counts) == 11:
            raise RuntimeError

    for _ in range(2):
        with suppress(RuntimeError):
            train(SMALL, "diag", 1, protocol=descent(record=1), callbacks=[logger, stop], **FEW)
    assert counts[:11] == list(range(1, 12))
    assert counts[11:] == list(range(1, len(counts) - 10))


def test_numbers_that_are_not_finite_are_not_sent(tmp_path, capfd, monkeypatch):
    """With a known noise level the floor is 0, and the ratio to it infinite."""
    problem = Problem(dim=3, context=6, noise="fixed(1)")
    found = train(problem, "diag", 1, protocol=descent(record=20), callbacks=[TensorBoardLogger(tmp_path)], **FEW)
    assert np.isinf(found.history.ratio).all()
    (events,) = (tmp_path / found.spec.name).glob("events*")
    assert b"ratio" not in events.read_bytes()
    assert b"gradient_norm" in events.read_bytes()
    out = capfd.readouterr()
    assert "NaN or Inf" not in out.out + out.err


def test_tensorboard_gets_every_number(tmp_path):
    found = train(SMALL, "diag", 1, protocol=descent(record=20), callbacks=[TensorBoardLogger(tmp_path)], **FEW)
    (events,) = (tmp_path / found.spec.name).glob("events*")
    content = events.read_bytes()
    for tag in (b"loss", b"adjusted_loss", b"ratio", b"gradient_norm"):
        assert content.count(tag) >= 3


def test_weights_and_biases_gets_every_number(monkeypatch):
    """By a stand-in for the package, which needs an account."""
    logged = []

    class Run:
        def __init__(self, **options):
            self.options, self.summary = options, {}
            logged.append(self)

        def log(self, numbers, step):
            logged.append((step, numbers["loss"]))

        def finish(self):
            logged.append("finished")

    package = type("wandb", (), {"init": staticmethod(lambda **options: Run(**options))})
    real = loggers.importlib.import_module
    monkeypatch.setattr(loggers.importlib, "import_module", lambda n: package if n == "wandb" else real(n))
    found = train(SMALL, "diag", 1, protocol=descent(record=20), callbacks=[WandbLogger("mine", mode="offline")], **FEW)
    run, *rows, end = logged
    assert rows == [(row["step"], row["loss"]) for row in found.history]
    assert end == "finished"
    assert run.options["project"] == "mine"
    assert run.summary["loss"] == found.loss


@pytest.mark.parametrize(
    ("logger", "message"), [(WandbLogger, "pip install wandb"), (TensorBoardLogger, "tensorboardX")]
)
def test_missing_packages_are_named(monkeypatch, logger, message):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(loggers.importlib, "import_module", missing)
    with pytest.raises(MissingPackageError, match=message):
        logger("anywhere")


def test_nothing_is_printed_without_a_terminal(capfd):
    train(SMALL, "diag", 1, protocol=descent(), **FEW)
    assert capfd.readouterr() == ("", "")


def test_the_progress_line_appears_on_a_terminal(monkeypatch, capfd):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("ridgeformer.training.display.PATIENCE", 0.0)
    from ridgeformer.training.display import Display

    line = Display(after=0.0, floor=0.1)
    train(SMALL, "diag", 1, protocol=descent(), callbacks=[line], progress=False, **FEW)
    line.close()
    shown = capfd.readouterr().err
    assert "diag, 1 layer" in shown
    assert "times the floor" in shown
    train(SMALL, "diag", 1, protocol=descent(), progress=False, **FEW)
    assert capfd.readouterr() == ("", "")


def test_a_descent_that_explodes_has_not_come_to_rest():
    """Its gradient is small beside those of the explosion, but not beside those before it."""
    problem = Problem(dim=2, context=6, noise="fixed(1)")
    found = train(problem, "diag", 2, protocol=Adam(rate=3.0, steps=60, batch=64), **FEW)
    assert found.history.loss[-1] > found.history.loss[0]
    assert found.status != "converged"
    assert "converged" not in found.message
