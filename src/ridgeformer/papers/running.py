"""Running a paper: measure its parts, or read them from a folder, and decide its claims."""

from __future__ import annotations

import functools
import itertools
import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgeformer import engine
from ridgeformer._version import __version__
from ridgeformer.errors import RidgeformerError
from ridgeformer.evaluation import compare
from ridgeformer.files import jsonable, make_folder, read_json, write_whole
from ridgeformer.models.family import Family
from ridgeformer.papers.paper import Check, Paper, Parts
from ridgeformer.papers.results import NOTHING, Results as Results, Rows as Rows
from ridgeformer.problems import BaseProblem
from ridgeformer.training import Training, train

Progress = Callable[[str, int, int], None]
OUTCOME = "outcome.json"
FORMAT = 2  # of stored results


@dataclass(frozen=True, eq=False)
class Work:
    """The argument of a measuring function: results of other parts, a folder for runs, and a way to report.

    Attributes:
        results: The results of the other parts, by name; a part that was not measured yet is measured when it is asked
            for.
        runs: The folder for training runs, which are resumed; None to keep runs in memory.
        progress: Is called with the number of pieces of work done and the number of all.
    """

    results: Results
    runs: Path | None
    progress: Callable[[int, int], None]

    def each(self, *axes: Iterable[Any]) -> Iterator[Any]:
        """Go through pieces of work, and report how many are done.

        Args:
            *axes: The pieces; or several axes of a grid, of which the last one goes round fastest.

        Yields:
            One piece after the other; of a grid, a tuple with one value for each axis.
        """
        pieces = list(itertools.product(*axes)) if len(axes) > 1 else list(axes[0])
        for done, piece in enumerate(pieces):
            self.progress(done, len(pieces))
            yield piece

    def loss(self, problem: BaseProblem, predictor: Any, sequences: int) -> dict[str, float]:
        """Measure the unadjusted loss of a predictor. See `losses`."""
        return self.losses(problem, {"": predictor}, sequences)[""]

    def losses(
        self, problem: BaseProblem, predictors: Mapping[str, Any], sequences: int
    ) -> dict[str, dict[str, float]]:
        """Measure unadjusted losses of predictors on the same fresh sequences.

        Args:
            problem: The problem.
            predictors: The predictors by name.
            sequences: How many sequences.

        Returns:
            By name: the loss and its standard error, under `loss` and `error`.
        """
        rows = compare(problem, predictors, sequences=sequences, seed=1, with_floor=False)
        return {k: {"loss": rows[k].unadjusted, "error": rows[k].unadjusted_error} for k in predictors}

    def train(self, problem: BaseProblem, family: str | type[Family], layers: int = 1, **settings: Any) -> Training:
        """Train a model in the folder of runs; a run that is stored there is read instead.

        Args:
            problem: The problem to train on.
            family: The family, by name or class.
            layers: The number of layers.
            **settings: Further arguments of `ridgeformer.train`, such as `heads`, `seed` and `protocol`.

        Returns:
            The training.
        """
        return train(problem, family, layers, out=self.runs, progress=False, **settings)


class PaperOutcome:
    """The results of a paper and the verdicts on its claims.

    A part is read from the folder if it is stored there, made with the same settings, and otherwise measured when its
    result is asked for.

    Args:
        paper: The paper.
        quick: Whether it is the quick version; by default the full one.
        out: The folder of all papers; None to store nothing.
        progress: Is called with the name of a part, the number of pieces of work done and the number of all.
        changes: Settings that replace those of the version, by name.

    Attributes:
        results: What was measured, by the name of the part.
        seconds: The processor time that measuring took, of all threads, by the name of the part, in seconds.
        settings: The settings by the name of the part.
    """

    def __init__(
        self,
        paper: Paper,
        quick: bool = False,
        out: Path | None = None,
        progress: Progress = lambda part, done, total: None,
        changes: Mapping[str, Any] = NOTHING,
    ) -> None:
        self.paper, self.quick, self.progress = paper, quick, progress
        self.folder = None if out is None else out / paper.id / ("quick" if quick else "")
        self.seconds: dict[str, float] = {}
        self.settings = {part.name: part.settings(quick, changes) for part in paper.parts}
        self._stored = Parts({}, self._find)
        self.results = Results(self._stored, self.settings)

    @functools.cached_property
    def checks(self) -> tuple[Check, ...]:
        """The claims that can be decided with what was measured so far, with their verdicts."""
        return tuple(self.paper.decide(self.results))

    def read(self) -> bool:
        """Read all parts that are stored.

        Returns:
            Whether no part is missing.
        """
        missing = [part for part in self.paper.parts if not self._read(part.name)]
        return not missing

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as values that JSON can hold."""
        values = {
            "paper": self.paper.id,
            "title": self.paper.title,
            "version": self.paper.version,
            "quick": self.quick,
            "seconds": self.seconds,
            "settings": {name: self.settings[name] for name in self._stored},
            "checks": [check.as_dict() for check in self.checks],
            "errata": [vars(erratum) for erratum in self.paper.errata],
            "results": dict(self._stored),
        }
        plain: dict[str, Any] = jsonable(values)
        return plain

    def write(self) -> None:
        """Write the claims with their verdicts into the folder.

        Raises:
            StorageError: The folder cannot be written to.
        """
        if self.folder is not None:
            write_whole(self.folder / OUTCOME, json.dumps({**self.as_dict(), "results": {}}, indent=1).encode())

    def _made_with(self, name: str) -> dict[str, Any]:
        settings: dict[str, Any] = jsonable(self.settings[name])
        return {"format": FORMAT, "version": self.paper.version, "settings": settings}

    def _find(self, name: str) -> Any:
        """The result of a part, measured if it is not stored, made in the same way and undamaged."""
        return self._stored[name] if self._read(name) else self._measure(name)

    def _read(self, name: str) -> bool:
        try:
            record = {} if self.folder is None else read_json(self.folder / f"{name}.json", "a result")
        except RidgeformerError:
            return False
        if record.get("made_with") != self._made_with(name):
            return False
        self._stored[name], self.seconds[name] = record["result"], record["seconds"]
        return True

    def _measure(self, name: str) -> Any:
        """Measure a part, and store the result; the time of parts that it needs is theirs."""
        part = {part.name: part for part in self.paper.parts}[name]
        self.progress(name, 0, 1)
        if self.folder is not None:
            make_folder(self.folder, "results")
        runs = None if self.folder is None else self.folder / "runs"
        start, earlier_seconds = time.process_time(), sum(self.seconds.values())
        measured = part.measure(Work(self.results, runs, functools.partial(self.progress, name)), **self.settings[name])
        self._stored[name] = jsonable(list(measured) if isinstance(measured, Iterator) else measured)
        self.seconds[name] = time.process_time() - start - (sum(self.seconds.values()) - earlier_seconds)
        if self.folder is not None:
            content = {"made_with": self._made_with(name), "seconds": self.seconds[name], "result": self._stored[name]}
            write_whole(self.folder / f"{name}.json", json.dumps(content, allow_nan=False).encode())
        return self._stored[name]


def facts() -> dict[str, Any]:
    """Return the version, the engines, the number of threads, and the versions of Python and NumPy."""
    import numpy

    return {
        "version": __version__,
        "engine": engine.current().name,
        "engines": list(engine.available()),
        "threads": engine.default_threads(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
    }
