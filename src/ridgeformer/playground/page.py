"""The page in one file: what `make playground` built, with the core and the models in it."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ridgeformer.files import write_whole
from ridgeformer.zoo import DIMS, shipped

HERE = Path(__file__).parent
FAMILIES = {"diag": "Diag", "gdpp": "GD++"}


def charts() -> str:
    """Return the library of charts, a script that sets the global `Plot` (Observable Plot), for pages in one file.

    Returns:
        The text of the script, with the licences of the libraries in it.
    """
    return (HERE / "built" / "plot.js").read_text(encoding="utf-8")


def page() -> str:
    """Return the page as HTML. It is self-contained: nothing is requested from the network.

    Returns:
        The text of the file.
    """
    html = (HERE / "built" / "page.html").read_text(encoding="utf-8")
    core = base64.b64encode((HERE / "built" / "core.wasm").read_bytes()).decode()
    models = json.dumps(_models(), separators=(",", ":")).replace("</", "<\\/")
    return html.replace("{{models}}", models).replace("{{core}}", core).replace("{{plot}}", charts())


def write_page(path: str | os.PathLike[str]) -> Path:
    """Write the page to a file, which any browser opens.

    Args:
        path: The file, such as `playground.html`.

    Returns:
        The path.

    Raises:
        StorageError: The file cannot be written.
    """
    target = Path(path)
    write_whole(target, page().encode())
    return target


def _models() -> list[dict[str, Any]]:
    """The models that the page offers: those of the zoo that have omegas, the small ones for d = 1 and 2 first."""
    first, *small = DIMS
    return [one for dim in (*small, first) for one in _of_zoo(dim, "" if dim == first else f"d={dim}: ")]


def _of_zoo(dim: int, prefix: str) -> list[dict[str, Any]]:
    zoo = shipped(dim)
    cells = [(cell, zoo.best(*cell)) for cell in zoo.made if cell[0] in FAMILIES]
    return [
        {
            "name": prefix + "/".join(map(str, cell)),
            "short": f"{FAMILIES[cell[0]]}, {cell[1]} layer{'s' * (cell[1] > 1)}",
            "family": cell[0],
            "noise": cell[2],
            "d": zoo.made[cell][seed].spec["dim"],
            "n": zoo.made[cell][seed].spec["context"],
            "omega": np.reshape(zoo.models[cell, seed].kernel[0], (-1, 4)).tolist(),
        }
        for cell, seed in cells
    ]
