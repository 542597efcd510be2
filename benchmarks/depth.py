"""A lower bound for depth: no model with L layers has a smaller loss, whatever its family, heads and scratch room.

A layer multiplies Gram matrices: T = I + sum P G Q, G <- T G T', C <- T C. So the estimate of a model with L layers is
a polynomial of degree (3^L - 1) / 2 in the entries S, a and l of the Gram matrix: 1, 4, 13, ... On a problem without a
preferred direction the mean of a model over all rotations is a polynomial of the same degree, and by convexity its
loss is not larger. It treats all directions alike, so it is a sum of monomials S^k a times products of l, tr S^i and
a'S^m a. The best coefficients are a linear least-squares problem.

On the sequences of the fit the loss is on average below the least one, on new sequences above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed import Measurement, Setup
from ridgeformer import zoo
from ridgeformer.evaluation import compare
from ridgeformer.moments import Moments
from ridgeformer.problems import Problem

Array = NDArray[np.float64]
BLOCK = 10_000
NOISES = ("uniform(0,1)", "uniform(0,3)", "uniform(0,5)", "categorical(1,3)", "categorical(1,3,5)")


class Bound(NamedTuple):
    """Losses of the best polynomial: on the sequences of its fit, and on as many new ones."""

    fitted: float
    new: float
    monomials: int


def degree(layers: int) -> int:
    """The degree of the estimate of a model in the entries of the Gram matrix."""
    return (3**layers - 1) // 2


@cache
def _invariants(most: int) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Products of l, tr S^i and a'S^m a of degree at most `most`, each as its factors in ascending order."""
    factors = [("l", 0, 1), *(("t", i, i) for i in range(1, most + 1)), *(("b", m, m + 2) for m in range(most - 1))]
    products: list[tuple[int, tuple[tuple[str, int], ...]]] = [(0, ())]
    for name, index, size in factors:
        products += [
            (total + power * size, (*old, *[(name, index)] * power))
            for total, old in products
            for power in range(1, (most - total) // size + 1)
        ]
    return tuple(old for _, old in products)


def features(moments: Moments, layers: int) -> Array:
    """The monomials that an estimate with some layers is made of, for contexts of one length.

    Args:
        moments: The contexts.
        layers: The number of layers, 1 or 2; with 3 there are 8,012 monomials.

    Returns:
        Their values, [B, d, K].
    """
    most, n, d = degree(layers) - 1, moments.counts[0], moments.dim
    S, a, squares = moments.S / n, moments.b / n, moments.q / (n * d)
    powers = [np.broadcast_to(np.eye(d), S.shape)]
    for _ in range(most):
        powers.append(powers[-1] @ S)
    vectors = [np.einsum("bij,bj->bi", power, a) for power in powers]
    value = {("l", 0): squares}
    value |= {("t", i): np.einsum("bii->b", powers[i]) / d for i in range(1, most + 1)}
    value |= {("b", m): (a * vectors[m]).sum(1) / d for m in range(most - 1)}
    columns = []
    for k, vector in enumerate(vectors):
        for product in _invariants(most - k):
            scalar = np.prod([value[factor] for factor in product], axis=0) if product else np.ones(len(a))
            columns.append(scalar[:, None] * vector)
    return np.stack(columns, -1)


def bound(problem: Problem, layers: int, *, sequences: int = 60_000, seed: int = 0) -> Bound:
    """Estimate the least adjusted loss of any model with some layers.

    Args:
        problem: A problem without a preferred direction, with one number of examples.
        layers: The number of layers, 1 or 2.
        sequences: How many sequences the coefficients are fitted on; as many new ones are drawn.
        seed: The seed.

    Returns:
        The two losses that the bound lies between, but for their standard errors, and the number of monomials.
    """

    def rows(stream: int) -> Iterator[tuple[Array, Array]]:
        for first in range(0, sequences, BLOCK):
            draw = problem.moments(min(BLOCK, sequences - first), seed=seed, stream=stream, first=first)
            X = features(draw.moments, layers)
            yield X.reshape(-1, X.shape[-1]), np.asarray(draw.ridge).ravel()

    pilot, _ = next(rows(1))
    scale = np.sqrt((pilot**2).mean(0))
    _, values, basis = np.linalg.svd(pilot / scale, full_matrices=False)
    change = (basis.T / values * np.sqrt(len(pilot)))[:, values > 1e-10 * values[0]] / scale[
        :, None
    ]  # well conditioned
    sums = []
    for stream in (1, 2):
        M, v, s = 0.0, 0.0, 0.0
        for X, y in rows(stream):
            Z = X @ change
            M, v, s = M + Z.T @ Z, v + Z.T @ y, s + y @ y
        sums.append((M, v, s))
    M, v, s = sums[0]
    best = np.linalg.solve(M, v)
    fitted, new = ((s - 2 * best @ v + best @ M @ best) / (2 * sequences) for M, v, s in sums)
    return Bound(float(fitted), float(new), len(scale))


def measurements(setup: Setup) -> list[Measurement]:
    """The bound for one and two layers over noises, beside the best shipped model with as many layers."""
    results = []
    for noise in NOISES[:: 3 if setup.quick else 1]:
        problem = Problem(noise=noise)
        for layers in (1, 2):
            least = bound(problem, layers, sequences=10_000 if setup.quick else 60_000)
            models = {f: zoo.shipped().model(f, layers, noise) for f in ("diag", "full")}
            losses = compare(problem, models, sequences=10_000 if setup.quick else 60_000, seed=5)
            reached = ", ".join(f"{name} {losses[name].loss:.4g}" for name in models)
            text = f"new sequences {least.new:.4g}; {reached}; floor {losses['diag'].floor:.4g}"
            results.append(Measurement(f"{layers} layers on {noise}: no model is below", least.fitted, "", detail=text))
    return results
