"""Linear transformers as PyTorch modules, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ridgeformer.engine import Kernel, Layout
from ridgeformer.engine.kernels import layer_of
from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.models.family import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.validation import fits

PRECISE = (torch.float32, torch.float64)
TAKEN = frozenset({*dir(nn.Module()), "value"})  # attributes that modules use for something else


def to_numpy(value: Tensor) -> NDArray[Any]:
    """Return the numbers of a tensor as an array on the CPU.

    Args:
        value: The tensor.

    Returns:
        The array; it shares its memory with a tensor on the CPU. What NumPy has no dtype for becomes float32.
    """
    value = value.detach().cpu()
    array: NDArray[Any] = (value if value.dtype in PRECISE else value.float()).numpy()
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
        values = zip(ctx.names, ctx.saved_tensors, strict=True)
        return None, None, None, *(value.new_tensor(np.array(slope[name])) for name, value in values)


class _Values(nn.Module):
    """Parameters by name. A name that modules use for something else, such as `half`, gets an underscore."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, value in values.items():
            self.register_parameter(_attribute(name), nn.Parameter(value))

    def value(self, name: str) -> Tensor:
        """Return a parameter.

        Args:
            name: Its name in `family.arrays`.

        Returns:
            The parameter.
        """
        parameter: Tensor = getattr(self, _attribute(name))
        return parameter


class TorchLayer(_Values):
    """One layer of linear attention, and its parameters; none where layers share theirs, which belong to the model."""

    def forward(self, tokens: Tensor, gram: Tensor, kernel: Kernel) -> Tensor:
        """Apply e -> e + sum_k P_k G Q_k e, which is linear attention to the context.

        Args:
            tokens: The tokens, [B, t, D].
            gram: The Gram matrices of the context's tokens at this layer, [B, D, D].
            kernel: One layer of `TorchModel.kernel`.

        Returns:
            The tokens after the layer, [B, t, D].
        """
        return tokens + tokens @ kernel.attention(gram, torch).mT


class TorchModel(nn.Module):
    """A linear transformer as a PyTorch module; `to_torch` makes it.

    Each layer is a submodule of `layers`, which maps tokens to tokens, so that forward hooks see what every layer does.
    It holds its own parameters under the names of `family.arrays`. Parameters that belong to no single layer are in
    `shared`. On moments, the tokens are the unit vectors: after a layer, they are the rows of the transposed map that
    the layers so far apply to every token.

    Args:
        model: The model. Its family, dimension and layout stay; its numbers become parameters.
    """

    def __init__(self, model: LinearTransformer) -> None:
        super().__init__()
        self.source = model
        values = {name: torch.from_numpy(np.array(value)) for name, value in model.family.arrays.items()}
        self.names = tuple(values)
        self.axis = model.family.layer_axis
        by_layer, shared = ({}, values) if self.axis is None else (values, {})
        self.layers = nn.ModuleList(
            TorchLayer({name: value.select(self.axis, layer).clone() for name, value in by_layer.items()})
            for layer in range(model.layers)
        )
        self.shared = _Values(shared)

    def arrays(self) -> dict[str, Tensor]:
        """Return all parameters under the names and in the shapes of `family.arrays`, differentiably."""
        if self.axis is None:
            return {name: self.shared.value(name) for name in self.names}
        return {name: torch.stack([layer.value(name) for layer in self.layers], self.axis) for name in self.names}

    def kernel(self) -> Kernel:
        """Return what an engine takes, layers first, differentiably; see `Family.kernel`."""
        return kernel_of(type(self.source.family), self.source.dim, self.arrays())

    def forward(self, x: Tensor | Moments, y: Tensor | None = None, queries: Tensor | None = None) -> Tensor:
        """Predict the labels of queries from tokens, or compute the weights from moments.

        Args:
            x: Features of the contexts, [B, n, d]; or `Moments`, or Gram matrices of the model's tokens [B, D, D].
            y: Labels of the contexts, [B, n].
            queries: Features of the queries, [B, m, d].

        Returns:
            The predictions, [B, m]; from moments the weights, [B, d].

        Raises:
            InputError: A tensor has the wrong shape or dtype, or is on another device than the parameters.
        """
        if y is None and queries is None:
            return self.weights(x)
        layout, dim = self.source.layout, self.source.dim
        like = next(self.parameters())
        x = checked("x", x, ("B", "n", dim), like)
        batch, n = x.shape[:2]
        y, queries = checked("y", y, (batch, n), like), checked("queries", queries, (batch, "m", dim), like)
        asked = layout.tokens(queries, torch.zeros_like(queries[..., 0]), float(layout.counted), torch)
        tokens = torch.cat([layout.context_tokens(x, y, torch), asked], 1)
        share = 1 / n if layout.attention == "mean" else 1.0
        kernel = self.kernel()
        for number, layer in enumerate(self.layers):
            seen = tokens[:, : n + layout.opening]
            tokens = layer(tokens, share * (seen.mT @ seen), layer_of(kernel, number))
        return -tokens[:, n + layout.opening :, -1]

    def weights(self, moments: Moments | Tensor) -> Tensor:
        """Compute w_hat: the prediction for a query x is <w_hat, x>, plus the intercept if there is one.

        Args:
            moments: `Moments`, or Gram matrices of the model's tokens, [B, D, D].

        Returns:
            The weights, [B, d].

        Raises:
            InputError: These are no moments of the model's dimension, dtype and device.
        """
        gram = gram_tensor(self.source, moments, next(self.parameters()))
        return self.map_of(self.kernel(), gram)[:, : self.source.dim]

    @property
    def layout(self) -> Layout:
        """The layout of the tokens: their entries beside (x, y), and whether attention is a sum or a mean."""
        return self.source.layout

    def intercepts(self, moments: Moments | Tensor) -> Tensor:
        """Compute what predictions contain beside <w_hat, x>: 0 unless the tokens have a constant coordinate.

        Args:
            moments: As for `weights`.

        Returns:
            The intercepts, [B].

        Raises:
            InputError: As for `weights`.
        """
        gram = gram_tensor(self.source, moments, next(self.parameters()))
        if not self.layout.counted:
            return gram.new_zeros(len(gram))
        return self.map_of(self.kernel(), gram)[:, self.source.dim]

    def map_of(self, kernel: Kernel, gram: Tensor) -> Tensor:
        """Compute what predictions are made of: minus the last row of the map that all layers apply to a token.

        Args:
            kernel: What an engine takes, layers first.
            gram: Gram matrices of the model's tokens, [B, D, D].

        Returns:
            The weights of all coordinates beside y, [B, D - 1].
        """
        unit = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        tokens = unit.expand_as(gram)
        for number, layer in enumerate(self.layers):
            tokens = layer(tokens, tokens.mT @ gram @ tokens, layer_of(kernel, number))
        return -tokens[:, :-1, -1]

    def extra_repr(self) -> str:
        """Return what the module is, for its text."""
        return repr(self.source)


def _attribute(name: str) -> str:
    """The attribute of a module that holds a parameter."""
    return f"{name}_" if name in TAKEN else name


def to_torch(
    model: LinearTransformer, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> TorchModel:
    """Turn a model into a PyTorch module with the same numbers.

    Args:
        model: The model, of any family.
        dtype: The dtype of the parameters; None for that of the model.
        device: Where they are; None for the CPU.

    Returns:
        The module.

    Raises:
        InputError: This is no `LinearTransformer`.
    """
    if type(model) is not LinearTransformer:
        refuse("to_torch needs a LinearTransformer", kind_of(model), "Pass a model, such as run.model.")
    return TorchModel(model).to(dtype=dtype, device=device)


def from_torch(module: TorchModel) -> LinearTransformer:
    """Turn a module that `to_torch` made back into a model, with the numbers that its parameters have now.

    Args:
        module: The module; its parameters must be float32 or float64, and finite.

    Returns:
        The model.

    Raises:
        InputError: This is another module, or its parameters have other shapes than a model has.
    """
    if not isinstance(module, TorchModel):
        refuse(
            "from_torch needs a module that to_torch made",
            kind_of(module),
            "Modules of other architectures have no LinearTransformer that is the same function.",
        )
    source = module.source
    for name, value in module.named_parameters():
        if value.dtype not in PRECISE:
            refuse("a model has float32 or float64 numbers", f"{name} in {value.dtype}", "Call module.double().")
    try:
        arrays = {name: np.array(to_numpy(value)) for name, value in module.arrays().items()}
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        rule = "a module must keep the layers and parameters that to_torch gave it"
        refuse(rule, shown(error), "Call to_torch again.")
    return LinearTransformer(type(source.family)(**arrays), source.dim, source.layout)


def checked(name: str, value: object, shape: tuple[int | str, ...], like: Tensor | None = None) -> Tensor:
    """Return a tensor if it has this shape, and the dtype and device of another tensor.

    Args:
        name: What it is, for the message.
        value: The tensor.
        shape: Its shape; a letter stands for any size of at least 1.
        like: A parameter of the module; None to accept any dtype and device.

    Returns:
        The tensor.

    Raises:
        InputError: It does not fit.
    """
    if not isinstance(value, Tensor):
        refuse(f"{name} must be a tensor", kind_of(value), f"Use torch.as_tensor({name}).")
    if not fits(value.shape, shape) or 0 in value.shape:
        expected = ", ".join(map(str, shape))
        refuse(f"{name} must have shape ({expected})", f"shape {tuple(value.shape)}", "Reshape or slice it to fit.")
    if like is not None and value.dtype != like.dtype:
        remedy = f"Use {name}.to({like.dtype}), or module.to({name}.dtype)."
        refuse(f"{name} must have the dtype of the module, {like.dtype}", str(value.dtype), remedy)
    if like is not None and value.device != like.device:
        remedy = f"Use {name}.to({str(like.device)!r})."
        refuse(f"{name} must be on the device of the module, {like.device}", str(value.device), remedy)
    return value


def gram_tensor(model: LinearTransformer, moments: Moments | Tensor | Any, like: Tensor) -> Tensor:
    """Return the Gram matrices of a model's tokens.

    Args:
        model: The model, whose layout says what its tokens hold.
        moments: `Moments`, which are converted; or a tensor [B, D, D], which must fit as it is.
        like: A tensor of the dtype and on the device that is wanted.

    Returns:
        Gram matrices, [B, D, D].

    Raises:
        InputError: They do not fit.
    """
    if isinstance(moments, Moments):
        model._check(moments)
        # A copy that keeps the order in memory, which the native kernel likes: moments must not change.
        return torch.from_numpy(np.array(moments.gram_of(model.layout), order="K")).to(like.device, like.dtype)
    width = model.width + 1
    if isinstance(moments, Tensor) and model.layout.extra and moments.shape[1:] == (model.dim + 1,) * 2:
        rule = f"gram must have shape (B, {width}, {width}), because tokens hold {model.layout.extra} more than (x, y)"
        remedy = "Pass Moments, or batches of ProblemDataset(..., layout=model.layout)."
        refuse(rule, f"shape {tuple(moments.shape)}, that of (x, y)", remedy)
    gram = checked("gram", moments, ("B", width, width), like)
    if not is_transformed() and not torch.compiler.is_compiling():
        with torch.no_grad():
            differs = (gram - gram.mT).abs().amax() > 1e-3 * gram.abs().amax()
        if differs:  # False where there is NaN
            refuse("gram must be symmetric", "matrices that are not", "Pass Moments, or X.mT @ X of tokens X.")
    return gram


def is_transformed() -> bool:
    """Tell whether this call happens inside `torch.func.grad`, `vmap` or another transformation of functions."""
    return bool(torch._C._are_functorch_transforms_active())
