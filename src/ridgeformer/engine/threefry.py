"""Threefry-4x32-20 in NumPy, and the numbers that a sequence's counter gives: the native core's, word for word."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine.arguments import Key

Words = NDArray[np.uint32]
ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
# The last word of the counter says what the random numbers are for.
NORMALS, CHI, NOISE, FEATURES, ONES, TASKS = 0, 1, 1 << 31, (1 << 31) + 1, (1 << 31) + 2, (1 << 31) + 3


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
