"""A model as equations: its updates, layer by layer, with their numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ridgeformer.engine import Mixings
from ridgeformer.export.source import count, harmless_lines, omegas, templates, title
from ridgeformer.models.structured import NAMES as CHANNELS
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors import Universal
from ridgeformer.validation import Float, integer


def to_latex(model: LinearTransformer, *, about: str = "", digits: int = 3, units: Universal | None = None) -> str:
    """Write the update equations of a model as align environments, for a document that loads amsmath.

    Diag and GD++: two equations per layer, for x and y, with the sums over heads rounded; terms that are zero are left
    out. Channels: two equations for vectors and scalars, and the matrices that mix them. Other families: P and Q of
    every layer and head. Matrices are rounded relative to their largest entries.

    Args:
        model: The model.
        about: A remark for a comment at the beginning.
        digits: Significant digits.
        units: The changes of units that come before and after the layers. Default: None.

    Returns:
        LaTeX source.

    Raises:
        InputError: `digits` is not a whole number from 1 to 17, or a number of the model is not finite.
    """
    digits = integer("digits", digits, 1, 17)
    omega = omegas(model)
    precision = f"numbers rounded to {count(digits, 'significant digit')}"
    precision += "" if omega is not None else " of the largest entry of their matrix"
    comments = [f"{title(model)}; {precision}. Needs amsmath.", *harmless_lines(about)]
    comments.append("Tokens i = 1, ..., n are the context; token n+1 is the query (x, 0).")
    if omega is not None:
        equations = _diagonal(omega, digits)
    else:
        equations = _channels(model, digits) if isinstance(model.kernel, Mixings) else _dense(model, digits)
    if units is not None:
        comments.append("Before the first layer x_i is divided by c and y_i by c k; the prediction is k times y-hat.")
        comments.append("It is <w-hat, x> with a vector w-hat, which is shortened to the length below if it is longer.")
        equations = [*_units(units), *equations]
    return "\n".join([*(f"% {line}" for line in comments), *equations]) + "\n"


def _units(units: Universal) -> list[str]:
    """The numbers c and k by which a context is divided, with Sigma, alpha and lambda of the context as it is given."""
    unit = r"\sqrt{d}" if units.signal is None else _number(math.sqrt(units.signal), 3)
    if units.own_scale:
        unit = rf"\frac{{1}}{{{units.SIZE:.3g}\, c}} \sqrt{{\lambda / n}}"
    law = r"\left(d\,(1 + 6 r + 6 r^2 + r^3)\right)^{1/4}"
    wide = rf"\frac{{(\mathrm{{tr}}\, \Sigma^4)^{{1/4}}}}{{{units.WIDEST}\, n {law}}}"
    bounds = rf"\sqrt{{\frac{{\lambda}}{{{units.LARGEST}\, n c^2}}}},\; \frac{{|\alpha|}}{{{units.LONGEST}\, n c^2}}"
    return _align(
        [
            rf"  c^2 &= \max\left(1,\; \frac{{\mathrm{{tr}}\, \Sigma}}{{n d}},\; {wide}\right), \qquad r = d / n",
            rf"  k &= \max\left({unit},\; {bounds}\right)",
            rf"  |\hat{{w}}| &\leq {units.LENGTH:g} \cdot {unit}",
        ]
    )


def _diagonal(omega: Float, digits: int) -> list[str]:
    rows = [templates("latex")["moments"].substitute()]
    for layer, ((xx, xy), (yx, yy)) in enumerate(omega):
        at = f"^{{{layer}}}"
        x = _sum(f"x_i{at}", [(xx, rf"\Sigma{at} x_i{at}"), (xy, rf"y_i{at} \alpha{at}")], digits)
        y = _sum(f"y_i{at}", [(yx, rf"\langle \alpha{at}, x_i{at} \rangle"), (yy, rf"\lambda{at} y_i{at}")], digits)
        rows += [f"  x_i^{{{layer + 1}}} &= {x}", f"  y_i^{{{layer + 1}}} &= {y}"]
    rows.append(rf"  \hat{{y}} &= -y_{{n+1}}^{{{len(omega)}}}")
    return _align(rows)


def _sum(first: str, terms: list[tuple[Any, str]], digits: int) -> str:
    text = first
    for factor, what in terms:
        if factor:
            text += f" {'-' if factor < 0 else '+'} {_number(abs(factor), digits)}\\, {what}"
    return text


def _number(value: float, digits: int) -> str:
    """A positive number, with a power of ten where it is small or large."""
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if -4 <= power < digits:
        return f"{value:.{digits - 1 - power}f}"
    return rf"{mantissa} \cdot 10^{{{power}}}"


def _dense(model: LinearTransformer, digits: int) -> list[str]:
    heads = rf"\sum_{{k=1}}^{{{model.heads}}} P_k^{{l}} G^{{l}} Q_k^{{l}}"
    attention = "P^{l} G^{l} Q^{l}" if model.heads == 1 else heads
    room = rf"0_{{{model.layout.scratch}}} \\ " if model.layout.scratch else ""  # so many zeros
    names = {"room": room, "attention": attention, "layers": model.layers, "size": model.width + 1}
    equations = templates("latex")["layer"].substitute(names)
    return [*_align([equations]), *_matrices({"P": model.P, "Q": model.Q}, digits)]


def _channels(model: LinearTransformer, digits: int) -> list[str]:
    """How vectors and scalars change in any dimension, and the matrices that mix them."""
    arrays = dict(zip(CHANNELS, model.kernel, strict=True))
    vectors, scalars = (arrays[name].shape[-1] for name in ("P_v", "P_s"))
    k, heads = ("", "") if model.heads == 1 else ("k", rf"\sum_{{k=1}}^{{{model.heads}}} ")
    Pv, Qv, Ps, Qs = (_symbol(name, "l", k) for name in CHANNELS)
    zeros = rf"0_{{{scalars - 1}}}^\top & " if scalars > 1 else ""
    first = "1"
    x, start, score, change = "x", "x_i", rf"{Qv} \langle x_j^{{l}}, x_i^{{l}} \rangle", rf"{Pv} x_j^{{l}}"
    if vectors > 1:  # the vectors are the columns of X
        x, start = "X", rf"\begin{{pmatrix}} x_i & 0_{{d \times {vectors - 1}}} \end{{pmatrix}}"
        score, change = rf"\langle X_j^{{l}}, X_i^{{l}} ({Qv})^\top \rangle", rf"X_j^{{l}} ({Pv})^\top"
    if model.layout.opening:  # one more context token, number 0, and the mean over the examples
        first = "0"
    share = r"\frac{1}{n} " if model.layout.attention == "mean" else ""
    s, total = f"s_{{{k}ij}}^{{l}}", rf"{share}{heads}\sum_{{j={first}}}^{{n}}"
    rows = [
        rf"  {x}_i^{{0}} &= {start}, \qquad z_i^{{0}} = \begin{{pmatrix}} {zeros}y_i \end{{pmatrix}}^\top",
        rf"  {s} &= {score} + (z_j^{{l}})^\top {Qs} z_i^{{l}}",
        rf"  {x}_i^{{l+1}} &= {x}_i^{{l}} + {total} {s}\, {change}",
        rf"  z_i^{{l+1}} &= z_i^{{l}} + {total} {s}\, {Ps} z_j^{{l}}",
        rf"  \hat{{y}} &= -(z_{{n+1}}^{{{model.layers}}})_{{{scalars}}}",
    ]
    if model.layout.opening:
        tail = rf"0_{{{scalars - 1}}}^\top"
        start = rf"  x_0^{{0}} &= 0, \qquad z_0^{{0}} = \begin{{pmatrix}} \sqrt{{2 d}} & {tail} \end{{pmatrix}}^\top"
        rows.insert(1, start)
    return [*_align(rows), *_matrices(arrays, digits)]


def _matrices(arrays: dict[str, Float], digits: int) -> list[str]:
    """The matrices [L, H, ...] of every layer and head."""
    lines = []
    layers, heads = next(iter(arrays.values())).shape[:2]
    for layer, head in np.ndindex(layers, heads):
        k = str(head + 1) if heads > 1 else ""
        rows = (f"  {_symbol(name, layer, k)} &= {_matrix(of[layer, head], digits)}" for name, of in arrays.items())
        lines += _align(list(rows))
    return lines


def _symbol(name: str, layer: int | str, head: str) -> str:
    """Such as P^{0} or P_{v,1}^{0}."""
    letter, *below = filter(None, [*name.split("_"), head])
    return letter + (f"_{{{','.join(below)}}}" if below else "") + f"^{{{layer}}}"


def _matrix(matrix: Float, digits: int) -> str:
    """A matrix with the power of ten of its largest entry in front. An array: amsmath's own stop at ten columns."""
    largest = float(np.abs(matrix).max())
    if matrix.size == 1:
        return ("-" if matrix.item() < 0 else "") + (_number(largest, digits) if largest else "0")
    power = max(math.floor(math.log10(largest)), -300) if largest else 0
    rows = " \\\\\n".join("    " + " & ".join(_entry(value, power, digits) for value in row) for row in matrix)
    scale = rf"10^{{{power}}} \cdot " if power else ""
    return f"{scale}\\left(\\begin{{array}}{{{'r' * len(matrix)}}}\n{rows}\n  \\end{{array}}\\right)"


def _entry(value: float, power: int, digits: int) -> str:
    text = f"{float(value) / 10.0**power:.{digits - 1}f}"
    return text.removeprefix("-") if not float(text) else text


def _align(rows: list[str]) -> list[str]:
    return [r"\begin{align*}", " \\\\\n".join(rows), r"\end{align*}"]
