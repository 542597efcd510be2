"""Shared by all tests: settings, the engines to test, and a way to run commands."""

import os
import shutil
import signal
import warnings

import pytest
from hypothesis import HealthCheck, settings

from ridgeformer import cli, engine
from support import LONGEST, NATIVE

settings.register_profile(
    "default", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")

# A shell that starts the tests in the background makes them, and the processes that they start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What a machine may set, and what would change the text that commands print: colours, and the width of a terminal.
for _name in ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# With RIDGEFORMER_NO_SKIPS=1, a test that is skipped because something is missing has failed. Root is not missing.
NO_SKIPS = os.environ.get("RIDGEFORMER_NO_SKIPS") == "1"
ALLOWED = ("Skipped: root may",)  # write or look anywhere: file permissions cannot be tested by root


def _refuse_skips(report):
    """Turn a skip into a failure with the same reason."""
    if NO_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not reason.startswith(ALLOWED):
            report.outcome = "failed"
            report.longrepr = f"{reason}\nRIDGEFORMER_NO_SKIPS=1 allows no skips: install what is missing."
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _refuse_skips((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _refuse_skips((yield))


@pytest.fixture(params=NATIVE)
def native(request):
    return engine.named(request.param)


@pytest.fixture(params=engine.available())
def any_engine(request):
    return engine.named(request.param)


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command in this process; returns its exit code, what it prints and its messages."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which main replaces

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([*map(str, arguments)])
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        # Root has no sandbox, and the shared memory of a container is too small for a page.
        options = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]
        options += ["--disable-component-update", "--force-color-profile=srgb", "--lang=en-US"]
        # It makes a socket in its temporary folder, and the path of a socket has at most 108 characters.
        place = {**os.environ, "TMPDIR": "/tmp"} if os.access("/tmp", os.W_OK) else dict(os.environ)
        chromium = playwright.chromium.launch(executable_path=path, args=options, env=place, timeout=1000 * LONGEST)
        yield chromium
        chromium.close()
