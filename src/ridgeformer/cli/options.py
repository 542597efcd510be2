"""Options that several commands share."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

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

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


class _Place(click.Path):
    """A path that can exist: what cannot be written must not be found out after hours of training."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path; fails for an empty one, which would name the working folder, and for one that is too long."""
        if not os.fspath(value):
            self.fail("a path must not be empty. Name a file or a folder.", param, ctx)
        try:
            os.lstat(value)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                self.fail(f"a path must not be too long; got {shown(Path(value))}. Choose a shorter one.", param, ctx)
        return super().convert(value, param, ctx)


class _AtMost(click.IntRange):
    """A whole number with an upper bound; the commands themselves know the lower one."""

    name = "integer"


COUNT = _AtMost(max=1 << 32)  # sequences that one seed has
SEED = _AtMost(max=(1 << 63) - 1)
PLACE = _Place(path_type=Path)
FILE = _Place(dir_okay=False, path_type=Path)


def plot_option(what: str) -> Callable[[Command], Command]:
    """A file to draw to."""
    return click.option("--plot", type=FILE, help=f"Draw {what} to this file (needs matplotlib).")


def problem_options(command: Command) -> Command:
    """Options that name a problem, and how to evaluate on it."""
    noise = click.option("--noise", required=True, help="Such as 'uniform(0,5)', 'categorical(1,3)', 'fixed(2)'.")
    dim = click.option("--dim", default=10, show_default=True, help="Dimension d.")
    context = click.option("--context", default=20, show_default=True, help="Context length n.")
    return noise(dim(context(_evaluation(100_000)(command))))


def model_problem_options(sequences: int) -> Callable[[Command], Command]:
    """The same for a model, which may know the problem it was trained on."""

    def decorate(command: Command) -> Command:
        text = "Such as 'uniform(0,5)' [default: what the model was trained on, if its file says so]."
        noise = click.option("--noise", help=text)
        dim = click.option("--dim", type=int, help="Dimension d [default: the model's].")
        context = click.option("--context", type=int, help="Context length n [default: as it was trained, or 20].")
        return noise(dim(context(_evaluation(sequences)(command))))

    return decorate


def _evaluation(sequences: int) -> Callable[[Command], Command]:
    """On how many sequences, and which."""

    def decorate(command: Command) -> Command:
        count = click.option(
            "--sequences", type=COUNT, default=sequences, show_default=True, help="Fresh sequences to evaluate on."
        )
        seed = click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of all random numbers.")
        return count(seed(AS_JSON(command)))

    return decorate
