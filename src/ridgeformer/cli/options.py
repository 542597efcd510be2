"""The group that every command belongs to, and options that several commands share."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ridgeformer import __version__
from ridgeformer.errors import shown

ORDER = (
    *("problem", "train", "descend", "sweep", "runs", "eval", "explain", "edit", "export", "models", "papers", "play"),
    "info",
)


class _Documented(click.Command):
    """A command whose docstring has sections `Options:`, the help of its options, and `Examples:`, printed last."""

    def __init__(self, name: str | None = None, *, help: str | None = None, **settings: Any) -> None:
        text, _, examples = inspect.cleandoc(help or "").partition("\nExamples:\n")
        text, _, options = text.partition("\nOptions:\n")
        epilog = f"Examples:\n\n\b\n{textwrap.indent(textwrap.dedent(examples), '  ')}"
        super().__init__(name, help=text, epilog=epilog, **settings)
        named: dict[str, Any] = {option: parameter for parameter in self.params for option in parameter.opts}
        for entry in re.split(r"^ {4}(?=-)", options, flags=re.MULTILINE)[1:]:
            name, words = entry.split(": ", 1)
            named[name].help = " ".join(words.split())


class Group(_Documented, click.Group):
    """A group that lists its commands in the given order, with their whole first sentences.

    Args:
        order: The names of its commands. Others are listed last.
    """

    command_class = _Documented

    def __init__(self, name: str | None = None, *, order: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(name, **settings)
        self._order = list(order)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in order."""
        last = len(self._order)
        return sorted(self.commands, key=lambda name: self._order.index(name) if name in self._order else last)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; long sentences are wrapped, not cut."""
        with formatter.section("Commands"):
            names = self.list_commands(ctx)
            formatter.write_dl([(name, self.commands[name].get_short_help_str(200)) for name in names])


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(cls=Group, order=ORDER, context_settings=SETTINGS)
@click.version_option(__version__, message="ridgeformer %(version)s")
def cli() -> None:
    """Train, evaluate and understand linear transformers that learn linear regression in context.

    Every command has --help with examples. The words are explained in docs/reference/glossary.md.

    Examples:
        ridgeformer train --family diag --layers 3 --noise 'uniform(0,5)' --out runs/
        ridgeformer problem --noise 'uniform(0,5)'
        ridgeformer models --family full
        ridgeformer eval 'zoo:diag/7/uniform(0,5)' --baselines
        ridgeformer explain 'zoo:diag/7/uniform(0,5)'
        ridgeformer papers table1
    """


class Described(click.Option):
    """An option whose help ends with a default that the code says. That code is imported when the help is shown.

    Args:
        default_text: Returns the default as text; an empty text shows none.
    """

    def __init__(self, *arguments: Any, default_text: Callable[[], str], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._default_text = default_text

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The names of the option, and its help with the default."""
        default = self._default_text()
        record = super().get_help_record(ctx)
        return record and (record[0], f"{record[1]} [default: {default}]" if default else record[1])


Command = Callable[..., Any]
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
    show_default="RIDGEFORMER_THREADS, or one per core",
    help="Number of threads.",
)


def _families(context: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """The names of families that begin so, with examples of those that have sizes."""
    from ridgeformer.models.family import known_families

    return [name for name in known_families() if name.startswith(incomplete)]


FAMILY = click.option(
    "--family",
    metavar="FAMILY",
    default="diag",
    shell_complete=_families,
    help="Parametrisation of a layer, from simple to rich: gdpp (3 numbers per layer), diag (4), channels(1,3) "
    "(20, with room for two intermediate results), full (two matrices per head); also lowrank(2), registers(2), "
    "preconditioned and looped(diag,4).",
)


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
        except ValueError:
            self.fail(f"a path must have no null character; got {shown(value)}. Choose another one.", param, ctx)
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


def decorated(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Add options to a command, which its help lists in this order.

    Args:
        command: The command.
        *options: The decorators that add them.

    Returns:
        The command.
    """
    return functools.reduce(lambda inner, option: option(inner), reversed(options), command)


def takes_a_problem(sequences: int) -> Callable[[Command], Command]:
    """A command on a problem: it gets `problem` instead of the options that name it, and how to evaluate on it."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def read(**given: Any) -> Any:
            from ridgeformer.problems import Problem

            named = {name: given.pop(name) for name in PARTS}
            return command(problem=Problem(**arguments_of(named)), **given)

        noise = click.option("--noise", type=_Noise(), required=True, help=HELP["noise"])
        return decorated(read, noise, *(_part(name, _default_part) for name in PARTS[1:]), *_evaluation(sequences))

    return decorate


def model_problem_options(sequences: int | None) -> Callable[[Command], Command]:
    """The same options for a model, which may know the problem it was trained on. None of them has a default."""
    parts = [_part(name, _model_part) for name in PARTS]
    return lambda command: decorated(command, *parts, *_evaluation(sequences))


def arguments_of(named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Problem` that options name; those that are not given are left out.

    Args:
        named: The values of the options by name.

    Returns:
        The arguments; a query of `none` is None.
    """
    given = {name: value for name, value in named.items() if value is not None}
    return {name: None if (name, value) == ("query", "none") else value for name, value in given.items()}


def _part(name: str, default: Callable[[str], str]) -> Callable[[Command], Command]:
    """The option for one part of a problem."""
    return click.option(
        f"--{name}", type=str, help=HELP[name], cls=Described, default_text=functools.partial(default, name)
    )


def _default_part(name: str) -> str:
    from ridgeformer.problems import Problem

    return str(getattr(Problem(noise=0), name)).lower()


def _model_part(name: str) -> str:
    trained = "that of the model's training, if its file records it"
    known = {"dim": "that of the model", "context": f"that of the model's training, or {_default_part('context')}"}
    return known.get(name, trained)


def _evaluation(sequences: int | None) -> tuple[Callable[[Command], Command], ...]:
    """On how many sequences, and which."""
    words = "Number of fresh sequences to evaluate on."
    count = click.option("--sequences", type=COUNT, default=sequences, help=words)
    return count, click.option("--seed", type=SEED, default=0, help="Seed of the random numbers."), THREADS
