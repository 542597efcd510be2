"""A model as a PyTorch module that stands on its own."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Matrices, Omegas
from ridgeformer.export.latex import flat, length_check, paragraph, templates, title
from ridgeformer.models.families import Diag, Full
from ridgeformer.models.family import Family
from ridgeformer.models.looped import LoopedFamily
from ridgeformer.models.structured import NAMES, Channels
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.predictors import Universal


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
        "about": paragraph(about),
        "numbers": "\n\n".join(_numbers(name, value) for name, value in family.arrays.items()),
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
        "check": textwrap.indent(length_check("tokens.shape[-2] - queries", context), "    "),
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
    known = templates("torch").get("_".join([kind.__name__, *family.arrays]))
    if known is None or not kind.__module__.startswith("ridgeformer.models"):  # a family of the user's own
        return _recipe(_engine_form(family, dim), dim)
    helpers, _, matrices = known.substitute().partition("\n")
    return family, helpers, matrices


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
