"""Grids of runs: problems x families x depths x heads x seeds, from code or from a TOML file.

>>> from ridgeformer.sweeps.grid import Grid
>>> grid = Grid(noise=["fixed(1)", "fixed(2)"], family=["diag"], layers=[1, 2], seed=[0, 1, 2])
>>> len(list(grid.specs()))
12
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from ridgeformer.errors import InputError, integer, refuse
from ridgeformer.families import FAMILIES
from ridgeformer.problem import Problem
from ridgeformer.training import Paper, Search, Spec
from ridgeformer.training.protocols import NAMES, Protocol
from ridgeformer.training.train import make_spec

__all__ = ["Grid", "read_grid"]

EXAMPLE = 'a line noise = ["uniform(0,5)"], a line layers = [1, 2, 3]'


@dataclass(frozen=True)
class Grid:
    """Every combination of the values of these axes is a run.

    Attributes:
        noise, dim, context: of the problems; family, layers, heads: of the models; seed: of training.
        protocol: how to train; sequences: how many fresh ones the losses are measured on.
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
        for axis in AXES:
            values = getattr(self, axis)
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                refuse(f"{axis} must be a list of at least one value", repr(values), f"Write {axis} = [...].")
            if len({repr(value) for value in values}) < len(values):
                refuse(f"{axis} must list every value once", repr(list(values)), "Drop the repetition.")
        for family in self.family:
            if family not in FAMILIES:
                refuse(f"family must be one of {', '.join(FAMILIES)}", repr(family), "Choose among these.")
        for axis in ("layers", "heads", "dim", "context"):
            for value in getattr(self, axis):
                integer(axis, value)
        for value in self.seed:
            integer("seed", value, 0)
        integer("sequences", self.sequences, 2)
        list(self.problems())

    def problems(self) -> Iterator[Problem]:
        """Every problem, once."""
        return (Problem(d, n, noise) for d in self.dim for n in self.context for noise in self.noise)

    def specs(self) -> Iterator[Spec]:
        """Every run, problem by problem and seed by seed, shallow before deep."""
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


AXES = ("noise", "dim", "context", "family", "layers", "heads", "seed")


def read_grid(path: str | os.PathLike[str]) -> Grid:
    """A grid from a TOML file with the axes as keys; `[protocol]` has a name and its parameters."""
    place = Path(path)
    try:
        text = place.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"a grid must be a readable text file; {place} is not ({why}). Check the path.") from error
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"a grid must be TOML; {place} is not: {error}. It needs, for example, {EXAMPLE}.") from error
    _check_keys(place, text, found, "a grid", Grid)
    if "noise" not in found:
        raise InputError(f'a grid must have the key noise; {place} has none. Add noise = ["uniform(0,5)"].')
    arguments: dict[str, Any] = dict(found)
    if "protocol" in found:
        arguments["protocol"] = _protocol(place, text, found["protocol"])
    for axis in (*AXES, "sequences"):
        if axis in found:
            try:
                Grid(**{"noise": ["fixed(1)"], axis: found[axis]})
            except InputError as error:
                _complain(place, text, axis, str(error))
    try:
        return Grid(**arguments)
    except InputError as error:
        raise InputError(f"{place}: {error}") from error


def _protocol(place: Path, text: str, table: Any) -> Search | Paper:
    if not isinstance(table, Mapping) or table.get("name", "search") not in NAMES:
        _complain(
            place,
            text,
            "protocol",
            f"[protocol] must have the name {' or '.join(NAMES)}; got {table!r}. Choose one of these.",
        )
    parameters = {key: value for key, value in table.items() if key != "name"}
    kind = NAMES[table.get("name", "search")]
    _check_keys(place, text, parameters, "[protocol]", kind)
    try:
        return kind(**parameters)
    except InputError as error:
        _complain(place, text, "protocol", str(error))


def _check_keys(place: Path, text: str, found: Mapping[str, Any], what: str, kind: type) -> None:
    known = [f.name for f in fields(kind)]
    for key in found:
        if key not in known:
            _complain(place, text, key, f"a key of {what} must be one of {', '.join(known)}; got {key!r}. Rename it.")


def _complain(place: Path, text: str, key: str, message: str) -> NoReturn:
    """Say which line of the file has the key."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().strip("[").startswith(key):
            raise InputError(f"{place}, line {number}, key {key}: {message}")
    raise InputError(f"{place}, key {key}: {message}")
