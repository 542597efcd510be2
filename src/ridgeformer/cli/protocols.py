"""The options of `ridgeformer train` that say how to train."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.options import FILE, Command, say_drawn
from ridgeformer.errors import InputError, refuse, shown

if TYPE_CHECKING:
    from ridgeformer.training import Training
    from ridgeformer.training.protocols import Protocol

__all__ = ["PICTURES", "draw", "picture_of", "protocol_of", "takes_a_picture", "takes_a_protocol"]

PICTURES = ("curve", "trajectories", "animation")
DESCENTS = "descent, sgd, adam"
OPTIONS: tuple[tuple[str, type, str], ...] = (
    ("effort", float, "search only: number of starts and steps, relative to the default [default: 1]."),
    ("caution", float, "search only: weight of exploding sequences, relative to the default [default: 1]."),
    ("precision", str, "search only: auto, float32 or float64, the precision of the optimisation [default: auto]."),
    ("seconds", float, "search only: time limit in seconds; the best model so far is kept [default: none]."),
    ("steps", int, f"paper, {DESCENTS}: number of steps [default: 200000 for paper, else 10000]."),
    (
        "batch",
        str,
        f"paper, {DESCENTS}, flow: sequences per step; 'population' for the exact gradient of one layer, or "
        "'sample(8192)' for fixed sequences [default: 2048 for paper; for descent and flow population where it is "
        "known, else sample(8192); 512 for sgd and adam].",
    ),
    (
        "rate",
        float,
        f"paper, {DESCENTS}: learning rate [default: 1e-4 for paper, else one that suits the problem, as --clip then "
        "does too].",
    ),
    (
        "clip",
        float,
        f"{DESCENTS}: largest norm of a gradient; longer ones are scaled down [default: none if --rate is given, else "
        "one that suits the problem; inf for none].",
    ),
    ("momentum", float, f"{DESCENTS}: forgetting factor of the gradient [default: 0; 0.9 for adam]."),
    ("schedule", str, f"{DESCENTS}: constant, linear, cosine, or step:factor pairs such as 0:1,5000:0.1."),
    ("warmup", int, f"{DESCENTS}: steps in which the rate rises [default: 0]."),
    ("time", float, "flow only: time of the gradient flow [default: 1000]."),
    ("scale", float, f"{DESCENTS}, flow: standard deviation of the numbers of the random start."),
    ("record", str, f"{DESCENTS}: record every so many steps, or at steps such as 0,10,100. flow: number of times."),
    ("snapshots", str, f"{DESCENTS}, flow: number of snapshots, or their steps such as 0,10,100 [default: 20]."),
)


def takes_a_protocol(command: Command) -> Command:
    """Add the options of all protocols; the command gets them by name, None where they are not given."""
    for name, kind, text in reversed(OPTIONS):
        choice = click.Choice(["auto", "float32", "float64"]) if name == "precision" else kind
        command = click.option(f"--{name}", type=choice, help=text)(command)
    names = ["search", "paper", "descent", "sgd", "adam", "flow"]
    return click.option(
        "--protocol",
        type=click.Choice(names),
        default="search",
        show_default=True,
        help="How to train. search: many starts, and models grown from shallower ones. paper: as in the paper. To "
        "watch how a model learns, from one start: descent (gradient descent on the exact gradient, or on a fixed "
        "sample), sgd (on fresh sequences), adam (Adam on fresh sequences; --batch chooses another gradient for all "
        "three), and flow (gradient flow).",
    )(command)


def protocol_of(name: str, options: Mapping[str, Any]) -> Protocol:
    """The protocol with the options that were given; those of other protocols are refused."""
    from ridgeformer.training.protocols import NAMES

    known = {option for option, *_ in OPTIONS}
    taken = [field.name for field in dataclasses.fields(NAMES[name]) if field.name in known]
    given = {option: _value(option, value) for option, value in options.items() if value is not None}
    wrong = sorted(given.keys() - set(taken))
    if wrong:
        raise InputError(
            f"--protocol {name} takes --{', --'.join(taken)}; got --{wrong[0]}, an option of another "
            "protocol. Leave it out, or choose another protocol."
        )
    return NAMES[name](**given)


def _value(option: str, value: Any) -> Any:
    """Numbers and lists of numbers from their text; what is neither is left for the protocol to refuse."""
    from ridgeformer.training.protocols import SCHEDULES

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
    from ridgeformer.training.protocols import Descent, describe

    if plot is None:
        if picture or levels:
            refuse(
                "--picture and --level are about the file of --plot", "no --plot", "Add --plot curve.png, for example."
            )
        return "curve"
    chosen = picture or ("animation" if plot.suffix in MOVING else "curve")
    descent = isinstance(protocol, Descent)
    if chosen != "curve" and not descent:
        given = f"--protocol {describe(protocol)['name']}"
        remedy = "Train with --protocol descent, sgd, adam or flow, or draw the curve to a .png, .pdf or .svg file."
        refuse(f"a picture of the kind {chosen} shows a descent, whose course is recorded", given, remedy)
    if chosen != "curve" and isinstance(protocol, Descent) and len(protocol.kept()) < 2:
        refuse(
            f"a picture of the kind {chosen} needs two snapshots", len(protocol.kept()), "Train with --snapshots 20."
        )
    if levels:
        _check_levels(levels, chosen, protocol)
    named = MOVING if chosen == "animation" else STILL
    check_plot(plot, named if picture else (*STILL, *MOVING) if descent else STILL)
    return chosen


def _check_levels(levels: tuple[float, ...], picture: str, protocol: Protocol) -> None:
    """Refuse levels that no axis has, and levels of a picture that is not the learning curve of a descent."""
    from ridgeformer.training.protocols import Descent, describe

    rule = "--level is for the learning curve of a descent"
    if picture != "curve":
        remedy = "Leave out --level, or draw the curve to a .png, .pdf or .svg file."
        refuse(rule, f"a picture of the kind {picture}", remedy)
    if not isinstance(protocol, Descent):
        refuse(rule, f"--protocol {describe(protocol)['name']}", "Leave out --level.")
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
    say_drawn(plot)


def _draw(plot: Path, training: Training, picture: str, levels: tuple[float, ...]) -> None:
    from ridgeformer.plotting.dynamics import DRAWN
    from ridgeformer.plotting.training import draw_training

    if picture == "curve" and "table" not in training.course:
        draw_training(plot, training)
    elif picture == "curve":
        DRAWN[picture](plot, training, levels=levels)
    else:
        DRAWN[picture](plot, training)
