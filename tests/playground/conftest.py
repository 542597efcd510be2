"""The page in Chromium, shared by the tests of the playground."""

import os
import shutil

import pytest

from ridgeformer.playground import write_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 120_000  # milliseconds; a busy machine needs many seconds for what takes one otherwise


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("playground") / "playground.html")


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]
        # The path of the socket that Chromium makes in its temporary folder has at most 108 characters.
        place = {**os.environ, "TMPDIR": "/tmp"} if os.access("/tmp", os.W_OK) else dict(os.environ)
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=options, env=place, timeout=PATIENCE)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser, file):
    """Opens the page at an address; afterwards there must be no errors, and nothing asked of the network."""
    tabs, problems = [], []

    def go(address="", **options):
        tab = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, "bypass_csp": True, **options})
        tab.set_default_timeout(PATIENCE)
        tab.on("pageerror", lambda error: problems.append(f"error: {error}"))
        tab.on(
            "console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None
        )
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
