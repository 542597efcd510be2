"""Grids of runs: problems x families x depths x heads x seeds.

>>> from ridgeformer.sweeps.grid import Grid
>>> grid = Grid(noise=["fixed(1)", "fixed(2)"], families=["diag"], layers=[1, 2], seeds=[0, 1, 2])
>>> len(list(grid.specs()))
12
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from ridgeformer.engine.interface import MOST_SEQUENCES
from ridgeformer.errors import InputError, refuse, shown
from ridgeformer.files import open_regular, path_of
from ridgeformer.models.family import family_named
from ridgeformer.noise import Fixed, Noise, as_noise
from ridgeformer.problems import BaseProblem, Lengths, Problem
from ridgeformer.problems.base import check_any_problem
from ridgeformer.problems.features import Features
from ridgeformer.problems.tasks import Tasks
from ridgeformer.training import Search, Spec
from ridgeformer.training.spec import PROTOCOLS, Protocol, as_protocol, make_spec
from ridgeformer.validation import integer, keywords

LAW = ("noise", "dim", "context", "features", "tasks", "query")  # axes of the built-in problem
AXES = (*LAW, "families", "layers", "heads", "seeds")
MOST_RUNS = 1_000_000
MOST_CHECKED = 10_000  # combinations of laws that are made to see whether they fit together


@keywords()
@dataclass(frozen=True, kw_only=True)
class Grid:
    """Every combination of the values of these axes is a run; there may be a million of them.

    Attributes:
        noise: Noise distributions, as text or as `Noise`.
        dim: Dimensions d.
        context: Context lengths: numbers, or text such as `10..40` for lengths that are drawn for each sequence.
        features: Laws of the features, by their text.
        tasks: Laws of the tasks, by their text.
        query: Covariances of the queries, by their text; `none` for that of the features.
        families: Names of families.
        layers: Numbers of layers.
        heads: Numbers of heads per layer.
        seeds: Seeds of training.
        protocol: How to train.
        sequences: How many fresh sequences the losses are measured on.
        problem: Problems instead of `noise`, `dim`, `context`, `features`, `tasks` and `query`. A problem of your own
            needs a class with a name that worker processes can import.

    Raises:
        InputError: An axis is not a list of different values that a run can have, values do not fit together, or there
            are too many runs.
    """

    noise: Sequence[str] = ()
    dim: Sequence[int] = (10,)
    context: Sequence[int | str] = (20,)
    families: Sequence[str] = ("diag",)
    layers: Sequence[int] = (4,)
    heads: Sequence[int] = (1,)
    seeds: Sequence[int] = (0,)
    protocol: Protocol = field(default_factory=Search)
    sequences: int = 100_000
    features: Sequence[str] = ("isotropic()",)
    tasks: Sequence[str] = ("gaussian()",)
    query: Sequence[str] = ("none",)
    problem: Sequence[BaseProblem] = ()

    def __post_init__(self) -> None:
        count = 1
        for axis in self._axes():
            count *= _count(axis, getattr(self, axis))
        if count > MOST_RUNS:
            refuse(f"a grid must describe at most {MOST_RUNS:,} runs", f"{count:,}", "Split it into several grids.")
        for axis in self._axes():
            _check_values(axis, getattr(self, axis))
        as_protocol(self.protocol)
        integer("sequences", self.sequences, 2, MOST_SEQUENCES)
        self._check_fit()

    def _axes(self) -> tuple[str, ...]:
        """The axes that are used: those of the built-in problem, or `problem`."""
        if isinstance(self.problem, Sequence) and len(self.problem) == 0:
            return AXES
        given = [axis for axis in LAW if getattr(self, axis) != type(self).__dataclass_fields__[axis].default]
        if given:
            refuse("a grid lists either problems or their parts", f"problem and {given[0]}", "Leave one of them out.")
        return ("problem", *AXES[len(LAW) :])

    def _check_fit(self) -> None:
        """Refuse values of different axes that cannot be combined, unless there are very many."""
        usual = self.features == ("isotropic()",) and self.tasks == ("gaussian()",) and self.query == ("none",)
        parts = (self.dim, self.context, self.features, self.tasks, self.query)
        if not usual and not self.problem and math.prod(map(len, parts)) <= MOST_CHECKED:
            for law in itertools.product(*parts):
                _problem(ANY_PROBLEM.noise, *law)

    def problems(self) -> Iterator[BaseProblem]:
        """Yield every problem once."""
        if self.problem:
            return iter(self.problem)
        noises = [_noise(noise) for noise in self.noise]
        laws = itertools.product(self.dim, self.context, self.features, self.tasks, self.query)
        return (_problem(noise, *law) for law in laws for noise in noises)

    def specs(self) -> Iterator[Spec]:
        """Yield every run, problem by problem and seed by seed, shallow before deep."""
        inner = list(itertools.product(self.seeds, self.heads, self.families, sorted(self.layers)))
        for problem in self.problems():  # one at a time: there may be very many
            for seed, heads, family, layers in inner:
                run = functools.partial(make_spec, problem, family, layers=layers, heads=heads, seed=seed)
                yield run(protocol=self.protocol, sequences=self.sequences)

    def __len__(self) -> int:
        return math.prod(len(getattr(self, axis)) for axis in self._axes())


def _count(axis: str, values: Any) -> int:
    """How many values an axis has, without looking at them."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        refuse(f"{axis} must be a list of at least one value", shown(values), f"Write {axis} = [...].")
    try:
        return len(values)
    except OverflowError:  # a range may be longer than `len` can say
        refuse(f"{axis} must list at most {MOST_RUNS:,} values", shown(values), "Split the grid into several.")


def _check_values(axis: str, values: Any) -> None:
    """Refuse values of an axis that no run can have, and values that are listed twice."""
    count = _count(axis, values)
    if len({_text(axis, value) for value in values}) < count:
        refuse(f"{axis} must list every value once", shown(list(values)), "Remove the repeated value.")


def _text(axis: str, value: Any) -> str:
    """The text by which equal values of an axis are recognised; a value that no run can have is refused."""
    if axis in EXAMPLES and not isinstance(value, str):
        refuse(f"{axis} must be listed as text", shown(value), f"Write {EXAMPLES[axis]}, for example.")
    if axis in ("dim", "context"):
        Problem(**{"noise": ANY_PROBLEM.noise, axis: value})
    elif axis not in READ:
        chosen = {"layers": 1, "heads": 1, "seed": 0, axis.removesuffix("s") if axis == "seeds" else axis: value}
        make_spec(ANY_PROBLEM, "gdpp", **chosen, protocol=SEARCH, sequences=2)
    return str(READ.get(axis, repr)(value))


def _problem(noise: Noise, dim: int, context: Any, features: str, tasks: str, query: str) -> Problem:
    covariance = None if query == "none" else query
    return Problem(dim, context, noise, features=features, tasks=tasks, query=covariance)


EXAMPLES = {"features": '"powerlaw(1)"', "tasks": '"lowrank(3)"', "query": '"powerlaw(1)"', "families": '"diag"'}
ANY_PROBLEM = Problem(noise=Fixed(1.0))
SEARCH = Search()


def _noise(value: object) -> Noise:
    try:
        return as_noise(value)
    except InputError:
        raise
    except Exception as error:  # scipy's distributions raise what they like
        received = f"{shown(value)}, which cannot ({type(error).__name__}: {shown(error)})"
        refuse("noise must be a distribution that can be evaluated", received, "Write uniform(0,5), for example.")


READ: dict[str, Callable[[Any], object]] = {  # what values of an axis are read as
    "noise": _noise,
    "context": Lengths,
    "features": Features.of,
    "tasks": Tasks.of,
    "query": lambda value: value if value == "none" else Features.of(value),
    "families": lambda value: family_named(value).name,
    "problem": check_any_problem,
}
EXAMPLE = 'a line noise = ["uniform(0,5)"], a line layers = [1, 2, 3]'
LARGEST = 1 << 20  # bytes
# tomllib needs time and memory that grow with the square of the number of parts of a key, a.b.c. A key is in one line;
# what stands in parentheses without a quotation mark is inside a string, and no part of a key.
MOST_DOTS = 200
IN_STRINGS = re.compile(r"\([^()\"'\n]*+\)")


def read_grid(path: str | os.PathLike[str]) -> Grid:
    """Read a grid from a TOML file.

    Args:
        path: A text file of at most 1 MB. Its keys are the axes of a `Grid`, `sequences`, and a table `[protocol]` with
            a name and parameters.

    Returns:
        The grid.

    Raises:
        InputError: The file cannot be read, is not TOML, or has a key or a value that a grid cannot have. The message
            names the file, the line and the key.
    """
    place = path_of(path, "a grid must be the name of a file", "grid.toml")
    with open_regular(place, "a grid", LARGEST) as file:
        text = file.read().decode("utf-8-sig")
    values = _parse(place, text)
    _check_keys(place, text, values, "a grid", Grid)
    if "noise" not in values:
        raise InputError(f'a grid must have the key noise; {_name(place)} has none. Add noise = ["uniform(0,5)"].')
    if "protocol" in values:
        values["protocol"] = _protocol(place, text, values["protocol"])
    try:
        return Grid(**values)
    except InputError as error:
        _blame(place, text, values)
        raise InputError(f"{_name(place)}: {error}") from error


def _blame(place: Path, text: str, values: dict[str, Any]) -> None:
    """Raise an error that names the line and the key, if it is the value of one key alone that is wrong."""
    for key in (*AXES, "sequences"):
        if key in values:
            try:
                _check_values(key, values[key]) if key in AXES else Grid(noise=["fixed(1)"], sequences=values[key])
            except InputError as error:
                _complain(place, text, key, str(error))


def _parse(place: Path, text: str) -> dict[str, Any]:
    try:
        if max(line.count(".") for line in IN_STRINGS.sub("", text).split("\n")) > MOST_DOTS:
            raise RecursionError
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        why = shown(error, 200)
    except RecursionError:
        why = f"its lists or tables are nested too deeply, or a line has more than {MOST_DOTS} dots"
    except ValueError:  # Python reads no number of more than 4,300 digits
        digits = re.search(r"[0-9_]{4300}", text)
        line = text.count("\n", 0, digits.start()) + 1 if digits else "?"
        why = f"line {line} has a whole number of more than 64 bits"
    else:
        for key, value in values.items():
            _check_sizes(place, text, key, value)
        return values
    raise InputError(f"a grid must be TOML; {_name(place)} is not: {why}. It needs, for example, {EXAMPLE}.")


def _check_sizes(place: Path, text: str, key: str, value: Any) -> None:
    """Refuse whole numbers that have more bits than TOML's have."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            _complain(place, text, key, f"a whole number must fit in 64 bits; got {shown(value)}. Write a smaller one.")
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _protocol(place: Path, text: str, table: Any) -> Protocol:
    name = table.get("name", "search") if isinstance(table, Mapping) else None
    if not isinstance(name, str) or name not in PROTOCOLS:
        rule = f"[protocol] must have the name {' or '.join(PROTOCOLS)}"
        _complain(place, text, "protocol", f"{rule}; got {shown(table)}. Choose one of these.")
    parameters = {key: value for key, value in table.items() if key != "name"}
    _check_keys(place, text, parameters, "[protocol]", PROTOCOLS[name])
    try:
        return PROTOCOLS[name](**parameters)
    except InputError as error:
        _complain(place, text, "protocol", str(error))


def _check_keys(place: Path, text: str, values: Mapping[str, Any], what: str, kind: type) -> None:
    known = [f.name for f in fields(kind) if f.name != "problem"]  # problems are objects, which no file can hold
    for key in values:
        if key not in known:
            rule = f"a key of {what} must be one of {', '.join(known)}"
            _complain(place, text, key, f"{rule}; got {shown(key)}. Rename it or remove it.")


def _complain(place: Path, text: str, key: str, message: str) -> NoReturn:
    """Raise an error that says which line of the file has the key."""
    lines = (re.split(r"[=.\]]", line.strip().lstrip("[ "), maxsplit=1)[0] for line in text.split("\n"))
    number = next((n for n, start in enumerate(lines, 1) if start.strip(" \t\"'") == key), None)
    where = _name(place) + (f", line {number}" if number else "")
    raise InputError(f"{where}, key {shown(key)[1:-1]}: {shown(InputError(message), 500)}")


def _name(place: Path) -> str:
    return shown(place, 200)
