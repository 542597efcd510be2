"""A model as a NumPy module or a PyTorch module that stands on its own."""

from __future__ import annotations

import functools
import re
import textwrap
from pathlib import Path
from string import Template

import numpy as np

from ridgeformer.engine import Matrices, Mixings, Omegas
from ridgeformer.models.families import FLOWS, Diag, Full
from ridgeformer.models.family import Family
from ridgeformer.models.structured import NAMES as CHANNELS, Channels, LoopedFamily
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors import Universal
from ridgeformer.validation import Float, array

UPDATES = {
    "xx": "T[..., :d, :d] += xx * G[..., :d, :d]  # x + xx S x: preconditions x",
    "xy": "T[..., :d, d] += xy * G[..., :d, d]  # x + xy y b: later steps adapt to the noise left in y",
    "yx": "T[..., d, :d] += yx * G[..., d, :d]  # y + yx <b, x>: a step of gradient descent",
    "yy": "T[..., d, d] += yy * G[..., d, d]  # y + yy q y: rescales y by how large it still is",
}


@functools.cache
def templates(name: str) -> dict[str, Template]:
    """Read the pieces of which the source of an export is made, from the file of this name beside this module.

    Args:
        name: The name of the file without its ending.

    Returns:
        The pieces by name; each follows a line such as `=== header`.
    """
    text = (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8").removesuffix("\n")
    parts = re.split(r"(?:^|\n)=== (\w+)\n", text)[1:]
    return {piece: Template(body) for piece, body in zip(parts[::2], parts[1::2], strict=True)}


def omegas(model: LinearTransformer) -> Float | None:
    """Return omega of every layer, summed over the heads.

    A Full model whose matrices are all of Diag's form has them too: training grows such models from Diag ones, and
    keeps them where it finds nothing better.

    Args:
        model: The model.

    Returns:
        The omegas in float64, [L, 2, 2]; None where P and Q are dense.

    Raises:
        InputError: A number of the model is too large.
    """
    with np.errstate(over="ignore"):
        kernel = model.astype(np.float64).kernel.as_omegas()
    return None if kernel is None else array("omega", kernel.omega, ("L", 2, 2))


def title(model: LinearTransformer) -> str:
    """Describe a model, as in `Diag, 2 layers, 1 head, for d = 10`.

    Args:
        model: The model.

    Returns:
        One line of text.
    """
    name = {"full": "Full", "diag": "Diag", "gdpp": "GD++"}.get(model.family.name, model.family.name)
    same = " (with the matrices of a Diag)" if name == "Full" and omegas(model) is not None else ""
    valid = "every d" if model.layout.opening else f"d = {model.dim}"
    return f"{name}{same}, {count(model.layers, 'layer')}, {count(model.heads, 'head')}, for {valid}"


def count(number: int, noun: str) -> str:
    """Write a number with its noun, as in `1 layer` and `2 layers`.

    Args:
        number: The number.
        noun: The noun in its singular.

    Returns:
        The text.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def harmless_lines(text: str, width: int = 110) -> list[str]:
    """Break a text into lines that may stand in a docstring or a comment of any format, whatever was in it.

    Args:
        text: The text.
        width: Characters per line, at most.

    Returns:
        The lines.
    """
    harmless = "".join(letter if letter.isprintable() and letter not in '\\"' else " " for letter in text)
    return textwrap.wrap(harmless, width)


def _length_check(n: str, context: int | None) -> str:
    """The lines of a function that refuse contexts of another length than `context`, where there is one."""
    if context is None:
        return ""
    message = f"this model is valid for contexts of exactly n = {context} examples; got {{{n}}}"
    return f'    if {n} != {context}:\n        raise ValueError(f"{message}")\n'


def _paragraph(about: str) -> str:
    """A paragraph of a docstring, with an empty line before and after; nothing for an empty text."""
    lines = harmless_lines(about)
    return "\n".join(["", *lines, ""]) if lines else ""


def _exact(value: float) -> str:
    """A number as the shortest text that reads back as this float64; zero without a sign."""
    return repr(float(value) + 0.0)


def _flat(values: Float, width: int = 116) -> str:
    """An array as lines of one flat list of numbers that read back exactly: every row begins a line.

    A comment names every layer, and every head if there are matrices [L, H, D, D].
    """
    lines = []
    for place in np.ndindex(values.shape[: 2 if values.ndim == 4 else 1]):
        block = np.atleast_1d(values[place])
        rows = block.reshape(-1, block.shape[-1])
        comment = "# " + ", ".join(f"{what} {k + 1}" for what, k in zip(("layer", "head"), place, strict=False))
        text = [line for row in rows for line in _wrapped(", ".join(map(_exact, row)) + ",", width - 20)]
        lines += [f"{text[0]}  {comment}"] if len(text) == 1 else [f"    {comment}", *text]
    return "\n".join(lines)


def _wrapped(numbers: str, width: int) -> list[str]:
    """Numbers separated by spaces in indented lines, without breaking a number."""
    wrap = functools.partial(textwrap.wrap, break_on_hyphens=False, break_long_words=False)
    return wrap(numbers, width, initial_indent="    ", subsequent_indent="        ")


def to_python(
    model: LinearTransformer, *, about: str = "", context: int | None = None, units: Universal | None = None
) -> str:
    """Write the source of a module with `predict(X, y, x_query)` and `weights(X, y)` that imports NumPy alone.

    Diag and GD++ keep their few numbers per layer in a table, and every update is one line; terms that are zero in all
    layers are left out. Channels keep P_v, Q_v, P_s and Q_s. Both work for any d. The numbers read back exactly.

    Args:
        model: The model.
        about: A remark for the module's docstring.
        context: The only number of examples that the functions accept; None for any.
        units: The changes of units that come before and after the layers; only for channels. Default: None.

    Returns:
        Python source.
    """
    header = templates("python")["header"].substitute(title=title(model), about=_paragraph(about))
    check = _length_check("np.shape(X)[-2]", context)
    coefficients = omegas(model)
    if coefficients is not None:
        return header + _diagonal(coefficients, check)
    if isinstance(model.kernel, Mixings):
        return header + _channels(model, check, units)
    arrays = {"P": model.P, "Q": model.Q}
    loop = templates("python")["dense_loop"].substitute()
    return header + _arrays(arrays) + _functions(loop, check, str(model.layout.scratch))


def _channels(model: LinearTransformer, check: str, units: Universal | None) -> str:
    arrays, source = dict(zip(CHANNELS, model.kernel, strict=True)), templates("python")
    vectors, scalars = (len(arrays[name][0, 0]) - 1 for name in ("P_v", "P_s"))
    room = str(scalars) if not vectors else f"{'' if vectors == 1 else f'{vectors} * '}d + {scalars}"
    what = "# How P and Q mix the vectors (P_v, Q_v) and the scalars (P_s, Q_s) of a token, [layer, head, ...]\n"
    first = "d" if not vectors else f"{vectors + 1} * d"
    mean = source["opening"].substitute(first=first) if model.layout.opening else ""
    prelude = "" if units is None else source["units"].substitute(units.constants("np"))
    loop, mixing = source["channels_loop"].substitute(), source["mixing"].substitute()
    return what + _arrays(arrays) + mixing + prelude + _functions(loop, check, room, mean, bool(prelude))


def _arrays(arrays: dict[str, Float]) -> str:
    texts = (f"{name} = np.array([\n{_flat(value)}\n]).reshape{value.shape}" for name, value in arrays.items())
    return "# fmt: off\n" + "\n\n".join(texts) + "\n# fmt: on\n"


def _diagonal(omega: Float, check: str) -> str:
    numbers = omega.reshape(len(omega), 4)
    used = [i for i in range(4) if numbers[:, i].any()] or [2]
    names, comma = [[*FLOWS][i] for i in used], "," if len(used) == 1 else ""  # after the only entry of a tuple
    rows = (", ".join(map(_exact, row[used])) + comma for row in numbers)
    table = "\n".join(f"    ({row}),  # layer {layer}" for layer, row in enumerate(rows, 1))
    left = f"({names[0]},)" if comma else ", ".join(names)
    lines = [f"    for {left} in LAYERS:", "        T = np.zeros_like(G) + np.eye(D)  # this layer: e -> T e"]
    lines += [f"        {UPDATES[name]}" for name in names]
    return f"# {', '.join(names)} of every layer\nLAYERS = [\n{table}\n]\n" + _functions("\n".join(lines), check)


def _functions(loop: str, check: str, room: str = "0", mean: str = "", units: bool = False) -> str:
    """The functions, for tokens with a number of coordinates that start at zero."""
    zeros, token = ("", "(x, y)") if room == "0" else (f", np.zeros((*y.shape, {room}))", "(x, 0, y)")
    source, around = templates("python"), {"units": "", "before": "", "after": ""}
    if units:
        used = source["used_units"].substitute()
        around = {"units": used, "before": "shortened(k[..., None] * ", "after": ", longest)"}
    return source["functions"].substitute(room=zeros, token=token, loop=loop, check=check, mean=mean, **around)


def to_torch_module(
    model: LinearTransformer, *, about: str = "", context: int | None = None, units: Universal | None = None
) -> str:
    """Write the source of a module that imports PyTorch alone; its `LinearTransformer` is an `nn.Module` in token form.

    The arrays of the family are its parameters, from which every layer makes P and Q; looped layers are stored once. Of
    families that ridgeformer does not know, what an engine takes (`Family.kernel`) becomes parameters instead. The
    numbers are written to read back exactly in float64.

    Args:
        model: The model.
        about: A remark for the module's docstring.
        context: The only number of examples that the module accepts; None for any.
        units: The changes of units that come before and after the layers. Default: None.

    Returns:
        Python source.
    """
    family, helpers, matrices = _recipe(model.family.astype(np.float64), model.dim)
    names, loops, source = list(family.arrays), model.layers // family.layers, templates("torch")
    vectors, scalars = family.further_vectors, model.layout.extra - model.dim * family.further_vectors
    texts = {
        "title": title(model),
        "about": _paragraph(about),
        "numbers": "\n\n".join(
            f"{name} = torch.tensor([\n{_flat(value)}\n], dtype=torch.float64).reshape{value.shape}"
            for name, value in family.arrays.items()
        ),
        "helpers": "".join(source[helper].substitute() for helper in helpers.split()),
        "units": "",
        "result": "return",
        "back": "",
        "names": ", ".join(names),
        "keep": "\n".join(f"        self.{name} = nn.Parameter({name}.clone())" for name in names),
        "matrices": textwrap.indent(matrices, "        "),
        "loops": f", {loops} times" if loops > 1 else "",
        "tuple": ", ".join(names) + ("," if len(names) == 1 else ""),
        "sequence": f"[*self.layers] * {loops}" if loops > 1 else "self.layers",
        "check": textwrap.indent(_length_check("tokens.shape[-2] - queries", context), "    "),
        "share": " / (context.shape[-2] - 1)  # a mean over the examples" if model.layout.opening else "",
        "opening": source["opening"].substitute() if model.layout.opening else "",
        "token": "(x, 0, y)" if model.layout.extra else "(x, y)",
        "size": _length(vectors + 1, scalars + 1),
        "room": f", X.new_zeros((*y.shape, {_length(vectors, scalars)}))" if model.layout.extra else "",
        "zeros": _length(vectors, scalars + 1),
        "dim": "        d = X.shape[-1]\n" if vectors else "",
    }
    if units is not None:
        texts["helpers"] += source["units"].substitute(units.constants("torch"))
        texts |= {"units": source["used_units"].substitute(), "back": source["shortened"].substitute()}
        texts["result"] = "predictions = k[..., None] *"
    return source["source"].substitute(texts)


def _length(vectors: int, scalars: int) -> str:
    """A number of vectors of length d, and a number of scalars, as an expression."""
    return {0: "", 1: "d + "}.get(vectors, f"{vectors} * d + ") + str(scalars)


def _recipe(family: Family, dim: int) -> tuple[Family, str, str]:
    """The parameters of one repetition in a known family, the functions that they need, and the lines of `matrices`."""
    if isinstance(family, LoopedFamily):
        family = family.once
    kind = type(family).__mro__[1] if family.has_sizes else type(family)
    template = templates("torch").get("_".join([kind.__name__, *family.arrays]))
    if template is None or not family.built_in:
        return _recipe(_engine_form(family, dim), dim)
    helpers, _, matrices = template.substitute().partition("\n")
    return family, helpers, matrices


def _engine_form(family: Family, dim: int) -> Family:
    """The same layers in the family whose arrays an engine takes."""
    kernel = family.kernel(dim)
    if isinstance(kernel, Omegas):
        return Diag(omega=kernel.omega)
    if isinstance(kernel, Matrices):
        return Full(*kernel)
    return Channels(kernel.vectors, kernel.scalars)(**dict(zip(CHANNELS, kernel, strict=True)))
