"""The engine in JAX against its NumPy twin, also where models explode. tests/engine has what all engines share."""

import numpy as np
import pytest

from ridgeformer import LinearTransformer, Problem, engine
from ridgeformer.engine import Omegas
from support import tame_model

pytest.importorskip("jax")

TWIN = engine.named("numpy")
KINDS = ["full", "diag", "channels(2,2)"]


def model_of(kind):
    if kind in ("full", "diag"):
        return tame_model(kind, 3, 4, 2, 6)
    return LinearTransformer.random(kind, dim=3, layers=4, heads=2, scale=0.1, context=60)


@pytest.mark.parametrize("ceiling", [np.inf, 1.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_numpy(kind, dtype, ceiling):
    """With sequences that overflow, and one whose loss is finite but whose gradient is not in this dtype."""
    model = model_of(kind)
    d = Problem(3, 6, "uniform(0,1)").moments(60)
    gram = np.array(model._gram(d.moments)).astype(dtype)
    gram[3] *= dtype(1e30)
    gram[5, 0, 0] = np.nan
    target, metric = d.ridge.astype(dtype), (np.eye(3) + 0.3).astype(dtype)
    options = {"metric": metric, "counted": 3, "ceiling": ceiling, "weights": True}
    found, expected = (one.evaluate(model.kernel, gram, target, **options) for one in (engine.named("jax"), TWIN))
    good = np.isfinite(expected.losses)
    assert np.array_equal(np.isfinite(found.losses), good)
    assert found.limited == expected.limited
    slack = 1e-9 if dtype == np.float64 else 2e-4  # of the largest
    for name in ("losses", "weights"):
        a, b = getattr(found, name)[good], getattr(expected, name)[good]
        np.testing.assert_allclose(a, b, rtol=slack, atol=slack * np.abs(b).max())
    for a, b in zip(found.gradient, expected.gradient, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=slack * np.abs(b).max())


def test_a_sequence_is_counted_once():
    """Its loss is above the ceiling, and its gradient is too large to be summed."""
    gram, omega = np.array([[[1.0, 1e300], [1e300, 1.0]]]), np.array([[[0.0, 0.0], [-1e-299, 0.0]]])
    found, expected = (
        one.evaluate(Omegas(omega), gram, np.zeros((1, 1)), ceiling=1.0) for one in (engine.named("jax"), TWIN)
    )
    assert found.losses.tolist() == pytest.approx([50.0])
    assert found.limited == expected.limited == 1
