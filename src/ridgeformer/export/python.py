"""A model as a NumPy module that stands on its own."""

from __future__ import annotations

from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.export.coefficients import NAMES, exact, flat, length_check, omegas, paragraph, title
from ridgeformer.models.transformer import LinearTransformer

__all__ = ["to_python"]

Float = NDArray[np.floating[Any]]

HEADER = Template('''\
"""A linear transformer in NumPy: $title.
$about
predict(X, y, x_query) learns from a context X [n, d], y [n] and predicts for queries x_query [m, d], or for one, [d].
Leading axes are a batch of contexts: X [..., n, d], y [..., n], x_query [..., m, d].
"""

import numpy as np

''')

FUNCTIONS = Template('''

def predict(X, y, x_query):
    """Predictions [m] for the queries x_query [m, d], or one for [d]."""
    return (np.asarray(x_query, float) @ weights(X, y)[..., None])[..., 0]


def weights(X, y):
    """The w [d] that the model finds in the context X [n, d], y [n]: it predicts <w, x> for a query x."""
${check}    X, y = np.asarray(X, float), np.asarray(y, float)
    E = np.concatenate([X$room, y[..., None]], axis=-1)  # tokens e = $token
    G = np.swapaxes(E, -1, -2) @ E  # [S a; a' l] with S = sum x x', a = sum y x, l = sum y^2
    d = G.shape[-1] - 1
    C = np.eye(d + 1)  # what the layers so far make of a token: e -> C e
$loop
        C = T @ C
        G = T @ G @ np.swapaxes(T, -1, -2)  # the context's tokens change, and so do S, a and l
    return -C[..., d, :$read]  # the query (x, 0) has become (M x, -<w, x>)
''')

UPDATES = {
    "xx": "T[..., :d, :d] += xx * G[..., :d, :d]  # x + xx S x: preconditions x",
    "xy": "T[..., :d, d] += xy * G[..., :d, d]  # x + xy y a: later steps adapt to the noise left in y",
    "yx": "T[..., d, :d] += yx * G[..., d, :d]  # y + yx <a, x>: a step of gradient descent",
    "yy": "T[..., d, d] += yy * G[..., d, d]  # y + yy l y: rescales y by how large it still is",
}

DENSE_LOOP = """\
    for p, q in zip(P, Q, strict=True):
        T = np.eye(d + 1) + (p @ G[..., None, :, :] @ q).sum(-3)  # this layer: e -> T e, heads added up"""

DENSE = Template("""\
# fmt: off
P = np.array([
$P
]).reshape$shape  # [layer, head, $size, $size]

Q = np.array([
$Q
]).reshape$shape
# fmt: on
""")


def to_python(model: LinearTransformer, *, about: str = "", context: int | None = None) -> str:
    """Write the source of a module with `predict(X, y, x_query)` and `weights(X, y)` that imports NumPy alone.

    Diag and GD++ keep their few numbers per layer in a table, and every update is one line; terms that are zero in all
    layers are left out. The numbers read back exactly.

    Args:
        model: The model.
        about: A remark for the module's docstring.
        context: The only number of examples that the functions accept; None for any.

    Returns:
        Python source.
    """
    header = HEADER.substitute(title=title(model), about=paragraph(about))
    check = length_check("np.shape(X)[-2]", context)
    found = omegas(model)
    if found is not None:
        return header + _diagonal(found, check)
    P, Q = model.P.astype(np.float64), model.Q.astype(np.float64)
    functions = _functions(DENSE_LOOP, check, model.layout.scratch)
    size = f"d + {1 + model.layout.scratch}"
    return header + DENSE.substitute(P=flat(P), Q=flat(Q), shape=P.shape, size=size) + functions


def _diagonal(omega: Float, check: str) -> str:
    layers, heads = omega.shape[:2]
    numbers = omega.reshape(layers, heads, 4)
    used = [i for i in range(4) if numbers[..., i].any()] or [2]
    rows = [[f"({_tuple(head[used])})" for head in layer] for layer in numbers]
    if heads == 1:
        table = "\n".join(f"    {row[0]},  # layer {layer}" for layer, row in enumerate(rows, 1))
    else:
        table = "\n".join(
            "\n".join([f"    [  # layer {layer}", *(f"        {row}," for row in of_heads), "    ],"])
            for layer, of_heads in enumerate(rows, 1)
        )
    names = [NAMES[i] for i in used]
    left = ", ".join(names) if len(names) > 1 else f"({names[0]},)"
    what = f"{', '.join(names)} of every layer" + ("" if heads == 1 else " and head")
    lines = [f"    for {left} in LAYERS:"]
    if heads > 1:
        lines = ["    for heads in LAYERS:", f"        {left} = np.sum(heads, axis=0)  # heads add up"]
    lines += ["        T = np.zeros_like(G) + np.eye(d + 1)  # this layer: e -> T e"]
    lines += [f"        {UPDATES[name]}" for name in names]
    return f"# {what}\nLAYERS = [\n{table}\n]\n" + _functions("\n".join(lines), check)


def _functions(loop: str, check: str, room: int = 0) -> str:
    """The functions, for tokens with so many coordinates that start at zero."""
    texts = {"room": "", "token": "(x, y)", "read": "d"}
    if room:
        texts = {
            "room": f", np.zeros((*y.shape, {room}))",
            "token": "(x, 0, y): zeros for results",
            "read": f"d - {room}",
        }
    return FUNCTIONS.substitute(texts, loop=loop, check=check)


def _tuple(values: Float) -> str:
    text = ", ".join(map(exact, values))
    return text + "," if len(values) == 1 else text
