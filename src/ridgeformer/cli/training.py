"""`ridgeformer train` and `ridgeformer descend`: train models."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.group import cli
from ridgeformer.cli.options import FAMILY, PLACE, Command, measures_explosions, takes_a_problem
from ridgeformer.cli.output import Answer, answers, training_display, warn
from ridgeformer.cli.protocols import (
    DESCENTS,
    SEARCHES,
    draw,
    picture_of,
    protocol_of,
    takes_a_picture,
    takes_a_protocol,
)
from ridgeformer.cli.sweep import describe_training

if TYPE_CHECKING:
    from ridgeformer.problems import Problem

MODEL = (
    click.option(
        "--family",
        type=FAMILY,
        default="diag",
        show_default=True,
        help="Parametrisation of a layer, from simple to rich: gdpp (3 numbers per layer), diag (4), channels(1,3) "
        "(20, with room for two intermediate results), full (two matrices per head); also lowrank(2), registers(2), "
        "preconditioned and looped(diag,4).",
    ),
    click.option(
        "--layers", default=4, show_default=True, help="Number of layers; of a looped model, those of one repetition."
    ),
    click.option("--heads", default=1, show_default=True, help="Number of attention heads per layer."),
    click.option(
        "--attention",
        type=click.Choice(["sum", "mean"]),
        help="Whether attention sums over the tokens of a context or takes their mean. The default is sum, and mean if "
        "n varies.",
    ),
    click.option(
        "--coordinate",
        type=click.Choice(["none", "constant", "length", "ratio"]),
        help="full, lowrank, channels and looped models of these: a further coordinate of every token. constant: a 1, "
        "which gives an intercept. length: sqrt(20 / n), which shows n. ratio: one more token that shows 2 d / n "
        "[default: none; length if n varies; ratio if d varies].",
    ),
    click.option(
        "--scratch",
        type=int,
        help="full, lowrank and looped models of these: number of further coordinates that start at zero, as room for "
        "intermediate results [default: 0].",
    ),
)
WORK = (
    click.option("--out", type=PLACE, help="Folder for runs. Finished runs are reused; interrupted runs resume."),
    click.option(
        "--init", type=PLACE, help="Start from this model: a file, the folder of a run, or a model of the zoo."
    ),
    click.option("--quiet", "-q", is_flag=True, help="Do not show progress."),
)


def _trains(command: Command) -> Command:
    """Add the options that both commands share."""
    for option in reversed((*MODEL, takes_a_problem(sequences=100_000), *WORK)):
        command = option(command)
    return command


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer train --family diag --layers 7 --noise 'uniform(0,5)' --out runs/\n"
    "  ridgeformer train --family full --layers 4 --noise 'categorical(1,3)' --seed 3 --json\n"
    "  ridgeformer train --layers 2 --noise 'fixed(1)' --dim 3 --context 6 --plot curve.png\n"
    "  ridgeformer train --protocol paper --layers 4 --noise 'uniform(0,5)' --out runs/\n"
    "  ridgeformer train --family full --noise 'uniform(0,5)' --context 10..40 --features 'factors(2)'"
)
@takes_a_protocol(
    "--protocol",
    SEARCHES,
    "How to train. search: many starts, and models grown from shallower ones. paper: as in the paper, by Adam.",
)
@measures_explosions("After training,")
@answers(plot="the learning curve")
@_trains
def train(protocol: str, explosions: bool, **given: Any) -> Answer:
    """Train a linear transformer on a problem and print how good it is.

    The default protocol, search, grows the model from models with fewer layers and from models of simpler families
    (ones that its family contains). These are trained first; with --out all of them are stored. To resume an
    interrupted run, give the same command again.
    """
    from ridgeformer.plotting.training import draw_training

    training = _fit(protocol_of(protocol, given), **given)
    return describe_training(training, lambda path: draw_training(training, path), explosions)


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer descend --layers 1 --noise 'fixed(1)' --rate 1e-4 --plot curve.png\n"
    "  ridgeformer descend --method adam --layers 3 --noise 'uniform(0,5)' --plot learning.gif\n"
    "  ridgeformer descend --method flow --layers 1 --noise 'fixed(1)' --time 100 --csv course.csv"
)
@takes_a_protocol(
    "--method",
    DESCENTS,
    "How to descend. descent: gradient descent on the exact gradient, or on a fixed sample. sgd: on fresh sequences. "
    "adam: Adam on fresh sequences. flow: gradient flow. --batch chooses another gradient.",
)
@takes_a_picture
@answers()
@_trains
def descend(
    method: str, plot: Path | None, picture: str | None, level: tuple[float, ...], quiet: bool, **given: Any
) -> Answer:
    """Watch how a model learns: one descent from one start, with its course recorded.

    --csv writes the course: losses, gradients and rates by step.
    """
    protocol = protocol_of(method, given)
    chosen = picture_of(plot, picture, level, protocol)
    training = _fit(protocol, quiet=quiet, **given)
    if plot is not None:
        draw(plot, training, chosen, level, quiet)
    answer = describe_training(training)
    return dataclasses.replace(answer, rows=training.history.rows())


def _fit(
    protocol: Any,
    *,
    problem: Problem,
    family: str,
    layers: int,
    heads: int,
    sequences: int,
    seed: int,
    out: Path | None,
    init: Path | None,
    quiet: bool,
    **options: Any,
) -> Any:
    """Train, with a progress display, and say what is stored if the user interrupts."""
    from ridgeformer.loading import load
    from ridgeformer.training import train as fit

    layout = {name: options[name] for name in ("attention", "coordinate", "scratch") if options[name] is not None}
    try:
        with training_display(quiet) as callbacks:
            return fit(
                problem,
                family,
                layers,
                heads,
                seed=seed,
                protocol=protocol,
                sequences=sequences,
                layout=layout or None,
                init=None if init is None else load(init),
                out=out,
                callbacks=callbacks,
                progress=False,
            )
    except KeyboardInterrupt:
        again = (
            f"the work so far is stored in {out}. Give the same command again to resume."
            if out
            else "nothing was stored. Add --out runs/ to be able to resume."
        )
        warn(f"ridgeformer: interrupted; {again}")
        sys.exit(130)
