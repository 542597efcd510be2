"""A scikit-learn regressor on moments: exact Bayes, or a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ridgeformer.errors import refuse, shown
from ridgeformer.noise import Noise, as_noise
from ridgeformer.predictors import Predictor
from ridgeformer.sklearn.mixture import PosteriorMixture, Tails
from ridgeformer.sklearn.models import by_model, default_noise, shipped_model
from ridgeformer.sklearn.posterior import RegressionPrior, Sums
from ridgeformer.sklearn.rows import Calibration, WeightedRows, calibrate, left_out, student_precisions
from ridgeformer.validation import integer, number, real, unmasked

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Array = NDArray[np.float64]
Calibrated = Callable[[Array], Array]  # translates probabilities to those of the posterior
LEAST_CALIBRATED = 10  # rows
ONE_ROW = 1e-9  # examples that are left of one row, with rounding, when its mean is known
SMALLEST = 1e-140  # whose square is far from the smallest float


class InContextRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Linear regression in context: the training rows are the context, and new rows are the queries.

    Fitting computes sums over the rows. From then on nothing depends on the number of rows. By default exact Bayes
    averages over which features matter, their weights, and the noise level.

    Args:
        predictor: `bayes` for the posterior mean of the weights; `universal` for the shipped model for every number of
            features and rows; the name of a shipped model such as
            `diag/7/uniform(0,5)`; a `LinearTransformer`; or anything with `weights(moments)`. Models are guarded by
            `ridgeformer.predictors.Guarded`, with exact Bayes as the fallback.
        noise: The law of the noise level in a problem with standardised features and tasks N(0, I), such as
            `uniform(0,5)`, a number, or a `Noise`. None for that of a shipped model; for `bayes`, None means that
            features may explain any share of the variance of y, all with the same probability; for other models it
            means `uniform(0, sqrt(2.5 d))`, which is uniform(0,5) for ten features. `student` for noise from Student's
            t distribution with four degrees of freedom, against outliers; it is for `bayes`, needs the rows
            themselves, so that `partial_fit` refuses it, and takes one output.
        context: The number of examples that a model was trained on. Other numbers of rows are translated to as many
            examples with another noise level. None for 20 for a shipped model, and otherwise for no translation.
        r2_prior: The parameters (a, b) of the beta distribution of the share of the variance of y that features
            explain, where `noise` is None or `student` and `predictor` is `bayes`. Default: (1, 1), all shares equally
            likely.
        size_prior: The parameters (a, b) of the beta-binomial law of the number of features that matter, under the
            same conditions. Subsets of one size are equally likely. Default: (1, 1), all sizes equally likely. None if
            all features matter. With more than eleven features that are not constant, the average is over the subsets
            that a beam search finds.
        fit_intercept: Whether there is an intercept. Default: True. Without one, features and labels are not centred.
        calibration: `loo` to calibrate intervals, quantiles and standard deviations by predicting training rows from
            all others (500 of them at most). It needs the rows, so that `partial_fit` refuses it. None for the
            posterior itself. Default: `auto`, which is `loo` where `fit` has at least ten rows, `predictor` is `bayes`
            and `noise` is None or `student`, and None otherwise: `partial_fit` does not calibrate. Predictions do
            not depend on it.

    Attributes:
        coef_: The weights of the features, [d], or [q, d] for several outputs.
        intercept_: What is predicted where all features are 0; a number, or [q].
        noise_: The posterior mean of the noise level, in units of y; a number, or [q].
        covariance_: The posterior covariance of the weights, [d, d], or [q, d, d].
        log_evidence_: The logarithm of the density of y given X under the prior, in units of y, where the intercept is
            left out; NaN with a law of the noise level; a number, or [q].
        inclusion_: The posterior probabilities that features matter, [d], or [q, d]; 0 for constant features, and 1
            for all others where `size_prior` does not apply.
        fell_back_: Whether exact Bayes took the model's place; always False for `bayes`; a bool, or [q].
        sums_: The sums over the rows, `ridgeformer.sklearn.posterior.Sums`.
        n_features_in_: The number of features.
        feature_names_in_: Their names, where X has names.
    """

    def __init__(
        self,
        predictor: str | Predictor = "bayes",
        *,
        noise: Noise | str | float | None = None,
        context: int | None = None,
        r2_prior: tuple[float, float] = (1.0, 1.0),
        size_prior: tuple[float, float] | None = (1.0, 1.0),
        fit_intercept: bool = True,
        calibration: str | None = "auto",
    ) -> None:
        self.predictor = predictor
        self.noise = noise
        self.context = context
        self.r2_prior = r2_prior
        self.size_prior = size_prior
        self.fit_intercept = fit_intercept
        self.calibration = calibration

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to rows, and forget earlier ones.

        Args:
            X: Features, [n, d].
            y: Labels, [n], or [n, q] for several outputs.
            sample_weight: Weights, [n]. A row of weight 2 counts like two equal rows.

        Returns:
            The regressor.

        Raises:
            ValueError: There are fewer than two rows, X or y has values that are not finite, or the arguments do not
                fit together.
        """
        rows = self._checked(X, y, sample_weight, first=True, least=2)
        law, precision, tails = self._law(), np.ones(len(rows.x)), Tails()
        if self._is_student():
            if rows.y.shape[1] > 1:
                refuse("noise='student' takes one output", rows.y.shape[1], "Use sklearn's MultiOutputRegressor.")
            precision, tails = student_precisions(rows, law.posterior)
        self._solve(self._summed(rows, precision), tails)
        model, noise, _ = self._resolved()
        usual = model is None and noise is None and len(rows.x) >= LEAST_CALIBRATED
        if self.calibration == "loo" or (self.calibration == "auto" and usual):
            below = (left_out(rows, precision, self._given, mixture, k) for k, mixture in enumerate(self._mixtures))
            self._calibrations = tuple(map(calibrate, below))
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add rows to those that were seen before. The result is that of `fit` on all rows, to rounding.

        Args:
            X: Features, [n, d].
            y: Labels, [n], or [n, q].
            sample_weight: Weights, [n].

        Returns:
            The regressor.

        Raises:
            ValueError: As for `fit`, except that one row is enough; or an option needs all rows at once.
        """
        first = not hasattr(self, "sums_")
        for name, needs in (("noise", "student"), ("calibration", "loo")):
            if isinstance(getattr(self, name), str) and getattr(self, name) == needs:
                rule = f"partial_fit keeps sums over rows, but {name}={needs!r} needs the rows themselves"
                refuse(rule, f"{name}={needs!r}", "Use fit with all rows.")
        sums = self._summed(self._checked(X, y, sample_weight, first, least=1))
        return self._solve(sums if first else self.sums_.plus(sums))

    def predict(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> Any:
        """Predict labels.

        Args:
            X: Features, [m, d].
            return_std: Whether to return the standard deviations of the labels too: those of the noise, the weights
                and the intercept together, given the training rows. Default: False.
            return_cov: Whether to return the covariances of the labels instead. Default: False.

        Returns:
            The predictions, [m], or [m, q]; with `return_std`, these and the standard deviations, of the same shape;
            with `return_cov`, these and the covariances of the labels, [m, m], or [m, m, q].
        """
        check_is_fitted(self)
        x = validate_data(self, unmasked("X", X), reset=False, dtype=np.float64)
        mean = x @ self.coef_.T + self.intercept_
        if return_std and return_cov:
            refuse("either standard deviations or covariances are returned", "both", "Pass one of the two.")
        if not return_std and not return_cov:
            return mean
        sums, centred = self.sums_, x - self.sums_.x_mean
        spread = np.array([calibration.spread for calibration in self._calibrations]).reshape(self._shape)[()]
        if return_cov:
            covariance = np.einsum("li,...ij,mj->lm...", centred, self.covariance_, centred, optimize=True)
            noise = self._mixtures[0].tails.mean * np.eye(len(x)) + sums.level
            return mean, spread**2 * (covariance + np.multiply.outer(noise, self._variance))
        quadratic = np.einsum("mi,...ij,mj->m...", centred, self.covariance_, centred, optimize=True)
        noise = self._variance * (self._mixtures[0].tails.mean + sums.level)
        return mean, spread * np.sqrt(np.maximum(quadratic, 0.0) + noise)

    def predict_quantiles(self, X: ArrayLike, levels: ArrayLike) -> Array:
        """Compute quantiles of the predictive distribution of labels, a mixture of t distributions.

        The quantiles of a model's predictions are those of exact Bayes, shifted to the model's prediction.

        Args:
            X: Features, [m, d].
            levels: Probabilities between 0 and 1, [L].

        Returns:
            The quantiles, [L, m], or [L, m, q].

        Raises:
            ValueError: A level does not lie between 0 and 1, or there was one training row only.
        """
        checked = np.atleast_1d(np.asarray(levels, np.float64))
        if checked.ndim != 1 or not ((checked > 0) & (checked < 1)).all():
            refuse("levels must lie between 0 and 1", shown(levels), "Pass [0.05, 0.5, 0.95], for example.")
        return self._labels(X, lambda mixture, rows, calibrated: mixture.quantiles(rows, calibrated(checked)))

    def predict_interval(self, X: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """Compute intervals that hold labels with a given probability, with equal probabilities on both sides.

        Args:
            X: Features, [m, d].
            level: The probability, between 0 and 1. Default: 0.95.

        Returns:
            The lower and the upper ends, [m] each, or [m, q].
        """
        low, high = self.predict_quantiles(X, [0.5 - number("level", level) / 2, 0.5 + level / 2])
        return low, high

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw labels from the predictive distribution of each row.

        Args:
            X: Features, [m, d].
            n_samples: How many for each row. Default: 1.
            random_state: The seed, or a NumPy generator. Default: 0.

        Returns:
            The labels, [m, n_samples], or [m, n_samples, q]. Different rows are drawn independently.
        """
        count, rng = integer("n_samples", n_samples), np.random.default_rng(random_state)
        drawn = self._labels(X, lambda mixture, rows, calibrated: mixture.sample(rows, count, rng, calibrated))
        return np.moveaxis(drawn, 0, 1)

    def plot_weights(self, path: str | Path | None = None, *, title: str | None = None, output: int = 0) -> Figure:
        """Draw the weights with intervals, and the probabilities that features matter.

        Args:
            path: A file to write to, which ends in .png, .pdf or .svg; None to write none.
            title: The title of the figure; None for none.
            output: Which output, where there are several. Default: the first one.

        Returns:
            The figure, a `matplotlib.figure.Figure`, which a notebook shows.
        """
        from ridgeformer.plotting.regression import draw_weights

        check_is_fitted(self)
        return draw_weights(self, path, title=title, output=output)

    def plot_predictions(
        self,
        X: ArrayLike,
        y: ArrayLike,
        path: str | Path | None = None,
        *,
        level: float = 0.9,
        title: str | None = None,
    ) -> Figure:
        """Draw labels against predictions, with the prediction interval of each row.

        Args:
            X: Features, [m, d].
            y: Labels, [m].
            path: A file to write to, which ends in .png, .pdf or .svg; None to write none.
            level: The probability that an interval holds a label. Default: 0.9.
            title: The title of the figure; None for the share of labels inside of their intervals.

        Returns:
            The figure, a `matplotlib.figure.Figure`.

        Raises:
            InputError: There are several outputs.
        """
        from ridgeformer.plotting.regression import draw_predictions

        check_is_fitted(self)
        if self._shape:
            refuse("plot_predictions is for one output", f"{self._shape[0]} of them", "Fit each output by itself.")
        return draw_predictions(self, X, y, path, level=level, title=title)

    def _rows(self, X: ArrayLike) -> Array:
        """Standardised features of new rows, [m, d]."""
        check_is_fitted(self)
        x = validate_data(self, unmasked("X", X), reset=False, dtype=np.float64)
        if not self.sums_.examples > ONE_ROW:
            refuse("a predictive distribution needs two rows", "one row", "Call partial_fit with more rows first.")
        return np.asarray((x - self.sums_.x_mean)[:, self._given.kept] / self._given.x_scale)

    def _labels(self, X: ArrayLike, of: Callable[[PosteriorMixture, Array, Calibrated], Array]) -> Array:
        """Labels of new rows, [L, m], or [L, m, q], from what exact Bayes says of each output in standardised units."""
        rows, unit = self._rows(X), self._given.unit
        beyond = rows @ (self._beyond * unit[:, None]).T  # what a model predicts beyond exact Bayes
        outputs = zip(self._mixtures, self._calibrations, strict=True)
        values = np.stack([of(mixture, rows, calibration.levels) for mixture, calibration in outputs], -1)
        labels = self.sums_.y_mean + unit * values + beyond
        return np.asarray(labels.reshape(values.shape[:-1] + self._shape))

    def _checked(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, first: bool, least: int
    ) -> WeightedRows:
        """The rows that have a weight."""
        options: dict[str, Any] = {"dtype": np.float64, "y_numeric": True, "multi_output": True}
        arrays = unmasked("X", X), unmasked("y", y)
        x, labels = validate_data(self, *arrays, reset=first, ensure_min_samples=least, **options)
        weights = _check_weights(sample_weight, len(x))
        labels = np.asarray(labels, np.float64)
        if first:
            self._shape = labels.shape[1:]
        elif labels.shape[1:] != self._shape:
            rule = f"further labels must have the shape {f'(n, {self._shape[0]})' if self._shape else '(n,)'}"
            refuse(rule, f"shape {labels.shape}", "Pass as many outputs as at first.")
        used = weights > 0
        if used.sum() < least:
            rule = f"at least {least} rows must have weights above zero"
            refuse(rule, f"n_samples={used.sum()}", "Pass more rows with positive weights.")
        if (least > 1 and not weights.sum() > 1 + 1e-9) or weights.sum() > 1e15:  # 1 with rounding
            rule = "the weights must sum to more than 1 and at most 1e15, because a weight of 1 is one example"
            remedy = "Pass sample_weight * n / sample_weight.sum() for n examples."
            refuse(rule, f"a sum of {weights.sum():g}", remedy)
        return WeightedRows(x[used], labels[used].reshape(used.sum(), -1), weights[used], bool(self.fit_intercept))

    def _summed(self, rows: WeightedRows, precision: Array | float = 1.0) -> Sums:
        """The sums over rows, which must be finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            sums = rows.sums(precision)
        if not all(np.isfinite(part).all() for part in (sums.xx, sums.yy)):
            refuse("the squares of X and y must be finite", "larger values", "Divide X or y by a large number.")
        largest = np.append(np.abs(rows.x).max(0), np.abs(rows.y).max(0))
        if ((largest > 0) & (largest < SMALLEST)).any():
            rule = f"every column of X and y must reach {SMALLEST:g} or be 0, because its squares are summed"
            refuse(rule, f"{largest[largest > 0].min():.3g} at most", "Multiply the column by a large number.")
        return sums

    def _is_student(self) -> bool:
        return isinstance(self.noise, str) and self.noise == "student"

    def _law(self, noise: Noise | None = None) -> RegressionPrior:
        """The prior that the parameters say, with a law of the noise level or without one."""
        if self._is_student() and not (isinstance(self.predictor, str) and self.predictor == "bayes"):
            refuse("noise='student' is for the predictor bayes", shown(self.predictor), "Leave out the predictor.")
        if self.calibration not in (None, "auto", "loo"):
            refuse("calibration must be None, 'auto' or 'loo'", shown(self.calibration), "Write calibration='loo'.")
        sizes = None if self.size_prior is None else _check_prior(self.size_prior, "size_prior")
        return RegressionPrior(noise, _check_prior(self.r2_prior, "r2_prior"), sizes)

    def _solve(self, sums: Sums, tails: Tails | None = None) -> Self:
        """Compute everything that follows from the sums."""
        model, noise, context = self._resolved()
        if model is not None and noise is None:
            noise = default_noise(max(int((sums.x_scale > 0).sum()), 1))
        standardised, mixtures = self._law(noise).posterior(sums)
        exact = np.stack([mixture.mean for mixture in mixtures])
        weights, fell_back = exact, np.zeros(len(mixtures), bool)
        if model is not None and standardised.dim:
            weights, fell_back = by_model(model, standardised, context, exact)
        d, q, varying, unit = len(sums.x_mean), len(mixtures), standardised.kept, standardised.unit
        coef, covariance, inclusion = np.zeros((q, d)), np.zeros((q, d, d)), np.zeros((q, d))
        coef[:, varying] = unit[:, None] * weights / standardised.x_scale
        for k, mixture in enumerate(mixtures):
            mixture.tails, inclusion[k, varying] = tails or Tails(), mixture.inclusion
            scale = unit[k] / standardised.x_scale
            covariance[k][np.ix_(varying, varying)] = mixture.covariance * np.outer(scale, scale)

        def shaped(value: Array) -> Any:
            return value.reshape(self._shape + value.shape[1:])[()]

        self.sums_ = sums
        self.coef_, self.covariance_, self.inclusion_ = shaped(coef), shaped(covariance), shaped(inclusion)
        self.intercept_ = shaped(sums.y_mean - coef @ sums.x_mean)
        factor = 1.0 if sums.examples > ONE_ROW else np.inf  # one row says nothing about the noise
        self.noise_ = shaped(factor * unit * [mixture.sigma for mixture in mixtures])
        self._variance = shaped(factor * unit**2 * [mixture.variance for mixture in mixtures])
        self.fell_back_ = shaped(fell_back)
        evidence = np.array([mixture.log_evidence for mixture in mixtures])
        self.log_evidence_ = shaped(evidence - sums.examples * np.log(unit))
        self._given, self._mixtures, self._beyond = standardised, mixtures, weights - exact
        self._calibrations = (Calibration(),) * q
        return self

    def _resolved(self) -> tuple[Predictor | None, Noise | None, int | None]:
        """The predictor, None for exact Bayes; the law of the noise; the number of examples of the model."""
        noise = None if self.noise is None or self._is_student() else as_noise(self.noise)
        context = None if self.context is None else integer("context", self.context)
        if isinstance(self.predictor, str):
            if self.predictor == "bayes":
                return None, noise, context
            model, problem = shipped_model(self.predictor)
            if problem:
                noise, context = noise or as_noise(problem["noise"]), context or int(problem["context"])
            return model, noise, context
        if isinstance(self.predictor, type) or not isinstance(self.predictor, Predictor):
            refuse("a predictor must have a method weights(moments)", shown(self.predictor), "Pass a model, or bayes.")
        return self.predictor, noise, context


def _check_prior(prior: ArrayLike, name: str) -> tuple[float, float]:
    """The two parameters of a beta distribution."""
    values = real(name, prior)
    if values.shape != (2,) or not ((values > 0) & np.isfinite(values)).all():
        refuse(f"{name} must be two positive numbers", shown(prior), "Pass (1, 1) for the uniform distribution.")
    return float(values[0]), float(values[1])


def _check_weights(weights: ArrayLike | None, rows: int) -> Array:
    """The weights of the rows, [n]; 1 where none are given."""
    if weights is None:
        return np.ones(rows)
    values = real("sample_weight", weights)
    values = np.full(rows, values) if values.ndim == 0 else values
    if values.shape != (rows,):
        refuse("sample_weight must have one weight for each row", f"shape {values.shape}", f"Pass {rows} numbers.")
    checked: Array = check_array(values[:, None], dtype=np.float64, input_name="sample_weight")[:, 0]
    if (checked < 0).any():
        refuse("sample_weight must not be negative", float(checked.min()), "Pass weights of at least 0.")
    return checked
