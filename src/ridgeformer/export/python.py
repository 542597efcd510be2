"""A model as a NumPy module that stands on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Mixings
from ridgeformer.export.latex import NAMES, exact, flat, length_check, omegas, paragraph, templates, title
from ridgeformer.models.structured import NAMES as CHANNELS
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors import Universal

Float = NDArray[np.floating[Any]]

UPDATES = {
    "xx": "T[..., :d, :d] += xx * G[..., :d, :d]  # x + xx S x: preconditions x",
    "xy": "T[..., :d, d] += xy * G[..., :d, d]  # x + xy y b: later steps adapt to the noise left in y",
    "yx": "T[..., d, :d] += yx * G[..., d, :d]  # y + yx <b, x>: a step of gradient descent",
    "yy": "T[..., d, d] += yy * G[..., d, d]  # y + yy q y: rescales y by how large it still is",
}


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
    header = templates("python")["header"].substitute(title=title(model), about=paragraph(about))
    check = length_check("np.shape(X)[-2]", context)
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
    texts = (f"{name} = np.array([\n{flat(value)}\n]).reshape{value.shape}" for name, value in arrays.items())
    return "# fmt: off\n" + "\n\n".join(texts) + "\n# fmt: on\n"


def _diagonal(omega: Float, check: str) -> str:
    numbers = omega.reshape(len(omega), 4)
    used = [i for i in range(4) if numbers[:, i].any()] or [2]
    table = "\n".join(f"    ({_tuple(row[used])}),  # layer {layer}" for layer, row in enumerate(numbers, 1))
    names = [NAMES[i] for i in used]
    left = ", ".join(names) if len(names) > 1 else f"({names[0]},)"
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


def _tuple(values: Float) -> str:
    text = ", ".join(map(exact, values))
    return text + "," if len(values) == 1 else text
