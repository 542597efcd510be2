"""`moment_loss`: the native kernel as an operator of PyTorch, against autograd through tokens."""

import numpy as np
import pytest

from ridgeformer import Layout, LinearTransformer, Moments, Problem
from support import refused, tame_model

torch = pytest.importorskip("torch")

from ridgeformer.torch import moment_loss, to_torch, token_loss  # noqa: E402

KINDS = ("full", "diag", "gdpp")
UNITS = torch.eye(4, dtype=torch.float64)


def case(kind="full", count=6, layout=None):
    model = tame_model(kind, 4, 3, 2, 9)
    if layout is not None:
        model = LinearTransformer.random("full", dim=4, layers=3, scale=0.1, context=90, layout=layout)
    s = Problem(4, 9, "uniform(0,1)").sequences(count)
    return model, s, torch.tensor(np.asarray(s.task))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_autograd_through_tokens(kind):
    """The token form with the unit vectors as queries: their predictions are the weights. To 1e-8 of the largest."""
    model, s, task = case(kind)
    x, y = (torch.tensor(np.asarray(value)) for value in (s.x, s.y))
    module = to_torch(model)
    expected = 0.5 * (module(x, y, UNITS.expand(6, 4, 4)) - task).square().sum(1).mean()
    expected.backward()
    slopes = [value.grad.clone() for value in module.parameters()]
    module.zero_grad()
    found = moment_loss(module, s.moments, task)
    found.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    largest = max(slope.abs().max() for slope in slopes)
    for value, slope in zip(module.parameters(), slopes, strict=True):
        assert (value.grad - slope).abs().max() <= 1e-8 * largest


@pytest.mark.parametrize("layout", [None, Layout("mean", "constant"), Layout("sum", "none", 2)], ids=repr)
@pytest.mark.parametrize("metrics", ["none", "one", "each"])
def test_the_recursion_in_pytorch_does_the_same(layout, metrics):
    """It runs where the native kernel cannot: here, because the targets need a gradient."""
    model, s, task = case(layout=layout)
    moments = Moments.from_tokens(s.x, s.y)
    R = np.random.default_rng(1).standard_normal((6, 4, 4))
    metric = {"none": None, "one": R[0] @ R[0].T, "each": R @ np.swapaxes(R, 1, 2)}[metrics]
    module = to_torch(model)
    native = moment_loss(module, moments, task, metric=metric)
    assert native.item() == pytest.approx(model.evaluate(moments, s.task, metric=metric).loss, rel=1e-12)
    native.backward()
    slopes = [value.grad.clone() for value in module.parameters()]
    module.zero_grad()
    plain = moment_loss(module, moments, task.requires_grad_(), metric=metric)
    plain.backward()
    assert plain.item() == pytest.approx(native.item(), rel=1e-12)
    for value, slope in zip(module.parameters(), slopes, strict=True):
        torch.testing.assert_close(value.grad, slope, rtol=1e-9, atol=1e-12)


def test_the_operator_passes_the_checks_of_pytorch():
    model, s, task = case()
    kernel = [value.detach().requires_grad_() for value in to_torch(model).kernel()]
    gram = torch.tensor(np.array(s.moments.gram))
    torch.library.opcheck(torch.ops.ridgeformer.moment_loss.default, ("Matrices", kernel, gram, task, None, True))


def test_a_second_derivative_is_refused():
    model, s, task = case()
    module = to_torch(model)
    loss = moment_loss(module, s.moments, task)
    refused(lambda: torch.autograd.grad(loss, module.layers[0].P, create_graph=True), "cannot be differentiated again")
    with torch.no_grad():
        assert not moment_loss(module, s.moments, task).requires_grad


def test_bad_input_is_refused_in_words():
    model, s, task = case()
    module, moments = to_torch(model), s.moments
    cases = {
        "needs a module that to_torch made ... got a Linear": lambda: moment_loss(torch.nn.Linear(1, 1), moments, task),
        "need the model that they belong to": lambda: moment_loss(module.arrays(), moments, task),
        "parameters must have the names and shapes": lambda: moment_loss({}, moments, task, like=model),
        "target must have shape (6, 4); got shape (6, 3)": lambda: moment_loss(module, moments, task[:, :3]),
        "target must have the dtype of the module": lambda: moment_loss(module, moments, task.float()),
        "target must be on the device of the module, cpu": lambda: moment_loss(module, moments, task.to("meta")),
        "metric must have shape (6, 4, 4)": lambda: moment_loss(module, moments, task, metric=np.zeros((2, 4, 4))),
        "gram must be a tensor; got a list": lambda: moment_loss(module, [1], task),
    }
    for words, call in cases.items():
        refused(call, words)


def test_the_loss_of_tokens_is_half_the_squared_error():
    model, s, _ = case()
    given = [torch.tensor(np.asarray(value)) for value in (s.x, s.y, s.queries, s.answers)]
    expected = 0.5 * np.square(model.predict(s.x, s.y, s.queries) - s.answers).mean()
    assert token_loss(to_torch(model), *given).item() == pytest.approx(expected, rel=1e-12)
