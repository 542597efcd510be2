"""The book: how Sphinx builds it. `make docs` installs what it needs and writes docs/_build/html."""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import sys
from pathlib import Path

from sphinx.ext.napoleon.docstring import GoogleDocstring

import ridgeformer
from ridgeformer.papers.pages import html
from ridgeformer.playground import write_page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "extensions"))

project = "ridgeformer"
author = "The ridgeformer developers"
version = release = ridgeformer.__version__

extensions = [
    "myst_nb",  # Markdown, with code that is executed
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",  # docstrings in Google's convention
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "notebooks",  # this one and the following are in docs/extensions
    "public",
    "terms",
    "types_linked",
]
exclude_patterns = ["_build", "checks", "extensions", "scripts"]

# Code of tutorials is executed at build time; an error stops the build.
logging.getLogger("traitlets").setLevel(logging.WARNING)  # a line for every notebook otherwise
nb_execution_mode = os.environ.get("RIDGEFORMER_DOCS_EXECUTE", "cache")  # "off" for a quick look
nb_execution_cache_path = str(ROOT / "build" / "notebooks")
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_execution_in_temp = True  # some tutorials write files
nb_merge_streams = True
nb_output_stderr = "warn"  # a warning in a tutorial, such as a core that is missing, fails the build
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4

# The API reference: one page per public module, from its docstrings.
autosummary_generate = True
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_type_aliases = {"ArrayLike": "numpy.typing.ArrayLike"}  # a long union otherwise
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
default_role = "code"
smartquotes = False  # help texts have options such as --help, and quotes that a shell reads

# No network, neither to build the book nor to read it: stored inventories, and MathJax as a file. The inventories are
# in the first, readable version of the format, and have the names that docstrings mention.
INVENTORIES = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "scipy": "https://docs.scipy.org/doc/scipy/",
    "matplotlib": "https://matplotlib.org/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
    "torch": "https://docs.pytorch.org/docs/stable/",
    "jax": "https://docs.jax.dev/en/latest/",
}
intersphinx_mapping = {
    name: (address, str(ROOT / "docs" / "inventories" / f"{name}.inv")) for name, address in INVENTORIES.items()
}
mathjax_path = "tex-svg-full.js"

html_theme = "furo"
html_title = "ridgeformer"
html_static_path = [str(ROOT / "build" / "mathjax"), "static"]
html_css_files = ["book.css"]
# The playground is one file beside the pages of the book, which show it in a frame.
PAGES = ROOT / "build" / "pages"
PAGES.mkdir(parents=True, exist_ok=True)
write_page(PAGES / "playground.html")


def papers_page() -> str:
    """Put all papers on one page, from the pages about them; the figures are in the file."""
    folder = ROOT / "docs" / "papers"
    rows = json.loads((folder / "results.json").read_text())
    texts = {row["paper"]: (folder / f"{row['paper']}.md").read_text() for row in rows}
    for name, text in texts.items():
        for path in re.findall(r"\]\((\.\./pictures/[^)]*)\)", text):
            data = base64.b64encode((folder / path).read_bytes()).decode()
            texts[name] = texts[name].replace(path, f"data:image/png;base64,{data}")
    return html(rows, texts)


(PAGES / "papers.html").write_text(papers_page())
html_extra_path = [str(PAGES)]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def escape(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape signs of formulas that reStructuredText would take for markup, outside of examples."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = line.split("`")  # every second part is code
            parts[::2] = [part.replace("*", r"\*").replace("|", r"\|") for part in parts[::2]]
            lines[i] = "`".join(parts)


def whole(docstring: GoogleDocstring) -> list[str]:
    """Take the docstring of a property as it is."""
    return docstring._consume_to_end()


def as_code(app: object, ctx: object, lines: list[str]) -> None:
    """Show the examples of a command as code, where sphinx-click has lines of text with a bar."""
    lines[:] = [line.replace("Examples:", "Examples::").replace("| ", "    ", 1) for line in lines]


def setup(app: object) -> None:
    """Connect to Sphinx."""
    app.connect("sphinx-click-process-epilog", as_code)  # type: ignore[attr-defined]
    GoogleDocstring._parse_attribute_docstring = whole  # a colon in a sentence about a property is no type
    app.connect("autodoc-process-docstring", escape)  # type: ignore[attr-defined]
