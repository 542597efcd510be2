"""Terms of the glossary, linked where a page first uses them.

Whoever writes a page need not think of it. Words that also have an everyday meaning are linked only where a page says
so, by `` {term}`run` ``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref

# Words of the glossary that are common in other meanings.
EVERYDAY = {
    "by layer", "caution", "channel", "effort", "error", "excess", "example", "grid", "init", "low rank", "metric",
    "patch", "prefix", "run", "shift", "start", "state",
}  # fmt: skip
SKIPPED = (nodes.title, nodes.literal, nodes.literal_block, nodes.reference, nodes.math, nodes.caption, pending_xref)


def terms_of(glossary: Path) -> list[str]:
    """Return the terms of the directive `glossary` in a page, the longest first."""
    blocks = re.findall(r"^:{3,}\{glossary\}\n(.*?)^:{3,}", glossary.read_text(encoding="utf-8"), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    return sorted((line for line in lines if line and not line[0].isspace()), key=len, reverse=True)


def link_terms(app: Any, tree: nodes.document) -> None:
    """Replace the first use of every term on a page by a link to the glossary."""
    glossary = Path(app.srcdir) / "reference" / "glossary.md"
    page = app.env.docname
    if page in ("index", "reference/glossary") or page.startswith("reference/api"):  # cards are links already
        return
    terms = {term.lower(): term for term in terms_of(glossary) if term not in EVERYDAY}
    left = dict(terms)
    for paragraph in list(tree.findall(nodes.paragraph)):
        for text in list(paragraph.findall(nodes.Text)):
            if left and not _inside(text, paragraph):
                _link(text, left)


def _inside(text: nodes.Text, paragraph: nodes.paragraph) -> bool:
    parent = text.parent
    while parent is not paragraph:
        if isinstance(parent, SKIPPED):
            return True
        parent = parent.parent
    return False


def _link(text: nodes.Text, left: dict[str, str]) -> None:
    pattern = r"(?<![\w`/-])(" + "|".join(re.escape(term) for term in left) + r")(s?)(?![\w-])"
    parts: list[nodes.Node] = []
    rest = str(text)
    while left and (found := re.search(pattern, rest, re.IGNORECASE)):
        term = left.pop(found[1].lower(), None)
        parts.append(nodes.Text(rest[: found.start()]))
        if term is None:  # used earlier in this text
            parts.append(nodes.Text(found[0]))
        else:
            link = pending_xref("", refdomain="std", reftype="term", reftarget=term, refexplicit=True, refwarn=True)
            link += nodes.inline(found[0], found[0], classes=["term"])
            parts.append(link)
        rest = rest[found.end() :]
    if parts:
        text.parent.replace(text, [*parts, nodes.Text(rest)])


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("doctree-read", link_terms)
    return {"parallel_read_safe": True}
