"""Links to models of the playground, and the page itself."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import PAPER_LAYOUT
from ridgeformer.errors import kind_of, refuse, shown
from ridgeformer.files import path_of, write_whole
from ridgeformer.models.families import FLOWS, Diag, GDpp
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.noise import Categorical, Fixed, Uniform
from ridgeformer.problems import Problem
from ridgeformer.zoo import PREFIX, further_models, read_model, shipped

TERMS = tuple(FLOWS)
MOST = 100_000  # characters
MOST_DIM, MOST_CONTEXT, MOST_LAYERS, MOST_LEVELS, HIGHEST = 20, 100, 10, 12, 100  # what the page can show
REMEDY = "Copy the link from the page with its button Share."
HERE = Path(__file__).parent
FAMILIES = {"diag": "Diag", "gdpp": "GD++"}


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
    fields = dict(parse_qsl(text.rpartition("#")[2].replace("+", "%2B"), keep_blank_values=True))
    omega = _omegas(fields.get("omega", ""))
    for name in filter(None, fields.get("off", "").split(",")):
        layer, _, term = name.partition(".")
        if term not in TERMS or not layer.isdigit() or not 1 <= int(layer) <= len(omega):
            refuse("a term that is off must be one of the model's, such as 2.xy", shown(name), REMEDY)
        omega[int(layer) - 1, TERMS.index(term)] = 0.0
    dim = fields.get("d", "10")
    if not dim.isdigit() or not 1 <= int(dim) <= MOST_DIM:
        refuse(f"d must be a whole number from 1 to {MOST_DIM}", shown(dim), REMEDY)
    family = fields.get("family", "diag")
    if family not in FAMILIES:
        refuse("the family must be diag or gdpp", shown(family), REMEDY)
    if family == "diag":
        return LinearTransformer(Diag(omega=omega.reshape(-1, 2, 2)), int(dim))
    if omega[:, [1, 3]].any():
        refuse("a GD++ model has xy = yy = 0 in every layer", "others", REMEDY)
    return LinearTransformer(GDpp(omega=omega[:, [0, 2]]), int(dim))


def address(problem: Problem, model: LinearTransformer) -> str:
    """Write a model and its problem as the page does; `read_address` and `ridgeformer.load` read the model back.

    Args:
        problem: The problem that the page shows: normal features and tasks, at most 20 features, 100 examples, and one
            noise level, a uniform one or one of at most 12 that are equally likely, up to 100.
        model: The model, a `Diag` or a `GDpp` one with at most 10 layers, for the dimension of the problem.

    Returns:
        The text that follows # in a link: `"playground.html#" + address(problem, model)`.

    Raises:
        InputError: The page cannot show the problem or the model.
    """
    _check_model(problem, model)
    _check_problem(problem)
    omega = ";".join(",".join(map(repr, layer)) for layer in _rows(model))
    return f"d={problem.dim}&n={problem.context}&noise={problem.noise}&family={model.family.name}&omega={omega}"


def _check_model(problem: Problem, model: LinearTransformer) -> None:
    """Refuse a model that the page cannot show, or not for this problem."""
    if not isinstance(problem, Problem):
        refuse("a link needs a Problem", kind_of(problem), 'Pass Problem(10, 20, "uniform(0,5)"), for example.')
    if not isinstance(model, LinearTransformer) or type(model.family) not in (Diag, GDpp):
        received = shown(model) if isinstance(model, LinearTransformer) else kind_of(model)
        refuse("the page shows models of the families diag and gdpp", received, "Train one with family='diag'.")
    if model.dim != problem.dim:
        remedy = "Pass the problem of the model."
        refuse(f"the model must have the dimension of the problem, {problem.dim}", model.dim, remedy)
    if model.layout != PAPER_LAYOUT:
        refuse("the page shows models that sum over tokens", model.layout, "Use model.to_attention('sum', context=n).")
    if model.layers > MOST_LAYERS:
        refuse(f"the page shows at most {MOST_LAYERS} layers", model.layers, "Use model.truncate(10), or train fewer.")


def _check_problem(problem: Problem) -> None:
    """Refuse a problem that the page cannot show."""
    noise = problem.noise
    listed = isinstance(noise, Categorical) and len(noise.levels) <= MOST_LEVELS and "weights" not in str(noise)
    shows = (type(noise) in (Fixed, Uniform) or listed) and noise.upper <= HIGHEST and not problem.unusual()
    if not (shows and problem.lengths.fixed and problem.context <= MOST_CONTEXT and problem.dim <= MOST_DIM):
        refuse(
            f"the page shows normal features and tasks, d up to {MOST_DIM}, one n up to {MOST_CONTEXT}, and noise such "
            f"as uniform(0,5), categorical(1,3) or fixed(2), up to {HIGHEST}",
            shown(problem),
            "Pass a problem that it can show, with the same dimension.",
        )


def _rows(model: LinearTransformer) -> list[list[float]]:
    """The four omegas of every layer; those of GD++ have zeros among them."""
    rows: list[list[float]] = np.reshape(model.kernel[0], (-1, len(TERMS))).astype(np.float64).tolist()
    return rows


def _omegas(text: str) -> NDArray[np.float64]:
    """The omegas of all layers, [L, 4]."""
    try:
        rows = [[float(number) for number in layer.split(",")] for layer in text.split(";")]
    except ValueError:
        rows = []
    if not rows or any(len(row) != len(TERMS) for row in rows):
        refuse("an address must have omega=xx,xy,yx,yy;... with four numbers per layer", shown(text), REMEDY)
    return np.array(rows)


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
    target = path_of(path, "the playground needs the name of a file", "playground.html")
    write_whole(target, page().encode())
    return target


def _models() -> list[dict[str, Any]]:
    """The models that the page offers: those of the zoo that have omegas, the small ones for d = 1 and 2 first."""
    small = [name for name in further_models() if name.startswith(f"{PREFIX}d=")]
    table = [f"{PREFIX}{'/'.join(map(str, cell))}" for cell in shipped().records if cell[0] in FAMILIES]
    return [_offer(name) for name in (*small, *table)]


def _offer(name: str) -> dict[str, Any]:
    """A model as the page reads it."""
    model, record = read_model(name)
    family, layers = model.family.name, model.layers
    return {
        "name": name.removeprefix(PREFIX).replace("/", ": ", name.count("=")),
        "short": f"{FAMILIES[family]}, {layers} layer{'s' * (layers > 1)}",
        "family": family,
        "noise": record["spec"]["noise"],
        "d": record["spec"]["dim"],
        "n": record["spec"]["context"],
        "omega": _rows(model),
    }
