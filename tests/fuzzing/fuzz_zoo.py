"""Damaged zoos: each is refused with an `InputError`, or gives the very same records and models."""

import contextlib
import functools
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from fuzz_cases import Truth, attempt, make_case
from fuzz_mutations import edit_json, nest_json, split
from safetensors.numpy import load

from benchmarks.shipped import write
from ridgeformer import LinearTransformer, zoo
from ridgeformer.files import checksum, pack
from ridgeformer.models.file import fingerprint
from ridgeformer.zoo import TrainingRecord, Zoo

RECORDS, MODELS = "zoo.json", "zoo.safetensors"
DAMAGES = ([RECORDS], [RECORDS], [MODELS], [MODELS], [RECORDS, MODELS])  # files that are damaged together


@functools.cache
def sound():
    """Three zoos: two of the same models with other weights, as after training again, and one of a single model."""
    cells = [("gdpp", 1), ("diag", 2), ("full", 1)]
    return [_written(cells, 0), _written(cells, 10), _written(cells[:1], 0)]


def _written(cells, start):
    made, models = {}, {}
    for family, layers in cells:
        cell = (family, layers, "uniform(0,3)")
        for seed in (0, 1):
            spec = {"dim": 2, "context": 5, "noise": cell[2], "family": family, "layers": layers, "heads": 1}
            facts = {"loss": 0.5 + seed, "error": 0.01, "floor": 0.25, "largest": 9.5, "exploded": 0}
            how = {"status": "converged", "message": "2 starts", "seconds": 0.5, "made_with": {"engine": "numpy"}}
            made.setdefault(cell, {})[seed] = TrainingRecord(spec=spec | {"seed": seed}, sequences=100, **facts, **how)
            model = LinearTransformer.random(family, dim=2, layers=layers, seed=start + seed)
            models[cell, seed] = model
    whole = Zoo(made, models)
    with tempfile.TemporaryDirectory() as folder:
        write(whole, Path(folder))
        files = {name: Path(folder, name).read_bytes() for name in (RECORDS, MODELS)}
        return Truth(files, content(zoo.read(folder)))


def content(found):
    """All that a zoo says, through its own methods."""
    said = [
        [
            *cell,
            {seed: asdict(found.record(*cell, seed=seed)) for seed in runs},
            fingerprint(found.model(*cell)),
            [fingerprint(model) for (other, _), model in found.models.items() if other == cell],
        ]
        for cell, runs in sorted(found.records.items())
    ]
    return json.dumps(said, sort_keys=True)


def make(rng):
    """One damaged zoo; see `fuzz_cases.make_case`."""
    return make_case(sound(), rng, sealed, DAMAGES, sound())


def sealed(truth, rng):
    """A zoo with the right checksums and an odd content, as another program might write it."""
    metadata = split(truth.files[MODELS])[0]["__metadata__"]
    del metadata["checksum"]
    arrays = load(truth.files[MODELS])
    names = rng.sample(sorted(arrays), rng.choice((0, 1, len(arrays), len(arrays))))
    odd = ("full/1/uniform(0,3)/0/P", "x/1/uniform(0,3)/0/P", "////", "", "a/b/c/d/e", "diag/2/x/0/p", "diag/2/x/0/p/q")
    tensors = {(rng.choice(odd) if rng.random() < 0.03 else name): arrays[name] for name in names}
    changed = rng.choice((edit_json, edit_json, nest_json))(truth.files[RECORDS], rng)
    with contextlib.suppress(LookupError, TypeError, ValueError, RecursionError):  # it may be no zoo any more
        facts = json.loads(changed)
        facts |= {"checksum": zoo.shipped_models.checksum_of(facts["runs"]), "models": checksum(tensors, metadata)}
        changed = json.dumps(facts).encode()
    return {RECORDS: changed, MODELS: pack(tensors, metadata)}


def judge(folder, case):
    """Read the zoo."""

    def read():
        found = zoo.read(folder)
        if not case.sealed and content(found) != case.truth.content:
            raise AssertionError("it silently gives another zoo")
        return "loaded" if case.sealed else "unchanged"

    return attempt(read)
