"""A layer's four omegas, and how much of a Full layer they are.

A layer is the linear map G -> sum_k P_k G Q_k of symmetric matrices. P and Q themselves are no measure of it: c P and
Q / c are the same layer, and heads can be mixed. So the diagonal part of a layer is the diagonal layer whose *map* is
nearest, in the Frobenius norm on symmetric G. With d coordinates x and the label y that is

    omega_xx = sum_k (tr P_xx tr Q_xx + <P_xx, Q_xx>) / (d^2 + d)
    omega_xy = sum_k (tr P_xx Q_yy + <P_xy, Q_xy>) / d
    omega_yx = sum_k (P_yy tr Q_xx + <P_yx, Q_yx>) / d
    omega_yy = sum_k P_yy Q_yy

and for P and Q that are diagonal themselves, the paper's equation for the omegas.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import kind_of, refuse
from ridgeformer.evaluation.sequence_losses import EVALUATION, check_predictor, draw_sequences, needs_sums
from ridgeformer.losses import exploded
from ridgeformer.models.families import Diag, Full, with_more_heads
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.problems import Problem
from ridgeformer.problems.base import check_any_problem
from ridgeformer.validation import integer, layer_number, listed
from ridgeformer.values import Array

VISIBLE = 0.01  # of a matrix's largest singular value: above it, one of the rest counts


@dataclass(frozen=True)
class Rest:
    """One matrix, P or Q of a head, beside its diagonal part diag(p_x I, p_y).

    Attributes:
        share: Share of the squared Frobenius norm that the diagonal part carries; 1 for a matrix of zeros.
        rank: How many singular values of the rest are above 1 % of the matrix's largest.
        effective: (sum s^2)^2 / sum s^4 of the rest's singular values s: how many carry it; 0 without a rest.
    """

    share: float
    rank: int
    effective: float


@dataclass(frozen=True)
class Coefficients:
    """The parameters of a layer.

    Attributes:
        omega: ((xx, xy), (yx, yy)) of the nearest diagonal layer, row to, column from.
        share: Share of the squared norm of the map G -> sum P G Q that this diagonal layer carries.
        P: For every head, P beside its own diagonal part.
        Q: For every head, Q beside its own diagonal part.
    """

    omega: tuple[tuple[float, float], tuple[float, float]]
    share: float
    P: tuple[Rest, ...]
    Q: tuple[Rest, ...]


def coefficients(model: LinearTransformer) -> list[Coefficients]:
    """Describe the parameters of every layer, as far as they concern x and y.

    Args:
        model: The model; products with further coordinates of its tokens are left out.

    Returns:
        One entry per layer.
    """
    layers = []
    for P, Q in zip(_of_tokens(model, model.P), _of_tokens(model, model.Q), strict=True):
        omega, total, d = nearest_omega(P, Q), _squared_norm(P, Q), model.dim
        carried = float((omega**2 * [[(d * d + d) / 2, d / 2], [d / 2, 1.0]]).sum())
        share = min(carried / total, 1.0) if total > 0 else 1.0
        (xx, xy), (yx, yy) = omega.tolist()
        layers.append(Coefficients(((xx, xy), (yx, yy)), share, tuple(map(_rest, P)), tuple(map(_rest, Q))))
    return layers


def nearest_omega(P: Array, Q: Array) -> Array:
    """Find the diagonal layer that is nearest to a layer.

    Args:
        P: Matrices of the layer, [H, D, D].
        Q: Matrices of the layer, [H, D, D].

    Returns:
        Its omega, [2, 2].
    """
    d = P.shape[-1] - 1
    x, y = slice(0, d), d
    trace_p, trace_q = np.trace(P[:, x, x], axis1=1, axis2=2), np.trace(Q[:, x, x], axis1=1, axis2=2)
    p, q = P[:, y, y], Q[:, y, y]
    xx = (trace_p * trace_q + (P[:, x, x] * Q[:, x, x]).sum((1, 2))).sum() / (d * d + d)
    xy = (trace_p * q + (P[:, x, y] * Q[:, x, y]).sum(1)).sum() / d
    yx = (p * trace_q + (P[:, y, x] * Q[:, y, x]).sum(1)).sum() / d
    return np.array([[xx, xy], [yx, (p * q).sum()]])


def diagonal_part(model: LinearTransformer, layers: Iterable[int] | None = None) -> LinearTransformer:
    """Replace layers by the nearest diagonal ones, which leave further coordinates of the tokens alone.

    Args:
        model: The model.
        layers: Which layers, from 0; None for all.

    Returns:
        The new model; a Diag model if all layers are replaced and tokens are (x, y).
    """
    if not isinstance(model, LinearTransformer):
        refuse("only a linear transformer has a diagonal part", kind_of(model), "Pass a model.")
    numbers = range(model.layers) if layers is None else listed("layers", layers, "[0, 1]")
    selected = {layer_number(layer, model.layers) for layer in numbers}
    pairs = zip(_of_tokens(model, model.P), _of_tokens(model, model.Q), strict=True)
    omega = np.stack([nearest_omega(*pair) for pair in pairs])
    if len(selected) == model.layers and not model.layout.extra:
        return LinearTransformer(Diag(omega=omega), model.dim, model.layout)
    flat, heads, xy = LinearTransformer(Diag(omega=omega), model.dim), max(model.heads, 2), _xy(model)
    P, Q, *diagonal = (with_more_heads(m.astype(np.float64), heads, 0.0) for m in (model.P, model.Q, flat.P, flat.Q))
    for layer, (matrices, of) in itertools.product(selected, zip((P, Q), diagonal, strict=True)):
        matrices[layer] = 0
        matrices[layer][:, xy[:, None], xy] = of[layer]
    return LinearTransformer(Full(P, Q), layout=model.layout)


def check(model: object, problem: Any) -> None:
    """Check that a model can be explained on a problem.

    Args:
        model: The model.
        problem: The problem.

    Raises:
        InputError: It is not a `LinearTransformer`, there is no problem, or their dimensions differ.
    """
    check_any_problem(problem)
    if type(model) is not LinearTransformer:
        refuse("only a linear transformer can be explained", kind_of(model), "Pass a LinearTransformer.")
    check_predictor("model", model, problem)


def _of_tokens(model: LinearTransformer, values: NDArray[Any]) -> Array:
    """The parts of parameters [L, H, D, D] that concern x and y, [L, H, d + 1, d + 1]."""
    xy = _xy(model)
    return np.asarray(values, np.float64)[..., xy[:, None], xy]


def _xy(model: LinearTransformer) -> NDArray[np.intp]:
    """The coordinates of x and y."""
    return np.append(np.arange(model.dim), model.width)


def _squared_norm(P: Array, Q: Array) -> float:
    """Return the squared norm of G -> sum_k P_k G Q_k, symmetric G: its kernel is 1/2 (P_ac Q_db + P_ad Q_cb)."""
    straight = np.einsum("kab,jab->kj", P, P) * np.einsum("kab,jab->kj", Q, Q)
    crossed = np.einsum("kac,jad,kdb,jcb->kj", P, P, Q, Q, optimize=True)
    return float(0.5 * (straight + crossed).sum())


def _rest(matrix: Array) -> Rest:
    d = len(matrix) - 1
    diagonal = np.diag(np.append(np.full(d, np.trace(matrix[:d, :d]) / d), matrix[d, d]))
    total, remainder = float((matrix**2).sum()), matrix - diagonal
    left = float((remainder**2).sum())
    if left <= 1e-28 * total:  # rounding
        return Rest(1.0, 0, 0.0)
    values = np.linalg.svd(remainder, compute_uv=False)
    rank = int((values > VISIBLE * np.linalg.norm(matrix, 2)).sum())
    return Rest(1 - left / total, rank, float((values**2).sum() ** 2 / (values**4).sum()))


@dataclass(frozen=True)
class Symmetry:
    """How a model's weights depend on the directions of x.

    Attributes:
        defect: Mean square of R' w(R context) - w(context) over that of w: 0 if all directions are treated alike.
        loss: Mean adjusted loss of R' w(R context), beside any intercept, over random rotations R; in expectation the
            model's own loss.
        averaged: Adjusted loss of the mean of R' w(R context) over the rotations. It is never larger than `loss`, and
            the smaller, the more the weights depend on R.
        rotations: How many rotations were used.
    """

    defect: float
    loss: float
    averaged: float
    rotations: int


def symmetry(
    problem: Problem, model: LinearTransformer, *, sequences: int = 5000, rotations: int = 16, seed: int = 0
) -> Symmetry:
    """Rotate the contexts at random and compare the weights.

    Args:
        problem: The problem.
        model: The model.
        sequences: How many sequences.
        rotations: How many rotations, at least 2.
        seed: Seed of the sequences and of the rotations.

    Returns:
        The comparison.

    Raises:
        InputError: The model and the problem do not fit, the problem is not isotropic, or the model explodes on every
            sequence.
    """
    check(model, problem)
    if not problem.is_isotropic:
        remedy = "Use a problem with isotropic features and tasks and one context length."
        refuse("directions are compared on problems that treat all of them alike", problem, remedy)
    sequences, rotations = integer("sequences", sequences), integer("rotations", rotations, 2)
    draw = draw_sequences(problem, seed, 0, sequences, sums=needs_sums(model))
    rng = np.random.default_rng((seed, EVALUATION))
    here = model.weights(draw.moments).astype(np.float64)
    bases = (np.linalg.qr(rng.standard_normal((model.dim, model.dim))) for _ in range(rotations))
    # With these signs the rotations are uniform over the orthogonal matrices.
    there = np.stack([turned(model, draw.moments, basis * np.sign(np.diag(triangle))) for basis, triangle in bases])
    with np.errstate(all="ignore"):
        losses = 0.5 * np.square(there - draw.ridge).sum(2)
        averaged = 0.5 * np.square(there.mean(0) - draw.ridge).sum(1)
        size = 0.5 * np.square(here).sum(1)  # w as a loss against 0: it explodes where w does
        good = ~exploded(losses, problem.signal).any(0) & ~exploded(size, problem.signal)
    if not good.any():
        refuse("a model must not explode on every sequence", repr(model), "Pass a trained model.")
    mean = np.square(here[good]).sum(1).mean()
    defect = np.square(there[:, good] - here[good]).sum(2).mean() / mean if mean > 0 else 0.0
    return Symmetry(float(defect), float(losses[:, good].mean()), float(averaged[good].mean()), rotations)


def turned(model: LinearTransformer, moments: Moments, rotation: Array) -> Array:
    """Compute R' w(R context) for every context.

    Args:
        model: The model.
        moments: The contexts, B of them.
        rotation: The orthogonal matrix R, [d, d].

    Returns:
        The weights, [B, d].
    """
    R = np.eye(model.dim + 1)
    R[:-1, :-1] = rotation
    gram: NDArray[Any] = R @ moments.gram.astype(np.float64) @ R.T
    sums = None if moments.sums is None else np.asarray(moments.sums @ R.T)
    w = model.weights(Moments._trusted((gram + np.swapaxes(gram, 1, 2)) / 2, moments.context, sums=sums))
    with np.errstate(all="ignore"):
        return np.asarray(w @ rotation)
