"""Several trainings as one table: those of `train_many`, of a sweep, or of a folder.

>>> import tempfile
>>> from ridgeformer import Problem, train
>>> out = tempfile.mkdtemp()
>>> done = train(Problem(dim=2, context=4, noise="fixed(1)"), "gdpp", layers=1, sequences=500, out=out)
>>> runs = Runs.load(out)
>>> [(row["family"], row["status"], row["loss"] == done.loss) for row in runs.rows()]
[('gdpp', 'converged', True)]
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeformer.engine import PAPER_LAYOUT
from ridgeformer.errors import InputError, RidgeformerError, refuse, shown
from ridgeformer.evaluation.table import Table
from ridgeformer.files import jsonable, path_of, read_json
from ridgeformer.losses import warn_below_floor
from ridgeformer.problems.parts import dimensions
from ridgeformer.training.results import Training
from ridgeformer.training.spec import PROTOCOLS
from ridgeformer.training.store import AGAIN, MODEL, RECORD, SPEC, is_run, read_record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTOR = 1.2  # times the loss of another seed: where a run ended in a worse local minimum
PARTS = ("features", "tasks", "query")
SHAPE, BUILT_IN, OWN = ("family", "layers", "heads", "seed"), ("noise", "dim", "context"), ("problem", "arguments")
KINDS: dict[str, tuple[type, ...]] = {  # of the values of a spec
    **dict.fromkeys(("family", "noise", "problem", "init", *PARTS), (str,)),
    **dict.fromkeys(("layers", "heads", "seed"), (int,)),
    **dict.fromkeys(("dim", "context"), (int, str)),
    **dict.fromkeys(("arguments", "protocol", "layout"), (dict,)),
}


@dataclass(frozen=True)
class Run:
    """One line of `Runs`: a run as its folder shows it, without its model, or a training in memory.

    Attributes:
        folder: Where it is; None if it is not stored.
        spec: What was asked for, as JSON; None if the run is damaged.
        record: All that is stored about a finished run; None if the run is unfinished or damaged.
        damage: What is wrong with a damaged run, and what to do; None if nothing is.
        known: The training, if it is in memory.
    """

    folder: Path | None
    spec: dict[str, Any] | None = None
    record: dict[str, Any] | None = None
    damage: str | None = None
    known: Training | None = field(default=None, repr=False)

    @classmethod
    def of(cls, training: Training) -> Run:
        """Return the line of a training.

        Args:
            training: The training.

        Returns:
            The line.
        """
        record = training.record()
        return cls(training.folder, record["spec"], record, known=training)

    @property
    def training(self) -> Training:
        """The run with its model, read from its folder if need be.

        Raises:
            InputError: The run is not finished, or it is damaged.
        """
        if self.known is not None:
            return self.known
        if self.folder is None or self.record is None:
            refuse("a training is a finished run", self.status, "Train it to its end first.")
        return Training.load(self.folder)

    @property
    def name(self) -> str:
        """The name of its folder; empty if it is not stored."""
        return "" if self.folder is None else self.folder.name

    def row(self) -> dict[str, Any]:
        """Return the columns by name: what was asked for, and what came out."""
        spec, record = self.spec or {}, self.record or {}
        result = record.get("result", {})
        return {
            **{name: spec.get(name, "") for name in SHAPE},
            "problem": self.problem,
            "protocol": "" if self.spec is None else protocol_of(self.spec),
            **{name: _number(result.get(name)) for name in ("loss", "error", "floor", "ratio")},
            "status": self.status,
            "exploded": result.get("exploded"),
            "seconds": _number(record.get("seconds")),
            "actual": str(record.get("actual", "")),
            "run": self.name,
        }

    @property
    def problem(self) -> str:
        """The problem in words."""
        if self.spec is None:
            return ""
        law = self.spec.get("problem") or "d={dim} n={context} {noise}".format_map(self.spec)
        return f"{law} {self.details}".strip()

    @property
    def details(self) -> str:
        """The parts of the problem that the name of the folder leaves out: features, tasks, queries or arguments."""
        spec = self.spec or {}
        arguments = [f"{name}={shown(value, 40)}" for name, value in spec.get("arguments", {}).items()]
        return " ".join(arguments if "problem" in spec else [f"{name}={spec[name]}" for name in PARTS if name in spec])

    @property
    def status(self) -> str:
        """The status of training; or `unfinished`, or `damaged`."""
        if self.record is not None:
            return str(self.record["status"])
        return "unfinished" if self.damage is None else "damaged"

    @property
    def loss(self) -> float:
        """The adjusted loss; infinite where there is none."""
        return math.inf if self.record is None else float(self.record["result"]["loss"])


@dataclass(frozen=True, eq=False, repr=False)
class Runs(Table, Sequence[Training]):
    """Several trainings: a table, and a sequence of the trainings themselves, one for each line of the table.

    A folder may also hold runs that are unfinished or damaged; these have lines, but no `Training`: iterate over
    `finished` where there may be such lines.

    Attributes:
        entries: One `Run` for each line of the table.
    """

    entries: tuple[Run, ...]

    @classmethod
    def of(cls, trainings: Iterable[Training]) -> Runs:
        """Return a table of trainings.

        Args:
            trainings: The trainings, in the order of the lines.

        Returns:
            The table.
        """
        return cls(tuple(map(Run.of, trainings)))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Runs:
        """Read the runs in the sub-folders of a folder. A loss that is below its floor is a `BelowFloorWarning`.

        Args:
            folder: The folder.

        Returns:
            The runs: finished ones by problem and loss, then unfinished and damaged ones; these have a line, but no
            `Training`.

        Raises:
            InputError: It is not the name of a folder, or it cannot be read.
        """
        path = path_of(folder, "runs need the name of their folder", "runs/", folder=True)
        try:
            entries = [read_entry(place) for place in sorted(path.iterdir()) if is_run(place)]
        except OSError as error:
            where = f"{shown(path, 200)} cannot be read as one ({error.strerror})"
            raise InputError(f"runs are stored in a folder; {where}. Check the path.") from error
        for entry in entries:
            _check_floor(entry)
        return cls(tuple(sorted(entries, key=_order)))

    @property
    def finished(self) -> Runs:
        """The finished runs."""
        return Runs(tuple(entry for entry in self.entries if entry.record is not None))

    def of_problem(self, problem: str) -> Runs:
        """Return the runs of one problem.

        Args:
            problem: The problem as the column `problem` has it, such as `d=10 n=20 uniform(0,5)`, or some of its words,
                such as `uniform(0,5)`.

        Returns:
            The runs of this very problem; where there is none, all runs whose problem has these words.

        Raises:
            InputError: There is no such run.
        """
        words = set(str(problem).split())
        exact = [entry for entry in self.entries if entry.problem == problem]
        matching = exact or [entry for entry in self.entries if words <= set(entry.problem.split())]
        if not matching or not words:
            names = "; ".join(dict.fromkeys(entry.problem for entry in self.entries if entry.problem))
            remedy = "Write one of these, or some of its words."
            refuse(f"the problems of these runs are {names}", shown(problem), remedy)
        return Runs(tuple(matching))

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: Any) -> Any:
        """The training with this number, or the `Runs` of a slice."""
        return Runs(self.entries[index]) if isinstance(index, slice) else self.entries[index].training

    def __repr__(self) -> str:
        return f"Runs({len(self)} runs, {len(self.finished)} finished)"

    def rows(self) -> list[dict[str, Any]]:
        """See `Table.rows`. The remark `local minimum` says that a run lost against another seed by a factor."""
        rows = [entry.row() for entry in self.entries]
        losses: dict[Any, list[float]] = {}  # of the same model and problem
        for row in rows:
            losses.setdefault(_asked(row), [math.inf]).append(row["loss"])
        for row in rows:
            best = min(loss for loss in losses[_asked(row)] if not math.isnan(loss))
            lost = row["status"] == "converged" and row["loss"] - 2 * row["error"] > FACTOR * best
            row["remark"] = "local minimum" if lost else ""
        return rows

    def plot(
        self,
        path: str | Path | None = None,
        *,
        x: str = "layers",
        baselines: Mapping[str, float] | None = None,
        title: str | None = None,
    ) -> Figure:
        """Draw the loss against a column, one line per family, with the spread over seeds and the floor.

        Args:
            path: A file to write to, which ends in .png, .pdf or .svg; None to write none.
            x: The column of the horizontal axis, such as `layers` or `heads`.
            baselines: Losses to compare with, by name; None for that of ConstRR.
            title: The title; None for the problem.

        Returns:
            The figure, a `matplotlib.figure.Figure`.

        Raises:
            InputError: There is no finished run, the runs are of several problems, or there is no such column.
            MissingPackageError: matplotlib is not installed.
            StorageError: The file cannot be written.
        """
        from ridgeformer.plotting.training import draw_runs

        return draw_runs(self, path, x=x, baselines=baselines, title=title)

    def _title(self) -> str:
        return f"{len(self)} runs"

    def _printed(self) -> list[Mapping[str, Any]]:
        rows = self.rows()
        same = {"heads": 1, "exploded": 0, "remark": ""}
        hidden = {name for name, usual in same.items() if all(row[name] == usual for row in rows)}
        hidden |= {name for name in ("problem", "protocol") if len({row[name] for row in rows}) == 1}
        return [{name: value for name, value in row.items() if name not in hidden | {"run", "error"}} for row in rows]

    def __str__(self) -> str:
        return super().__str__() if self.entries else "no runs"


def _asked(row: dict[str, Any]) -> tuple[Any, ...]:
    """The settings of a run, without its seed."""
    return tuple(row[name] for name in ("family", "layers", "heads", "problem", "protocol"))


def _number(value: Any) -> float:
    return float(value) if type(value) in (int, float) else math.nan


def read_entry(folder: Path) -> Run:
    """Read what the folder of a run says about it; all that can be wrong with it becomes `Run.damage`.

    Args:
        folder: The folder of one run.

    Returns:
        The run.
    """
    try:
        if not os.path.lexists(folder / RECORD):
            return Run(folder, _checked_spec(read_json(folder / SPEC, "a spec")))
        record = read_record(folder)
        if not (folder / MODEL).is_file():
            raise InputError(f"a finished run has a model; {MODEL} is no file. {AGAIN}")
        loss = record["result"]["loss"]
        if type(loss) not in (int, float) or not math.isfinite(loss):  # there is no place for it among the others
            raise InputError(f"the loss of a run must be a finite number; it is {shown(loss)}. {AGAIN}")
        return Run(folder, _checked_spec(record["spec"]), jsonable(record))
    except RidgeformerError as error:
        return Run(folder, damage=shown(error, 500))
    except Exception as error:  # whatever a file of any content makes its readers raise
        why = f"{type(error).__name__}: {shown(error, 120)}"
        rule = "the files of a run must be complete; some files of this run are damaged"
        return Run(folder, damage=f"{rule} ({why}). {AGAIN}")


def _checked_spec(spec: Any) -> dict[str, Any]:
    """A spec of JSON; raises if it is none."""
    needed = (*SHAPE, *(OWN if "problem" in spec else BUILT_IN))
    checked: dict[str, Any] = {name: spec[name] for name in KINDS if name in spec or name in needed}
    for name, value in checked.items():
        if type(value) not in KINDS[name]:
            expected = " or ".join(kind.__name__ for kind in KINDS[name])
            raise InputError(f"{name} must be of type {expected}; it is {shown(value)}. {AGAIN}")
    if isinstance(dim := checked.get("dim"), str) and len(dimensions(dim)) < 2:
        raise InputError(f"a dim that is text must name several dimensions; it is {shown(dim)}. {AGAIN}")
    return checked


def _check_floor(entry: Run) -> None:
    """Warn if the loss of a finished run is below its floor."""
    result = {} if entry.record is None else entry.record["result"]
    numbers: list[Any] = [result.get(name) for name in ("loss", "error", "floor", "floor_error", "signal")]
    if all(type(number) in (int, float) for number in numbers):
        with contextlib.suppress(OverflowError):  # a whole number of a damaged record that no float can hold
            warn_below_floor(entry.name, *map(float, numbers))


def _order(entry: Run) -> tuple[Any, ...]:
    """Finished before unfinished before damaged; by problem, noise first and numbers by their size, then by loss."""
    state = 0 if entry.record is not None else 1 if entry.damage is None else 2
    noise = "" if state or entry.spec is None else entry.spec.get("noise", "")
    problem = "" if state else re.sub(r"\d+", lambda digits: digits[0].zfill(9), f"{noise} {entry.problem}")
    return state, problem, entry.loss, str(entry.folder)


def protocol_of(spec: dict[str, Any]) -> str:
    """Return the protocol of a run, and what differs from its defaults, from a fresh start and from the usual layout.

    Args:
        spec: The spec of the run, as it is stored.

    Returns:
        The name of the protocol, and options such as `rate=0.01`.
    """
    stored = spec.get("protocol", {})
    name = shown(stored.get("name", "?"), 20).strip("'")
    usual = PROTOCOLS[name]().as_dict() if name in PROTOCOLS else {"name": name}
    if usual.get("batch", "") is None:  # chosen by the problem
        usual["batch"] = stored.get("batch")
    words = [f"{key}={shown(value, 30)}" for key, value in stored.items() if key not in usual or usual[key] != value]
    layout = asdict(PAPER_LAYOUT)
    words += [f"{key}={shown(value, 20)}" for key, value in spec.get("layout", {}).items() if layout.get(key) != value]
    words += [f"init={spec['init'][:8]}"] if "init" in spec else []
    return " ".join([name, *words])
