"""`ridgeformer explain`: what each layer of a model does."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ridgeformer.cli.display import progress_bar
from ridgeformer.cli.group import cli
from ridgeformer.cli.models import Subject, reads_a_model
from ridgeformer.cli.options import plot_option
from ridgeformer.losses import ROUNDING

if TYPE_CHECKING:
    from ridgeformer.explanation import Ablation, Explanation

WORDS = [
    "w: the weights with which the model would predict if it ended after this layer.",
    "The loss of w is the sum of three errors: of direction; of shrinkage, where the length of w is wrong for the "
    "noise level; and of size, where it is wrong at all noise levels.",
    "Labels: what the layers have made of y. Residuals: what the least-squares solution leaves of y.",
]
PARAMETERS = """\
Parameters of each layer. omega_ab is the coefficient with which part b of a token enters part a."""
NEAREST = """\
The omegas are those of the diagonal layer that is nearest to each layer. diagonal: its share of the squared norm of
the layer's map. of P, of Q: its share of the two matrices. acting: its share of what the layer does to the tokens of
these sequences. rank of the rest: effective rank of what is not diagonal."""
STATES = """\
State after each layer (0: before the first). The loss of the readout w is the sum of three errors: direction,
shrinkage and size. known: rank correlation of sigma with the sum of squared labels. moved: how far w moves, squared
and relative to its mean square, when the residual sum of squares of another sequence is substituted. condition:
median condition number of M S M', and on the right quantiles of its eigenvalues."""
UPDATES = """\
What each layer contributes. momentum: squared part of the update that is due to u, relative to the whole squared
update; it is above 1 if the other part cancels it. 1 - beta: fraction of u that the layer keeps. noise through it:
share of `moved` that remains if residuals are exchanged in this layer only."""
BY_NOISE = """\
At fixed noise levels, by layer. factor: what the layer multiplies w by. best factor before: factor that would bring w,
before the layer, closest to the ridge solution. step size: coefficient of the update on the gradient. step to OLS: the
same on the difference to the least-squares solution (OLS); 1 is a full Newton step. OLS to ridge: factor that would
bring the least-squares solution closest to the ridge solution. The last three are squared distances of w."""


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer explain 'zoo:diag/7/uniform(0,5)'\n"
    "  ridgeformer explain 'zoo:diag/7/uniform(0,5)' --numbers\n"
    "  ridgeformer explain runs/diag-7x1-uniform-0-5-d10n20-s0-0123456789\n"
    "  ridgeformer explain model.safetensors --noise 'uniform(0,5)' --plot story.png\n"
    "  ridgeformer explain model.safetensors --noise 'categorical(1,3)' --ablate --json"
)
@click.option("--numbers", is_flag=True, help="Also print all measurements behind the sentences.")
@click.option("--ablate", is_flag=True, help="Also print the loss without each layer and without each term of a layer.")
@plot_option("the explanation")
@reads_a_model(sequences=20_000)
def explain(subject: Subject, numbers: bool, ablate: bool, plot: Path | None) -> None:
    """Say in words what each layer of a model does.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'. Every
    sentence follows from measurements by a fixed rule; the rules are listed in docs/explain.md.
    """
    from ridgeformer.explanation import ablate as take_away
    from ridgeformer.explanation import explain as read
    from ridgeformer.jsonable import jsonable

    with progress_bar("measuring") as step:
        found = read(subject.problem, subject.model, **subject.sample, progress=step)
        removed = take_away(subject.problem, subject.model, **subject.sample, progress=step) if ablate else []
    if plot is not None:
        from ridgeformer.plotting.explanation import draw_explanation

        draw_explanation(plot, found)
    if subject.as_json:
        ablations = {"ablations": [jsonable(entry._asdict()) for entry in removed]} if ablate else {}
        click.echo(json.dumps({**found.as_dict(), **ablations}, indent=2))
        return
    _print(subject.name, found, removed, numbers)


def _print(name: str, found: Explanation, removed: list[Ablation], numbers: bool) -> None:
    b = found.behaviour
    left_out = f" ({b.exploded} that explode are left out)" if b.exploded else ""
    floor = f", floor {b.floor:.5f}" if b.floor >= 0 else ""
    ratio = f", ratio {b.loss[-1] / b.floor:.2f}" if b.floor > ROUNDING else ""
    click.echo(f"{name}: {found.model!r} on {found.problem}, {b.sequences:,} sequences{left_out}")
    click.echo(f"loss {b.loss[-1]:.5f}{floor}{ratio}\n")
    _print_sentences("Summary", found.summary)
    _print_sentences("Layer by layer", [role.sentence for role in found.roles])
    if found.contents:
        _print_sentences("What the further coordinates hold", found.contents)
    if found.left_out:
        _print_sentences("Left out", list(found.left_out))
    if removed:
        click.echo("Loss when a part of the model is removed, and this loss / the loss of the whole model\n")
        click.echo(f"{'removed':40} {'loss':>12} {'over whole':>10}")
        for what, loss, over_whole in removed:
            click.echo(f"{what:40} {_short(loss):>12} {_short(over_whole):>10}")
        click.echo()
    if numbers:
        _print_coefficients(found)
        _print_layers(found)
        _print_by_noise(found)
        click.echo("Definitions: docs/explain.md.")
    else:
        _print_sentences("Words", WORDS)
        click.echo("Add --numbers for all measurements behind these sentences. Definitions: docs/explain.md.")


def _print_sentences(title: str, sentences: list[str]) -> None:
    width = max(40, min(100, shutil.get_terminal_size().columns))
    click.echo(title)
    for sentence in sentences:
        click.echo(
            textwrap.fill(sentence, width, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)
        )
    click.echo()


def _print_coefficients(found: Explanation) -> None:
    whole = all(layer.share > 1 - 1e-9 for layer in found.coefficients)
    click.echo(PARAMETERS if whole else f"{PARAMETERS}\n{NEAREST}")
    more = "" if whole else "   diagonal   of P   of Q acting   rank of the rest"
    click.echo(f"\nlayer   omega_xx   omega_xy   omega_yx   omega_yy{more}")
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
            f"\nRotating the inputs x changes w by {100 * s.defect:.3g} % of its mean square. The average of w over "
            f"{s.rotations} rotations\nhas a loss of {s.averaged:.5f}; a single one has {s.loss:.5f} on the same "
            "sequences."
        )
    click.echo()


def _print_layers(found: Explanation) -> None:
    b = found.behaviour
    click.echo(
        f"{STATES}\n\nlayer       loss  direction  shrinkage       size  known  moved  condition     5 %   50 %    95 %"
    )
    for i in range(found.model.layers + 1):
        parts = "".join(f"{_short(v):>11}" for v in (b.loss[i], b.direction[i], b.shrinkage[i], b.size[i]))[1:]
        quantiles = f"{_short(b.spectrum[i, 0]):>8}{_short(b.spectrum[i, 2]):>7}{_short(b.spectrum[i, 4]):>8}"
        click.echo(f"{i:5}{parts}{_short(b.known[i], 3):>7}{b.moved[i]:7.3f}{_short(b.condition[i]):>11}{quantiles}")
    if b.moved_bayes == b.moved_bayes:
        click.echo(
            "\nFor comparison: the residual sum of squares of least squares has a rank correlation of "
            f"{_short(b.knowable, 3)} with sigma,\nand w of the Bayes predictor moves by {b.moved_bayes:.3f}."
        )
    click.echo()
    click.echo(f"{UPDATES}\n\nlayer   momentum   1 - beta   noise through it   loss without it / loss")
    for i in range(found.model.layers):
        numbers = f"{_short(b.momentum[i]):>11}{_short(b.kept[i]):>11}{b.through[i]:19.3f}"
        click.echo(f"{i + 1:5}{numbers}{_short(found.removed[i]):>25}")
    click.echo()


def _print_by_noise(found: Explanation) -> None:
    n = found.noise
    shown = range(len(n.sigma)) if len(n.sigma) <= 6 else [round(i * (len(n.sigma) - 1) / 5) for i in range(6)]
    click.echo(f"{BY_NOISE}\n")
    heads = ["all" if n.sigma[k] != n.sigma[k] else f"sigma={n.sigma[k]:.3g}" for k in shown]
    click.echo(f"{'':18}layer " + "".join(f"{head:>11}" for head in heads))
    goal = found.goal
    click.echo(f"{f'OLS to {goal}':24}" + "".join(f"{_short(n.shrinkage[k]):>11}" for k in shown))
    tables = (
        ("factor", n.factor, 1),
        ("best factor before", n.best, 1),
        ("step size", n.step, 1),
        ("step to OLS", n.newton_step, 1),
        ("|w - w_OLS|^2", n.to_ols, 0),
        (f"|w - w_{goal}|^2", n.to_goal, 0),
        *([("|w - w_Bayes|^2", n.to_bayes, 0)] if found.behaviour.floor >= 0 else []),
    )
    for name, values, first in tables:
        for i, row in enumerate(values):
            label = f"{name:20}" if i == 0 else " " * 20
            click.echo(f"{label}{i + first:3} " + "".join(f"{_short(row[k]):>11}" for k in shown))
    click.echo()


def _heads(values: list[float], digits: int) -> str:
    """One number per head."""
    return "/".join(f"{value:.{digits}f}" for value in values)


def _short(value: float, decimals: int | None = None) -> str:
    """Four significant digits or so many decimals, or - for a number that does not exist."""
    if value != value:
        return "-"
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.1e}"
