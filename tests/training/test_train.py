"""Training's parts against independent truths, and training as a whole on small problems."""

import dataclasses
import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from frameworks_models import Halves
from own_problems import HeavyTails
from ridgeformer import Diag, LinearTransformer, Problem, Training, train, train_many
from ridgeformer.engine import Key, Layout
from ridgeformer.evaluation import ExplosionProbability, Loss, compare, evaluate, explosion_probability
from ridgeformer.losses import BelowFloorWarning
from ridgeformer.predictors import BayesRR, ConstRR
from ridgeformer.training import SGD, PaperProtocol, Search
from ridgeformer.training.batch import Batch, ceiling, damped
from ridgeformer.training.job import Job, Outcome, Parent, Price, Units, Vector, follow
from ridgeformer.training.paper import query_gradient
from ridgeformer.training.search import few_starts, protocol as search_module
from ridgeformer.training.search.few_starts import Soap
from ridgeformer.training.search.starts import Among, Failures, SampleAverage, SearchJob
from ridgeformer.training.session import _status
from ridgeformer.training.spec import make_spec, parse_spec
from support import each, refused, same_model, slopes

SMALL = Problem(dim=3, context=6, noise="uniform(0,3)")
QUICK = Search(effort=0.2)


@pytest.mark.slow
def test_seven_layers_without_noise():
    """Real losses far below float64's rounding of 1."""
    trainings = train_many(Problem(10, 20, "fixed(0)"), ["gdpp"], range(1, 8), sequences=20_000)
    losses = [t.loss for t in trainings]
    assert losses[-1] < 1e-14
    assert all(b < a for a, b in itertools.pairwise(losses))


def test_damping_is_continuous_and_smooth():
    losses = np.array([0.0, 1.0, 10.0, 10.0 + 1e-6, 1e3, 1e300])
    found = damped(losses, 10.0)
    np.testing.assert_allclose(found[:4], losses[:4])
    assert found[4] == pytest.approx(10 * (1 + np.log(100)))
    assert found[5] < 1e4


@pytest.mark.parametrize("family", ["full", "diag"])
def test_the_objective_and_its_gradient(family):
    """By central differences, failures included, some of them above the ceiling."""
    model = LinearTransformer.random(family, dim=3, layers=3, context=6, scale=0.3, seed=1)
    vector = Vector(model, Units(SMALL, Layout()))
    draw = SMALL.moments(20)
    failures = Failures(Batch(4 * draw.moments.gram, draw.ridge, None), share=0.2)
    assert (failures.batch.evaluate(model, np.inf).losses > 3).any()
    objective = SampleAverage(SMALL, 300, Key(5, 6, 7), failures=failures)
    point = vector.pack(model)
    value, slope = objective(vector.model(point))
    expected = slopes(lambda p: objective(vector.model(p))[0], point)
    np.testing.assert_allclose(vector.slope(slope), expected, rtol=1e-5, atol=1e-7 * np.abs(expected).max())
    alone = SampleAverage(SMALL, 300, Key(5, 6, 7))(model)[0]
    losses = SMALL.moments(300, seed=5, stream=6, step=7)
    assert alone == pytest.approx(damped(model.evaluate(losses.moments, losses.ridge).losses, 3.0).mean(), rel=1e-12)
    assert value > alone


def test_parameters_whose_products_overflow_have_an_infinite_objective():
    """A line search may try them; the engine refuses them, and the objective must not."""
    model = LinearTransformer(Diag(p=np.full((2, 1, 2), 1e200), q=np.full((2, 1, 2), 1e200)), dim=3)
    with np.errstate(over="ignore"):
        value, slope = SampleAverage(SMALL, 50, Key())(model)
    assert value == np.inf
    assert {name: piece.shape for name, piece in slope.items()} == {"p": (2, 1, 2), "q": (2, 1, 2)}
    assert not any(piece.any() for piece in slope.values())


@each(
    ([1.0] * 4, [0.5] * 4, 1, ""),
    ([1.0] * 4, [1.0] * 4, 0, "; a model it was grown from was as good and was kept"),
    ([1.0] * 4, [0.5] * 3 + [1e9], 0, "it explodes on 1 of"),
    ([0.1] * 3 + [1e3], [500.0] * 4, 1, "; preferred to one of less loss that explodes on 1 of"),
)
def test_the_choice_between_models_is_explained(grown, trained, chosen, words):
    losses = {"grown": np.array(grown), "trained": np.array(trained)}
    job = SimpleNamespace(caution=1.0, problem=Problem(5, 20, "fixed(1)"))
    model, why = search_module._select(job, [Parent("grown", "gdpp"), Parent("trained", "diag")], losses.get)
    assert model.model == ["grown", "trained"][chosen]
    assert why == words if not words else words in why


def test_the_search_finds_contexts_that_explode():
    """A step of gradient descent repeated too often explodes where the largest eigenvalue is large."""
    problem = Problem(5, 10, "fixed(1)")
    unstable = LinearTransformer(Diag(omega=np.tile([[-0.055, 0], [-0.055, 0]], (6, 1, 1))), 5)
    none, among = Failures.none(problem, Layout()), Among(problem, Key(1, 2, 3), 50_000)
    spec = make_spec(problem, "diag", layers=6, sequences=10)
    failures = SearchJob(spec).mine(unstable, none, among)
    assert len(failures) > 10
    losses = failures.batch.evaluate(unstable, np.inf).losses
    assert (~(losses <= 20 * ceiling(problem))).all()
    tame = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), 5)
    assert len(SearchJob(spec).mine(tame, none, among)) == 0
    assert len(SearchJob(spec, caution=0).mine(unstable, none, among)) == 0


def test_the_query_gradient_is_that_of_the_query_loss():
    model = LinearTransformer.random("full", dim=3, layers=2, context=6, scale=0.4, seed=2)
    vector = Vector(model, Units(SMALL, Layout()))
    key = {"batch": 50, "seed": 1, "step": 2}
    value, slope = query_gradient(SMALL, model, **key)
    expected = slopes(lambda p: query_gradient(SMALL, vector.model(p), **key)[0], vector.pack(model), 1e-2)
    np.testing.assert_allclose(vector.slope(slope), expected, atol=0.02 * np.abs(expected).max())  # in float32
    assert value > 0


def test_soap_descends_where_the_good_directions_are_not_along_the_entries():
    """A quadratic in a matrix with condition 10^4 in a random basis, rows and columns alike."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((6, 6)))[0] * np.geomspace(1, 1e-2, 6) for _ in range(2))
    goal = rng.standard_normal((1, 6, 6))

    def gradient(step, point):
        return (left @ left.T @ (point.reshape(goal.shape) - goal) @ right @ right.T).ravel()

    state = Soap.start(np.zeros(36), [(1, 6, 6)])
    state.run(gradient, 0.05 * 0.5 * (1 + np.cos(np.pi * np.arange(800) / 800)))
    assert np.abs(state.point - goal.ravel()).max() < 1e-2


def test_along_entries_soap_is_adam():
    """Matrices of one entry have one direction: the steps are those of PyTorch's Adam, both biases included."""
    torch = pytest.importorskip("torch")
    point = torch.tensor([1.0, -2.0], dtype=torch.float64)
    state, adam = (
        Soap.start(point.numpy(), [(2, 1, 1)]),
        torch.optim.Adam([point], lr=0.1, betas=(0.9, 0.95), eps=1e-30),
    )
    state.run(lambda step, at: at * [1.0, 30.0], np.full(6, 0.1))
    for _ in range(6):
        point.grad = point * torch.tensor([1.0, 30.0])
        adam.step()
    np.testing.assert_allclose(state.point, point.numpy(), rtol=1e-9)


@pytest.fixture(scope="module")
def table():
    """Three families, three depths, one small problem."""
    found = train_many(SMALL, layers=range(1, 4), protocol=QUICK, sequences=50_000)
    return {(t.spec.family.name, t.spec.layers): t for t in found}


def test_nothing_richer_or_deeper_comes_out_worse(table):
    """On the same fresh sequences, up to two standard errors of the difference."""
    models = {f"{family} {layers}": t.model for (family, layers), t in table.items()}
    found = compare(SMALL, models, sequences=100_000, with_floor=False, seed=3)
    pairs = [(f"{f} {n + 1}", f"{f} {n}") for f in ("gdpp", "diag", "full") for n in (1, 2)]
    pairs += [(f"{rich} {n}", f"{poor} {n}") for n in (1, 2, 3) for rich, poor in (("diag", "gdpp"), ("full", "diag"))]
    for better, worse in pairs:
        difference, error = found.difference(better, worse)
        assert difference <= 2 * error + 1e-12, (better, worse)
    assert found["full 3"].loss < 0.7 * found["gdpp 3"].loss


def test_a_result_tells_all(table):
    t = table["diag", 3]
    assert t.status in ("converged", "budget reached")
    assert t.message
    assert t.model.layers == 3
    assert t.loss == t.result.loss == pytest.approx(evaluate(SMALL, t.model, sequences=50_000).loss)
    assert 0 < t.floor < t.loss
    assert t.result.exploded == 0
    works = t.history.sequences.tolist()
    assert works == sorted(works)
    assert works[-1] > 0
    assert 0 < t.seconds < t.total_seconds
    assert "diag, 3 layers" in repr(t)
    json.dumps(t.record())


def test_models_of_one_call_are_trained_once(table):
    assert len(table) == 9
    alone = train(SMALL, "diag", 2, protocol=QUICK, sequences=50_000)
    assert same_model(alone.model, table["diag", 2].model)


@pytest.mark.parametrize("family", ["diag", "full"])
@pytest.mark.slow
def test_bits_do_not_depend_on_the_number_of_threads(family):
    problem = SMALL if family == "diag" else Problem(8, 12, "uniform(0,3)")
    protocol = Search(effort=0.1)
    one, two = (train(problem, family, 2, protocol=protocol, sequences=1000, threads=n) for n in (1, 3))
    assert same_model(one.model, two.model)
    assert one.history == two.history


def test_progress_is_reported():
    seen = []
    train(SMALL, "diag", 2, protocol=QUICK, sequences=1000, callbacks=[seen.append])
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < fractions[-1] <= 1
    assert {progress.spec.family.name for progress in seen} == {"gdpp", "diag"}
    assert all(progress.remaining >= 0 and progress.seconds >= 0 and progress.loss > 0 for progress in seen)


def test_time_can_be_limited():
    """With next to none, GD++ is embedded; with more, every model gets its part, the richest the largest."""
    problem = Problem(8, 16, "uniform(0,4)")
    found = train(problem, "full", 3, protocol=Search(seconds=0.01), sequences=5000)
    assert found.status == "budget reached"
    assert "time" in found.message
    assert found.loss < 2  # predicting 0 has 4
    more = train(problem, "full", 3, protocol=Search(seconds=1), sequences=5000)
    assert more.status == "budget reached"
    assert more.loss <= found.loss
    assert len(more.history) >= len(found.history)


@each(
    (SGD(rate=0.1), ": a search, the default protocol, avoids that"),
    (Search(), ": very large labels do that to any model that is not linear in y; predictors.Guarded protects it"),
)
def test_a_run_that_diverges_by_few_sequences_says_how_many(protocol, remedy):
    spec = make_spec(SMALL, "diag", layers=1, sequences=1000, protocol=protocol)
    result = Loss("diag", 50.0, 50.0, 51.0, 50.0, 0.1, 0.01, 1e5, 1e5, 2, 1.0, 1000, "exact", 3.0, True)
    found = Outcome(LinearTransformer.random("diag", dim=3, layers=1), False, "SGD ended")
    status, message = _status(spec, found, result)
    assert status == "diverged"
    assert message == (
        "its unadjusted loss of 51 is above that of predicting 0 (1.5); SGD ended; only 2 of 1,000 fresh "
        f"sequences explode, and the others have a loss of 1{remedy}"
    )


def test_a_run_that_must_diverge_says_so():
    """A rate at which Adam jumps to parameters near one: the model overflows."""
    found = train(SMALL, "full", 4, protocol=PaperProtocol(steps=60, batch=64, rate=3.0), sequences=2000)
    assert found.status == "diverged"
    words = r"its unadjusted loss of \S+ is above that of predicting 0 \(\S+\); .*a rate of 0.3 may help$"
    assert re.match(words, found.message)
    assert found.result.exploded > 0


def test_the_paper_s_protocol_learns():
    found = train(SMALL, "diag", 1, protocol=PaperProtocol(steps=1500, batch=256, rate=3e-3), sequences=20_000)
    best = train(SMALL, "gdpp", 1, sequences=20_000)
    assert found.status == "budget reached"
    assert found.loss < 1.05 * best.loss
    assert found.history.sequences[-1] == 1500 * 256


def test_a_custom_family_is_a_small_class(tmp_path):
    """Its one layer is Diag's; it is trained, stored and found again by its name."""
    found = train(SMALL, Halves, 1, protocol=QUICK, sequences=20_000, out=tmp_path)
    diag = train(SMALL, "diag", 1, protocol=QUICK, sequences=20_000)
    assert found.loss == pytest.approx(diag.loss, rel=0.02)
    assert isinstance(Training.load(found.folder).model.family, Halves)


@pytest.mark.long
@each(
    (3, 6, "uniform(0,4)", 5),
    (20, 30, "uniform(0,6)", 5),
    (10, 6, "categorical(0.1,4)", 5),
    (5, 12, "categorical(0.5,2,6,weights=[0.5,0.3,0.2])", 10),
    (6, 15, "expon(scale=2)", 7),
)
def test_problems_nobody_tuned_for(dim, context, noise, layers):
    """Default settings: at most 1.5 x the floor where ConstRR is above 3 x."""
    problem = Problem(dim, context, noise)
    found = train(problem, "full", layers)
    const = evaluate(problem, ConstRR.tune(problem))
    print(problem, found, f"ConstRR {const.ratio:.2f}")
    assert found.result.exploded == 0
    if const.ratio > 3:
        assert found.result.ratio < 1.5
    assert found.result.ratio < const.ratio


def test_a_trained_loss_below_the_floor_is_a_warning(monkeypatch):
    """With a Bayes predictor that is wrong, as if the floor were that of another problem."""
    monkeypatch.setattr(BayesRR, "weights", lambda self, moments, **_: np.zeros(moments.b.shape))
    with pytest.warns(BelowFloorWarning, match="The data or the code is wrong"):
        found = train(Problem(3, 7, "uniform(0,1.25)"), "gdpp", 1, protocol=QUICK, sequences=1000)
    assert found.result.ratio < 1


def test_a_training_says_which_model_it_really_is(tmp_path):
    """With one layer, GD++, Diag and Full are the same function of a: the simplest is chosen, and named."""
    runs = train_many(SMALL, ["diag", "full"], [1], protocol=Search(effort=0.1), sequences=1000, out=tmp_path)
    assert {run.actual for run in runs} == {"gdpp, 1 layer"}
    assert "full, 1 layer, d=3 n=6 uniform(0,3) (actual: gdpp, 1 layer)" in repr(runs[1])
    assert Training.load(runs[1].folder).actual == "gdpp, 1 layer"
    deep = train(Problem(2, 200, "fixed(0)"), "gdpp", 2, protocol=Search(effort=0.1), sequences=1000)
    padded = dataclasses.replace(deep, model=deep.model.with_identity(1))
    assert (deep.actual, padded.actual, padded.model.layers) == ("gdpp, 2 layers", "gdpp, 2 layers", 3)


def test_the_price_of_caution_is_in_the_result():
    """By hand: the loss of the model without caution and of the chosen one where neither explodes."""
    problem = Problem(3, "4..9", "uniform(0,2)")
    run = train(problem, "diag", 2, protocol=Search(effort=0.1), sequences=1000)
    price = run.price
    assert price.exploded > 0
    assert price.worse > 0.05
    words = f"caution costs {price.worse:.0%}: a model of loss {price.loss:.3g} explodes on {price.exploded} of"
    assert words in run.message
    ours = run.model.step(problem, price.sequences, stream=4, gradient=False).losses
    calm = ours[ours < 100 * 3]
    assert calm.mean() == pytest.approx((1 + price.worse) * price.loss, rel=0.02)  # but for those that explode there


@pytest.mark.parametrize(("caution", "known"), [(1, True), (0, False)])
def test_searches_by_soap_have_a_price_too(caution, known, monkeypatch):
    """By hand: the loss of the chosen one; none of the sequences explodes."""
    monkeypatch.setattr(search_module, "FEW_PARAMETERS", 0)
    run = train(SMALL, "diag", 1, protocol=Search(effort=0.1, caution=caution), sequences=1000)
    assert (run.price is not None) == known
    if known:
        ours = run.model.step(SMALL, run.price.sequences, stream=4, gradient=False).losses
        assert ours.mean() == pytest.approx((1 + run.price.worse) * run.price.loss, rel=1e-6)


@each("sparse(1)", "pool(16)")
def test_prices_are_of_adjusted_losses_where_training_cannot_adjust_them(tasks):
    problem = Problem(4, 10, "uniform(0,1)", tasks=tasks)
    run = train(problem, "diag", 2, protocol=Search(effort=0.1), sequences=1000)
    fresh = evaluate(problem, run.model, sequences=50_000)
    assert fresh.unadjusted > 1.05 * fresh.loss
    assert (1 + run.price.worse) * run.price.loss == pytest.approx(fresh.loss, abs=6 * fresh.error)


def test_where_no_better_model_was_found_caution_costs_nothing():
    chosen, signal = np.array([1.0, 2.0, 3.0]), 10.0
    assert Price.between(chosen + 1, chosen, signal) == Price(2.0, 0, 3, 0.0)
    assert Price.between(np.array([0.5, 1.0, 2000.0]), chosen, signal) == Price(0.75, 1, 3, 1.0)


@pytest.mark.parametrize("family", ["full", "channels(1,3)"])
def test_where_n_varies_the_simpler_family_is_a_candidate(family):
    """As a model that ignores the coordinate which shows n: the same function."""
    problem = Problem(3, "4..9", "uniform(0,2)")
    spec = make_spec(problem, family, layers=2, sequences=10)
    simpler = spec.protocol.needs(spec)[0]
    assert (simpler.family, simpler.layers, simpler.layout) == (Diag, 2, Layout("mean"))
    diag = LinearTransformer.random("diag", dim=3, layers=2, scale=0.5, layout=Layout("mean"))
    (parent,) = SearchJob(spec, simpler=Parent(diag, "diag")).ancestors()
    assert parent.model.layout.coordinate == "length"
    moments = problem.moments(50, sums=True).moments
    np.testing.assert_allclose(parent.model.weights(moments), diag.weights(moments), rtol=1e-10)


def test_less_effort_is_less_work():
    """Counted in sequences, which do not depend on the machine."""
    for problem in (SMALL, Problem(4, 8, "fixed(1)", features="powerlaw(1)")):
        work = [
            train(problem, "diag", 2, protocol=Search(effort=effort), sequences=100).history.sequences[-1]
            for effort in (0.05, 0.3)
        ]
        assert work == sorted(work)


def test_a_descent_that_got_worse_has_not_converged(monkeypatch):
    """The last 500 steps of a search by SOAP may raise the loss."""
    losses = iter([3.0, 2.0, 1.0, 1.3])

    def piece(self, *args):
        return few_starts._Descent(args[2].state, args[2].failures, next(losses, 1.3))

    monkeypatch.setattr(few_starts._SoapRace, "_piece", piece)
    steps = few_starts.descend_few_starts(SearchJob(make_spec(SMALL, "full", layers=1, sequences=2), effort=0.01))
    outcome = follow(steps, Job(make_spec(SMALL, "full", layers=1, sequences=2)))
    assert not outcome.converged


def test_constrr_is_not_called_better_where_it_is_the_oracle():
    assert "ConstRR" not in train(Problem(3, 8, "fixed(1)"), "gdpp", 1, sequences=2000).message


@pytest.mark.parametrize("change", [{}, {"features": "powerlaw(1)"}], ids=str)
@pytest.mark.slow
def test_the_message_says_if_constrr_is_better(change):
    """One step of gradient descent is worse than ridge regression; more layers of Diag are better."""
    problem = Problem(3, 8, "uniform(0,2)").replace(**change)
    how = {"protocol": Search(effort=0.1), "sequences": 5000}
    message = train(problem, "gdpp", 1, **how).message
    simple = evaluate(problem, ConstRR.tune(problem), sequences=5000).loss
    said = re.search(r"; ConstRR is better, with a loss of ([0-9.]+)$", message)
    assert said, message
    assert float(said[1]) == pytest.approx(simple, rel=0.1)
    assert "ConstRR" not in train(problem, "diag", 4, **how).message


def test_the_message_compares_unadjusted_losses_where_there_is_no_oracle():
    """On the same sequences, because what labels have in common hides the difference otherwise."""
    problem, how = HeavyTails(3, 8), {"protocol": Search(effort=0.1), "sequences": 2000}
    worse = train(problem, "gdpp", 1, **how)
    words = r"; ConstRR is better: its unadjusted loss is (\S+) where that of the model is (\S+)$"
    said = re.search(words, worse.message)
    pair = compare(problem, {"ConstRR": ConstRR.tune(problem, sequences=2000), "model": worse.model}, sequences=5000)
    assert [float(text) for text in said.groups()] == [pytest.approx(pair[name].loss, rel=1e-3) for name in pair]
    assert "ConstRR" not in train(problem, "diag", 2, **how).message


@each(
    (Problem(3, 6, "tokens(uniform(0,2))"), "one noise level per sequence only, and here every example has its own"),
    (HeavyTails(), "the density of a problem of your own is not known"),
    (Problem("2..3", "2d", 1), "for one dimension only"),
)
def test_why_an_explosion_probability_is_unknown_is_said(problem, words):
    run = train(problem, "gdpp", 1, protocol=Search(effort=0.1), sequences=500)
    assert run.explosions is None
    assert words in run.explosions_unknown
    assert (words in run.message) == (problem.noise is not None and problem.noise.per_token)


@each(
    ([1e-12, 1e-7], [1.0, 0.5], 1e-9, 0),
    ([1e-12, 1e-7], [1.0, 0.5], 1e-6, 1),
    ([1e-5, 1e-7], [0.5, 1.0], 1e-9, 1),
    ([1e-12, 1e-13], [1.0, 1.0], 1e-9, 0),
    ([1e-12, 1e-13], [1.0, 1e9], 1e-9, 0),
)
def test_candidates_are_chosen_by_their_explosion_probabilities(probabilities, losses, tolerated, chosen, monkeypatch):
    """The least loss among those that explode rarely enough; where none does, the one that explodes least often."""
    monkeypatch.setattr(
        search_module,
        "explosion_probability",
        lambda problem, model, **_: ExplosionProbability(probabilities[model], 0.0, 50.0, 9, 10, probabilities[model]),
    )
    job = SimpleNamespace(problem=Problem(5, 20, "fixed(1)"), seed=0)
    kept, why = search_module._tolerable(
        job, [Parent(0, "gdpp"), Parent(1, "diag")], lambda model: np.full(8, losses[model]), tolerated
    )
    assert kept.model == chosen
    assert ("above the tolerated" in why) == (min(probabilities) > tolerated)


def test_a_tolerated_probability_is_an_option_that_changes_no_other_run():
    spec = make_spec(SMALL, "diag", layers=2, sequences=100)
    assert "tolerated" not in spec.as_dict()["protocol"]  # so that runs are found by their former names
    strict = make_spec(SMALL, "diag", layers=2, sequences=100, protocol=Search(tolerated=1e-9))
    assert parse_spec(strict.as_dict()) == strict
    assert strict.name != spec.name
    own = {"layers": 1, "sequences": 100, "protocol": Search(tolerated=1e-9)}
    refused(lambda: make_spec(HeavyTails(), "diag", **own), "tolerated needs a built-in problem")


@pytest.mark.slow
def test_a_search_keeps_explosions_below_what_is_tolerated(monkeypatch):
    """On a problem where the model without caution explodes on some of 131,072 sequences; probabilities by few."""
    monkeypatch.setattr(search_module, "RARE", 4000)
    problem, much = Problem(3, "4..9", "uniform(0,2)"), {"sequences": 1000, "progress": False}
    run = train(problem, "diag", 2, protocol=Search(effort=0.1, tolerated=1e-4), **much)
    assert explosion_probability(problem, run.model, sequences=8000).upper < 1e-4
    assert "candidates, its explosion probability is" in run.message
