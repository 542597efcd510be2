"""`ridgeformer patch` and `algorithms`: states between noise levels, and layers beside classical algorithms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.display import progress_bar
from ridgeformer.cli.group import cli
from ridgeformer.cli.models import Subject, reads_a_model
from ridgeformer.cli.options import plot_option
from ridgeformer.evaluation.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer patch 'zoo:diag/7/uniform(0,5)' --plot patch.png\n"
    "  ridgeformer patch 'zoo:full/7/uniform(0,5)' --low 0.5 --high 3 --sequences 500\n"
    "  ridgeformer patch model.safetensors --noise 'uniform(0,5)' --json"
)
@click.option("--low", type=float, help="Noise level of the patched contexts. [default: 20 % quantile of the noise]")
@click.option("--high", type=float, help="Noise level that states are taken from. [default: 80 % quantile]")
@plot_option("the shares")
@reads_a_model(sequences=2000)
def patch(subject: Subject, low: float | None, high: float | None, plot: Path | None) -> None:
    """Find the layer that carries the noise estimate, by patching states between noise levels.

    Contexts come in pairs that share everything but the noise level. Before each layer, the state of the context with
    more noise, or a part of it, replaces that of the context with less noise. The table says which share of the change
    in shrinkage this restores. gram: the whole Gram matrix; S, a, l: its blocks of x with x, x with y and y with
    y; query: what the query has become so far; gram, once: the Gram matrix for this layer alone.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'.
    """
    from ridgeformer.explanation import patch_noise
    from ridgeformer.plotting.interventions import patching_figure

    with progress_bar("patching") as step:
        found = patch_noise(subject.problem, subject.model, low=low, high=high, **subject.sample, progress=step)
    _show(subject, found, plot, patching_figure)


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer algorithms 'zoo:gdpp/7/uniform(0,5)' --plot algorithms.png\n"
    "  ridgeformer algorithms runs/gdpp-5x1-fixed-0-d10n20-s0-0123456789 --iterations 1000\n"
    "  ridgeformer algorithms model.safetensors --noise 0 --features 'powerlaw(2)' --json"
)
@click.option(
    "--iterations", type=int, default=200, show_default=True, help="Iterations of each algorithm; at most 60 of Newton."
)
@plot_option("the maps")
@reads_a_model(sequences=1000)
def algorithms(subject: Subject, iterations: int, plot: Path | None) -> None:
    """Compare the readout of each layer with each iteration of classical algorithms.

    These are gradient descent, preconditioned gradient descent, heavy ball and Newton's iteration for least squares,
    tuned on the problem, and ridge regression with a range of penalties. The table names the closest iteration of each;
    --json prints the cosines and relative errors of all.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'.
    """
    from ridgeformer.explanation import compare_algorithms
    from ridgeformer.plotting.interventions import algorithms_figure

    with progress_bar("comparing") as step:
        found = compare_algorithms(
            subject.problem, subject.model, iterations=iterations, **subject.sample, progress=step
        )
    _show(subject, found, plot, algorithms_figure)


def _show(subject: Subject, found: Table, plot: Path | None, figure: Callable[[str, Any], Figure]) -> None:
    """Draw a result if asked to, and print it."""
    if plot is not None:
        from ridgeformer.plotting.style import write

        write(figure(subject.short_name, found), plot)
    if subject.as_json:
        facts = {"model": subject.name, "problem": str(subject.problem), **found.as_dict()}
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo(f"{subject.name} on {subject.problem}\n{found}")
