"""`ridgeformer train` and `ridgeformer show`: train models and look at trained ones."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.display import training_display
from ridgeformer.cli.group import cli
from ridgeformer.cli.models import read_model
from ridgeformer.cli.options import AS_JSON, FAMILY, PLACE, takes_a_problem
from ridgeformer.cli.protocols import draw, picture_of, protocol_of, takes_a_picture, takes_a_protocol
from ridgeformer.errors import InputError, shown

if TYPE_CHECKING:
    from ridgeformer.engine import Layout
    from ridgeformer.problems import Problem
    from ridgeformer.sweeps import Entry


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer train --family diag --layers 7 --noise 'uniform(0,5)' --out runs/\n"
    "  ridgeformer train --family full --layers 4 --noise 'categorical(1,3)' --seed 3 --json\n"
    "  ridgeformer train --layers 2 --noise 'fixed(1)' --dim 3 --context 6 --plot curve.png\n"
    "  ridgeformer train --protocol paper --layers 4 --noise 'uniform(0,5)' --out runs/\n"
    "  ridgeformer train --family full --noise 'uniform(0,5)' --context 10..40 --features 'factors(2)'\n"
    "  ridgeformer train --layers 1 --noise 'fixed(1)' --protocol descent --rate 1e-4 --plot curve.png\n"
    "  ridgeformer train --layers 3 --noise 'uniform(0,5)' --protocol adam --plot learning.gif"
)
@click.option(
    "--family",
    type=FAMILY,
    default="diag",
    show_default=True,
    help="Parametrisation of a layer, from simple to rich: gdpp (3 numbers per layer), diag (4), channels(1,3) (20, "
    "with room for two intermediate results), full (two matrices per head); also lowrank(2), registers(2), "
    "preconditioned and looped(diag,4).",
)
@click.option(
    "--layers", default=4, show_default=True, help="Number of layers; of a looped model, those of one repetition."
)
@click.option("--heads", default=1, show_default=True, help="Number of attention heads per layer.")
@takes_a_problem(sequences=100_000)
@click.option(
    "--attention",
    type=click.Choice(["sum", "mean"]),
    help="Whether attention sums over the tokens of a context or takes their mean [default: sum; mean if n varies].",
)
@click.option(
    "--coordinate",
    type=click.Choice(["none", "constant", "length"]),
    help="full, lowrank, channels and looped models of these: a further coordinate of every token. constant: a 1, "
    "which gives an intercept. length: sqrt(20 / n), which shows n [default: none; length if n varies].",
)
@click.option(
    "--scratch",
    type=int,
    help="full, lowrank and looped models of these: number of further coordinates that start at zero, as room for "
    "intermediate results [default: 0].",
)
@click.option("--out", type=PLACE, help="Folder for runs. Finished runs are reused; interrupted runs resume.")
@takes_a_protocol
@click.option("--init", type=PLACE, help="Start from this model: a file, the folder of a run, or a model of the zoo.")
@takes_a_picture
@click.option("--quiet", "-q", is_flag=True, help="Do not show progress.")
def train(
    family: str,
    layers: int,
    heads: int,
    problem: Problem,
    sequences: int,
    seed: int,
    as_json: bool,
    out: Path | None,
    protocol: str,
    init: Path | None,
    plot: Path | None,
    picture: str | None,
    level: tuple[float, ...],
    quiet: bool,
    **options: Any,
) -> None:
    """Train a linear transformer on a problem and print how good it is.

    The default protocol, search, grows the model from models with fewer layers and from models of simpler families
    (ones that its family contains). These are trained first; with --out all of them are stored. To resume an
    interrupted run, give the same command again.
    """
    from ridgeformer.training import train as fit

    tokens = _layout(problem, family, {name: options.pop(name) for name in ("attention", "coordinate", "scratch")})
    recipe = protocol_of(protocol, options)
    drawn = picture_of(plot, picture, level, recipe)
    try:
        with training_display(problem, sequences, quiet) as callbacks:
            found = fit(
                problem,
                family,
                layers,
                heads,
                seed=seed,
                protocol=recipe,
                sequences=sequences,
                layout=tokens,
                init=None if init is None else read_model(init)[0],
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
        click.echo(f"ridgeformer: interrupted; {again}", err=True)
        sys.exit(130)
    _print_training(found, as_json)
    if plot is not None:
        draw(plot, found, drawn, level, quiet)


def _layout(problem: Problem, family: str, options: dict[str, Any]) -> Layout:
    """The layout that the problem suggests, with the options that were given."""
    from ridgeformer.training.spec import default_layout

    given = {name: value for name, value in options.items() if value is not None}
    return dataclasses.replace(default_layout(problem, family), **{"scratch": 0} | given)  # families add their own room


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer show runs/\n"
    "  ridgeformer show runs/diag-7x1-uniform-0-5-d10n20-s0-0123456789 --plot curve.png\n"
    "  ridgeformer show runs/full-1x1-fixed-1-d3n6-s0-0123456789 --picture trajectories --plot w.svg\n"
    "  ridgeformer show runs/full-1x1-fixed-1-d3n6-s0-0123456789 --plot learning.html"
)
@click.argument("run", type=PLACE)
@takes_a_picture
@AS_JSON
def show(run: Path, plot: Path | None, picture: str | None, level: tuple[float, ...], as_json: bool) -> None:
    """Print a finished run, or list all runs of a folder.

    RUN is the folder of a run, or a folder that holds runs. A list is sorted by problem, best run first. Damaged runs
    are reported on stderr with the reason, and with --json as entries with the key "damaged"; the exit code is then 1.
    """
    from ridgeformer.sweeps.listing import list_runs, read_entry
    from ridgeformer.training import load_run
    from ridgeformer.training.stored import is_run

    entries = list_runs(run) if run.is_dir() and not is_run(run) else []
    if not entries:
        damage = read_entry(run).damage if is_run(run) else None
        if damage is not None:
            raise InputError(f"{shown(run, 200)}: {damage}")
        found = load_run(run)
        drawn = picture_of(plot, picture, level, found.spec.protocol)
        _print_training(found, as_json)
        if plot is not None:
            draw(plot, found, drawn, level)
        return
    if plot is not None:
        raise InputError(
            f"--plot needs a single run; {shown(run, 200)} holds {len(entries)} runs. Give the folder of one of them."
        )
    (_print_json if as_json else _print_list)(entries)
    if any(entry.damage for entry in entries):
        sys.exit(1)


def _print_json(entries: list[Entry]) -> None:
    damaged = [{"folder": str(entry.folder), "damaged": entry.damage} for entry in entries if entry.damage]
    click.echo(json.dumps([*(entry.record for entry in entries if entry.record), *damaged], indent=2))
    _name_damaged(entries)


def _print_list(entries: list[Entry]) -> None:
    width = max([8, *(len(entry.protocol) for entry in entries)])
    click.echo(f"      loss   ratio  exploded  status          {'protocol':{width}}  run")
    for entry in entries:
        if entry.damage is None:
            loss = f"{entry.loss:10.4g}" if entry.record else f"{'-':>10}"
            ratio = "-" if entry.ratio is None else f"{entry.ratio:.2f}"
            wild = "-" if entry.exploded is None else entry.exploded
            state = f"{loss} {ratio:>7}  {wild:>8}  {entry.status:14}  {entry.protocol:{width}}"
            click.echo(f"{state}  {entry.folder.name}  {entry.details}".rstrip())
    if any(entry.status == "unfinished" for entry in entries):
        click.echo("To resume an unfinished run, give the command that started it again.")
    _name_damaged(entries)


def _name_damaged(entries: list[Entry]) -> None:
    for entry in entries:
        if entry.damage:
            click.echo(f"damaged: {entry.folder.name}: {entry.damage}", err=True)


def _print_training(training: Any, as_json: bool) -> None:
    if as_json:
        from ridgeformer.jsonable import jsonable

        folder = str(training.folder) if training.folder else None
        course = {"course": training.history.as_dict()} if training.course else {}
        click.echo(json.dumps(jsonable({**training.record(), **course, "folder": folder}), indent=2))
        return
    from ridgeformer.evaluation.table import without_rounding
    from ridgeformer.sweeps.listing import protocol_of
    from ridgeformer.training import Search

    r, searched = training.result, isinstance(training.spec.protocol, Search)
    least, times = f"{without_rounding(r.floor):.4g}", f"{r.ratio:.3g}" if math.isfinite(r.ratio) else "-"
    grown = f"; {training.total_seconds:.1f} s with the models that it was grown from"
    made = ", ".join(f"{name} {value}" for name, value in training.made_with.items())
    rows = {
        "status": f"{training.status}: {training.message}",
        **({} if searched else {"protocol": protocol_of(training.spec.as_dict())}),
        "loss": f"{r.loss:.5g} +- {r.error:.2g} on {r.sequences:,} fresh sequences",
        "floor": f"{least}; ratio: {times}",
        "tail": f"99.99 % quantile: {r.tail:.3g}, largest: {r.largest:.3g}, "
        f"exploded: {r.exploded:,} of {r.sequences:,}",
        "time": f"{training.seconds:.1f} s{grown if searched else ''}",
        "made with": made,
        "stored in": training.folder or "nowhere; add --out runs/ to store it",
    }
    click.echo(training.spec.describe() + f", seed {training.spec.seed}")
    for name, text in rows.items():
        click.echo(f"  {name:10} {text}")
