"""The argument MODEL: a file, a run's folder, or a model that ships with the package."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.options import PARTS, PLACE, Command, arguments_of, model_problem_options
from ridgeformer.errors import InputError, shown

if TYPE_CHECKING:
    from ridgeformer.models.transformer import LinearTransformer
    from ridgeformer.problems import Problem

__all__ = ["ZOO", "model_name", "read_model", "read_model_and_problem", "reads_a_model", "zoo_place"]

ZOO = "zoo:"
NUMBER = re.compile("[0-9]{1,9}")


def model_name(path: Path) -> str:
    """A short name for what MODEL names."""
    return str(path) if str(path).startswith(ZOO) else path.name


def read_model(path: Path) -> tuple[LinearTransformer, dict[str, Any]]:
    """The model, and the record of how it was made, which is empty where there is none.

    `zoo:full/7/categorical(1,3)` names a shipped model: family, layers and noise, and a seed if not the best is meant.
    """
    from ridgeformer.models.file import read_model as read_file
    from ridgeformer.training.runs import read_run

    if str(path).startswith(ZOO):
        return _shipped(str(path))
    if path.is_dir():
        if not (path / "record.json").exists() and not (path / "spec.json").exists():
            raise InputError(
                f"MODEL must be a model file or the folder of a run; {path} is another folder. "
                "If it holds runs, list them with `ridgeformer show` and name one of them."
            )
        return read_run(path)
    return read_file(path)


def read_model_and_problem(path: Path, named: Mapping[str, Any]) -> tuple[LinearTransformer, Problem]:
    """The model, and the problem it was trained on; what is named on the command line goes before its record."""
    from ridgeformer.problems import Problem

    model, record = read_model(path)
    return model, Problem(**{"dim": model.dim, **_recorded(path, record, named), **arguments_of(named)})


def _recorded(path: Path, record: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the problem that a record names, without the dimension, which the model has."""
    from ridgeformer.problems.reading import ARGUMENTS

    spec = record.get("spec")
    known: dict[str, Any] = spec if isinstance(spec, dict) else {}
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
    return {name: known[name] for name in ARGUMENTS if name != "dim" and name in known}


def reads_a_model(sequences: int) -> Callable[[Command], Command]:
    """A command on MODEL and a problem: it gets `name`, `model` and `problem` instead of what names them."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def read(model: Path, **given: Any) -> None:
            loaded, problem = read_model_and_problem(model, {name: given.pop(name) for name in PARTS})
            command(name=model_name(model), model=loaded, problem=problem, **given)

        return click.argument("model", type=PLACE)(model_problem_options(sequences)(read))

    return decorate


def _shipped(name: str) -> tuple[LinearTransformer, dict[str, Any]]:
    from ridgeformer import zoo

    family, layers, noise, seed = zoo_place(name)
    made = zoo.record(family, layers, noise, seed)
    return zoo.load(family, layers, noise, seed), {"spec": made.spec, "result": asdict(made)}


def zoo_place(name: str) -> tuple[str, int, str, int | None]:
    """The family, layers, noise and seed that a name such as `zoo:diag/7/uniform(0,5)` stands for.

    Args:
        name: The name, with or without the prefix `zoo:`.

    Returns:
        Family, number of layers, noise as text, and the seed, or None if the name has none.

    Raises:
        InputError: The name does not have this form. Whether there is such a model is not checked.
    """
    parts = name.removeprefix(ZOO).split("/")
    if len(parts) not in (3, 4) or not all(NUMBER.fullmatch(part) for part in (parts[1], *parts[3:])):
        raise InputError(
            f"a model of the zoo is named zoo:FAMILY/LAYERS/NOISE or zoo:FAMILY/LAYERS/NOISE/SEED; got {shown(name)}. "
            "Write zoo:full/7/categorical(1,3), for example, or list all models with `ridgeformer zoo list`."
        )
    family, layers, noise, *seed = parts
    return family, int(layers), noise, int(seed[0]) if seed else None
