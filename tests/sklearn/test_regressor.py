"""The regressor against closed forms, brute force, scikit-learn's own checks, and itself on the same rows again."""

import importlib.util
from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

from ridgeformer import AdaRR, BayesRR, LinearTransformer, Moments, Problem, load
from ridgeformer.sklearn import FallbackWarning, InContextRegressor
from ridgeformer.sklearn.mixture import law_of
from ridgeformer.sklearn.rows import WeightedRows, left_out
from support import each, refusals, refused

MODEL = "full/7/uniform(0,5)"


def data(n=20, d=4, q=None, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ (np.eye(d) + 0.4) + 3
    w = rng.standard_normal((d,) if q is None else (d, q))
    y = X @ w
    return X, y + noise * rng.standard_normal(y.shape) - 5


@pytest.mark.filterwarnings("ignore::ridgeformer.sklearn.FallbackWarning")  # tables with 30 features
@pytest.mark.parametrize("predictor", ["bayes", MODEL, "diag/7/uniform(0,5)", "gdpp/7/uniform(0,5)", "universal"])
def test_scikit_learn_accepts_it(predictor):
    """One check is for array libraries other than NumPy, which scikit-learn leaves out by default; two need pandas."""
    found = check_estimator(InContextRegressor(predictor), on_skip=None)
    left_out = {"check_array_api_input"}
    if importlib.util.find_spec("pandas") is None:
        left_out |= {"check_regressor_data_not_an_array", "check_sample_weights_pandas_series"}
    assert {one["check_name"] for one in found if one["status"] != "passed"} <= left_out
    assert len(found) > 40


def contrasts(n):
    """H, [n - 1, n], with H H' = I and H 1 = 0: what is left of n labels when their mean is not known."""
    return np.linalg.svd(np.ones((1, n)))[2][1:]


def standardised(X, y):
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


def by_grid(Z, t, query, features, intercept=True, grid=400, r2=(1, 1)):
    """p(labels), and E of a label, its square and the noise level, with some features: R^2 and V on a fine grid.

    R^2 has a beta law, and V is inverse gamma worth two examples. Without an intercept nothing is projected out.
    """
    n, Z, query = len(t), Z[:, features], query[features]
    H, k = contrasts(n) if intercept else np.eye(n), max(len(features), 1)
    angles = np.linspace(0, np.pi / 2, grid + 1)[1:-1] if features else np.zeros(1)
    V = np.exp(np.linspace(-5, 6, grid))
    logs, mean, second, level = np.zeros((4, len(angles)))
    for i, share in enumerate(np.sin(angles) ** 2):
        K = H @ (share / k * Z @ Z.T + (1 - share) * np.eye(n)) @ H.T
        quadratic, cross = H @ t @ np.linalg.solve(K, H @ t), share / k * query @ Z.T @ H.T
        each = -0.5 * (np.linalg.slogdet(K)[1] + len(H) * np.log(V) + quadratic / V) - np.log(V) - 1 / V  # V^-2 dV
        chance = np.exp(each - each.max())
        logs[i] = np.log(chance.sum()) + each.max()
        spread = share / k * query @ query - cross @ np.linalg.solve(K, cross)
        mean[i] = cross @ np.linalg.solve(K, H @ t)
        noise = (1 - share) * (1 + intercept / n)
        second[i] = mean[i] ** 2 + (chance @ V / chance.sum()) * (spread + noise)
        level[i] = np.sqrt(1 - share) * (chance @ np.sqrt(V) / chance.sum())
    steps = np.sin(2 * angles) * np.pi / 2 / grid if features else np.ones(1)  # dR^2 = sin(2 angle) d angle
    mass = np.exp(logs - logs.max()) * steps * (stats.beta(*r2).pdf(np.sin(angles) ** 2) if features else 1)
    evidence = np.log(mass.sum() * np.log(V[1] / V[0])) + logs.max() - 0.5 * len(H) * np.log(2 * np.pi)
    return evidence, *(mass @ part / mass.sum() for part in (mean, second, level))


def assert_distribution(model, X, y, query, logs, parts, intercept=True):
    """A fitted model against an average over subsets: logs of p(labels, subset), and of each the three means."""
    chance = np.exp(logs - np.max(logs))
    mean, square, level = chance @ parts / chance.sum()
    unit, centre = (y.std(), y.mean()) if intercept else (np.sqrt(np.mean(y**2)), 0.0)
    scale, origin = (X.std(0), X.mean(0)) if intercept else (np.sqrt(np.mean(X**2, 0)), 0.0)
    found, std = model.predict((origin + scale * query)[None], return_std=True)
    assert found == pytest.approx(centre + unit * mean, rel=1e-4)
    assert std == pytest.approx(unit * np.sqrt(square - mean**2), rel=1e-3)
    assert model.noise_ == pytest.approx(unit * level, rel=1e-3)
    evidence = np.log(chance.sum()) + np.max(logs) - (len(X) - intercept) * np.log(unit)
    assert model.log_evidence_ == pytest.approx(evidence, abs=1e-3)
    return chance / chance.sum()


@pytest.mark.parametrize(("n", "d"), [(20, 4), (6, 3), (5, 9)])
def test_with_all_features_against_a_grid_over_both_unknowns(n, d):
    X, y = data(n, d)
    query = np.linspace(-1, 2, d)
    evidence, *means = by_grid(*standardised(X, y), query, list(range(d)), grid=800)
    model = InContextRegressor(size_prior=None, calibration=None).fit(X, y)
    assert_distribution(model, X, y, query, np.array([evidence]), np.array([means]))
    assert (model.inclusion_ == 1).all()


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    ("n", "d", "sizes", "r2"), [(20, 3, (1, 1), (1, 1)), (4, 4, (2, 0.5), (1, 1)), (9, 3, (1, 1), (2, 1.5))]
)
def test_priors_against_a_grid_for_every_subset(n, d, sizes, r2, intercept):
    """The number of features is beta-binomial, and subsets of one size are equally likely."""
    from scipy.stats import betabinom

    X, y = data(n, d)
    query = np.linspace(-1, 2, d)
    Z, t = standardised(X, y) if intercept else (X / np.sqrt(np.mean(X**2, 0)), y / np.sqrt(np.mean(y**2)))
    subsets = [list(one) for k in range(d + 1) for one in combinations(range(d), k)]
    found = np.array([by_grid(Z, t, query, one, intercept, r2=r2) for one in subsets])
    prior = [betabinom(d, *sizes).logpmf(len(one)) - np.log(comb(d, len(one))) for one in subsets]
    model = InContextRegressor(size_prior=sizes, r2_prior=r2, fit_intercept=intercept, calibration=None).fit(X, y)
    chance = assert_distribution(model, X, y, query, found[:, 0] + prior, found[:, 1:], intercept)
    inclusion = [sum(p for one, p in zip(subsets, chance, strict=True) if j in one) for j in range(d)]
    np.testing.assert_allclose(model.inclusion_, inclusion, atol=1e-3)


def test_a_beam_of_subsets_is_near_the_average_over_all_of_them(monkeypatch):
    from ridgeformer.sklearn import posterior

    for seed in range(3):
        X, y = data(25, 9, seed=seed)
        y = y - X[:, 3:] @ np.linalg.lstsq(X, y, rcond=None)[0][3:]  # three features matter
        monkeypatch.setattr(posterior, "EXACT", 11)
        exact = InContextRegressor(calibration=None).fit(X, y)
        monkeypatch.setattr(posterior, "EXACT", 3)
        found = InContextRegressor(calibration=None).fit(X, y)
        apart, std = exact.predict(X, return_std=True)
        assert np.abs(found.predict(X) - apart).max() < 0.1 * std.max()
        assert 0 <= exact.log_evidence_ - found.log_evidence_ < 0.5  # fewer subsets, less evidence
        np.testing.assert_allclose(found.predict(X, return_std=True)[1], std, rtol=0.05)


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


@pytest.mark.parametrize(
    "options", [{}, {"calibration": None}, {"noise": "uniform(0,5)"}, {"r2_prior": (3, 0.5)}, {"predictor": MODEL}]
)
@pytest.mark.parametrize(("n", "q"), [(20, None), (3, 2)])
def test_quantiles_samples_and_moments_are_of_one_distribution(options, n, q):
    """The mean, variance and quantiles of 100,000 labels that were drawn, against those that are computed."""
    X, y = data(n, q=q)
    model = InContextRegressor(**options).fit(X, y)
    mean, std = model.predict(X[:2], return_std=True)
    drawn = np.moveaxis(model.sample_y(X[:2], 100_000), 1, 0)
    levels = np.array([0.025, 0.25, 0.5, 0.9, 0.975])
    quantiles = model.predict_quantiles(X[:2], levels)
    assert quantiles.shape == (5, *mean.shape)
    below = (drawn[None] < quantiles[:, None]).mean(1)
    assert np.abs(below - levels.reshape((5,) + (1,) * mean.ndim)).max() < 0.007  # 4.5 errors
    np.testing.assert_allclose(np.median(drawn, 0), quantiles[2], atol=0.02 * std.max())
    low, high = model.predict_interval(X[:2], 0.95)
    np.testing.assert_allclose([low, high], quantiles[[0, 4]], rtol=1e-8)
    if n == 20 and not any(
        one.spread != 1 for one in model._calibrations
    ):  # t distributions with few degrees of freedom have no stable variances
        np.testing.assert_allclose(drawn.mean(0), mean, atol=5 * std.max() / 300)
        np.testing.assert_allclose(drawn.std(0), std, rtol=0.03)


def test_covariances_of_labels():
    """Their diagonal is that of the standard deviations; with a known noise level they are ridge regression's."""
    X, y = data()
    model = InContextRegressor(noise=1.5).fit(X, y)
    (mean, std), (same, covariance) = (model.predict(X[:3], **{name: True}) for name in ("return_std", "return_cov"))
    np.testing.assert_array_equal(mean, same)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std)
    Z, unit = standardised(X, y)[0], y.std() / np.sqrt(4 + 2.25)
    inner = Z[:3] @ np.linalg.inv(Z.T @ Z + 2.25 * np.eye(4)) @ Z[:3].T
    np.testing.assert_allclose(covariance, 2.25 * unit**2 * (inner + np.eye(3) + 1 / 20), rtol=1e-9)
    refused(lambda: model.predict(X, return_std=True, return_cov=True), "either standard deviations or", ValueError)


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


def test_the_first_part_may_be_one_row():
    X, y = data()
    found = InContextRegressor().partial_fit(X[:1], y[:1])
    mean, std = found.predict(X[:2], return_std=True)
    np.testing.assert_array_equal(mean, y[0])
    assert np.isinf(std).all()
    refused(lambda: found.predict_interval(X[:2]), "a predictive distribution needs two rows; got one row. Call")
    assert_equal(found.partial_fit(X[1:], y[1:]), InContextRegressor().fit(X, y), 1e-9)


def test_student_noise_against_a_long_gibbs_chain():
    """Weights and precisions of rows are drawn in turn, given R^2 = 0.8, V = 1 and all features: a plain sampler."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    y = X @ [1.0, -0.5] + 0.5 * rng.standard_t(2, 30)
    model = InContextRegressor(noise="student", size_prior=None).fit(X, y)
    sigma2, n, g, total = model.noise_**2, len(X), np.ones(30), np.zeros(3)
    A, tasks = np.column_stack([X, np.ones(n)]), np.array([4.0, 4.0, 1e8])  # wide priors: the data decide
    for step in range(6000):
        precision = (A.T * g) @ A / sigma2 + np.diag(1 / tasks)
        root = np.linalg.cholesky(np.linalg.inv(precision))
        w = np.linalg.solve(precision, A.T @ (g * y) / sigma2) + root @ rng.standard_normal(3)
        g = rng.gamma(2.5, 1 / (2 + 0.5 * (y - A @ w) ** 2 / sigma2))
        total += w * (step >= 1000)
    std = np.sqrt(np.diag(model.covariance_))
    assert (np.abs(model.coef_ - total[:2] / 5000) < 0.5 * std).all()  # the prior of the model shrinks
    plain = InContextRegressor(size_prior=None).fit(X, y)
    assert np.abs(model.coef_ - [1, -0.5]).sum() < np.abs(plain.coef_ - [1, -0.5]).sum()


def test_tails_of_student_noise_are_those_of_a_t_distribution():
    from scipy.stats import norm, t

    from ridgeformer.sklearn.mixture import student_tails

    tails = student_tails(1.0)
    assert tails.chances.sum() == pytest.approx(1)
    assert tails.mean == pytest.approx(2)  # the variance of t with four degrees of freedom
    for place in (0.5, 1.0, 2.0, 4.0, 8.0):
        found = tails.chances @ norm.cdf(-place / np.sqrt(tails.multiples))
        assert found == pytest.approx(t(4).cdf(-place), rel=0.05)


@pytest.mark.parametrize(
    ("n", "most", "prior", "close"), [(40, 1, "default", 0.02), (14, 1, "default", 0.15), (40, 4, None, 0.006)]
)
def test_rows_left_out_of_the_posterior_are_predicted_as_by_fits_without_them(n, most, prior, close):
    """In normal quantiles; the average over subsets is taken for normal, which matters with few rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4))
    y, weights = X[:, :2].sum(1) + rng.standard_t(3, n), np.arange(n) % most + 1.0  # a weight of 2 is two equal rows
    regressor = InContextRegressor() if prior else InContextRegressor(size_prior=prior)
    model, rows = clone(regressor).fit(X, y, weights), WeightedRows(X, y[:, None], weights, True)
    below = left_out(rows, np.ones(n), model._given, model._mixtures[0], 0)
    exact = []
    for i in np.random.default_rng(0).permutation(n):
        rest = clone(regressor).fit(np.delete(X, i, 0), np.delete(y, i), np.delete(weights, i))
        label, mixture = (y[i] - rest.sums_.y_mean) / rest._given.unit, rest._mixtures[0]
        chance, location, scale = mixture.components(rest._rows(X[i : i + 1]))
        exact.append((law_of(mixture.freedom).cdf((label - location) / scale) @ chance)[0])
    difference = stats.norm.ppf(below) - stats.norm.ppf(exact)
    assert np.sqrt(np.mean(difference**2)) < close


def test_calibration_widens_intervals_that_are_too_narrow_and_keeps_the_prediction():
    rng, inside = np.random.default_rng(0), {None: [], "loo": []}
    for _ in range(15):
        X = rng.standard_normal((200, 3))
        y = X[:, 0] + 4 * (X[:, 1] > 1.2) * rng.standard_normal(200) + 0.2 * rng.standard_normal(200)
        for calibration in (None, "loo"):
            model = InContextRegressor(calibration=calibration).fit(X[:40], y[:40])
            low, high = model.predict_interval(X[40:], 0.5)
            inside[calibration].append(np.mean((low <= y[40:]) & (y[40:] <= high)))
    plain, calibrated = (np.mean(one) for one in inside.values())
    assert abs(calibrated - 0.5) < 0.5 * abs(plain - 0.5)  # most rows have little noise: 50 % intervals are too wide
    drawn = model.sample_y(X[:1], 20_000)
    assert np.mean(drawn < model.predict_quantiles(X[:1], [0.9])[0]) == pytest.approx(0.9, abs=0.01)
    default, few = InContextRegressor().fit(X[:40], y[:40]), InContextRegressor().fit(X[:9], y[:9])
    np.testing.assert_allclose(model.predict(X), default.predict(X))
    np.testing.assert_allclose(model.predict_interval(X, 0.8), default.predict_interval(X, 0.8))  # ten rows or more
    parts, plain = InContextRegressor().partial_fit(X[:40], y[:40]), InContextRegressor(calibration=None)
    np.testing.assert_allclose(parts.predict_interval(X), plain.fit(X[:40], y[:40]).predict_interval(X))
    np.testing.assert_allclose(few.predict_interval(X), plain.fit(X[:9], y[:9]).predict_interval(X))


def test_options_that_need_rows_say_so():
    X, y = data(q=2)
    refused(lambda: InContextRegressor(noise="student").partial_fit(X, y), "keeps sums over rows, but noise='student'")
    model = InContextRegressor(calibration="loo")
    refused(lambda: model.partial_fit(X, y), "calibration='loo' needs the rows themselves ... Use fit with all rows")
    refused(lambda: InContextRegressor(noise="student").fit(X, y), "noise='student' takes one output; got 2. Use")
    refused(lambda: InContextRegressor(MODEL, noise="student").fit(X, y[:, 0]), "noise='student' is for the predictor")


def test_pictures(tmp_path):
    X, y = data(q=2)
    both = InContextRegressor().fit(X, y)
    weights = both.plot_weights(tmp_path / "weights.png", output=1)
    left, right = weights.axes
    np.testing.assert_allclose([bar.get_width() for bar in right.patches], both.inclusion_[1])
    np.testing.assert_allclose(left.lines[-1].get_xdata(), both.coef_[1] * X.std(0))
    model = InContextRegressor().fit(X, y[:, 0])
    figure = model.plot_predictions(X, y[:, 0], tmp_path / "predictions.png", level=0.5)
    low, high = model.predict_interval(X, 0.5)
    inside = np.mean((low <= y[:, 0]) & (y[:, 0] <= high))
    assert figure.axes[0].get_title() == f"{inside:.0%} of 20 labels inside"
    assert {path.name for path in tmp_path.iterdir()} == {"weights.png", "predictions.png"}
    refused(lambda: both.plot_predictions(X, y), "plot_predictions is for one output; got 2 of them")


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


def test_float32_loses_no_more_than_its_rounding_and_sparse_tables_are_refused():
    from scipy.sparse import csr_matrix

    X, y = data()
    rough = InContextRegressor().fit(X.astype(np.float32), y.astype(np.float32))
    np.testing.assert_allclose(rough.predict(X), InContextRegressor().fit(X, y).predict(X), atol=1e-5)
    refused(lambda: InContextRegressor().fit(csr_matrix(X), y), "dense data is required", TypeError)


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
    assert (std > 0).all()
    assert (std < 1e-7).all()


@pytest.mark.parametrize("predictor", ["bayes", MODEL])
def test_without_a_feature_that_varies_the_mean_is_predicted_as_by_scikit_learn(predictor):
    """And the standard deviation is about that of the labels: 20 of them, and two further examples of the prior."""
    y = data()[1]
    model = InContextRegressor(predictor, calibration=None).fit(np.ones((20, 3)), y)
    mean, std = model.predict([[1, 1, 1], [5, 2, 0]], return_std=True)
    np.testing.assert_allclose(mean, LinearRegression().fit(np.ones((20, 3)), y).predict(np.ones((2, 3))), rtol=1e-12)
    if (
        predictor == "bayes"
    ):  # V is inverse gamma with 19 + 2 degrees of freedom and the scale 20 + 2 times the variance
        np.testing.assert_allclose(std, y.std() * np.sqrt(22 / 19 * (1 + 1 / 20)), rtol=1e-6)
    assert np.isfinite(cross_val_score(InContextRegressor(), np.repeat([[0.0], [1.0]], [19, 1], 0), y, cv=5)).all()


def test_pipelines_clones_and_grids():
    X, y = load_diabetes(return_X_y=True)
    laws = [None, "uniform(0,5)", Problem(noise="categorical(1,3)").noise]
    search = GridSearchCV(InContextRegressor(), {"noise": laws, "predictor": ["bayes", AdaRR()]}, cv=3)
    assert search.fit(X, y).best_score_ > 0.4
    assert cross_val_score(make_pipeline(PolynomialFeatures(2), InContextRegressor()), X, y, cv=3).mean() > 0.4
    copy = clone(InContextRegressor(MODEL, noise=2.0, context=9))
    assert copy.get_params() == {"predictor": MODEL, "noise": 2.0, "context": 9} | {
        "r2_prior": (1.0, 1.0),
        "size_prior": (1.0, 1.0),
        "fit_intercept": True,
        "calibration": "auto",
    }


def test_a_model_predicts_as_it_does_on_standardised_tokens():
    X, y = data(20, 10)
    model = load("zoo:full/7/uniform(0,5)")
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
    from ridgeformer.sklearn.posterior import StandardisedSums, Sums

    X, y = data(300)
    given = StandardisedSums(Sums.of(X, y[:, None], np.ones(300)), Problem(noise=1.0).noise)
    raw, found = given.moments(4, None), given.moments(6, 20)
    assert (raw.context, found.context, found.dim) == (300, 20, 6)
    solved = np.linalg.solve(raw.S[0], raw.b[0])
    np.testing.assert_allclose(found.S[0, :4, :4] @ solved, found.b[0, :4])
    assert not found.gram[0, 4:6].any()
    variance = (raw.q[0] - raw.b[0] @ solved) / (300 - 1 - 4)
    other = (found.q[0] - found.b[0, :4] @ solved) / (20 - 4)
    np.testing.assert_allclose(found.S[0, :4, :4] / other, raw.S[0] / variance)


@each(
    ("diag/2/uniform(0,5)", 1, "LinearTransformer.*exact Bayes predicts in its place.*1 of 1"),  # ten are almost one
    (MODEL, 12, r"takes at most 10 features.*X has 12, so exact Bayes predicts"),
)
def test_where_a_model_explodes_or_has_too_few_features_bayes_takes_its_place_and_says_so(model, features, words):
    X, y = data(20, features)
    if features == 1:
        X = X + 1e-3 * np.random.default_rng(0).standard_normal((20, 10))
    with pytest.warns(FallbackWarning, match=words):
        found = InContextRegressor(model).fit(X, y)
    assert found.fell_back_
    assert_equal(found, InContextRegressor(noise="uniform(0,5)").fit(X, y))


def test_a_predictor_that_breaks_is_refused():
    class Broken:
        def weights(self, moments):
            return np.full((len(moments), moments.dim), np.nan)

    refused(lambda: InContextRegressor(Broken()).fit(X, Y), "a predictor must give finite weights; got others. Guard")


X, Y = data()
HOLE = np.where(X.max() == X, np.nan, X)


test_bad_data = refusals(
    ((HOLE, Y), "Input X contains NaN"),
    ((X, np.where(X[:, 0] > 3, np.inf, Y)), "Input y contains infinity"),
    ((np.ma.masked_greater(X, 1), Y), "X must have no masked entries; got a masked array. Fill them"),
    ((X, Y, np.ma.masked_greater(np.arange(20), 8)), "sample_weight must have no masked entries"),
    ((X[:1], Y[:1]), "Found array with 1 sample(s) ... minimum of 2 is required"),
    ((X, Y, np.eye(20)[3]), "at least 2 rows must have weights above zero; got n_samples=1"),
    ((X, Y, np.full(20, 0.05)), "weights must sum to more than 1 ... a sum of 1 ... sample_weight"),
    ((X, Y, np.full(20, 1e300)), "and at most 1e15 ... a sum of 2e+301 ... sample_weight"),
    ((X, Y, -np.ones(20)), "sample_weight must not be negative; got -1.0"),
    ((X, Y, "x"), "sample_weight must hold real numbers; got"),
    ((X, Y, np.ones(19)), "sample_weight must have one weight for each row; got shape (19,)"),
    ((1e200 * X, Y), "the squares of X and y must be finite; got larger values"),
    ((X, 1e-160 * Y), "every column of X and y must reach 1e-140 or be 0"),
    by=lambda arguments: InContextRegressor().fit(*arguments),
    kind=ValueError,
)


test_bad_parameters_are_refused_by_fit = refusals(
    ({"predictor": "best"}, "must be bayes, the name of a shipped model, or a predictor; got 'best'. Write bayes"),
    ({"predictor": "diag/70/uniform(0,5)"}, "layers must be one of 1, 2"),
    ({"predictor": 3}, "a predictor must have a method weights(moments); got 3"),
    ({"size_prior": (1, -1)}, "size_prior must be two positive numbers; got"),
    ({"calibration": "all"}, "calibration must be None, 'auto' or 'loo'; got 'all'"),
    ({"r2_prior": "x"}, "r2_prior must hold real numbers; got"),
    ({"r2_prior": (0, 1)}, "r2_prior must be two positive numbers; got ... Pass (1, 1)"),
    by=lambda options: InContextRegressor(**options).fit(X, Y),
    kind=ValueError,
)


def test_order_and_shapes():
    with pytest.raises(NotFittedError):
        InContextRegressor().predict(X)
    found = InContextRegressor().partial_fit(X, Y)
    refused(lambda: found.predict(X[:, :3]), "X has 3 features, but InContextRegressor is expecting 4", ValueError)
    refused(lambda: found.partial_fit(X, np.column_stack([Y, Y])), "further labels must have the shape (n,); got shape")
    found.partial_fit(X[:1], Y[:1])  # one row more is fine
    refused(lambda: found.partial_fit(X, Y, np.zeros(20)), "at least 1 rows must have weights above zero", ValueError)
    assert found.sums_.weight == 21
