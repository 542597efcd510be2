"""The argument MODEL: a file, a run's folder, or a model that ships with the package."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.options import PARTS, PLACE, Command, arguments_of, model_problem_options
from ridgeformer.cli.output import one_line
from ridgeformer.errors import InputError, shown

if TYPE_CHECKING:
    from ridgeformer.models.transformer import LinearTransformer
    from ridgeformer.problems import Problem
    from ridgeformer.problems.parts import Lengths


@dataclass(frozen=True)
class Subject:
    """The subject of a command on MODEL: the model, its problem and its record.

    Attributes:
        name: The name of the model.
        model: The model.
        problem: The problem to evaluate it on.
        record: How it was made; empty where that is not known.
        sequences: How many sequences to evaluate on; None for the default of the measurement.
        seed: Seed of these sequences.
    """

    name: str
    model: LinearTransformer
    problem: Problem
    record: dict[str, Any]
    sequences: int | None
    seed: int

    @property
    def sample(self) -> dict[str, Any]:
        """On how many sequences, and which, as evaluations take it."""
        given = {"sequences": self.sequences, "seed": self.seed}
        return {name: value for name, value in given.items() if value is not None}


def model_name(path: Path) -> str:
    """A short name for what MODEL names, in one line."""
    from ridgeformer.zoo import PREFIX

    return one_line(path if str(path).startswith(PREFIX) else path.name)


def read_model_and_problem(path: Path, named: Mapping[str, Any]) -> tuple[LinearTransformer, Problem, dict[str, Any]]:
    """The model, the problem to evaluate it on, and its record.

    The problem is the one it was trained on; what is named on the command line goes before its record.
    """
    from ridgeformer.loading import load_with_record
    from ridgeformer.problems import Problem

    model, record = load_with_record(path)
    known = _recorded(path, record, named)
    return model, Problem(**{"dim": model.dim, **known, **arguments_of(named)}), record


def trained_on(record: Mapping[str, Any]) -> str | None:
    """The problem that a record says a model was trained on, as text; None where it does not say."""
    from ridgeformer.problems import problem_from_dict

    spec = _spec(record)
    if isinstance(spec.get("problem"), str):  # one of the user's own, whose class is not known here
        inner = ",".join(f"{name}={shown(value, 30)}" for name, value in _own_arguments(spec).items())
        return f"{spec['problem'][:40]}({inner})"
    try:
        return str(problem_from_dict(spec))
    except (InputError, LookupError, TypeError, ValueError):  # a file may come from anywhere
        return None


def trained_lengths(record: Mapping[str, Any]) -> Lengths | None:
    """The numbers of examples that a record says a model was trained on; None where it does not say."""
    from ridgeformer.problems.parts import Lengths

    spec = _spec(record)
    try:
        return Lengths((_own_arguments(spec) if "problem" in spec else spec)["context"])
    except (InputError, LookupError):
        return None


def _spec(record: Mapping[str, Any]) -> dict[str, Any]:
    spec = record.get("spec")
    return spec if isinstance(spec, dict) else {}


def _own_arguments(spec: Mapping[str, Any]) -> dict[str, Any]:
    arguments = spec.get("arguments")
    return arguments if isinstance(arguments, dict) else {}


def _recorded(path: Path, record: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the problem that a record names, without the dimension, which the model has."""
    from ridgeformer.problems import ARGUMENTS

    known = _spec(record)
    if named["noise"] is None and "problem" in known:
        raise InputError(
            f"commands know built-in problems; {model_name(path)} was trained on {shown(known['problem'])}, a problem "
            "of your own. Name a built-in one with --noise, or use ridgeformer in Python, where its class is defined."
        )
    if named["noise"] is None and known.get("noise") is None:
        raise InputError(
            f"a model is evaluated on a problem; {model_name(path)} does not record one, and --noise is missing. "
            "Add it, for example --noise 'uniform(0,5)'."
        )
    if "problem" in known:
        return {name: value for name, value in _own_arguments(known).items() if name == "context"}
    return {name: known[name] for name in ARGUMENTS if name != "dim" and name in known}


def reads_a_model(sequences: int | None) -> Callable[[Command], Command]:
    """A command on MODEL and a problem: it gets `subject` instead of what names them and how to evaluate on them."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(model: Path, **given: Any) -> Any:
            read = read_model_and_problem(model, {name: given.pop(name) for name in PARTS})
            options = [given.pop(name) for name in ("sequences", "seed")]
            return command(subject=Subject(model_name(model), *read, *options), **given)

        return click.argument("model", type=PLACE)(model_problem_options(sequences)(run))

    return decorate
