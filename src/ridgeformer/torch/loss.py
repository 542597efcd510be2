"""The loss of a model in moment form, differentiable: the native kernel on the CPU, PyTorch elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ridgeformer import engine as engines
from ridgeformer.engine.kernels import KERNELS, Kernel
from ridgeformer.errors import kind_of, refuse
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.torch.modules import TorchModel, check_tensor, gram_tensor, is_transformed, kernel_of
from ridgeformer.validation import real

PRECISE = (torch.float32, torch.float64)


def moment_loss(
    parameters: TorchModel | Mapping[str, Tensor],
    moments: Moments | Tensor,
    target: Any,
    *,
    metric: Any = None,
    like: LinearTransformer | None = None,
) -> Tensor:
    """Return the mean loss 1/2 (w_hat - target)' metric (w_hat - target) of contexts.

    On the CPU the native kernel computes loss and gradient in one pass, by the operator `ridgeformer::moment_loss`. On
    other devices, in other dtypes than float32 and float64, inside `torch.func.grad` and `torch.func.vmap`, and where
    moments or targets need a gradient themselves, the same recursion runs in PyTorch. The gradient of the native kernel
    leaves out sequences on which the model overflows; it cannot be differentiated again.

    Args:
        parameters: A module that `to_torch` made, or its parameters by name (see `like`).
        moments: `Moments`, or Gram matrices of the model's tokens, [B, D, D].
        target: What w_hat is compared with, [B, d]: a tensor, or an array such as `draw.ridge` or `draw.task`.
        metric: The covariance of the queries, [d, d] or [B, d, d]; None for the identity.
        like: The model whose parameters these are, where they come by name.

    Returns:
        The mean loss, a tensor without axes.

    Raises:
        InputError: Shapes, dtypes or devices do not fit.

    >>> from ridgeformer import LinearTransformer, Problem
    >>> from ridgeformer.torch import to_torch
    >>> module = to_torch(LinearTransformer.random("diag", dim=5, layers=3, context=100))
    >>> draw = Problem(dim=5, context=10, noise="uniform(0,2)").moments(1000)
    >>> loss = moment_loss(module, draw.moments, draw.ridge)
    >>> loss.backward()
    >>> module.layers[0].p.grad.shape
    torch.Size([1, 2])
    """
    model, module, kernel = _kernel(parameters, like)
    gram = gram_tensor(model, moments, kernel[0])
    goal = _checked("target", target, (len(gram), model.dim), kernel[0])
    weight = None
    if metric is not None:
        alone = np.ndim(metric) == 2 if not isinstance(metric, Tensor) else metric.ndim == 2
        shape = (model.dim, model.dim) if alone else (len(gram), model.dim, model.dim)
        weight = _checked("metric", metric, shape, kernel[0])
    if model.layout.counted:
        goal, weight = _counted(goal, weight)
    rest = [gram, goal, *([] if weight is None else [weight])]
    native = all(value.device.type == "cpu" and value.dtype in PRECISE for value in (*kernel, *rest))
    if native and not is_transformed() and not any(value.requires_grad for value in rest):
        gradient = torch.is_grad_enabled() and any(value.requires_grad for value in kernel)
        loss: Tensor = _native(type(kernel).__name__, list(kernel), gram, goal, weight, gradient)[0]
        return loss
    error = module.map_of(kernel, gram)[:, : goal.shape[1]] - goal
    weighed = error if weight is None else (weight @ error[..., None])[..., 0]
    return 0.5 * (error * weighed).sum(1).mean()


def token_loss(module: torch.nn.Module, x: Tensor, y: Tensor, queries: Tensor, answers: Tensor) -> Tensor:
    """Return half the mean squared error of a module's predictions: the loss of any model in token form.

    Args:
        module: Any module that is called as `module(x, y, queries)`.
        x: Features of the contexts, [B, n, d].
        y: Labels of the contexts, [B, n].
        queries: Features of the queries, [B, m, d].
        answers: What is to be predicted, [B, m].

    Returns:
        The mean loss, a tensor without axes.
    """
    return 0.5 * (module(x, y, queries) - answers).square().mean()


def _kernel(
    parameters: TorchModel | Mapping[str, Tensor], like: LinearTransformer | None
) -> tuple[LinearTransformer, TorchModel, Kernel]:
    """The model, a module of its shape, and the kernel of the parameters."""
    if isinstance(parameters, TorchModel):
        return parameters.source, parameters, parameters.kernel()
    if isinstance(parameters, torch.nn.Module) or not isinstance(parameters, Mapping):
        refuse(
            "moment_loss needs a module that to_torch made, or its parameters by name",
            kind_of(parameters),
            "Models outside moment form have token_loss.",
        )
    if not isinstance(like, LinearTransformer):
        refuse(
            "parameters by name need the model that they belong to", f"like={like!r}", "Pass like=model, or a module."
        )
    wanted = {name: value.shape for name, value in like.family.arrays.items()}
    given = {name: tuple(value.shape) for name, value in parameters.items()}
    if given != wanted:
        refuse(f"parameters must have the names and shapes {wanted}", given, "Use module.arrays().")
    return like, TorchModel(like), kernel_of(type(like.family), like.dim, parameters)


def _checked(name: str, value: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor of this shape; arrays are copied and converted, tensors must fit as they are."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(np.array(real(name, value), subok=False, order="K")).to(like.device, like.dtype)
    check_tensor(name, value, shape, like)
    tensor: Tensor = value
    return tensor


def _counted(goal: Tensor, metric: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Target and metric with one more coordinate, for the intercept."""
    goal = torch.nn.functional.pad(goal, (0, 1))
    if metric is not None:
        metric = torch.nn.functional.pad(metric, (0, 1, 0, 1))
        metric[..., -1, -1] = 1.0
    return goal, metric


@torch.library.custom_op("ridgeformer::moment_loss", mutates_args=())
def _native(
    kind: str, kernel: list[Tensor], gram: Tensor, target: Tensor, metric: Tensor | None, gradient: bool
) -> list[Tensor]:
    """The mean loss, and its gradient with respect to the kernel if asked for."""
    result = engines.current().evaluate(
        KERNELS[kind](*(value.detach().numpy() for value in kernel)),
        gram.detach().numpy(),
        target.detach().numpy(),
        metric=None if metric is None else metric.detach().numpy(),
        counted=target.shape[1],
        gradient=gradient,
    )
    slope = result.gradient or ()
    return [gram.new_tensor(result.loss), *(torch.from_numpy(piece).to(gram.dtype) for piece in slope)]


@_native.register_fake
def _(
    kind: str, kernel: list[Tensor], gram: Tensor, target: Tensor, metric: Tensor | None, gradient: bool
) -> list[Tensor]:
    return [gram.new_empty(()), *(gram.new_empty(value.shape) for value in kernel if gradient)]


def _save(ctx: Any, inputs: Any, output: list[Tensor]) -> None:
    ctx.save_for_backward(*output[1:])


def _backward(ctx: Any, gradient: list[Tensor]) -> Any:
    if torch.is_grad_enabled():  # create_graph=True: the saved gradient would count as a constant
        refuse(
            "the gradient of the native kernel cannot be differentiated again",
            "a second derivative",
            "Use module.weights(gram) and a loss of your own.",
        )
    return None, [gradient[0] * piece for piece in ctx.saved_tensors], None, None, None, None


_native.register_autograd(_backward, setup_context=_save)
