import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from own_problems import HeavyTails, Varying
from ridgeformer import AdaRR, ConstRR, CustomProblem, Moments, OracleRR, Problem, TunedRR, compare
from ridgeformer.predictors import Fitted, baselines, huber, lasso, matching_pursuit
from ridgeformer.predictors.iterative import IterativeRR
from support import draw, each, refused

PROBLEM = Problem(4, 12, "uniform(0,2)")


@pytest.fixture(scope="module")
def tokens():
    s = PROBLEM.sequences(30, seed=2)
    return s, Moments(Moments.from_tokens(s.x, s.y).gram, 12, s.sigma)


def fit(model, s, b):
    return model.fit(s.x[b], s.y[b]).coef_


def test_ada_const_tuned_and_oracle_are_sklearns_ridge_at_their_penalty(tokens):
    """The paper's definitions: penalty sigma^2, a constant, RSS / (n - d), and that times a factor, cut."""
    s, m = tokens
    found = {p: p.weights(m) for p in (OracleRR(), ConstRR(1.7), AdaRR(), TunedRR(0.8, 1.1))}
    cut = 0
    for b in range(30):
        ols = fit(LinearRegression(fit_intercept=False), s, b)
        estimate = ((s.y[b] - s.x[b] @ ols) ** 2).sum() / (12 - 4)
        cut += 0.8 * estimate > 1.1
        penalties = (s.sigma[b] ** 2, 1.7, estimate, min(0.8 * estimate, 1.1))
        for w, penalty in zip(found.values(), penalties, strict=True):
            np.testing.assert_allclose(w[b], fit(Ridge(penalty, fit_intercept=False), s, b), rtol=1e-6, atol=1e-8)
    assert 0 < cut < 30


def test_the_best_constant_is_the_mean_variance():
    """No other constant on a grid around E[sigma^2] does better, and the grid's ends do clearly worse."""
    problem = Problem(5, 10, "categorical(0.5,2)")
    d = problem.moments(200_000, seed=3)
    best = ConstRR.tune(problem)
    assert best.variance == pytest.approx((0.25 + 4) / 2)
    losses = [np.square(ConstRR(best.variance * f).weights(d.moments) - d.ridge).sum() for f in (0.5, 0.9, 1, 1.1, 2)]
    assert losses[2] <= min(losses) * 1.001
    assert min(losses[0], losses[4]) > 1.02 * losses[2]


def test_tuning_finds_the_best_factor_and_ceiling():
    problem = Problem(10, 20, "categorical(1,3)")
    tuned = TunedRR.tune(problem, sequences=10_000)
    assert tuned.ceiling == pytest.approx(9, rel=0.05)  # the largest variance there is
    d = problem.moments(20_000, seed=9)

    def loss(predictor):
        return np.square(predictor.weights(d.moments) - d.ridge).sum(1).mean()

    for factor, ceiling in ((0.8, 1), (1.25, 1), (1, 0.8), (1, 1.25)):
        assert loss(TunedRR(tuned.factor * factor, tuned.ceiling * ceiling)) > 0.999 * loss(tuned)
    assert loss(tuned) < 0.6 * loss(AdaRR())
    assert TunedRR.tune(Problem(noise="fixed(0)")).ceiling == 0


def test_tuned_is_never_worse_than_const():
    """ConstRR is a limit of TunedRR, and the better one where n is close to d."""
    problem = Problem(10, 11, "categorical(1,3)")
    d = problem.moments(20_000, seed=9)
    losses = [
        np.square(p.weights(d.moments) - d.ridge).sum(1).mean()
        for p in (TunedRR.tune(problem, sequences=10_000), ConstRR.tune(problem))
    ]
    assert losses[0] < 1.02 * losses[1]


def test_where_d_varies_noise_is_estimated_with_the_dimension_of_each_sequence():
    """A context of dimension 2 among those of dimension 4 has n - 2 degrees of freedom, and two features that are 0."""
    problem = Problem("2..4", "2d..4d", "uniform(0,2)")
    moments = problem.moments(60, seed=3).moments
    for number, predictor in enumerate((AdaRR(), TunedRR(0.8, 1.1))):
        w = predictor.weights(moments)
        for b in range(60):
            d, n = int((np.diag(moments.S[b]) > 0).sum()), int(moments.counts[b])
            S, a = moments.S[b, :d, :d], moments.b[b, :d]
            estimate = (moments.q[b] - a @ np.linalg.solve(S, a)) / (n - d)
            variance = min(0.8 * estimate, 1.1) if number else estimate
            np.testing.assert_allclose(w[b, :d], np.linalg.solve(S + variance * np.eye(d), a), rtol=1e-9)
            assert not w[b, d:].any()
    short = problem.replace(context="d..4d").moments(60, seed=3).moments
    refused(lambda: AdaRR().weights(short), "n > d; got n = 2, d = 2.")


class Sampled(CustomProblem):
    """A built-in problem as one of one's own: only its sequences are known."""

    def __init__(self, problem):
        self.problem, self.dim, self.context = problem, problem.dim, problem.lengths.values.tolist()

    def draw(self, rng, count):
        return self.problem.sequences(count, seed=int(rng.integers(1 << 60)), queries=8)


@pytest.mark.parametrize("context", [12, "6..12"])
def test_tuning_by_sequences_finds_what_is_known_of_the_law(context):
    """The best constant is E[sigma^2] = 4 / 3; the loss is flat there, which leaves 10 % of it and 5 % of losses."""
    problem = Problem(3, context, "uniform(0,2)")
    const = ConstRR.tune(Sampled(problem))
    assert const.variance == pytest.approx(4 / 3, rel=0.1)
    tuned, known = TunedRR.tune(Sampled(problem), sequences=10_000), TunedRR.tune(problem, sequences=10_000)
    losses = compare(problem, {"sampled": tuned, "known": known, "const": const}, sequences=10_000)
    assert losses["sampled"].loss == pytest.approx(losses["known"].loss, rel=0.05)
    assert losses["sampled"].loss < losses["const"].loss


def test_a_missing_variance_names_tune():
    refused(ConstRR, "ConstRR needs a noise variance; got none. Write ConstRR.tune(problem)")


# ---- IterativeRR against AdaRR; tests/explanation has the filters of classical algorithms


def test_iterative_converges_to_ada_without_an_inversion():
    """The paper: about 100 iterations. In float64 it goes on until the two are the same."""
    d = Problem(10, 20, "uniform(0,5)").moments(2000)
    exact = AdaRR().weights(d.moments)
    steps = (1, 10, 100, 1000, 3000)
    gap = [np.square(IterativeRR(k).weights(d.moments[:200]) - exact[:200]).sum(1).mean() for k in steps]
    assert (np.diff(gap) < 0).all()
    assert gap[2] < 0.05 * gap[1]
    assert gap[-1] < 1e-5


def test_iterative_is_the_algorithm_it_claims_to_be():
    """Two plain gradient descents on one context, written with matrices."""
    m = draw(3, 7, 1, noise="fixed(1)").moments
    S, a, total = m.S[0], m.b[0], m.q[0]
    largest = np.abs(S).sum(1).max()
    w, v = np.zeros(3), np.zeros(3)
    for _ in range(5):
        variance = (total - 2 * w @ a + w @ S @ w) / (7 - 3)
        w, v = w - (S @ w - a) / largest, v - (S @ v + variance * v - a) / (largest + variance)
    np.testing.assert_allclose(IterativeRR(5).weights(m)[0], v, rtol=1e-10)


# ---- Estimators of scikit-learn as predictors


linear = pytest.importorskip("sklearn.linear_model")


def test_each_context_has_a_fit_of_its_own_and_losses_need_no_sampled_queries():
    problem = Problem(4, 12, 0.3, tasks="sparse(1)")
    tokens = problem.sequences(5)
    weights = lasso(0.05).token_weights(tokens.x, tokens.y)
    exact = [linear.Lasso(0.05, fit_intercept=False).fit(tokens.x[b], tokens.y[b]).coef_ for b in range(5)]
    np.testing.assert_allclose(weights, exact)
    predictions = lasso(0.05).predict(tokens.x, tokens.y, tokens.queries)
    np.testing.assert_allclose(predictions, np.einsum("bmd,bd->bm", tokens.queries, exact))
    pursuit = matching_pursuit(1)
    losses = compare(problem, {"pursuit": pursuit, "r": Fitted(linear.Ridge(0.1, fit_intercept=False))}, sequences=200)
    assert losses["pursuit"].unadjusted < losses["r"].unadjusted  # it knows that there is one weight
    assert ((matching_pursuit(1).token_weights(tokens.x, tokens.y) != 0).sum(1) == 1).all()


def test_huber_regression_withstands_outliers():
    problem = Problem(2, 15, "student(2.1,0.5)")
    ridge = Fitted(linear.Ridge(1.0, fit_intercept=False))
    losses = compare(problem, {"huber": huber(), "ridge": ridge}, sequences=200, with_floor=False)
    assert losses["huber"].unadjusted < losses["ridge"].unadjusted


# ---- The baselines that a problem allows


ALL = ["OracleRR", "ConstRR", "LeastSquares", "AdaRR", "TunedRR", "IterativeRR(100)", "Bayes floor"]


@each(
    (Problem(3, 8, 1), []),
    (Problem(3, 3, 1), ["AdaRR", "TunedRR", "IterativeRR(100)"]),
    (Problem(3, "3..8", 1), ["AdaRR", "TunedRR", "IterativeRR(100)"]),
    (Problem(3, "4..8", 1), ["IterativeRR(100)"]),
    (Problem(3, 3, 1, tasks="lowrank(2)"), ["IterativeRR(100)"]),
    (Problem(3, 8, 1, features="factors(1)"), ["IterativeRR(100)"]),
    ids=str,
)
def test_which_baselines_there_are(problem, missing):
    chosen, left_out = baselines(problem)
    assert list(chosen) == [name for name in ALL if name not in missing]
    assert bool(left_out) == bool(missing)
    compare(problem, chosen, sequences=50)  # all of them can be used


def test_pools_have_dmmse():
    problem = Problem(3, 8, "uniform(0,1)", tasks="pool(4)")
    chosen, left_out = baselines(problem)
    assert list(chosen)[-1] == "DMMSE"
    assert left_out == [
        "IterativeRR is left out: it assumes that features, tasks and queries are N(0, I) and n is fixed; here the "
        "tasks are not."
    ]
    found = compare(problem, chosen, sequences=1000)
    assert found["DMMSE"].loss == pytest.approx(found["DMMSE"].floor, rel=1e-12)
    assert all(found[name].loss >= found["DMMSE"].loss for name in chosen if name != "OracleRR (Gaussian prior)")


def test_problems_of_ones_own_have_no_oracle():
    problem = HeavyTails()
    chosen, left_out = baselines(problem)
    assert list(chosen) == ["ConstRR", "LeastSquares", "AdaRR", "TunedRR"]
    assert [line.split(" is left out: ")[0] for line in left_out] == ["OracleRR", "The floor"]
    found = compare(problem, chosen, sequences=2000)
    assert found["TunedRR"].loss < found["ConstRR"].loss < found["LeastSquares"].loss
    refused(lambda: baselines("uniform(0,5)"), "the problem must be a Problem; got a str")


def test_without_noise_tuned_numbers_are_finite():
    """The best variance is 0, so that any ceiling will do: the search has no end."""
    tuned = TunedRR.tune(Varying("3..4"), sequences=500, seed=1)
    assert np.isfinite([tuned.factor, tuned.ceiling]).all()


def test_reasons_name_all_that_differs():
    problem = Problem(3, "4..8", 1, features="factors(1)", query="powerlaw(1)")
    assert baselines(problem)[1][0].endswith("; here the features and the queries are not and n is 4..8.")
