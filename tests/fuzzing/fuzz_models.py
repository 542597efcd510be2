"""Damaged model files: each is refused with an `InputError`, or gives the very same model."""

import contextlib
import functools
import json
import math
import tempfile
from pathlib import Path

import numpy as np
from fuzz_cases import Truth, attempt, make_case
from fuzz_mutations import ODD, edit_json, nest_json

from ridgeformer import Diag, GDpp, LinearTransformer, load, save
from ridgeformer.files import pack
from ridgeformer.models.file import fingerprint

NAME = "model.safetensors"


@functools.cache
def sound():
    """Models of every family and form, as files, with their fingerprints."""
    shapes = [("full", 2, 1, 1), ("full", 3, 2, 2), ("diag", 4, 3, 2), ("diag", 4, 3, 2), ("gdpp", 2, 2, 1)]
    models = [
        LinearTransformer.random(family, dim=dim, layers=layers, heads=heads, seed=seed)
        for seed, (family, dim, layers, heads) in enumerate(shapes)
    ]
    models += [models[1].astype(np.float32), LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), 10)]
    models += [LinearTransformer(GDpp(omega=[[0.1, 0.2]]), 3)]
    records = [None, {"loss": 0.25, "spec": {"seed": 3}, "history": [["race", 1, 0.5]]}]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number, model in enumerate(models):
            path = Path(folder, NAME)
            save(model, path, record=records[number % 2])
            found.append(Truth({NAME: path.read_bytes()}, fingerprint(model)))
    return found


def make(rng):
    """One damaged file; see `fuzz_cases.make_case`."""
    return make_case(sound(), rng, sealed)


def sealed(truth, rng):
    """A file with the right checksum and an odd content, as another program might write it."""
    family = rng.choice(("full", "diag", "gdpp"))
    model = LinearTransformer.random(family, dim=2, layers=2, heads=1, seed=rng.randrange(9))
    arrays = {name: np.array(value, subok=False) for name, value in model.family.arrays.items()}
    spec = {"family": family, "dim": 2, "layers": 2, "heads": 1}
    header = {"format": "ridgeformer-model", "version": "2", "spec": json.dumps(spec), "record": '{"loss": 0.5}'}
    for _ in range(rng.randint(1, 2)):
        what = rng.choice(("array", "array", "json", "json", "header", "name"))
        name = rng.choice(sorted(arrays))
        if what == "array":
            arrays[name] = odd_array(arrays[name], rng)
        elif what == "name":
            arrays[rng.choice(("p", "q", "P", "Q", "omega", "self", "", "x"))] = arrays.pop(name)
        elif what == "json":
            name, edit = rng.choice(("spec", "spec", "record")), rng.choice((edit_json, edit_json, nest_json))
            with contextlib.suppress(ValueError, RecursionError):  # it may be no JSON any more
                header[name] = edit(header[name].encode(), rng).decode()
        else:
            header[rng.choice(sorted(header))] = rng.choice((*ODD, "0", "\u0662", "[" * 2000, "3", "-1", "2.0", " 2"))
    return {NAME: pack(arrays, header)}


def odd_array(array, rng):
    """An array of another dtype or shape, or with numbers that are not finite."""
    if array.size == 0 or array.ndim == 0 or array.dtype != np.float64:
        return array
    if rng.random() < 0.3:
        dtypes = (np.float16, np.float32, np.int64, np.uint8, np.bool_, np.complex64)
        bits = rng.randbytes(array.size * 16)
        return np.frombuffer(bits, rng.choice(dtypes), array.size).reshape(array.shape)
    if rng.random() < 0.5:
        return rng.choice((array[..., None], array[0], array[:0], array[..., :1], array.ravel(), array.T, array[:1]))
    changed = array.copy()
    changed.flat[rng.randrange(changed.size)] = rng.choice((math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324))
    return changed


def judge(folder, case):
    """Load the model."""

    def read():
        model = load(folder / NAME)
        if not case.sealed and fingerprint(model) != case.truth.content:
            raise AssertionError(f"it silently gives another model, {model!r}")
        return "loaded" if case.sealed else "unchanged"

    return attempt(read)
