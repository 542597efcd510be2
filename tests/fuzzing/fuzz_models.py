"""Damaged model files: each is refused with an `InputError`, or gives the very same model."""

import contextlib
import functools
import json
import math
import tempfile
from pathlib import Path

import fuzz_cases
import numpy as np
from fuzz_cases import Case, Instead
from fuzz_mutations import ODD, TENSORS, damaged, edit_json, nest_json

from ridgeformer import Diag, GDpp, LinearTransformer, load, save
from ridgeformer.files import pack
from ridgeformer.models.file import fingerprint

NAME = "model.safetensors"


@functools.cache
def sound():
    """Models of every family and form, as files, with their fingerprints."""
    models = [
        LinearTransformer.random(family, dim=dim, layers=layers, heads=heads, seed=seed)
        for family, dim, layers, heads, seed in [
            ("full", 2, 1, 1, 0),
            ("full", 3, 2, 2, 1),
            ("diag", 4, 3, 2, 2),
            ("diag", 4, 3, 2, 3),
            ("gdpp", 2, 2, 1, 4),
        ]
    ]
    models += [models[1].astype(np.float32)]
    models += [
        LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), 10),
        LinearTransformer(GDpp(omega=[[0.1, 0.2]]), 3),
    ]
    records = [None, {"loss": 0.25, "spec": {"seed": 3}, "history": [["race", 1, 0.5]]}]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number, model in enumerate(models):
            path = Path(folder, NAME)
            save(model, path, record=records[number % 2])
            found.append((path.read_bytes(), fingerprint(model)))
    return found


def make(rng):
    """One damaged file."""
    content, mark = rng.choice(sound())
    kind = rng.random()
    if kind < 0.005:
        return Case("another thing", {NAME: rng.choice([*Instead])}, mark)
    if kind < 0.1:
        return Case("sealed", {NAME: sealed(rng)}, mark, sealed=True)
    what, changed = damaged(content, rng, TENSORS)
    return Case(what, {NAME: changed}, mark)


def sealed(rng):
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
    return pack(arrays, header)


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
        if not case.sealed and fingerprint(model) != case.truth:
            raise AssertionError(f"it silently gives another model, {model!r}")
        return "loaded" if case.sealed else "unchanged"

    return fuzz_cases.attempt(read)
