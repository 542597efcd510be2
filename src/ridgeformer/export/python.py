"""A model as a NumPy module that stands on its own."""

from __future__ import annotations

from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Mixings
from ridgeformer.export.latex import NAMES, exact, flat, length_check, omegas, paragraph, title
from ridgeformer.models.structured import NAMES as CHANNELS
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors import Universal

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
${units}    d = X.shape[-1]
    E = np.concatenate([X$room, y[..., None]], axis=-1)  # tokens e = $token
    D = E.shape[-1]
    G = np.swapaxes(E, -1, -2) @ E  # [S b; b' q] with S = sum x x', b = sum y x, q = sum y^2
$mean    C = np.eye(D)  # what the layers so far make of a token: e -> C e
$loop
        C = T @ C
        G = T @ G @ np.swapaxes(T, -1, -2)  # the context's tokens change, and so do S, b and q
    return $before-C[..., -1, :d]$after  # the query (x, 0) has become (M x, -<w, x>)
''')

UPDATES = {
    "xx": "T[..., :d, :d] += xx * G[..., :d, :d]  # x + xx S x: preconditions x",
    "xy": "T[..., :d, d] += xy * G[..., :d, d]  # x + xy y b: later steps adapt to the noise left in y",
    "yx": "T[..., d, :d] += yx * G[..., d, :d]  # y + yx <b, x>: a step of gradient descent",
    "yy": "T[..., d, d] += yy * G[..., d, d]  # y + yy q y: rescales y by how large it still is",
}

DENSE_LOOP = """\
    for P_l, Q_l in zip(P, Q, strict=True):
        T = np.eye(D) + (P_l @ G[..., None, :, :] @ Q_l).sum(-3)  # this layer: e -> T e, heads added up"""

CHANNELS_LOOP = """\
    for heads in zip(P_v, Q_v, P_s, Q_s, strict=True):
        T = np.eye(D)  # this layer: e -> T e, heads added up
        for p_v, q_v, p_s, q_s in zip(*heads, strict=True):
            T = T + mixing(p_v, p_s, d) @ G @ mixing(q_v, q_s, d)"""

MIXING = '''

def mixing(V, S, d):
    """The matrix that mixes the vectors of a token by V [v, v] and its scalars by S [s, s].

    x is the first vector and y the last scalar; the others start at zero.
    """
    vd = len(V) * d
    M = np.zeros((vd + len(S), vd + len(S)))
    M[:vd, :vd], M[vd:, vd:] = np.kron(V, np.eye(d)), S
    return M
'''


UNITS = Template('''

def units(X, y):
    """Numbers that bound the context and w, [...]: the layers see X / c and y / (c k), and w is k times theirs.

    The last number is the largest length of w.
    """
    n = X.shape[-2]
    S = np.swapaxes(X, -1, -2) @ X / n
    squares = np.diagonal(S, axis1=-2, axis2=-1)
    d = np.maximum((squares > 0).sum(-1), 1)  # features that are 0 do not count
    r = d / n
    wide = (np.square(S @ S).sum((-1, -2)) / (d * (1 + 6 * r + 6 * r**2 + r**3))) ** 0.25  # bounds the eigenvalues
    c = np.sqrt(np.maximum(np.maximum(squares.sum(-1) / d, wide / $widest), 1))
    y = y / c[..., None]
    size, step = (y**2).mean(-1), np.linalg.norm((y[..., None, :] @ X)[..., 0, :], axis=-1) / (n * c)
    unit = $unit + np.zeros_like(c)
    return c, np.maximum(unit, np.maximum(np.sqrt(size / $largest), step / $longest)), $length * unit


def shortened(w, longest):
    """The vectors w [..., d] with lengths that are at most `longest` [...]; 0 where a length overflows."""
    length = np.linalg.norm(w, axis=-1)
    short = w * (longest / np.maximum(length, longest))[..., None]
    return np.where(np.isfinite(length)[..., None], short, 0)
''')

USED_UNITS = """\
    c, k, longest = units(X, y)
    X, y = X / c[..., None, None], y / (c * k)[..., None]
"""

OPENING = """\
    used = (np.diagonal(G, axis1=-2, axis2=-1)[..., :d] > 0).sum(-1)  # features that are 0 do not count
    G[..., FIRST, FIRST] = 2 * used  # one more token, whose first further scalar is sqrt(2 d): it shows 2 d / n
    G = G / X.shape[-2]  # attention by mean over the n examples
"""


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
    header = HEADER.substitute(title=title(model), about=paragraph(about))
    check = length_check("np.shape(X)[-2]", context)
    coefficients = omegas(model)
    if coefficients is not None:
        return header + _diagonal(coefficients, check)
    if isinstance(model.kernel, Mixings):
        return header + _channels(model, check, units)
    arrays = {"P": model.P, "Q": model.Q}
    return header + _arrays(arrays) + _functions(DENSE_LOOP, check, str(model.layout.scratch))


def _channels(model: LinearTransformer, check: str, units: Universal | None) -> str:
    arrays = dict(zip(CHANNELS, model.kernel, strict=True))
    vectors, scalars = (len(arrays[name][0, 0]) - 1 for name in ("P_v", "P_s"))
    room = str(scalars) if not vectors else f"{'' if vectors == 1 else f'{vectors} * '}d + {scalars}"
    what = "# How P and Q mix the vectors (P_v, Q_v) and the scalars (P_s, Q_s) of a token, [layer, head, ...]\n"
    first = "d" if not vectors else f"{vectors + 1} * d"
    mean = OPENING.replace("FIRST", first) if model.layout.opening else ""
    prelude = "" if units is None else UNITS.substitute(units.constants("np"))
    return what + _arrays(arrays) + MIXING + prelude + _functions(CHANNELS_LOOP, check, room, mean, bool(prelude))


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
    around = {"units": "", "before": "", "after": ""}
    if units:
        around = {"units": USED_UNITS, "before": "shortened(k[..., None] * ", "after": ", longest)"}
    return FUNCTIONS.substitute(room=zeros, token=token, loop=loop, check=check, mean=mean, **around)


def _tuple(values: Float) -> str:
    text = ", ".join(map(exact, values))
    return text + "," if len(values) == 1 else text
