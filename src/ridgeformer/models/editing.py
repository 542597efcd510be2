"""Other parameters in one layer, and layers of several models in a row, in the smallest family that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import refuse
from ridgeformer.models.families import Diag, Full, GDpp
from ridgeformer.models.family import ArrayFamily, Family
from ridgeformer.models.looped import LoopedFamily
from ridgeformer.validation import array, layer_number, real

if TYPE_CHECKING:
    from ridgeformer.models.transformer import LinearTransformer

Float = NDArray[Any]  # float32 or float64
OMEGAS = {"omega_xx": (0, 0), "omega_xy": (0, 1), "omega_yx": (1, 0), "omega_yy": (1, 1)}  # to and from


def edited(model: LinearTransformer, layer: int, parameters: Mapping[str, ArrayLike]) -> Family:
    """Return the parameters of a model with other ones in one layer; see `LinearTransformer.edit`.

    Args:
        model: The model.
        layer: The layer; negative numbers count from the end.
        parameters: New values by name.

    Returns:
        The parameters, of the family of the model if it can hold them.

    Raises:
        InputError: There is no such layer or name, or the values do not fit.
    """
    family = _unrolled(model.family)
    layer = layer_number(layer, model.layers)
    diagonal = isinstance(family, Diag | GDpp)
    names = dict.fromkeys([*family.arrays, *(["omega", *OMEGAS] if diagonal else []), "P", "Q"])
    if not parameters or not parameters.keys() <= names.keys():
        given = ", ".join(sorted(parameters.keys() - names.keys())) or "no name"
        refuse(f"the parameters of a {family.name} layer are {', '.join(names)}", given, "Choose among these.")
    kinds = {"P": "P", "Q": "P", "omega": "omega", **dict.fromkeys(OMEGAS, "omega")}
    if len({kinds.get(name, "") for name in parameters}) > 1:
        refuse(
            "an edit is of the omegas, of P and Q, or of other parameters",
            ", ".join(parameters),
            "Make one edit after the other: model.edit(...).edit(...).",
        )
    if parameters.keys() & {"P", "Q"}:
        dense = family if _holds(model, family, parameters) else Full(model.P, model.Q)
        return dense.edit(layer, **_with_heads(dense, parameters))
    if isinstance(family, Diag | GDpp) and not parameters.keys() & {"p", "q"}:
        return _with_omega(family, layer, _new_omega(family, layer, parameters))
    return family.edit(layer, **_with_heads(family, parameters))


def _with_heads(family: Family, parameters: Mapping[str, ArrayLike]) -> dict[str, ArrayLike]:
    """The values, with an axis for the heads where there is one head and they have no such axis."""
    values = {name: real(name, value) for name, value in parameters.items()}
    if not isinstance(family, ArrayFamily) or family.heads > 1:
        return {**values}
    missing = {name for name, value in values.items() if 0 < value.ndim == family.arrays[name].ndim - 2}
    for name in missing:  # before the axis is added, so that an error names the shape that was given
        array(name, values[name], np.moveaxis(family.arrays[name], family.layer_axis or 0, 0).shape[2:])
    return {name: value[None] if name in missing else value for name, value in values.items()}


def joined(models: Sequence[LinearTransformer]) -> Family:
    """Return the parameters of the layers of several models in a row.

    Args:
        models: Models with the same tokens.

    Returns:
        The parameters: of the family of the models, of Diag if all are Diag or GD++ ones, and else of Full. Looped
        models are unrolled.
    """
    families = [_unrolled(model.family) for model in models]
    if all(isinstance(family, Diag | GDpp) for family in families) and len({type(f) for f in families}) > 1:
        families = [family.to_diag() if isinstance(family, GDpp) else family for family in families]
    kind, dtype = type(families[0]), np.result_type(*(family.dtype for family in families))
    if all(type(family) is kind for family in families):
        stacked, *others = (family.astype(dtype.type) for family in families)
        if all(_shapes(family) == _shapes(stacked) for family in others):
            for family in others:
                for layer in range(family.layers):
                    stacked = stacked.inserted(stacked.layers, family.select(slice(layer, layer + 1)))
            return stacked
        if isinstance(stacked, Diag | GDpp):  # other heads, or omegas beside p and q
            omega = np.concatenate([family.omega for family in families if isinstance(family, Diag | GDpp)])
            return GDpp(omega=omega[:, :, 0]) if isinstance(stacked, GDpp) else Diag(omega=omega)
    heads = max(model.heads for model in models)
    return Full(*(np.concatenate([_padded(getattr(model, name), heads) for model in models]) for name in ("P", "Q")))


def _holds(model: LinearTransformer, family: Family, parameters: Mapping[str, ArrayLike]) -> bool:
    """Whether these are arrays of the family itself, of its own shape: registers have a small P, low rank has no Q.

    A number fills a whole dense matrix, also where the family has smaller ones of that name.
    """
    dense = (model.width + 1, model.width + 1)
    shapes = {name: value.shape[-2:] for name, value in family.arrays.items()}
    return all(shapes.get(name) == (np.shape(value)[-2:] or dense) for name, value in parameters.items())


def _new_omega(family: Diag | GDpp, layer: int, parameters: Mapping[str, ArrayLike]) -> Float:
    """The four omegas of the layer after the edit, [2, 2]."""
    given = {name: real(name, value) for name, value in parameters.items()}
    wide = [value.dtype for value in given.values() if value.ndim]  # numbers take the precision of the model
    omega = np.array(family.omega[layer], np.result_type(family.dtype, *wide), subok=False)
    if "omega" in given:
        value = given.pop("omega")
        here = omega[:, 0] if isinstance(family, GDpp) and value.ndim < 2 else omega
        here[...] = value if value.ndim == 0 and np.isfinite(value) else array("omega", value, here.shape)
    for name, value in given.items():
        omega[OMEGAS[name]] = array(name, value, ())
    return omega


def _with_omega(family: Diag | GDpp, layer: int, omega: Float) -> Family:
    """The family with these omegas in one layer, and the same heads if they can hold them."""
    if isinstance(family, GDpp):
        if omega[:, 1].any():
            return _with_omega(family.to_diag(), layer, omega)
        if "omega" in family.arrays:
            return family.edit(layer, omega=omega[:, 0])
        p, q = _factors(np.stack([omega[:, 0], np.zeros_like(omega[:, 0])], 1), family.heads)
        return family.edit(layer, p=p, q=q[:, 0])
    if "omega" in family.arrays:
        return family.edit(layer, omega=omega)
    if family.heads == 1 and not _rank_one(omega):
        return Diag(omega=family.omega).edit(layer, omega=omega)
    p, q = _factors(omega, family.heads)
    return family.edit(layer, p=p, q=q)


def _rank_one(omega: Float) -> bool:
    """Whether the determinant is 0 but for rounding."""
    slack = 8 * np.finfo(omega.dtype).eps
    return bool(abs(np.linalg.det(omega.astype(np.float64))) <= slack * np.abs(omega).max() ** 2)


def _factors(omega: Float, heads: int) -> tuple[Float, Float]:
    """Return p and q of one layer, [H, 2] each, with sum p q' = omega."""
    p, q = np.zeros((heads, 2), omega.dtype), np.ones((heads, 2), omega.dtype)
    if not _rank_one(omega):
        p[:2], q[:2] = np.eye(2), omega
    elif omega.any():
        row, column = np.unravel_index(np.abs(omega).argmax(), (2, 2))
        p[0], q[0] = omega[:, column] / omega[row, column], omega[row]
    return p, q


def _unrolled(family: Family) -> Family:
    """The family with parameters of its own for every layer."""
    return family.unrolled() if isinstance(family, LoopedFamily) else family


def _shapes(family: Family) -> dict[str, tuple[int, ...]]:
    """The shapes of the parameters of the first layer."""
    return {name: value.shape for name, value in family.select(slice(0, 1)).arrays.items()}


def _padded(matrices: Float, heads: int) -> Float:
    """[L, H, D, D] with further heads that do nothing."""
    return np.pad(np.asarray(matrices), ((0, 0), (0, heads - matrices.shape[1]), (0, 0), (0, 0)))
