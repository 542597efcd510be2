"""Linear transformers: self-attention without softmax, MLP or LayerNorm, in token form and in moment form.

>>> from ridgeformer import Problem, Diag, LinearTransformer
>>> one_step = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10)  # one step of gradient descent
>>> draw = Problem(dim=10, context=20, noise="fixed(1)").moments(10_000)
>>> round(one_step.evaluate(draw.moments, draw.ridge).loss, 1)
1.4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.engine import PAPER_LAYOUT, Layout
from ridgeformer.errors import kind_of, refuse
from ridgeformer.models.families import OMEGAS, ArrayFamily, Diagonal, Full, with_more_heads
from ridgeformer.models.family import Family, family_named, joined
from ridgeformer.models.forms import MomentForm, TokenForm
from ridgeformer.validation import array, integer, keywords, layer_number, number, real

Float = NDArray[Any]  # float32 or float64


class LinearTransformer(TokenForm, MomentForm):
    """A stack of linear self-attention layers with the parameters of a family.

    `weights(moments)` is what every predictor has: the w_hat with which it predicts <w_hat, x> for a query x.
    A model never changes: `edit` makes a new one with other parameters.

    Args:
        family: The parameters, such as `Full(P, Q)` or `Diag(p, q)`.
        dim: The dimension d of the features; not needed where the parameters are for one dimension, as those of Full.
        layout: What tokens hold beside (x, y), and whether attention sums over tokens or takes their mean. Families
            with further scalars or vectors, such as `Channels(1, 3)`, add the coordinates that they need.

    Raises:
        InputError: The arguments do not fit together.
    """

    @classmethod
    @keywords()
    def random(
        cls,
        family: str | type[Family],
        *,
        dim: int,
        layers: int,
        heads: int = 1,
        scale: float = 0.05,
        context: int = 1,
        seed: int = 0,
        layout: Layout = PAPER_LAYOUT,
    ) -> LinearTransformer:
        """Make a model with random parameters.

        Args:
            family: A family or its name, such as `full`, `diag` or `channels(1,3)`.
            dim: The dimension d of the features.
            layers: How many layers.
            heads: How many heads per layer.
            scale: Parameters are normal with the standard deviation scale / sqrt(context).
            context: The number of examples for which parameters are meant.
            seed: Seed of the random numbers.
            layout: See `LinearTransformer`.
        """
        kind = family_named(family)
        dim, layers = integer("dim", dim, 1, 4096), integer("layers", layers, 1, 1000)
        heads, rng = integer("heads", heads, 1, 64), np.random.default_rng(integer("seed", seed, 0))
        spread = number("scale", scale) / np.sqrt(integer("context", context))
        if not isinstance(layout, Layout):
            refuse("layout must be a Layout", kind_of(layout), 'Pass Layout("mean"), for example.')
        layout = kind.layout_for(layout, dim)
        return cls(kind.random(dim + layout.extra, layers, heads, spread, rng), dim, layout)

    def _with(self, family: Family) -> LinearTransformer:
        """The model with other parameters and the same tokens."""
        return LinearTransformer(family, self.dim, self.layout)

    def __repr__(self) -> str:
        usual = type(self.family).layout_for(Layout(), self.dim)  # with the room that the family always needs
        more = "" if self.layout == usual else f", {self.layout}"
        return f"LinearTransformer({self.family.name}, dim={self.dim}, layers={self.layers}, heads={self.heads}{more})"

    @property
    def working_layers(self) -> int:
        """How many layers do something: those with a head whose P and Q are both different from 0."""
        largest = np.abs(np.asarray(self.P)).max((2, 3)) * np.abs(np.asarray(self.Q)).max((2, 3))
        return int((largest > 0).any(1).sum())

    @property
    def simplest_family(self) -> str:
        """The simplest of gdpp, diag and full that a model of these families is of, exactly; the name of any other.

        >>> from ridgeformer import Diag
        >>> LinearTransformer(Diag(omega=[[[0.1, 0], [-0.03, 0]]]), dim=3).to_full().simplest_family
        'gdpp'
        """
        if self.family.name not in ("full", "diag", "gdpp") or self.layout.extra:
            return self.family.name
        omegas = self.kernel.as_omegas()
        return "full" if omegas is None else "diag" if omegas.omega[:, :, 1].any() else "gdpp"

    def described(self, family: str) -> str:
        """Describe the model by the name of a family that it is of, and the number of layers that do something.

        Args:
            family: The name.

        Returns:
            The text.

        >>> LinearTransformer.random("diag", dim=3, layers=2).with_identity(1).described("diag")
        'diag, 2 layers'
        """
        layers = max(self.working_layers // self.family.loops, 1)
        return f"{family}, {layers} layer{'s' * (layers > 1)}"

    @property
    def actual(self) -> str:
        """The model that it really is, such as `gdpp, 2 layers`, if that is smaller than it says; else nothing."""
        smaller = self.simplest_family != self.family.name or self.working_layers < self.layers
        return self.described(self.simplest_family) if smaller else ""

    def at_dim(self, dim: int) -> LinearTransformer:
        """Return the model with the same parameters for another dimension.

        Args:
            dim: The dimension d of the features.

        Returns:
            The model.

        Raises:
            InputError: The parameters are for one dimension only, as those of Full are.

        >>> LinearTransformer.random("channels(1,3)", dim=10, layers=2).at_dim(4)
        LinearTransformer(channels(1,3), dim=4, layers=2, heads=1)
        """
        if dim == self.dim:
            return self
        if self.family.width is not None:
            rule = f"parameters of the family {self.family.name} are for one dimension, here {self.dim}"
            refuse(rule, f"dimension {dim}", "Use GD++, Diag or channels, which have no d in their parameters.")
        room = replace(self.layout, scratch=0) if self.family.further_scalars is not None else self.layout
        return LinearTransformer(self.family, dim, room)

    def to_diag(self) -> LinearTransformer:
        """A GD++ model as Diag."""
        if (diag := self.family.to_diag()) is not None:
            return self._with(diag)
        refuse("only GD++ and Diag models are Diag models", repr(self), "Use to_full(), which takes any model.")

    def to_full(self) -> LinearTransformer:
        """Any model as Full."""
        return self if isinstance(self.family, Full) else self._with(Full(self.P, self.Q))

    def to_attention(self, attention: Literal["sum", "mean"], context: int) -> LinearTransformer:
        """Make a model with attention by sum or by mean that is the same function on contexts of one length.

        Args:
            attention: `sum` or `mean`.
            context: The number of examples n at which the function stays the same.

        Returns:
            The other model; this one if nothing changes.

        >>> model = LinearTransformer.random("diag", dim=3, layers=2, context=10)
        >>> model.to_attention("mean", context=10).layout.attention
        'mean'
        """
        n, layout = integer("context", context), replace(self.layout, attention=attention)
        if layout == self.layout:
            return self
        return LinearTransformer(self.family.stretched(n if attention == "mean" else 1 / n), self.dim, layout)

    def in_basis(self, C: ArrayLike) -> LinearTransformer:
        """Make the Full model that does on features z what this one does on x = C z.

        P becomes D^-1 P D and Q becomes D'Q D, with D = diag(C, 1). Predictions for a query z are those of this model
        for the query C z.

        Args:
            C: An invertible matrix, [d, d].

        Returns:
            The Full model.
        """
        matrix = array("C", C, (self.dim, self.dim)).astype(np.float64)
        if np.linalg.matrix_rank(matrix) < self.dim:
            refuse("C must be invertible", "a singular matrix", "Pass the Cholesky factor of a covariance.")
        D = np.eye(self.width + 1)
        D[: self.dim, : self.dim] = matrix
        return self._with(Full(np.linalg.inv(D) @ self.P @ D, D.T @ self.Q @ D))

    def edit(self, layer: int, **parameters: ArrayLike) -> LinearTransformer:
        """Make a new model in which the parameters of one layer are replaced; this one stays as it is.

        The new model has the same family and heads wherever these can hold the new values. Otherwise it becomes the
        next larger one: one head of a Diag model holds omegas of rank one only, so that other omegas give a model with
        two heads; a GD++ model becomes Diag with an omega_xy or omega_yy other than 0; and any model becomes Full with
        a dense P or Q. A looped model is unrolled, because only one repetition changes.

        Args:
            layer: The layer, from 0 to L - 1; negative numbers count from the end.
            **parameters: New values by name: `P` and `Q` [H, D, D] (or [D, D] if there is one head) of any model; of a
                Diag or GD++ model one or more of `omega_xx`, `omega_xy`, `omega_yx` and `omega_yy`, or the whole
                `omega` [2, 2], or `p` and `q`; those of `family.arrays` in general, without the axis of the heads if
                there is one head. A single number fills the whole parameter.

        Returns:
            The new model.

        Raises:
            InputError: There is no such layer or parameter, or the values do not fit.

        >>> model = LinearTransformer.random("diag", dim=10, layers=3)
        >>> model.edit(2, omega=[[0, 0], [-0.03, 0]]).family.omega[2].tolist()
        [[0.0, 0.0], [-0.03, 0.0]]
        >>> model.edit(layer=1, omega_yy=0).family.omega[1, 1, 1].item()
        0.0
        """
        return self._with(_edited(self, layer, parameters))

    def without(self, layer: int) -> LinearTransformer:
        """Make a new model without one layer: the layers before and after it follow each other directly.

        It predicts what the model predicts in which this layer is an identity layer, such as `edit(layer, P=0)`, but it
        has one layer less: later layers have other numbers, and a trace or the losses by layer have one state less.

        Args:
            layer: The layer, from 0 to L - 1; negative numbers count from the end.

        Returns:
            The model with L - 1 layers.

        Raises:
            InputError: There is no such layer, or it is the only one.
        """
        layer = layer_number(layer, self.layers)
        if self.layers == 1:
            rule = "a model needs at least one layer"
            refuse(rule, "a request to remove the last one", "Keep one, or let it do nothing: P=0.")
        parts = [part for part in (slice(0, layer), slice(layer + 1, self.layers)) if part.start < part.stop]
        return self._with(_joined([self._with(self.family.select(part)) for part in parts]))

    def stack(self, other: LinearTransformer) -> LinearTransformer:
        """Make a new model that continues with the layers of another one.

        Args:
            other: A model for the same dimension and layout.

        Returns:
            The model with the layers of both. It has their family if they have the same one (looped models are
            unrolled), it is Diag if both are Diag or GD++, and otherwise Full.

        Raises:
            InputError: The other model has another dimension or layout.
        """
        if not isinstance(other, LinearTransformer):
            refuse("a model is stacked on a model", kind_of(other), "Pass a LinearTransformer.")
        if (other.dim, other.layout) != (self.dim, self.layout):
            refuse(
                f"stacked models must have the same tokens: dimension {self.dim} and {self.layout}",
                f"dimension {other.dim} and {other.layout}",
                "Use models of one dimension and layout. to_full and to_attention convert a model; further coordinates "
                "cannot be added to it.",
            )
        return self._with(_joined([self, other]))

    def with_identity(self, at: int) -> LinearTransformer:
        """Insert one layer that changes nothing: the start for growing a model.

        Args:
            at: The position of the new layer, from 0 to L.

        Returns:
            The model with L + 1 layers.
        """
        return self._with(self.family.inserted(at, self.family.identity_layer()))

    def truncate(self, layers: int) -> LinearTransformer:
        """Return the model made of the first layers only.

        Args:
            layers: How many layers, from 1 to L.

        Returns:
            The shorter model.
        """
        return self._with(self.family.select(slice(0, integer("layers", layers, 1, self.layers))))

    def astype(self, dtype: type) -> LinearTransformer:
        """Return the model in another precision.

        Args:
            dtype: float32 or float64.

        Returns:
            The model.
        """
        return self._with(self.family.astype(dtype))


def _edited(model: LinearTransformer, layer: int, parameters: Mapping[str, ArrayLike]) -> Family:
    """The parameters of a model with other ones in one layer; see `LinearTransformer.edit`."""
    family = model.family.unrolled()
    layer = layer_number(layer, model.layers)
    names = dict.fromkeys([*family.editable, "P", "Q"])
    if not parameters or not parameters.keys() <= names.keys():
        unknown = ", ".join(sorted(parameters.keys() - names.keys())) or "no name"
        refuse(f"the parameters of a {family.name} layer are {', '.join(names)}", unknown, "Choose among these.")
    kinds = {"P": "P", "Q": "P", "omega": "omega", **dict.fromkeys(OMEGAS, "omega")}
    if len({kinds.get(name, "") for name in parameters}) > 1:
        rule = "an edit is of the omegas, of P and Q, or of other parameters"
        refuse(rule, ", ".join(parameters), "Make one edit after the other: model.edit(...).edit(...).")
    if parameters.keys() & {"P", "Q"}:
        dense = family if _holds(model, family, parameters) else Full(model.P, model.Q)
        return dense.edit(layer, **_with_heads(dense, parameters))
    return family.edit(layer, **_with_heads(family, parameters))


def _with_heads(family: Family, parameters: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    """The values, with an axis for the heads where there is one head and they have no such axis."""
    values = {name: real(name, value) for name, value in parameters.items()}
    if not isinstance(family, ArrayFamily) or family.heads > 1:
        return {**values}
    arrays = family.arrays
    missing = {name for name, value in values.items() if name in arrays and 0 < value.ndim == arrays[name].ndim - 2}
    for name in missing:  # before the axis is added, so that an error names the shape that was given
        array(name, values[name], np.moveaxis(arrays[name], family.layer_axis or 0, 0).shape[2:])
    return {name: value[None] if name in missing else value for name, value in values.items()}


def _joined(models: Sequence[LinearTransformer]) -> Family:
    """The parameters of the layers of several models in a row.

    They are of the family of the models, of Diag if all are Diag or GD++ ones, and else of Full. Looped models are
    unrolled.
    """
    families = [model.family.unrolled() for model in models]
    diags = [diag for family in families if (diag := family.to_diag()) is not None]
    if len(diags) == len(families) and len({type(family) for family in families}) > 1:
        families = [*diags]
    kind, dtype = type(families[0]), np.result_type(*(family.dtype for family in families))
    if all(type(family) is kind for family in families):
        stacked, *further = (family.astype(dtype.type) for family in families)
        if all(_shapes(family) == _shapes(stacked) for family in further):
            return joined(stacked, *further)
        if isinstance(stacked, Diagonal):  # other heads, or omegas beside p and q
            return stacked.of_omega(np.concatenate([diag.omega for diag in diags]))
    heads = max(model.heads for model in models)
    padded = ([with_more_heads(getattr(model, name), heads, 0.0) for model in models] for name in ("P", "Q"))
    return Full(*map(np.concatenate, padded))


def _holds(model: LinearTransformer, family: Family, parameters: Mapping[str, ArrayLike]) -> bool:
    """Whether these are arrays of the family itself, of its own shape: registers have a small P, low rank has no Q.

    A number fills a whole dense matrix, also where the family has smaller ones of that name.
    """
    dense = (model.width + 1, model.width + 1)
    shapes = {name: value.shape[-2:] for name, value in family.arrays.items()}
    return all(shapes.get(name) == (np.shape(value)[-2:] or dense) for name, value in parameters.items())


def _shapes(family: Family) -> dict[str, tuple[int, ...]]:
    """The shapes of the parameters of the first layer."""
    return {name: value.shape for name, value in family.select(slice(0, 1)).arrays.items()}
