"""`ridgeformer train` and `ridgeformer descend`: train models, by the protocol that options choose."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from ridgeformer.cli.options import (
    PLACE,
    Command,
    OptionWithDefault,
    cli,
    decorated,
    measures_explosions,
    shares_help,
    takes_a_problem,
)
from ridgeformer.cli.output import Answer, answers, progress, resumable
from ridgeformer.cli.sweep import describe_training, draw, picture_of, takes_a_picture
from ridgeformer.errors import refuse, shown
from ridgeformer.loading import load
from ridgeformer.models.family import known_families
from ridgeformer.training import Training, TrainingProgress, train as fit
from ridgeformer.training.descent import SCHEDULES
from ridgeformer.training.spec import PROTOCOLS, Protocol

SEARCHES, DESCENTS = ("search", "paper"), ("descent", "sgd", "adam", "flow")
PRECISION = click.Choice(["auto", "float32", "float64"])
SETTINGS = {  # of protocols; a field of one is an option where it is listed here
    **dict.fromkeys(("effort", "caution", "tolerated", "seconds", "rate", "clip", "momentum", "time", "scale"), float),
    **dict.fromkeys(("batch", "schedule", "record", "snapshots"), str),
    **dict.fromkeys(("steps", "warmup"), int),
    "precision": PRECISION,
}


def takes_a_protocol(flag: str, names: tuple[str, ...], settings: str) -> Callable[[Command], Command]:
    """Add the option that chooses a protocol, and the settings of these protocols, None where they are not given.

    Args:
        flag: The name of the option, such as `--protocol`.
        names: The names of the protocols, of which the first is the default.
        settings: The names of their settings, separated by spaces.

    Returns:
        The decorator.
    """

    def option(name: str) -> Callable[[Command], Command]:
        default = functools.partial(_default, names, name)
        return click.option(f"--{name}", type=SETTINGS[name], cls=OptionWithDefault, default_text=default)

    chosen = click.option(flag, type=click.Choice(names), default=names[0])
    return lambda command: decorated(command, chosen, *map(option, settings.split()))


def _default(names: tuple[str, ...], setting: str) -> str:
    """The default of a setting, as its protocols say; nothing where it depends on the problem."""
    fields = {name: {field.name: field.default for field in dataclasses.fields(PROTOCOLS[name])} for name in names}
    by_value: dict[Any, list[str]] = {}
    for name in (name for name in names if setting in fields[name]):
        by_value.setdefault(fields[name][setting], []).append(name)
    known = {str(value): " and ".join(owners) for value, owners in by_value.items() if value is not None}
    if len(by_value) == len(known) == 1:
        return next(iter(known))
    return ", ".join(f"{value} for {owners}" for value, owners in known.items())


def protocol_of(name: str, options: Mapping[str, Any]) -> Protocol:
    """The protocol with the options that were given; options of other protocols are refused."""
    taken = [field.name for field in dataclasses.fields(PROTOCOLS[name]) if field.name in SETTINGS]
    given = {key: _value(key, value) for key, value in options.items() if key in SETTINGS and value is not None}
    wrong = sorted(given.keys() - set(taken))
    if wrong:
        other, remedy = f"--{wrong[0]}, which is for others", "Leave it out, or choose another protocol."
        refuse(f"{name} takes --{', --'.join(taken)}", other, remedy)
    return PROTOCOLS[name](**given)


def _value(option: str, value: Any) -> Any:
    """Numbers and lists of numbers from their text; what is neither is left for the protocol to refuse."""
    if not isinstance(value, str):
        return value
    if option == "schedule":
        if value in SCHEDULES:
            return value
        try:
            pairs = [part.split(":") for part in value.split(",")]
            return [(int(step), float(factor)) for step, factor in pairs]
        except ValueError:
            rule = f"the schedule must be {', '.join(SCHEDULES)} or pairs step:factor"
            refuse(rule, shown(value), "Write cosine, or 0:1,5000:0.1, for example.")
    with contextlib.suppress(ValueError):
        if option in ("record", "snapshots", "batch"):
            return [int(part) for part in value.split(",")] if "," in value else int(value)
    return value


def _families(context: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """The names of families that begin so, with examples of those that have sizes."""
    return [name for name in known_families() if name.startswith(incomplete)]


ATTENTION, COORDINATE = click.Choice(["sum", "mean"]), click.Choice(["none", "constant", "length", "ratio"])
MODEL = (
    click.option("--family", metavar="FAMILY", default="diag", shell_complete=_families),
    click.option("--layers", default=4),
    click.option("--heads", default=1),
    click.option("--attention", type=ATTENTION, show_default="sum; mean if n varies"),
    click.option("--coordinate", type=COORDINATE, show_default="none; length if n varies; ratio if d varies"),
    click.option("--scratch", type=int, show_default="0"),
)
WORK = (
    click.option("--out", type=PLACE),
    click.option("--init", type=PLACE),
    click.option("--quiet", "-q", is_flag=True),
)


@shares_help
def _trains(command: Command) -> Command:
    """Add the options that both commands share.

    Options:
        --family: Parametrisation of a layer, from simple to rich: gdpp (3 numbers per layer), diag (4), channels(1,3)
            (20, with room for two intermediate results), full (two matrices per head); also lowrank(2), registers(2),
            preconditioned and looped(diag,4).
        --layers: Number of layers; of a looped model, those of one repetition.
        --heads: Number of attention heads per layer.
        --attention: Whether attention sums over the tokens of a context or takes their mean.
        --coordinate: full, lowrank, channels and looped models of these: a further coordinate of every token.
            constant: a 1, which gives an intercept. length: sqrt(20 / n), which shows n. ratio: one more token that
            shows 2 d / n.
        --scratch: full, lowrank and looped models of these: number of further coordinates that start at zero, as room
            for intermediate results.
        --out: Folder for runs. Finished runs are reused; interrupted runs resume.
        --init: Start from this model: a file, the folder of a run, or one of the zoo.
        --quiet: Do not show progress.
    """
    return decorated(command, *MODEL, takes_a_problem(sequences=100_000), *WORK)


@cli.command()
@takes_a_protocol("--protocol", SEARCHES, "effort caution tolerated precision seconds steps batch rate")
@measures_explosions("After training,")
@answers(plot="the learning curve")
@_trains
def train(protocol: str, explosions: bool, **given: Any) -> Answer:
    """Train a linear transformer on a problem and print how good it is.

    The default protocol, search, grows the model from models with fewer layers and from models of simpler families
    (ones that its family contains). These are trained first; with --out all of them are stored. To resume an
    interrupted run, give the same command again.

    Options:
        --protocol: How to train. search: many starts, and models grown from shallower ones. paper: as in the paper, by
            Adam.
        --effort: search only: number of starts and steps, relative to the default.
        --caution: search only: weight of exploding sequences, relative to the default.
        --tolerated: search only: largest probability of an explosion that the chosen model may have, such as 1e-9.
            Without it, explosions are counted.
        --precision: search only: the precision of the optimisation.
        --seconds: search only: time limit in seconds; the best model so far is stored.
        --steps: paper only: number of steps.
        --batch: paper only: sequences per step.
        --rate: paper only: learning rate.

    Examples:
        ridgeformer train --family diag --layers 7 --noise 'uniform(0,5)' --out runs/
        ridgeformer train --family full --layers 4 --noise 'categorical(1,3)' --seed 3 --json
        ridgeformer train --layers 2 --noise 'fixed(1)' --dim 3 --context 6 --plot curve.png
        ridgeformer train --protocol paper --layers 4 --noise 'uniform(0,5)' --out runs/
        ridgeformer train --family full --noise 'uniform(0,5)' --context 10..40 --features 'factors(2)'
    """
    training = _fit(protocol_of(protocol, given), **given)
    return describe_training(training, functools.partial(draw, training, "curve"), explosions)


@cli.command()
@takes_a_protocol("--method", DESCENTS, "steps batch rate clip momentum schedule warmup time scale record snapshots")
@takes_a_picture
@_trains
def descend(method: str, picture: str | None, quiet: bool, **given: Any) -> Answer:
    """Watch how a model learns: one descent from one start, with its course recorded.

    --csv writes the course: losses, gradients and rates by step. Options that only some methods take name them first.

    Options:
        --method: How to descend. descent: gradient descent on the exact gradient, or on a fixed sample. sgd: on fresh
            sequences. adam: Adam on fresh sequences. flow: gradient flow. --batch chooses another gradient.
        --steps: descent, sgd, adam: number of steps.
        --batch: Sequences per step; 'population' for the exact gradient of one layer, or 'sample(8192)' for fixed
            sequences. The default for descent and flow is population where it is known, otherwise sample(8192).
        --rate: descent, sgd, adam: learning rate. The default depends on the problem.
        --clip: descent, sgd, adam: largest norm of a gradient; longer gradients are scaled down. inf clips nothing.
            With --rate, the default is inf. Without --rate, the default depends on the problem.
        --momentum: descent, sgd, adam: forgetting factor of the gradient.
        --schedule: descent, sgd, adam: constant, linear, cosine, or step:factor pairs such as 0:1,5000:0.1.
        --warmup: descent, sgd, adam: steps in which the rate rises.
        --time: flow only: time of the gradient flow.
        --scale: Standard deviation of the numbers of the random start. The default depends on the problem.
        --record: descent, sgd, adam: steps between two records, or steps such as 0,10,100. flow: number of times.
        --snapshots: Number of snapshots, or their steps such as 0,10,100.

    Examples:
        ridgeformer descend --layers 1 --noise 'fixed(1)' --rate 1e-4 --plot curve.png
        ridgeformer descend --method adam --layers 3 --noise 'uniform(0,5)' --plot learning.gif
        ridgeformer descend --method flow --layers 1 --noise 'fixed(1)' --time 100 --csv course.csv
    """
    protocol = protocol_of(method, given)
    chosen = picture_of(picture, protocol)
    training = _fit(protocol, quiet=quiet, **given)
    answer = describe_training(training, functools.partial(draw, training, chosen))
    return dataclasses.replace(answer, rows=training.history.rows())


def _fit(protocol: Protocol, *, out: Path | None, init: Path | None, quiet: bool, **given: Any) -> Training:
    """Train, with a progress display, and say what is stored if the user interrupts."""
    asked = {name: given[name] for name in ("problem", "family", "layers", "heads", "seed", "sequences")}
    layout = {name: given[name] for name in ("attention", "coordinate", "scratch") if given[name] is not None}
    start = None if init is None else load(init)

    def show(now: TrainingProgress) -> None:
        step(now.fraction, 1.0, f"{now.spec.describe_model()}, {now}")

    common: dict[str, Any] = {"layout": layout or None, "init": start, "out": out, "progress": False}
    with resumable(out), progress(quiet=quiet) as step:
        return fit(**asked, protocol=protocol, callbacks=[show], **common)
