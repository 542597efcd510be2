"""From the parameters of a family to what attention needs, differentiably: arrays -> kernel -> sum_k P_k G Q_k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from ridgeformer.engine.channels import channel_places
from ridgeformer.models.channels import NAMES, ChannelFamily
from ridgeformer.models.families import Diag, Full, GDpp
from ridgeformer.models.family import Family
from ridgeformer.models.looped import LoopedFamily

__all__ = ["attention", "kernel_of", "to_numpy"]


def to_numpy(value: Tensor) -> NDArray[Any]:
    """Return the numbers of a tensor as an array on the CPU.

    Args:
        value: The tensor.

    Returns:
        The array; it shares its memory with a tensor on the CPU. What NumPy has no dtype for becomes float32.
    """
    value = value.detach().cpu()
    found: NDArray[Any] = (value if value.dtype in (torch.float32, torch.float64) else value.float()).numpy()
    return found


def kernel_of(family: type[Family], dim: int, arrays: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Return what `Family.kernel` gives, as tensors through which gradients flow.

    For Full, Diag, GD++, channels, and their loops this is written in PyTorch. For any other family NumPy computes it
    on the CPU, and the family's own `pullback` is the derivative, which can then be taken once only.

    Args:
        family: The family.
        dim: The dimension d of the features.
        arrays: The parameters by the names of `family.arrays`.

    Returns:
        The kernel: (omega,), (P, Q), or the four arrays of channels.
    """
    if family is Full:
        return arrays["P"], arrays["Q"]
    if family is Diag or family is GDpp:
        return (_omega(arrays, family is GDpp),)
    if family.has_sizes and issubclass(family, ChannelFamily):
        return tuple(arrays[name] for name in NAMES)
    if family.has_sizes and issubclass(family, LoopedFamily):
        once = kernel_of(family.inner, dim, arrays)
        return tuple(value.repeat(family.loops, *[1] * (value.ndim - 1)) for value in once)
    return tuple(_Kernel.apply(family, dim, tuple(arrays), *arrays.values()))


def _omega(arrays: Mapping[str, Tensor], without_y: bool) -> Tensor:
    """[L, 2, 2]; the second column of GD++ is zero."""
    found = arrays.get("omega")
    if found is None:
        found = torch.einsum("lhi,lh->li" if without_y else "lhi,lhj->lij", arrays["p"], arrays["q"])
    return torch.stack([found, torch.zeros_like(found)], -1) if without_y else found


class _Kernel(torch.autograd.Function):
    """The kernel of any family, by its own methods."""

    @staticmethod
    def forward(ctx: Any, family: type[Family], dim: int, names: tuple[str, ...], *values: Tensor) -> Any:
        arrays = {name: to_numpy(value) for name, value in zip(names, values, strict=True)}
        ctx.made, ctx.names = family(**arrays), names
        ctx.save_for_backward(*values)
        return tuple(values[0].new_tensor(np.array(piece)) for piece in ctx.made.kernel(dim))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradient: Tensor) -> Any:
        slope = ctx.made.pullback(tuple(to_numpy(piece).astype(np.float64) for piece in gradient))
        given = zip(ctx.names, ctx.saved_tensors, strict=True)
        return None, None, None, *(value.new_tensor(np.array(slope[name])) for name, value in given)


def attention(parameters: tuple[Tensor, ...], gram: Tensor) -> Tensor:
    """Return sum_k P_k G Q_k of one layer: a token e becomes e + (this) e.

    Args:
        parameters: One layer of the kernel: omega [2, 2]; P and Q [H, D, D]; or the matrices of channels, Pv and Qv
            [H, v, v], Ps and Qs [H, s, s].
        gram: Gram matrices of the context's tokens, [..., D, D].

    Returns:
        Matrices [..., D, D].
    """
    D = gram.shape[-1]
    if len(parameters) == 1:
        side = torch.tensor([0] * (D - 1) + [1], device=gram.device)
        return parameters[0][side[:, None], side] * gram
    if len(parameters) == 4:
        Pv, Qv, Ps, Qs = parameters
        parameters = _blocks(Pv, Ps, D), _blocks(Qv, Qs, D)
    P, Q = parameters
    return torch.einsum("kij,...jl,klm->...im", P, gram, Q)


def _blocks(vectors: Tensor, scalars: Tensor, D: int) -> Tensor:
    """The matrices that parameters of channels stand for, [H, D, D]; see `dense_channels`."""
    v, s = vectors.shape[-1], scalars.shape[-1]
    at, single = (torch.from_numpy(one).to(vectors.device) for one in channel_places(v, s, (D - s) // v))
    found = vectors.new_zeros((len(vectors), D, D))
    found[:, at[:, None, :], at[None, :, :]] = vectors[..., None].expand(-1, -1, -1, at.shape[1])
    found[:, single[:, None], single[None, :]] = scalars
    return found
