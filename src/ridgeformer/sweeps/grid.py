"""Grids of runs: problems x families x depths x heads x seeds.

>>> from ridgeformer.sweeps.grid import Grid
>>> grid = Grid(noise=["fixed(1)", "fixed(2)"], family=["diag"], layers=[1, 2], seed=[0, 1, 2])
>>> len(list(grid.specs()))
12
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ridgeformer.errors import InputError, refuse, shown
from ridgeformer.models.families import FAMILIES
from ridgeformer.noise import Fixed, Noise, as_noise
from ridgeformer.problems import Problem
from ridgeformer.problems.base import MOST as MOST_SEQUENCES
from ridgeformer.training import Search, Spec
from ridgeformer.training.protocols import Protocol, as_protocol
from ridgeformer.training.spec import make_spec
from ridgeformer.validation import integer

__all__ = ["AXES", "Grid"]

AXES = ("noise", "dim", "context", "family", "layers", "heads", "seed")
MOST_RUNS = 1_000_000


@dataclass(frozen=True)
class Grid:
    """Every combination of the values of seven axes is a run; there may be a million of them.

    Attributes:
        noise: Noise distributions, as text or as `Noise`.
        dim: Dimensions d.
        context: Context lengths n.
        family: Names of families.
        layers: Depths.
        heads: Heads per layer.
        seed: Seeds of training.
        protocol: How to train, a `Search` or `Paper`.
        sequences: How many fresh sequences the losses are measured on.

    Raises:
        InputError: An axis is not a list of different values that a run can have, or there are too many runs.
    """

    noise: Sequence[str]
    dim: Sequence[int] = (10,)
    context: Sequence[int] = (20,)
    family: Sequence[str] = ("diag",)
    layers: Sequence[int] = (4,)
    heads: Sequence[int] = (1,)
    seed: Sequence[int] = (0,)
    protocol: Protocol = field(default_factory=Search)
    sequences: int = 100_000

    def __post_init__(self) -> None:
        count = 1
        for axis in AXES:
            count *= _count(axis, getattr(self, axis))
        if count > MOST_RUNS:
            refuse(f"a grid must describe at most {MOST_RUNS:,} runs", f"{count:,}", "Split it into several grids.")
        for axis in AXES:
            values = getattr(self, axis)
            for value in values:
                _check(axis, value)
            if len({repr(value) for value in values}) < len(values):
                refuse(f"{axis} must list every value once", shown(list(values)), "Remove the repeated value.")
        as_protocol(self.protocol)
        integer("sequences", self.sequences, 2, MOST_SEQUENCES)

    def problems(self) -> Iterator[Problem]:
        """Yield every problem once."""
        noises = [_noise(noise) for noise in self.noise]
        return (Problem(d, n, noise) for d in self.dim for n in self.context for noise in noises)

    def specs(self) -> Iterator[Spec]:
        """Yield every run, problem by problem and seed by seed, shallow before deep."""
        for problem in self.problems():
            for seed in self.seed:
                for heads in self.heads:
                    for family in self.family:
                        for layers in sorted(self.layers):
                            yield make_spec(problem, family, layers, heads, seed, self.protocol, self.sequences)

    def __len__(self) -> int:
        count = 1
        for axis in AXES:
            count *= len(getattr(self, axis))
        return count


def _count(axis: str, values: Any) -> int:
    """How many values an axis has, without looking at them."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        refuse(f"{axis} must be a list of at least one value", shown(values), f"Write {axis} = [...].")
    try:
        return len(values)
    except OverflowError:  # a range may be longer than `len` can say
        refuse(f"{axis} must list at most {MOST_RUNS:,} values", shown(values), "Split the grid into several.")


def _check(axis: str, value: Any) -> None:
    """Refuse a value of an axis that no run can have."""
    if axis == "noise":
        _noise(value)
    elif axis in ("dim", "context"):
        Problem(**{"noise": PLAIN.noise, axis: value})
    elif axis == "family":
        if not (isinstance(value, str) and value in FAMILIES):
            refuse(f"family must be one of {', '.join(FAMILIES)}", shown(value), "Choose one of these.")
    else:
        chosen = {"layers": 1, "heads": 1, "seed": 0, axis: value}
        make_spec(PLAIN, "gdpp", **chosen, protocol=SEARCH, sequences=2)


PLAIN = Problem(noise=Fixed(1.0))
SEARCH = Search()


def _noise(value: object) -> Noise:
    try:
        return as_noise(value)
    except InputError:
        raise
    except Exception as error:  # scipy's distributions raise what they like
        raise InputError(
            f"noise must be a distribution that can be evaluated; got {shown(value)}, which cannot "
            f"({type(error).__name__}: {shown(error)}). Write uniform(0,5), for example."
        ) from error
