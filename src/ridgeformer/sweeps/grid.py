"""Grids of runs: problems x families x depths x heads x seeds.

>>> from ridgeformer.sweeps.grid import Grid
>>> grid = Grid(noise=["fixed(1)", "fixed(2)"], families=["diag"], layers=[1, 2], seeds=[0, 1, 2])
>>> len(list(grid.specs()))
12
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, NoReturn

from ridgeformer.engine.interface import MOST_SEQUENCES
from ridgeformer.errors import InputError, refuse, shown
from ridgeformer.files import open_regular, path_of
from ridgeformer.models.family import family_named
from ridgeformer.noise import Noise, as_noise
from ridgeformer.problems import BaseProblem, Problem
from ridgeformer.problems.base import check_any_problem
from ridgeformer.problems.features import Features
from ridgeformer.problems.tasks import Tasks
from ridgeformer.training import Search, Spec
from ridgeformer.training.spec import PROTOCOLS, Protocol, as_protocol, make_spec
from ridgeformer.validation import integer, keywords

LAW = ("noise", "dim", "context", "features", "tasks", "query")  # axes of the built-in problem
RUN = ("families", "layers", "heads", "seeds")
USUAL = [("isotropic()",), ("gaussian()",), ("none",)]
MOST_RUNS = 1_000_000
ANY_NOISE = as_noise("fixed(1)")
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
        runs = 1
        for axis in self._axes():
            with _blaming(axis):
                runs *= _count(axis, getattr(self, axis))
        if runs > MOST_RUNS:
            refuse(f"a grid must describe at most {MOST_RUNS:,} runs", f"{runs:,}", "Split it into several grids.")
        for axis in self._axes():
            with _blaming(axis):
                values = getattr(self, axis)
                if len({_text(axis, value) for value in values}) < len(values):
                    refuse(f"{axis} must list every value once", shown(list(values)), "Remove the repeated value.")
        as_protocol(self.protocol)
        with _blaming("sequences"):
            integer("sequences", self.sequences, 2, MOST_SEQUENCES)
        laws = [getattr(self, part) for part in LAW[1:]]  # isotropic ones fit together
        if laws[2:] != USUAL and not self.problem and math.prod(map(len, laws)) <= MOST_CHECKED:
            for law in itertools.product(*laws):
                _problem(ANY_NOISE, *law)

    def _axes(self) -> tuple[str, ...]:
        """The axes that are used: those of the built-in problem, or `problem`."""
        if isinstance(self.problem, Sequence) and len(self.problem) == 0:
            return (*LAW, *RUN)
        changed = [axis for axis in LAW if getattr(self, axis) != type(self).__dataclass_fields__[axis].default]
        if changed:
            refuse("a grid lists either problems or their parts", f"problem and {changed[0]}", "Leave one of them out.")
        return ("problem", *RUN)

    def problems(self) -> Iterator[BaseProblem]:
        """Yield every problem once."""
        if self.problem:
            return iter(self.problem)
        noises = [_noise(noise) for noise in self.noise]
        laws = itertools.product(self.dim, self.context, self.features, self.tasks, self.query)
        return (_problem(noise, *law) for law in laws for noise in noises)

    def specs(self) -> Iterator[Spec]:
        """Yield every run, problem by problem and seed by seed, shallow before deep."""
        how: dict[str, Any] = {"protocol": self.protocol, "sequences": self.sequences}
        inner = list(itertools.product(self.seeds, self.heads, self.families, sorted(self.layers)))
        for problem in self.problems():  # one at a time: there may be very many
            for seed, heads, family, layers in inner:
                yield make_spec(problem, family, layers=layers, heads=heads, seed=seed, **how)

    def __len__(self) -> int:
        return math.prod(len(getattr(self, axis)) for axis in self._axes())


class _AxisError(InputError):
    """The values of one key of a grid are wrong."""

    def __init__(self, axis: str, message: str) -> None:
        super().__init__(message)
        self.axis = axis


@contextlib.contextmanager
def _blaming(axis: str) -> Iterator[None]:
    """Say of an error that it is about one key of a grid."""
    try:
        yield
    except InputError as error:
        raise _AxisError(axis, str(error)) from error


def _count(axis: str, values: Any) -> int:
    """How many values an axis has, without looking at them."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        refuse(f"{axis} must be a list of at least one value", shown(values), f"Write {axis} = [...].")
    try:
        return len(values)
    except OverflowError:  # a range may be longer than `len` can say
        refuse(f"{axis} must list at most {MOST_RUNS:,} values", shown(values), "Split the grid into several.")


def _text(axis: str, value: Any) -> str:
    """The text by which equal values of an axis are recognised; a value that no run can have is refused."""
    if axis in EXAMPLES and not isinstance(value, str):
        refuse(f"{axis} must be listed as text", shown(value), f"Write {EXAMPLES[axis]}, for example.")
    return str(READ[axis](value))


def _problem(noise: Noise, dim: int, context: Any, features: str, tasks: str, query: str) -> Problem:
    covariance = None if query == "none" else query
    return Problem(dim, context, noise, features=features, tasks=tasks, query=covariance)


def _noise(value: object) -> Noise:
    try:
        return as_noise(value)
    except InputError:
        raise
    except Exception as error:  # scipy's distributions raise what they like
        received = f"{shown(value)}, which cannot ({type(error).__name__}: {shown(error)})"
        refuse("noise must be a distribution that can be evaluated", received, "Write uniform(0,5), for example.")


def _part(name: str) -> Callable[[Any], object]:
    """How a problem reads one of its parts."""
    return lambda value: Problem(**{"noise": ANY_NOISE, name: value}).as_dict()[name]


def _size(name: str) -> Callable[[Any], object]:
    """How a spec reads a number of layers or heads, or a seed."""
    example = Problem(noise=ANY_NOISE)
    return lambda value: getattr(make_spec(example, "gdpp", sequences=2, **{"layers": 1, name: value}), name)


EXAMPLES = {"features": '"powerlaw(1)"', "tasks": '"lowrank(3)"', "query": '"powerlaw(1)"', "families": '"diag"'}
READ: dict[str, Callable[[Any], object]] = {  # what values of an axis are read as
    "noise": _noise,
    **{name: _part(name) for name in ("dim", "context")},
    "features": Features.of,
    "tasks": Tasks.of,
    "query": lambda value: value if value == "none" else Features.of(value),
    "families": lambda value: family_named(value).name,
    **{name: _size(name) for name in ("layers", "heads")},
    "seeds": _size("seed"),
    "problem": lambda value: repr(check_any_problem(value)),
}
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
        content = _Content(shown(place, 200), file.read().decode("utf-8-sig"))
    values = content.parsed()
    content.check_keys(values, "a grid", Grid)
    if "noise" not in values:
        raise InputError(f'a grid must have the key noise; {content.name} has none. Add noise = ["uniform(0,5)"].')
    if "protocol" in values:
        values["protocol"] = content.protocol(values["protocol"])
    try:
        return Grid(**values)
    except _AxisError as error:
        content.complain(error.axis, str(error))
    except InputError as error:
        raise InputError(f"{content.name}: {error}") from error


class _Content(NamedTuple):
    """The name and the text of a file that should hold a grid."""

    name: str
    text: str

    def parsed(self) -> dict[str, Any]:
        try:
            if max(line.count(".") for line in IN_STRINGS.sub("", self.text).split("\n")) > MOST_DOTS:
                raise RecursionError
            return tomllib.loads(self.text)
        except RecursionError:
            why = f"its lists or tables are nested too deeply, or a line has more than {MOST_DOTS} dots"
        except tomllib.TOMLDecodeError as error:
            why = shown(error, 200)
        except ValueError:  # Python reads no longer number
            why = "a whole number has more than 4,300 digits"
        example = 'a line noise = ["uniform(0,5)"], a line layers = [1, 2, 3]'
        raise InputError(f"a grid must be TOML; {self.name} is not: {why}. It needs, for example, {example}.")

    def protocol(self, table: Any) -> Protocol:
        name = table.get("name", "search") if isinstance(table, dict) else None
        if not isinstance(name, str) or name not in PROTOCOLS:
            rule = f"[protocol] must have the name {' or '.join(PROTOCOLS)}"
            self.complain("protocol", f"{rule}; got {shown(table)}. Choose one of these.")
        parameters = {key: value for key, value in table.items() if key != "name"}
        self.check_keys(parameters, "[protocol]", PROTOCOLS[name])
        try:
            return PROTOCOLS[name](**parameters)
        except InputError as error:
            self.complain("protocol", str(error))

    def check_keys(self, values: dict[str, Any], what: str, kind: type) -> None:
        names = [f.name for f in fields(kind) if f.name != "problem"]  # problems are objects, which no file can hold
        for key in values.keys() - names:
            rule = f"a key of {what} must be one of {', '.join(names)}"
            self.complain(key, f"{rule}; got {shown(key)}. Rename it or remove it.")

    def complain(self, key: str, message: str) -> NoReturn:
        """Raise an error that says which line of the file has the key."""
        lines = (re.split(r"[=.\]]", line.strip().lstrip("[ "), maxsplit=1)[0] for line in self.text.split("\n"))
        number = next((n for n, start in enumerate(lines, 1) if start.strip(" \t\"'") == key), None)
        where = self.name + (f", line {number}" if number else "")
        raise InputError(f"{where}, key {shown(key)[1:-1]}: {shown(InputError(message), 500)}")
