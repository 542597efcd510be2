"""The sampler of the engine in NumPy: moments of random sequences, from the native core's random words.

The generator is Threefry-4x32-20. The mathematics is explained in native/: sampler.hpp, features.hpp, tasks.hpp and
chi.hpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine.interface import Key, SampleArguments
from ridgeformer.engine.kernels import Float
from ridgeformer.engine.law import Choices, Law

Words = NDArray[np.uint32]
ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
# The last word of the counter says what the random numbers are for.
NORMALS, CHI, NOISE, FEATURES, ONES, TASKS = 0, 1, 1 << 31, (1 << 31) + 1, (1 << 31) + 2, (1 << 31) + 3
Array = NDArray[np.float64]


def _rotate(x: Words, by: int) -> Words:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))


def threefry(key: tuple[int, int, int, int], counter: tuple[Words, Words, Words, Words]) -> list[Words]:
    """Compute four random words for every counter.

    Args:
        key: Four words of 32 bits.
        counter: Four arrays of words, which broadcast.

    Returns:
        Four arrays of words, of the shape to which the counters broadcast.
    """
    k = [np.uint32(word) for word in key]
    k.append(np.uint32(0x1BD11BDA) ^ k[0] ^ k[1] ^ k[2] ^ k[3])
    x = [np.array(word, np.uint32) for word in np.broadcast_arrays(*counter)]
    for i in range(4):
        x[i] = x[i] + k[i]
    for turn in range(20):
        left, right = (1, 3) if turn % 2 == 0 else (3, 1)
        a, b = ROTATIONS[turn % 8]
        x[0] = x[0] + x[left]
        x[left] = _rotate(x[left], a) ^ x[0]
        x[2] = x[2] + x[right]
        x[right] = _rotate(x[right], b) ^ x[2]
        if turn % 4 == 3:
            s = turn // 4 + 1
            for i in range(4):
                x[i] = x[i] + k[(s + i) % 5]
            x[3] = x[3] + np.uint32(s)
    return x


def random_words(key: Key, sequence: Words, slot: Words, use: int) -> list[Words]:
    """Compute four random words for every sequence and slot.

    Args:
        key: The stream of random sequences.
        sequence: The indices of the sequences.
        slot: The indices of the words within a sequence; both arrays broadcast.
        use: What the numbers are for: `NORMALS`, `CHI`, `NOISE`, `FEATURES`, `ONES` or `TASKS`.

    Returns:
        Four arrays of words.
    """
    low = 0xFFFFFFFF
    return threefry(
        (key.seed & low, key.seed >> 32, key.stream, key.step >> 32),
        (sequence, np.array([key.step & low], np.uint32), slot, np.array([use], np.uint32)),
    )


def uniform(word: Words) -> NDArray[np.float64]:
    """Convert words to numbers in (0, 1), by their upper 31 bits.

    Args:
        word: Words, of any shape.

    Returns:
        The numbers, of the same shape.
    """
    return ((word >> np.uint32(1)).astype(np.float64) + 0.5) * 2.0**-31


def normals(u: Words, v: Words) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Convert pairs of words to pairs of standard normal numbers, by the method of Box and Muller.

    Args:
        u: Words that decide the radius.
        v: Words that decide the angle, of the same shape.

    Returns:
        Two arrays of independent normal numbers, of that shape.
    """
    radius = np.sqrt(-2 * np.log(uniform(u)))
    angle = v.view(np.int32) * (np.pi * 2.0**-31)
    return radius * np.cos(angle), radius * np.sin(angle)


def uniforms(key: Key, count: int, first: int, word: int) -> Array:
    """Return one random number for every sequence. See `Engine.uniforms`."""
    sequence = _indices(first, slice(0, count))
    return uniform(random_words(key, sequence, np.zeros(1, np.uint32), NOISE)[word])


def task_uniforms(key: Key, count: int, first: int, numbers: int) -> Array:
    """Return random numbers for the tasks of sequences, whichever engine draws all else.

    Args:
        key: The stream of random sequences.
        count: The number of sequences, B.
        first: The number of the first one.
        numbers: How many numbers each sequence has.

    Returns:
        Numbers in (0, 1), [B, numbers].
    """
    slots = np.arange((numbers + 3) // 4, dtype=np.uint32)
    words = random_words(key, _indices(first, slice(0, count))[:, None], slots[None, :], TASKS)
    return uniform(np.stack(words, axis=-1).reshape(count, -1)[:, :numbers])


def draw(given: SampleArguments, part: slice) -> tuple[Float, Array, Array, Array | None]:
    """Draw some of the sequences.

    Args:
        given: Which sequences.
        part: Some of them.

    Returns:
        Gram matrices, task vectors, ridge solutions and metrics of their own, as in `SampledMoments`.
    """
    law, choices, key, layout = given.law, given.choices.chosen(part), given.key, given.layout
    sequence = _indices(given.first, part)
    d, count, sigma = law.dim, len(choices), choices.sigma
    n = np.full(count, law.context) if choices.counts is None else np.asarray(choices.counts)
    span = n - law.standardised  # directions that the tokens can span
    rank = min(law.context - law.standardised, d)
    below = [(i, j) for i in range(d) for j in range(min(i, rank))]
    draws = _normals(key, sequence, len(below) + d + rank, NORMALS)
    there = span[:, None] > np.arange(rank)  # columns that a sequence has
    A = np.zeros((count, d, rank))
    for column, (i, j) in enumerate(below):
        A[:, i, j] = draws[:, column] * there[:, j]
    g, z = draws[:, len(below) : len(below) + d], draws[:, len(below) + d :] * there
    for i in range(rank):
        A[:, i, i] = np.sqrt(_chi2(key, sequence, i, span - i))
    A, metric = _shape_features(law, A, key, sequence, n)
    w = _tasks(law, choices, g)
    t = np.einsum("bij,bi->bj", A, w) + sigma[:, None] * z
    dof = n - np.minimum(span, d)
    beyond = _chi2(key, sequence, d, dof)
    gram = np.empty((count, d + 1, d + 1))
    gram[:, :d, :d] = A @ A.transpose(0, 2, 1)
    gram[:, :d, d] = gram[:, d, :d] = np.einsum("bij,bj->bi", A, t)
    gram[:, d, d] = np.square(t).sum(1) + sigma**2 * beyond
    ridge = w if law.pool is not None else _posterior_mean(law, A, g, z, t, sigma, there)
    sums = _sums(law, A, t, sigma, beyond, n, dof, there, key, sequence) if layout.coordinate != "none" else None
    return layout.gram(gram, n, sums), w, ridge, metric


def _shape_features(law: Law, A: Array, key: Key, sequence: Any, n: Any) -> tuple[Array, Array | None]:
    """A with the features' covariance, and the queries' one of each sequence, [B, d, d]."""
    d, count = law.dim, len(A)
    covariance = np.broadcast_to(np.eye(d), (count, d, d))
    reflections, loadings = d * (d + 1) // 2 - 1, d * law.factors
    used = {"fixed": 0, "rotated": reflections, "factors": loadings}[law.covariance]
    draws = _normals(key, sequence, used + d, FEATURES)
    if law.covariance == "fixed" and law.factor is not None:
        A, covariance = law.factor @ A, np.broadcast_to(law.factor @ law.factor.T, (count, d, d))
    if law.covariance == "rotated":
        roots = np.ones(d) if law.factor is None else law.factor
        basis = _random_basis(draws[:, :used], d) * roots
        A, covariance = basis @ A, basis @ basis.transpose(0, 2, 1)
    if law.covariance == "factors":
        L = draws[:, :used].reshape(count, d, law.factors) / np.sqrt(law.factors)
        raw = L @ L.transpose(0, 2, 1) + law.unique * np.eye(d)
        scale = np.sqrt(np.einsum("bii->bi", raw))
        covariance = raw / scale[:, :, None] / scale[:, None, :]
        A = np.linalg.cholesky(covariance) @ A
    if law.spread:
        A, covariance = _scaled(A, covariance, np.exp(law.spread * draws[:, used:] - law.spread**2))
    if law.standardised:
        A, covariance = _scaled(A, covariance, np.sqrt(n[:, None] / np.square(A).sum(2)))
        covariance = covariance * (1 + 1 / n)[:, None, None]
    return A, covariance if law.own_metric else None


def _scaled(A: Array, covariance: Array, by: Array) -> tuple[Array, Array]:
    return A * by[:, :, None], covariance * by[:, :, None] * by[:, None, :]


def _random_basis(draws: Array, dim: int) -> Array:
    """A random orthogonal matrix for every sequence, up to the signs of its columns, [B, d, d]."""
    basis = np.broadcast_to(np.eye(dim), (len(draws), dim, dim)).copy()
    at = 0
    for k in range(dim - 2, -1, -1):
        u = draws[:, at : at + dim - k].copy()
        at += dim - k
        u[:, 0] += np.where(u[:, 0] < 0, -1, 1) * np.linalg.norm(u, axis=1)
        u *= np.sqrt(2) / np.linalg.norm(u, axis=1)[:, None]
        basis[:, k:] -= u[:, :, None] * np.einsum("bi,bij->bj", u, basis[:, k:])[:, None, :]
    return basis


def _tasks(law: Law, choices: Choices, g: Array) -> Array:
    """The task vectors, [B, d]."""
    w = g if law.task_factor is None else g[:, : law.rank] @ law.task_factor.T
    if law.mean is not None:
        w = w + law.mean
    if law.pool is None:
        return w
    task = np.asarray(choices.task)
    return np.where((task >= 0)[:, None], law.pool[task], w)


def _sums(
    law: Law, A: Array, t: Array, sigma: Array, beyond: Array, n: Any, dof: Any, there: Any, key: Key, sequence: Any
) -> Array:
    """The sums of the tokens, [B, D]: sqrt(n) times coordinates of a random unit vector in the basis of A and t."""
    rank = A.shape[2]
    draws = _normals(key, sequence, rank + 1, ONES)
    u = np.zeros((len(A), rank)) if law.standardised else draws[:, 1:] * there
    outside = _chi2(key, sequence, law.dim + 1, dof)
    length = np.sqrt(np.square(u).sum(1) + outside)
    u = u / length[:, None]
    sign = draws[:, 0] / np.sqrt(draws[:, 0] ** 2 + _chi2(key, sequence, law.dim + 2, dof - 1))
    along = (u * t).sum(1) + sigma * np.sqrt(outside) / length * np.sqrt(beyond) * sign
    return np.asarray(np.sqrt(n)[:, None] * np.column_stack([np.einsum("bij,bj->bi", A, u), along]))


def _posterior_mean(law: Law, A: Array, g: Array, z: Array, t: Array, sigma: Array, there: Any) -> Array:
    """E[w | context, sigma]; exact at sigma = 0, and without an inverse of S when there are too few tokens."""
    s, r, m = sigma[:, None], law.rank, A.shape[2]
    H = A if law.task_factor is None else law.task_factor.T @ A
    if law.least - law.standardised >= r:
        shift = np.square(sigma)[:, None, None] * np.eye(r)
        right = s * (np.einsum("bij,bj->bi", H, z) - s * g[:, :r])
        coordinates = g[:, :r] + _solution(H @ H.transpose(0, 2, 1) + shift, right[..., None])[..., 0]
    else:
        shift = np.square(sigma)[:, None, None] * np.eye(m) + np.eye(m) * ~there[:, None, :]
        goal = t if law.mean is None else t - np.einsum("bij,i->bj", A, law.mean)
        inner, system = goal[..., None], H.transpose(0, 2, 1) @ H + shift
        # More tokens than directions of g: without noise the system is singular, and any of its solutions will do.
        inner = np.linalg.pinv(system, rcond=1e-14, hermitian=True) @ inner if r < m else _solution(system, inner)
        coordinates = (H @ inner)[..., 0]
    w = coordinates if law.task_factor is None else coordinates @ law.task_factor.T
    return w if law.mean is None else w + law.mean


def _solution(system: Array, right: Array) -> Array:
    """Solve symmetric systems, which are singular where features lack a direction and there is no noise."""
    try:
        return np.asarray(np.linalg.solve(system, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(system, rcond=1e-14, hermitian=True) @ right)


def _normals(key: Key, sequence: Any, count: int, use: int) -> Array:
    """`count` standard normals for every sequence, [B, count]."""
    slots = np.arange((count + 3) // 4, dtype=np.uint32)
    r = random_words(key, sequence[:, None], slots[None, :], use)
    four = [*normals(r[0], r[1]), *normals(r[2], r[3])]
    return np.stack(four, axis=-1).reshape(len(sequence), -1)[:, :count]


def _chi2(key: Key, sequence: Any, slot: int, freedom: Any) -> Array:
    """chi2(freedom) for every sequence by Marsaglia and Tsang's method; shape 1/2 from shape 3/2; 0 without freedom."""
    single = freedom == 1
    c = freedom / 2 - 1 / 3 + single
    out = np.zeros(len(sequence))
    waiting = np.flatnonzero(freedom > 0)
    attempt = 0
    while len(waiting):
        r = random_words(key, sequence[waiting], np.full(1, slot, np.uint32), CHI + attempt)
        x = normals(r[0], r[1])[0]
        u, boost, c_ = uniform(r[2]), uniform(r[3]), c[waiting]
        v = 1 + x / (3 * np.sqrt(c_))
        e = v - 1
        positive = v > 0
        bound = 3 * c_ * (np.log(np.where(positive, v, 1)) - e + e**2 / 2 - e**3 / 3)
        good = positive & ((u < 1 - 0.0331 * x**4) | (np.log(u) < bound))
        out[waiting[good]] = (2 * c_ * v**3 * np.where(single[waiting], boost**2, 1))[good]
        waiting = waiting[~good]
        attempt += 1
    return out


def _indices(first: int, part: slice) -> NDArray[np.uint32]:
    """Indices in the stream of the sequences in `part`."""
    return np.arange(part.start, part.stop, dtype=np.uint32) + np.uint32(first)
