"""The page in Chromium, shared by the tests of the playground."""

import pytest

from ridgeformer.playground import write_page

PATIENCE = 120_000  # milliseconds; a busy machine needs many seconds for what takes one otherwise


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("playground") / "playground.html")


@pytest.fixture
def visit(browser, file):
    """Opens the page at an address; afterwards there must be no errors, and nothing asked of the network."""
    tabs, problems = [], []

    def go(address="", **options):
        tab = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, "bypass_csp": True, **options})
        tab.set_default_timeout(PATIENCE)
        tab.on("pageerror", lambda error: problems.append(f"error: {error}"))
        tab.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        tab.on("request", lambda request: _check(request.url, problems))
        tab.goto(f"{file.as_uri()}#{address}")
        tab.wait_for_selector("html[data-ready]")
        tab.wait_for_function("playground.updates > 0")
        tabs.append(tab)
        return tab

    yield go
    for tab in tabs:
        tab.close()
    assert problems == []


def _check(url, problems):
    if not url.startswith(("file:", "blob:", "data:")):
        problems.append(f"request: {url}")
