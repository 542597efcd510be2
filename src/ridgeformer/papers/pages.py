"""One table and one page for all papers, made of stored results."""

from __future__ import annotations

import base64
import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from ridgeformer.files import make_folder, write_whole
from ridgeformer.papers.paper import Picture
from ridgeformer.papers.results import Results
from ridgeformer.papers.running import PaperOutcome
from ridgeformer.plotting.style import pictures

COLUMNS = ("paper", "claim", "published", "ours", "verdict", "seconds")


def summary(outcomes: Iterable[PaperOutcome]) -> list[dict[str, Any]]:
    """Return the table of all papers, one row each: its first claim, with its verdict and those of the others.

    Seconds are processor time.

    Args:
        outcomes: The outcomes of the papers.

    Returns:
        Rows with the columns paper, claim, published, ours, verdict and seconds.
    """
    rows = []
    for outcome in outcomes:
        first, verdicts = outcome.checks[0], Counter(check.verdict for check in outcome.checks[1:])
        further = [f"{count} {verdict}" for verdict, count in verdicts.most_common()]
        rows.append(
            {
                "paper": outcome.paper.id,
                "claim": first.claim,
                "published": first.published or (first.expected if len(first.expected) < 100 else "closed form"),
                "ours": first.brief or first.measured,
                "verdict": first.verdict + (f"; other claims: {', '.join(further)}" if further else ""),
                "seconds": f"{sum(outcome.seconds.values()):.0f}{' (quick)' if outcome.quick else ''}",
            }
        )
    return rows


def markdown(rows: Iterable[Mapping[str, Any]], folder: str = "docs/papers/") -> str:
    """Write the table of all papers in Markdown.

    Args:
        rows: The rows of `summary`.
        folder: The folder of the pages about the papers, to which the first column leads.

    Returns:
        The text.
    """
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) - 1) + "|---:|"]
    for row in rows:
        cells = {**row, "paper": f"[{row['paper']}]({folder}{row['paper']}.md)"}
        lines.append(f"| {' | '.join(str(cells[name]).replace('|', '/') for name in COLUMNS)} |")
    return "\n".join(lines) + "\n"


def page(outcome: PaperOutcome, pictures: Mapping[str, str]) -> str:
    """Write the page about a paper in Markdown: results first, then how they were measured.

    Args:
        outcome: The outcome of the paper.
        pictures: The files of its figures by name, relative to the page.

    Returns:
        The text.
    """
    paper, lines = outcome.paper, []
    lines += [
        f"# {paper.id}: {paper.title}",
        f"{paper.authors}. [{paper.link}]({paper.link})",
        *paper.says,
        "## Results",
        *(["These are results of the quick version, whose sizes are smaller (see below)."] if outcome.quick else []),
        "\n".join(["| claim | verdict |", "|---|---|", *(f"| {c.claim} | {c.verdict} |" for c in outcome.checks)]),
    ]
    for name, file in pictures.items():
        lines += [f"![{paper.pictures[name].caption}]({file})", paper.pictures[name].caption]
    lines.append("## The numbers behind each verdict")
    for check in outcome.checks:
        lines += [f"**{check.verdict.capitalize()}.** {check.claim}", _facts(check.as_dict())]
    lines.append("## How it is measured")
    for part in paper.parts:
        first = (part.measure.__doc__ or "").partition("\n")[0]
        settings = ", ".join(f"{name} {value}" for name, value in outcome.settings[part.name].items())
        lines.append(f"- `{part.name}` ({outcome.seconds[part.name]:.0f} s): {first} Settings: {settings or 'none'}.")
    problems = "; ".join(f"{name}: `{problem}`" for name, problem in paper.problems.items())
    lines += [f"Problems: {problems}.", f"To repeat: `ridgeformer papers run {paper.id}{' --quick' * outcome.quick}`."]
    if paper.errata:
        lines.append("## Errata")
        lines += [f"- {e.where}: {e.says}. Correct: {e.correct}. Shown by {e.shown_by}." for e in paper.errata]
    if paper.beyond:
        lines += ["## Not checked here", *(f"- {text}" for text in paper.beyond)]
    return "\n\n".join(lines) + "\n"


def _facts(check: Mapping[str, Any]) -> str:
    """Numbers, tolerance and rule of a check, as a list."""
    names = {"measured": "Measured", "published": "Published", "expected": "Expected", "rule": "Rule"}
    facts = [f"- {label}: {check[name]}." for name, label in names.items() if check[name]]
    return "\n".join([*facts, f"- Tolerance: {check['tolerance']}. {check['reason']}"])


def report_page(outcomes: Iterable[PaperOutcome], folder: Path) -> Path:
    """Write `report.html` into a folder: the table of all papers, and the page about each of them with its figures.

    Args:
        outcomes: The outcomes of the papers.
        folder: Where the page goes; it is made if it does not exist.

    Returns:
        The path of the page.

    Raises:
        StorageError: The folder cannot be written to.
        MissingPackageError: matplotlib is not installed.
    """
    shown = list(outcomes)
    pictures = [{k: svg(p, outcome.results) for k, p in outcome.paper.pictures.items()} for outcome in shown]
    pages = {outcome.paper.id: page(outcome, drawn) for outcome, drawn in zip(shown, pictures, strict=True)}
    return write_page(folder, "report.html", html(summary(shown), pages))


def html(rows: Iterable[Mapping[str, Any]], pages: Mapping[str, str]) -> str:
    """Put the table of all papers and the pages about them into one page.

    Args:
        rows: The rows of `summary`.
        pages: The text of `page` by paper.

    Returns:
        The page, as HTML.
    """
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.validateLink = lambda url: True  # type: ignore[method-assign]  # of our own pages; figures are data
    table = reader.render(markdown(rows, "#").replace(".md)", ")"))
    papers = (f'<section id="{escape(name)}">\n{reader.render(text)}</section>' for name, text in pages.items())
    template = Template(Path(__file__).with_name("page.html").read_text())
    return template.substitute(table=coloured(table), papers=coloured("\n".join(papers)))


def coloured(html: str) -> str:
    """Mark the cells of tables that begin with a verdict, which the page then colours.

    Args:
        html: A part of a page.

    Returns:
        The same with classes such as `partly-supported`.
    """
    verdict = r"<td>((partly )?supported|contradicted)\b"
    return re.sub(verdict, lambda match: f'<td class="{match[1].replace(" ", "-")}">{match[1]}', html)


def write_page(folder: Path, name: str, text: str) -> Path:
    """Write a page.

    Args:
        folder: Where it goes; it is made if it does not exist.
        name: The name of the file.
        text: The page.

    Returns:
        Its path.

    Raises:
        StorageError: The folder cannot be written to.
    """
    make_folder(folder, "pages")
    write_whole(folder / name, text.encode())
    return folder / name


def svg(picture: Picture, results: Results) -> str:
    """Draw a picture for a page.

    Args:
        picture: The picture.
        results: The results that it shows.

    Returns:
        A data URL.
    """
    ((_, content),) = pictures(functools.partial(picture.draw, results), ["svg"])
    return "data:image/svg+xml;base64," + base64.b64encode(content).decode()
