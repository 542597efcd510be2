"""Whole sequences of a problem, token by token: the same law as its moments, from other random numbers.

A `Bank` keeps the sequences that Python draws, in the precision that was asked for, so that asking twice costs little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Key
from ridgeformer.problems.draws import Draw, Sequences
from ridgeformer.validation import Array
from ridgeformer.values import read_only

if TYPE_CHECKING:
    from ridgeformer.problems.problem import Problem

LARGEST_BLOCK = 512  # sequences
NUMBERS = 1 << 22  # in the tokens of a block, at most
KEPT = 1 << 29  # bytes of moments that are kept
STORED, PASSES = 1 << 14, 8  # sequences that steps of training share, and how often each is used
STORES = 4  # stores that are kept: descents that race each other take the same steps, one descent after another


def draw_with_tokens(problem: Problem, rng: np.random.Generator, count: int, queries: int = 4) -> Draw:
    """Draw whole sequences with all that is known about them.

    Args:
        problem: The distribution of sequences.
        rng: The random numbers.
        count: How many sequences, B.
        queries: How many queries each sequence has.

    Returns:
        The draw, with its tokens.
    """
    n, each = problem.lengths.most, problem.noise.per_token
    sigma = problem.noise.quantile(rng.random((count, n) if each else count))
    task = rng.standard_normal((count, problem.dim))
    x = rng.standard_normal((count, n, problem.dim))
    noise = (sigma if each else sigma[:, None]) * rng.standard_normal((count, n))
    asked = rng.standard_normal((count, queries, problem.dim))
    counts = metric = None
    if not problem.is_isotropic:
        counts = None if problem.lengths.fixed else problem.lengths.quantile(rng.random(count))
        there = np.arange(n) < (n if counts is None else counts[:, None])
        covariances = problem.features.covariances(problem.dim, count, rng)
        x, asked, metric = _shaped(problem, x, asked, covariances, np.broadcast_to(there, (count, n)))
        noise, task = noise * there, _task(problem, task, rng)
    y = np.einsum("bnd,bd->bn", x, task) + noise
    answers = np.einsum("bnd,bd->bn", asked, task)
    x, y, asked, answers, task, sigma = map(read_only, (x, y, asked, answers, task, sigma))
    tokens = Sequences(x, y, asked, answers, task, sigma, counts, metric)
    moments = tokens.moments
    return Draw(moments, task, problem.oracle(tokens), moments.sigma, tokens.metric, tokens=tokens)


def _shaped(
    problem: Problem, x: Array, asked: Array, covariances: Array, there: Any
) -> tuple[Array, Array, Array | None]:
    """Features and queries with their covariances, [B, n, d] and [B, m, d], and the queries' one as a metric.

    Tokens that are not there become 0.
    """
    roots = np.linalg.cholesky(covariances)
    x = np.einsum("bij,bnj->bni", roots, x) * there[:, :, None]
    if problem.query is not None:
        roots = np.broadcast_to(np.linalg.cholesky(problem.query.mean_covariance(problem.dim)), roots.shape)
    asked = np.einsum("bij,bnj->bni", roots, asked)
    if not problem.features.standardised:
        return x, asked, np.array(covariances) if problem.law.own_metric else problem.law.metric
    n = there.sum(1)[:, None, None]
    mean = x.sum(1, keepdims=True) / n
    x = (x - mean) * there[:, :, None]
    scale = np.sqrt(np.square(x).sum(1, keepdims=True) / n)
    return x / scale, (asked - mean) / scale, covariances / np.swapaxes(scale, 1, 2) / scale * (1 + 1 / n)


def _task(problem: Problem, g: Array, rng: np.random.Generator) -> Array:
    if numbers := problem.tasks.numbers(problem.dim):
        return problem.tasks.drawn(rng.random((len(g), numbers)))
    u, prior, pool = rng.random(len(g)), problem.prior, problem.law.pool
    w = prior.back(g if prior.factor is None else g[:, : prior.factor.shape[1]])
    if pool is None:
        return w
    index = problem.tasks.choose(u, problem.dim)
    return np.where((index >= 0)[:, None], pool[index], w)


class Bank:
    """The sequences of every key, drawn block by block.

    Sequence i of a key is the same however many sequences are asked for, because whole blocks are drawn.

    Args:
        draw: Draws sequences from random numbers.
        numbers: The numbers in the tokens of one sequence, which decide how many sequences make a block.
    """

    def __init__(self, draw: Callable[[np.random.Generator, int], Draw], numbers: int) -> None:
        self._draw, self._size = draw, min(LARGEST_BLOCK, max(1, NUMBERS // numbers))
        self._kept: dict[tuple[Key, range, type], Draw] = {}
        self._store, self._order = lru_cache(STORES)(self._drawn_once), lru_cache(1)(_order)

    def draw(self, key: Key, count: int, first: int, dtype: type = np.float64, *, tokens: bool = False) -> Draw:
        """Return sequences number `first` to `first + count` of a key, and keep them where there is room.

        Runs of one seed ask for the same sequences in the same order, one run after another. If the oldest made room
        for the newest, all would be gone when they are needed again. So those of other seeds make room, and no others.

        Args:
            key: The stream of random sequences.
            count: The number of sequences.
            first: The number of the first one.
            dtype: float32 or float64. Default: float64.
            tokens: Whether to return the tokens too, which are not kept.

        Returns:
            The draw.
        """
        numbers = range(first // self._size, (first + count - 1) // self._size + 1)
        draw = self._fresh(key, numbers, dtype, tokens=True) if tokens else self._blocks(key, numbers, dtype)
        start = first - numbers[0] * self._size
        return draw.chosen(slice(start, start + count))

    def reused(self, key: Key, count: int, dtype: type) -> Draw:
        """Return the sequences of one step of training, which come from a store that several steps share.

        A store has `STORED` sequences at most. Each further pass over it is in a new random order, and after `PASSES`
        passes it is drawn anew. The sequences depend on the key and on `count` alone, not on earlier steps.

        Args:
            key: The stream; its step is the number of the step.
            count: The number of sequences of every step.
            dtype: float32 or float64.

        Returns:
            The draw.
        """
        per_pass = max(1, STORED // count)
        turn, place = divmod(key.step, per_pass)
        store, size = key._replace(step=turn // PASSES), per_pass * count
        order = self._order(store, turn, size)
        return self._store(store, size, dtype).chosen(order[place * count : (place + 1) * count])

    def of_step(self, key: Key, count: int, first: int, gradient: bool, dtype: type) -> Draw:
        """Return the sequences of a step. Steps of training share sequences: drawing them takes most of the time.

        Args:
            key: The stream.
            count: The number of sequences.
            first: The number of the first one.
            gradient: Whether this is a step of training, which has a gradient.
            dtype: float32 or float64.

        Returns:
            The draw.
        """
        return self.reused(key, count, dtype) if gradient and not first else self.draw(key, count, first, dtype)

    def _blocks(self, key: Key, numbers: range, dtype: type) -> Draw:
        """Return blocks, one after another, which are kept together where there is room."""
        name = key, numbers, dtype
        if name in self._kept:
            return self._kept[name]
        draw = self._fresh(key, numbers, dtype)
        room = KEPT - draw.nbytes - sum(blocks.nbytes for blocks in self._kept.values())
        for old in [old for old in self._kept if old[0].seed != key.seed]:
            if room < 0:
                room += self._kept.pop(old).nbytes
        if room >= 0 or not self._kept:
            self._kept[name] = draw
        return draw

    def _fresh(self, key: Key, numbers: range, dtype: type, *, tokens: bool = False, innermost: bool = True) -> Draw:
        """Draw blocks anew."""
        blocks = list[Draw]()
        for i in numbers:
            block = self._draw(np.random.default_rng(np.random.SeedSequence((*key, i))), self._size)
            blocks.append((block if tokens else replace(block, tokens=None)).astype(dtype))
        return Draw.joined(blocks, innermost=innermost)

    def _drawn_once(self, key: Key, count: int, dtype: type) -> Draw:
        """The first sequences of a key, which are not kept: a store of training does not come back."""
        return self._fresh(key, range((count - 1) // self._size + 1), dtype, innermost=False).chosen(slice(count))


def _order(store: Key, turn: int, size: int) -> NDArray[np.int64]:
    """The order of the sequences of a store in one pass over it, [N]."""
    rng = np.random.default_rng(np.random.SeedSequence((*store, turn, 1)))
    return rng.permutation(size) if turn % PASSES else np.arange(size)
