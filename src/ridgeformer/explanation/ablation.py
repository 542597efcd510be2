"""Losses of a model without one of its parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ridgeformer.evaluation import Losses, compare
from ridgeformer.explanation.coefficients import check, diagonal_part
from ridgeformer.models.families import Diag, Full, GDpp
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import BaseProblem
from ridgeformer.validation import choice

Array = NDArray[np.float64]
FLOWS = {"xx": (0, 0), "xy": (0, 1), "yx": (1, 0), "yy": (1, 1)}  # to and from, as the omegas


def ablate(
    problem: BaseProblem,
    model: LinearTransformer,
    *,
    sequences: int = 20_000,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Losses:
    """Measure the loss without each layer, and without each flow of each layer, on the same sequences.

    To take away a flow such as xy, from y to x, omega_xy = 0 is set in a diagonal layer, and that block of T - I in a
    Full one. A term that is 0 already is left out. Layers of a Full model are also replaced by their diagonal parts.

    Args:
        problem: The problem.
        model: The model.
        sequences: How many sequences.
        seed: Seed of the sequences.
        progress: Is called with the number of sequences done and of all.

    Returns:
        The losses by the name of the part that was taken away, with the numbers of exploded sequences; `nothing` is the
        whole model.

    Raises:
        InputError: The model and the problem do not fit, or an argument is not allowed.
    """
    check(model, problem)
    variants = {"nothing": model}
    for layer in range(model.layers):
        variants[f"layer {layer + 1}"] = without_layer(model, layer)
        for flow in FLOWS:
            if _flows(model, layer, flow):
                variants[f"layer {layer + 1}, {flow}"] = without_flow(model, layer, flow)
        if isinstance(model.family, Full) and model.layers > 1:
            variants[f"layer {layer + 1}, all but its diagonal part"] = diagonal_part(model, {layer})
    if isinstance(model.family, Full):
        variants["all layers, all but their diagonal parts"] = diagonal_part(model)
    return compare(problem, variants, sequences=sequences, seed=seed, progress=progress)


def without_layer(model: LinearTransformer, layer: int) -> LinearTransformer:
    """Return the model with one layer made the identity: the function of `model.without`, also for a single layer.

    Args:
        model: The model.
        layer: The layer, from 0.

    Returns:
        The new model; a Full one unless it is Diag or GD++.
    """
    return model.edit(layer, **{"omega" if isinstance(model.family, Diag | GDpp) else "P": 0})


def without_flow(model: LinearTransformer, layer: int, flow: str) -> LinearTransformer:
    """Return the model without one flow of one layer.

    Args:
        model: The model.
        layer: The layer, from 0.
        flow: `xx`, `xy` (from y to x), `yx` or `yy`.

    Returns:
        The new model.

    Raises:
        InputError: There is no such flow.
    """
    choice("a flow", flow, FLOWS)
    if isinstance(model.family, Diag | GDpp):
        return model.edit(layer, **{f"omega_{flow}": 0})
    to, origin = FLOWS[flow]
    # Rows of P are where a flow goes, columns of Q where it comes from: two heads for each hold all blocks but one.
    rows, columns = _block(to, model), _block(origin, model)
    P, Q = np.concatenate([model.P, np.zeros_like(model.P)], 1), np.concatenate([model.Q, model.Q], 1)
    heads = model.heads
    P[layer, :heads, rows], P[layer, heads:, rows] = 0, model.P[layer][:, rows]
    Q[layer, heads:, :, columns] = 0
    return LinearTransformer(Full(P, Q), layout=model.layout)


def _block(index: int, model: LinearTransformer) -> slice:
    """The coordinates x or y of a token; y is the last one, after any further ones."""
    return slice(0, model.dim) if index == 0 else slice(model.width, model.width + 1)


def _flows(model: LinearTransformer, layer: int, flow: str) -> bool:
    """Whether there is anything to take away."""
    to, origin = FLOWS[flow]
    P, Q = model.P[layer][:, _block(to, model)], model.Q[layer][:, :, _block(origin, model)]
    return bool((P.any((1, 2)) & Q.any((1, 2))).any())
