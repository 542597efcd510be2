"""`ridgeformer attention`: does what holds for linear attention hold for softmax?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.display import progress_bar, training_display
from ridgeformer.cli.group import cli
from ridgeformer.cli.options import PLACE, plot_option, takes_a_problem

if TYPE_CHECKING:
    from ridgeformer.problems import Problem

KINDS = ("softmax", "relu", "linear")


@cli.command(
    epilog="Examples:\n\n\b\n"
    "  ridgeformer attention --dim 3 --context 10 --noise 'uniform(0,2)' --plot softmax.png --out runs/\n"
    "  ridgeformer attention --noise 2 --dim 2 --context 8 --kind softmax --steps 500 --json\n\n"
    "Needs PyTorch: pip install 'ridgeformer[torch]'."
)
@takes_a_problem(20_000)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    default=("softmax", "linear"),
    show_default=True,
    help="Kind of attention. May be repeated.",
)
@click.option("--layers", type=int, default=3, show_default=True, help="Number of layers.")
@click.option("--width", type=int, default=32, show_default=True, help="Numbers per token inside the transformer.")
@click.option("--heads", type=int, default=2, show_default=True, help="Attention heads per layer.")
@click.option("--mlp/--no-mlp", default=True, show_default=True, help="Whether layers have an MLP.")
@click.option("--layernorm/--no-layernorm", default=True, show_default=True, help="Whether layers have LayerNorm.")
@click.option("--causal", is_flag=True, help="Let examples attend to earlier ones only.")
@click.option("--steps", type=int, default=6000, show_default=True, help="Training steps.")
@click.option("--batch", type=int, default=128, show_default=True, help="Sequences per step.")
@click.option("--rate", type=float, default=2e-3, show_default=True, help="Largest step size of Adam.")
@click.option(
    "--out", type=PLACE, help="Folder for the checkpoints of this comparison; the same command resumes or reuses them."
)
@plot_option("losses during training and at each noise level")
def attention(
    problem: Problem,
    sequences: int,
    seed: int,
    as_json: bool,
    kinds: tuple[str, ...],
    steps: int,
    batch: int,
    rate: float,
    out: Path | None,
    plot: Path | None,
    **shape: Any,
) -> None:
    """Train transformers with softmax, ReLU or linear attention, and compare them with the floor.

    All are trained by the same loop on the same sequences, and evaluated through sampled queries. They are compared
    with a linear transformer with as many layers that was trained in moment form (Full), ridge regression with the
    best constant penalty (ConstRR), and the best predictor. Training takes minutes. All contexts must have one length.
    """
    from ridgeformer.evaluation import compare, profiles
    from ridgeformer.predictors import ConstRR
    from ridgeformer.predictors.bayes import best_predictor
    from ridgeformer.training import train

    trained = _trained(problem, kinds, shape, out, {"steps": steps, "batch": batch, "rate": rate, "seed": seed})
    with training_display(problem, sequences, quiet=False) as callbacks:
        linear = train(problem, "full", layers=shape["layers"], seed=seed, callbacks=callbacks, progress=False).model
    judged = {**{kind: fitted.model for kind, fitted in trained.items()}, "Full, in moment form": linear}
    judged |= {"ConstRR": ConstRR.tune(problem), "best predictor": best_predictor(problem)}
    with progress_bar("evaluating") as step:
        found = compare(problem, judged, sequences=sequences, seed=seed, progress=step)
    if plot is not None:
        from ridgeformer.plotting.attention import draw_attention

        with progress_bar("profiles") as step:
            lines = profiles(problem, judged, sequences=max(2, sequences // 5), seed=seed, progress=step)
        losses = {kind: fitted.losses for kind, fitted in trained.items()}
        draw_attention(plot, f"transformers on {problem}", losses, found, lines)
    depth = f"{shape['layers']} layer{'s' * (shape['layers'] > 1)}"
    facts = {"problem": str(problem), "attention": list(trained), "steps": steps, "batch": batch, "rate": rate, **shape}
    seconds = {kind: fitted.seconds for kind, fitted in trained.items()}
    if as_json:
        click.echo(json.dumps({**facts, "seconds": seconds, **found.as_dict()}, indent=2))
        return
    taken = ", ".join(f"{kind} {value:.0f} s" for kind, value in seconds.items())
    click.echo(f"{depth}, {steps} steps of {batch} sequences of {problem} ({taken}).\n{found}")


def _trained(
    problem: Problem, kinds: tuple[str, ...], shape: dict[str, Any], out: Path | None, options: dict[str, Any]
) -> dict[str, Any]:
    """The transformers by kind of attention."""
    from ridgeformer.torch import Architecture, fit

    trained: dict[str, Any] = {}
    kind: Any
    for kind in dict.fromkeys(kinds):
        path = None if out is None else out / f"{kind}.safetensors"
        with progress_bar(f"training with {kind} attention") as step:

            def show(done: int, total: int, loss: float, step: Any = step) -> None:
                step(done, total)

            trained[kind] = fit(
                problem, Architecture(problem.dim, attention=kind, **shape), out=path, progress=show, **options
            )
    return trained
