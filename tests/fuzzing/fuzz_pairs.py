"""Pairs of problems of one's own: equal if and only if their laws are, and never with each other's numbers.

The truth is what they draw from the same random numbers.
"""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_cases import check_message

from ridgeformer import ConstRR, CustomProblem, InputError, evaluate
from ridgeformer.noise import as_noise
from ridgeformer.problems import Dataset, Sequences, problem_from_dict


class Same:
    """Objects that cannot be told apart by their text."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __repr__(self) -> str:
        return "same"


class Fuzzed(CustomProblem):
    """Uses its arguments, which it keeps under other names; `scale` may be a number or an object that holds it."""

    name = "fuzz-pairs"

    def __init__(self, scale: Any = 1.0, levels: Any = (1.0,), noise_law: Any = "fixed(1)", extra: Any = None) -> None:
        self.dim, self.context = 2, 4
        self._scale, self._levels, self.law, self.extra = scale, levels, as_noise(noise_law), extra

    def draw(self, rng: np.random.Generator, count: int) -> Sequences:
        """See `CustomProblem.draw`."""
        scale = self._scale.scale if isinstance(self._scale, Same) else float(self._scale)
        x, w = rng.standard_normal((count, 6, 2)), scale * rng.standard_normal((count, 2))
        y = np.einsum("bnd,bd->bn", x, w) + np.mean([float(v) for v in self._levels]) * rng.standard_normal((count, 6))
        y += self.law.quantile(rng.random(count))[:, None]
        return Sequences(x[:, :4], y[:, :4], x[:, 4:], np.einsum("bnd,bd->bn", x[:, 4:], w), w)


class Other(Fuzzed):
    """Another class with the same arguments."""

    name = "fuzz-other"


class Data(Dataset):
    """A data set with a name."""

    name = "fuzz-data"


CHOICES: dict[str, list[list[Any]]] = {  # values of one list are the same; other texts of one law count as others
    "scale": [[1.0, 1, np.float64(1)], [2.0, 2], [1.0 + 2**-52], [Same(1.0)], [Same(5.0)], [-0.0, 0.0]],
    "levels": [[(1.0, 2.0), [1.0, 2.0], np.array([1.0, 2.0])], [(1.0,), [1.0]], [(2.0,)], [[1.0, 2.0 + 2**-50]]],
    "noise_law": [["fixed(1)"], ["uniform(0,1)"], ["uniform(0,2)"]],
    "extra": [[None], ["text"], ["texts"], [{"a": 1}], [{"a": 2}], [[[1, 2], [3]]], [[[1, 2, 3]]]],
}


def pick(rng: random.Random, like: Any = None) -> tuple[CustomProblem, Any]:
    """A problem, and a key that is the same for equal laws; None where its arguments cannot be compared."""
    if rng.random() < 0.1:
        return Data(Fuzzed().sequences(8, seed=rng.randint(0, 1))), None
    kind, lines = rng.choice((Fuzzed, Other)), {name: rng.randrange(len(CHOICES[name])) for name in CHOICES}
    if like is not None:
        kind, lines = like[0], dict(zip(CHOICES, like[1:], strict=True))
    values = {name: rng.choice(CHOICES[name][line]) for name, line in lines.items()}
    key = None if any(isinstance(value, Same) for value in values.values()) else (kind, *lines.values())
    return kind(**values), key


def drawn(problem: CustomProblem) -> Any:
    """What it draws from some random numbers."""
    return np.concatenate(
        [np.ravel(v) for v in vars(problem.sequences(3, seed=5)).values() if isinstance(v, np.ndarray)]
    )


def judge(rng: random.Random, folder: Path) -> str:
    """Two problems, which may be equal."""
    one, key = pick(rng)
    other, other_key = pick(rng, key if rng.random() < 0.5 else None)
    equal = key is not None and key == other_key
    assert (one == other) == equal == (other == one), f"{one} == {other} is {one == other}, for {key} and {other_key}"
    assert one == one
    if equal:
        assert hash(one) == hash(other), f"{one}: equal problems have two hashes"
        assert np.array_equal(drawn(one), drawn(other)), f"{one} and {other} are equal and draw other sequences"
        assert one.as_dict() == other.as_dict()
    if rng.random() < 0.2:  # floors and signals that are remembered must not be those of the other
        pair = [evaluate(problem, ConstRR(1.0), sequences=8).loss for problem in (one, other)]
        alone = [evaluate(pickle.loads(pickle.dumps(p)), ConstRR(1.0), sequences=8).loss for p in (one, other)]
        assert pair == alone, f"{one} and {other} have losses of {pair}, but {alone} alone"
    try:
        again = problem_from_dict(one.as_dict())
    except InputError as error:
        check_message(error)
        if key is not None:
            raise AssertionError(f"{one} is refused: {error}") from error
        return "not comparable: refused"
    assert key is not None, f"{one} is stored, though its arguments cannot be compared"
    assert again == one, f"{one} is read back as {again}"
    assert np.array_equal(drawn(again), drawn(one)), f"{one} is read back as another law"
    return f"{'equal' if equal else 'different'}: right"
