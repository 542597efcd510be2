"""Models on disk: the parameters as safetensors, what they are in its header, and a checksum. Loading runs nothing.

>>> import tempfile, pathlib
>>> from ridgeformer import Diag, LinearTransformer
>>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
>>> save(LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10), path)
>>> read_file(path)[0]
LinearTransformer(diag, dim=10, layers=1, heads=2)
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from ridgeformer import files
from ridgeformer.engine import PAPER_LAYOUT, Layout
from ridgeformer.errors import DamageError, InputError, kind_of, refuse, short
from ridgeformer.models.family import check_registered, family_named
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.validation import keywords

NAMELESS, EXAMPLE = "a model needs the name of a file", "model.safetensors"
FORMAT, VERSION = "ridgeformer-model", 2
MOST_DENSE = 1 << 22  # numbers of P that a small file may stand for: whoever reads it builds P and Q
ModelRecord = dict[str, Any]


@keywords()
def save(model: LinearTransformer, path: str | os.PathLike[str], *, record: Mapping[str, Any] | None = None) -> None:
    """Write a model to a file.

    The file appears under its name only when it is complete; an older one is replaced at that moment.

    Args:
        model: The model.
        path: The file, such as `model.safetensors`.
        record: How the model was made: any dict that JSON can hold. `with_record` reads it back.

    Raises:
        InputError: This is no model, or the record cannot be written as JSON.
        StorageError: The file cannot be written.
    """
    if type(model) is not LinearTransformer:
        refuse("save needs a LinearTransformer itself", kind_of(model), "Write save(model, path).")
    target = files.path_of(path, NAMELESS, EXAMPLE)
    spec: ModelRecord = {"family": check_registered(type(model.family)), "dim": model.dim}
    spec |= {"layers": model.layers, "heads": model.heads}
    if model.layout != PAPER_LAYOUT:
        spec["layout"] = asdict(model.layout)
    header = {"format": FORMAT, "version": str(VERSION), "spec": json.dumps(spec)}
    if record is not None:
        try:
            header["record"] = json.dumps(dict(record))
        except (TypeError, ValueError, RecursionError) as error:
            remedy = "Use text, numbers and lists only."
            refuse("a record must be a dict that JSON can hold", f"one with {error}", remedy)
    arrays = model.family.arrays
    if too_large := _too_large(model):
        refuse("a model file must stand for matrices of a limited size", too_large, "Use fewer layers or dimensions.")
    if (size := sum(value.nbytes for value in arrays.values())) > files.LARGEST // 2:
        refuse(f"a model file may have {files.LARGEST / 2e9:.2g} GB", f"{size / 1e9:.3g}", "Use fewer layers or heads.")
    files.write_whole(target, files.pack(arrays, header))


def read_file(path: str | os.PathLike[str]) -> tuple[LinearTransformer, ModelRecord]:
    """Read a model and the record that was saved with it.

    Args:
        path: The file.

    Returns:
        The model, and the record, empty where there is none.

    Raises:
        InputError: The file does not exist, or its family is not known.
        DamageError: The file is damaged or of another kind.
    """
    place = files.path_of(path, NAMELESS, EXAMPLE)
    spec: ModelRecord = {}
    try:
        header, arrays = files.read_tensors(place, "a model", lambda metadata: spec.update(_spec(place, metadata)))
    except files.DamagedFile as error:
        _refuse(place, str(error))
    return _model(place, spec, arrays), _json(place, header.get("record", "{}"))


def fingerprint(model: LinearTransformer) -> str:
    """Compute a checksum of a model: of its family, dimension, parameters, and the matrices that these stand for.

    Args:
        model: The model.

    Returns:
        The checksum, in hexadecimal digits.
    """
    P, Q = model.family.dense(model.dim)
    arrays = {**model.family.arrays, "dense P": P, "dense Q": Q}
    layout = [] if model.layout == PAPER_LAYOUT else [str(model.layout)]
    return files.digest(arrays, model.family.name, str(model.dim), *layout)


def _too_large(model: LinearTransformer) -> str:
    """Say that a model stands for larger matrices than files may; nothing where it does not."""
    stored = sum(value.size for value in model.family.arrays.values())
    numbers = model.layers * model.heads * (model.width + 1) ** 2
    if numbers <= max(MOST_DENSE, stored):
        return ""
    return f"its P has {numbers:,} numbers; a file may stand for {MOST_DENSE:,}, or for as many as it stores"


def _model(path: Path, spec: ModelRecord, arrays: files.Arrays) -> LinearTransformer:
    """The model with these arrays, if its spec fits them."""
    try:
        layout = Layout(**spec.get("layout", {}))
        model = LinearTransformer(family_named(spec["family"])(**arrays), spec["dim"], layout)
    except (InputError, KeyError, TypeError) as error:
        _refuse(path, f"its parameters do not fit its spec {short(spec)} ({short(error)})")
    if (model.layers, model.heads) != (spec.get("layers"), spec.get("heads")):
        sizes = f"{model.layers} layers and {model.heads} heads"
        _refuse(path, f"its parameters have {sizes}, its spec says {spec.get('layers')} and {spec.get('heads')}")
    if too_large := _too_large(model):
        _refuse(path, too_large)
    return model


def _spec(path: Path, header: Mapping[str, str]) -> ModelRecord:
    """The description of the model in the header, before any array is read."""
    if header.get("format") != FORMAT:
        _refuse(path, "it is a safetensors file of some other program")
    version = header.get("version", "")
    if not (version.isascii() and version.isdigit() and len(version) <= 9):
        _refuse(path, f"its format version is {version[:20]!r}")
    if int(version) > VERSION:
        received = f"version {version} in {short(path)}"
        refuse(f"this ridgeformer reads format versions up to {VERSION}", received, "Upgrade it to load the file.")
    if int(version) > 1 and files.CHECKSUM not in header:
        _refuse(path, "it has no checksum")
    spec = _json(path, header.get("spec", ""))
    if not isinstance(spec.get("family"), str) or type(spec.get("dim")) is not int:
        _refuse(path, "its header is damaged")
    try:
        family_named(spec["family"])
    except InputError as error:
        raise InputError(f"{short(path)}: {error}") from error
    return spec


def _json(path: Path, text: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        if isinstance(value := files.parse_json(text), dict):
            return value
    _refuse(path, "its header is damaged")


def _refuse(path: Path, why: str) -> NoReturn:
    raise DamageError(
        f"a model file must be one that ridgeformer saved; {short(path)} is not: {short(why, 400)}. "
        "Name another, or save the model again."
    )
