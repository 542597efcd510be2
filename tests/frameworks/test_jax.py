"""Models in JAX: the same numbers and predictions, derivatives against differences, transformations."""

import subprocess
import sys

import numpy as np
import pytest

from frameworks_models import models
from ridgeformer import Layout, LinearTransformer, Moments, Problem, engine
from ridgeformer.engine import Omegas
from support import draw, refused, tame_model

jax = pytest.importorskip("jax")
from jax.test_util import check_grads  # noqa: E402

from ridgeformer.jax import from_jax, moment_loss, to_jax  # noqa: E402
from ridgeformer.jax.model import _xla, kernel_of  # noqa: E402


@pytest.fixture(autouse=True)
def _double():
    """Float64 in these tests only, as a user would enable it: callbacks run in threads that see no context manager."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize("model", models(), ids=repr)
def test_predictions_and_weights_are_those_of_the_model(model):
    """To 1e-12 in float64, and 1e-5 of the largest in float32."""
    s = Problem(4, 9, "uniform(0,1)").sequences(7, queries=3)
    expected, moments = model.predict(s.x, s.y, s.queries), Moments.from_tokens(s.x, s.y)
    parameters, apply = to_jax(model)
    given = [np.asarray(value) for value in (s.x, s.y, s.queries)]
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(jax.jit(apply)(parameters, *given), expected, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(apply(parameters, moments), model.weights(moments), rtol=0, atol=1e-12)
    single = jax.tree.map(lambda value: value.astype(np.float32), (parameters, *given))
    found = jax.jit(apply)(*single)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * scale)


def test_the_function_works_under_vmap_and_for_one_context():
    model = tame_model("full", 4, 3, 2, 9)
    s = Problem(4, 9, "uniform(0,1)").sequences(5)
    parameters, apply = to_jax(model)
    x, y, queries = (np.asarray(value) for value in (s.x, s.y, s.queries))
    batched = apply(parameters, x, y, queries)
    mapped = jax.vmap(apply, (None, 0, 0, 0))(parameters, x, y, queries)
    np.testing.assert_allclose(mapped, batched, atol=1e-13)
    np.testing.assert_allclose(apply(parameters, x[0], y[0], queries[0]), batched[0], atol=1e-13)


@pytest.mark.parametrize("model", models()[1::2], ids=repr)
def test_check_grads_passes(model):
    d = Problem(4, 9, "uniform(0,1)").moments(4, sums=True)
    parameters, apply = to_jax(model)
    metric = np.eye(4) + 0.3
    loss = jax.jit(lambda p: moment_loss(p, d.moments, 3 * d.task, metric=metric))
    check_grads(loss, (parameters,), 1, modes=["rev"], eps=1e-6)  # parameters are of order 0.01
    check_grads(jax.jit(lambda p: apply(p, d.moments)), (parameters,), 1, modes=["rev"], eps=1e-6)


@pytest.mark.parametrize("metric", [None, np.eye(4) + 0.5, np.tile(np.eye(4) + 0.5, (6, 1, 1))])
def test_xla_computes_what_the_native_kernel_does(metric):
    """What runs on other devices, here on the CPU."""
    model, d = tame_model("full", 4, 3, 2, 9), draw(4, 9, 6)
    kernel = kernel_of(to_jax(model)[0])
    found = model.evaluate(d.moments, d.ridge, metric=metric, gradient=True)
    loss, slope = _xla(kernel, np.asarray(d.moments.gram), np.asarray(d.ridge), metric)
    assert float(loss) == pytest.approx(found.loss, rel=1e-12)
    for a, b in zip(slope, found.gradient, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_the_loss_works_with_layouts_vmap_and_training():
    model = LinearTransformer.random("full", dim=4, layers=2, scale=0.1, context=90, layout=Layout("mean", "constant"))
    d = Problem(4, 9, "uniform(0,1)").moments(32, sums=True)
    parameters, _ = to_jax(model)
    metric = np.eye(4) + 0.5
    expected = model.evaluate(d.moments, d.ridge, metric=metric).loss
    assert float(moment_loss(parameters, d.moments, d.ridge, metric=metric)) == pytest.approx(expected, rel=1e-12)
    both = jax.tree.map(lambda value: np.stack([value, 2 * value]), parameters)
    losses = jax.vmap(lambda p: moment_loss(p, d.moments, d.ridge))(both)
    assert float(losses[0]) == pytest.approx(model.evaluate(d.moments, d.ridge).loss, rel=1e-12)
    slope = jax.grad(moment_loss)(parameters, d.moments, d.ridge)
    better = jax.tree.map(lambda value, by: value - 0.1 * by, parameters, slope)
    assert moment_loss(better, d.moments, d.ridge) < losses[0]
    assert isinstance(from_jax(better), LinearTransformer)


def test_the_configuration_of_the_user_stays(monkeypatch):
    code = """
import jax, numpy as np
from ridgeformer import LinearTransformer, Problem, engine
from ridgeformer.jax import from_jax, moment_loss, to_jax
model = LinearTransformer.random("diag", dim=3, layers=2, context=30)
draw = Problem(3, 6, "fixed(1)").moments(5)
assert engine.named("jax").evaluate(model.kernel, draw.moments.gram, draw.ridge).losses.dtype == np.float64
parameters, apply = to_jax(model)
assert np.array_equal(from_jax(parameters).P, model.P)
assert apply(parameters, draw.moments).dtype == np.float32
assert jax.grad(moment_loss)(parameters, draw.moments, draw.ridge)["p"].dtype == np.float32
assert not jax.config.jax_enable_x64
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_bad_input_is_refused_in_words():
    model, d = tame_model("full", 4, 2, 1, 9), draw(4, 9, 3)
    parameters, apply = to_jax(model)
    gram, x = np.asarray(d.moments.gram), np.zeros((2, 9, 4))
    cases = {
        "to_jax needs a LinearTransformer; got a dict": lambda: to_jax({}),
        "parameters must be those that to_jax gives; got a dict": lambda: apply({}, gram),
        "parameters must be those that to_jax gives; got a list": lambda: from_jax([1]),
        "the parameters of a full model must have their names": lambda: from_jax({"A": 1}, like=model),
        "gram must have shape ( ... , 5, 5); got shape (3, 4, 4)": lambda: apply(parameters, gram[:, 1:, 1:]),
        "moments must have the model's dimension 4; got 3": lambda: apply(parameters, draw(3, 9).moments),
        "x must have shape ( ... , n, 4); got shape (2, 9, 3)": lambda: apply(parameters, x[..., :3], x[..., 0], x),
        "y must have shape ( ... , 9); got shape (2, 4)": lambda: apply(parameters, x, x[:, 0], x),
        "target must have shapes ... and (B, 4)": lambda: moment_loss(parameters, gram, np.zeros((3, 2))),
        "metric must have shape (4, 4) or": lambda: moment_loss(parameters, gram, d.ridge, metric=np.eye(3)),
    }
    for words, call in cases.items():
        refused(call, words)


# ---- The engine in JAX against its NumPy twin, also where models explode. tests/engine has what all

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
    gram = np.array(d.moments.gram_of(model.layout)).astype(dtype)
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
