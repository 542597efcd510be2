"""Sequences of a problem that Python draws: in blocks that are kept, so that asking twice costs little."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ridgeformer.engine import Key
from ridgeformer.problems.draws import Draw

__all__ = ["Bank"]

LARGEST_BLOCK = 512  # sequences
NUMBERS = 1 << 22  # in the tokens of a block, at most
KEPT = 1 << 28  # bytes of moments that are kept
STORED, PASSES = 1 << 14, 8  # sequences that steps of training share, and how often each is used


class Bank:
    """The sequences of every key, drawn block by block.

    Sequence i of a key is the same however many sequences are asked for, because whole blocks are drawn.

    Args:
        draw: Draws sequences from random numbers.
        numbers: The numbers in the tokens of one sequence, which decide how many sequences make a block.
    """

    def __init__(self, draw: Callable[[np.random.Generator, int], Draw], numbers: int) -> None:
        self._draw, self._size = draw, min(LARGEST_BLOCK, max(1, NUMBERS // numbers))
        self._blocks: OrderedDict[tuple[int, ...], Draw] = OrderedDict()
        self._order: tuple[object, Draw | None] = None, None  # the store of the last step, in the order of its pass

    def draw(self, key: Key, count: int, first: int, *, tokens: bool = False) -> Draw:
        """Return sequences number `first` to `first + count` of a key.

        Args:
            key: The stream of random sequences.
            count: The number of sequences.
            first: The number of the first one.
            tokens: Whether to return the tokens too, which are not kept.

        Returns:
            The draw.
        """
        numbers = range(first // self._size, (first + count - 1) // self._size + 1)
        blocks = [self._fresh(key, i) if tokens else self._block(key, i) for i in numbers]
        start = first - numbers[0] * self._size
        return Draw.joined(blocks).chosen(slice(start, start + count))

    def reused(self, key: Key, count: int) -> Draw:
        """Return the sequences of one step of training, which come from a store that several steps share.

        A store has `STORED` sequences at most. Each further pass over it is in a new random order, and after `PASSES`
        passes it is drawn anew. The sequences depend on the key and on `count` alone, not on earlier steps.

        Args:
            key: The stream; its step is the number of the step.
            count: The number of sequences of every step.

        Returns:
            The draw.
        """
        per_pass = max(1, STORED // count)
        turn, place = divmod(key.step, per_pass)
        store = key._replace(step=turn // PASSES)
        if self._order[0] != (store, turn, count):
            whole = self.draw(store, per_pass * count, 0)
            if turn % PASSES:
                rng = np.random.default_rng(np.random.SeedSequence((*store, turn, 1)))
                whole = whole.chosen(rng.permutation(per_pass * count))
            self._order = (store, turn, count), whole
        draw = self._order[1]
        assert draw is not None
        return draw.chosen(slice(place * count, (place + 1) * count))

    def of_step(self, key: Key, count: int, first: int, gradient: bool) -> Draw:
        """Return the sequences of a step. Steps of training share sequences: drawing them takes most of the time.

        Args:
            key: The stream.
            count: The number of sequences.
            first: The number of the first one.
            gradient: Whether this is a step of training, which has a gradient.

        Returns:
            The draw.
        """
        return self.reused(key, count) if gradient and not first else self.draw(key, count, first)

    def _fresh(self, key: Key, number: int) -> Draw:
        return self._draw(np.random.default_rng(np.random.SeedSequence((*key, number))), self._size)

    def _block(self, key: Key, number: int) -> Draw:
        name = (*key, number)
        if name in self._blocks:
            self._blocks.move_to_end(name)
            return self._blocks[name]
        block = self._blocks[name] = replace(self._fresh(key, number), tokens=None)
        while len(self._blocks) > 1 and len(self._blocks) * block.nbytes > KEPT:
            self._blocks.popitem(last=False)
        return block
