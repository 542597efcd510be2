"""From the parameters of a family to its kernel, differentiably."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from ridgeformer.engine import Kernel
from ridgeformer.models.family import Family

__all__ = ["kernel_of", "to_numpy"]


def to_numpy(value: Tensor) -> NDArray[Any]:
    """Return the numbers of a tensor as an array on the CPU.

    Args:
        value: The tensor.

    Returns:
        The array; it shares its memory with a tensor on the CPU. What NumPy has no dtype for becomes float32.
    """
    value = value.detach().cpu()
    array: NDArray[Any] = (value if value.dtype in (torch.float32, torch.float64) else value.float()).numpy()
    return array


def kernel_of(family: type[Family], dim: int, arrays: Mapping[str, Tensor]) -> Kernel:
    """Return what `Family.kernel` gives, as tensors through which gradients flow.

    Families that do not say how (`Family.kernel_of`) compute it in NumPy on the CPU, and their own `pullback` is the
    derivative, which can then be taken once only.

    Args:
        family: The family.
        dim: The dimension d of the features.
        arrays: The parameters by the names of `family.arrays`.

    Returns:
        The kernel, of tensors.
    """
    kernel = family.kernel_of(arrays, torch) if family.built_in else None
    if kernel is not None:
        return kernel
    parameters = family(**{name: to_numpy(value) for name, value in arrays.items()})
    kernel = parameters.kernel(dim)
    return type(kernel)(*_Kernel.apply(parameters, kernel, tuple(arrays), *arrays.values()))


class _Kernel(torch.autograd.Function):
    """The kernel of any family, by its own methods."""

    @staticmethod
    def forward(ctx: Any, family: Family, kernel: Kernel, names: tuple[str, ...], *values: Tensor) -> Any:
        ctx.family, ctx.kind, ctx.names = family, type(kernel), names
        ctx.save_for_backward(*values)
        return tuple(values[0].new_tensor(np.array(piece)) for piece in kernel)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradient: Tensor) -> Any:
        slope = ctx.family.pullback(ctx.kind(*(to_numpy(piece).astype(np.float64) for piece in gradient)))
        given = zip(ctx.names, ctx.saved_tensors, strict=True)
        return None, None, None, *(value.new_tensor(np.array(slope[name])) for name, value in given)
