"""A model as a PyTorch module that stands on its own."""

from __future__ import annotations

import textwrap
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.export.coefficients import flat, length_check, paragraph, title, wrapped
from ridgeformer.models.families import Diag, GDpp
from ridgeformer.models.transformer import LinearTransformer

__all__ = ["to_torch"]

SOURCE = Template('''\
"""A linear transformer in PyTorch: $title.
$about
model = LinearTransformer()
model.predict(X, y, x_query)  # a context X [..., n, d], y [..., n]; queries x_query [..., m, d]

Each of model.layers maps tokens [..., n + m, d + 1] to tokens, so forward hooks see what every layer makes of them.
"""

import torch
from torch import nn

$numbers


class Layer(nn.Module):
    """Linear self-attention: e_i + sum_k sum_j (e_j' Q_k e_i) P_k e_j, with j over the context alone."""

$layer

    def scores(self, tokens, queries):
        """e_j' Q_k e_i, [..., head k, token i, context j]."""
        context = tokens[..., : tokens.shape[-2] - queries, :]
        return torch.einsum("...jc,kcd,...id->...kij", context, self.matrices(tokens.shape[-1] - 1)[1], tokens)

    def forward(self, tokens, queries):
        """The tokens after this layer. The last `queries` of them are not attended to."""
        context = tokens[..., : tokens.shape[-2] - queries, :]
        P, _ = self.matrices(tokens.shape[-1] - 1)
        return tokens + torch.einsum("...kij,...jd,kcd->...ic", self.scores(tokens, queries), context, P)


class LinearTransformer(nn.Module):
    """The layers one after another. The numbers are rounded to `dtype`, by default PyTorch's own."""

    def __init__(self, dtype=None):
        super().__init__()
        dtype = dtype or torch.get_default_dtype()
$build

    def forward(self, tokens, queries=1):
        """Tokens (x, y) [..., n + m, d + 1], the m queries (x, 0) last, after every layer."""
${check}        for layer in self.layers:
            tokens = layer(tokens, queries)
        return tokens

    def predict(self, X, y, x_query):
        """Predictions [..., m] for the queries x_query [..., m, d] from the context X [..., n, d], y [..., n]."""
        asked = torch.cat([x_query, x_query.new_zeros((*x_query.shape[:-1], $zeros))], -1)
        tokens = torch.cat([torch.cat([X$room, y[..., None]], -1), asked], -2)
        return -self(tokens, queries=x_query.shape[-2])[..., X.shape[-2] :, -1]
''')

DENSE_NUMBERS = Template("""\
# fmt: off
P = [
$P
]

Q = [
$Q
]
# fmt: on""")

DENSE_LAYER = '''\
    def __init__(self, P, Q):
        super().__init__()
        self.P, self.Q = nn.Parameter(P), nn.Parameter(Q)

    def matrices(self, d):
        """P and Q, one square matrix per head."""
        return self.P, self.Q'''

DENSE_BUILD = Template("""\
        layers = (torch.tensor(numbers, dtype=dtype).reshape$shape for numbers in (P, Q))  # [layer, head, ...]
        self.layers = nn.ModuleList(Layer(p.clone(), q.clone()) for p, q in zip(*layers, strict=True))""")

DIAGONAL_NUMBERS = Template("""\
# fmt: off
# $what
P = [
$p
]
Q = [
$q
]
# fmt: on""")

DIAGONAL_LAYER = Template('''\
    def __init__(self, p, q):
        super().__init__()
        $keep_p
        self.q = nn.Parameter(q)

    def matrices(self, d):
        """P and Q, [head, d + 1, d + 1]: diagonal, with one number for x and one for y."""
        p, q = self.p, $whole_q
        P, Q = (torch.cat([pair[:, :1].expand(-1, d), pair[:, 1:]], -1) for pair in (p, q))
        return torch.diag_embed(P), torch.diag_embed(Q)''')

DIAGONAL_BUILD = """\
        layers = (torch.tensor(numbers, dtype=dtype) for numbers in (P, Q))
        self.layers = nn.ModuleList(Layer(p.clone(), q.clone()) for p, q in zip(*layers, strict=True))"""


def to_torch(model: LinearTransformer, *, about: str = "", context: int | None = None) -> str:
    """Write the source of a module that imports PyTorch alone; its `LinearTransformer` is an `nn.Module` in token form.

    What the family trains are its parameters: P and Q, or p and q, or omega. The numbers are written to read back
    exactly in float64.

    Args:
        model: The model.
        about: A remark for the module's docstring.
        context: The only number of examples that the module accepts; None for any.

    Returns:
        Python source.
    """
    numbers, layer, build = _diagonal(model) if len(model.kernel) == 1 else _dense(model)
    check = textwrap.indent(length_check("tokens.shape[-2] - queries", context), "    ")
    room = model.layout.scratch
    zeros = {"zeros": str(room + 1), "room": f", X.new_zeros((*y.shape, {room}))" if room else ""}
    texts = {"title": title(model), "about": paragraph(about), "check": check, **zeros}
    return SOURCE.substitute(texts, numbers=numbers, layer=layer, build=build)


def _dense(model: LinearTransformer) -> tuple[str, str, str]:
    P, Q = model.P.astype(np.float64), model.Q.astype(np.float64)
    numbers = DENSE_NUMBERS.substitute(P=flat(P), Q=flat(Q))
    return numbers, DENSE_LAYER, DENSE_BUILD.substitute(shape=P.shape)


def _diagonal(model: LinearTransformer) -> tuple[str, str, str]:
    family = model.family.astype(np.float64)
    without_y = isinstance(family, GDpp)
    if isinstance(family, Diag | GDpp) and "p" in family.arrays:
        p, q = family.arrays["p"], family.arrays["q"]
        what, keep = "p and q of every layer and head", "self.p = nn.Parameter(p)"
    else:  # omega: a head that writes x and one that writes y
        omega = family.kernel(model.dim)[0]
        p, q = np.broadcast_to(np.eye(2), omega.shape), omega[:, :, 0] if without_y else omega
        what, keep = "P: a head that writes x and one that writes y; Q: omega", 'self.register_buffer("p", p)'
    what += ": the number for x alone, that for y is zero in Q" if without_y else ": for x and for y"
    whole = "torch.stack([self.q, torch.zeros_like(self.q)], -1)" if without_y else "self.q"
    numbers = DIAGONAL_NUMBERS.substitute(what=what, p=_rows(p), q=_rows(q))
    return numbers, DIAGONAL_LAYER.substitute(keep_p=keep, whole_q=whole), DIAGONAL_BUILD


def _rows(values: NDArray[np.floating[Any]]) -> str:
    """One layer a line, or several if it has many heads."""
    lines = []
    for layer, value in enumerate(values, 1):
        text = f"{(value + 0.0).tolist()},"
        lines.append("\n".join(wrapped(text, 104)) + f"  # layer {layer}")
    return "\n".join(lines)
