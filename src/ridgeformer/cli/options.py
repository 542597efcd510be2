"""Options that several commands share."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ridgeformer.errors import shown

__all__ = [
    "AS_JSON",
    "COUNT",
    "FILE",
    "PLACE",
    "SEED",
    "Command",
    "model_problem_options",
    "plot_option",
    "problem_options",
]

Command = Callable[..., None]

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


class _Place(click.Path):
    """A path that can exist: what cannot be written must not be found out after hours of training."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path; fails for an empty one, which would name the working folder, and for one that is too long."""
        if not os.fspath(value):
            self.fail("a path must not be empty. Give the name of a file or folder.", param, ctx)
        try:
            os.lstat(value)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                self.fail(f"a path must not be too long; got {shown(Path(value))}. Choose a shorter one.", param, ctx)
        return super().convert(value, param, ctx)


class _AtMost(click.types.IntParamType):
    """A whole number with an upper bound that the help text does not show. The commands check the lower bound."""

    def __init__(self, most: int) -> None:
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; fails for one above the bound."""
        number = int(super().convert(value, param, ctx))
        if number > self.most:
            self.fail(f"it must be at most {self.most}; got {number}. Use a smaller number.", param, ctx)
        return number


COUNT = _AtMost(1 << 32)  # one seed has this many sequences
SEED = _AtMost((1 << 63) - 1)
PLACE = _Place(path_type=Path)
FILE = _Place(dir_okay=False, path_type=Path)


def plot_option(what: str) -> Callable[[Command], Command]:
    """A file to draw to."""
    return click.option("--plot", type=FILE, help=f"Draw {what} to this file: .png, .pdf or .svg. Needs matplotlib.")


def problem_options(command: Command) -> Command:
    """Options that name a problem, and how to evaluate on it."""
    noise = click.option(
        "--noise",
        required=True,
        help="Distribution of the noise level sigma: 'uniform(0,5)', 'categorical(1,3)', 'fixed(2)' or the name of a "
        "scipy.stats distribution with its parameters, such as 'expon(scale=2)'.",
    )
    dim = click.option("--dim", default=10, show_default=True, help="Dimension d of the inputs x.")
    context = click.option("--context", default=20, show_default=True, help="Number n of examples in a context.")
    return noise(dim(context(_evaluation(100_000)(command))))


def model_problem_options(sequences: int) -> Callable[[Command], Command]:
    """The same for a model, which may know the problem it was trained on."""

    def decorate(command: Command) -> Command:
        noise = click.option(
            "--noise",
            help="Distribution of the noise level sigma, such as 'uniform(0,5)' [default: the one that the model was "
            "trained on, if its file records it].",
        )
        dim = click.option("--dim", type=int, help="Dimension d of the inputs x [default: that of the model].")
        context = click.option(
            "--context",
            type=int,
            help="Number n of examples in a context [default: the one that the model was trained on, or 20].",
        )
        return noise(dim(context(_evaluation(sequences)(command))))

    return decorate


def _evaluation(sequences: int) -> Callable[[Command], Command]:
    """On how many sequences, and which."""

    def decorate(command: Command) -> Command:
        count = click.option(
            "--sequences",
            type=COUNT,
            default=sequences,
            show_default=True,
            help="Number of fresh sequences to evaluate on.",
        )
        seed = click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the random numbers.")
        return count(seed(AS_JSON(command)))

    return decorate
