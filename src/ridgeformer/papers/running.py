"""Running a paper: measure its parts, or read them from a folder, and decide its claims."""

from __future__ import annotations

import json
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from ridgeformer import engine
from ridgeformer._version import __version__
from ridgeformer.errors import RidgeformerError
from ridgeformer.evaluation import compare
from ridgeformer.files import jsonable, make_folder, read_json, write_whole
from ridgeformer.models.family import Family
from ridgeformer.papers.paper import Check, Paper, Part
from ridgeformer.problems import BaseProblem
from ridgeformer.training import Training, train

Thing = TypeVar("Thing")
Progress = Callable[[str, int, int], None]
OUTCOME = "outcome.json"
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Work:
    """The argument of a measuring function: results of the parts before it, a folder for runs, and a way to report.

    Attributes:
        results: The results of the parts before this one, by name.
        runs: The folder for training runs, which are resumed; None to keep runs in memory.
        progress: Is called with the number of pieces of work done and the number of all.
    """

    results: Mapping[str, Any]
    runs: Path | None
    progress: Callable[[int, int], None]

    def each(self, things: Iterable[Thing]) -> Iterator[Thing]:
        """Go through pieces of work, and report how many are done.

        Args:
            things: The pieces.

        Yields:
            One after the other.
        """
        listed = list(things)
        for done, thing in enumerate(listed):
            self.progress(done, len(listed))
            yield thing

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


@dataclass(frozen=True, eq=False)
class PaperOutcome:
    """The results of a paper and the verdicts on its claims.

    Attributes:
        paper: The paper.
        quick: Whether the quick version was run.
        results: What was measured, by the name of the part.
        seconds: The processor time that measuring took, of all threads, by the name of the part, in seconds.
        checks: The claims with their verdicts.
        settings: The settings by the name of the part.
    """

    paper: Paper
    quick: bool
    results: Mapping[str, Any]
    seconds: Mapping[str, float]
    checks: tuple[Check, ...]
    settings: Mapping[str, Any] = field(default_factory=lambda: NOTHING)

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as values that JSON can hold."""
        values = {
            "paper": self.paper.id,
            "title": self.paper.title,
            "version": self.paper.version,
            "quick": self.quick,
            "seconds": dict(self.seconds),
            "settings": dict(self.settings),
            "checks": [check.as_dict() for check in self.checks],
            "errata": [vars(erratum) for erratum in self.paper.errata],
            "results": dict(self.results),
        }
        plain: dict[str, Any] = jsonable(values)
        return plain


@dataclass(frozen=True)
class PaperStatus:
    """How far a paper is in a folder.

    Attributes:
        id: The paper.
        title: Its title.
        state: `not run`, `quick`, `done`, or `outdated` where the paper measures something else by now.
        seconds: The processor time that measuring took in all, in seconds; None where it was not run.
        verdicts: How many claims have each verdict, by verdict.
    """

    id: str
    title: str
    state: str
    seconds: float | None
    verdicts: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the status as values that JSON can hold."""
        return {**vars(self), "verdicts": dict(self.verdicts)}


def run_paper(
    paper: Paper, *, quick: bool, out: Path | None, progress: Progress, settings: Mapping[str, Any]
) -> PaperOutcome:
    """Measure what a paper needs, as far as it is not stored, and decide its claims. See `papers.run`.

    With changed settings only the parts that have them and the parts that those need are measured, only the claims that
    need no other parts are decided, and no outcome is written.
    """
    paper.check_settings(settings)
    folder = None if out is None else _folder(paper, out, quick)
    if folder is not None:
        make_folder(folder, "results")
    results: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    parts = _parts(paper, settings)
    chosen = {part.name: part.settings(quick, settings) for part in parts}
    for part in parts:
        known = None if folder is None else _known(paper, part, chosen[part.name], folder)
        results[part.name], seconds[part.name] = known or _measured(paper, part, chosen, results, folder, progress)
    outcome = PaperOutcome(paper, quick, results, seconds, tuple(paper.decide(results)), chosen)
    if folder is not None and not settings:
        write_whole(folder / OUTCOME, json.dumps({**outcome.as_dict(), "results": {}}, indent=1).encode())
    return outcome


def _parts(paper: Paper, settings: Mapping[str, Any]) -> list[Part]:
    """The parts to measure, in the order of the paper: those that have a replaced setting, and what they need."""
    wanted: set[str] = set()
    for part in reversed(paper.parts):  # a part needs earlier ones only
        if not settings or settings.keys() & part.settings().keys() or part.name in wanted:
            wanted |= {part.name, *part.needs}
    return [part for part in paper.parts if part.name in wanted]


def _folder(paper: Paper, out: Path, quick: bool) -> Path:
    return out / paper.id / "quick" if quick else out / paper.id


def _made_with(paper: Paper, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"version": paper.version, "settings": jsonable(dict(settings))}


def _known(paper: Paper, part: Part, settings: Mapping[str, Any], folder: Path) -> tuple[Any, float] | None:
    """The stored result of a part and its processor time; None where it is missing, damaged, or made otherwise."""
    try:
        known = read_json(folder / f"{part.name}.json", "a result")
    except RidgeformerError:
        return None
    return (known["result"], known["seconds"]) if known.get("made_with") == _made_with(paper, settings) else None


def _measured(
    paper: Paper,
    part: Part,
    chosen: Mapping[str, Mapping[str, Any]],
    results: Mapping[str, Any],
    folder: Path | None,
    progress: Progress,
) -> tuple[Any, float]:
    """The result of a part, measured and stored, and its processor time."""
    progress(part.name, 0, 1)
    start, settings = time.process_time(), chosen[part.name]
    runs = None if folder is None else folder / "runs"
    work = Work(MappingProxyType(dict(results)), runs, lambda done, total: progress(part.name, done, total))
    result = jsonable(part.measure(work, **settings))
    seconds = time.process_time() - start
    if folder is not None:
        content = {"made_with": _made_with(paper, settings), "seconds": seconds, "result": result}
        write_whole(folder / f"{part.name}.json", json.dumps(content, allow_nan=False).encode())
    return result, seconds


def stored_outcome(paper: Paper, out: Path) -> PaperOutcome | None:
    """Read the outcome of a paper from a folder, the full version if there is one, without measuring anything.

    Args:
        paper: The paper.
        out: The folder of all papers.

    Returns:
        The outcome, with claims decided again from the stored results; None where not all results are stored.
    """
    for quick in (False, True):
        chosen = {part.name: part.settings(quick) for part in paper.parts}
        stored = {part.name: _known(paper, part, chosen[part.name], _folder(paper, out, quick)) for part in paper.parts}
        known = {name: pair for name, pair in stored.items() if pair is not None}
        if len(known) == len(stored):
            results, seconds = ({name: pair[i] for name, pair in known.items()} for i in (0, 1))
            return PaperOutcome(paper, quick, results, seconds, tuple(paper.decide(results)), chosen)
    return None


def status_of(paper: Paper, out: Path) -> PaperStatus:
    """Say how far a paper is in a folder.

    Args:
        paper: The paper.
        out: The folder of all papers.

    Returns:
        The status.
    """
    outcome = stored_outcome(paper, out)
    if outcome is None:
        started = any((_folder(paper, out, quick) / OUTCOME).exists() for quick in (False, True))
        return PaperStatus(paper.id, paper.title, "outdated" if started else "not run", None, {})
    verdicts = Counter(str(check.verdict) for check in outcome.checks)
    state = "quick" if outcome.quick else "done"
    return PaperStatus(paper.id, paper.title, state, sum(outcome.seconds.values()), verdicts)


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
