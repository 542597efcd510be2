import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from ridgeformer import AdaRR, ConstRR, CustomProblem, InputError, Moments, OracleRR, Problem, TunedRR, compare

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
    losses = [
        np.square(ConstRR(best.variance * f).weights(d.moments) - d.ridge).sum(1).mean() for f in (0.5, 0.9, 1, 1.1, 2)
    ]
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
    with pytest.raises(InputError, match=r"n > d; got n = 2, d = 2\."):
        AdaRR().weights(problem.replace(context="d..4d").moments(60, seed=3).moments)


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
    with pytest.raises(InputError, match=r"ConstRR needs a noise variance; got none. Write ConstRR.tune\(problem\)"):
        ConstRR()
