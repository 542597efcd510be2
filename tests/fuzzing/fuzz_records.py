"""Damaged folders of finished runs: each is refused with an `InputError`, or gives the very same record and model.

Where a run is looked for in order to be reused, a damaged one is set aside with a `DamagedRunWarning`, and not found.
"""

import functools
import json
import tempfile
import warnings
from dataclasses import fields
from typing import NamedTuple

from fuzz_cases import Truth, attempt, make_case, with_damage_warnings
from fuzz_mutations import edit_json, nest_json, split
from safetensors.numpy import load

from ridgeformer import LinearTransformer, Problem, Training
from ridgeformer.evaluation import Loss
from ridgeformer.files import pack
from ridgeformer.losses import BelowFloorWarning
from ridgeformer.models.file import fingerprint
from ridgeformer.training import PaperProtocol, Search
from ridgeformer.training.spec import Spec, make_spec
from ridgeformer.training.store import Folder, checksum, read_run

RECORD, MODEL, SPEC = "record.json", "model.safetensors", "spec.json"
DAMAGES = ([RECORD], [RECORD], [RECORD], [MODEL], [MODEL], [SPEC], [RECORD, MODEL])  # files that are damaged together

PROBLEM = Problem(2, 5, "uniform(0,3)")


class Finished(NamedTuple):
    """What the run was asked for, its record as text, and its model's fingerprint."""

    spec: Spec
    record: str
    model: str


@functools.cache
def sound():
    """Runs of several families and depths; some differ in their seed only, so that their files could be mixed up."""
    kinds = [("gdpp", 1, 0), ("diag", 2, 0), ("diag", 2, 1), ("full", 1, 0), ("full", 2, 0)]
    with tempfile.TemporaryDirectory() as folder:
        return [_stored(Folder(folder), *kind) for kind in kinds]


def _stored(runs, family, layers, seed):
    protocol = PaperProtocol(steps=100, batch=8) if family == "full" else Search(effort=0.2)
    spec = make_spec(PROBLEM, family, layers=layers, heads=1, seed=seed, protocol=protocol, sequences=1000)
    model = LinearTransformer.random(family, dim=2, layers=layers, seed=seed)
    numbers = {"str": "exact", "int": 7, "float": 0.1 + seed / 3, "bool": True}
    numbers |= {"float | None": 0.01 if seed else None}  # asked for, or not
    training = Training(
        model=model,
        spec=spec,
        status="converged",
        message="3 starts; the last descent converged",
        result=Loss(**{field.name: numbers[str(field.type)] for field in fields(Loss)}),
        points=(("race", 1024, 0.5 + seed, 0.1), ("best", 3072, 1 / 3, 0.2)),
        seconds=0.25,
        total_seconds=1.5,
        made_with={"ridgeformer": "0.2.0", "engine": "numpy", "threads": 2},
    )
    runs.journal(spec, {})
    runs.store(training)
    folder = runs.place(spec)
    files = {name: (folder / name).read_bytes() for name in (RECORD, MODEL, SPEC)}
    record = json.dumps(training.record(), sort_keys=True)
    return Truth(files, Finished(spec, record, fingerprint(model)))


def make(rng):
    """One damaged run; see `fuzz_cases.make_case`."""
    return make_case(sound(), rng, sealed, DAMAGES, sound())


def sealed(truth, rng):
    """A record and a model with the right checksums and an odd content, as another program might write them."""
    changed = rng.choice((edit_json, edit_json, nest_json))(truth.files[RECORD], rng)
    try:
        record = json.loads(changed)
        inside = {name: value for name, value in record.items() if name not in ("model", "checksum")}
        metadata = split(truth.files[MODEL])[0]["__metadata__"]
        del metadata["checksum"]
        model = pack(load(truth.files[MODEL]), metadata | {"record": json.dumps(inside)})
        changed = json.dumps({**record, "checksum": checksum(record)}).encode()
    except (ValueError, RecursionError):
        model = truth.files[MODEL]
    return {RECORD: changed, MODEL: model}


def judge(folder, case):
    """Read the run in the three ways that there are."""
    if case.sealed:
        warnings.simplefilter("ignore", BelowFloorWarning)  # its loss and its floor may be any numbers

    def read(run):
        if not case.sealed:
            _compare(case.truth.content, *run())

    outcomes = {attempt(lambda: read(lambda: read_run(folder))), attempt(lambda: read(lambda: _loaded(folder)))}
    found = "" if case.sealed else attempt(lambda: _find(folder, case.truth))
    if "refused" not in outcomes and found == "refused":
        raise AssertionError("it can be read, but is not found")
    return "refused" if "refused" in outcomes else "loaded" if case.sealed else "unchanged"


def _loaded(folder):
    training = Training.load(folder)
    return training.model, training.record()


def _compare(finished, model, record):
    if fingerprint(model) != finished.model:
        raise AssertionError(f"it silently gives another model, {model!r}")
    text = json.dumps({name: record[name] for name in json.loads(finished.record)}, sort_keys=True)
    if text != finished.record:
        raise AssertionError(f"it silently gives another record, {text[:2000]}")


def _find(folder, truth):
    """Look for the run as training does: it is the same, or it is not found, with a warning, and nothing is lost."""
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    runs = Folder(folder.parent)
    runs.place = lambda spec: folder
    kept, warned = with_damage_warnings(lambda: runs.find(truth.content.spec))
    if kept is not None:
        if (folder / SPEC).read_bytes() != truth.files[SPEC]:
            raise AssertionError("spec.json is still damaged")
        _compare(truth.content, *kept[:2])
    elif RECORD in before and not warned:
        raise AssertionError("it is not found, and there was no warning")
    if not {path.read_bytes() for path in folder.iterdir() if path.is_file()} >= set(before.values()):
        raise AssertionError("a file is lost")
