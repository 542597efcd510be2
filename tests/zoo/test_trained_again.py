"""Shipped runs, trained again: the same bits for GD++; for Diag and Full, whose search changed, losses as good."""

import numpy as np
import pytest

from ridgeformer import Problem, engine, train_many, zoo
from support import each

pytestmark = pytest.mark.long

# The weights of every seed are shipped for the first problem, those of the best seed for the others.
CASES = [
    ("uniform(0,5)", "gdpp", (1, 2, 3, 4, 5, 6, 7), 0),
    ("uniform(0,0)", "gdpp", (3,), None),
    ("categorical(1,3)", "gdpp", (5,), None),
]


def train_again(noise, family, depths, seed):
    """Pairs of a run that is trained now and what was shipped of it."""
    for depth in depths if seed is None else (None,):
        chosen = zoo.shipped().best(family, depth, noise) if seed is None else seed
        wanted = depths if depth is None else (depth,)
        for found in train_many(Problem(10, 20, noise), [family], wanted, seeds=[chosen]):
            cell = (family, found.spec.layers, noise)
            yield found, zoo.shipped().record(*cell, seed=chosen), zoo.shipped().model(*cell, seed=chosen)


def made_here(made):
    """Whether the instruction set and NumPy, which decide how sums are rounded, are those that made a shipped run."""
    return (made.made_with["engine"], made.made_with["numpy"]) == (engine.current().name, np.__version__)


@pytest.mark.parametrize(("noise", "family", "depths", "seed"), CASES)
def test_gdpp_is_equal(noise, family, depths, seed):
    """To the last bit on the processor that made them; to a thousandth of the loss with other rounding."""
    for found, made, model in train_again(noise, family, depths, seed):
        arrays = found.model.family.arrays
        equal = all(np.array_equal(value, arrays[name]) for name, value in model.family.arrays.items())
        print(f"{family} {found.spec.layers} {noise}: loss {found.loss:.6g}, shipped {made.loss:.6g}, equal: {equal}")
        assert found.spec.as_dict() == made.spec
        assert arrays.keys() == model.family.arrays.keys()
        if made_here(made):
            assert equal
            assert (found.loss, found.status) == (made.loss, made.status)
        assert found.loss == pytest.approx(made.loss, rel=1e-3, abs=1e-9)


@each(
    ("uniform(0,5)", "diag", (1, 2, 3, 4), 0),
    ("uniform(0,0)", "diag", (2,), None),
    ("categorical(1,3)", "diag", (3,), None),
    ("categorical(1,3,5)", "diag", (2,), None),
    ("uniform(0,5)", "full", (1, 2, 3), 0),
    ("categorical(1,3)", "full", (2,), None),
)
def test_diag_and_full_are_as_good(noise, family, depths, seed):
    """Their search is faster than the one that made the shipped runs: other bits, the same losses."""
    for found, made, _ in train_again(noise, family, depths, seed):
        print(f"{family} {found.spec.layers} {noise}: loss {found.loss:.6g}, shipped {made.loss:.6g}")
        assert found.spec.as_dict() == made.spec
        assert found.loss < 1.01 * made.loss + 1e-9
        assert found.result.exploded == 0
