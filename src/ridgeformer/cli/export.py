"""`ridgeformer export`: a model as standalone code, equations or an ONNX graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeformer.cli.group import cli
from ridgeformer.cli.options import PLACE
from ridgeformer.cli.output import Answer, answers
from ridgeformer.cli.subject import trained_lengths
from ridgeformer.errors import InputError, shown
from ridgeformer.export import FORMATS

if TYPE_CHECKING:
    from ridgeformer.models.transformer import LinearTransformer


@cli.command(
    epilog="Examples:\n\n\b\n  ridgeformer export model.safetensors\n"
    "  ridgeformer export runs/diag-2x1-uniform-0-5-d10n20-s0-0123456789 --to latex --digits 2\n"
    "  ridgeformer export model.safetensors --to torch --out model.py\n"
    "  ridgeformer export model.safetensors --to onnx --out model.onnx"
)
@click.argument("model", type=PLACE)
@click.option("--to", type=click.Choice(list(FORMATS)), default="python", show_default=True, help="Format to write.")
@click.option("--out", type=PLACE, help="File to write. Without it, the text is printed.")
@click.option("--digits", type=int, help="Number of significant digits; only for latex [default: 3].")
@click.option(
    "--context",
    type=int,
    help="Context length n for which to export; the exported code equals the model only for this n. Only for models "
    "with attention by mean. [default: that of the model's training]",
)
@answers(table=False)
def export(model: Path, to: str, out: Path | None, digits: int | None, context: int | None) -> Answer:
    """Write a model as standalone code, equations or an ONNX graph.

    MODEL is a .safetensors file, the folder of a run, or a model of the zoo such as 'zoo:diag/7/uniform(0,5)'. What is
    written does not need ridgeformer.

    \b
    Formats:
      python  a NumPy module
      latex   the update equations of every layer
      torch   a PyTorch module
      onnx    a graph in float32; needs --out and pip install onnx
    """
    from ridgeformer.export import export as convert
    from ridgeformer.export import write
    from ridgeformer.loading import load_with_record

    if FORMATS[to].binary and out is None:
        raise InputError(
            f"the format {to} is binary, so it needs a file; --out is missing. Add --out model{FORMATS[to].suffix}."
        )
    if digits is not None and "digits" not in FORMATS[to].options:
        raise InputError(f"--digits is only for --to latex; got --to {to}. Leave out --digits, or write --to latex.")
    loaded, record = load_with_record(model)
    length = _length(loaded, record, context)
    options: dict[str, Any] = {} if digits is None else {"digits": digits}
    content = convert(loaded, to, about=_about(record), context=length, **options)
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
            raise InputError(
                f"--context is for models with attention by mean; got {context} for {model!r}. Leave out --context."
            )
        return None
    lengths = trained_lengths(record)
    known = None if lengths is None else lengths.least if lengths.fixed else str(lengths)
    chosen = known if context is None else context
    if type(chosen) is not int:
        raise InputError(
            "export writes attention by sum, which equals attention by mean for one number of examples only; this "
            f"model was trained on n = {shown(known) if known else 'an unknown number'}. Add --context 20, for example."
        )
    return chosen


def _about(record: dict[str, Any]) -> str:
    """What a run's record says, as far as it says it: the file may come from anywhere."""
    try:
        spec, result = record["spec"], record["result"]
        more = "".join(f" {name}={spec[name]}" for name in ("features", "tasks", "query") if name in spec)
        problem = f"d={spec['dim']} n={spec['context']} {spec['noise']}{more}"
        return f"Trained on {problem}, seed {spec['seed']}: adjusted loss {float(result['loss']):.4g}."
    except (KeyError, TypeError, ValueError):
        return ""
