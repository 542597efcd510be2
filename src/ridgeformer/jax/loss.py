"""The loss of a model in moment form, differentiable: the native kernel on the CPU, XLA elsewhere."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ridgeformer import engine as engines
from ridgeformer.engine.xla import half_square, map_of
from ridgeformer.errors import refuse
from ridgeformer.jax.model import JaxParameters, check_parameters, floating, gram_array, kernel_of
from ridgeformer.moments import Moments


def moment_loss(parameters: JaxParameters, moments: Moments | Any, target: Any, *, metric: Any = None) -> Any:
    """Return the mean loss 1/2 (w_hat - target)' metric (w_hat - target) of contexts.

    On the CPU the native kernel computes loss and gradient in one pass; on other devices, and in other dtypes than
    float32 and float64, XLA does. The gradient is with respect to the parameters: moments, targets and metrics count as
    constants. It can be taken once.

    Args:
        parameters: What `to_jax` returned.
        moments: `Moments`, or Gram matrices of the model's tokens, [B, D, D].
        target: What w_hat is compared with, [B, d], such as `draw.ridge` or `draw.task`.
        metric: The covariance of the queries, [d, d] or [B, d, d]; None for the identity.

    Returns:
        The mean loss.

    Raises:
        InputError: These are no parameters, or shapes do not fit.

    >>> from ridgeformer import LinearTransformer, Problem
    >>> from ridgeformer.jax import to_jax
    >>> parameters, _ = to_jax(LinearTransformer.random("diag", dim=5, layers=3, context=100))
    >>> draw = Problem(dim=5, context=10, noise="uniform(0,2)").moments(1000)
    >>> jax.grad(moment_loss)(parameters, draw.moments, draw.ridge)["p"].shape
    (3, 1, 2)
    """
    form = check_parameters(parameters)
    gram = gram_array(form, moments)
    goal = floating("target", target)
    if gram.ndim != 3 or goal.shape != (len(gram), form.dim):
        refuse(
            f"gram and target must have shapes (B, {form.width + 1}, {form.width + 1}) and (B, {form.dim})",
            f"{gram.shape} and {goal.shape}",
            "Pass one of each for every context.",
        )
    weight = None if metric is None else floating("metric", metric)
    if weight is not None and weight.shape not in ((form.dim, form.dim), (len(gram), form.dim, form.dim)):
        shapes = f"({form.dim}, {form.dim}) or ({len(gram)}, {form.dim}, {form.dim})"
        refuse(f"metric must have shape {shapes}", f"shape {weight.shape}", "Pass one for all contexts or for each.")
    if form.layout.counted:
        goal = jnp.pad(goal, ((0, 0), (0, 1)))
        if weight is not None:
            weight = jnp.pad(weight, [(0, 0)] * (weight.ndim - 2) + [(0, 1), (0, 1)]).at[..., -1, -1].set(1.0)
    kernel = kernel_of(parameters)
    kernel = type(kernel)(*(value.astype(gram.dtype) for value in kernel))
    return _loss(kernel, gram, goal.astype(gram.dtype), None if weight is None else weight.astype(gram.dtype))


def _forward(kernel: Any, gram: Any, goal: Any, weight: Any) -> tuple[Any, Any]:
    """The loss, and its gradient with respect to the kernel; the native one is for float32 and float64."""
    if gram.dtype.itemsize < 4:
        return _xla(kernel, gram, goal, weight)
    return jax.lax.platform_dependent(kernel, gram, goal, weight, cpu=_native, default=_xla)


def _xla(kernel: Any, gram: Any, goal: Any, weight: Any) -> tuple[Any, Any]:
    def loss(given: Any) -> Any:
        return half_square(map_of(given, gram)[..., : goal.shape[-1]] - goal, weight).mean()

    return jax.value_and_grad(loss)(kernel)


def _native(kernel: Any, gram: Any, goal: Any, weight: Any) -> tuple[Any, Any]:
    """One pass of the current engine, outside XLA."""
    dtype = gram.dtype

    def compute(kernel: Any, gram: Any, goal: Any, weight: Any) -> Any:
        given = type(kernel)(*(np.asarray(value) for value in kernel))
        metric = None if weight is None else np.asarray(weight)
        result = engines.current().evaluate(
            given, np.asarray(gram), np.asarray(goal), metric=metric, counted=goal.shape[-1]
        )
        assert result.gradient is not None
        return np.asarray(result.loss, dtype), type(kernel)(*(piece.astype(dtype) for piece in result.gradient))

    shapes = jax.ShapeDtypeStruct((), dtype), type(kernel)(*(jax.ShapeDtypeStruct(v.shape, dtype) for v in kernel))
    return jax.pure_callback(compute, shapes, kernel, gram, goal, weight, vmap_method="sequential")


@jax.custom_vjp
def _loss(kernel: Any, gram: Any, goal: Any, weight: Any) -> Any:
    return _forward(kernel, gram, goal, weight)[0]


def _backward(slope: Any, outer: Any) -> tuple[Any, None, None, None]:
    return type(slope)(*(outer * piece for piece in slope)), None, None, None


_loss.defvjp(_forward, _backward)
