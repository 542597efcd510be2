"""Models in the address of the page: the text after #, such as `d=10&n=20&noise=uniform(0,5)&omega=0,0,-0.03,0`.

>>> read_address("https://example.org/playground.html#d=10&omega=0,0,-0.03,0")
LinearTransformer(diag, dim=10, layers=1, heads=2)
"""

from __future__ import annotations

from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from ridgeformer.errors import refuse, shown
from ridgeformer.models.families import Diag, GDpp
from ridgeformer.models.transformer import LinearTransformer

TERMS = ("xx", "xy", "yx", "yy")
MOST = 100_000  # characters
REMEDY = "Copy the link from the page with its button Share."


def is_address(text: object) -> bool:
    """Tell whether a text looks like the address of the page and not like the name of a file.

    Args:
        text: Any object.

    Returns:
        Whether it is a text with # and omegas after it.
    """
    return isinstance(text, str) and "#" in text and "omega=" in text.partition("#")[2]


def read_address(text: str) -> LinearTransformer:
    """Read the model that the page shows: terms that are switched off are 0.

    Args:
        text: The address of the page, or the part of it after #.

    Returns:
        The model, a `Diag` or a `GDpp` one in float64.

    Raises:
        InputError: The text has no omegas, or numbers that make no model.
    """
    if not isinstance(text, str) or len(text) > MOST:
        refuse("an address is a text of at most 100,000 characters", shown(text), REMEDY)
    given = dict(parse_qsl(text.rpartition("#")[2].replace("+", "%2B"), keep_blank_values=True))
    omega = _omegas(given.get("omega", ""))
    for name in filter(None, given.get("off", "").split(",")):
        layer, _, term = name.partition(".")
        if term not in TERMS or not layer.isdigit() or not 1 <= int(layer) <= len(omega):
            refuse("a term that is off must be one of the model's, such as 2.xy", shown(name), REMEDY)
        omega[int(layer) - 1, TERMS.index(term)] = 0.0
    dim = given.get("d", "10")
    if not dim.isdigit() or not 1 <= int(dim) <= 20:
        refuse("d must be a whole number from 1 to 20", shown(dim), REMEDY)
    family = given.get("family", "diag")
    if family not in ("diag", "gdpp"):
        refuse("the family must be diag or gdpp", shown(family), REMEDY)
    if family == "diag":
        return LinearTransformer(Diag(omega=omega.reshape(-1, 2, 2)), int(dim))
    if omega[:, [1, 3]].any():
        refuse("a GD++ model has xy = yy = 0 in every layer", "others", REMEDY)
    return LinearTransformer(GDpp(omega=omega[:, [0, 2]]), int(dim))


def _omegas(text: str) -> NDArray[np.float64]:
    """The omegas of all layers, [L, 4]."""
    try:
        rows = [[float(number) for number in layer.split(",")] for layer in text.split(";")]
    except ValueError:
        rows = []
    if not rows or any(len(row) != len(TERMS) for row in rows):
        refuse("an address must have omega=xx,xy,yx,yy;... with four numbers per layer", shown(text), REMEDY)
    return np.array(rows)
