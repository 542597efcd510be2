"""The lower bound for depth against closed forms and models."""

import numpy as np
import pytest

from benchmarks.depth import bound, degree, features
from ridgeformer import LinearTransformer, Problem, compare, load
from ridgeformer.exact import exact_loss


@pytest.mark.parametrize("family", ["diag", "channels(1,3)"])
@pytest.mark.parametrize("layers", [1, 2])
def test_models_are_sums_of_the_monomials(layers, family):
    """Models that treat all directions alike are in the span of the monomials, exactly; deeper ones are not."""
    moments = Problem(4, 9, "uniform(0,2)").moments(200).moments
    X = features(moments, layers).reshape(200 * 4, -1)
    X = X / np.sqrt((X**2).mean(0))

    def residual(depth):
        model = LinearTransformer.random(family, dim=4, layers=depth, context=9, scale=0.4)
        w = model.weights(moments).ravel()
        return np.abs(X @ np.linalg.lstsq(X, w, rcond=None)[0] - w).max() / np.abs(w).max()

    assert residual(layers) < 1e-8
    assert residual(layers + 1) > 1e-3


def test_one_layer_is_known():
    """With one layer there is one monomial, a, and the best loss has a closed form."""
    problem = Problem(noise="uniform(0,5)")
    least = bound(problem, 1, sequences=40_000)
    exact = exact_loss(problem, load("zoo:gdpp/1/uniform(0,5)"))
    assert least.monomials == 1
    assert least.fitted == pytest.approx(exact, rel=0.02)  # the error of a mean over 40,000 sequences is below 1 %


def test_two_layers():
    """No shipped model is below the bound, and on new sequences the polynomial is above what it has where fitted."""
    problem = Problem(noise="uniform(0,5)")
    least = bound(problem, 2, sequences=40_000)
    assert (least.monomials, degree(2), degree(3)) == (30, 4, 13)
    losses = compare(problem, {f: load(f"zoo:{f}/2/uniform(0,5)") for f in ("diag", "full")}, sequences=40_000)
    assert losses.floor < least.fitted < least.new < losses.loss.min()
