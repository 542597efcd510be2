"""`ridgeformer sweep`: many trainings at once."""

from __future__ import annotations

import contextlib
import gc
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.options import PLACE, cli
from ridgeformer.cli.output import Answer, answers, progress, resumable, warn
from ridgeformer.errors import UnreachableError, optional, shown
from ridgeformer.training import Spec

if TYPE_CHECKING:
    from ridgeformer.sweeps import State, Sweep

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


def _dask_client(address: str) -> Any:
    distributed = optional("--dask needs Dask", "dask.distributed", install="distributed")
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # this command itself says what went wrong
    gc.collect()  # now, not while a client begins: where another one ends at that moment, it would wait forever
    gc.disable()
    try:
        if not address.strip():
            raise ValueError("it is empty")
        return distributed.Client(address, timeout=10)
    except Exception as error:  # every transport of Dask's has its own
        raise UnreachableError(
            f"--dask must be the address of a running Dask scheduler; {shown(address)} does not answer "
            f"({shown(error, 200)}). Start one with `dask scheduler`, or check the address."
        ) from error
    finally:
        gc.enable()
