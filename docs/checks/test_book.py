"""The book as `make docs` built it: links, names, commands and terms; and every page in Chromium, without a network."""

import functools
import http.server
import inspect
import json
import os
import shutil
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest
from playwright.sync_api import sync_playwright
from sphinx.util.inventory import InventoryFile

import ridgeformer
from ridgeformer.cli.options import cli

DOCS = Path(__file__).parents[1]
BOOK = DOCS / "_build" / "html"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
sys.path.insert(0, str(DOCS / "extensions"))
from public import public_names  # noqa: E402
from terms import terms_of  # noqa: E402

PUBLIC = public_names(DOCS / "reference" / "api" / "index.md")
TOP = PUBLIC.pop("ridgeformer")


class Page(HTMLParser):
    """Links of a page, files that it loads, and places in it that links can name."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.names = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get("src"):
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "prefetch"):
            self.loads.append(given["href"])


@pytest.fixture(scope="session")
def pages():
    found = {path: Page(path) for path in sorted(BOOK.rglob("*.html"))}
    assert len(found) > 60, "build the book first: make docs"
    return found


@pytest.fixture(scope="session")
def browser():
    assert CHROMIUM, "install Chromium (Debian: apt-get install chromium)"
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=options, env={**os.environ, "TMPDIR": "/tmp"}, timeout=120_000
        )
        yield chromium
        chromium.close()


def is_outside(address):
    return urlsplit(address).scheme in ("http", "https", "mailto") or address.startswith("//")


def test_internal_links_lead_to_pages_and_sections(pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if is_outside(link) or parts.scheme == "data":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            named = not anchor or target.suffix != ".html" or target.name == "playground.html"
            if not target.exists() or not (named or anchor in pages[target].names):
                broken.append(f"{path.relative_to(BOOK)}: {link}")
    assert broken == []


def test_pages_load_files_of_the_book_only(pages):
    loaded = {(path.name, address) for path, page in pages.items() for address in page.loads}
    assert [pair for pair in loaded if is_outside(pair[1])] == []
    missing = {
        (path.name, address)
        for path, page in pages.items()
        for address in page.loads
        if not address.startswith("data:") and not (path.parent / unquote(urlsplit(address).path)).exists()
    }
    assert missing == set()


def test_every_tutorial_has_its_notebook(pages):
    tutorials = [path for path in (DOCS / "tutorials").glob("*.md") if path.stem != "index"]
    assert len(tutorials) >= 10
    for page in tutorials:
        built = BOOK / "tutorials" / f"{page.stem}.html"
        (link,) = [link for link in pages[built].links if link.endswith(f"{page.stem}.ipynb")]
        notebook = json.loads((built.parent / link).read_text(encoding="utf-8"))
        code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert code
        for cell in code:
            compile(cell, page.name, "exec")


def documented():
    """The names in the inventory of the book, by kind."""
    return InventoryFile.loads((BOOK / "objects.inv").read_bytes(), uri="").data


def test_every_public_name_is_in_the_reference():
    names = {name for kind, entries in documented().items() if kind.startswith("py:") for name in entries}
    for module, listed in PUBLIC.items():
        for name in listed:
            assert f"{module}.{name}" in names, f"{module}.{name}"
    top = (BOOK / "reference" / "api" / "top-level.html").read_text(encoding="utf-8")
    missing = [
        name
        for name in TOP
        if not inspect.ismodule(getattr(ridgeformer, name)) and f'descname"><span class="pre">{name}<' not in top
    ]
    assert missing == []


def test_types_are_linked_here_and_elsewhere(pages):
    """Types of the package lead to their pages, those of other libraries to their sites, by stored inventories."""
    links = {link for path, page in pages.items() if path.parent.name == "api" for link in page.links}
    assert any(link.endswith("problems.html#ridgeformer.problems.Problem") for link in links)
    assert "https://numpy.org/doc/stable/reference/generated/numpy.ndarray.html#numpy.ndarray" in links
    assert "https://docs.python.org/3/library/pathlib.html#pathlib.Path" in links


# Rooms of the package that are no part of its interface.
PRIVATE = {"bfgs", "cli", "files", "loading", "losses", "tensors", "validation", "values"}


def test_every_room_of_the_package_has_a_page():
    parts = [path for path in Path(ridgeformer.__file__).parent.iterdir() if path.suffix in ("", ".py")]
    rooms = {path.stem for path in parts if not path.stem.startswith(("_", "."))}
    shown = {module.split(".")[1] for module in PUBLIC}
    assert rooms - shown <= PRIVATE


def commands(command, path=("ridgeformer",)):
    yield path
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))


def test_every_command_and_option_is_in_the_reference(pages):
    names = pages[BOOK / "reference" / "command-line.html"].names
    text = (BOOK / "reference" / "command-line.html").read_text(encoding="utf-8")
    found = list(commands(cli))
    assert len(found) > 12
    for path in found:
        assert "-".join(path) in names, path
        command = cli
        for name in path[1:]:
            command = command.commands[name]
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert max(option.opts, key=len) in text, (path, option.opts)
    assert "\N{EN DASH}" not in text, "two hyphens of an option became a dash"


def test_every_term_is_linked_from_a_page(pages):
    links = {
        urlsplit(link).fragment
        for path, page in pages.items()
        if path.name not in ("glossary.html", "genindex.html")
        for link in page.links
        if "glossary" in link
    }
    entries = documented()["std:term"]
    terms = terms_of(DOCS / "reference" / "glossary.md")
    assert len(terms) > 70
    assert [term for term in terms if entries[term].uri.split("#")[1] not in links] == []


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_show_without_errors_and_without_a_network(browser, pages, width):
    problems = []
    tab = browser.new_page(viewport={"width": width, "height": 900})
    tab.set_default_timeout(120_000)
    tab.on("pageerror", lambda error: problems.append(f"{tab.url}: {error}"))
    tab.on(
        "console", lambda message: problems.append(f"{tab.url}: {message.text}") if message.type == "error" else None
    )
    tab.on("request", lambda request: problems.append(request.url) if is_outside(request.url) else None)
    for path in pages:
        tab.goto(path.as_uri())
        tab.wait_for_load_state()
        if width == 390 and path.name != "playground.html":
            wide = tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            if wide > 0:
                problems.append(f"{path.relative_to(BOOK)}: {wide} pixels too wide")
    tab.close()
    assert problems == []


def test_formulas_are_typeset(browser):
    tab = browser.new_page()
    tab.goto((BOOK / "start" / "one-layer.html").as_uri())
    tab.wait_for_selector("mjx-container svg", timeout=120_000)
    assert tab.locator("mjx-container").count() > 20
    assert tab.locator("mjx-merror").count() == 0
    tab.close()


@pytest.mark.parametrize(
    ("words", "page"), [("explosion", "reference/glossary"), ("InContextRegressor", "reference/api/sklearn")]
)
def test_search_finds_pages(browser, words, page):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(BOOK)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tab = browser.new_page()
    try:
        tab.goto(f"http://127.0.0.1:{server.server_port}/search.html?q={words}")
        tab.wait_for_selector(f"ul.search a[href^='{page}']", timeout=120_000)
    finally:
        tab.close()
        server.shutdown()
        server.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server that does not print."""

    def log_message(self, *arguments):
        pass
