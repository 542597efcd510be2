"""`ridgeformer train` and `show`: one model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.display import training_display
from ridgeformer.cli.group import cli
from ridgeformer.cli.options import AS_JSON, PLACE, plot_option, problem_options
from ridgeformer.errors import InputError, shown

if TYPE_CHECKING:
    from ridgeformer.sweeps import Entry

_FAMILIES = click.Choice(["gdpp", "diag", "full"])
_PLOT = plot_option("the learning curve")


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer train --family diag --layers 7 --noise 'uniform(0,5)' --out runs/\n"
    "  ridgeformer train --family full --layers 4 --noise 'categorical(1,3)' --seed 3 --json\n"
    "  ridgeformer train --layers 2 --noise 'fixed(1)' --dim 3 --context 6 --plot curve.png\n"
    "  ridgeformer train --protocol paper --layers 4 --noise 'uniform(0,5)' --out runs/"
)
@click.option("--family", type=_FAMILIES, default="diag", show_default=True, help="Parameters of a layer.")
@click.option("--layers", default=4, show_default=True, help="Depth.")
@click.option("--heads", default=1, show_default=True, help="Heads a layer.")
@problem_options
@click.option("--out", type=PLACE, help="Folder for runs. Finished runs are reused; interrupted runs resume.")
@click.option(
    "--protocol",
    type=click.Choice(["search", "paper"]),
    default="search",
    show_default=True,
    help="Ours: many starts, grown models; or the paper's: Adam from one random start.",
)
@click.option("--effort", type=float, help="search: starts and steps, relative to the usual [default: 1].")
@click.option(
    "--caution", type=float, help="search: weight of exploding sequences, relative to the usual [default: 1]."
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "float32", "float64"]),
    help="search: what descents compute in [default: auto].",
)
@click.option("--seconds", type=float, help="search: stop after so long, with the best so far [default: no limit].")
@click.option("--steps", type=int, help="paper: steps of Adam [default: 200000].")
@click.option("--batch", type=int, help="paper: sequences a step [default: 2048].")
@click.option("--rate", type=float, help="paper: learning rate [default: 1e-4].")
@_PLOT
@click.option("--quiet", "-q", is_flag=True, help="No progress display.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads to use (default: all cores).")
def train(
    family: str,
    layers: int,
    heads: int,
    noise: str,
    dim: int,
    context: int,
    sequences: int,
    seed: int,
    as_json: bool,
    out: Path | None,
    protocol: str,
    plot: Path | None,
    quiet: bool,
    threads: int | None,
    **options: Any,
) -> None:
    """Train a linear transformer on a problem, and print how good it is.

    The shallower models and those of the poorer families, from which it is grown, are trained first; with --out all of
    them are kept. A run that was stopped goes on when the same command is given again.
    """
    from ridgeformer.problems import Problem
    from ridgeformer.training import Paper, Search
    from ridgeformer.training import train as fit

    chosen = {"search": ("effort", "caution", "precision", "seconds"), "paper": ("steps", "batch", "rate")}
    given = {name: value for name, value in options.items() if value is not None}
    wrong = sorted(given.keys() - set(chosen[protocol]))
    if wrong:
        raise InputError(
            f"--protocol {protocol} takes --{', --'.join(chosen[protocol])}; got --{wrong[0]}, the other one's. "
            "Leave it out, or choose that protocol."
        )
    recipe = Paper(**given) if protocol == "paper" else Search(**given)
    problem = Problem(dim, context, noise)
    if plot is not None:
        from ridgeformer.plotting.style import check_plot

        check_plot(plot)
    try:
        with training_display(problem, sequences, quiet) as progress:
            found = fit(
                problem,
                family,
                layers,
                heads,
                seed=seed,
                protocol=recipe,
                sequences=sequences,
                out=out,
                progress=progress,
                threads=threads,
            )
    except KeyboardInterrupt:
        again = f"what is done is kept in {out}: give the same command again to go on" if out else "nothing was kept"
        click.echo(f"ridgeformer: stopped; {again}", err=True)
        sys.exit(130)
    _print_training(found, as_json, plot)


@cli.command(
    epilog="Example:\n\n\b\n  ridgeformer show runs/diag-7x1-uniform-0-5-d10n20-s0-0123456789 --plot curve.png"
)
@click.argument("run", type=PLACE)
@_PLOT
@AS_JSON
def show(run: Path, plot: Path | None, as_json: bool) -> None:
    """Print a finished run; or, for a folder of runs, one line for each: by problem, the best first.

    Damaged runs are named on stderr, each with the reason; with --json they are entries with the key "damaged". The
    exit code is 1 if a run of the folder is damaged.
    """
    from ridgeformer.sweeps.listing import is_run, list_runs, read_entry
    from ridgeformer.training import load_run

    if plot is not None:
        from ridgeformer.plotting.style import check_plot

        check_plot(plot)
    entries = list_runs(run) if run.is_dir() and not is_run(run) else []
    if not entries:
        damage = read_entry(run).damage if is_run(run) else None
        if damage is not None:
            raise InputError(f"{shown(run, 200)}: {damage}")
        _print_training(load_run(run), as_json, plot)
        return
    if plot is not None:
        raise InputError(
            f"--plot must be given one run; {shown(run, 200)} holds {len(entries)}. Name one of its folders."
        )
    (_print_json if as_json else _print_list)(entries)
    if any(entry.damage for entry in entries):
        sys.exit(1)


def _print_json(entries: list[Entry]) -> None:
    damaged = [{"folder": str(entry.folder), "damaged": entry.damage} for entry in entries if entry.damage]
    click.echo(json.dumps([*(entry.record for entry in entries if entry.record), *damaged], indent=2))
    _name_damaged(entries)


def _print_list(entries: list[Entry]) -> None:
    click.echo("      loss x floor  status          run")
    for entry in entries:
        if entry.damage is None:
            loss = f"{entry.loss:10.4g}" if entry.record else f"{'-':>10}"
            ratio = "-" if entry.ratio is None else f"{entry.ratio:.2f}"
            click.echo(f"{loss} {ratio:>7}  {entry.status:14}  {entry.folder.name}")
    if any(entry.status == "unfinished" for entry in entries):
        click.echo("What is unfinished goes on when its command is given again.")
    _name_damaged(entries)


def _name_damaged(entries: list[Entry]) -> None:
    for entry in entries:
        if entry.damage:
            click.echo(f"damaged: {entry.folder.name}: {entry.damage}", err=True)


def _print_training(training: Any, as_json: bool, plot: Path | None) -> None:
    if plot is not None:
        from ridgeformer.plotting.training import draw_training

        draw_training(plot, training)
    if as_json:
        from ridgeformer.jsonable import jsonable

        folder = str(training.folder) if training.folder else None
        click.echo(json.dumps(jsonable({**training.record(), "folder": folder}), indent=2))
        return
    r = training.result
    ratio = f", {r.ratio:.3g} x the floor of {r.floor:.4g}" if r.ratio < 1e6 else "; the floor is 0"
    made = ", ".join(f"{name} {value}" for name, value in training.made_with.items())
    rows = {
        "status": f"{training.status}: {training.message}",
        "loss": f"{r.loss:.5g} +- {r.error:.2g} on {r.sequences:,} fresh sequences{ratio}",
        "tail": f"99.99 %: {r.tail:.3g}, largest: {r.largest:.3g}, exploded: {r.exploded} of {r.sequences:,}",
        "time": f"{training.seconds:.1f} s; {training.total_seconds:.1f} s with the models it was grown from",
        "made with": made,
        "stored in": training.folder or "nowhere: add --out runs/ to keep it",
    }
    click.echo(training.spec.describe() + f", seed {training.spec.seed}")
    for name, text in rows.items():
        click.echo(f"  {name:10} {text}")
