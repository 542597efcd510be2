"""A model as a PyTorch module that stands on its own."""

from __future__ import annotations

import textwrap
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Matrices, Omegas
from ridgeformer.export.latex import flat, length_check, paragraph, title
from ridgeformer.models.families import Diag, Full, GDpp
from ridgeformer.models.family import Family
from ridgeformer.models.looped import LoopedFamily
from ridgeformer.models.structured import NAMES, ChannelFamily, Channels, LowRankFamily, Preconditioned, RegisterFamily
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors import Universal

SOURCE = Template('''\
"""A linear transformer in PyTorch: $title.
$about
model = LinearTransformer()
model.predict(X, y, x_query)  # a context X [..., n, d], y [..., n]; queries x_query [..., m, d]

Each of model.layers maps tokens [..., n + m, $size] to tokens, so forward hooks see what every layer makes of them.
Their parameters are those of the family.
"""

import torch
from torch import nn

# fmt: off
$numbers
# fmt: on

$helpers
class Layer(nn.Module):
    """Linear self-attention: e_i + sum_k sum_j (e_j' Q_k e_i) P_k e_j, with j over the context alone."""

    def __init__(self, $names):
        super().__init__()
$keep

    def matrices(self, D):
        """P and Q of every head, [head, D, D], for tokens of D coordinates."""
$matrices

    def scores(self, tokens, queries):
        """e_j' Q_k e_i, [..., head k, token i, context j]."""
        context = tokens[..., : tokens.shape[-2] - queries, :]
        return torch.einsum("...jc,kcd,...id->...kij", context, self.matrices(tokens.shape[-1])[1], tokens)

    def forward(self, tokens, queries):
        """The tokens after this layer. The last `queries` of them are not attended to."""
        context = tokens[..., : tokens.shape[-2] - queries, :]
        values = self.matrices(tokens.shape[-1])[0]
        return tokens + torch.einsum("...kij,...jd,kcd->...ic", self.scores(tokens, queries), context, values)$share


class LinearTransformer(nn.Module):
    """The layers one after another$loops. The numbers are rounded to `dtype`, by default PyTorch's own."""

    def __init__(self, dtype=None):
        super().__init__()
        dtype = dtype or torch.get_default_dtype()
        arrays = (numbers.to(dtype) for numbers in ($tuple))
        self.layers = nn.ModuleList(Layer(*layer) for layer in zip(*arrays, strict=True))

    def forward(self, tokens, queries=1):
        """Tokens $token [..., n + m, $size], the m queries, where y = 0, last, after every layer."""
${check}        for layer in $sequence:
            tokens = layer(tokens, queries)
        return tokens

    def predict(self, X, y, x_query):
        """Predictions [..., m] for the queries x_query [..., m, d] from the context X [..., n, d], y [..., n]."""
${units}${dim}        asked = torch.cat([x_query, x_query.new_zeros((*x_query.shape[:-1], $zeros))], -1)
        tokens = torch.cat([torch.cat([X$room, y[..., None]], -1), asked], -2)
${opening}        $result -self(tokens, queries=x_query.shape[-2])[..., -x_query.shape[-2] :, -1]
$back''')

OPENING = """\
        opening = torch.zeros_like(tokens[..., :1, :])  # one more context token, which shows 2 d / n
        opening[..., 0, X.shape[-1]] = (2 * (X != 0).any(-2).sum(-1)).to(X) ** 0.5  # features that are 0 do not count
        tokens = torch.cat([opening, tokens], -2)
"""

UNITS = Template('''
def units(X, y):
    """Numbers that bound the context and w, [...]: the layers see X / c and y / (c k), and w is k times theirs.

    The last number is the largest length of w.
    """
    n = X.shape[-2]
    S = X.mT @ X / n
    squares = S.diagonal(dim1=-2, dim2=-1)
    d = (squares > 0).sum(-1).clamp(min=1).to(X)  # features that are 0 do not count
    r = d / n
    wide = ((S @ S).square().sum((-1, -2)) / (d * (1 + 6 * r + 6 * r**2 + r**3))) ** 0.25  # bounds the eigenvalues
    c = torch.maximum(squares.sum(-1) / d, wide / $widest).clamp(min=1).sqrt()
    y = y / c[..., None]
    size, step = y.square().mean(-1), (y[..., None, :] @ X)[..., 0, :].norm(dim=-1) / (n * c)
    k = torch.maximum((size / $largest).sqrt(), step / $longest)
    unit = $unit + torch.zeros_like(k)
    return c, torch.maximum(k, unit), $length * unit

''')

USED_UNITS = """\
        c, k, longest = units(X, y)
        X, y = X / c[..., None, None], y / (c * k)[..., None]
        one = torch.eye(X.shape[-1]).to(X).expand(*X.shape[:-2], -1, -1)  # what it predicts for these queries is w
        x_query = torch.cat([x_query, one], -2)
"""

SHORTENED = """\
        length = predictions[..., -X.shape[-1] :].norm(dim=-1)  # of w: at most `longest`, and w is 0 if it overflows
        predictions = predictions * (longest / length.maximum(longest))[..., None]
        return torch.where(length.isfinite()[..., None], predictions, 0.0)[..., : -X.shape[-1]]
"""

BLOCKS = '''
def blocks(first, second):
    """Block-diagonal matrices diag(first, second), one per head."""
    m, k = first.shape[-1], second.shape[-1]
    return nn.functional.pad(first, (0, k, 0, k)) + nn.functional.pad(second, (m, 0, m, 0))

'''

DIAGONAL = '''
def diagonal(pair, D):
    """Diagonal matrices diag(x, ..., x, y) [head, D, D] of pairs (x, y) [head, 2]."""
    return torch.diag_embed(torch.cat([pair[:, :1].expand(-1, D - 1), pair[:, 1:]], -1))

'''

MIXING = '''
def mixing(vectors, scalars, D):
    """Matrices [head, D, D] that mix the vectors of a token by [head, v, v] and its scalars by [head, s, s].

    The coordinates of a token are x, the scalars beside y, the vectors beside x, and y.
    """
    heads, v, s = len(vectors), vectors.shape[-1], scalars.shape[-1]
    d = (D - s) // v
    mixed = torch.einsum("hab,ij->haibj", vectors, torch.eye(d).to(vectors)).reshape(heads, D - s, D - s)
    order = [*range(d), *range(D - s, D - 1), *range(d, D - s), D - 1]
    return blocks(mixed, scalars)[:, order][:, :, order]

'''

# By family and by the names of its arrays: functions that the source needs, and the lines of `matrices`.
RECIPES: dict[tuple[type[Family], tuple[str, ...]], tuple[str, str]] = {
    (Full, ("P", "Q")): ("", "return self.P, self.Q"),
    (Diag, ("p", "q")): (DIAGONAL, "return diagonal(self.p, D), diagonal(self.q, D)"),
    (Diag, ("omega",)): (
        DIAGONAL,
        "one = torch.eye(2).to(self.omega)  # a head that writes x, and one that writes y\n"
        "return diagonal(one, D), diagonal(self.omega, D)",
    ),
    (GDpp, ("p", "q")): (
        DIAGONAL,
        "q = torch.stack([self.q, torch.zeros_like(self.q)], -1)  # nothing flows out of y\n"
        "return diagonal(self.p, D), diagonal(q, D)",
    ),
    (GDpp, ("omega",)): (
        DIAGONAL,
        "one = torch.eye(2).to(self.omega)  # a head that writes x, and one that writes y\n"
        "omega = torch.stack([self.omega, torch.zeros_like(self.omega)], -1)  # nothing flows out of y\n"
        "return diagonal(one, D), diagonal(omega, D)",
    ),
    (ChannelFamily, NAMES): (BLOCKS + MIXING, "return mixing(self.P_v, self.P_s, D), mixing(self.Q_v, self.Q_s, D)"),
    (LowRankFamily, ("P", "K", "R")): ("", "return self.P, self.K.mT @ self.R"),
    (Preconditioned, ("A", "B")): (
        BLOCKS,
        "one = torch.ones_like(self.A[:, :1, :1])\nreturn blocks(self.B, one), blocks(self.A, 0 * one)",
    ),
    (RegisterFamily, ("p", "q", "P", "Q")): (
        BLOCKS,
        "eye = torch.eye(D - self.P.shape[-1]).to(self.P)  # the coordinates that are not set aside\n"
        "return blocks(self.p[:, None, None] * eye, self.P), blocks(self.q[:, None, None] * eye, self.Q)",
    ),
}


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
    names, loops = list(family.arrays), model.layers // family.layers
    vectors, scalars = family.further_vectors, model.layout.extra - model.dim * family.further_vectors
    texts = {
        "title": title(model),
        "about": paragraph(about),
        "numbers": "\n\n".join(_numbers(name, value) for name, value in family.arrays.items()),
        "helpers": helpers + ("" if units is None else UNITS.substitute(units.constants("torch"))),
        "units": "" if units is None else USED_UNITS,
        "result": "return" if units is None else "predictions = k[..., None] *",
        "back": "" if units is None else SHORTENED,
        "names": ", ".join(names),
        "keep": "\n".join(f"        self.{name} = nn.Parameter({name}.clone())" for name in names),
        "matrices": textwrap.indent(matrices, "        "),
        "loops": f", {loops} times" if loops > 1 else "",
        "tuple": ", ".join(names) + ("," if len(names) == 1 else ""),
        "sequence": f"[*self.layers] * {loops}" if loops > 1 else "self.layers",
        "check": textwrap.indent(length_check("tokens.shape[-2] - queries", context), "    "),
        "share": " / (context.shape[-2] - 1)  # a mean over the examples" if model.layout.opening else "",
        "opening": OPENING if model.layout.opening else "",
        "token": "(x, 0, y)" if model.layout.extra else "(x, y)",
        "size": _length(vectors + 1, scalars + 1),
        "room": f", X.new_zeros((*y.shape, {_length(vectors, scalars)}))" if model.layout.extra else "",
        "zeros": _length(vectors, scalars + 1),
        "dim": "        d = X.shape[-1]\n" if vectors else "",
    }
    return SOURCE.substitute(texts)


def _length(vectors: int, scalars: int) -> str:
    """A number of vectors of length d, and a number of scalars, as an expression."""
    return {0: "", 1: "d + "}.get(vectors, f"{vectors} * d + ") + str(scalars)


def _recipe(family: Family, dim: int) -> tuple[Family, str, str]:
    """The parameters of one repetition in a known family, the functions that they need, and the lines of `matrices`."""
    if isinstance(family, LoopedFamily):
        family = family.once
    kind = type(family).__mro__[1] if family.has_sizes else type(family)
    known = RECIPES.get((kind, tuple(family.arrays)))
    return _recipe(_engine_form(family, dim), dim) if known is None else (family, *known)


def _engine_form(family: Family, dim: int) -> Family:
    """The same layers in the family whose arrays an engine takes."""
    kernel = family.kernel(dim)
    if isinstance(kernel, Omegas):
        return Diag(omega=kernel.omega)
    if isinstance(kernel, Matrices):
        return Full(*kernel)
    return Channels(kernel.vectors, kernel.scalars)(**dict(zip(NAMES, kernel, strict=True)))


def _numbers(name: str, value: NDArray[np.floating[Any]]) -> str:
    """One array of the family as a tensor."""
    return f"{name} = torch.tensor([\n{flat(value)}\n], dtype=torch.float64).reshape{value.shape}"
