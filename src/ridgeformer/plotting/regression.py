"""Pictures of a fitted regressor: its weights with the features that matter, and its predictions with intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ridgeformer.plotting.style import BLACK, BLUE, GREY, LIGHT, VERMILION, Figure, blank, check_plot, finish, panel
from ridgeformer.validation import integer

MOST = 40  # features that are shown


def draw_weights(
    regressor: Any, path: Path | str | None = None, *, title: str | None = None, output: int = 0
) -> Figure:
    """Draw the weights of a fitted regressor, and the probabilities that features matter.

    On the left, the change of the prediction with one standard deviation of each feature, with intervals of two
    posterior standard deviations to either side; on the right, inclusion probabilities. The 40 features with the
    largest effects are shown, in their order.

    Args:
        regressor: A fitted `InContextRegressor`.
        path: The file, which ends in .png, .pdf or .svg; None to write none.
        title: The title; None for none.
        output: Which output, where there are several.

    Returns:
        The figure.

    Raises:
        InputError: The name of the file has another ending.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path = check_plot(path)
    scale = regressor.sums_.x_scale
    coef, covariance, inclusion = (
        np.reshape(value, (-1, *np.shape(value)[np.ndim(value) - axes :]))
        for value, axes in ((regressor.coef_, 1), (regressor.covariance_, 2), (regressor.inclusion_, 1))
    )
    output = integer("output", output, 0, len(coef) - 1)
    effect, spread = coef[output] * scale, np.sqrt(np.maximum(np.diag(covariance[output]), 0.0)) * scale
    shown = np.sort(np.argsort(-np.abs(effect), kind="stable")[:MOST])
    feature_names = getattr(regressor, "feature_names_in_", None)
    names = [str(feature_names[k]) if feature_names is not None else f"x{k}" for k in shown]
    places = -np.arange(len(shown))
    canvas = blank(6.5, 1.1 + 0.17 * len(shown))
    left, right = canvas.subplots(1, 2, sharey=True, width_ratios=(2, 1))
    left.axvline(0, color=BLACK, linewidth=0.8)
    look: Any = {"fmt": "o", "color": BLUE, "markersize": 4, "linewidth": 1.3}
    left.errorbar(effect[shown], places, xerr=2 * spread[shown], **look)
    left.set(yticks=places, yticklabels=names)
    panel(left, "Weights", "change of y with one standard deviation of the feature")
    right.barh(places, inclusion[output][shown], color=BLUE, height=0.6)
    right.set(xlim=(0, 1))
    panel(right, "Does the feature matter?", "probability")
    return finish(canvas, path, title, 9)


def draw_predictions(
    regressor: Any,
    X: ArrayLike,
    y: ArrayLike,
    path: Path | str | None = None,
    *,
    level: float = 0.9,
    title: str | None = None,
) -> Figure:
    """Draw labels against predictions, with the prediction interval of each row.

    Args:
        regressor: A fitted `InContextRegressor` with one output.
        X: Features, [m, d].
        y: Labels, [m].
        path: The file, which ends in .png, .pdf or .svg; None to write none.
        level: The probability that an interval holds a label. Default: 0.9.
        title: The title; None for the share of labels inside of their intervals.

    Returns:
        The figure.

    Raises:
        InputError: The name of the file has another ending.
        StorageError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    path, labels = check_plot(path), np.asarray(y, np.float64).ravel()
    mean = np.asarray(regressor.predict(X), np.float64).ravel()
    low, high = (np.asarray(end, np.float64).ravel() for end in regressor.predict_interval(X, level))
    inside = (low <= labels) & (labels <= high)
    canvas = blank(4.6, 4.2)
    axis = canvas.subplots()
    axis.vlines(mean, low, high, color=LIGHT, linewidth=1.0, label=f"{level:.0%} interval")
    ends = [float(min(mean.min(), labels.min())), float(max(mean.max(), labels.max()))]
    axis.plot(ends, ends, color=GREY, linewidth=0.8)
    axis.plot(mean[inside], labels[inside], "o", color=BLUE, markersize=3, label="inside")
    axis.plot(mean[~inside], labels[~inside], "D", color=VERMILION, markersize=3, label="outside")
    axis.legend(loc="upper left")
    panel(axis, title or f"{inside.mean():.0%} of {len(labels)} labels inside", "predicted y", "y")
    return finish(canvas, path)
