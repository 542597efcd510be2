"""A family of the user's own is compared with the plain token form and with finite differences when it is first used.

Without this, a wrong sign in `pullback` would send every descent uphill, and training would still report "converged".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import NumpyEngine
from ridgeformer.engine.law import PAPER_LAYOUT
from ridgeformer.errors import refuse
from ridgeformer.models.family import Family

__all__ = ["check_family"]

Array = NDArray[np.float64]
DIM, LAYERS, CONTEXT, BATCH = 3, 2, 5, 4
SCALE = 0.2
SLACK = 1e-5  # of the largest derivative: what differences of steps of 1e-6 leave
MOST = 60  # parameters whose derivatives are compared
_good: set[type[Family]] = set()


def check_family(family: type[Family]) -> None:
    """Check that a family's methods agree with each other, once for every class.

    Args:
        family: The class.

    Raises:
        InputError: `arrays` cannot rebuild the family, `kernel` and `dense` describe different models, `pullback` is
            not the derivative, or `select` or `inserted` changes layers that it should keep.
    """
    family = getattr(family, "inner", family)  # of a looped family: the one that is repeated
    if family in _good or family.built_in:
        return
    _good.add(family)  # its own models are made below
    try:
        for heads in range(1, 1 + min(family.useful_heads or 2, 2)):
            width = DIM + family.fitted(PAPER_LAYOUT, DIM).extra
            _check(family, family.random(width, LAYERS, heads, SCALE, np.random.default_rng(heads)), width + 1)
    except BaseException:
        _good.discard(family)
        raise


def _check(family: type[Family], made: Family, D: int) -> None:
    arrays = {name: np.array(value, np.float64) for name, value in made.arrays.items()}
    if not arrays or made.layers != LAYERS:
        shapes = {name: value.shape for name, value in arrays.items()}
        rule = "arrays must hold all parameters, with layers first, or layers must say how many there are"
        _refuse(family, rule, f"{shapes} and layers = {made.layers if arrays else None} for {LAYERS} layers")
    made = family(**arrays)
    P, Q = made.dense(DIM)
    wanted = (LAYERS, made.heads, D, D)
    if np.shape(P) != wanted or np.shape(Q) != wanted:
        _refuse(family, f"dense must give P and Q of shape {wanted}", f"shapes {np.shape(P)} and {np.shape(Q)}")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((BATCH, CONTEXT, DIM)), rng.standard_normal((BATCH, CONTEXT))
    tokens = np.concatenate([x, np.zeros((BATCH, CONTEXT, D - DIM - 1)), y[..., None]], -1)
    gram = np.swapaxes(tokens, 1, 2) @ tokens
    target = rng.standard_normal((BATCH, DIM))
    found = NumpyEngine().evaluate(made.kernel(DIM), gram, target, counted=DIM, weights=True)
    assert found.weights is not None
    expected = _token_form(P, Q, tokens)
    error = float(np.abs(found.weights - expected).max() / max(np.abs(expected).max(), 1e-300))
    if not error < 1e-8:
        _refuse(family, "kernel and dense must describe the same model", f"predictions that differ by {error:.1g}")
    _check_slope(family, arrays, made.pullback(found.gradient), gram, target)
    _check_layers(family, made, tokens, expected)


def _check_layers(family: type[Family], made: Family, tokens: Array, whole: Array) -> None:
    """Compare the first layer, and the model with a layer that changes nothing, with the whole model.

    Where layers do not come first, the defaults of both methods refuse, and there is nothing to compare.
    """
    if family.select is not Family.select or made.has_layers_first:
        parts = zip(made.select(slice(0, 1)).dense(DIM), made.dense(DIM), strict=True)
        if not all(np.shape(one) == np.shape(all_[:1]) and np.allclose(one, all_[:1]) for one, all_ in parts):
            _refuse(family, "select must give the layers that are asked for", "another first layer from slice(0, 1)")
    if family.inserted is not Family.inserted or made.has_layers_first:
        P, Q = made.inserted(1, made.identity_layer()).dense(DIM)
        error = np.abs(_token_form(P, Q, tokens) - whole).max() if len(P) == LAYERS + 1 else np.inf
        if not error < 1e-8 * max(np.abs(whole).max(), 1e-300):
            rule = "inserted(1, identity_layer()) must give one layer more and change nothing"
            _refuse(
                family, rule, f"{len(P)} layers instead of {LAYERS + 1}, and predictions that differ by {error:.1g}"
            )


def _check_slope(
    family: type[Family], arrays: dict[str, Array], slope: Mapping[str, Any], gram: Array, target: Array
) -> None:
    """Compare `pullback` with central differences of the loss."""
    shapes = {name: np.shape(slope[name]) if name in slope else None for name in arrays}
    if shapes != {name: value.shape for name, value in arrays.items()}:
        _refuse(family, "pullback must give a derivative for every array, of its shape", f"shapes {shapes}")

    def loss(changed: dict[str, Array]) -> float:
        return NumpyEngine().evaluate(family(**changed).kernel(DIM), gram, target, counted=DIM, gradient=False).loss

    largest = max(float(np.abs(np.asarray(value)).max()) for value in slope.values())
    places = [(name, index) for name, value in arrays.items() for index in np.ndindex(value.shape)]
    chosen = np.random.default_rng(1).permutation(len(places))[:MOST]
    for name, index in (places[i] for i in chosen):
        ends = []
        for step in (1e-6, -1e-6):
            changed = {other: value.copy() for other, value in arrays.items()}
            changed[name][index] += step
            ends.append(loss(changed))
        expected, given = (ends[0] - ends[1]) / 2e-6, float(np.asarray(slope[name])[index])
        if not abs(expected - given) <= SLACK * max(largest, abs(expected), 1e-3):
            _refuse(
                family,
                "pullback must be the derivative of the loss",
                f"{given:.4g} for {name}{list(index)}, where differences of the loss give {expected:.4g}",
            )


def _token_form(P: Any, Q: Any, tokens: Array) -> Array:
    """The weights of a model by equation (3) of the paper: the predictions for the unit vectors as queries."""
    D = tokens.shape[2]
    queries = np.broadcast_to(np.eye(D)[:DIM], (len(tokens), DIM, D))
    e, n = np.concatenate([tokens, queries], 1), tokens.shape[1]
    for p, q in zip(np.asarray(P), np.asarray(Q), strict=True):
        context = e[:, :n]
        e = e + np.einsum("bjc,kcd,bid,kfe,bje->bif", context, q, e, p, context, optimize=True)
    return np.asarray(-e[:, n:, -1])


def _refuse(family: type[Family], rule: str, received: str) -> NoReturn:
    refuse(f"in the family {family.__qualname__}, {rule}", received, "Correct that method; see docs/training.md.")
