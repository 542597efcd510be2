"""The papers of this package, and their results in a folder.

>>> from ridgeformer.papers import library
>>> [status.state for status in library.status("a folder without results")][:2]
['not run', 'not run']
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ridgeformer.errors import InputError
from ridgeformer.files import path_of
from ridgeformer.papers.pages import report_page
from ridgeformer.papers.paper import Paper
from ridgeformer.papers.results import NOTHING
from ridgeformer.papers.running import OUTCOME, PaperOutcome
from ridgeformer.validation import choice

IDS = (
    "vladymyrov2024",
    "vonoswald2023",
    "ahn2023",
    "zhang2024",
    "garg2022",
    "raventos2023",
    "wu2024",
    "fu2024",
    "huang2025",
    "yzhang2025",
    "lu2025",
    "bordelon2025",
    "yau2025",
    "letey2026",
)


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


def catalogue() -> list[Paper]:
    """Return all papers.

    Returns:
        The papers, in the order of the documentation.
    """
    return [find(name) for name in IDS]


def find(name: str) -> Paper:
    """Return a paper by its name.

    Args:
        name: The first author and the year, such as `zhang2024`.

    Returns:
        The paper.

    Raises:
        InputError: There is no such paper.
    """
    choice("a paper", name, IDS)
    paper: Paper = importlib.import_module(f"ridgeformer.papers.{name}").PAPER
    return paper


def run(
    paper: str | Paper,
    *,
    quick: bool = False,
    out: str | Path | None = "papers",
    progress: Callable[[str, int, int], None] = lambda part, done, total: None,
    settings: Mapping[str, Any] = NOTHING,
) -> PaperOutcome:
    """Regenerate a paper: measure what is not stored yet, and decide its claims.

    With changed settings only the parts that have them and the parts that those need are measured, and only the claims
    that need no other parts are decided.

    Args:
        paper: The name of a paper, or a paper of your own.
        quick: Whether to run the quick version, which takes seconds; by default the full one, which takes minutes.
        out: The folder for the results of all papers; results that are there are reused. None stores nothing.
        progress: Is called with the name of a part, the number of pieces of work done and the number of all.
        settings: Settings that replace those of the version, by name, such as `{"d": 32}` for lu2025.

    Returns:
        The results and the claims with their verdicts.

    Raises:
        InputError: There is no such paper or setting.
        StorageError: The folder cannot be written to.
    """
    definition = paper if isinstance(paper, Paper) else find(paper)
    definition.check_settings(settings)
    outcome = PaperOutcome(definition, quick, None if out is None else _folder(out), progress, settings)
    for part in definition.parts:
        if not settings or settings.keys() & part.settings().keys():
            outcome.results[part.name]
    if not settings:
        outcome.write()
    return outcome


def stored(paper: str | Paper, out: str | Path = "papers") -> PaperOutcome | None:
    """Read the outcome of a paper from a folder, the full version if there is one, without measuring anything.

    Args:
        paper: The name of a paper, or a paper of your own.
        out: The folder of all papers.

    Returns:
        The outcome, with claims decided again from the stored results; None where not all results are stored.
    """
    definition = paper if isinstance(paper, Paper) else find(paper)
    versions = (PaperOutcome(definition, quick, _folder(out)) for quick in (False, True))
    return next((outcome for outcome in versions if outcome.read()), None)


def status(out: str | Path = "papers", papers: Iterable[str | Paper] = IDS) -> list[PaperStatus]:
    """Say of papers how far they are in a folder.

    Args:
        out: The folder for the results of all papers.
        papers: The papers, by name or papers of your own; all papers of this package by default.

    Returns:
        One status per paper.
    """
    states = []
    for paper in papers:
        definition = paper if isinstance(paper, Paper) else find(paper)
        outcome = stored(definition, out)
        if outcome is None:
            started = any((_folder(out) / definition.id / version / OUTCOME).exists() for version in ("", "quick"))
            state, seconds, verdicts = "outdated" if started else "not run", None, Counter[str]()
        else:
            state, seconds = "quick" if outcome.quick else "done", sum(outcome.seconds.values())
            verdicts = Counter(str(check.verdict) for check in outcome.checks)
        states.append(PaperStatus(definition.id, definition.title, state, seconds, verdicts))
    return states


def outcomes(out: str | Path = "papers") -> list[PaperOutcome]:
    """Read the outcomes of all papers whose results are stored in a folder.

    Args:
        out: The folder for the results of all papers.

    Returns:
        The outcomes: of each paper the full version if there is one, otherwise the quick one.
    """
    return [outcome for outcome in (stored(name, out) for name in IDS) if outcome]


def report(out: str | Path = "papers") -> Path:
    """Write one page with the claims and the figures of all papers whose results are stored in a folder.

    Args:
        out: The folder for the results of all papers.

    Returns:
        The path of the page, `report.html` in the folder.

    Raises:
        InputError: No results are stored there.
        StorageError: The folder cannot be written to.
        MissingPackageError: matplotlib is not installed.
    """
    stored_outcomes = outcomes(out)
    if not stored_outcomes:
        raise InputError(
            f"a report needs results; {out} has none. Run a paper first, for example papers.run('zhang2024')."
        )
    return report_page(stored_outcomes, _folder(out))


def _folder(out: str | Path) -> Path:
    return path_of(out, "results go to a folder", "papers/", folder=True)
