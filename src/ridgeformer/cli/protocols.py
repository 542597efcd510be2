"""Options that choose how a model is trained, and pictures of trainings."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.options import FILE, Command
from ridgeformer.cli.output import warn
from ridgeformer.errors import InputError, refuse, shown

if TYPE_CHECKING:
    from ridgeformer.training import Training
    from ridgeformer.training.spec import Protocol

PICTURES = ("curve", "trajectories", "animation")
STEPS = "descent, sgd, adam"
Options = tuple[tuple[str, type, str], ...]
SEARCHES: tuple[tuple[str, ...], Options] = (
    ("search", "paper"),
    (
        ("effort", float, "search only: number of starts and steps, relative to the default. The default is 1."),
        ("caution", float, "search only: weight of exploding sequences, relative to the default. The default is 1."),
        (
            "tolerated",
            float,
            "search only: largest probability of an explosion that the chosen model may have, such as 1e-9. The "
            "default is to count explosions instead.",
        ),
        (
            "precision",
            str,
            "search only: auto, float32 or float64, the precision of the optimisation. The default is auto.",
        ),
        ("seconds", float, "search only: time limit in seconds; the best model so far is stored. There is no default."),
        ("steps", int, "paper only: number of steps. The default is 200000."),
        ("batch", str, "paper only: sequences per step. The default is 2048."),
        ("rate", float, "paper only: learning rate. The default is 1e-4."),
    ),
)
DESCENTS: tuple[tuple[str, ...], Options] = (
    ("descent", "sgd", "adam", "flow"),
    (
        ("steps", int, f"{STEPS}: number of steps. The default is 10000."),
        (
            "batch",
            str,
            "Sequences per step; 'population' for the exact gradient of one layer, or 'sample(8192)' for fixed "
            "sequences. The default for descent and flow is population where it is known, otherwise sample(8192). "
            "The default for sgd and adam is 512.",
        ),
        ("rate", float, f"{STEPS}: learning rate. The default depends on the problem."),
        (
            "clip",
            float,
            f"{STEPS}: largest norm of a gradient; longer gradients are scaled down. inf clips nothing. With --rate, "
            "the default is inf. Without --rate, the default depends on the problem.",
        ),
        ("momentum", float, f"{STEPS}: forgetting factor of the gradient. The default is 0, and 0.9 for adam."),
        ("schedule", str, f"{STEPS}: constant, linear, cosine, or step:factor pairs such as 0:1,5000:0.1."),
        ("warmup", int, f"{STEPS}: steps in which the rate rises. The default is 0."),
        ("time", float, "flow only: time of the gradient flow. The default is 1000."),
        ("scale", float, "Standard deviation of the numbers of the random start."),
        (
            "record",
            str,
            f"{STEPS}: steps between two records, or steps such as 0,10,100. flow: number of times.",
        ),
        ("snapshots", str, "Number of snapshots, or their steps such as 0,10,100. The default is 20."),
    ),
)
OPTIONS = (*SEARCHES[1], *DESCENTS[1])


def takes_a_protocol(flag: str, kinds: tuple[tuple[str, ...], Options], text: str) -> Callable[[Command], Command]:
    """Add the option that chooses a protocol, and the options of these protocols, None where they are not given.

    Args:
        flag: The name of the option, such as `--protocol`.
        kinds: The names of the protocols, of which the first is the default, and their options.
        text: The help text of the option.

    Returns:
        The decorator.
    """
    names, options = kinds

    def decorate(command: Command) -> Command:
        for name, kind, words in reversed(options):
            choice = click.Choice(["auto", "float32", "float64"]) if name == "precision" else kind
            command = click.option(f"--{name}", type=choice, help=words)(command)
        chosen = click.Choice(names)
        return click.option(flag, type=chosen, default=names[0], show_default=True, help=text)(command)

    return decorate


def protocol_of(name: str, options: Mapping[str, Any]) -> Protocol:
    """The protocol with the options that were given; options of other protocols are refused."""
    from ridgeformer.training.spec import PROTOCOLS

    known = {option for option, *_ in OPTIONS}
    taken = [field.name for field in dataclasses.fields(PROTOCOLS[name]) if field.name in known]
    given = {key: _value(key, value) for key, value in options.items() if key in known and value is not None}
    wrong = sorted(given.keys() - set(taken))
    if wrong:
        raise InputError(
            f"{name} takes --{', --'.join(taken)}; got --{wrong[0]}, which is for others. "
            "Leave it out, or choose another protocol."
        )
    return PROTOCOLS[name](**given)


def _value(option: str, value: Any) -> Any:
    """Numbers and lists of numbers from their text; what is neither is left for the protocol to refuse."""
    from ridgeformer.training.descent import SCHEDULES

    if not isinstance(value, str):
        return value
    try:
        if option == "schedule":
            pairs = [part.split(":") for part in value.split(",")]
            return value if value in SCHEDULES else [(int(step), float(factor)) for step, factor in pairs]
        if option in ("record", "snapshots", "batch"):
            return [int(part) for part in value.split(",")] if "," in value else int(value)
    except ValueError:
        if option == "schedule":
            rule = f"the schedule must be {', '.join(SCHEDULES)} or pairs step:factor"
            refuse(rule, shown(value), "Write cosine, or 0:1,5000:0.1, for example.")
        return value
    return value


def takes_a_picture(command: Command) -> Command:
    """Add the options that choose a picture of a descent."""
    levels = click.option(
        "--level",
        multiple=True,
        type=float,
        help="Also draw a dashed line in the learning curve of a descent, at this loss on its axis, which shows "
        "unadjusted losses. May be repeated.",
    )
    kinds = click.option(
        "--picture",
        type=click.Choice(PICTURES),
        help="What --plot draws of a descent: its learning curve, the trajectories of its weights, or an animation "
        "(.gif, or .html with a slider) [default: by the ending of the file].",
    )
    what = "Draw the learning curve, or another --picture, to this file: .png, .pdf, .svg, .gif or .html."
    return click.option("--plot", type=FILE, help=f"{what} Needs matplotlib.")(kinds(levels(command)))


def picture_of(plot: Path | None, picture: str | None, levels: tuple[float, ...], protocol: Protocol) -> str:
    """The picture to draw; refuses one that the protocol does not allow or no file can hold, before any training."""
    from ridgeformer.plotting.style import MOVING, STILL, check_plot

    if plot is None:
        if picture or levels:
            refuse(
                "--picture and --level are about the file of --plot", "no --plot", "Add --plot curve.png, for example."
            )
        return "curve"
    chosen = picture or ("animation" if plot.suffix in MOVING else "curve")
    descent = protocol.records_steps
    if chosen != "curve" and not descent:
        given = f"--protocol {protocol.name}"
        remedy = "Train with `ridgeformer descend`, or draw the curve to a .png, .pdf or .svg file."
        refuse(f"a picture of the kind {chosen} shows a descent, whose course is recorded", given, remedy)
    if chosen != "curve" and (snapshots := len(protocol.kept())) < 2:
        refuse(f"a picture of the kind {chosen} needs two snapshots", snapshots, "Train with --snapshots 20.")
    if levels:
        _check_levels(levels, chosen, protocol)
    named = MOVING if chosen == "animation" else STILL
    check_plot(plot, named if picture else (*STILL, *MOVING) if descent else STILL)
    return chosen


def _check_levels(levels: tuple[float, ...], picture: str, protocol: Protocol) -> None:
    """Refuse levels that no axis has, and levels of a picture that is not the learning curve of a descent."""
    rule = "--level is for the learning curve of a descent"
    if picture != "curve":
        remedy = "Leave out --level, or draw the curve to a .png, .pdf or .svg file."
        refuse(rule, f"a picture of the kind {picture}", remedy)
    if not protocol.records_steps:
        refuse(rule, f"--protocol {protocol.name}", "Leave out --level.")
    for level in levels:
        if not 0 < level < math.inf:
            rule = "--level must be positive and finite, because the axis is logarithmic"
            refuse(rule, f"{level:g}", "Write --level 0.5, for example.")


def draw(plot: Path, training: Training, picture: str, levels: tuple[float, ...], quiet: bool = False) -> None:
    """Draw a picture of a run to a file, and say so on stderr. An animation takes seconds, so a terminal shows that."""
    from rich.console import Console

    waiting = picture == "animation" and not quiet
    with Console(stderr=True).status(f"drawing {plot.name}") if waiting else contextlib.nullcontext():
        _draw(plot, training, picture, levels)
    warn(f"Drawn to {plot}.")


def _draw(plot: Path, training: Training, picture: str, levels: tuple[float, ...]) -> None:
    from ridgeformer.plotting.dynamics import DRAWN
    from ridgeformer.plotting.training import draw_training

    if picture == "curve" and "table" not in training.course:
        draw_training(training, plot)
    elif picture == "curve":
        DRAWN[picture](training, plot, levels=levels)
    else:
        DRAWN[picture](training, plot)
