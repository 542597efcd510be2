"""Damaged folders of finished runs: each is refused with an `InputError`, or gives the very same record and model.

Where a run is looked for in order to be reused, a damaged one is set aside with a `DamagedRunWarning`, and not found.
"""

import functools
import json
import tempfile
import warnings
from dataclasses import dataclass, fields
from typing import Any

import fuzz_cases
from fuzz_mutations import edit_json, nest_json, split
from safetensors.numpy import load

from ridgeformer import LinearTransformer, Problem, Training
from ridgeformer.evaluation import Loss
from ridgeformer.files import pack
from ridgeformer.losses import BelowFloorWarning
from ridgeformer.models.file import fingerprint
from ridgeformer.training import PaperProtocol, Search
from ridgeformer.training.spec import make_spec
from ridgeformer.training.store import DamagedRunWarning, Folder
from ridgeformer.training.store.files import checksum, read_run

RECORD, MODEL, SPEC = "record.json", "model.safetensors", "spec.json"
DAMAGES = ([RECORD], [RECORD], [RECORD], [MODEL], [MODEL], [SPEC], [RECORD, MODEL])  # files that are damaged together

PROBLEM = Problem(2, 5, "uniform(0,3)")


@dataclass(frozen=True)
class Truth:
    """A finished run: its files, what it was asked for, its record as text, and its model's fingerprint."""

    files: dict[str, bytes]
    spec: dict[str, Any]
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
    journal = runs.journal(spec.name, spec.as_dict(), {})
    runs.store(spec.name, model, training.record(), journal)
    folder = runs.path / spec.name
    files = {name: (folder / name).read_bytes() for name in (RECORD, MODEL, SPEC)}
    return Truth(files, spec.as_dict(), json.dumps(training.record(), sort_keys=True), fingerprint(model))


def make(rng):
    """One damaged run; see `fuzz_cases.make_case`."""
    return fuzz_cases.make_case(sound(), rng, sealed, DAMAGES)


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
    truth = case.truth
    if case.sealed:
        warnings.simplefilter("ignore", BelowFloorWarning)  # its loss and its floor may be any numbers
    outcomes = {_read(folder, case), _load(folder, case)}
    found = _found(folder, truth) if not case.sealed else ""
    if "refused" not in outcomes and found == "refused":
        raise AssertionError("it can be read, but is not found")
    return "refused" if "refused" in outcomes else "loaded" if case.sealed else "unchanged"


def _read(folder, case):
    def read():
        model, record = read_run(folder)
        if not case.sealed:
            _compare(case.truth, model, {name: record[name] for name in json.loads(case.truth.record)})

    return fuzz_cases.attempt(read)


def _load(folder, case):
    def load():
        training = Training.load(folder)
        if not case.sealed:
            _compare(case.truth, training.model, training.record())

    return fuzz_cases.attempt(load)


def _compare(truth, model, record):
    if fingerprint(model) != truth.model:
        raise AssertionError(f"it silently gives another model, {model!r}")
    if json.dumps(record, sort_keys=True) != truth.record:
        raise AssertionError(f"it silently gives another record, {json.dumps(record)[:2000]}")


def _found(folder, truth):
    """Look for the run as training does: it is the same, or it is not found, with a warning, and nothing is lost."""
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def find():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            kept = Folder(folder.parent).find(folder.name, truth.spec)
        if any(warning.category is not DamagedRunWarning for warning in caught):
            raise AssertionError(f"it warns of something else: {caught[0].message}")
        for warning in caught:
            fuzz_cases.check_message(warning.message)
        if kept is not None and (folder / SPEC).read_bytes() != truth.files[SPEC]:
            raise AssertionError("spec.json is still damaged")
        if kept is not None:
            model, record, _ = kept
            _compare(truth, model, {name: record[name] for name in json.loads(truth.record)})
        elif RECORD in before and not caught:
            raise AssertionError("it is not found, and there was no warning")
        after = {path.read_bytes() for path in folder.iterdir() if path.is_file()}
        if not after >= set(before.values()):
            raise AssertionError("a file is lost")

    return fuzz_cases.attempt(find)
