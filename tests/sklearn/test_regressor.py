"""The regressor against closed forms, brute force, scikit-learn's own checks, and itself on the same rows again."""

import importlib.util

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

from ridgeformer import AdaRR, BayesRR, ConstRR, InputError, LinearTransformer, Moments, Problem, zoo
from ridgeformer.predictors import Guarded
from ridgeformer.sklearn import FallbackWarning, InContextRegressor

MODEL = "full/7/uniform(0,5)"


def data(n=20, d=4, q=None, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ (np.eye(d) + 0.4) + 3
    w = rng.standard_normal((d,) if q is None else (d, q))
    y = X @ w
    return X, y + noise * rng.standard_normal(y.shape) - 5


def test_scikit_learn_accepts_it():
    """One check is for array libraries other than NumPy, which scikit-learn leaves out by default; two need pandas."""
    found = check_estimator(InContextRegressor(), on_skip=None)
    left_out = {"check_array_api_input"}
    if importlib.util.find_spec("pandas") is None:
        left_out |= {"check_regressor_data_not_an_array", "check_sample_weights_pandas_series"}
    assert {one["check_name"] for one in found if one["status"] != "passed"} <= left_out
    assert len(found) > 40


# ---- exact Bayes ----------------------------------------------------------------------------------------------------


def contrasts(n):
    """H, [n - 1, n], with H H' = I and H 1 = 0: what is left of n labels when their mean is not known."""
    return np.linalg.svd(np.ones((1, n)))[2][1:]


def standardised(X, y):
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


@pytest.mark.parametrize(("n", "d"), [(20, 4), (6, 3), (5, 9)])
def test_the_default_against_a_grid_over_both_unknowns(n, d):
    """p(R^2, V | y) on a fine grid with dense covariances; R^2 uniform, V inverse gamma worth two examples."""
    X, y = data(n, d)
    Z, t = standardised(X, y)
    H, query = contrasts(n), np.linspace(-1, 2, d)
    shares = (np.sin(np.linspace(0, np.pi / 2, 801)[1:-1]) ** 2, np.sin(np.linspace(0, np.pi, 801)[1:-1]))
    V = np.exp(np.linspace(-4, 5, 800))
    mass, mean, second, level = np.zeros((4, len(shares[0])))  # mass: first its logarithm
    for i, share in enumerate(shares[0]):
        K = H @ (share / d * Z @ Z.T + (1 - share) * np.eye(n)) @ H.T
        quadratic, cross = H @ t @ np.linalg.solve(K, H @ t), share / d * query @ Z.T @ H.T
        logs = -0.5 * (np.linalg.slogdet(K)[1] + (n - 1) * np.log(V) + quadratic / V) - 2 * np.log(V) - 1 / V
        chance = np.exp(logs - logs.max()) * V  # dV = V dlog V
        mass[i] = np.log(chance.sum()) + logs.max()
        spread = share / d * query @ query - cross @ np.linalg.solve(K, cross)
        mean[i] = cross @ np.linalg.solve(K, H @ t)
        second[i] = mean[i] ** 2 + (chance @ V / chance.sum()) * (spread + (1 - share) * (1 + 1 / n))
        level[i] = np.sqrt(1 - share) * (chance @ np.sqrt(V) / chance.sum())
    mass = np.exp(mass - mass.max()) * shares[1]
    expected, square, level = (mass @ part / mass.sum() for part in (mean, second, level))
    model = InContextRegressor().fit(X, y)
    found, std = model.predict((X.mean(0) + X.std(0) * query)[None], return_std=True)
    assert found == pytest.approx(y.mean() + y.std() * expected, rel=1e-5)
    assert std == pytest.approx(y.std() * np.sqrt(square - expected**2), rel=1e-4)
    assert model.noise_ == pytest.approx(y.std() * level, rel=1e-4)


@pytest.mark.parametrize("noise", ["uniform(0,5)", "categorical(1,3)", 2.0])
@pytest.mark.parametrize("n", [20, 4])
def test_with_a_law_of_the_noise_it_is_the_bayes_predictor_on_contrasts(noise, n):
    X, y = data(n)
    Z, t = standardised(X, y)
    t *= np.sqrt(4 + Problem(noise=noise).noise.second_moment)
    H = contrasts(n)
    expected = BayesRR(noise).weights(Moments.from_tokens(H @ Z, H @ t))[0]
    found = InContextRegressor(noise=noise).fit(X, y)
    np.testing.assert_allclose(found.coef_ * X.std(0) * t.std() / y.std(), expected, rtol=1e-8, atol=1e-10)


def test_with_a_known_noise_level_it_is_ridge_regression_with_the_usual_intervals():
    X, y = data()
    Z = standardised(X, y)[0]
    unit, n = y.std() / np.sqrt(4 + 2.25), len(X)
    found, ridge = InContextRegressor(noise=1.5).fit(X, y), Ridge(alpha=2.25).fit(Z, y)
    np.testing.assert_allclose(found.predict(X), ridge.predict(Z), rtol=1e-12)
    assert found.noise_ == pytest.approx(1.5 * unit, rel=1e-12)
    covariance = 2.25 * np.linalg.inv(Z.T @ Z + 2.25 * np.eye(4))
    expected = unit * np.sqrt(2.25 * (1 + 1 / n) + np.einsum("mi,ij,mj->m", Z, covariance, Z))
    np.testing.assert_allclose(found.predict(X, return_std=True)[1], expected, rtol=1e-12)
    np.testing.assert_allclose(found.covariance_, unit**2 * covariance / np.outer(X.std(0), X.std(0)), rtol=1e-10)


def test_without_noise_it_is_least_squares_and_with_much_it_is_the_mean():
    X, y = data(noise=0.0)
    found = InContextRegressor().fit(X, y)
    np.testing.assert_allclose(found.predict(X), y, atol=1e-5)
    assert found.noise_ < 1e-4
    X, y = data(400, noise=1e4)
    assert np.ptp(InContextRegressor().fit(X, y).predict(X)) < 0.5 * y.std()


def test_many_rows_give_least_squares_and_its_noise():
    X, y = data(100_000, noise=3.0)
    found, least_squares = InContextRegressor().fit(X, y), LinearRegression().fit(X, y)
    np.testing.assert_allclose(found.coef_, least_squares.coef_, rtol=2e-3)
    assert found.noise_ == pytest.approx(np.std(y - least_squares.predict(X)), rel=1e-4)
    assert InContextRegressor(noise="uniform(0,5)").fit(X, y).noise_ == pytest.approx(found.noise_, rel=2e-3)


@pytest.mark.parametrize("noise", [None, "uniform(0,5)"])
def test_units_do_not_matter(noise):
    X, y = data()
    scale, query = np.array([1e-6, 1.0, 1e3, 1e8]), data(3, seed=1)[0]
    plain, std = InContextRegressor(noise=noise).fit(X, y).predict(query, return_std=True)
    other = InContextRegressor(noise=noise).fit(X * scale - scale, 1e4 * y + 7)
    found, other_std = other.predict(query * scale - scale, return_std=True)
    np.testing.assert_allclose(found, 1e4 * plain + 7, rtol=1e-9)
    np.testing.assert_allclose(other_std, 1e4 * std, rtol=1e-9)


def test_intervals_hold_what_they_promise_on_simulated_data():
    """On the problem of the law, where the posterior is exact but for the estimated units: 50, 80 and 95 %."""
    drawn = Problem(5, 20, "uniform(0,3)").sequences(400, queries=4)
    rng, inside = np.random.default_rng(0), []
    for x, y, query, answer, sigma in zip(drawn.x, drawn.y, drawn.queries, drawn.answers, drawn.sigma, strict=True):
        found, std = InContextRegressor(noise="uniform(0,3)").fit(x, y).predict(query, return_std=True)
        error = np.abs(found - answer - sigma * rng.standard_normal(4))
        inside.append(error[:, None] <= std[:, None] * [0.674, 1.282, 1.960])
    np.testing.assert_allclose(np.mean(inside, (0, 1)), [0.50, 0.80, 0.95], atol=0.05)  # 3 standard errors are .04


# ---- rows, weights, outputs -----------------------------------------------------------------------------------------


def assert_equal(one, other, tolerance=1e-12):
    for name in ("coef_", "intercept_", "noise_", "covariance_"):
        found, expected = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max(), err_msg=name)


@pytest.mark.parametrize("predictor", ["bayes", MODEL])
@pytest.mark.parametrize("cuts", [[10], [2], list(range(2, 20))])
def test_parts_of_the_rows_add_up(cuts, predictor):
    X, y = data()
    whole, parts = InContextRegressor(predictor).fit(X, y), InContextRegressor(predictor)
    for rows in np.split(np.arange(20), cuts):
        parts.partial_fit(X[rows], y[rows])
    assert_equal(parts, whole)
    np.testing.assert_allclose(parts.predict(X), whole.predict(X), rtol=1e-12)
    assert_equal(parts.fit(X[:9], y[:9]), InContextRegressor(predictor).fit(X[:9], y[:9]))  # fit forgets


def test_large_means_cost_no_digits():
    X, y = data()
    far = np.round(X * 2**20) / 2**20 + 2.0**20  # exact in floats
    near, parts = InContextRegressor().fit(far - 2.0**20, y), InContextRegressor()
    parts.partial_fit(far[:7], y[:7]).partial_fit(far[7:], y[7:])
    np.testing.assert_allclose(parts.coef_, near.coef_, rtol=1e-8)


@pytest.mark.parametrize("noise", [None, "uniform(0,5)"])
def test_a_weight_counts_rows(noise):
    X, y = data()
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    found = InContextRegressor(noise=noise).fit(X, y, sample_weight=weights)
    assert_equal(found, InContextRegressor(noise=noise).fit(X.repeat(weights, 0), y.repeat(weights)), 1e-11)
    half = InContextRegressor(noise=noise).fit(np.vstack([X, X]), np.hstack([y, y]), np.full(2 * len(X), 0.5))
    assert_equal(half, InContextRegressor(noise=noise).fit(X, y), 1e-11)


@pytest.mark.parametrize("predictor", ["bayes", MODEL])
def test_several_outputs_are_several_regressions(predictor):
    X, Y = data(q=3)
    both = InContextRegressor(predictor).fit(X, Y)
    assert both.coef_.shape == (3, 4)
    assert both.covariance_.shape == (3, 4, 4)
    mean, std = both.predict(X, return_std=True)
    for k in range(3):
        one = InContextRegressor(predictor).fit(X, Y[:, k])
        for found, expected in zip((mean[:, k], std[:, k]), one.predict(X, return_std=True), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10)
        assert np.ndim(one.noise_) == np.ndim(one.intercept_) == np.ndim(one.fell_back_) == 0
    column = InContextRegressor(predictor).fit(X, Y[:, :1])
    assert column.predict(X).shape == (20, 1)
    assert column.coef_.shape == (1, 4)


def test_what_is_stored_does_not_grow_with_the_rows():
    import pickle

    sizes = [len(pickle.dumps(InContextRegressor().fit(*data(n)))) for n in (20, 20_000)]
    assert abs(sizes[1] - sizes[0]) < 20


def test_constant_columns_and_labels():
    X, y = data()
    plain, more = InContextRegressor().fit(X, y), np.column_stack([X, np.full(20, 0.1), np.zeros(20)])
    found = InContextRegressor().fit(more, y)
    np.testing.assert_allclose(found.coef_, [*plain.coef_, 0, 0], rtol=1e-12)
    assert not found.covariance_[4:].any()
    same = InContextRegressor().fit(X, np.full(20, 0.3))
    assert not same.coef_.any()
    mean, std = same.predict(X, return_std=True)
    np.testing.assert_allclose(mean, 0.3)
    assert not std.any()


def test_pipelines_clones_and_grids():
    X, y = load_diabetes(return_X_y=True)
    laws = [None, "uniform(0,5)", Problem(noise="categorical(1,3)").noise]
    search = GridSearchCV(InContextRegressor(), {"noise": laws, "predictor": ["bayes", AdaRR()]}, cv=3)
    assert search.fit(X, y).best_score_ > 0.4
    assert cross_val_score(make_pipeline(PolynomialFeatures(2), InContextRegressor()), X, y, cv=3).mean() > 0.4
    copy = clone(InContextRegressor(MODEL, noise=2.0, context=9))
    assert copy.get_params() == {"predictor": MODEL, "noise": 2.0, "context": 9}


# ---- models ---------------------------------------------------------------------------------------------------------


def test_a_model_predicts_as_it_does_on_standardised_tokens():
    X, y = data(20, 10)
    model = zoo.load("full", layers=7, noise="uniform(0,5)")
    Z, t = standardised(X, y)
    scale = np.sqrt(10 + 25 / 3)
    expected = y.mean() + y.std() / scale * model.predict(Z, scale * t, Z)
    found = InContextRegressor(model, noise="uniform(0,5)").fit(X, y)
    np.testing.assert_allclose(found.predict(X), expected, rtol=1e-9)
    assert_std = InContextRegressor(noise="uniform(0,5)").fit(X, y).predict(X, return_std=True)[1]
    np.testing.assert_allclose(found.predict(X, return_std=True)[1], assert_std)
    assert not found.fell_back_
    layered = LinearTransformer(model.to_full().family, layout=model.layout)
    assert_equal(InContextRegressor(layered).fit(X, y), found, 1e-10)  # uniform(0,5) is the default for ten features


def test_other_numbers_of_rows_become_as_many_examples_as_the_model_knows():
    """The same least-squares weights, and the same S over the estimated noise variance."""
    from ridgeformer.sklearn.posterior import Standardised
    from ridgeformer.sklearn.sums import Sums

    X, y = data(300)
    given = Standardised(Sums.of(X, y[:, None], np.ones(300)), Problem(noise=1.0).noise)
    raw, found = given.moments(4, None), given.moments(6, 20)
    assert (raw.context, found.context, found.dim) == (300, 20, 6)
    solved = np.linalg.solve(raw.S[0], raw.a[0])
    np.testing.assert_allclose(found.S[0, :4, :4] @ solved, found.a[0, :4])
    assert not found.gram[0, 4:6].any()
    variance = (raw.l[0] - raw.a[0] @ solved) / (300 - 1 - 4)
    other = (found.l[0] - found.a[0, :4] @ solved) / (20 - 4)
    np.testing.assert_allclose(found.S[0, :4, :4] / other, raw.S[0] / variance)


def test_a_shipped_model_is_useful_on_any_number_of_rows():
    X, y = load_diabetes(return_X_y=True)
    for n in (15, 20, 60, 400):
        found = InContextRegressor(f"zoo:{MODEL}").fit(X[:n], y[:n])
        assert not found.fell_back_
        exact = InContextRegressor().fit(X[:n], y[:n])
        assert np.mean((found.predict(X) - exact.predict(X)) ** 2) < 0.15 * y.var()


def test_a_seed_may_follow_the_name_of_a_shipped_model():
    X, y = load_diabetes(return_X_y=True)
    best, other = (InContextRegressor(f"{MODEL}{seed}").fit(X[:60], y[:60]) for seed in ("", "/4"))
    named = InContextRegressor(zoo.load("full", 7, "uniform(0,5)", seed=4), noise="uniform(0,5)", context=20)
    np.testing.assert_array_equal(other.coef_, named.fit(X[:60], y[:60]).coef_)
    assert (other.coef_ != best.coef_).any()


def test_where_a_model_explodes_bayes_takes_its_place_and_says_so():
    X, y = data(20, 1)
    X = X + 1e-3 * np.random.default_rng(0).standard_normal((20, 10))  # ten features that are almost one
    with pytest.warns(FallbackWarning, match="LinearTransformer.*exact Bayes predicts in its place.*1 of 1"):
        found = InContextRegressor("diag/2/uniform(0,5)").fit(X, y)
    assert found.fell_back_
    assert_equal(found, InContextRegressor(noise="uniform(0,5)").fit(X, y))


def test_a_guard_of_ones_own():
    X, y = data(20, 1)
    X = X + 1e-3 * np.random.default_rng(0).standard_normal((20, 10))
    guarded = Guarded(zoo.load("diag", layers=2, noise="uniform(0,5)"), ConstRR(4.0))
    with pytest.warns(FallbackWarning, match=r"so ConstRR\(variance=4\) predicts in its place"):
        found = InContextRegressor(guarded, noise="uniform(0,5)").fit(X, y)
    assert_equal(found, InContextRegressor(ConstRR(4.0), noise="uniform(0,5)").fit(X, y))


def test_a_predictor_that_breaks_is_refused():
    class Broken:
        def weights(self, moments):
            return np.full((len(moments), moments.dim), np.nan)

    with pytest.raises(InputError, match=r"a predictor must give finite weights; got others\. Guard it"):
        InContextRegressor(Broken()).fit(X, Y)


# ---- bad input ------------------------------------------------------------------------------------------------------

X, Y = data()
HOLE = X.copy()
HOLE[3, 1] = np.nan


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((HOLE, Y), "Input X contains NaN"),
        ((X, np.where(X[:, 0] > 3, np.inf, Y)), "Input y contains infinity"),
        ((X[:1], Y[:1]), r"Found array with 1 sample\(s\).*minimum of 2 is required"),
        ((X, Y, np.eye(20)[3]), "at least 2 rows must have a positive weight; got n_samples=1"),
        ((X, Y, np.full(20, 0.05)), "weights must sum to more than 1.*a sum of 1.*sample_weight"),
        ((X, Y, -np.ones(20)), "Negative values in data passed to `sample_weight`"),
        ((np.ones((20, 3)), Y), "at least one feature must differ between rows; got constant features only"),
        ((X, Y[:5]), "inconsistent numbers of samples"),
        ((1e200 * X, Y), "the squares of X and y must be finite; got larger values"),
        ((X[:, 0], Y), "Expected 2D array, got 1D array"),
    ],
)
def test_bad_data(arguments, words):
    with pytest.raises(ValueError, match=words):
        InContextRegressor().fit(*arguments)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"predictor": "best"}, "must be bayes, the name of a shipped model, or a predictor; got 'best'. Write bayes"),
        ({"predictor": "diag/70/uniform(0,5)"}, "layers must be one of 1, 2"),
        ({"predictor": 3}, r"a predictor must have a method weights\(moments\); got 3"),
        ({"predictor": BayesRR}, "a predictor must have a method weights"),
        ({"noise": "loud"}, "loud"),
        ({"context": 0}, "context must be"),
    ],
)
def test_bad_parameters_are_refused_by_fit(options, words):
    with pytest.raises(ValueError, match=words):
        InContextRegressor(**options).fit(X, Y)


def test_more_features_than_the_model_has():
    with pytest.raises(InputError, match=r"at most 10 features.*, the dimension of the model; got 12"):
        InContextRegressor(MODEL).fit(*data(20, 12))


def test_order_and_shapes():
    with pytest.raises(NotFittedError):
        InContextRegressor().predict(X)
    found = InContextRegressor().partial_fit(X, Y)
    with pytest.raises(ValueError, match="X has 3 features, but InContextRegressor is expecting 4"):
        found.predict(X[:, :3])
    with pytest.raises(InputError, match=r"further labels must have the shape \(n,\); got shape \(20, 2\)"):
        found.partial_fit(X, np.column_stack([Y, Y]))
    found.partial_fit(X[:1], Y[:1])  # one row more is fine
    with pytest.raises(ValueError, match=r"at least (1 row|one non-zero)"):  # scikit-learn's words from 1.7 on
        found.partial_fit(X, Y, np.zeros(20))
    assert found.sums_.weight == 21
