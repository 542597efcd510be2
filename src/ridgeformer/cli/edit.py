"""`ridgeformer edit`: a changed model, and its loss beside that of the original."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from ridgeformer.cli.evaluate import answer_of
from ridgeformer.cli.options import FILE, PLACE, Subject, cli, reads_a_model, trained_lengths
from ridgeformer.cli.output import Answer, answers, progress
from ridgeformer.errors import InputError, refuse, shown
from ridgeformer.evaluation import compare
from ridgeformer.export import FORMATS, export as convert, write
from ridgeformer.loading import load, with_record
from ridgeformer.models.file import save
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors import Universal
from ridgeformer.zoo import PREFIX, universal_layers

CHANGE = re.compile(r"([0-9]{1,9})\.([A-Za-z_]\w*)=(.+)", re.ASCII | re.DOTALL)


@cli.command()
@click.option("--set", "changes", multiple=True, metavar="LAYER.NAME=VALUE")
@click.option("--without", type=int, multiple=True, metavar="LAYER")
@click.option("--truncate", type=int, metavar="LAYERS")
@click.option("--stack", type=PLACE, metavar="MODEL")
@click.option("--out", type=FILE)
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

    Options:
        --set: Replace a parameter of one layer. NAME is omega_xx, omega_xy, omega_yx, omega_yy, omega, p or q for diag
            and gdpp, and P or Q for any model. VALUE is a number, or a list in JSON. May be repeated.
        --without: Remove this layer. May be repeated.
        --truncate: Keep only this number of layers, from the first.
        --stack: Continue with the layers of this model.
        --out: File for the edited model, such as edited.safetensors.

    Examples:
        ridgeformer edit 'zoo:diag/7/uniform(0,5)' --set 4.omega_yy=0
        ridgeformer edit 'zoo:diag/7/uniform(0,5)' --set 4.omega_yy=0 --out edited.safetensors
        ridgeformer edit 'zoo:full/5/uniform(0,5)' --without 2 --json
        ridgeformer edit model.safetensors --set '2.omega=[[0,0],[-0.03,0]]' --truncate 3
    """
    edits = [*changes, *(f"without layer {layer}" for layer in without)]
    edits += [] if truncate is None else [f"truncate {truncate}"]
    edits += [] if stack is None else [f"stack {stack}"]
    if not edits:
        rule = "an edit needs at least one of --set, --without, --truncate and --stack"
        refuse(rule, "none", "Add --set 4.omega_yy=0, for example.")
    edited, removed = _changed(subject.model, changes, without, truncate), {_counted(n, subject.model) for n in without}
    edited = edited if truncate is None else edited.truncate(truncate)
    for layer in sorted(removed & set(range(edited.layers)), reverse=True):
        edited = edited.without(layer)
    edited = edited if stack is None else edited.stack(load(stack))
    if out is not None:
        save(edited, out, record={"spec": subject.problem.as_dict(), "edited": {"model": subject.name, "edits": edits}})
    pair = {subject.name: subject.model, "edited": edited}
    with progress("evaluating") as step:
        losses = compare(subject.problem, pair, **subject.sample, progress=step)
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
            remedy = "Write 4.omega_yy=0, for example."
            refuse("--set takes LAYER.NAME=VALUE, with layers from 1", shown(change), remedy)
        layer, name, text = int(parts[1]), parts[2], parts[3]
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            rule = "the value of a parameter must be a number or a list of numbers"
            refuse(rule, shown(text), "Write 4.omega_yy=0 or '2.omega=[[0,0],[-0.03,0]]', for example.")
        values = by_layer.setdefault(_counted(layer, model), {})
        if layer in without or layer > (truncate or layer):
            gone = f"--without {layer}" if layer in without else f"--truncate {truncate}"
            refuse("--set must change a layer that stays", f"layer {layer} with {gone}", "Leave out one of them.")
        if name in values:
            refuse("--set takes each parameter of a layer once", f"{layer}.{name[:40]} twice", "Leave one out.")
        values[name] = value
    for layer, values in by_layer.items():
        model = model.edit(layer, **values)
    return model


def _counted(layer: int, model: LinearTransformer) -> int:
    """A layer's number from 0, as Python counts them."""
    if not 1 <= layer <= model.layers:
        rule = f"a layer must be a number from 1 to {model.layers}, the layers of the model"
        refuse(rule, layer, "Choose one of them.")
    return layer - 1


@cli.command()
@click.argument("model", type=PLACE)
@click.option("--to", type=click.Choice(list(FORMATS)), default="python")
@click.option("--out", type=PLACE)
@click.option("--digits", type=int)
@click.option("--context", type=int)
@answers(table=False)
def export(model: Path, to: str, out: Path | None, digits: int | None, context: int | None) -> Answer:
    """Write a model as standalone code, equations or an ONNX graph.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'. What is
    written does not need ridgeformer. Models for every dimension, such as 'zoo:universal/8', are written with their
    changes of units, for tasks N(0, I / d).

    \b
    Formats:
      python  a NumPy module
      latex   the update equations of every layer
      torch   a PyTorch module
      onnx    a graph in float32; needs --out and pip install onnx

    Options:
        --to: Format to write.
        --out: File to write. Without it, the text is printed.
        --digits: Number of significant digits; only for latex [default: 3].
        --context: Context length n for which to export; the exported code equals the model only for this n. Only for
            models with attention by mean. [default: that of the model's training]

    Examples:
        ridgeformer export model.safetensors
        ridgeformer export runs/diag-2x1-uniform-0-5-d10n20-s0-0123456789 --to latex --digits 2
        ridgeformer export model.safetensors --to torch --out model.py
        ridgeformer export model.safetensors --to onnx --out model.onnx
    """
    if FORMATS[to].binary and out is None:
        refuse(f"the format {to} is binary, so it needs a file", "no --out", f"Add --out model{FORMATS[to].suffix}.")
    loaded, record = with_record(model)
    length = _length(loaded, record, context)
    everywhere = str(model) in [f"{PREFIX}universal/{layers}" for layers in universal_layers()]
    exported = Universal(loaded, signal=1) if everywhere and to != "onnx" else loaded
    content = convert(exported, to, about=_about(record), context=length, digits=digits)
    if out is not None:
        write(content, out)
    facts = {"family": loaded.family.name, "layers": loaded.layers, "heads": loaded.heads, "dim": loaded.dim}
    where = {"text": content} if out is None else {"out": str(out), "bytes": out.stat().st_size}
    text = content.removesuffix("\n") if isinstance(content, str) else ""
    text = text if out is None else f"Wrote {loaded} as {to} to {out}."
    return Answer(text, {"model": str(model), **facts, "to": to, **where})


def _length(model: LinearTransformer, record: dict[str, Any], context: int | None) -> int | None:
    """The only number of examples for which attention by mean is written as a sum; None for models by sum."""
    if model.layout.attention == "sum" or model.layout.extra:
        if context is not None and model.layout.attention == "sum":
            received = f"{context} for {model!r}"
            refuse("--context is for models with attention by mean", received, "Leave out --context.")
        return None
    lengths = trained_lengths(record)
    trained_length = None if lengths is None else lengths.least if lengths.fixed else str(lengths)
    length = trained_length if context is None else context
    if type(length) is not int:
        raise InputError(
            "export writes attention by sum, which equals attention by mean for one number of examples only; this "
            f"model was trained on n = {shown(trained_length) if trained_length else 'an unknown number'}. "
            "Add --context 20, for example."
        )
    return length


def _about(record: dict[str, Any]) -> str:
    """The facts in the record of a run, as far as it has them: the file may come from anywhere."""
    try:
        spec, result = record["spec"], record["result"]
        more = "".join(f" {name}={spec[name]}" for name in ("features", "tasks", "query") if name in spec)
        problem = f"d={spec['dim']} n={spec['context']} {spec['noise']}{more}"
        return f"Trained on {problem}, seed {spec['seed']}: adjusted loss {float(result['loss']):.4g}."
    except (KeyError, TypeError, ValueError):
        return ""
