"""Training in PyTorch: problems as data sets, and a differentiable loss in moment form.

The loss is computed by the native kernel on the CPU, and by PyTorch elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from ridgeformer import engine as engines
from ridgeformer.engine.kernels import KERNELS, Kernel, half_square
from ridgeformer.engine.law import Layout
from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.problems import BaseProblem
from ridgeformer.torch.modules import PRECISE, TorchModel, checked, gram_tensor, is_transformed, kernel_of
from ridgeformer.validation import choice, integer, real


class MomentBatch(NamedTuple):
    """A batch of contexts in moment form; `moment_loss(module, *batch[:2], metric=batch.metric)` is its loss.

    Attributes:
        gram: Gram matrices of the tokens, [B, D, D]. By default the tokens are (x, y), and D = d + 1.
        target: The weights of the oracle, which knows the noise level, [B, d]; the tasks where there is no oracle.
        metric: The covariance of the queries, [d, d] or [B, d, d]; None for the identity.
        task: The task vectors, [B, d].
    """

    gram: Tensor
    target: Tensor
    metric: Tensor | None
    task: Tensor


class TokenBatch(NamedTuple):
    """A batch of sequences token by token; `token_loss(module, *batch)` is its loss.

    Attributes:
        x: Features of the contexts, [B, n, d].
        y: Labels of the contexts, [B, n].
        queries: Features of the queries, [B, m, d].
        answers: Their labels without noise, [B, m].
    """

    x: Tensor
    y: Tensor
    queries: Tensor
    answers: Tensor


class ProblemDataset(IterableDataset):
    """Batches of fresh sequences of a problem; use `DataLoader(dataset, batch_size=None)`.

    Batch k depends on the seed and on k alone. With W workers, worker w draws the batches w, w + W, ..., so that a
    `DataLoader` gives the same batches in the same order for every number of workers.

    Args:
        problem: The distribution of sequences.
        batch: How many sequences a batch has.
        form: `moments` for `MomentBatch`, or `tokens` for `TokenBatch`.
        batches: How many batches there are; None for no end.
        first: The number of the first batch, with which an interrupted loop goes on.
        seed: The seed.
        stream: A number that tells independent streams of one seed apart, such as training and test.
        queries: How many queries a sequence has in token form.
        dtype: float32 or float64.
        layout: In moment form, the layout of the model that takes the batches, `model.layout`: models with attention by
            mean, or with tokens that hold more than (x, y), need it. None for sums over tokens (x, y).
    """

    def __init__(
        self,
        problem: BaseProblem,
        batch: int,
        *,
        form: Literal["moments", "tokens"] = "moments",
        batches: int | None = None,
        first: int = 0,
        seed: int = 0,
        stream: int = 0,
        queries: int = 1,
        dtype: torch.dtype = torch.float32,
        layout: Layout | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(problem, BaseProblem):
            refuse("a data set needs a problem", kind_of(problem), 'Pass Problem(noise="uniform(0,5)").')
        choice("the form", form, ("moments", "tokens"))
        if dtype not in PRECISE:
            refuse("the dtype must be torch.float32 or torch.float64", shown(dtype), "Choose one of these.")
        if form == "tokens" and not problem.lengths.fixed:
            received = f"n = {problem.lengths}, which would be filled up with tokens that count as examples"
            remedy = 'Use form="moments", or a problem with one context length.'
            refuse("token form needs contexts of one length", received, remedy)
        if layout is not None and not isinstance(layout, Layout):
            refuse("the layout must be a Layout", shown(layout), "Pass model.layout.")
        self.problem, self.form, self.dtype = problem, form, dtype
        self.layout = Layout() if layout is None else layout
        self.batch = integer("batch", batch)
        self.batches = None if batches is None else integer("batches", batches)
        self.first, self.queries = integer("first", first, 0), integer("queries", queries)
        self.key: dict[str, Any] = {"seed": integer("seed", seed, 0), "stream": integer("stream", stream, 0)}

    def __iter__(self) -> Iterator[MomentBatch | TokenBatch]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        last = None if self.batches is None else self.first + self.batches
        yield from map(self.at, itertools.islice(itertools.count(), self.first + worker, last, workers))

    def at(self, number: int) -> MomentBatch | TokenBatch:
        """Return one batch.

        Args:
            number: Its number.

        Returns:
            The batch.
        """
        if self.form == "tokens":
            tokens = self.problem.sequences(self.batch, step=number, queries=self.queries, **self.key)
            return TokenBatch(*map(self._tensor, (tokens.x, tokens.y, tokens.queries, tokens.answers)))
        dtype = np.float32 if self.dtype is torch.float32 else np.float64
        sums = self.layout.coordinate != "none"
        draw = self.problem.moments(self.batch, step=number, dtype=dtype, sums=sums, **self.key)
        metric = None if draw.metric is None else self._tensor(draw.metric)
        gram = draw.moments.gram_of(self.layout)
        return MomentBatch(self._tensor(gram), self._tensor(draw.ridge), metric, self._tensor(draw.task))

    def _tensor(self, value: Any) -> Tensor:
        """A copy, because what a problem draws is read-only; it keeps the order in memory."""
        return torch.from_numpy(np.array(value, subok=False, order="K")).to(self.dtype)


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
    goal, weight = _tensor("target", target, (len(gram), model.dim), kernel[0]), None
    if metric is not None:
        every = () if len(np.shape(metric)) == 2 else (len(gram),)
        weight = _tensor("metric", metric, (*every, model.dim, model.dim), kernel[0])
    goal, weight = model.layout.target(goal, torch), model.layout.metric(weight, torch)
    constants = [value for value in (gram, goal, weight) if value is not None]
    native = all(value.device.type == "cpu" and value.dtype in PRECISE for value in (*kernel, *constants))
    if native and not is_transformed() and not any(value.requires_grad for value in constants):
        gradient = torch.is_grad_enabled() and any(value.requires_grad for value in kernel)
        return _native(type(kernel).__name__, list(kernel), gram, goal, weight, gradient)[0]
    return half_square(module.map_of(kernel, gram)[:, : goal.shape[1]] - goal, weight).mean()


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
        rule = "moment_loss needs a module that to_torch made, or its parameters by name"
        refuse(rule, kind_of(parameters), "Models outside moment form have token_loss.")
    if not isinstance(like, LinearTransformer):
        rule = "parameters by name need the model that they belong to"
        refuse(rule, f"like={like!r}", "Pass like=model, or a module.")
    expected = {name: value.shape for name, value in like.family.arrays.items()}
    shapes = {name: tuple(value.shape) for name, value in parameters.items()}
    if shapes != expected:
        refuse(f"parameters must have the names and shapes {expected}", shapes, "Use module.arrays().")
    return like, TorchModel(like), kernel_of(type(like.family), like.dim, parameters)


def _tensor(name: str, value: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor of this shape; arrays are copied and converted, tensors must fit as they are."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(np.array(real(name, value), subok=False, order="K")).to(like.device, like.dtype)
    return checked(name, value, shape, like)


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
        rule = "the gradient of the native kernel cannot be differentiated again"
        refuse(rule, "a second derivative", "Use module.weights(gram) and a loss of your own.")
    return None, [gradient[0] * piece for piece in ctx.saved_tensors], None, None, None, None


_native.register_autograd(_backward, setup_context=_save)
