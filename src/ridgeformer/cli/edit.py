"""`ridgeformer edit`: a changed model, and its loss beside that of the original."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.display import progress_bar
from ridgeformer.cli.evaluate import answer_of
from ridgeformer.cli.group import cli
from ridgeformer.cli.options import FILE, PLACE
from ridgeformer.cli.output import Answer, answers
from ridgeformer.cli.subject import Subject, reads_a_model
from ridgeformer.errors import InputError, shown

if TYPE_CHECKING:
    from ridgeformer.models.transformer import LinearTransformer

CHANGE = re.compile(r"([0-9]{1,9})\.([A-Za-z_]\w*)=(.+)", re.ASCII | re.DOTALL)


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer edit 'zoo:diag/7/uniform(0,5)' --set 4.omega_yy=0\n"
    "  ridgeformer edit 'zoo:diag/7/uniform(0,5)' --set 4.omega_yy=0 --out edited.safetensors\n"
    "  ridgeformer edit 'zoo:full/5/uniform(0,5)' --without 2 --json\n"
    "  ridgeformer edit model.safetensors --set '2.omega=[[0,0],[-0.03,0]]' --truncate 3"
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="LAYER.NAME=VALUE",
    help="Replace a parameter of one layer. NAME is omega_xx, omega_xy, omega_yx, omega_yy, omega, p or q for diag and "
    "gdpp, and P or Q for any model. VALUE is a number, or a list in JSON. May be repeated.",
)
@click.option("--without", type=int, multiple=True, metavar="LAYER", help="Remove this layer. May be repeated.")
@click.option("--truncate", type=int, metavar="LAYERS", help="Keep only this number of layers, from the first.")
@click.option("--stack", type=PLACE, metavar="MODEL", help="Continue with the layers of this model.")
@click.option("--out", type=FILE, help="File for the edited model, such as edited.safetensors.")
@answers(plot="the losses")
@reads_a_model(sequences=100_000)
def edit(
    subject: Subject,
    changes: tuple[str, ...],
    without: tuple[int, ...],
    truncate: int | None,
    stack: Path | None,
    out: Path | None,
) -> Answer:
    """Change a model, and compare its loss with that of the original.

    Layers are counted from 1, as `explain` counts them, and have the numbers of the original model in all options. The
    original stays as it is. With --out, the edited model is stored together with the problem.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'.
    """
    from ridgeformer.evaluation import compare
    from ridgeformer.loading import load
    from ridgeformer.models.file import save

    edits = [*changes, *(f"without layer {layer}" for layer in without)]
    edits += [] if truncate is None else [f"truncate {truncate}"]
    edits += [] if stack is None else [f"stack {stack}"]
    if not edits:
        raise InputError(
            "an edit needs at least one of --set, --without, --truncate and --stack; got none. "
            "Add --set 4.omega_yy=0, for example."
        )
    edited = _shortened(_changed(subject.model, changes, without, truncate), without, truncate)
    edited = edited if stack is None else edited.stack(load(stack))
    if out is not None:
        save(edited, out, record={"spec": subject.problem.as_dict(), "edited": {"model": subject.name, "edits": edits}})
    with progress_bar("evaluating") as step:
        losses = compare(
            subject.problem, {subject.name: subject.model, "edited": edited}, **subject.sample, progress=step
        )
    facts = {"problem": str(subject.problem), "edits": edits, "out": None if out is None else str(out)}
    stored = f"Stored in {out}." if out is not None else "Add --out edited.safetensors to store the edited model."
    return answer_of(losses, subject.problem.label, [f"edited: {edited!r}; {'; '.join(edits)}.", stored], facts)


def _changed(
    model: LinearTransformer, changes: tuple[str, ...], without: tuple[int, ...], truncate: int | None
) -> LinearTransformer:
    """The model with other parameters; those of one layer are replaced together. These layers must stay."""
    by_layer: dict[int, dict[str, Any]] = {}
    for change in changes:
        parts = CHANGE.fullmatch(change)
        if parts is None:
            rule = "--set takes LAYER.NAME=VALUE, with layers from 1"
            raise InputError(f"{rule}; got {shown(change)}. Write 4.omega_yy=0, for example.")
        try:
            value = json.loads(parts[3])
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"the value of a parameter must be a number or a list of numbers; got {shown(parts[3])}. "
                "Write 4.omega_yy=0 or '2.omega=[[0,0],[-0.03,0]]', for example."
            ) from error
        layer = int(parts[1])
        values = by_layer.setdefault(_counted(layer, model), {})
        gone = f"--without {layer}" if layer in without else f"--truncate {truncate}"
        if layer in without or layer > (truncate or layer):
            raise InputError(
                f"--set must change a layer that stays; got layer {layer} with {gone}. Leave out one of them."
            )
        if parts[2] in values:
            raise InputError(
                f"--set takes each parameter of a layer once; got {parts[1]}.{parts[2][:40]} twice. Leave one out."
            )
        values[parts[2]] = value
    for layer, values in by_layer.items():
        model = model.edit(layer, **values)
    return model


def _shortened(model: LinearTransformer, without: tuple[int, ...], truncate: int | None) -> LinearTransformer:
    removed = {_counted(layer, model) for layer in without}
    if truncate is not None:
        model = model.truncate(truncate)
    for layer in sorted(removed & set(range(model.layers)), reverse=True):
        model = model.without(layer)
    return model


def _counted(layer: int, model: LinearTransformer) -> int:
    """A layer's number from 0, as Python counts them."""
    if not 1 <= layer <= model.layers:
        raise InputError(
            f"a layer must be a number from 1 to {model.layers}, the layers of the model; got {layer}. "
            "Choose one of them."
        )
    return layer - 1
