"""Whether a model treats all directions of x alike.

The problem does: with R orthogonal, the context (R x, y) has the answer R w. So do families that are `isotropic`, and
the Bayes predictor. Full need not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse
from ridgeformer.evaluation.sequence_losses import EVALUATION, draw_sequences, needs_sums
from ridgeformer.explanation.coefficients import check
from ridgeformer.losses import exploded
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.moments import Moments
from ridgeformer.problems import Problem
from ridgeformer.validation import integer

Array = NDArray[np.float64]


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
        refuse(
            "directions are compared on problems that treat all of them alike",
            problem,
            "Use a problem with isotropic features and tasks and one context length.",
        )
    sequences, rotations = integer("sequences", sequences), integer("rotations", rotations, 2)
    draw = draw_sequences(problem, seed, 0, sequences, sums=needs_sums([model]))
    rng = np.random.default_rng((seed, EVALUATION))
    here = model.weights(draw.moments).astype(np.float64)
    there = np.stack([turned(model, draw.moments, _rotation(model.dim, rng)) for _ in range(rotations)])
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


def _rotation(dim: int, rng: np.random.Generator) -> Array:
    """Uniform over the orthogonal matrices."""
    basis, triangle = np.linalg.qr(rng.standard_normal((dim, dim)))
    return np.asarray(basis * np.sign(np.diag(triangle)))
