"""The group that every command belongs to, and what several commands take: options, and the argument MODEL."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ridgeformer import __version__
from ridgeformer.engine import default_threads, limited_threads
from ridgeformer.errors import InputError, shown
from ridgeformer.loading import with_record
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import ARGUMENTS, Problem, problem_from_dict
from ridgeformer.problems.parts import Lengths
from ridgeformer.zoo import PREFIX

ORDER = (
    *("problem", "train", "descend", "sweep", "runs", "eval", "explain", "edit", "export", "models", "papers", "play"),
    "info",
)


Function = TypeVar("Function", bound=Callable[..., Any])
SHARED: dict[str, str] = {}  # help of options that several commands have, by the name of the option


def help_of(text: str) -> dict[str, str]:
    """The help of options in the section `Options:` that ends a docstring, by the name of the option."""
    entries = re.split(r"^ {4}(?=-)", text.partition("\nOptions:\n")[2], flags=re.MULTILINE)[1:]
    return {name: " ".join(words.split()) for name, words in (entry.split(": ", 1) for entry in entries)}


def shares_help(function: Function) -> Function:
    """Decorate a function that adds options to commands, and has their help in a section `Options:` too."""
    SHARED.update(help_of(inspect.getdoc(function) or ""))
    return function


class _Documented(click.Command):
    """A command whose docstring has sections `Options:`, the help of its options, and `Examples:`, printed last."""

    def __init__(self, name: str | None = None, *, help: str | None = None, **settings: Any) -> None:
        text, _, examples = inspect.cleandoc(help or "").partition("\nExamples:\n")
        epilog = f"Examples:\n\n\b\n{textwrap.indent(textwrap.dedent(examples), '  ')}"
        super().__init__(name, help=text.partition("\nOptions:\n")[0], epilog=epilog, **settings)
        named: dict[str, Any] = {option: parameter for parameter in self.params for option in parameter.opts}
        for option, words in help_of(text).items():
            named[option].help = words
        for option in SHARED.keys() & named.keys():
            named[option].help = named[option].help or SHARED[option]


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


class OptionWithDefault(click.Option):
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
        context.with_resource(limited_threads(threads or default_threads()))


THREADS = click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    callback=_limit_threads,
    expose_value=False,
    show_default="RIDGEFORMER_THREADS, or one per core",
)


class _WritablePath(click.Path):
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
PLACE = _WritablePath(path_type=Path)
FILE = _WritablePath(dir_okay=False, path_type=Path)


def decorated(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Add options to a command, which its help lists in this order.

    Args:
        command: The command.
        *options: The decorators that add them.

    Returns:
        The command.
    """
    return functools.reduce(lambda inner, option: option(inner), reversed(options), command)


@shares_help
def takes_a_problem(sequences: int) -> Callable[[Command], Command]:
    """A command on a problem: it gets `problem` instead of the options that name it, and how to evaluate on it.

    Options:
        --noise: Distribution of the noise level sigma: 'uniform(0,5)', 'categorical(1,3)', 'fixed(2)' or just '2',
            or the name of a scipy.stats distribution with its parameters, such as 'expon(scale=2)'. With
            'tokens(uniform(0,5))' every example has a level of its own, and 'student(4,1)' has heavy tails.
        --dim: Dimension d of the features x: '10'; or one for each sequence, from a range '2..32' or a list '2,4,8'.
        --context: Number n of examples in a context: '20'; or drawn for each sequence, from a range '10..40' or a list
            '10,20,40'; it may depend on d: '2d', 'd..4d'.
        --features: Law of the features x: 'isotropic()', 'powerlaw(1)', 'spectrum(1,0.5,0.25)',
            'covariance([[1,0.5],[0.5,1]])', 'rotated(powerlaw(1))', 'factors(2)', 'scales(0.5)' or
            'standardised(factors(2))'.
        --tasks: Law of the tasks w: 'gaussian()', 'gaussian(signal=1)', 'gaussian(mean=[1,0])', 'lowrank(3)',
            'pool(64)', 'mixture(pool(64),0.1)' or 'sparse(3)'.
        --query: Covariance of the queries, written like features that are the same for all sequences; 'none' for that
            of the features.
        --sequences: Number of fresh sequences to evaluate on.
        --seed: Seed of the random numbers.
        --threads: Number of threads.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def read(**options: Any) -> Any:
            named = {name: options.pop(name) for name in PARTS}
            return command(problem=Problem(**arguments_of(named)), **options)

        noise = click.option("--noise", type=_Noise(), required=True)
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
    passed = {name: value for name, value in named.items() if value is not None}
    return {name: None if (name, value) == ("query", "none") else value for name, value in passed.items()}


def _part(name: str, default: Callable[[str], str]) -> Callable[[Command], Command]:
    """The option for one part of a problem."""
    return click.option(f"--{name}", type=str, cls=OptionWithDefault, default_text=functools.partial(default, name))


def _default_part(name: str) -> str:
    return str(getattr(Problem(noise=0), name)).lower()


def _model_part(name: str) -> str:
    trained = "that of the model's training, if its file records it"
    defaults = {"dim": "that of the model", "context": f"that of the model's training, or {_default_part('context')}"}
    return defaults.get(name, trained)


def _evaluation(sequences: int | None) -> tuple[Callable[[Command], Command], ...]:
    """On how many sequences, and which."""
    count = click.option("--sequences", type=COUNT, default=sequences)
    return count, click.option("--seed", type=SEED, default=0), THREADS


def one_line(text: object) -> str:
    """A text of a stranger's file in one line without control characters, so that a row of a table stays one row.

    Args:
        text: The text, or what has one.

    Returns:
        The line.
    """
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in str(text))


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
        options = {"sequences": self.sequences, "seed": self.seed}
        return {name: value for name, value in options.items() if value is not None}


def model_name(path: Path) -> str:
    """A short name for what MODEL names, in one line."""
    return one_line(path if str(path).startswith(PREFIX) else path.name)


def read_model_and_problem(path: Path, named: Mapping[str, Any]) -> tuple[LinearTransformer, Problem, dict[str, Any]]:
    """The model, the problem to evaluate it on, and its record.

    The problem is the one it was trained on; what is named on the command line goes before its record.
    """
    model, record = with_record(path)
    recorded = _recorded(path, record, named)
    return model, Problem(**{"dim": model.dim, **recorded, **arguments_of(named)}), record


def trained_on(record: Mapping[str, Any]) -> str | None:
    """The problem that a record says a model was trained on, as text; None where it does not say."""
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
    spec = _spec(record)
    if named["noise"] is None and "problem" in spec:
        raise InputError(
            f"commands know built-in problems; {model_name(path)} was trained on {shown(spec['problem'])}, a problem "
            "of your own. Name a built-in one with --noise, or use ridgeformer in Python, where its class is defined."
        )
    if named["noise"] is None and spec.get("noise") is None:
        raise InputError(
            f"a model is evaluated on a problem; {model_name(path)} does not record one, and --noise is missing. "
            "Add it, for example --noise 'uniform(0,5)'."
        )
    if "problem" in spec:
        return {name: value for name, value in _own_arguments(spec).items() if name == "context"}
    return {name: spec[name] for name in ARGUMENTS if name != "dim" and name in spec}


def reads_a_model(sequences: int | None) -> Callable[[Command], Command]:
    """A command on MODEL and a problem: it gets `subject` instead of what names them and how to evaluate on them."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(model: Path, **arguments: Any) -> Any:
            read = read_model_and_problem(model, {name: arguments.pop(name) for name in PARTS})
            options = [arguments.pop(name) for name in ("sequences", "seed")]
            return command(subject=Subject(model_name(model), *read, *options), **arguments)

        return click.argument("model", type=PLACE)(model_problem_options(sequences)(run))

    return decorate
