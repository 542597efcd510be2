"""The group that every command belongs to, and options that several commands share."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ridgeformer import __version__
from ridgeformer.errors import shown

ORDER = (
    *("problem", "train", "descend", "sweep", "runs", "eval", "explain", "edit", "export", "models", "papers", "play"),
    "info",
)


class Group(click.Group):
    """A group that lists its commands in the given order, with their whole first sentences.

    Args:
        order: The names of its commands. Others are listed last.
    """

    def __init__(self, *arguments: Any, order: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._order = list(order)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in order."""
        last = len(self._order)
        return sorted(self.commands, key=lambda name: self._order.index(name) if name in self._order else last)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; long sentences are wrapped, not cut."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(200)) for name in self.list_commands(ctx)]
            )


@click.group(
    cls=Group,
    order=ORDER,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Examples:\n\n\b\n  ridgeformer train --family diag --layers 3 --noise 'uniform(0,5)' --out runs/\n"
    "  ridgeformer problem --noise 'uniform(0,5)'\n  ridgeformer models --family full\n"
    "  ridgeformer eval 'zoo:diag/7/uniform(0,5)' --baselines\n  ridgeformer explain 'zoo:diag/7/uniform(0,5)'\n"
    "  ridgeformer papers table1\n\n"
    "Every command has --help with examples. The words are explained in docs/reference/glossary.md.",
)
@click.version_option(__version__, message="ridgeformer %(version)s")
def cli() -> None:
    """Train, evaluate and understand linear transformers that learn linear regression in context."""


Command = Callable[..., Any]
if TYPE_CHECKING:
    _Text = click.ParamType[str]
else:  # not generic in click 8.2
    _Text = click.ParamType

PARTS = ("noise", "dim", "context", "features", "tasks", "query")
HELP = {
    "noise": "Distribution of the noise level sigma: 'uniform(0,5)', 'categorical(1,3)', 'fixed(2)' or just '2', "
    "or the name of a scipy.stats distribution with its parameters, such as 'expon(scale=2)'. With "
    "'tokens(uniform(0,5))' every example has a level of its own, and 'student(4,1)' has heavy tails.",
    "dim": "Dimension d of the features x: '10'; or one for each sequence, from a range '2..32' or a list '2,4,8'.",
    "context": "Number n of examples in a context: '20'; or drawn for each sequence, from a range '10..40' or a list "
    "'10,20,40'; it may depend on d: '2d', 'd..4d'.",
    "features": "Law of the features x: 'isotropic()', 'powerlaw(1)', 'spectrum(1,0.5,0.25)', "
    "'covariance([[1,0.5],[0.5,1]])', 'rotated(powerlaw(1))', 'factors(2)', 'scales(0.5)' or "
    "'standardised(factors(2))'.",
    "tasks": "Law of the tasks w: 'gaussian()', 'gaussian(signal=1)', 'gaussian(mean=[1,0])', 'lowrank(3)', "
    "'pool(64)', 'mixture(pool(64),0.1)' or 'sparse(3)'.",
    "query": "Covariance of the queries, written like features that are the same for all sequences; 'none' for that of "
    "the features.",
}
FRESH = {
    "dim": "[default: 10]",
    "context": "[default: 20]",
    "features": "[default: isotropic()]",
    "tasks": "[default: gaussian()]",
    "query": "[default: none]",
}
TRAINED = "[default: that of the model's training, if its file records it]"
OF_MODEL = {
    **dict.fromkeys(("noise", "features", "tasks", "query"), TRAINED),
    "dim": "[default: that of the model]",
    "context": "[default: that of the model's training, or 20]",
}

UNKNOWN = "unknown: it needs a built-in problem of one dimension"  # of an explosion probability


def measures_explosions(when: str) -> Callable[[Command], Command]:
    """Add the option that measures explosion probabilities.

    Args:
        when: How its help text begins.

    Returns:
        The decorator.
    """
    what = "measure the probability that a sequence explodes, by importance sampling; a few seconds per model."
    return click.option("--explosions", is_flag=True, help=f"{when} {what}")


def _limit_threads(context: click.Context, option: click.Parameter, threads: int | None) -> None:
    """Limit the threads, those of BLAS included, until the command ends."""
    if threads is not None or os.environ.get("RIDGEFORMER_THREADS"):
        from ridgeformer.engine import default_threads, limited_threads

        context.with_resource(limited_threads(threads or default_threads()))


THREADS = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    callback=_limit_threads,
    expose_value=False,
    help="Number of threads [default: RIDGEFORMER_THREADS, or one per core].",
)


class _Family(_Text):
    """The name of a family, perhaps with sizes."""

    name = "family"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; fails where there is no such family."""
        from ridgeformer.errors import InputError
        from ridgeformer.models import family_named

        try:
            return family_named(value).name
        except InputError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so, with examples of those that have sizes."""
        from ridgeformer.models.family import known_families

        return [CompletionItem(name) for name in known_families() if name.startswith(incomplete)]


FAMILY = _Family()


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


class _Noise(click.types.StringParamType):
    """The text of a noise distribution. It has no default, so that the error about a missing one has an example."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """The text to write."""
        return "Write --noise 'uniform(0,5)', for example."


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


def takes_a_problem(sequences: int) -> Callable[[Command], Command]:
    """A command on a problem: it gets `problem` instead of the options that name it, and how to evaluate on it."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def read(**given: Any) -> Any:
            from ridgeformer.problems import Problem

            named = {name: given.pop(name) for name in PARTS}
            return command(problem=Problem(**arguments_of(named)), **given)

        return _parts(FRESH)(_evaluation(sequences)(read))

    return decorate


def model_problem_options(sequences: int | None) -> Callable[[Command], Command]:
    """The same options for a model, which may know the problem it was trained on. None of them has a default."""
    return lambda command: _parts(OF_MODEL)(_evaluation(sequences)(command))


def arguments_of(named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Problem` that options name; those that are not given are left out.

    Args:
        named: The values of the options by name.

    Returns:
        The arguments; a query of `none` is None.
    """
    given = {name: value for name, value in named.items() if value is not None}
    return {name: None if (name, value) == ("query", "none") else value for name, value in given.items()}


def _parts(defaults: Mapping[str, Any]) -> Callable[[Command], Command]:
    """One option for each part of a problem; `defaults` has what their help says about their defaults."""
    options = (
        click.option(f"--{name}", type=str, help=f"{HELP[name]} {defaults[name]}".strip())
        if name != "noise" or defaults is OF_MODEL
        else click.option("--noise", type=_Noise(), required=True, help=HELP[name])
        for name in PARTS
    )

    def decorate(command: Command) -> Command:
        for option in reversed(list(options)):
            command = option(command)
        return command

    return decorate


def _evaluation(sequences: int | None) -> Callable[[Command], Command]:
    """On how many sequences, and which."""

    def decorate(command: Command) -> Command:
        count = click.option(
            "--sequences",
            type=COUNT,
            default=sequences,
            show_default=sequences is not None,
            help="Number of fresh sequences to evaluate on.",
        )
        seed = click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the random numbers.")
        return count(seed(THREADS(command)))

    return decorate
