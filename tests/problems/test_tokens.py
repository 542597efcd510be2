"""Sequences that Python draws: which blocks are kept, and that keeping them changes nothing."""

import numpy as np
import pytest

from own_problems import HeavyTails
from ridgeformer.engine import Key
from ridgeformer.problems import tokens as bank


@pytest.fixture
def store(monkeypatch):
    """A bank with blocks of 512 sequences that has room for three of them, and the number of blocks it has drawn."""
    problem, drawn = HeavyTails(), []

    def draw(rng, count):
        drawn.append(count)
        return problem.drawn(rng, count)

    size = problem.moments(512).nbytes
    monkeypatch.setattr(bank, "KEPT", 3 * size + 10)
    return bank.Bank(draw, 24), drawn


def test_blocks_of_a_seed_are_kept_until_another_seed_needs_room(store):
    """Two runs of one seed, each of which asks for five blocks in the same order: the second finds three of them."""
    blocks, drawn = store
    first = [blocks.draw(Key(0, 1, step), 512, 0).moments.gram for step in range(5)]
    again = [blocks.draw(Key(0, 1, step), 512, 0).moments.gram for step in range(5)]
    assert len(drawn) == 5 + 2
    np.testing.assert_array_equal(first, again)
    for _ in range(2):
        for step in range(3):
            blocks.draw(Key(7, 1, step), 512, 0)
    assert len(drawn) == 7 + 3


def test_sequences_in_float32_are_kept_as_such(store):
    """They are those of float64, rounded, and six blocks of them take the room of three."""
    blocks, drawn = store
    whole = blocks.draw(Key(0, 1, 0), 3000, 20, np.float32)
    assert blocks.draw(Key(0, 1, 0), 3000, 20, np.float32).moments.gram.dtype == whole.task.dtype == np.float32
    assert len(drawn) == 6
    exact = blocks.draw(Key(0, 1, 0), 3000, 20)
    np.testing.assert_array_equal(whole.moments.gram, exact.moments.gram.astype(np.float32))
    np.testing.assert_array_equal(blocks.draw(Key(0, 1, 0), 1, 1000).task, exact.task[980:981])


def test_a_store_of_training_is_drawn_once_and_takes_no_room(store, monkeypatch):
    """All steps of a pass together have the sequences of the store, in float32 and in an order of their own."""
    monkeypatch.setattr(bank, "STORED", 1024)
    blocks, drawn = store
    steps = [blocks.reused(Key(0, 2, step), 512, np.float32) for step in range(2 * bank.PASSES)]  # two steps per pass
    assert len(drawn) == 2
    whole = blocks.draw(Key(0, 2, 0), 1024, 0)
    np.testing.assert_array_equal(steps[0].moments.gram, whole.moments.gram[:512].astype(np.float32))
    for one, two in zip(steps[::2], steps[1::2], strict=True):
        for name in ("task", "ridge"):
            together = np.concatenate([getattr(one, name), getattr(two, name)])
            np.testing.assert_array_equal(np.sort(together, 0), np.sort(getattr(whole, name).astype(np.float32), 0))
    assert not np.array_equal(steps[0].task, steps[2].task)
    blocks.draw(Key(0, 1, 0), 512, 0)
    blocks.draw(Key(0, 1, 0), 512, 0)
    assert len(drawn) == 2 + 2 + 1
