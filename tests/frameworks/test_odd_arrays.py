"""PyTorch and JAX alike: no bit is lost; integers, masked entries and odd matrices mean the same, or are refused."""

import importlib
import sys

import numpy as np
import pytest

from frameworks_models import models
from ridgeformer import Moments, Problem
from ridgeformer.errors import MissingPackageError
from ridgeformer.problems import Sequences
from support import refused, tame_model

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

from ridgeformer import jax as in_jax, torch as in_torch  # noqa: E402

MODEL = tame_model("full", 3, 2, 1, 8)
DRAW = Problem(3, 8, "uniform(0,1)").moments(5)
GRAM, TARGET = np.array(DRAW.moments.gram), np.array(DRAW.ridge)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("model", models(), ids=repr)
def test_round_trips_keep_every_bit(model, dtype):
    model = model.astype(dtype)
    parameters = in_jax.to_jax(model)[0]
    returned = [in_jax.from_jax(parameters), in_jax.from_jax(dict(parameters.arrays), like=model)]
    for back in (*returned, in_torch.from_torch(in_torch.to_torch(model))):
        assert (type(back.family), back.dim, back.layout) == (type(model.family), model.dim, model.layout)
        for name, value in model.family.arrays.items():
            assert back.family.arrays[name].dtype == dtype
            assert np.array_equal(back.family.arrays[name], value)


@pytest.mark.parametrize("package", ["torch", "jax"])
def test_without_the_package_the_error_names_the_command(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    ours = sys.modules[f"ridgeformer.{package}"]
    refused(lambda: importlib.reload(ours), f"Run pip install {package}", MissingPackageError)


def test_integers_are_converted_and_not_truncated():
    parameters, apply = in_jax.to_jax(MODEL)
    rng = np.random.default_rng(0)
    x, y, queries = rng.integers(-3, 4, (2, 8, 3)), rng.integers(-3, 4, (2, 8)), rng.integers(-3, 4, (2, 1, 3))
    expected = MODEL.predict(x, y, queries)
    assert np.abs(expected).min() > 0
    np.testing.assert_allclose(apply(parameters, x, y, queries), expected, rtol=1e-4)  # float32
    gram = np.array(Moments.from_tokens(x, y).gram).astype(int)
    np.testing.assert_allclose(apply(parameters, gram), MODEL.weights(Moments.from_tokens(x, y)), rtol=1e-3)


@pytest.mark.parametrize("form", [lambda a: a.astype("i1"), lambda a: a.astype(">f8"), np.ndarray.tolist, np.ma.array])
def test_the_same_numbers_in_other_forms_mean_the_same(form):
    plain = [np.random.default_rng(0).integers(-3, 4, shape).astype(float) for shape in ((2, 8, 3), (2, 8), (2, 1, 3))]
    other = [form(a) for a in plain]
    np.testing.assert_allclose(MODEL.predict(*other), MODEL.predict(*plain), rtol=1e-12)
    gram = Moments.from_tokens(*other[:2]).gram
    np.testing.assert_array_equal(gram, Moments.from_tokens(*plain[:2]).gram)
    refused(lambda: MODEL.predict(np.ma.masked_equal(plain[0], 1.0), *plain[1:]), "masked")
    refused(lambda: Moments.from_tokens(plain[0], np.ma.masked_equal(plain[1], 1.0)), "masked")


@pytest.mark.parametrize("where", ["torch", "jax"])
def test_masked_entries_are_refused(where):
    masked = np.ma.masked_greater(TARGET, 0)
    loss, model = (in_torch.moment_loss, in_torch.to_torch(MODEL))
    if where == "jax":
        loss, model = in_jax.moment_loss, in_jax.to_jax(MODEL)[0]
    refused(lambda: loss(model, DRAW.moments, masked), "target must have no masked entries")
    hidden, drawn = np.ma.masked_equal(np.eye(3), 0), Problem(3, 8, "uniform(0,1)").sequences(5)
    refused(lambda: loss(model, DRAW.moments, TARGET, metric=hidden), "metric must have no masked entries")
    given = np.ma.masked_greater(drawn.x, 0), drawn.y, drawn.queries, drawn.answers
    refused(lambda: Sequences(*given), "x must have no masked entries; got a masked array")


def test_gram_matrices_that_are_not_symmetric_are_refused():
    """The core reads one triangle, the recursion in PyTorch and JAX both: they would mean different models."""
    odd = GRAM + np.triu(np.ones((4, 4)), 1)
    refused(lambda: in_torch.moment_loss(in_torch.to_torch(MODEL), torch.tensor(odd), TARGET), "gram must be symmetric")
    refused(lambda: in_jax.moment_loss(in_jax.to_jax(MODEL)[0], odd, TARGET), "gram must be symmetric")
    refused(lambda: Moments(odd, 8), "gram must be symmetric")


def test_transformed_functions_have_the_same_gradient_and_losses():
    module, gram, target = in_torch.to_torch(MODEL), torch.tensor(GRAM), torch.tensor(TARGET)
    values = {name: value.detach() for name, value in module.arrays().items()}

    def loss(values, gram=gram, target=target):
        return in_torch.moment_loss(values, gram, target, like=MODEL)

    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    loss(leaves).backward()
    for name, slope in torch.func.grad(loss)(values).items():
        torch.testing.assert_close(slope, leaves[name].grad)
    each = torch.func.vmap(lambda G, t: loss(values, G[None], t[None]))(gram, target)
    torch.testing.assert_close(each.mean(), loss(values))


def test_bfloat16_in_jax():
    """bfloat16 has 8 bits: losses agree to about a hundredth."""
    parameters = in_jax.to_jax(MODEL)[0]
    whole = in_jax.moment_loss(parameters, GRAM, TARGET)
    half = in_jax.moment_loss(parameters, jax.numpy.asarray(GRAM, jax.numpy.bfloat16), TARGET)
    assert float(half) == pytest.approx(float(whole), rel=0.03)
