"""Descents against independent loops and closed forms; snapshots, starts and stored runs."""

import dataclasses
import re

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from ridgeformer import Diag, Full, GDpp, Layout, LinearTransformer, Problem, Training, train, train_many
from ridgeformer.errors import DamageError
from ridgeformer.models import Looped
from ridgeformer.population import Quadratic
from ridgeformer.theory import one_layer
from ridgeformer.training import SGD, Adam, CSVLogger, GradientDescent, GradientFlow, PaperProtocol, Search
from ridgeformer.training.descent.averages import Average
from ridgeformer.training.job import RACE
from ridgeformer.training.paper import query_gradient
from ridgeformer.training.spec import make_spec
from ridgeformer.training.store import DamagedRunWarning, Folder
from support import FEW, SMALL, descent, each, refusals, refused, same_model

FACTORS = Problem(3, 6, 1, features="factors(1)")


def test_a_schedule_may_be_a_function(tmp_path):
    """It is stored as a table, so that a run is found again."""
    falling = descent(schedule=lambda step: 1 / (1 + step), warmup=3)
    np.testing.assert_allclose(falling.rates(), 1e-3 / np.arange(1, 41) * np.minimum(1, np.arange(1, 41) / 4))
    steps = descent(schedule=lambda step: 1.0 if step < 20 else 0.1)
    assert steps.schedule == ((0, 1.0), (19, 1.0), (20, 0.1), (39, 0.1))
    found = train(SMALL, "diag", 1, protocol=falling, out=tmp_path, **FEW)
    assert Training.load(found.folder).spec == found.spec


def adam_of_pytorch(start, slopes, steps, **settings):
    """The parameters before every step and after the last, from gradients as a function of a model and a step."""
    torch = pytest.importorskip("torch")
    values = {name: torch.tensor(np.array(value)) for name, value in start.family.arrays.items()}
    optimiser = torch.optim.Adam(list(values.values()), **settings)
    for step in range(steps):
        model = LinearTransformer(type(start.family)(**{name: value.numpy() for name, value in values.items()}), 3)
        yield model
        for name, value in values.items():
            value.grad = torch.tensor(slopes(model, step)[name])
        optimiser.step()
    yield LinearTransformer(type(start.family)(**{name: value.numpy() for name, value in values.items()}), 3)


def test_adam_is_that_of_pytorch():
    start = LinearTransformer.random("full", dim=3, layers=1, context=6, scale=0.3, seed=1)
    protocol = Adam(rate=1e-2, steps=30, batch="population", record=1, second=0.99)
    found = train(SMALL, "full", 1, protocol=protocol, init=start, **FEW)
    quadratic = Quadratic.of_problem(SMALL)
    models = adam_of_pytorch(start, lambda model, step: quadratic(model)[1], 30, lr=1e-2, betas=(0.9, 0.99))
    np.testing.assert_allclose(found.history.loss, [quadratic(model)[0] for model in models], rtol=1e-10)


def test_the_papers_adam_is_that_of_pytorch():
    """Both biases count in the first steps."""
    start = LinearTransformer.random("diag", dim=3, layers=2, context=6, scale=0.3, seed=1)
    found = train(SMALL, "diag", 2, protocol=PaperProtocol(steps=5, batch=64, rate=0.01), init=start, **FEW)

    def slopes(model, step):
        return query_gradient(SMALL, model, batch=64, seed=0, step=step)[1]

    *_, last = adam_of_pytorch(start, slopes, 5, lr=0.01)
    for name, value in last.family.arrays.items():
        np.testing.assert_allclose(found.model.family.arrays[name], value, rtol=1e-5)  # gradients in float32


@each(
    ("diag", 1, "isotropic", "population"),
    ("diag", 2, "isotropic", "sample(8192)"),
    (Looped("diag", 2), 1, "isotropic", "sample(8192)"),
    ("diag", 1, "factors(1)", "sample(8192)"),
)
def test_without_a_batch_the_population_is_followed_where_it_is_known(family, layers, features, batch):
    problem = Problem(3, 6, 1, features=features)
    for protocol in (descent(steps=3), GradientFlow(time=1e-3, record=2, scale=0.05)):
        found = train(problem, family, layers, protocol=protocol, **FEW)
        assert str(found.spec.protocol.batch) == batch
        assert ("population" if batch == "population" else "fixed sample of 8,192") in found.message
        assert found.history.loss[-1] < found.history.loss[0]
        named = train(problem, family, layers, protocol=dataclasses.replace(protocol, batch=batch), **FEW)
        assert named.spec.name == found.spec.name


@pytest.mark.parametrize("layers", [1, 2])
@each("full", "diag", "gdpp", "channels(1,3)", "lowrank(1)", "registers(1)", "preconditioned", "looped(diag,2)")
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
    asked, make = [], Average.objective

    def counting(self, *args):
        objective = make(self, *args)

        def gradient(point, step):
            asked.append(step)
            return objective.gradient(point, step)

        return dataclasses.replace(objective, gradient=gradient)

    monkeypatch.setattr(Average, "objective", counting)
    train(SMALL, "diag", 2, protocol=SGD(rate=1e-3, steps=20, batch=batch, record=record, scale=0.05), **FEW)
    assert asked == list(range(21))


@each(
    Problem(dim=3, context=8, noise=1),
    Problem(dim=3, context=6, noise="uniform(0,2)", features="powerlaw(1)"),
    Problem(dim=2, context="4..8", noise="categorical(1,3)", tasks="gaussian(covariance=[[1,0.5],[0.5,2]])"),
)
def test_gradient_flow_ends_in_the_closed_form(problem):
    """The loss of the best one-layer weights, to 1e-6, from small starts that only use a = sum y x.

    Random starts of Full sometimes stop above the optimum, so the start uses the sum of y x only.
    """
    layout = Layout("mean") if not problem.lengths.fixed else Layout()
    W = 0.01 * np.random.default_rng(0).standard_normal((problem.dim, problem.dim))
    init = LinearTransformer(one_layer.model_of(W).family.stretched(0.1), problem.dim, layout)
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


@each(
    (SMALL, "full", 1, descent(rate=50.0, scale=1.0, record=1), "not finite at step 3; a rate of 5 may help$"),
    (
        Problem(5, 10, "uniform(0,2)"),  # where every sequence overflows, nothing is left in a clipped gradient
        "diag",
        7,
        SGD(rate=1, clip=10, steps=100, batch=64),
        r"not finite at step \d+; a rate of 0.1 with a clip of 10 may help",
    ),
    (
        SMALL,  # without a warning of LSODA; a flow has no rate that could be smaller
        "full",
        3,
        GradientFlow(scale=1.0, batch="sample(64)", record=5),
        "could not be followed beyond time.* a smaller scale of the start or an earlier end time may help",
    ),
)
def test_a_descent_that_diverges_says_so(problem, family, layers, protocol, words):
    told = []
    callbacks = [lambda now: told.append(now.record["step"])]
    found = train(problem, family, layers, protocol=protocol, callbacks=callbacks, **FEW)
    assert told == found.history.step.tolist()
    assert 0 <= told[-1] < (5 if isinstance(protocol, GradientFlow) else protocol.steps)
    assert found.status == "diverged"
    assert re.search(words, found.message)


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


def test_a_descent_that_explodes_has_not_come_to_rest():
    """Its gradient is small beside those of the explosion, but not beside those before it."""
    problem = Problem(dim=2, context=6, noise="fixed(1)")
    found = train(problem, "diag", 2, protocol=Adam(rate=3.0, steps=60, batch=64), **FEW)
    assert found.history.loss[-1] > found.history.loss[0]
    assert found.status != "converged"
    assert "converged" not in found.message


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
    specs = [make_spec(SMALL, "diag", layers=1, sequences=9, protocol=protocol(scale=s), init=start) for s in (None, 1)]
    assert specs[0] == specs[1]
    assert specs[0].name == specs[1].name


@pytest.mark.parametrize(
    "protocol", [Search(effort=0.1), PaperProtocol(steps=20, batch=16), SGD(rate=1e-6, steps=5, batch=16)]
)
@pytest.mark.slow
def test_every_protocol_starts_from_a_model(tmp_path, protocol):
    init = train(SMALL, "diag", 2, protocol=Search(effort=0.2), **FEW).model
    found = train(SMALL, "diag", 2, protocol=protocol, init=init, out=tmp_path, **FEW)
    assert found.loss < 1.1 * train(SMALL, "diag", 2, protocol=Search(effort=0.2), **FEW).loss
    again = Training.load(found.folder)
    assert again.spec.name == found.spec.name == found.folder.name
    assert same_model(again.spec.init, init)
    assert same_model(again.model, found.model)


def test_a_looped_model_starts_from_one(tmp_path):
    """`layers` are those of one repetition, for the start too."""
    init = LinearTransformer.random("looped(diag,3)", dim=3, layers=2, context=6)
    protocol = SGD(rate=1e-6, steps=2, batch=16)
    found = train(SMALL, "looped(diag,3)", 2, protocol=protocol, init=init, out=tmp_path, **FEW)
    assert (found.spec.layers, found.model.layers) == (2, 6)
    assert same_model(Training.load(found.folder).spec.init, init)


def test_the_start_is_part_of_the_spec():
    one, two = (LinearTransformer.random("diag", dim=3, layers=1, seed=seed) for seed in (0, 1))
    names = {train(SMALL, "diag", 1, protocol=descent(steps=1), init=m, **FEW).spec.name for m in (one, two, None)}
    assert len(names) == 3


def start(family, layers=1, dim=3, **options):
    return LinearTransformer.random(family, dim=dim, layers=layers, **options)


OMEGAS = LinearTransformer(Diag(omega=np.zeros((1, 2, 2))), dim=3)
TWICE = start("looped(diag,3)", 2)


test_bad_input = refusals(
    (lambda: train(SMALL, "full", 1, init=start("diag")), "diag, not full"),
    (lambda: train(SMALL, "diag", 1, init=start("diag", 2)), "layers 2, not 1"),
    (lambda: train(SMALL, "diag", 2, protocol="descent", init=start("diag")), "layers 1, not 2"),
    (lambda: train(SMALL, "looped(diag,3)", 6, protocol=SGD(), init=TWICE), "got layers 2, not 6"),
    (lambda: train(SMALL, "diag", 1, init=start("diag", dim=4)), "dimension 4, not 3"),
    (lambda: train(SMALL, "full", 1, 2, init=start("full")), "heads 1, not 2"),
    (lambda: train(SMALL, "diag", 1, init=Diag(omega=[[[0, 0], [0, 0]]])), "LinearTransformer; got a Diag"),
    (lambda: train(SMALL, "diag", 1, 2, init=OMEGAS), "starts from models given by p and q; got one given by"),
    (lambda: GradientDescent(rate=-1), "the learning rate must be positive and finite; got -1. Pass 0.0005"),
    (lambda: Adam(clip=0), "clip must be positive; got 0. Pass 1, for example, or infinity for no clipping"),
    (lambda: SGD().rates(), "rates of a descent need a rate; got None. Choose one, or ask the spec of a run"),
    (lambda: GradientDescent(momentum=1), "momentum must lie in [0, 1); got 1"),
    (lambda: GradientDescent(schedule="x"), "schedule must be constant, linear, cosine or ... got 'x'"),
    (lambda: GradientDescent(schedule=[(5, 1), (2, 1)]), "steps of a schedule must ascend"),
    (lambda: GradientDescent(schedule=lambda step: -1), "a factor of the schedule must be at least 0; got -1"),
    (lambda: GradientDescent(schedule=abs, steps=50_000), "tabulated, for at most 20,000 steps; got 50,000 steps"),
    (lambda: GradientDescent(schedule=[(0, 1), (50, -1)]), "a factor of the schedule must be at least 0; got"),
    (lambda: GradientDescent(schedule=[(-1, 1)]), "a step of the schedule must be at least 0; got -1"),
    (lambda: GradientDescent(schedule=3), "a schedule must be a name or pairs"),
    (lambda: GradientDescent(snapshots=[]), "snapshots must be a number or a list ... got an empty list"),
    (lambda: GradientDescent(steps=10, snapshots=[11]), "a step of snapshots must be at most 10; got 11"),
    (lambda: GradientDescent(batch="all"), "batch must be population, sample(N) or ... got 'all'"),
    (lambda: GradientDescent(scale=-0.1), "scale of a start must be positive and finite; got -0.1"),
    (lambda: GradientFlow(batch=512), "gradient flow follows one function; ... got 512"),
    (lambda: GradientFlow(tolerance=1), "tolerance must lie between"),
    (lambda: train(SMALL, "diag", 2, protocol=descent(batch="population")), "for one layer; got 2 layers ... =512"),
    (
        lambda: train(FACTORS, "diag", 1, protocol=GradientFlow(batch="population")),
        "one covariance ... ; got ... features=factors ... Use a fixed sample (batch='sample(8192)' in Python",
    ),
    (lambda: train(SMALL, "diag", 1, callbacks=print), "callbacks must be a list"),
    (lambda: train(SMALL, "diag", 1, callbacks=[3]), "a callback must be a Callback or a function; got 3"),
    (lambda: train(SMALL, "diag", 1, progress=print), "progress must be True or False; got ... Pass functions as"),
    (lambda: CSVLogger(""), "a CSV logger needs the name of a file"),
    (lambda: train("problem"), "Problem"),
    (lambda: train(SMALL, "mlp"), "family must be one of full, diag, gdpp ... got 'mlp' ... pass the class, or"),
    (lambda: train(SMALL, layers=2.5), "layers must be a whole number; got 2.5"),
    (lambda: train(SMALL, protocol="newton"), "protocol must be one of ... search ... got 'newton'"),
    (lambda: train(Problem(2, 4, 1, tasks="pool([[0,0]])"), "gdpp"), "training needs answers that are not all 0"),
    (lambda: Search(effort=0), "effort must lie in (0, 1000]"),
    (lambda: Search(tolerated=0), "tolerated must lie in (0, 1); got 0"),
    (lambda: PaperProtocol(rate=float("inf")), "learning rate must be positive and finite"),
    (lambda: Search(precision="half"), "precision must be one of auto, float32, float64; got"),
    (lambda: train_many(SMALL, "diag"), "families must be a list; got 'diag'. Pass ['diag']"),
    (lambda: train_many(SMALL, ["diag"], []), "something to train"),
    (lambda: Diag.embed(OMEGAS.family, 3, 1), "Diag contains GD"),
    (lambda: GDpp.embed(OMEGAS.family, 3, 1), "gdpp contains no other family"),
)


class Stop(Exception):
    pass


@each(
    descent(record=10, momentum=0.5, snapshots=4),
    Adam(steps=30, batch=16, record=7, scale=0.1, schedule="linear"),
    Adam(steps=30, batch=16, record=7, clip=0.5),
    GradientFlow(time=10, record=45, scale=0.1, snapshots=[2, 25]),  # three legs
)
def test_an_interrupted_descent_ends_with_the_same_bits(protocol, tmp_path):
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
    again = Training.load(found.folder)
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
        Training.load(found.folder)
    path.unlink()
    refused(lambda: Training.load(found.folder), "does not exist", DamageError)
    if name.startswith("course"):
        with pytest.warns(DamagedRunWarning, match="trained again"):
            again = train(SMALL, "diag", 1, protocol=descent(), init=init, out=tmp_path, **FEW)
        assert again.history == found.history
