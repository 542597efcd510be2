"""A family of the user's own is compared with its dense form and with finite differences when it is first used.

Without this, a wrong sign in `pullback` would send every descent uphill, and training would still report "converged".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from ridgeformer.engine import Kernel, Matrices, NumpyEngine
from ridgeformer.engine.law import PAPER_LAYOUT
from ridgeformer.errors import refuse
from ridgeformer.models.family import Family
from ridgeformer.validation import Array, Float

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
            not the derivative, or `select`, `inserted` or `edit` fails or changes layers that it should keep.
    """
    family = getattr(family, "inner", family)  # of a looped family: the one that is repeated
    if family in _good or family.built_in:
        return
    _good.add(family)  # its own models are made below
    try:
        for heads in range(1, 1 + min(family.useful_heads or 2, 2)):
            width = DIM + family.layout_for(PAPER_LAYOUT, DIM).extra
            _check(family, family.random(width, LAYERS, heads, SCALE, np.random.default_rng(heads)), width + 1)
    except BaseException:
        _good.discard(family)
        raise


def _check(family: type[Family], example: Family, D: int) -> None:
    arrays = {name: np.array(value, np.float64) for name, value in example.arrays.items()}
    _check_axis(family, arrays)
    example = family(**arrays)
    if example.layers != LAYERS:
        _refuse(family, "layers must say how many layers the arrays describe", f"{example.layers} for {LAYERS} layers")
    P, Q = example.dense(DIM)
    shape = (LAYERS, example.heads, D, D)
    if np.shape(P) != shape or np.shape(Q) != shape:
        _refuse(family, f"dense must give P and Q of shape {shape}", f"shapes {np.shape(P)} and {np.shape(Q)}")
    P, Q = np.asarray(P, np.float64), np.asarray(Q, np.float64)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((BATCH, CONTEXT, DIM)), rng.standard_normal((BATCH, CONTEXT))
    tokens = np.concatenate([x, np.zeros((BATCH, CONTEXT, D - DIM - 1)), y[..., None]], -1)
    gram = np.swapaxes(tokens, 1, 2) @ tokens
    target = rng.standard_normal((BATCH, DIM))
    expected = _evaluated(Matrices(P, Q), gram, target).weights
    evaluation = _evaluated(example.kernel(DIM), gram, target)
    error = float(np.abs(evaluation.weights - expected).max() / max(np.abs(expected).max(), 1e-300))
    if not error < 1e-8:
        _refuse(family, "kernel and dense must describe the same model", f"predictions that differ by {error:.1g}")
    _check_slope(family, arrays, example.pullback(evaluation.gradient), gram, target)
    _check_layers(family, example, P, Q, gram)


def _check_axis(family: type[Family], arrays: dict[str, Array]) -> None:
    """Refuse arrays in which the axis of the layers has another length."""
    axis = family.layer_axis
    if not arrays:
        _refuse(family, "arrays must hold all parameters", "no array")
    if axis is not None and any(
        not -value.ndim <= axis < value.ndim or value.shape[axis] != LAYERS for value in arrays.values()
    ):
        shapes = ", ".join(f"{name} {value.shape}" for name, value in arrays.items())
        remedy = "Set layer_axis to the axis that does, or to None if none does"
        _refuse(family, f"axis {axis} of every array must count the layers", f"{shapes} for {LAYERS} layers", remedy)


def _check_layers(family: type[Family], example: Family, P: Float, Q: Float, gram: Array) -> None:
    """Compare models of other layers with the same layers of the dense form.

    Where no axis counts the layers, the defaults of these methods refuse, and there is nothing to compare.
    """
    target = np.zeros((len(gram), DIM))
    calls: dict[str, tuple[Callable[[], Family], list[int], int]] = {  # the layers that act, and how many there are
        "select(slice(0, 1))": (lambda: example.select(slice(0, 1)), [0], 1),
        "inserted(1, identity_layer())": (lambda: example.inserted(1, example.identity_layer()), [0, 1], 3),
        "inserted(1, select(slice(0, 1)))": (lambda: example.inserted(1, example.select(slice(0, 1))), [0, 0, 1], 3),
        "edit(1, **identity_layer())": (lambda: example.edit(1, **example.identity_layer()), [0], 2),
    }
    for words, (call, layers, count) in calls.items():
        names = [name for name in ("select", "inserted", "edit") if f"{name}(" in words]
        if family.layer_axis is None and any(getattr(family, name) is getattr(Family, name) for name in names):
            continue
        try:
            matrices = [np.asarray(matrix, np.float64) for matrix in call().dense(DIM)]
            predicted = _evaluated(Matrices(*matrices), gram, target).weights
        except Exception as error:  # whatever a class of the user's own does
            _refuse(family, f"{words} must give a model", f"{type(error).__name__}: {error}")
        expected = _evaluated(Matrices(P[layers], Q[layers]), gram, target).weights
        difference = np.abs(predicted - expected).max()
        if len(matrices[0]) != count or not difference < 1e-8 * max(np.abs(expected).max(), 1e-300):
            size = f"{count} layer{'s' * (count > 1)}"
            rule = f"{words} must give a model with {size}, which predicts what layers {layers} predict"
            received = f"{len(matrices[0])} layers, and predictions that differ by {difference:.1g}"
            _refuse(family, rule, received, f"Correct these methods, or layer_axis = {family.layer_axis}")


def _check_slope(
    family: type[Family], arrays: dict[str, Array], slope: Mapping[str, Any], gram: Array, target: Array
) -> None:
    """Compare `pullback` with central differences of the loss."""
    shapes = {name: np.shape(slope[name]) if name in slope else None for name in arrays}
    if shapes != {name: value.shape for name, value in arrays.items()}:
        _refuse(family, "pullback must give a derivative for every array, of its shape", f"shapes {shapes}")

    largest = max(float(np.abs(np.asarray(value)).max()) for value in slope.values())
    places = [(name, index) for name, value in arrays.items() for index in np.ndindex(value.shape)]
    sample = np.random.default_rng(1).permutation(len(places))[:MOST]
    for name, index in (places[i] for i in sample):
        ends = []
        for step in (1e-6, -1e-6):
            changed = {key: value.copy() for key, value in arrays.items()}
            changed[name][index] += step
            ends.append(_evaluated(family(**changed).kernel(DIM), gram, target).loss)
        expected, analytic = (ends[0] - ends[1]) / 2e-6, float(np.asarray(slope[name])[index])
        if not abs(expected - analytic) <= SLACK * max(largest, abs(expected), 1e-3):
            _refuse(
                family,
                "pullback must be the derivative of the loss",
                f"{analytic:.4g} for {name}{list(index)}, where differences of the loss give {expected:.4g}",
            )


def _evaluated(kernel: Kernel, gram: Array, target: Array) -> Any:
    """Loss, gradient and estimates of a kernel."""
    return NumpyEngine().evaluate(kernel, gram, target, counted=DIM, weights=True)


def _refuse(family: type[Family], rule: str, received: str, remedy: str = "Correct that method") -> NoReturn:
    refuse(f"in the family {family.__qualname__}, {rule}", received, f"{remedy}; see docs/explanations/families.md.")
