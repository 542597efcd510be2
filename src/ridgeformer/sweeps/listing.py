"""The runs of a folder: the finished, the unfinished, and the damaged ones, each with what is wrong with it.

>>> import tempfile
>>> from ridgeformer import Problem, train
>>> out = tempfile.mkdtemp()
>>> done = train(Problem(dim=2, context=4, noise="fixed(1)"), "gdpp", layers=1, sequences=500, out=out)
>>> [(entry.status, entry.loss == done.loss) for entry in list_runs(out)]
[('converged', True)]
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ridgeformer.engine import PAPER_LAYOUT
from ridgeformer.errors import InputError, RidgeformerError, shown
from ridgeformer.evaluation.table import SAYS_NOTHING
from ridgeformer.jsonable import jsonable
from ridgeformer.losses import warn_below_floor
from ridgeformer.training.protocols import NAMES, describe
from ridgeformer.training.stored import AGAIN, MODEL, RECORD, SPEC, is_run, read_record

__all__ = ["Entry", "list_runs", "protocol_of", "read_entry"]

LARGEST = 1 << 28  # bytes of a file of JSON
SHAPE: dict[str, tuple[type, ...]] = {"family": (str,), "layers": (int,), "heads": (int,), "seed": (int,)}
BUILT_IN: dict[str, tuple[type, ...]] = {"noise": (str,), "dim": (int,), "context": (int, str)}
OWN: dict[str, tuple[type, ...]] = {"problem": (str,), "arguments": (dict,)}  # of a problem of the user's own
HOW: dict[str, tuple[type, ...]] = {"protocol": (dict,), "layout": (dict,), "init": (str,)}
PARTS = ("features", "tasks", "query")


@dataclass(frozen=True)
class Entry:
    """A run as its folder shows it, without its model.

    Attributes:
        folder: Where it is.
        spec: What was asked for, as JSON; None if the run is damaged.
        record: All that is stored about a finished run; None if the run is unfinished or damaged.
        damage: What is wrong with a damaged run, and what to do; None if nothing is.
    """

    folder: Path
    spec: dict[str, Any] | None = None
    record: dict[str, Any] | None = None
    damage: str | None = None

    @property
    def status(self) -> str:
        """The status of training; or `unfinished`, or `damaged`."""
        if self.record is not None:
            return str(self.record["status"])
        return "unfinished" if self.damage is None else "damaged"

    @property
    def details(self) -> str:
        """What the name of the folder does not show of the problem: features, tasks and queries, or arguments."""
        return "" if self.spec is None else _details(self.spec)

    @property
    def protocol(self) -> str:
        """How the run was trained: the protocol, and what differs from its defaults, from a fresh start and layout."""
        return "" if self.spec is None else protocol_of(self.spec)

    @property
    def exploded(self) -> int | None:
        """How many fresh sequences exploded; None where that is not known."""
        found = None if self.record is None else self.record["result"].get("exploded")
        return found if type(found) is int else None

    @property
    def loss(self) -> float:
        """The adjusted loss; infinite where there is none."""
        return math.inf if self.record is None else float(self.record["result"]["loss"])

    @property
    def ratio(self) -> float | None:
        """Loss over floor; None where there is no loss, or where the ratio says nothing; see `Result.ratio`."""
        ratio = None if self.record is None else self.record["result"]["ratio"]
        return None if ratio is None or ratio >= SAYS_NOTHING else float(ratio)


def list_runs(folder: str | os.PathLike[str]) -> list[Entry]:
    """List the runs in the sub-folders of a folder. A loss that is below its floor is a `BelowFloorWarning`.

    Args:
        folder: A folder of runs. Sub-folders that are no runs are left out.

    Returns:
        The finished runs by problem, the best first; then the unfinished and the damaged ones by name.

    Raises:
        InputError: The folder cannot be read.
    """
    try:
        entries = [read_entry(place) for place in sorted(Path(folder).iterdir()) if is_run(place)]
    except OSError as error:
        raise InputError(
            f"runs are stored in a folder; {shown(Path(folder), 200)} cannot be read as one ({error.strerror}). "
            "Check the path."
        ) from error
    for entry in entries:
        _check_floor(entry)
    return sorted(entries, key=_order)


def read_entry(folder: Path) -> Entry:
    """Read what the folder of a run says about it; all that can be wrong with it becomes `Entry.damage`.

    Args:
        folder: The folder of one run.

    Returns:
        The run.
    """
    try:
        if not os.path.lexists(folder / RECORD):
            _check_file(folder / SPEC, LARGEST)
            return Entry(folder, _checked_spec(json.loads((folder / SPEC).read_bytes())))
        _check_file(folder / RECORD, LARGEST)
        _check_file(folder / MODEL)
        record = read_record(folder)
        _check_numbers(record)
        return Entry(folder, _checked_spec(record["spec"]), jsonable(record))
    except RidgeformerError as error:
        return Entry(folder, damage=shown(error, 500))
    except OSError as error:
        what = f"{Path(error.filename or folder).name} is not ({error.strerror})"
        remedy = f"Check its permissions, or: {AGAIN[0].lower()}{AGAIN[1:]}"
        return Entry(folder, damage=f"the files of a run must be readable; {what}. {remedy}")
    except Exception as error:  # whatever a file of any content makes its readers raise
        why = f"{type(error).__name__}: {shown(error, 120)}"
        return Entry(
            folder, damage=f"the files of a run must be complete; some files of this run are damaged ({why}). {AGAIN}"
        )


def _check_file(path: Path, most: float = math.inf) -> None:
    """Refuse what would block or fill the memory when it is read."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path.name} must be a file; it is a folder, a pipe or a device. {AGAIN}")
    if found.st_size > most:
        raise InputError(f"{path.name} must have at most {most:,} bytes; it has {found.st_size:,}. {AGAIN}")


def _checked_spec(spec: Any) -> dict[str, Any]:
    """A spec of JSON; raises if it is none."""
    kinds: dict[str, tuple[type, ...]] = SHAPE | (OWN if "problem" in spec else BUILT_IN)
    optional: dict[str, tuple[type, ...]] = {name: (str,) for name in PARTS if name in spec and "problem" not in spec}
    optional |= {name: kind for name, kind in HOW.items() if name in spec}
    found: dict[str, Any] = {name: spec[name] for name in kinds | optional}
    for name, kind in (kinds | optional).items():
        if type(found[name]) not in kind:
            wanted = " or ".join(one.__name__ for one in kind)
            raise InputError(f"{name} must be of type {wanted}; it is {shown(found[name])}. {AGAIN}")
    return found


def _check_numbers(record: dict[str, Any]) -> None:
    """Refuse a record whose numbers are none: there is no place for it among the others."""
    if not isinstance(record["status"], str):
        raise InputError(f"the status of a run must be text; it is {shown(record['status'])}. {AGAIN}")
    for name in ("loss", "ratio"):
        value = record["result"][name]
        if name == "ratio" and value is None:
            continue
        if type(value) not in (int, float) or not math.isfinite(value):
            raise InputError(f"the {name} of a run must be a finite number; it is {shown(value)}. {AGAIN}")


def _check_floor(entry: Entry) -> None:
    """Warn if the loss of a finished run is below its floor."""
    result = {} if entry.record is None else entry.record["result"]
    numbers: list[Any] = [result.get(name) for name in ("loss", "error", "floor", "floor_error")]
    if all(type(number) in (int, float) for number in numbers):
        with contextlib.suppress(OverflowError):  # a whole number of a damaged record that no float can hold
            warn_below_floor(entry.folder.name, *map(float, numbers))


def _order(entry: Entry) -> tuple[Any, ...]:
    """Finished before unfinished before damaged; by problem, then by loss."""
    state = 0 if entry.record is not None else 1 if entry.damage is None else 2
    problem = _place(entry.spec) if state == 0 and entry.spec else ()
    return state, problem, entry.loss, entry.folder.name


def _place(spec: dict[str, Any]) -> tuple[Any, ...]:
    """Where the problem of a run stands in a list: by noise, dimension and context length, then by its other parts."""
    if "problem" in spec:
        return spec["problem"], 0, 0, json.dumps(spec["arguments"], sort_keys=True)
    context = spec["context"]
    text = "" if isinstance(context, int) else context
    return spec["noise"], spec["dim"], 0 if text else context, text + _details(spec)


def _details(spec: dict[str, Any]) -> str:
    """What the name of a run's folder does not show of its problem; nothing for isotropic problems."""
    if "problem" in spec:
        return " ".join(f"{name}={shown(value, 40)}" for name, value in spec["arguments"].items())
    return " ".join(f"{name}={spec[name]}" for name in PARTS if name in spec)


def protocol_of(spec: dict[str, Any]) -> str:
    """Return the protocol of a run, and what differs from its defaults, from a fresh start and from the usual layout.

    Args:
        spec: The spec of the run, as it is stored.

    Returns:
        The name of the protocol, and options such as `rate=0.01`.
    """
    given = spec.get("protocol", {})
    name = shown(given.get("name", "?"), 20).strip("'")
    usual = describe(NAMES[name]()) if name in NAMES else {"name": name}
    if usual.get("batch", "") is None:  # chosen by the problem
        usual["batch"] = given.get("batch")
    words = [f"{key}={shown(value, 30)}" for key, value in given.items() if key not in usual or usual[key] != value]
    layout = asdict(PAPER_LAYOUT)
    words += [f"{key}={shown(value, 20)}" for key, value in spec.get("layout", {}).items() if layout.get(key) != value]
    words += [f"init={spec['init'][:8]}"] if "init" in spec else []
    return " ".join([name, *words])
