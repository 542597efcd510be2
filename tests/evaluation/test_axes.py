"""Losses along axes: layers, noise levels, numbers of examples, and problems that differ in one respect or two."""

import numpy as np
import pytest

from own_problems import HeavyTails, Uneven, Varying
from ridgeformer import Diag, Layout, LinearTransformer, Problem, compare, evaluate, load
from ridgeformer.evaluation.sequence_losses import EVALUATION
from ridgeformer.predictors import AdaRR, BayesRR, ConstRR
from ridgeformer.problems import Dataset, Sequences
from support import refusals, refused, tame_model

PAPER = Problem(noise="uniform(0,5)")
PROBLEM = Problem(3, 8, "uniform(0,2)")
DESCENT = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), 10)
EXPLOSIVE = LinearTransformer(Diag(omega=np.full((8, 2, 2), 5.0)), 10)
FIELDS = ("loss", "error", "unadjusted", "unadjusted_error", "largest", "tail", "exploded", "unexploded")


def numbers(losses):
    """All numbers of one predictor at one point, or along axes."""
    return [np.asarray(getattr(losses, field)).tolist() for field in (*FIELDS, "floor", "floor_error")]


def test_a_predictor_has_the_same_bits_alone_in_company_and_on_every_axis():
    """Models, baselines and predictors from tokens; more than one block, whose last is short."""
    full, diag = load("zoo:full/4/uniform(0,5)"), load("zoo:diag/3/uniform(0,5)")
    options = {"sequences": 20_000, "seed": 4}
    rivals = {"full": full, "diag": diag, "AdaRR": AdaRR(), "Bayes": BayesRR("uniform(0,5)"), "tokens": Tokens()}
    together = compare(PAPER, rivals, **options)
    for name, predictor in rivals.items():
        assert numbers(evaluate(PAPER, predictor, **options)) == numbers(together[name]), name
    layers = compare(PAPER, {"full": full, "diag": diag}, "layer", **options)
    assert numbers(layers["full"].at(layer=4)["full"]) == numbers(together["full"])
    assert numbers(layers["diag"].at(layer=3)["diag"]) == numbers(together["diag"])
    contexts = compare(PAPER, rivals, {"context": [12, 20]}, **options)
    levels = compare(PAPER, rivals, {"sigma": [0.7, 5]}, **options)
    problems = compare(Problem(noise=1), rivals, {"problem": [PAPER, PAPER.at_noise(5)]}, **options)
    for name, predictor in rivals.items():
        assert numbers(contexts.at(context=20)[name]) == numbers(together[name]), name
        assert numbers(problems.at(problem=str(PAPER))[name]) == numbers(together[name]), name
        alone = evaluate(PAPER.at_noise(5), predictor, **options, with_floor=False)
        assert numbers(levels.at(sigma=5)[name])[:8] == numbers(alone)[:8], name


class Tokens:
    """Least squares from tokens."""

    def predict(self, x, y, queries):
        return np.einsum("bmd,bd->bm", queries, (np.linalg.pinv(x) @ y[..., None])[..., 0])


def test_the_sequences_are_drawn_once(monkeypatch):
    """Also those of the floor; and a floor is measured once."""
    problem, drawn = Problem(4, 9, "uniform(0,3)"), []
    draw = Problem.moments
    monkeypatch.setattr(Problem, "moments", lambda self, count, **key: drawn.append(count) or draw(self, count, **key))
    evaluate(problem, AdaRR(), sequences=700)
    compare(problem, [AdaRR(), ConstRR(1)], sequences=700)
    assert drawn == [700, 700]


# ---- layers


def test_layers_end_with_the_model_and_begin_with_nothing():
    model = tame_model("full", 10, 3, 1, 20)
    losses = compare(PAPER, {"m": model, "short": model.truncate(1)}, "layer", sequences=2000)
    assert losses.axes == {"layer": (0, 1, 2, 3)}
    draw = PAPER.moments(2000, stream=EVALUATION)
    assert losses.loss[0, 0] == pytest.approx(0.5 * np.square(draw.ridge).sum(1).mean())
    for layer in (1, 2, 3):
        readout = 0.5 * np.square(model.truncate(layer).weights(draw.moments) - draw.ridge).sum(1)
        assert losses.loss[0, layer] == pytest.approx(readout.mean())
    assert losses.loss[1, :2].tolist() == losses.loss[0, :2].tolist()
    assert np.isnan(losses.loss[1, 2:]).all()
    whole = evaluate(PAPER, model, sequences=2000)
    assert (losses.floor == whole.floor).all()
    np.testing.assert_allclose(losses.ratio[0], losses.loss[0] / whole.floor, rtol=1e-15)


def test_layers_and_noise_levels_at_once():
    model = load("zoo:full/7/uniform(0,1)")
    both = compare(Problem(noise="uniform(0,1)"), model, {"sigma": [1.0, 2.0], "layer": [0, 3, 7]}, sequences=5000)
    assert both.loss.shape == (1, 2, 3)
    assert both.exploded.shape == (1, 2, 3)
    for sigma in (1.0, 2.0):
        layers = compare(Problem(noise=sigma), model, "layer", sequences=5000, with_floor=False)
        assert both.at(sigma=sigma).loss[0].tolist() == layers.loss[0, [0, 3, 7]].tolist()
    other = compare(Problem(noise="uniform(0,1)"), model, {"layer": None, "sigma": [1.0, 2.0]}, sequences=5000)
    assert other.loss[0, [0, 3, 7]].T.tolist() == both.loss[0].tolist()


def test_explosions_are_counted_at_every_point():
    losses = compare(PAPER, EXPLOSIVE, "layer", sequences=100, with_floor=False)
    assert losses.exploded[0, [0, -1]].tolist() == [0, 100]
    assert losses.loss[0, -1] == 1e12
    assert np.isnan(losses.unexploded[0, -1])
    model, problem = load("zoo:full/7/uniform(0,1)"), Problem(noise="uniform(0,1)")
    losses = compare(problem, model, {"sigma": [1.0, 2.0]}, sequences=5000)
    draw = Problem(noise="fixed(2)").moments(5000, stream=EVALUATION)
    single = 0.5 * np.square(model.weights(draw.moments) - draw.ridge).sum(1)
    assert losses.exploded[0].tolist() == [0, (single > 1000).sum()]
    assert losses.exploded[0, 1] > 0
    assert losses.unexploded[0, 1] == pytest.approx(single[single <= 1000].mean())


# ---- noise levels


def test_a_profile_averages_to_the_loss():
    """Loss over uniform(0,5) is the mean of the profile over [0, 5]: Gauss-Legendre in sigma."""
    x, w = np.polynomial.legendre.leggauss(8)
    profile = compare(PAPER, AdaRR(), {"sigma": 2.5 + 2.5 * x}, sequences=40_000)
    whole = evaluate(PAPER, AdaRR(), sequences=100_000, with_floor=False)
    error = np.sqrt(((w / 2 * profile.error[0]) ** 2).sum()) * 3 + 4 * whole.error  # levels share their sequences
    assert (w / 2) @ profile.loss[0] == pytest.approx(whole.loss, abs=error)


def test_default_levels_mark_what_can_occur():
    losses = compare(Problem(3, 6, "uniform(1,2)"), ConstRR(1), "sigma", sequences=100)
    sigma, inside = np.array(losses.axes["sigma"]), np.array(losses.in_distribution["sigma"])
    assert sigma[[0, -1]].tolist() == [0, 3]
    np.testing.assert_array_equal(inside, (sigma >= 1) & (sigma <= 2))
    assert np.argmin(losses.loss) == np.argmin(abs(sigma - 1))
    assert np.isnan(losses.floor).all()
    losses = compare(Problem(3, 6, "uniform(0.2,1.5)"), ConstRR(1), "sigma", sequences=2)
    inside = np.array(losses.axes["sigma"])[np.array(losses.in_distribution["sigma"])]
    assert inside[[0, -1]].tolist() == [0.2, 1.5]
    paper = compare(Problem(3, 6, "uniform(0,5)"), ConstRR(1), "sigma", sequences=2).axes["sigma"]
    np.testing.assert_array_equal(paper, np.union1d(np.linspace(0, 6, 41), [5]))  # stored with the figures


# ---- numbers of examples

PREFIXES = {
    "isotropic": PROBLEM,
    "anisotropic": Problem(3, 8, "uniform(0,2)", features="powerlaw(1)", query="powerlaw(0.5)"),
    "rotated": Problem(3, 8, 1, features="rotated(powerlaw(1))"),
    "factors": Problem(3, 8, "uniform(0,2)", features="factors(1)"),
    "prior": Problem(3, 8, 1, tasks="gaussian(mean=[1,0,0])"),
    "pool": Problem(3, 8, "categorical(0.5,2)", tasks="pool(4)"),
    "custom": HeavyTails(dim=3, context=8),
}


@pytest.mark.parametrize("problem", PREFIXES.values(), ids=PREFIXES)
def test_a_prefix_is_a_context_of_its_length(problem):
    """The loss at n is that of an evaluation at that n, within 4 standard errors of both; so is the floor."""
    predictors = {"model": tame_model("diag", 3, 2, 1, 8, seed=1), "ConstRR": ConstRR(0.8)}
    losses = compare(problem, predictors, {"context": [9, 2, 5]}, sequences=4000, seed=1)
    assert losses.axes["context"] == (9, 2, 5)
    for n in (2, 5, 9):
        at = losses.at(context=n)
        for name, predictor in predictors.items():
            alone, own = evaluate(problem.replace(context=n), predictor, sequences=4000, seed=7), at[name]
            assert own.loss == pytest.approx(alone.loss, abs=4 * np.hypot(own.error, alone.error) + 1e-20), (n, name)
            spread = 4 * np.hypot(own.floor_error, alone.floor_error) + 1e-20
            assert own.floor == pytest.approx(alone.floor, abs=spread, nan_ok=True), n


def test_prefixes_are_of_the_same_sequences():
    """A prefix does not depend on the other lengths that are asked for, as long as the longest is the same."""
    few = compare(PROBLEM, ConstRR(1.0), {"context": [3, 8]}, sequences=300)
    every = compare(PROBLEM, ConstRR(1.0), "context", sequences=300)
    assert every.axes["context"] == tuple(range(1, 9))
    assert every.in_distribution["context"] == (False,) * 7 + (True,)
    np.testing.assert_allclose(few.loss[0], every.loss[0, [2, 7]], rtol=1e-12)
    tasks = compare(PROBLEM, ConstRR(1.0), {"context": "1..8", "tasks": ["lowrank(1)", "gaussian()"]}, sequences=300)
    np.testing.assert_allclose(tasks.at(tasks="gaussian()").loss, every.loss, rtol=1e-12)


def test_ranges_and_standardised_features_are_problems_of_their_own():
    for problem, values in ((PROBLEM, ["4..8", 8]), (PROBLEM.replace(features="standardised()"), [4, 8])):
        losses = compare(problem, ConstRR(1.0), {"context": values}, sequences=300)
        for shown, value in zip(losses.axes["context"], values, strict=True):
            alone = evaluate(problem.replace(context=value), ConstRR(1.0), sequences=300)
            assert losses.at(context=shown).loss.item() == alone.loss


class NoArgument(HeavyTails):
    """A problem without an argument for the number of examples."""

    name = None

    def __init__(self, most=8):
        super().__init__(context=most)


def test_prefixes_of_problems_of_ones_own():
    losses = compare(NoArgument(), ConstRR(0.1), {"context": [2, 4, 8]}, sequences=500)
    assert (np.diff(losses.loss[0]) < 0).all()
    assert losses.loss[0, 2] == evaluate(NoArgument(), ConstRR(0.1), sequences=500).loss
    assert not losses.adjusted
    for problem, longest in ((NoArgument(), 9), (NoArgument([3, 6]), 3)):
        over = {"context": [longest]}
        refused(lambda p=problem, o=over: compare(p, ConstRR(0.5), o, sequences=10), "needs an argument context")


def test_prefixes_where_every_sequence_has_a_number_of_examples():
    """They are given as an array, also where all are the same."""
    losses = compare(Varying(), ConstRR(0.1), {"context": [3, 8]}, sequences=500)
    assert losses.loss[0, 1] == evaluate(Varying(8), ConstRR(0.1), sequences=500).loss < losses.loss[0, 0]


def test_prefixes_of_a_problem_with_an_oracle_of_its_own():
    """Against the oracle and ridge regression on the first tokens, by hand; all of them have the bits of `evaluate`."""
    problem, rr = Uneven(), ConstRR(1.0)
    losses = compare(problem, rr, {"context": [3, 6]}, sequences=300)
    s = problem.moments(300, stream=EVALUATION, tokens=True).tokens
    first = Sequences(s.x[:, :3], s.y[:, :3], s.queries, s.answers, s.task, s.sigma[:, :3])
    gap = rr.weights(first.moments) - problem.oracle(first)
    assert losses.loss[0, 0] == pytest.approx(0.5 * np.square(gap).sum(1).mean())
    assert losses.loss[0, 1] == evaluate(problem, rr, sequences=300).loss
    assert losses.adjusted


# ---- problems that differ in one respect

VALUES = {
    "noise": [0.5, "categorical(1,3)", "uniform(0,4)"],
    "context": [4, "6..12", [5, 9]],
    "features": ["isotropic()", "powerlaw(1)", "rotated(powerlaw(1))", "factors(1)", "standardised()"],
    "tasks": ["gaussian()", "lowrank(2)", "pool(4)", "mixture(pool(4),0.5)", "gaussian(mean=[1,0,0])"],
    "query": [None, "powerlaw(2)", [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]],
}


@pytest.mark.parametrize("what", VALUES)
def test_each_problem_is_evaluated_as_itself(what):
    """Losses and floors are those of `evaluate` on the shifted problem, to the bit, and not below the floor."""
    model = tame_model("full", 3, 3, 1, 8, seed=3)
    predictors = {"model": model, "ConstRR": ConstRR.tune(PROBLEM), "Bayes": BayesRR(PROBLEM.noise)}
    losses = compare(PROBLEM, predictors, {what: VALUES[what]}, sequences=400, seed=2)
    for k, value in enumerate(VALUES[what]):
        other = PROBLEM.replace(**{what: value})
        for i, predictor in enumerate(predictors.values()):
            alone = evaluate(other, predictor, sequences=400, seed=2)
            found = losses.loss[i, k], losses.unadjusted[i, k], losses.floor[k], losses.floor_error[k]
            assert found == (alone.loss, alone.unadjusted, alone.floor, alone.floor_error)
    assert (losses.loss - losses.floor > -4 * np.hypot(losses.error, losses.floor_error) - 1e-20).all()


def test_values_are_numbers_where_they_are_and_short_texts_elsewhere():
    rr = ConstRR(1.0)
    for change, values in (
        ({"noise": [2, 1]}, (2.0, 1.0)),
        ({"context": [4, 9]}, (4, 9)),
        ({"noise": [1, "uniform(0,2)"]}, (1.0, "uniform(0,2)")),
        ({"context": [4, "6..12"]}, (4, "6..12")),
        ({"tasks": "lowrank(1)"}, ("lowrank(1)",)),
    ):
        losses = compare(PROBLEM, rr, change, sequences=20)
        assert next(iter(losses.axes.values())) == values
    one = compare(PROBLEM, rr, {"noise": [1, "uniform(0,2)"]}, sequences=20)
    assert one.in_distribution == {"noise": (False, True)}
    wide = compare(Problem(8, 9, 1), rr, {"features": [np.eye(8) + 0.1, np.eye(8)]}, sequences=20)
    assert max(map(len, wide.axes["features"])) <= 60


def test_models_with_further_coordinates_have_axes_too():
    model = LinearTransformer.random("full", dim=3, layers=2, scale=0.01, layout=Layout("mean", "length"), seed=1)
    assert np.isfinite(compare(PROBLEM, model, {"context": [4, "6..12"]}, sequences=200).loss).all()
    prefixes, alone = (
        compare(PROBLEM, model, {"context": [5, 8]}, sequences=2000),
        evaluate(PROBLEM, model, sequences=2000),
    )
    assert prefixes.loss[0, 1] == alone.loss
    constant = LinearTransformer.random("full", dim=3, layers=2, scale=0.02, layout=Layout("sum", "constant"), seed=1)
    draw = PROBLEM.moments(2000, stream=EVALUATION, sums=True)
    error, bias = constant.weights(draw.moments) - draw.ridge, constant.intercepts(draw.moments)
    truth = 0.5 * (np.square(error).sum(1) + bias**2)
    assert evaluate(PROBLEM, constant, sequences=2000).loss == pytest.approx(truth.mean())


def test_problems_of_ones_own_are_changed_in_their_arguments_or_listed():
    problem = HeavyTails()
    rr = ConstRR.tune(problem, sequences=1000)
    losses = compare(problem, {"rr": rr}, {"freedom": [3.0, 30.0]}, sequences=500)
    assert losses.axes == {"freedom": (3.0, 30.0)}
    for k, freedom in enumerate((3.0, 30.0)):
        assert losses.loss[0, k] == evaluate(HeavyTails(freedom=freedom), rr, sequences=500).loss
    assert np.isnan(losses.floor).all()
    few = Dataset(Problem(3, 8, 1).sequences(50))
    listed = compare(problem, {"rr": rr}, {"problem": {"fifty": few, "own": problem}}, sequences=50)
    assert listed.axes["problem"] == ("fifty", "own")
    assert listed.in_distribution["problem"] == (False, True)
    assert listed.loss[0].tolist() == [evaluate(one, rr, sequences=50).loss for one in (few, problem)]
    assert compare(few, rr, {"problem": [few]}, sequences=500).sequences == 50


class NoProblem(Uneven):
    """Its method at_noise returns no problem."""

    def at_noise(self, sigma):
        """See `CustomProblem.at_noise`."""


test_bad_axes_are_refused_in_words = refusals(
    (NoProblem(), {"sigma": [1]}, "the problem must be a Problem; got None. Pass Problem("),
    (PROBLEM, "depth", "axes of this problem are layer, sigma, context, dim, noise, features, tasks, query,"),
    (PROBLEM, ["sigma"], "over must be an axis or a dict of axes; got a list"),
    (PROBLEM, "layer", "losses by layer need a LinearTransformer and no subclass"),
    (PROBLEM, "noise", "the axis noise has no default values"),
    (PROBLEM, {"noise": []}, "the axis noise needs at least one value"),
    (PROBLEM, {"sigma": []}, "the axis sigma needs at least one value"),
    (PROBLEM, {"sigma": [-1.0]}, "sigma must not be negative; got -1"),
    (PROBLEM, {"sigma": [np.nan]}, "sigma must be finite"),
    (PROBLEM, {"sigma": [1], "noise": [1]}, "sigma and noise are one axis"),
    (PROBLEM, {"context": [0]}, "context must be at least 1"),
    (PROBLEM, {"tasks": ["lowrank(9)"]}, "the rank of tasks can be at most d = 3; got 9"),
    (HeavyTails(dim=3), {"noise": [1]}, "axes of this problem are layer, sigma, context, dim, freedom, problem"),
    (HeavyTails(dim=3), "sigma", "noise levels of this problem have no default"),
    (HeavyTails(dim=3), {"problem": [1]}, "the problem must be a Problem; got an int"),
    by=lambda problem, over: compare(problem, ConstRR(1.0), over, sequences=10),
)


def test_layers_of_a_subclass_and_beyond_the_last_are_refused():
    whole = load("zoo:diag/3/uniform(0,5)")
    other = type("Other", (LinearTransformer,), {})(whole.family, whole.dim)
    refused(lambda: compare(PAPER, other, "layer"), "a LinearTransformer and no subclass ... Pass LinearTransformer")
    refused(lambda: compare(PAPER, whole, {"layer": [4]}, sequences=100), "layer must be at most 3")


def test_progress_counts_the_sequences_of_all_points():
    counts = []
    compare(PAPER, DESCENT, {"sigma": [1, 2]}, sequences=20_000, progress=lambda *count: counts.append(count))
    assert counts[-1] == (40_000, 40_000)
    assert [done for done, _ in counts] == sorted(done for done, _ in counts)
