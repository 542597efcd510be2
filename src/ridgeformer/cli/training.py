"""`ridgeformer train`, `descend` and `runs`: train models by the protocol that options choose; finished trainings."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
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
    one_line,
    shares_help,
    takes_a_problem,
)
from ridgeformer.cli.output import Answer, answers, progress, resumable, warn
from ridgeformer.errors import InputError, refuse, shown
from ridgeformer.evaluation.table import aligned
from ridgeformer.loading import load
from ridgeformer.losses import without_rounding
from ridgeformer.models.family import known_families
from ridgeformer.plotting.dynamics import DRAWN
from ridgeformer.plotting.style import MOVING, STILL, check_plot
from ridgeformer.plotting.training import draw_training
from ridgeformer.training import Runs, Training, TrainingProgress, train as fit
from ridgeformer.training.descent.protocols import SCHEDULES
from ridgeformer.training.runs import protocol_of as described_protocol, read_entry
from ridgeformer.training.spec import PROTOCOLS, Protocol
from ridgeformer.training.store import is_run

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

    protocol_option = click.option(flag, type=click.Choice(names), default=names[0])
    return lambda command: decorated(command, protocol_option, *map(option, settings.split()))


def _default(names: tuple[str, ...], setting: str) -> str:
    """The default of a setting, as its protocols say; nothing where it depends on the problem."""
    fields = {name: {field.name: field.default for field in dataclasses.fields(PROTOCOLS[name])} for name in names}
    by_value: dict[Any, list[str]] = {}
    for name in (name for name in names if setting in fields[name]):
        by_value.setdefault(fields[name][setting], []).append(name)
    defaults = {str(value): " and ".join(owners) for value, owners in by_value.items() if value is not None}
    if len(by_value) == len(defaults) == 1:
        return next(iter(defaults))
    return ", ".join(f"{value} for {owners}" for value, owners in defaults.items())


def protocol_of(name: str, options: Mapping[str, Any]) -> Protocol:
    """The protocol with the options that were given; options of other protocols are refused."""
    taken = [field.name for field in dataclasses.fields(PROTOCOLS[name]) if field.name in SETTINGS]
    settings = {key: _value(key, value) for key, value in options.items() if key in SETTINGS and value is not None}
    wrong = sorted(settings.keys() - set(taken))
    if wrong:
        received, remedy = f"--{wrong[0]}, which is for others", "Leave it out, or choose another protocol."
        refuse(f"{name} takes --{', --'.join(taken)}", received, remedy)
    return PROTOCOLS[name](**settings)


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


PICTURES = ("curve", "trajectories", "animation")


@shares_help
def takes_a_picture(command: Callable[..., Answer]) -> Command:
    """Make a command that answers with a picture of a descent, and add the option that chooses it.

    Options:
        --picture: What --plot draws of a descent: its learning curve, the trajectories of its weights, or an animation
            (.gif, or .html with a slider) [default: by the ending of the file].
    """
    kinds = click.option("--picture", type=click.Choice(PICTURES))
    return answers(plot="the learning curve, or another --picture,", moving=True)(kinds(command))


def picture_of(picture: str | None, protocol: Protocol) -> str:
    """The picture to draw; refuses one that the protocol does not allow or no file can hold, before any training."""
    plot: Path | None = click.get_current_context().params["plot"]
    if plot is None:
        if picture:
            refuse("--picture is about the file of --plot", "no --plot", "Add --plot curve.png, for example.")
        return "curve"
    kind = picture or ("animation" if plot.suffix in MOVING else "curve")
    if kind != "curve" and (snapshots := len(protocol.kept())) < 2:
        received = f"{snapshots} of the protocol {protocol.name}"
        remedy = "Train with `ridgeformer descend --snapshots 20`, or draw the curve to a .png, .pdf or .svg file."
        refuse(f"a picture of the kind {kind} needs two snapshots of a descent", received, remedy)
    check_plot(plot, MOVING if kind == "animation" else STILL)
    return kind


def draw(training: Training, picture: str, plot: Path) -> None:
    """Draw a picture of a run to a file. An animation takes seconds, so a terminal shows that."""
    from rich.console import Console

    waiting = Console(stderr=True).status(f"drawing {plot.name}") if picture == "animation" else None
    with waiting or contextlib.nullcontext():
        (DRAWN[picture] if training.course else draw_training)(training, plot)


@cli.command()
@takes_a_protocol("--protocol", SEARCHES, "effort caution tolerated precision seconds steps batch rate")
@measures_explosions("After training,")
@answers(plot="the learning curve")
@_trains
def train(protocol: str, explosions: bool, **options: Any) -> Answer:
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
    training = _fit(protocol_of(protocol, options), **options)
    return describe_training(training, functools.partial(draw, training, "curve"), explosions)


@cli.command()
@takes_a_protocol("--method", DESCENTS, "steps batch rate clip momentum schedule warmup time scale record snapshots")
@takes_a_picture
@_trains
def descend(method: str, picture: str | None, quiet: bool, **options: Any) -> Answer:
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
    protocol = protocol_of(method, options)
    kind = picture_of(picture, protocol)
    training = _fit(protocol, quiet=quiet, **options)
    answer = describe_training(training, functools.partial(draw, training, kind))
    return dataclasses.replace(answer, rows=training.history.rows())


def _fit(protocol: Protocol, *, out: Path | None, init: Path | None, quiet: bool, **options: Any) -> Training:
    """Train, with a progress display, and say what is stored if the user interrupts."""
    asked = {name: options[name] for name in ("problem", "family", "layers", "heads", "seed", "sequences")}
    layout = {name: options[name] for name in ("attention", "coordinate", "scratch") if options[name] is not None}
    start = None if init is None else load(init)

    def show(now: TrainingProgress) -> None:
        step(now.fraction, 1.0, f"{now.spec.describe_model()}, {now}")

    common: dict[str, Any] = {"layout": layout or None, "init": start, "out": out, "progress": False}
    with resumable(out), progress(quiet=quiet) as step:
        return fit(**asked, protocol=protocol, callbacks=[show], **common)


@cli.command()
@click.argument("place", type=PLACE, metavar="RUN")
@click.option("--problem")
@takes_a_picture
def runs(place: Path, problem: str | None, picture: str | None) -> Answer:
    """List all runs of a folder, or print a finished run.

    RUN is the folder of a run, or a folder that holds runs. A list is sorted by problem, best run first. Damaged runs
    are reported on stderr with the reason, and with --json as entries with the key "damaged"; the exit code is then 1.

    Options:
        --problem: List and draw only the runs of this problem of a folder, such as 'd=10 n=20 uniform(0,5)', or some of
            these words.

    Examples:
        ridgeformer runs runs/ --csv runs.csv
        ridgeformer runs runs/ --problem 'uniform(0,5)' --plot losses.png
        ridgeformer runs runs/diag-7x1-uniform-0-5-d10n20-s0-0123456789 --plot curve.png
        ridgeformer runs runs/full-1x1-fixed-1-d3n6-s0-0123456789 --picture trajectories --plot w.svg
        ridgeformer runs runs/full-1x1-fixed-1-d3n6-s0-0123456789 --plot learning.html
    """
    table = Runs.load(place) if place.is_dir() and not is_run(place) else None
    if table:
        if picture is not None:
            refuse("--picture needs a single run", f"a folder of {len(table)} runs", "Leave it out.")
        return _listed(table if problem is None else table.of_problem(problem))
    if problem is not None:
        refuse("--problem selects runs of a folder", f"{shown(place)}, which holds no runs", "Leave it out.")
    damage = read_entry(place).damage if is_run(place) else None
    if damage is not None:
        raise InputError(f"{shown(place, 200)}: {damage}")
    training = Training.load(place)
    return describe_training(training, functools.partial(draw, training, picture_of(picture, training.spec.protocol)))


def _listed(table: Runs) -> Answer:
    damaged = [entry for entry in table.entries if entry.damage]
    for entry in damaged:
        warn(one_line(f"damaged: {entry.name}: {entry.damage}"))
    sound = [(entry, row) for entry, row in zip(table.entries, table.rows(), strict=True) if not entry.damage]
    printed = [
        {
            **{name: row[name] for name in ("loss", "ratio", "exploded")},
            "status": one_line(row["remark"] or row["status"]),
            **{name: one_line(row[name]) for name in ("actual", "protocol", "run")},
            "details": one_line(entry.details),
        }
        for entry, row in sound
    ]
    text = aligned(printed)
    if any(row["status"] == "unfinished" for _, row in sound):
        text += "\nTo resume an unfinished run, give the command that started it again."
    record = [entry.record for entry in table.entries if entry.record]
    record += [{"folder": str(entry.folder), "damaged": entry.damage} for entry in damaged]
    return Answer(text, record, [row for _, row in sound], table.plot, code=1 if damaged else 0)


def describe_training(training: Any, draw: Callable[[Path], object] | None = None, explosions: bool = False) -> Answer:
    """Answer with a training: its loss, how it went and where it is stored.

    Args:
        training: The training.
        draw: Draws its picture; None where there is none.
        explosions: Whether to measure the probability that a sequence explodes.

    Returns:
        The answer.
    """
    folder = str(training.folder) if training.folder else None
    course = {"course": training.history.as_dict()} if training.course else {}
    r, protocol = training.result, described_protocol(training.spec.as_dict())
    ratio = f"{r.ratio:.3g}" if math.isfinite(r.ratio) else "-"
    grown = f"; {training.total_seconds:.1f} s with the models that it was grown from"
    grown = grown if training.total_seconds > training.seconds else ""
    rare = explosions and (training.explosions or training.explosions_unknown)
    lines = {
        "status": f"{training.status}: {training.message}",
        **({} if training.is_as_asked else {"actual": training.actual}),
        **({} if protocol == "search" else {"protocol": protocol}),
        "loss": f"{r.loss:.5g} +- {r.error:.2g} on {r.sequences:,} fresh sequences",
        "floor": f"{without_rounding(r.floor, r.signal):.4g}; ratio: {ratio}",
        "tail": f"99.99 % quantile: {r.tail:.3g}, largest: {r.largest:.3g}, "
        f"exploded: {r.exploded:,} of {r.sequences:,}",
        **({"explodes": f"with probability {rare}"} if rare else {}),
        **({} if training.price is None else {"caution": str(training.price)}),
        "time": f"{training.seconds:.1f} s{grown}",
        "made with": ", ".join(f"{name} {value}" for name, value in training.made_with.items()),
        "stored in": training.folder or "nowhere; add --out runs/ to store it",
    }
    head = f"{training.spec.describe()}, seed {training.spec.seed}"
    text = "\n".join([one_line(head), *(f"  {name:10} {one_line(line)}" for name, line in lines.items())])
    measured: dict[str, Any] = {}
    if explosions:
        measured = {"explosions": training.explosions and training.explosions.as_dict()}
        measured |= {} if training.explosions else {"explosions_unknown": training.explosions_unknown}
    rows = [{"run": training.spec.name, **r.rows()[0]}]
    return Answer(text, {**training.record(), **course, **measured, "folder": folder}, rows, draw)
