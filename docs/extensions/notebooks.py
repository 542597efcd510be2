"""Notebooks to download: every page with code that is executed becomes one, with a link at the top of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jupytext

# The first heading of a page, after its header.
HEADING = re.compile(r"^# .*\n", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]*\)")  # relative links lead nowhere from a notebook


def is_executed(text: str) -> bool:
    """Return whether the text of a page says that its code is executed."""
    return text.startswith("---\n") and "file_format: mystnb" in text.split("---", 2)[1]


def write_notebooks(app: Any) -> None:
    """Write a notebook for every page whose code is executed, before the pages are read."""
    source, target = Path(app.srcdir), Path(app.srcdir) / "_build" / "notebooks"
    for page in sorted(source.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if "_build" not in page.parts and is_executed(text):
            kernel = "  name: python3\n"
            notebook = jupytext.reads(text.replace(kernel, f"{kernel}  display_name: Python 3\n", 1), fmt="md:myst")
            for cell in notebook.cells:
                if cell.cell_type == "markdown":
                    cell.source = LINK.sub(r"\1", re.sub(r"\{\w+\}`([^`<]+?)( <[^>]*>)?`", r"\1", cell.source))
            file = (target / page.relative_to(source)).with_suffix(".ipynb")
            file.parent.mkdir(parents=True, exist_ok=True)
            jupytext.write(notebook, file, fmt="ipynb")


def spread_pages(app: Any, environment: Any, names: list[str]) -> None:
    """Put the pages whose code is executed between the others: processes that read in parallel take whole stretches."""
    executed = {name for name in names if is_executed(Path(environment.doc2path(name)).read_text(encoding="utf-8"))}
    order = [name for name in names if name not in executed]
    stride = len(names) / max(1, len(executed))
    for i, name in enumerate(sorted(executed)):
        order.insert(round(i * stride), name)
    names[:] = order


def link_notebook(app: Any, name: str, text: list[str]) -> None:
    """Put a link to its notebook below the title of a page whose code is executed."""
    if is_executed(text[0]):
        link = f"{{download}}`Download this page as a notebook </_build/notebooks/{name}.ipynb>`"
        text[0] = HEADING.sub(lambda found: f"{found[0]}\n{link}\n", text[0], count=1)


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("builder-inited", write_notebooks)
    app.connect("env-before-read-docs", spread_pages)
    app.connect("source-read", link_notebook)
    return {"parallel_read_safe": True}
