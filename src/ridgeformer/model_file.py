"""Models on disk: the parameters as safetensors, what they are in its header. Loading runs nothing.

>>> import tempfile, pathlib
>>> from ridgeformer import Diag, LinearTransformer
>>> path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
>>> save(LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), dim=10), path)
>>> load(path)
LinearTransformer(diag, dim=10, layers=1, heads=2)
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ridgeformer.errors import InputError
from ridgeformer.families import FAMILIES
from ridgeformer.model import LinearTransformer

__all__ = ["load", "read_record", "save"]

FORMAT, VERSION = "ridgeformer-model", 1


def save(model: LinearTransformer, path: str | os.PathLike[str], record: Mapping[str, Any] | None = None) -> None:
    """Write `model`, with any JSON-able `record` (how it was made) beside its spec.

    The file appears under its name only when it is complete; an older one is replaced at that moment.
    """
    from safetensors.numpy import save as to_bytes

    if not isinstance(model, LinearTransformer):
        raise InputError(f"save needs a LinearTransformer; got a {type(model).__name__}. Write save(model, path).")
    target = _path(path)
    spec = {"family": model.family.name, "dim": model.dim, "layers": model.layers, "heads": model.heads}
    header = {"format": FORMAT, "version": str(VERSION), "spec": json.dumps(spec)}
    if record is not None:
        try:
            header["record"] = json.dumps(dict(record))
        except (TypeError, ValueError) as error:
            raise InputError(
                f"a record must be a dict that JSON can hold; got one with {error}. Convert it."
            ) from error
    arrays = {name: np.ascontiguousarray(value) for name, value in model.family.arrays.items()}
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(to_bytes(arrays, metadata=header))
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(
            f"a model must go to a writable file; {target} is not ({error.strerror}). Choose another."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> LinearTransformer:
    """Read a model that `save` wrote."""
    path = _path(path)
    header, arrays = _read(path)
    spec = _spec(path, header)
    if isinstance(spec.get("family"), str) and spec["family"] not in FAMILIES:
        raise InputError(
            f"a model's family must be one of {', '.join(FAMILIES)}; {path} has {spec['family']!r}. "
            "Import the module that defines that family first."
        )
    try:
        family = FAMILIES[spec["family"]](**arrays)
        model = LinearTransformer(family, spec["dim"])
    except (InputError, KeyError, TypeError) as error:
        _refuse(path, f"its parameters do not fit its spec {spec} ({error})")
    if (model.layers, model.heads) != (spec.get("layers"), spec.get("heads")):
        found = f"{model.layers} layers and {model.heads} heads"
        _refuse(path, f"its parameters have {found}, its spec says {spec.get('layers')} and {spec.get('heads')}")
    return model


def read_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The record that was saved with a model, or an empty one."""
    path = _path(path)
    header, _ = _read(path)
    _spec(path, header)
    return _json(path, header.get("record", "{}"))


def _path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike) or not Path(path).name:
        raise InputError(f"a model needs the name of a file; got {path!r}. Pass a path such as model.safetensors.")
    return Path(path)


def _read(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    if path.is_dir():
        raise InputError(f"a model must be a file; {path} is a folder. Name the .safetensors file in it.")
    try:
        with safe_open(str(path), framework="numpy") as file:
            return dict(file.metadata() or {}), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise InputError(f"a model file must exist; {path} does not. Check the path.") from error
    except SafetensorError as error:
        _refuse(path, f"it is truncated, corrupt or of another kind ({error})")
    except OSError as error:
        raise InputError(f"a model file must be readable; {path} is not ({error}). Check its permissions.") from error
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        _refuse(path, f"it holds tensors that NumPy cannot read ({error})")


def _spec(path: Path, header: Mapping[str, str]) -> dict[str, Any]:
    if header.get("format") != FORMAT:
        _refuse(path, "it is a safetensors file of some other program")
    version = header.get("version", "")
    if not (version.isascii() and version.isdigit()):
        _refuse(path, f"its format version is {version!r}")
    if int(version) > VERSION:
        raise InputError(
            f"{path} has format version {version}; this ridgeformer reads up to {VERSION}. Upgrade it to load the file."
        )
    return _json(path, header.get("spec", ""))


def _json(path: Path, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        _refuse(path, "its header is damaged")
    return value


def _refuse(path: Path, why: str) -> NoReturn:
    raise InputError(
        f"a model file must be one that ridgeformer saved; {path} is not: {why}. Name another, or save the model again."
    )
