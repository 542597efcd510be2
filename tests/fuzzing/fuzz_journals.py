"""Damaged journals: opening one never fails, and what it then recalls is what was kept, bit for bit, or nothing.

What is lost is reported by a `DamagedRunWarning`, and the history ends where the recalled pieces end.
"""

import functools
import json
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fuzz_cases
import numpy as np
from fuzz_cases import Case, Instead
from fuzz_mutations import BYTES, TENSORS, damaged, edit_json, nest_json, split

from ridgeformer.files import pack
from ridgeformer.training.store import DamagedRunWarning, Journal, _seal

NAME = "journal.safetensors"
WRITER = {"run": "diag-2x1", "ridgeformer": "0.2.0", "engine": "numpy"}


@dataclass(frozen=True)
class Truth:
    """What a journal holds: the content of its file, the pieces, and the history with its length at every piece."""

    content: bytes
    pieces: dict[str, dict[str, Any]]
    history: list[tuple[str, int, float]]
    marks: dict[str, int]


@functools.cache
def sound():
    """Journals as runs leave them: of BFGS, of SOAP, of the paper's protocol, of GD++, and of another writer."""
    rng = np.random.default_rng(0)
    descents = {
        f"{phase}/{i}": {"point": rng.normal(size=8), "inverse": rng.normal(size=(16, 16)), "facts": rng.normal(size=3)}
        for phase in ("race", "best", "final")
        for i in range(3)
    }
    state = {"point": (2, 3, 3), "mean": (2, 3, 3), "taken": (1,), "hard": (0, 4), "loss": (1,)}
    rounds = {
        f"descent/0/{turn}": {name: rng.normal(size=shape).astype(np.float32) for name, shape in state.items()}
        for turn in range(5)
    }
    paper = {f"step/{t}000": {"point/p": rng.normal(size=(2, 1, 2)), "taken": np.array([t])} for t in (1, 2, 3)}
    gdpp = {"quadrature": {"omega": rng.normal(size=(2, 2))}}
    return [
        _written(descents, [], WRITER),
        _written(rounds, [*rounds][:2], WRITER),
        _written(paper, [*paper][:2], WRITER),
        _written(gdpp, [], WRITER),
        _written({}, [], WRITER),
        _written(gdpp, [], WRITER | {"run": "diag-3x1"}),
    ]


def _written(pieces, forgotten, writer):
    marks = {}
    with tempfile.TemporaryDirectory() as folder, patch.object(Journal, "seconds", 2.5):
        journal = Journal(Path(folder, NAME), interval=float("inf"), writer=writer)
        for number, (name, arrays) in enumerate(pieces.items()):
            journal.note(name.split("/")[0], 1000, 1 / (number + 3))
            journal.keep(name, arrays)
            marks[name] = number + 1
        for name in forgotten:
            journal.forget(name)
        journal.write()
        content = journal.path.read_bytes()
    kept = {name: arrays for name, arrays in pieces.items() if name not in forgotten}
    return Truth(content, kept, journal.history, marks)


def make(rng):
    """One damaged journal."""
    *mine, other = sound()
    truth, kind = rng.choice(mine), rng.random()
    if kind < 0.005:
        return Case("another thing", {NAME: rng.choice([*Instead])}, truth)
    if kind < 0.01:
        return Case("another run's", {NAME: other.content}, truth)
    if kind < 0.05:
        return Case("sealed", {NAME: sealed(truth, rng)}, truth, sealed=True)
    what, changed = damaged(truth.content, rng, TENSORS if truth.pieces else BYTES)
    return Case(what, {NAME: changed}, truth)


def sealed(truth, rng):
    """A journal with the right checksums and odd facts, as another program might write it."""
    header, _ = split(truth.content)
    metadata = header["__metadata__"]
    facts = rng.choice((edit_json, edit_json, nest_json))(metadata["facts"].encode(), rng).decode()
    metadata |= {"facts": facts, "facts checksum": _seal(facts)}
    tensors = {f"{n}/{key}": value for n, arrays in enumerate(truth.pieces.values()) for key, value in arrays.items()}
    return pack(tensors, metadata)


def judge(folder, case):
    """Open the journal and compare what it recalls."""
    truth = case.truth
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        journal = Journal(folder / NAME, writer=WRITER)
    for warning in caught:
        if warning.category is not DamagedRunWarning:
            raise AssertionError(f"it warns of something else: {warning.category.__name__}: {warning.message}")
        fuzz_cases.check_message(warning.message)
    if case.sealed:
        return "opened"
    names = [name for name in truth.pieces if journal.recall(name) is not None]
    if set(journal._pieces) != set(names) or names != [*truth.pieces][: len(names)]:
        raise AssertionError(f"it recalls {[*journal._pieces]}, not the first of {[*truth.pieces]}")
    for name in names:
        if _bits(journal.recall(name)) != _bits(truth.pieces[name]):
            raise AssertionError(f"it recalls another {name}")
    whole = len(names) == len(truth.pieces) and not caught
    expected = len(truth.history) if whole else max((truth.marks[name] for name in names), default=0)
    if json.dumps(journal.history) != json.dumps(truth.history[:expected]):
        raise AssertionError(f"its history has {len(journal.history)} entries, not the first {expected}")
    missing = not (folder / NAME).exists()
    if not whole and not caught and not missing:
        raise AssertionError("something is lost, and there was no warning")
    return "unchanged" if whole else "lost with a warning" if not names else "kept up to the damage"


def _bits(arrays):
    return {name: (value.dtype.str, value.shape, value.tobytes()) for name, value in arrays.items()}
