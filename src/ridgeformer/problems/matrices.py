"""Checks of covariance matrices: of features and tasks, and of the queries of single sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ridgeformer.errors import refuse
from ridgeformer.validation import array

__all__ = ["check_covariance", "check_metric", "fitting"]

Array = NDArray[np.float64]
Float = NDArray[np.floating[Any]]


def check_covariance(name: str, matrix: ArrayLike, definite: bool) -> Array:
    """Return a covariance matrix [d, d] as float64.

    Args:
        name: What it is, for messages.
        matrix: The matrix.
        definite: Whether all its eigenvalues must be positive; otherwise they may also be zero.

    Returns:
        The matrix, exactly symmetric.

    Raises:
        InputError: It is not square, not symmetric, or has a negative eigenvalue, or a zero one where none may be.
    """
    values = array(name, matrix, ("d", "d")).astype(np.float64)
    if values.shape[0] != values.shape[1]:
        refuse(f"{name} must be square", f"shape {values.shape}", "Pass a matrix [d, d].")
    scale = float(np.abs(values).max())
    gaps = np.abs(values - values.T)
    if float(gaps.max()) > 1e-9 * scale:
        i, j = (int(k) for k in np.unravel_index(gaps.argmax(), gaps.shape))
        received = f"{values[i, j]:g} at [{i}, {j}] and {values[j, i]:g} at [{j}, {i}]"
        refuse(f"{name} must be symmetric", received, "Pass (A + A.T) / 2, if A is meant to be symmetric.")
    values = (values + values.T) / 2
    least = float(np.linalg.eigvalsh(values)[0])
    if definite and not least > 1e-12 * scale:
        refuse(
            f"{name} must be positive definite",
            f"a smallest eigenvalue of {least:.3g}",
            "Add a multiple of the identity.",
        )
    if least < -1e-9 * scale:
        refuse(
            f"{name} must have no negative eigenvalue", f"{least:.3g}", "Pass A @ A.T for some matrix A, for example."
        )
    return values


def check_metric(metric: object, count: int, dim: int) -> Float:
    """Return the metric of a loss, if it is symmetric and has no negative eigenvalue.

    Args:
        metric: The covariance of the queries, [d, d] for all sequences or [B, d, d].
        count: The number of sequences, B.
        dim: The dimension d.

    Returns:
        The metric.

    Raises:
        InputError: It is no covariance, or its shape does not fit.
    """
    given = array("metric", metric, (dim, dim) if np.ndim(metric) == 2 else (count, dim, dim))  # type: ignore[arg-type]
    size = np.abs(given).max(axis=(-2, -1), keepdims=True)
    slack = (1e-5 if given.dtype == np.float32 else 1e-9) * size
    if (np.abs(given - np.swapaxes(given, -2, -1)) > slack).any():
        refuse("the metric of a loss must be symmetric", "one that is not", "Pass the covariance of the queries.")
    least = np.linalg.eigvalsh(given).min(axis=-1)
    if (least < -slack[..., 0, 0]).any():
        refuse(
            "the metric of a loss must have no negative eigenvalue",
            f"{float(least.min()):.3g}",
            "Pass the covariance of the queries.",
        )
    return given


def fitting(name: str, value: Array, dim: int) -> Array:
    """Return an array whose length is the dimension.

    Args:
        name: What it is, for the error message.
        value: The array, [d, ...].
        dim: The dimension d.

    Returns:
        The array.

    Raises:
        InputError: It is one for another dimension.
    """
    if len(value) != dim:
        remedy = f"Use dim={len(value)}, or pass one for dimension {dim}."
        refuse(f"{name} must fit the dimension {dim}", f"one for dimension {len(value)}", remedy)
    return value
