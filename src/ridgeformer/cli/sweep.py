"""`ridgeformer runs` and `ridgeformer sweep`: finished trainings and their pictures; many trainings at once."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.options import PLACE, UNKNOWN, Command, cli, one_line, shares_help
from ridgeformer.cli.output import Answer, answers, progress, resumable, warn
from ridgeformer.errors import InputError, UnreachableError, optional, refuse, shown
from ridgeformer.evaluation.table import aligned
from ridgeformer.losses import without_rounding
from ridgeformer.plotting.dynamics import DRAWN
from ridgeformer.plotting.style import MOVING, STILL, check_plot
from ridgeformer.plotting.training import draw_training
from ridgeformer.training import Runs, Spec, Training
from ridgeformer.training.runs import protocol_of, read_entry
from ridgeformer.training.spec import Protocol
from ridgeformer.training.store.files import is_run

if TYPE_CHECKING:
    from ridgeformer.sweeps import State, Sweep

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
    chosen = picture or ("animation" if plot.suffix in MOVING else "curve")
    if chosen != "curve" and (snapshots := len(protocol.kept())) < 2:
        given = f"{snapshots} of the protocol {protocol.name}"
        remedy = "Train with `ridgeformer descend --snapshots 20`, or draw the curve to a .png, .pdf or .svg file."
        refuse(f"a picture of the kind {chosen} needs two snapshots of a descent", given, remedy)
    check_plot(plot, MOVING if chosen == "animation" else STILL)
    return chosen


def draw(training: Training, picture: str, plot: Path) -> None:
    """Draw a picture of a run to a file. An animation takes seconds, so a terminal shows that."""
    from rich.console import Console

    waiting = Console(stderr=True).status(f"drawing {plot.name}") if picture == "animation" else None
    with waiting or contextlib.nullcontext():
        (DRAWN[picture] if training.course else draw_training)(training, plot)


@cli.command()
@click.argument("place", type=PLACE, metavar="RUN")
@takes_a_picture
def runs(place: Path, picture: str | None) -> Answer:
    """List all runs of a folder, or print a finished run.

    RUN is the folder of a run, or a folder that holds runs. A list is sorted by problem, best run first. Damaged runs
    are reported on stderr with the reason, and with --json as entries with the key "damaged"; the exit code is then 1.

    Examples:
        ridgeformer runs runs/ --csv runs.csv
        ridgeformer runs runs/diag-7x1-uniform-0-5-d10n20-s0-0123456789 --plot curve.png
        ridgeformer runs runs/full-1x1-fixed-1-d3n6-s0-0123456789 --picture trajectories --plot w.svg
        ridgeformer runs runs/full-1x1-fixed-1-d3n6-s0-0123456789 --plot learning.html
    """
    table = Runs.load(place) if place.is_dir() and not is_run(place) else None
    if table:
        if picture is not None:
            refuse("--picture needs a single run", f"a folder of {len(table)} runs", "Leave it out.")
        return _listed(table)
    damage = read_entry(place).damage if is_run(place) else None
    if damage is not None:
        raise InputError(f"{shown(place, 200)}: {damage}")
    training = Training.load(place)
    return describe_training(training, functools.partial(draw, training, picture_of(picture, training.spec.protocol)))


def _listed(table: Runs) -> Answer:
    damaged = [entry for entry in table.entries if entry.damage]
    for entry in damaged:
        warn(one_line(f"damaged: {entry.name}: {entry.damage}"))
    whole = [(entry, row) for entry, row in zip(table.entries, table.rows(), strict=True) if not entry.damage]
    printed = [
        {
            **{name: row[name] for name in ("loss", "ratio", "exploded")},
            "status": one_line(row["remark"] or row["status"]),
            **{name: one_line(row[name]) for name in ("actual", "protocol", "run")},
            "details": one_line(entry.details),
        }
        for entry, row in whole
    ]
    text = aligned(printed)
    if any(row["status"] == "unfinished" for _, row in whole):
        text += "\nTo resume an unfinished run, give the command that started it again."
    record = [entry.record for entry in table.entries if entry.record]
    record += [{"folder": str(entry.folder), "damaged": entry.damage} for entry in damaged]
    return Answer(text, record, [row for _, row in whole], table.plot, code=1 if damaged else 0)


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
    r, protocol = training.result, protocol_of(training.spec.as_dict())
    ratio = f"{r.ratio:.3g}" if math.isfinite(r.ratio) else "-"
    grown = f"; {training.total_seconds:.1f} s with the models that it was grown from"
    grown = grown if training.total_seconds > training.seconds else ""
    lines = {
        "status": f"{training.status}: {training.message}",
        **({} if training.is_as_asked else {"actual": training.actual}),
        **({} if protocol == "search" else {"protocol": protocol}),
        "loss": f"{r.loss:.5g} +- {r.error:.2g} on {r.sequences:,} fresh sequences",
        "floor": f"{without_rounding(r.floor, r.signal):.4g}; ratio: {ratio}",
        "tail": f"99.99 % quantile: {r.tail:.3g}, largest: {r.largest:.3g}, "
        f"exploded: {r.exploded:,} of {r.sequences:,}",
        **({"explodes": f"with probability {training.explosions or UNKNOWN}"} if explosions else {}),
        **({} if training.price is None else {"caution": str(training.price)}),
        "time": f"{training.seconds:.1f} s{grown}",
        "made with": ", ".join(f"{name} {value}" for name, value in training.made_with.items()),
        "stored in": training.folder or "nowhere; add --out runs/ to store it",
    }
    head = f"{training.spec.describe()}, seed {training.spec.seed}"
    text = "\n".join([one_line(head), *(f"  {name:10} {one_line(line)}" for name, line in lines.items())])
    rare = {"explosions": training.explosions and training.explosions.as_dict()} if explosions else {}
    rows = [{"run": training.spec.name, **r.rows()[0]}]
    return Answer(text, {**training.record(), **course, **rare, "folder": folder}, rows, draw)


WORKERS = click.option("--workers", type=click.IntRange(1, 1024), help="Number of processes [default: one per core].")
DASK = click.option(
    "--dask", metavar="ADDRESS", help="Address of a Dask scheduler to train on. Needs pip install distributed."
)


@cli.command()
@click.argument("grid", type=PLACE)
@click.option("--out", type=PLACE, required=True)
@WORKERS
@DASK
@click.option("--quiet", "-q", is_flag=True)
@answers()
def sweep(grid: Path, out: Path, workers: int | None, dask: str | None, quiet: bool) -> Answer:
    """Train all runs of a grid in parallel. Finished runs are reused; interrupted runs resume.

    The exit code is 1 if a run failed, and 2 if the grid is wrong or the connection to the Dask scheduler is lost.
    Finished runs are stored: to continue, give the same command again.

    GRID is a TOML file of lists. Every combination of their values is a run:

    \b
      noise = ['uniform(0,5)', 'categorical(1,3)']
      families = ['diag', 'full']
      layers = [1, 2, 3, 4]
      seeds = [0, 1, 2, 3, 4]

    Further keys are dim, context, features, tasks, query, heads, sequences and [protocol]; see docs/howto/sweeps.md.

    Options:
        --out: Folder for runs. Finished runs are reused; interrupted runs resume.
        --quiet: Do not show progress.

    Examples:
        ridgeformer sweep grid.toml --out runs/
        ridgeformer sweep grid.toml --out runs/ --dask tcp://host:8786
    """
    from ridgeformer.sweeps import read_grid

    specs = list(read_grid(grid).specs())
    result = run_sweep(specs, out, workers, dask, quiet)
    failures = [{"run": failure.run, "reason": failure.reason} for failure in result.failures]
    folders = [str(folder) for folder in result.folders]
    record = {"runs": len(specs), "finished": folders, "reused": result.reused, "failures": failures}
    new = len(folders) - result.reused
    text = (
        f"{'1 run' if new == 1 else f'{new} runs'} trained, {result.reused} reused, {len(failures)} failed, in "
        f"{result.seconds:.1f} s. To list them: ridgeformer runs {out}"
    )
    rows = [{"run": folder, "reason": ""} for folder in folders] + failures
    return Answer(text, {**record, "seconds": result.seconds}, rows, code=1 if failures else 0)


def run_sweep(specs: list[Spec], out: Path, workers: int | None, dask: str | None, quiet: bool) -> Sweep:
    """Train all specs into a folder, here or on a Dask cluster, and show how far that has come."""
    from ridgeformer.sweeps import sweep as run

    def show(state: State) -> None:
        """Runs done, running and failed, the time left, and the best run so far."""
        minutes = f"{state.remaining / 60:.0f} min" if state.remaining >= 100 else f"{state.remaining:.0f} s"
        left = f", about {minutes} left" if state.remaining < float("inf") else ""
        best = f"; closest to its floor: {state.best[0]}, ratio {state.best[1]:.3f}" if state.best else ""
        text = f"{state.done} of {state.total} runs done, {state.running} running, {state.failed} failed{left}{best}"
        step(state.done, state.total, text)

    client = None if dask is None else _dask_client(dask)
    try:
        with resumable(out), progress(every=30, quiet=quiet) as step:
            executor = client.get_executor() if client else None
            result = run(specs, out, executor=executor, workers=workers, progress=show)
    finally:
        if client is not None:
            with contextlib.suppress(Exception):  # a client whose scheduler is gone may fail to say goodbye to it
                client.close(timeout=2)
    for failure in result.failures:
        warn(f"failed: {failure.run}: {failure.reason}")
    return result


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Collect garbage now, not inside this block: a client that ends while another begins would wait forever."""
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _dask_client(address: str) -> Any:
    distributed = optional("--dask needs Dask", "dask.distributed", install="distributed")
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # this command itself says what went wrong
    try:
        if not address.strip():
            raise ValueError("it is empty")
        with _without_collection():
            return distributed.Client(address, timeout=10)
    except Exception as error:  # every transport of Dask's has its own
        raise UnreachableError(
            f"--dask must be the address of a running Dask scheduler; {shown(address)} does not answer "
            f"({shown(error, 200)}). Start one with `dask scheduler`, or check the address."
        ) from error
