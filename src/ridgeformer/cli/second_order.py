"""`ridgeformer second-order`: how many layers GD++ needs, compared with classical methods."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ridgeformer.cli.group import cli
from ridgeformer.cli.options import AS_JSON, THREADS, plot_option


@cli.command(
    "second-order",
    epilog="Examples:\n\n\b\n  ridgeformer second-order\n  ridgeformer second-order --kappa 1e12 --epsilon 1e-30\n"
    "  ridgeformer second-order --plot layers.png",
)
@click.option(
    "--kappa", type=float, default=1e6, show_default=True, help="Condition number of S = sum x x', at least 1."
)
@click.option(
    "--epsilon", type=float, default=1e-10, show_default=True, help="Required accuracy |w - w*| / |w*|, below 1."
)
@click.option(
    "--eigenvalues",
    default=50,
    show_default=True,
    help="Number of log-spaced eigenvalues of the example spectrum, 2 to 200.",
)
@plot_option("layers against kappa and epsilon")
@THREADS
@AS_JSON
def second_order(kappa: float, epsilon: float, eigenvalues: int, plot: Path | None, as_json: bool) -> None:
    """Count the layers that GD++ needs to solve least squares, and the steps of classical methods.

    Counts are for the worst spectrum with condition number kappa and for an example spectrum with log-spaced
    eigenvalues. A fit shows how the counts grow with kappa and with the accuracy.
    """
    from ridgeformer.theory.layers_needed import EPSILONS, KAPPAS, SECOND_ORDER, compare, counts, growth

    rows = compare(kappa, epsilon, eigenvalues)
    fits = {name: growth(counts(count)) for name, count in SECOND_ORDER.items()}
    if plot is not None:
        from ridgeformer.plotting.theory import draw_layers_needed

        draw_layers_needed(plot, kappa, epsilon)
    if as_json:
        record = {
            "kappa": kappa,
            "epsilon": epsilon,
            "eigenvalues": eigenvalues,
            "layers": {row.name: {"worst": row.worst, "log_spaced": row.log_spaced} for row in rows},
            "growth": {name: fit._asdict() for name, fit in fits.items()},
        }
        click.echo(json.dumps(record, indent=2))
        return
    click.echo(f"Layers (or steps) needed for |w - w*| <= {epsilon:g} |w*| at condition number {kappa:g}\n")
    click.echo(f"{'':20} {'worst spectrum':>19} {f'{eigenvalues} log-spaced':>19}")
    for row in rows:
        click.echo(f"{row.name:20} {_whole(row.worst):>19} {_whole(row.log_spaced):>19}")
    click.echo(
        "\nIn exact arithmetic, conjugate gradients need at most as many steps as there are eigenvalues. '-': not run."
    )
    click.echo(
        "\nFit of layers = a log kappa + b log log 1/epsilon + c to the worst spectrum, "
        f"kappa {KAPPAS[0]:g} to {KAPPAS[-1]:g}, epsilon {EPSILONS[0]:g} to {EPSILONS[-1]:g}\n"
    )
    click.echo(f"{'':20} {'a':>17} {'b':>17} {'c':>8} {'max error':>9}")
    for name, fit in fits.items():
        slopes = [f"{fit[i]:.3f} +- {fit.errors[i]:.3f}" for i in range(2)]
        click.echo(f"{name:20} {slopes[0]:>17} {slopes[1]:>17} {fit.constant:8.2f} {fit.farthest:9.2f}")


def _whole(count: int | None) -> str:
    if count is None:
        return "-"
    return f"{count:,}" if count < 10**14 else f"{count:.4g}"
