"""`ridgeformer sweep`: train many models."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.display import sweep_display
from ridgeformer.cli.group import cli
from ridgeformer.cli.options import PLACE
from ridgeformer.cli.output import Answer, answers, warn
from ridgeformer.errors import MissingPackageError, UnreachableError, shown

if TYPE_CHECKING:
    from ridgeformer.sweeps import Sweep
    from ridgeformer.training import Spec

WORKERS = click.option("--workers", type=click.IntRange(1, 1024), help="Number of processes [default: one per core].")
DASK = click.option(
    "--dask", metavar="ADDRESS", help="Address of a Dask scheduler to train on. Needs pip install distributed."
)


@cli.command(
    epilog="GRID is a TOML file of lists. Every combination of their values is a run:\n\n\b\n"
    "  noise = ['uniform(0,5)', 'categorical(1,3)']\n  families = ['diag', 'full']\n  layers = [1, 2, 3, 4]\n"
    "  seeds = [0, 1, 2, 3, 4]\n\n"
    "Further keys are dim, context, features, tasks, query, heads, sequences and [protocol]; "
    "see docs/howto/sweeps.md.\n\n"
    "Examples:\n\n\b\n  ridgeformer sweep grid.toml --out runs/\n"
    "  ridgeformer sweep grid.toml --out runs/ --dask tcp://host:8786"
)
@click.argument("grid", type=PLACE)
@click.option(
    "--out", type=PLACE, required=True, help="Folder for runs. Finished runs are reused; interrupted runs resume."
)
@WORKERS
@DASK
@click.option("--quiet", "-q", is_flag=True, help="Do not show progress.")
@answers()
def sweep(grid: Path, out: Path, workers: int | None, dask: str | None, quiet: bool) -> Answer:
    """Train all runs of a grid in parallel. Finished runs are reused; interrupted runs resume.

    The exit code is 1 if a run failed, and 2 if the grid is wrong or the connection to the Dask scheduler is lost.
    Finished runs are stored: to continue, give the same command again.
    """
    from ridgeformer.sweeps import read_grid

    specs = list(read_grid(grid).specs())
    result = run_sweep(specs, out, workers, dask, quiet)
    failures = [{"run": failure.run, "reason": failure.reason} for failure in result.failures]
    for failure in failures:
        warn(f"failed: {failure['run']}: {failure['reason']}")
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

    client = None if dask is None else _dask_client(dask)
    try:
        with sweep_display(quiet) as show:
            executor = client.get_executor() if client else None
            return run(specs, out, executor=executor, workers=workers, progress=show)
    except KeyboardInterrupt:
        warn(f"ridgeformer: interrupted; the work so far is stored in {out}. Give the same command again to resume.")
        sys.exit(130)
    finally:
        if client is not None:
            with contextlib.suppress(Exception):  # a client whose scheduler is gone may fail to say goodbye to it
                client.close(timeout=2)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Collect garbage now, not inside this block: a client that ends while another begins would wait for ever."""
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _dask_client(address: str) -> Any:
    try:
        from dask.distributed import Client
    except ImportError as error:
        raise MissingPackageError("--dask needs Dask, which is not installed. Run pip install distributed.") from error
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # this command itself says what went wrong
    try:
        if not address.strip():
            raise ValueError("it is empty")
        with _without_collection():
            return Client(address, timeout=10)
    except Exception as error:  # every transport of Dask's has its own
        raise UnreachableError(
            f"--dask must be the address of a running Dask scheduler; {shown(address)} does not answer "
            f"({shown(error, 200)}). Start one with `dask scheduler`, or check the address."
        ) from error
