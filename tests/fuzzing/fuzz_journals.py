"""Damaged journals: opening one never fails, and what it then recalls is what was kept, bit for bit, or nothing.

What is lost is reported by a `DamagedRunWarning`, and the history ends where the recalled pieces end.
"""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from fuzz_cases import Truth, make_case, with_damage_warnings
from fuzz_mutations import edit_json, nest_json, split

from ridgeformer.files import pack
from ridgeformer.training.store import Journal, _seal

NAME = "journal.safetensors"
WRITER = {"run": "diag-2x1", "ridgeformer": "0.2.0", "engine": "numpy"}


class Kept(NamedTuple):
    """What a journal holds: the pieces, and the history with its length at every piece."""

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
    return Truth({NAME: content}, Kept(kept, journal.history, marks))


def make(rng):
    """One damaged journal; see `fuzz_cases.make_case`."""
    *mine, other = sound()
    return make_case(mine, rng, sealed, strangers=[other])


def sealed(truth, rng):
    """A journal with the right checksums and odd facts, as another program might write it."""
    metadata = split(truth.files[NAME])[0]["__metadata__"]
    facts = rng.choice((edit_json, edit_json, nest_json))(metadata["facts"].encode(), rng).decode()
    metadata |= {"facts": facts, "facts checksum": _seal(facts)}
    pieces = enumerate(truth.content.pieces.values())
    return {NAME: pack({f"{n}/{key}": v for n, arrays in pieces for key, v in arrays.items()}, metadata)}


def judge(folder, case):
    """Open the journal and compare what it recalls."""
    truth = case.truth.content
    journal, warned = with_damage_warnings(lambda: Journal(folder / NAME, writer=WRITER))
    if case.sealed:
        return "opened"
    names = [name for name in truth.pieces if journal.recall(name) is not None]
    if set(journal._pieces) != set(names) or names != [*truth.pieces][: len(names)]:
        raise AssertionError(f"it recalls {[*journal._pieces]}, not the first of {[*truth.pieces]}")
    for name in names:
        if _bits(journal.recall(name)) != _bits(truth.pieces[name]):
            raise AssertionError(f"it recalls another {name}")
    whole = len(names) == len(truth.pieces) and not warned
    expected = len(truth.history) if whole else max((truth.marks[name] for name in names), default=0)
    if json.dumps(journal.history) != json.dumps(truth.history[:expected]):
        raise AssertionError(f"its history has {len(journal.history)} entries, not the first {expected}")
    if not whole and not warned and (folder / NAME).exists():
        raise AssertionError("something is lost, and there was no warning")
    return "unchanged" if whole else "lost with a warning" if not names else "kept up to the damage"


def _bits(arrays):
    return {name: (value.dtype.str, value.shape, value.tobytes()) for name, value in arrays.items()}
