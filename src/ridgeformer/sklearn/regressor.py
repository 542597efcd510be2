"""A scikit-learn regressor on moments: exact Bayes, or a model."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ridgeformer import zoo
from ridgeformer.errors import InputError, refuse, shown
from ridgeformer.models import LinearTransformer
from ridgeformer.noise import Noise, Uniform, as_noise
from ridgeformer.predictors import BayesRR, Guarded, Predictor
from ridgeformer.sklearn.posterior import Posterior, Standardised
from ridgeformer.sklearn.sums import Sums
from ridgeformer.validation import integer, number

__all__ = ["FallbackWarning", "InContextRegressor"]

MOST = 1e15  # examples that the weights of rows may stand for

Array = NDArray[np.float64]


class FallbackWarning(UserWarning):
    """The data are beyond what the model can handle, and exact Bayes predicts in its place."""


class InContextRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Linear regression in context: the training rows are the context, and new rows are the queries.

    Fitting computes sums over the rows. From then on nothing depends on the number of rows.

    Args:
        predictor: `bayes` for the posterior mean of the weights; the name of a shipped model such as
            `diag/7/uniform(0,5)`; a `LinearTransformer`; or anything with `weights(moments)`. Models are guarded by
            `ridgeformer.predictors.Guarded`, with exact Bayes as the fallback.
        noise: The law of the noise level in a problem with standardised features and tasks N(0, I), such as
            `uniform(0,5)`, a number, or a `Noise`. None for that of a shipped model; for `bayes`, None means that
            features may explain any share of the variance of y, all with the same probability; for other models it
            means `uniform(0, sqrt(2.5 d))`, which is uniform(0,5) for ten features.
        context: The number of examples that a model was trained on. Other numbers of rows are translated to as many
            examples with another noise level. None for 20 for a shipped model, and otherwise for no translation.
        r2_prior: The parameters (a, b) of the beta distribution of the share of the variance of y that features
            explain, where `noise` is None and `predictor` is `bayes`. Default: (1, 1), all shares equally likely.

    Attributes:
        coef_: The weights of the features, [d], or [q, d] for several outputs.
        intercept_: What is predicted where all features are 0; a number, or [q].
        noise_: The posterior mean of the noise level, in units of y; a number, or [q].
        covariance_: The posterior covariance of the weights, [d, d], or [q, d, d].
        log_evidence_: The logarithm of the density of y given X under the prior, in units of y, where the intercept is
            left out; NaN with a law of the noise level; a number, or [q].
        fell_back_: Whether exact Bayes took the model's place; always False for `bayes`; a bool, or [q].
        sums_: The sums over the rows, `ridgeformer.sklearn.sums.Sums`.
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
    ) -> None:
        self.predictor = predictor
        self.noise = noise
        self.context = context
        self.r2_prior = r2_prior

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
        return self._solve(self._summed(X, y, sample_weight, first=True))

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add rows to those that were seen before. The result is that of `fit` on all rows, to rounding.

        Args:
            X: Features, [n, d]; at least two rows in the first call.
            y: Labels, [n], or [n, q].
            sample_weight: Weights, [n].

        Returns:
            The regressor.

        Raises:
            ValueError: As for `fit`, except that further parts may have one row.
        """
        first = not hasattr(self, "sums_")
        sums = self._summed(X, y, sample_weight, first)
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
        x = validate_data(self, X, reset=False, dtype=np.float64)
        mean = x @ self.coef_.T + self.intercept_
        if return_std and return_cov:
            refuse("either standard deviations or covariances are returned", "both", "Pass one of the two.")
        if not return_std and not return_cov:
            return mean
        sums, centred = self.sums_, x - self.sums_.x_mean
        if return_cov:
            covariance = np.einsum("li,...ij,mj->lm...", centred, self.covariance_, centred, optimize=True)
            own = np.eye(len(x)) + 1 / sums.weight
            return mean, covariance + np.multiply.outer(own, self._variance)
        quadratic = np.einsum("mi,...ij,mj->m...", centred, self.covariance_, centred, optimize=True)
        return mean, np.sqrt(np.maximum(quadratic, 0.0) + self._variance * (1 + 1 / sums.weight))

    def predict_quantiles(self, X: ArrayLike, levels: ArrayLike) -> Array:
        """Compute quantiles of the predictive distribution of labels, a mixture of t distributions.

        The quantiles of a model's predictions are those of exact Bayes, shifted to the model's prediction.

        Args:
            X: Features, [m, d].
            levels: Probabilities between 0 and 1, [L].

        Returns:
            The quantiles, [L, m], or [L, m, q].

        Raises:
            ValueError: A level does not lie between 0 and 1.
        """
        given = np.atleast_1d(np.asarray(levels, np.float64))
        if given.ndim != 1 or not ((given > 0) & (given < 1)).all():
            refuse("levels must lie between 0 and 1", shown(levels), "Pass [0.05, 0.5, 0.95], for example.")
        rows, shift = self._rows(X)
        quantiles = [mixture.quantiles(rows, given) for mixture in self._mixtures]
        return self._in_units(np.stack(quantiles, -1), shift)

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
        rows, shift = self._rows(X)
        drawn = [mixture.sample(rows, count, rng) for mixture in self._mixtures]
        return self._in_units(np.stack(drawn, -1), shift[:, None])

    def _rows(self, X: ArrayLike) -> tuple[Array, Array]:
        """Standardised features of new rows, [m, d], and what a model predicts beyond exact Bayes, [m, q]."""
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        rows = (x - self.sums_.x_mean)[:, self._given.kept] / self._given.x_scale
        return rows, rows @ (self._beyond * self._given.unit[:, None]).T

    def _in_units(self, values: Array, shift: Array) -> Array:
        """Standardised labels [..., q] in units of y, moved to a model's predictions."""
        labels = self.sums_.y_mean + self._given.unit * values + shift
        return np.asarray(labels.reshape(values.shape[:-1] + self._shape))

    def _summed(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, first: bool) -> Sums:
        """The sums over the rows that have a weight."""
        options: dict[str, Any] = {"dtype": np.float64, "y_numeric": True, "multi_output": True}
        x, labels = validate_data(self, X, y, reset=first, ensure_min_samples=2 if first else 1, **options)
        weights = _check_weights(sample_weight, len(x))
        labels = np.asarray(labels, np.float64)
        if first:
            self._shape = labels.shape[1:]
        elif labels.shape[1:] != self._shape:
            shape = f"(n, {self._shape[0]})" if self._shape else "(n,)"
            refuse(
                f"further labels must have the shape {shape}",
                f"shape {labels.shape}",
                "Pass as many outputs as at first.",
            )
        used, least = weights > 0, 2 if first else 1
        if used.sum() < least:
            refuse(
                f"at least {least} rows must have weights above zero",
                f"n_samples={used.sum()}",
                "Pass more rows with positive weights.",
            )
        with np.errstate(over="ignore", invalid="ignore"):
            sums = Sums.of(x[used], labels[used].reshape(used.sum(), -1), weights[used])
        if not all(np.isfinite(part).all() for part in (sums.xx, sums.yy)):
            refuse("the squares of X and y must be finite", "larger values", "Divide X or y by a large number.")
        if first and not sums.weight > 1 + 1e-9:  # 1 with rounding
            refuse(
                "the weights must sum to more than 1, because a weight of 1 is one example",
                f"a sum of {sums.weight:g}",
                "Pass sample_weight * n / sample_weight.sum() for n examples.",
            )
        if sums.weight > MOST:
            refuse(
                f"the weights must sum to at most {MOST:g}, because a weight of 1 is one example",
                f"a sum of {sums.weight:g}",
                "Pass sample_weight * n / sample_weight.sum() for n examples.",
            )
        return sums

    def _solve(self, sums: Sums) -> Self:
        """Compute everything that follows from the sums."""
        model, noise, context = self._resolved()
        if model is not None and noise is None:
            noise = default_noise(max(int((sums.x_scale > 0).sum()), 1))
        given = Standardised(sums, noise)
        found = Posterior.of(given, _check_prior(self.r2_prior))
        weights, fell_back = found.weights, np.zeros(len(sums.yy), bool)
        if model is not None and given.dim:
            weights, fell_back = _by_model(model, given, context, found.weights)
        d, q, kept, unit = len(sums.x_mean), len(sums.yy), given.kept, given.unit
        coef, covariance = np.zeros((q, d)), np.zeros((q, d, d))
        coef[:, kept] = unit[:, None] * weights / given.x_scale
        scales = np.outer(given.x_scale, given.x_scale)
        covariance[np.ix_(np.arange(q), kept, kept)] = unit[:, None, None] ** 2 * found.covariance / scales

        def shaped(value: Array) -> Any:
            return value.reshape(self._shape + value.shape[1:])[()]

        self.sums_ = sums
        self.coef_, self.covariance_ = shaped(coef), shaped(covariance)
        self.intercept_ = shaped(sums.y_mean - coef @ sums.x_mean)
        self.noise_, self._variance = shaped(unit * found.sigma), shaped(unit**2 * found.variance)
        self.fell_back_ = shaped(fell_back)
        evidence = np.array([mixture.nodes.log_evidence for mixture in found.mixtures])
        self.log_evidence_ = shaped(evidence - (sums.weight - 1) * np.log(unit))
        self._given, self._mixtures, self._beyond = given, found.mixtures, weights - found.weights
        return self

    def _resolved(self) -> tuple[Predictor | None, Noise | None, int | None]:
        """The predictor, None for exact Bayes; the law of the noise; the number of examples of the model."""
        noise = None if self.noise is None else as_noise(self.noise)
        context = None if self.context is None else integer("context", self.context)
        if isinstance(self.predictor, str):
            if self.predictor == "bayes":
                return None, noise, context
            place = _place(self.predictor)
            spec = zoo.shipped().record(*place).spec
            return zoo.shipped().model(*place), noise or as_noise(spec["noise"]), context or int(spec["context"])
        if isinstance(self.predictor, type) or not isinstance(self.predictor, Predictor):
            refuse("a predictor must have a method weights(moments)", repr(self.predictor), "Pass a model, or bayes.")
        return self.predictor, noise, context


def _place(name: str) -> tuple[str, int, str, int | None]:
    """Family, layers, noise and seed of a shipped model."""
    try:
        return zoo.place(name)
    except InputError:
        refuse(
            "the predictor must be bayes, the name of a shipped model, or a predictor",
            repr(name),
            "Write bayes or diag/7/uniform(0,5), for example.",
        )


def _check_prior(prior: object) -> tuple[float, float]:
    """The two parameters of a beta distribution."""
    given = np.asarray(prior, np.float64)
    if given.shape != (2,) or not ((given > 0) & np.isfinite(given)).all():
        refuse("r2_prior must be two positive numbers", shown(prior), "Pass (1, 1) for the uniform distribution.")
    return float(given[0]), float(given[1])


def _check_weights(weights: ArrayLike | None, rows: int) -> Array:
    """The weights of the rows, [n]; 1 where none are given."""
    if weights is None:
        return np.ones(rows)
    given = np.asarray(weights, np.float64)
    given = np.full(rows, given) if given.ndim == 0 else given
    if given.shape != (rows,):
        refuse("sample_weight must have one weight for each row", f"shape {given.shape}", f"Pass {rows} numbers.")
    checked: Array = check_array(given[:, None], dtype=np.float64, input_name="sample_weight")[:, 0]
    if (checked < 0).any():
        refuse("sample_weight must not be negative", float(checked.min()), "Pass weights of at least 0.")
    return checked


def default_noise(dim: int) -> Noise:
    """Return the law of the noise level for models of which it is not known: uniform(0,5) for ten features.

    Args:
        dim: The number of features d.

    Returns:
        The distribution.
    """
    return Uniform(0.0, float(np.sqrt(2.5 * dim)))


def _by_model(
    model: Predictor, given: Standardised, context: int | None, exact: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """The weights that a predictor gives, [q, d], exact Bayes' where a model explodes, and where that is, [q]."""
    assert given.noise is not None
    inner = model.model if isinstance(model, Guarded) else model
    dim = inner.dim if isinstance(inner, LinearTransformer) else max(given.dim, 1)
    if given.dim > dim:
        refuse(
            f"X must have at most {dim} features that are not constant, the dimension of the model",
            given.dim,
            "Select features, or train a model of this dimension.",
        )
    moments, fell_back = given.moments(dim, context), np.zeros(len(exact), bool)
    with np.errstate(all="ignore"):
        weights = np.asarray(model.weights(moments), np.float64)[:, : given.dim]
    if isinstance(model, Guarded | LinearTransformer):
        guard = model if isinstance(model, Guarded) else Guarded(model, BayesRR(given.noise))
        report = guard.check(moments)
        fell_back, name = report.fell_back, "exact Bayes" if guard is not model else repr(guard.fallback)
        if guard is not model:
            weights = np.where(fell_back[:, None], exact, weights)
        if fell_back.any():
            warnings.warn(
                f"the training rows are beyond what {inner} can handle, so {name} predicts in its place: the guard "
                f"{report}, one for each output. A model works on data like those it was trained on: about as many "
                "rows, or context= with the right number, and features that are not too correlated.",
                FallbackWarning,
                stacklevel=4,
            )
    if not np.isfinite(weights).all():
        refuse("a predictor must give finite weights", "others", "Guard it: Guarded(predictor, fallback).")
    return weights, fell_back
