"""The book: how Sphinx builds it. `make docs` installs what it needs and writes docs/_build/html."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import ridgeformer
from ridgeformer.playground import write_page

ROOT = Path(__file__).parents[1]

project = "ridgeformer"
author = "The ridgeformer developers"
version = release = ridgeformer.__version__
repository = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]

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
]
exclude_patterns = ["_build", "scripts"]
nitpicky = False

# Code of tutorials is executed at build time; an error stops the build.
nb_execution_mode = os.environ.get("RIDGEFORMER_DOCS_EXECUTE", "cache")  # "off" for a quick look
nb_execution_cache_path = str(ROOT / "build" / "notebooks")
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4

# The API reference: one page per public module, from its docstrings.
autosummary_generate = True
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_mock_imports: list[str] = []
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
default_role = "code"

# No network, neither to build the book nor to read it: stored inventories, and MathJax as a file.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", str(ROOT / "docs" / "inventories" / "python.inv")),
    "numpy": ("https://numpy.org/doc/stable", str(ROOT / "docs" / "inventories" / "numpy.inv")),
}
intersphinx_mapping = {name: pair for name, pair in intersphinx_mapping.items() if Path(pair[1]).exists()}
mathjax_path = "tex-svg-full.js"

html_theme = "furo"
html_title = "ridgeformer"
html_static_path = [str(ROOT / "build" / "mathjax")]
# The playground is one file beside the pages of the book, which show it in a frame.
PAGES = ROOT / "build" / "pages"
PAGES.mkdir(parents=True, exist_ok=True)
write_page(PAGES / "playground.html")
html_extra_path = [str(PAGES)]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_repository": repository, "source_branch": "main", "source_directory": "docs/"}


def escape(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape signs of formulas that reStructuredText would take for markup, outside of examples."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = line.split("`")  # every second part is code
            parts[::2] = [part.replace("*", r"\*").replace("|", r"\|") for part in parts[::2]]
            lines[i] = "`".join(parts)


def setup(app: object) -> None:
    """Connect to Sphinx."""
    app.connect("autodoc-process-docstring", escape)  # type: ignore[attr-defined]
