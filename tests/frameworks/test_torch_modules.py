"""Models as PyTorch modules, and back: the same numbers, the same predictions, errors in words."""

import numpy as np
import pytest

from frameworks_models import models
from ridgeformer import Layout, LinearTransformer, Moments, Problem, evaluate, load
from support import draw, refused, tame_model

torch = pytest.importorskip("torch")

from ridgeformer.torch import from_torch, to_torch  # noqa: E402


def tensors(*arrays, dtype=torch.float64):
    return [torch.tensor(np.asarray(value), dtype=dtype) for value in arrays]


@pytest.mark.parametrize("model", models(), ids=repr)
def test_predictions_and_weights_are_those_of_the_model(model):
    """To 1e-12 in float64, and 1e-5 of the largest in float32."""
    s = Problem(4, 9, "uniform(0,1)").sequences(7, queries=3)
    expected = model.predict(s.x, s.y, s.queries)
    moments = Moments.from_tokens(s.x, s.y)
    weights = model.weights(moments)
    module = to_torch(model)
    found = module(*tensors(s.x, s.y, s.queries)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * max(1, np.abs(expected).max()))
    np.testing.assert_allclose(module(moments).detach().numpy(), weights, rtol=0, atol=1e-12)
    single = to_torch(model, dtype=torch.float32)
    found = single(*tensors(s.x, s.y, s.queries, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1, np.abs(expected).max()))
    assert single.weights(moments).dtype == torch.float32


@pytest.mark.parametrize("layout", [Layout(), Layout("sum", "constant"), Layout("mean", "length")], ids=str)
def test_a_module_is_evaluated_like_its_model(layout):
    """Also where predictions have an intercept, and where tokens need their sums."""
    problem = Problem(4, 9, "uniform(0,1)")
    model = LinearTransformer.random("full", dim=4, layers=2, scale=0.1, context=90, layout=layout)
    found, expected = (evaluate(problem, one, sequences=500, with_floor=False) for one in (to_torch(model), model))
    assert found.loss == pytest.approx(expected.loss, rel=1e-10)


def test_forward_hooks_see_every_layer():
    """After a layer, tokens are those of the token form of the model."""
    model = tame_model("full", 4, 3, 2, 9)
    s = Problem(4, 9, "uniform(0,1)").sequences(2)
    module, seen = to_torch(model), []
    for layer in module.layers:
        layer.register_forward_hook(lambda layer, given, made: seen.append(made.detach().numpy()))
    module(*tensors(s.x, s.y, s.queries))
    np.testing.assert_allclose(seen, model.tokens(s.x, s.y, s.queries)[1:], atol=1e-12)


def test_a_layer_can_be_frozen_and_trained_in_other_dtypes():
    module = to_torch(tame_model("full", 4, 3, 1, 9), dtype=torch.bfloat16)
    module.layers[1].requires_grad_(False)
    s = Problem(4, 9, "uniform(0,1)").sequences(5)
    module(*tensors(s.x, s.y, s.queries, dtype=torch.bfloat16)).square().mean().backward()
    assert [layer.P.grad is None for layer in module.layers] == [False, True, False]


def test_a_module_can_be_saved_by_its_state():
    model = load("zoo:diag/3/uniform(0,5)")
    module = to_torch(LinearTransformer.random("diag", dim=10, layers=3, heads=model.heads))
    module.load_state_dict(to_torch(model).state_dict())
    assert np.array_equal(from_torch(module).P, model.P)


def test_bad_input_is_refused_in_words():
    model = tame_model("full", 4, 2, 1, 9)
    module = to_torch(model)
    x, y, queries = tensors(*np.random.default_rng(0).standard_normal((3, 2, 9, 4)))
    cases = {
        "from_torch needs a module that to_torch made; got a Linear": lambda: from_torch(torch.nn.Linear(2, 2)),
        "to_torch needs a LinearTransformer; got a dict": lambda: to_torch({}),
        "x must have shape (B, n, 4); got shape (2, 9, 3)": lambda: module(x[..., :3], y[..., 0], queries),
        "y must have shape (2, 9); got shape (2, 9, 4)": lambda: module(x, y, queries),
        "queries must be a tensor; got None": lambda: module(x, y[..., 0]),
        "x must have the dtype of the module, torch.float64; got torch.float32. Use x.to": lambda: module(
            x.float(), y[..., 0], queries
        ),
        "y must be on the device of the module, cpu; got meta": lambda: module(x, y[..., 0].to("meta"), queries),
        "gram must have shape (B, 5, 5); got shape (3, 3)": lambda: module(torch.eye(3)),
        "a model for dimension 4 takes moments of dimension 4": lambda: module(draw(3, 9).moments),
        "float32 or float64 numbers; got layers.0.P in torch.bfloat16": lambda: from_torch(
            to_torch(model, dtype=torch.bfloat16)
        ),
    }
    for words, call in cases.items():
        refused(call, words)
    module.layers[0].P.data = torch.zeros(1, 3, 3)
    refused(lambda: from_torch(module), "keep the layers and parameters that to_torch gave it")
