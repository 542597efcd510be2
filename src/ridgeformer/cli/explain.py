"""`ridgeformer explain`: a model read as an algorithm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ridgeformer.cli.display import progress_bar
from ridgeformer.cli.group import cli
from ridgeformer.cli.models import reads_a_model
from ridgeformer.cli.options import plot_option

if TYPE_CHECKING:
    from ridgeformer.explanation import Ablation, Explanation
    from ridgeformer.models.transformer import LinearTransformer
    from ridgeformer.problems import Problem

LEGEND = """\
known: rank correlation of the labels' sum of squares with sigma.
moved: share of w^2 that moves when residuals are swapped between sequences.
momentum: the part of the update that is due to u, squared, over the whole; above 1 where the rest cancels it.
1 - beta: what the layer keeps of u.
best factor before: would bring w, before the layer, nearest to ridge regression.
All of them: docs/explain.md."""


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer explain 'zoo:diag/7/uniform(0,5)'\n"
    "  ridgeformer explain runs/diag-7x1-uniform-0-5-d10n20-s0-0123456789\n"
    "  ridgeformer explain model.safetensors --noise 'uniform(0,5)' --plot story.png\n"
    "  ridgeformer explain model.safetensors --noise 'categorical(1,3)' --ablate --json"
)
@click.option("--ablate", is_flag=True, help="Also print the loss without each layer and each term.")
@plot_option("it")
@reads_a_model(sequences=20_000)
def explain(
    name: str,
    model: LinearTransformer,
    problem: Problem,
    ablate: bool,
    plot: Path | None,
    sequences: int,
    seed: int,
    as_json: bool,
) -> None:
    """Print what each layer of a model does, in numbers and in words.

    MODEL is a model's file, a run's folder, or a shipped model such as 'zoo:diag/7/uniform(0,5)'. The rules behind the
    words are in docs/explain.md.
    """
    from ridgeformer.explanation import ablate as take_away
    from ridgeformer.explanation import explain as read
    from ridgeformer.jsonable import jsonable

    if plot is not None:
        from ridgeformer.plotting.style import check_plot

        check_plot(plot)
    with progress_bar("reading") as step:
        found = read(model, problem, sequences=sequences, seed=seed, progress=step)
        removed = take_away(model, problem, sequences=sequences, seed=seed, progress=step) if ablate else []
    if plot is not None:
        from ridgeformer.plotting.explanation import draw_explanation

        draw_explanation(plot, found)
    if as_json:
        ablations = {"ablations": [jsonable(entry._asdict()) for entry in removed]} if ablate else {}
        click.echo(json.dumps({**found.as_dict(), **ablations}, indent=2))
        return
    _print(name, found, removed)


def _print(name: str, found: Explanation, removed: list[Ablation]) -> None:
    b = found.behaviour
    left_out = f", {b.exploded} that explode left out" if b.exploded else ""
    click.echo(f"{name}, {found.model!r}, on {found.problem}, {b.sequences:,} sequences{left_out}")
    click.echo(f"loss {b.loss[-1]:.5f}, floor {b.floor:.5f}\n")
    _print_coefficients(found)
    _print_layers(found)
    _print_by_noise(found)
    if removed:
        click.echo("without                                          loss    x whole")
        for what, loss, ratio in removed:
            click.echo(f"{what:40} {_short(loss):>12} {_short(ratio):>10}")
        click.echo()
    click.echo("in words")
    for sentence in (*found.summary, *(role.sentence for role in found.roles)):
        click.echo(f"  {sentence}")


def _print_coefficients(found: Explanation) -> None:
    whole = all(layer.share > 1 - 1e-9 for layer in found.coefficients)
    more = "" if whole else "   diagonal   of P   of Q acting   rank of the rest"
    click.echo(f"layer   omega_xx   omega_xy   omega_yx   omega_yy{more}")
    for i, layer in enumerate(found.coefficients):
        line = f"{i + 1:5}" + "".join(f"{value:11.4g}" for row in layer.omega for value in row)
        if not whole:
            shares = [[rest.share for rest in heads] for heads in (layer.P, layer.Q)]
            ranks = [[rest.effective for rest in heads] for heads in (layer.P, layer.Q)]
            line += f"{layer.share:11.3f}{_heads(shares[0], 3):>7}{_heads(shares[1], 3):>7}"
            line += f"{found.behaviour.diagonal[i]:7.3f}   P {_heads(ranks[0], 1)}, Q {_heads(ranks[1], 1)}"
        click.echo(line)
    if found.symmetry is not None:
        s = found.symmetry
        click.echo(
            f"turning x changes w by {100 * s.defect:.3g} % of its mean square; "
            f"the mean over {s.rotations} turns has a loss of {s.averaged:.5f}, each {s.loss:.5f}"
        )
    click.echo()


def _print_layers(found: Explanation) -> None:
    b = found.behaviour
    click.echo("after       loss  direction  shrinkage       size  known  moved  condition  MSM': 5 %   50 %    95 %")
    for i in range(found.model.layers + 1):
        parts = "".join(f"{_short(v):>11}" for v in (b.loss[i], b.direction[i], b.shrinkage[i], b.size[i]))[1:]
        quantiles = f"{_short(b.spectrum[i, 0]):>12}{_short(b.spectrum[i, 2]):>7}{_short(b.spectrum[i, 4]):>8}"
        click.echo(f"{i:5}{parts}{b.known[i]:7.3f}{b.moved[i]:7.3f}{_short(b.condition[i]):>11}{quantiles}")
    click.echo(f"least squares knows {b.knowable:.3f}; Bayes moves by {b.moved_bayes:.3f}\n")
    click.echo("layer   momentum   1 - beta   noise through it   loss without it")
    for i in range(found.model.layers):
        numbers = f"{_short(b.momentum[i]):>11}{_short(b.kept[i]):>11}{b.through[i]:19.3f}"
        click.echo(f"{i + 1:5}{numbers}{_short(found.removed[i]):>16} x")
    click.echo()


def _print_by_noise(found: Explanation) -> None:
    n = found.noise
    shown = range(len(n.sigma)) if len(n.sigma) <= 6 else [round(i * (len(n.sigma) - 1) / 5) for i in range(6)]
    click.echo("sigma" + " " * 17 + "".join(f"{n.sigma[k]:11.3g}" for k in shown))
    click.echo("ridge over least squares" + "".join(f"{_short(n.shrinkage[k]):>11}" for k in shown)[2:])
    tables = (
        ("factor", n.factor, 1),
        ("best factor before", n.best, 1),
        ("step size", n.step, 1),
        ("way to least squares", n.newton_step, 1),
        ("|w - w_OLS|^2", n.to_ols, 0),
        ("|w - w_ridge|^2", n.to_ridge, 0),
        ("|w - w_Bayes|^2", n.to_bayes, 0),
    )
    for name, values, first in tables:
        for i, row in enumerate(values):
            label = f"{name:20}" if i == 0 else " " * 20
            click.echo(f"{label}{i + first:2}" + "".join(f"{_short(row[k]):>11}" for k in shown))
    click.echo(f"\n{LEGEND}\n")


def _heads(values: list[float], digits: int) -> str:
    """One number a head."""
    return "/".join(f"{value:.{digits}f}" for value in values)


def _short(value: float) -> str:
    """Four digits, or - for what does not exist."""
    if value != value:
        return "-"
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.1e}"
