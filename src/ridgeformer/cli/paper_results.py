"""Results of papers, measured or stored, as the commands of `ridgeformer papers` need them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgeformer.cli.output import Answer, warn
from ridgeformer.errors import InputError, refuse, shown

if TYPE_CHECKING:
    from ridgeformer.papers import Outcome

SEED_PAPER = "vladymyrov2024"


def setting(text: str) -> tuple[str, Any]:
    """A changed setting, from NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        refuse("--set takes NAME=VALUE", shown(text), "Write --set sequences=50000, for example.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def stored(paper: str, out: Path) -> Outcome:
    """The stored results of a paper, with its claims."""
    from ridgeformer.papers import find
    from ridgeformer.papers.running import stored_outcome

    outcome = stored_outcome(find(paper), out)
    if outcome is None:
        raise InputError(
            f"there must be results of {paper}; {shown(out, 200)} has none. Run `ridgeformer papers run {paper}` first."
        )
    return outcome


def measured(
    parts: set[str], out: Path | None, settings: dict[str, Any] | None = None, runs: Path | None = None
) -> Any:
    """The results of some parts of the seed paper."""
    from ridgeformer import papers as library

    paper = library.find(SEED_PAPER)
    some = dataclasses.replace(paper, parts=tuple(part for part in paper.parts if part.name in parts), checks=())
    defaults = {key: value for part in some.parts for key, value in part.settings().items()}
    changes = {key: value for key, value in (settings or {}).items() if defaults.get(key) != value}
    changes |= {} if runs is None else retrained(runs)
    with parts_bar() as show:
        return library.run(some, out=out, progress=show, settings=changes).results


def retrained(runs: Path) -> dict[str, Any]:
    """The settings of the seed paper with the models of a folder of runs."""
    from ridgeformer.papers.vladymyrov2024.evidence import fingerprint

    return {"runs": str(runs), "models": fingerprint(str(runs))}


def claims(outcome: Outcome) -> Answer:
    """The claims of a paper with their verdicts."""
    from ridgeformer.evaluation.table import aligned

    rows = [check.as_dict() for check in outcome.checks]
    short = [{"verdict": check.verdict, "claim": check.claim} for check in outcome.checks]
    head = f"{outcome.paper.title} ({outcome.paper.authors}): {sum(outcome.seconds.values()):.0f} s"
    return Answer(f"{head}{' (quick version)' if outcome.quick else ''}\n\n{aligned(short)}", outcome.as_dict(), rows)


@contextlib.contextmanager
def parts_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A progress display with one line for each part that is measured."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        lines: dict[str, Any] = {}

        def show(part: str, done: int, total: int) -> None:
            if part not in lines:
                lines[part] = bar.add_task(f"measuring {part.replace('_', ' ')}", total=total)
                if not console.is_terminal:
                    warn(f"measuring {part.replace('_', ' ')} ...")
            bar.update(lines[part], completed=done, total=total)

        yield show
