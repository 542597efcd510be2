"""The guard catches every explosion, leaves a model alone on its own problem, and fits wherever predictors do."""

import numpy as np
import pytest

from ridgeformer import Layout, LinearTransformer, Moments, Problem, compare, evaluate, load
from ridgeformer.losses import exploded
from ridgeformer.predictors import BayesRR, ConstRR, Guarded, LeastSquares, OracleRR, Predictor

BAYES = BayesRR("uniform(0,5)")
HOME = Problem(noise="uniform(0,5)")
SHIFTS = {
    "noise beyond training": Problem(noise="fixed(8)"),
    "features twice as large": Problem(noise="uniform(0,5)", features=4 * np.eye(10)),
    "correlated features": Problem(noise="uniform(0,5)", features="factors(2)"),
    "standardised correlated features": Problem(noise="uniform(0,5)", features="standardised(factors(1))"),
    "twice as many examples": Problem(context=40, noise="uniform(0,5)"),
    "few examples": Problem(context=5, noise="uniform(0,5)"),
}


def guarded(family="full", layers=7):
    return Guarded(load(f"zoo:{family}/{layers}/uniform(0,5)"), BAYES)


@pytest.mark.parametrize("family", ["diag", "full", "gdpp"])
@pytest.mark.parametrize("problem", SHIFTS.values(), ids=SHIFTS)
def test_nothing_explodes_and_the_fallback_never_hurts(problem, family):
    one, draw = guarded(family), problem.moments(4000, seed=3)
    report, alone = one.check(draw.moments), one.model.weights(draw.moments)
    with np.errstate(all="ignore"):
        losses, bad = (draw.both_losses(np.asarray(w, np.float64))[0] for w in (one.weights(draw.moments), alone))
    assert not exploded(losses, problem.signal).any()
    if family == "full" and problem == SHIFTS["features twice as large"]:
        assert exploded(bad, problem.signal).mean() > 0.1  # otherwise this would show nothing
    assert report.fell_back[exploded(bad, problem.signal)].all()
    assert (losses <= bad)[report.fell_back & np.isfinite(bad)].all()


@pytest.mark.parametrize("family", ["diag", "full", "gdpp"])
@pytest.mark.parametrize("layers", [3, 7])
def test_at_home_the_model_is_left_alone(family, layers):
    moments = HOME.moments(20_000, seed=1).moments
    one = guarded(family, layers)
    assert one.check(moments).share < 1e-4
    assert np.array_equal(one.weights(moments[:100]), one.model.weights(moments[:100]))


@pytest.mark.parametrize("context", [3, 4, 12])
def test_every_ridge_solution_and_every_average_of_them_is_in_the_box(context):
    """So the oracle is, whatever sigma is, and the excess of a model is an error that it certainly makes."""
    moments = Problem(4, context, "uniform(0,3)", features="factors(1)").moments(500).moments
    for predictor in (OracleRR(), ConstRR(2.0), LeastSquares(), BayesRR("uniform(0,3)")):
        assert Guarded(predictor, BAYES).check(moments).excess.max() < 1e-12


def test_the_excess_of_one_feature_by_hand():
    """S = 4, a = 4, l = 10: least squares is 1, so the box is [0, 1]; a weight of 3 is 2 outside: 4 * 2^2 / 10."""

    class Three:
        def weights(self, moments):
            return np.full((len(moments), 1), 3.0)

    moments = Moments.from_parts([[[4.0]]], [[4.0]], [10.0], context=5)
    report = Guarded(Three(), ConstRR(1.0)).check(moments)
    assert report.excess.tolist() == pytest.approx([1.6])
    assert Guarded(Three(), ConstRR(1.0)).weights(moments) == pytest.approx(4 / 5)
    assert str(report) == "fell back on 1 of 1 contexts"


def test_weights_that_are_not_finite_are_counted():
    class Broken:
        def weights(self, moments):
            found = np.zeros((len(moments), moments.dim))
            found[1], found[2, 0] = np.nan, np.inf
            return found

    moments = HOME.moments(5).moments
    one = Guarded(Broken(), BAYES)
    report = one.check(moments)
    assert report.fell_back.tolist() == [False, True, True, False, False]
    assert str(report) == "fell back on 2 of 5 contexts, 2 of them because weights are not finite"
    assert report.share == 0.4
    assert np.array_equal(one.weights(moments)[1:3], BAYES.weights(moments[1:3]))


def test_it_is_a_predictor_like_any_other():
    one = guarded()
    assert isinstance(one, Predictor)
    assert repr(one).startswith("Guarded(LinearTransformer(full, dim=10")
    at_home = evaluate(HOME, one, sequences=5000)
    assert at_home.loss == pytest.approx(evaluate(HOME, one.model, sequences=5000).loss, rel=1e-6)
    assert compare(SHIFTS["correlated features"], {"guarded": one}, sequences=5000)["guarded"].exploded == 0
    assert compare(HOME, one, {"sigma": [1.0, 8.0]}, sequences=3000).exploded.sum() == 0
    assert Guarded(OracleRR(), BAYES).knows_sigma
    assert not one.knows_sigma


def test_models_whose_tokens_have_a_further_coordinate_get_their_sums():
    layout = Layout("mean", coordinate="length")
    model = LinearTransformer.random("full", dim=3, layers=2, scale=0.1, layout=layout)
    problem = Problem(3, "4..9", 1.0)
    plain, both = (evaluate(problem, one, sequences=500).loss for one in (model, Guarded(model, BayesRR(1.0), 1e9)))
    assert both == pytest.approx(plain)
