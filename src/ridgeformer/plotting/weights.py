"""The numbers of a layer that pictures show: omegas, norms of further products in channels, or singular values."""

from __future__ import annotations

import numpy as np

from ridgeformer.engine import Matrices, Omegas
from ridgeformer.engine.kernels import layer_of
from ridgeformer.models.families import FLOWS
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.values import Array


def alone(model: LinearTransformer, layer: int) -> Array:
    """Return W with w_hat = W b, if one layer were alone: what it makes of b = sum y x.

    Args:
        model: The model.
        layer: The layer, from 0.

    Returns:
        W, [d, d].
    """
    P, Q = (np.asarray(value[layer], np.float64) for value in model.family.dense(model.dim))
    d, rows = model.dim, P[:, -1]
    moved = np.einsum("h,hji->ij", rows[:, -1], Q[:, :d, :d]) + np.einsum("hj,hi->ij", rows[:, :d], Q[:, -1, :d])
    return np.asarray(-moved)


def layers(model: LinearTransformer) -> int:
    """Return how many layers are drawn: all, or one repetition of a looped model, whose repetitions are equal.

    Args:
        model: The model.

    Returns:
        The number.
    """
    return model.layers // model.family.loops


def picture(model: LinearTransformer) -> Array:
    """Return the parameters of a model as a picture.

    Args:
        model: The model.

    Returns:
        The omegas and norms, one row per drawn layer; of other families W of every drawn layer, side by side.
    """
    if has_omegas(model):
        return np.array([[*numbers(model, layer).values()] for layer in range(layers(model))])
    return np.concatenate([alone(model, layer) for layer in range(layers(model))], 1)


def numbers(model: LinearTransformer, layer: int) -> dict[str, float]:
    """Return the numbers that are drawn of a layer.

    Args:
        model: The model.
        layer: The layer, from 0.

    Returns:
        The numbers by their labels: omegas, norms of further products in channels, or singular values.
    """
    if not has_omegas(model):
        values = np.linalg.svd(alone(model, layer), compute_uv=False)
        return {f"singular value {k + 1}": value for k, value in enumerate(values)}
    kernel = layer_of(model.kernel, layer)
    if isinstance(kernel, Omegas):
        omegas, norms = np.asarray(kernel.omega, np.float64).ravel(), dict[str, float]()
    else:
        omegas, norms = _products(*(np.asarray(value, np.float64) for value in kernel))
    return dict(zip((f"omega {flow}" for flow in FLOWS), omegas, strict=True)) | norms


def _products(Pv: Array, Qv: Array, Ps: Array, Qs: Array) -> tuple[Array, dict[str, float]]:
    """The omegas of x and y, and the norms of what else there is in sum_k P_k (x) Q_k, by blocks."""
    omegas, norms = [], dict[str, float]()
    for to, P, i in (("vectors", Pv, 0), ("scalars", Ps, -1)):
        for of, Q, j in (("vectors", Qv, 0), ("scalars", Qs, -1)):
            products = np.einsum("kab,kcd->abcd", P, Q)
            omegas.append(products[i, i, j, j])
            products[i, i, j, j] = 0.0
            if products.size > 1:
                norms[f"norm {to[0]}{of[0]} ({to} from {of})"] = np.sqrt((products**2).sum())
    return np.array(omegas), norms


def meaning(model: LinearTransformer) -> str:
    """Say what all numbers of a layer are.

    Args:
        model: The model.

    Returns:
        A line for a title.
    """
    if not has_omegas(model):
        mean = model.layout.attention
        return f"W of each layer: w_hat = W a if the layer were alone, a = {mean} of y x"
    further = len(numbers(model, 0)) > len(FLOWS)
    return "omegas of x and y; norms of all other products of P and Q" if further else "omegas"


def has_omegas(model: LinearTransformer) -> bool:
    """Say whether a model treats all directions alike by its form, so that omegas describe it.

    Args:
        model: The model.

    Returns:
        True for Diag, GD++ and channels.
    """
    return not isinstance(model.kernel, Matrices)
