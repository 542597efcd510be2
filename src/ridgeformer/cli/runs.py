"""`ridgeformer runs`: stored runs, as a list or one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.group import cli
from ridgeformer.cli.options import PLACE
from ridgeformer.cli.output import Answer, answers, one_line, warn
from ridgeformer.cli.protocols import draw, picture_of, takes_a_picture
from ridgeformer.errors import InputError, refuse, shown

if TYPE_CHECKING:
    from ridgeformer.training import Runs


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer runs runs/ --csv runs.csv\n"
    "  ridgeformer runs runs/diag-7x1-uniform-0-5-d10n20-s0-0123456789 --plot curve.png\n"
    "  ridgeformer runs runs/full-1x1-fixed-1-d3n6-s0-0123456789 --picture trajectories --plot w.svg\n"
    "  ridgeformer runs runs/full-1x1-fixed-1-d3n6-s0-0123456789 --plot learning.html"
)
@click.argument("place", type=PLACE, metavar="RUN")
@takes_a_picture
@answers()
def runs(place: Path, plot: Path | None, picture: str | None, level: tuple[float, ...]) -> Answer:
    """List all runs of a folder, or print a finished run.

    RUN is the folder of a run, or a folder that holds runs. A list is sorted by problem, best run first. Damaged runs
    are reported on stderr with the reason, and with --json as entries with the key "damaged"; the exit code is then 1.
    """
    from ridgeformer.training import load_run, load_runs
    from ridgeformer.training.runs import read_entry
    from ridgeformer.training.store.files import is_run

    table = load_runs(place) if place.is_dir() and not is_run(place) else None
    if table is not None and table.entries:
        if picture is not None or level:
            given = f"a folder of {len(table.entries)} runs"
            refuse("--picture and --level need a single run", given, "Leave them out.")
        if plot is not None:
            table.plot(plot)
            warn(f"Drawn to {plot}.")
        return _listed(table)
    damage = read_entry(place).damage if is_run(place) else None
    if damage is not None:
        raise InputError(f"{shown(place, 200)}: {damage}")
    training = load_run(place)
    chosen = picture_of(plot, picture, level, training.spec.protocol)
    if plot is not None:
        draw(plot, training, chosen, level)
    return describe_training(training)


def _listed(table: Runs) -> Answer:
    from ridgeformer.evaluation.table import aligned

    missing, entries = float("nan"), table.entries
    damaged = [entry for entry in entries if entry.damage]
    for entry in damaged:
        warn(one_line(f"damaged: {entry.name}: {entry.damage}"))
    shortened = [
        {
            "loss": entry.loss if entry.record else missing,
            "ratio": missing if entry.ratio is None else entry.ratio,
            "exploded": missing if entry.exploded is None else entry.exploded,
            "status": one_line(row["status"]),
            "actual": one_line(row["actual"]),
            "protocol": one_line(entry.protocol),
            "run": one_line(entry.name),
            "details": one_line(entry.details),
        }
        for entry, row in zip(entries, table.rows(), strict=True)
        if entry.damage is None
    ]
    text = aligned(shortened)
    if any(entry.status == "unfinished" for entry in entries):
        text += "\nTo resume an unfinished run, give the command that started it again."
    record = [*(entry.record for entry in entries if entry.record)]
    record += [{"folder": str(entry.folder), "damaged": entry.damage} for entry in damaged]
    rows = [row for entry, row in zip(entries, table.rows(), strict=True) if entry.damage is None]
    return Answer(text, record, rows, code=1 if damaged else 0)


def describe_training(training: Any, draw: Callable[[Path], object] | None = None) -> Answer:
    """Answer with a training: its loss, how it went and where it is stored.

    Args:
        training: The training.
        draw: Draws its picture; None where there is none.

    Returns:
        The answer.
    """
    from ridgeformer.losses import without_rounding
    from ridgeformer.training import Search
    from ridgeformer.training.runs import protocol_of

    folder = str(training.folder) if training.folder else None
    course = {"course": training.history.as_dict()} if training.course else {}
    r, searched = training.result, isinstance(training.spec.protocol, Search)
    ratio = f"{r.ratio:.3g}" if math.isfinite(r.ratio) else "-"
    grown = f"; {training.total_seconds:.1f} s with the models that it was grown from"
    lines = {
        "status": f"{training.status}: {training.message}",
        **({"actual": training.actual} if training.actual_family != training.spec.family.name else {}),
        **({} if searched else {"protocol": protocol_of(training.spec.as_dict())}),
        "loss": f"{r.loss:.5g} +- {r.error:.2g} on {r.sequences:,} fresh sequences",
        "floor": f"{without_rounding(r.floor, r.signal):.4g}; ratio: {ratio}",
        "tail": f"99.99 % quantile: {r.tail:.3g}, largest: {r.largest:.3g}, "
        f"exploded: {r.exploded:,} of {r.sequences:,}",
        "time": f"{training.seconds:.1f} s{grown if searched else ''}",
        "made with": ", ".join(f"{name} {value}" for name, value in training.made_with.items()),
        "stored in": training.folder or "nowhere; add --out runs/ to store it",
    }
    head = f"{training.spec.describe()}, seed {training.spec.seed}"
    text = "\n".join([one_line(head), *(f"  {name:10} {one_line(line)}" for name, line in lines.items())])
    rows = [{"run": training.spec.name, **r.rows()[0]}]
    return Answer(text, {**training.record(), **course, "folder": folder}, rows, draw)
