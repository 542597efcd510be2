"""Models in the regressor: the moments that they see, and exact Bayes where they cannot be right."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer import zoo
from ridgeformer.errors import refuse
from ridgeformer.models import LinearTransformer
from ridgeformer.noise import Noise, Uniform
from ridgeformer.predictors import BayesRR, Guarded, Predictor, Universal
from ridgeformer.sklearn.posterior import StandardisedSums

Array = NDArray[np.float64]


class FallbackWarning(UserWarning):
    """The data are beyond what the model can handle, and exact Bayes predicts in its place."""


def shipped_model(name: str) -> tuple[Predictor, dict[str, Any]]:
    """Find a shipped model by its name.

    Args:
        name: The name, such as `diag/7/uniform(0,5)`; `universal` is `universal/8`.

    Returns:
        The model, and the problem that it was trained on: its `noise` and its `context`, where these are one.

    Raises:
        InputError: There is no such model.
    """
    if name != "universal" and "/" not in name:
        rule = "the predictor must be bayes, the name of a shipped model, or a predictor"
        refuse(rule, repr(name), "Write bayes or diag/7/uniform(0,5), for example.")
    model, record = zoo.read_model("universal/8" if name == "universal" else name)
    one_size = isinstance(record["spec"]["dim"], int)
    return (model, record["spec"]) if one_size else (Universal(model), {})


def default_noise(dim: int) -> Noise:
    """Return the law of the noise level for models of which it is not known: uniform(0,5) for ten features.

    Args:
        dim: The number of features d.

    Returns:
        The distribution.
    """
    return Uniform(0.0, float(np.sqrt(2.5 * dim)))


def by_model(
    model: Predictor, given: StandardisedSums, context: int | None, exact: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """Compute the weights that a predictor gives, and those of exact Bayes where a model explodes.

    Args:
        model: The predictor.
        given: The sums in the units of the problem, with a law of the noise level.
        context: The number of examples that the model was trained on; None for no translation.
        exact: The weights of exact Bayes, [q, d].

    Returns:
        The weights, [q, d], and where they are those of exact Bayes, [q].

    Raises:
        InputError: The weights are not finite.
    """
    assert given.noise is not None
    inner = model.model if isinstance(model, Guarded) else model
    dim = inner.dim if isinstance(inner, LinearTransformer) else max(given.dim, 1)
    if given.dim > dim:
        warnings.warn(
            f"{inner} takes at most {dim} features that are not constant, and X has {given.dim}, so exact Bayes "
            "predicts in its place. Select features, or train a model of this dimension.",
            FallbackWarning,
            stacklevel=4,
        )
        return exact, np.ones(len(exact), bool)
    moments, fell_back = given.moments(dim, context), np.zeros(len(exact), bool)
    with np.errstate(all="ignore"):
        weights = np.asarray(model.weights(moments), np.float64)[:, : given.dim]
    if isinstance(model, Guarded | LinearTransformer | Universal):
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
