"""Linear transformers as parameters and a pure function of JAX, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ridgeformer import engine as engines
from ridgeformer.engine import Kernel, Layout
from ridgeformer.engine.kernels import half_square
from ridgeformer.engine.xla import map_of
from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.models.family import Family
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments, is_symmetric
from ridgeformer.validation import fits, unmasked


class Form(NamedTuple):
    """The shape of a model: all of it beside its numbers.

    Attributes:
        family: The family.
        dim: The dimension d of the features.
        layout: What its tokens hold, and whether attention is a sum or a mean.
    """

    family: type[Family]
    dim: int
    layout: Layout

    @property
    def width(self) -> int:
        """How many coordinates a token has beside y."""
        return self.dim + self.layout.extra


@dataclass(frozen=True)
class JaxParameters:
    """The parameters of a model: a pytree whose leaves are the arrays of its family.

    Gradients with respect to it, and what `jax.tree.map` makes of it, are of this class too.

    Attributes:
        arrays: The parameters under the names and in the shapes of `family.arrays`.
        form: The family, the dimension and the layout, which no transformation changes.
    """

    arrays: dict[str, Any]
    form: Form

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]


jax.tree_util.register_dataclass(JaxParameters, ["arrays"], ["form"])


def to_jax(model: LinearTransformer) -> tuple[JaxParameters, Callable[..., Any]]:
    """Turn a model into parameters and a pure function, which work under `jit`, `grad` and `vmap`.

    The leaves are NumPy arrays with the model's own numbers. JAX computes with them in float64 only where the user has
    enabled that (`jax_enable_x64`), and in float32 otherwise.

    Args:
        model: The model, of any family.

    Returns:
        The parameters, and `apply`.

    Raises:
        InputError: This is no `LinearTransformer`.
    """
    if type(model) is not LinearTransformer:
        refuse("to_jax needs a LinearTransformer", kind_of(model), "Pass a model, such as run.model.")
    arrays = {name: np.array(value) for name, value in model.family.arrays.items()}
    return JaxParameters(arrays, Form(type(model.family), model.dim, model.layout)), apply


def from_jax(parameters: JaxParameters | Mapping[str, Any], like: LinearTransformer | None = None) -> LinearTransformer:
    """Turn parameters back into a model.

    Args:
        parameters: What `to_jax` returned, or what a training made of it; or its arrays by name (see `like`).
        like: A model of the same family, dimension and layout, where the arrays come by name.

    Returns:
        The model.

    Raises:
        InputError: These are no parameters of a model.
    """
    if isinstance(parameters, Mapping) and isinstance(like, LinearTransformer):
        parameters = JaxParameters(dict(parameters), Form(type(like.family), like.dim, like.layout))
    form = check_parameters(parameters)
    try:
        arrays = {name: np.array(value) for name, value in parameters.arrays.items()}  # type: ignore[union-attr]
        family = form.family(**arrays)
    except TypeError as error:
        rule = f"the parameters of a {form.family.name} model must have their names"
        refuse(rule, shown(error), "Pass what to_jax returned.")
    return LinearTransformer(family, form.dim, form.layout)


def apply(parameters: JaxParameters, x: Any, y: Any = None, queries: Any = None) -> Any:
    """Compute the weights from moments, or predict the labels of queries from tokens.

    Every argument may have any number of axes before those named here, none included.

    Args:
        parameters: What `to_jax` returned.
        x: `Moments`, or Gram matrices of the model's tokens [..., D, D]; or features of contexts, [..., n, d].
        y: Labels of the contexts, [..., n].
        queries: Features of the queries, [..., m, d].

    Returns:
        The weights, [..., d]; from tokens the predictions, [..., m].

    Raises:
        InputError: These are no parameters, or shapes do not fit.
    """
    form = check_parameters(parameters)
    if y is None and queries is None:
        gram = gram_array(form, x)
        return map_of(kernel_of(parameters), gram)[..., : form.dim]
    x, y, queries = floating("x", x), floating("y", y), floating("queries", queries)
    d, layout = form.dim, form.layout
    for name, array, expected in (("x", x, ("n", d)), ("y", y, x.shape[-2:-1]), ("queries", queries, ("m", d))):
        _check_shape(name, array.shape, expected)
    n = x.shape[-2]
    tokens = layout.tokens(x, y, float(layout.value(n)), jnp)
    gram = tokens.mT @ tokens
    if layout.opening:
        gram = gram.at[..., d, d].add(2.0 * (x != 0).any(-2).sum(-1))
    gram = gram / (n if layout.attention == "mean" else 1)
    weights = map_of(kernel_of(parameters), gram)
    intercept = weights[..., d] if layout.counted else 0.0
    return (queries @ weights[..., :d, None])[..., 0] + jnp.expand_dims(intercept, -1)


def kernel_of(parameters: JaxParameters) -> Kernel:
    """Return what `Family.kernel` gives, differentiably.

    Families that do not say how (`Family.kernel_of`) compute it in NumPy on the host, and their own `pullback` is the
    derivative.

    Args:
        parameters: The parameters.

    Returns:
        The kernel, layers first.
    """
    form, arrays = parameters.form, {name: jnp.asarray(value) for name, value in parameters.arrays.items()}
    kernel = form.family.kernel_of(arrays, jnp) if form.family.built_in else None
    return _kernel(form, tuple(arrays), tuple(arrays.values())) if kernel is None else kernel


def _family(form: Form, names: tuple[str, ...], values: Any) -> Family:
    return form.family(**{name: np.asarray(value) for name, value in zip(names, values, strict=True)})


def _call(function: Callable[..., Any], shapes: Any, *arguments: Any) -> Any:
    return jax.pure_callback(function, shapes, *arguments, vmap_method="sequential")


def _by_family_forward(form: Form, names: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Any, Any]:
    dtype = values[0].dtype
    example = _family(form, names, [np.zeros(value.shape, dtype) for value in values]).kernel(form.dim)
    shapes = type(example)(*(jax.ShapeDtypeStruct(piece.shape, dtype) for piece in example))

    def kernel(arrays: Any) -> Any:
        return type(example)(*(np.array(piece, dtype) for piece in _family(form, names, arrays).kernel(form.dim)))

    return _call(kernel, shapes, values), values


def _by_family_backward(form: Form, names: tuple[str, ...], values: tuple[Any, ...], slope: Any) -> tuple[Any]:
    dtype = values[0].dtype
    shapes = tuple(jax.ShapeDtypeStruct(value.shape, dtype) for value in values)

    def pullback(arrays: Any, pieces: Any) -> Any:
        gradient = type(pieces)(*(np.asarray(piece, np.float64) for piece in pieces))
        slopes = _family(form, names, arrays).pullback(gradient)
        return tuple(np.array(slopes[name], dtype) for name in names)

    return (_call(pullback, shapes, values, slope),)


_kernel = jax.custom_vjp(lambda *arguments: _by_family_forward(*arguments)[0], nondiff_argnums=(0, 1))
_kernel.defvjp(_by_family_forward, _by_family_backward)


def check_parameters(parameters: object) -> Form:
    """Refuse what `to_jax` did not make.

    Args:
        parameters: The parameters.

    Returns:
        Their form.

    Raises:
        InputError: They are something else.
    """
    if not isinstance(parameters, JaxParameters):
        remedy = "Pass to_jax(model)[0], or arrays by name to from_jax(arrays, like=model)."
        refuse("parameters must be those that to_jax gives", kind_of(parameters), remedy)
    return parameters.form


def gram_array(form: Form, moments: Any) -> Any:
    """Return the Gram matrices of a model's tokens.

    Args:
        form: The form of the model.
        moments: `Moments`, which are converted; or an array [..., D, D], which must fit as it is.

    Returns:
        Gram matrices, [..., D, D].

    Raises:
        InputError: They do not fit.
    """
    if isinstance(moments, Moments):
        if moments.dim != form.dim:
            rule = f"moments must have the model's dimension {form.dim}"
            refuse(rule, moments.dim, f"Pass moments of dimension {form.dim}.")
        return jnp.asarray(np.asarray(moments.gram_of(form.layout)))
    gram, D = floating("gram", moments), form.width + 1
    if form.layout.extra and gram.shape[-2:] == (form.dim + 1,) * 2:
        rule = f"gram must have shape (..., {D}, {D}), because tokens hold {form.layout.extra} more than (x, y)"
        remedy = "Pass Moments, or model.layout.gram(gram, n, sums)."
        refuse(rule, f"shape {gram.shape}, that of (x, y)", remedy)
    _check_shape("gram", gram.shape, (D, D))
    if not isinstance(gram, jax.core.Tracer) and not is_symmetric(np.asarray(gram, np.float64)):
        refuse("gram must be symmetric", "matrices that are not", "Pass Moments, or X.mT @ X of tokens X.")
    return gram


def floating(name: str, value: Any) -> Any:
    """Return numbers as an array of JAX with a floating-point dtype: whole numbers are converted, not truncated.

    Args:
        name: What they are, for the message.
        value: An array of NumPy or JAX, or nested lists.

    Returns:
        The array.

    Raises:
        InputError: Some of them are masked.
    """
    unmasked(name, value)
    if isinstance(value, np.ndarray):
        value = np.asarray(value).astype(value.dtype.newbyteorder("="), copy=False)  # JAX knows no other byte order
    array = jnp.asarray(value)
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(jnp.result_type(float))


def _check_shape(name: str, shape: tuple[int, ...], expected: tuple[int | str, ...]) -> None:
    """The last axes of an array."""
    if not fits(shape[-len(expected) :], expected):
        text = ", ".join(map(str, expected))
        refuse(f"{name} must have shape (..., {text})", f"shape {shape}", "Reshape or slice it to fit.")


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
        rule = f"gram and target must have shapes (B, {form.width + 1}, {form.width + 1}) and (B, {form.dim})"
        refuse(rule, f"{gram.shape} and {goal.shape}", "Pass one of each for every context.")
    weight = None if metric is None else floating("metric", metric)
    if weight is not None and weight.shape not in ((form.dim, form.dim), (len(gram), form.dim, form.dim)):
        shapes = f"({form.dim}, {form.dim}) or ({len(gram)}, {form.dim}, {form.dim})"
        refuse(f"metric must have shape {shapes}", f"shape {weight.shape}", "Pass one for all contexts or for each.")
    goal, weight = form.layout.target(goal, jnp), form.layout.metric(weight, jnp)
    kernel = kernel_of(parameters)
    kernel = type(kernel)(*(value.astype(gram.dtype) for value in kernel))
    return _loss(kernel, gram, goal.astype(gram.dtype), None if weight is None else weight.astype(gram.dtype))


def _forward(kernel: Any, gram: Any, goal: Any, weight: Any) -> tuple[Any, Any]:
    """The loss, and its gradient with respect to the kernel; the native one is for float32 and float64."""
    if gram.dtype.itemsize < 4:
        return _xla(kernel, gram, goal, weight)
    return jax.lax.platform_dependent(kernel, gram, goal, weight, cpu=_native, default=_xla)


def _xla(kernel: Any, gram: Any, goal: Any, weight: Any) -> tuple[Any, Any]:
    def loss(variables: Any) -> Any:
        return half_square(map_of(variables, gram)[..., : goal.shape[-1]] - goal, weight).mean()

    return jax.value_and_grad(loss)(kernel)


def _native(kernel: Any, gram: Any, goal: Any, weight: Any) -> tuple[Any, Any]:
    """One pass of the current engine, outside XLA."""
    dtype = gram.dtype

    def compute(kernel: Any, gram: Any, goal: Any, weight: Any) -> Any:
        arrays = type(kernel)(*(np.asarray(value) for value in kernel))
        metric = None if weight is None else np.asarray(weight)
        gram, goal = np.asarray(gram), np.asarray(goal)
        result = engines.current().evaluate(arrays, gram, goal, metric=metric, counted=goal.shape[-1])
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
