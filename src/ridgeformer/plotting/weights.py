"""The numbers of a layer that pictures show: omegas, norms of further products in channels, or singular values."""

from __future__ import annotations

import numpy as np

from ridgeformer.engine import Matrices, Mixings, Omegas
from ridgeformer.engine.kernels import layer_of
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.values import Array

OMEGAS = ("xx", "xy", "yx", "yy")


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
        return np.array([numbers(model, layer) for layer in range(layers(model))])
    return np.concatenate([alone(model, layer) for layer in range(layers(model))], 1)


def numbers(model: LinearTransformer, layer: int) -> Array:
    """Return the numbers that are drawn of a layer.

    Args:
        model: The model.
        layer: The layer, from 0.

    Returns:
        The numbers, in the order of `names`.
    """
    kernel = layer_of(model.kernel, layer)
    if isinstance(kernel, Omegas):
        return np.asarray(kernel.omega, np.float64).ravel()
    if isinstance(kernel, Mixings):
        return _channel_numbers(*(np.asarray(value, np.float64) for value in kernel))
    return np.asarray(np.linalg.svd(alone(model, layer), compute_uv=False))


def _channel_numbers(Pv: Array, Qv: Array, Ps: Array, Qs: Array) -> Array:
    """The omegas of x and y, and the norms of what else there is in sum_k P_k (x) Q_k, by blocks."""
    omegas, norms = [], []
    for P, i in ((Pv, 0), (Ps, -1)):
        for Q, j in ((Qv, 0), (Qs, -1)):
            products = np.einsum("kab,kcd->abcd", P, Q)
            omegas.append(products[i, i, j, j])
            products[i, i, j, j] = 0.0
            if products.size > 1:
                norms.append(np.sqrt((products**2).sum()))
    return np.array(omegas + norms)


def names(model: LinearTransformer) -> list[str]:
    """Return what each of `numbers` is.

    Args:
        model: The model.

    Returns:
        Labels: omegas, norms of further products in channels, or singular values.
    """
    if not has_omegas(model):
        return [f"singular value {k + 1}" for k in range(model.dim)]
    names = [f"omega {name}" for name in OMEGAS]
    if isinstance(kernel := model.kernel, Mixings):
        sizes = {"vectors": kernel.vectors, "scalars": kernel.scalars}
        pairs = ((to, of) for to in sizes for of in sizes if sizes[to] * sizes[of] > 1)
        names += [f"norm {to[0]}{of[0]} ({to} from {of})" for to, of in pairs]
    return names


def meaning(model: LinearTransformer) -> str:
    """Say what `numbers` are.

    Args:
        model: The model.

    Returns:
        A line for a title.
    """
    if not has_omegas(model):
        mean = model.layout.attention
        return f"W of each layer: w_hat = W a if the layer were alone, a = {mean} of y x"
    further = len(names(model)) > 4
    return "omegas of x and y; norms of all other products of P and Q" if further else "omegas"


def has_omegas(model: LinearTransformer) -> bool:
    """Say whether a model treats all directions alike by its form, so that omegas describe it.

    Args:
        model: The model.

    Returns:
        True for Diag, GD++ and channels.
    """
    return not isinstance(model.kernel, Matrices)
