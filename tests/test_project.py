"""The project around the package: its version is written once, skips can be forbidden, lower bounds are found."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

import ridgeformer
from support import unmeasured

SOURCE = Path(ridgeformer.__file__).resolve().parents[1]
ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_build_reads_the_version_of_the_package(monkeypatch):
    """The build backend's own provider, with the settings of pyproject.toml, finds `ridgeformer.__version__`."""
    provider = pytest.importorskip("scikit_build_core.metadata.regex")
    settings = dict(PYPROJECT["tool"]["scikit-build"]["metadata"]["version"])
    assert settings.pop("provider") == provider.__name__
    assert "version" not in PYPROJECT["project"]
    assert "version" in PYPROJECT["project"]["dynamic"]
    monkeypatch.chdir(ROOT)
    assert provider.dynamic_metadata("version", settings) == ridgeformer.__version__


def test_a_release_is_named_everywhere():
    """A version that is not under development has a date in the changelog, and the citation names both."""
    version, changes = ridgeformer.__version__, (ROOT / "CHANGELOG.md").read_text()
    heading = re.search(rf"^## {re.escape(version.removesuffix('.dev0'))} \((.+)\)$", changes, re.M)
    if not version.endswith(".dev0"):
        assert f"\nversion: {version}\ndate-released: {heading[1]}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_installed_version_is_that_of_the_package():
    """What pip shows is what `ridgeformer --version` prints."""
    installed = importlib.metadata.distribution("ridgeformer")
    source = json.loads(installed.read_text("direct_url.json") or "{}")
    if source.get("dir_info", {}).get("editable") and not os.path.samefile(unquote(urlparse(source["url"]).path), ROOT):
        pytest.skip("another checkout is installed in this environment (run `make install` here)")
    assert installed.version == ridgeformer.__version__


def test_the_readme_of_the_package_index_has_no_relative_links(monkeypatch):
    """The build replaces them by addresses in the repository, whose files exist here."""
    provider = pytest.importorskip("scikit_build_core.metadata.fancy_pypi_readme")
    assert PYPROJECT["tool"]["scikit-build"]["metadata"]["readme"] == {"provider": provider.__name__}
    monkeypatch.chdir(ROOT)
    text = provider.dynamic_metadata("readme", {}, PYPROJECT["project"] | {"version": ridgeformer.__version__})["text"]
    assert f"git clone {PYPROJECT['project']['urls']['Repository']} " in text
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert any(target.endswith((".png", ".gif")) for target in targets)
    name = PYPROJECT["project"]["urls"]["Repository"].removeprefix("https://github.com/")
    for target in targets:
        host, _, path = target.removeprefix("https://").partition("/")
        assert target.startswith("https://"), target
        if host in ("github.com", "raw.githubusercontent.com"):
            inside = re.fullmatch(rf"{name}/(blob/)?v{re.escape(ridgeformer.__version__)}/(.+)", path)
            assert inside, target
            assert (ROOT / inside[2]).exists(), target
            assert (host == "raw.githubusercontent.com") == target.endswith((".png", ".gif"))


def test_the_address_of_the_repository_is_written_in_one_file():
    name = PYPROJECT["project"]["urls"]["Repository"].removeprefix("https://")
    listed = subprocess.run(["git", "grep", "-l", name], cwd=ROOT, capture_output=True, text=True)
    assert listed.returncode == 0 or not (ROOT / ".git").exists()
    assert set(listed.stdout.split()) <= {"pyproject.toml"}


def test_workflows_that_release_require_the_core():
    """Without this switch, a core that does not compile is left out of the wheel; see pyproject.toml."""
    override = next(one for one in PYPROJECT["tool"]["scikit-build"]["overrides"] if "failed" in one["if"])
    assert override["if"] == {"failed": True, "env": {"RIDGEFORMER_REQUIRE_CORE": False}}
    assert PYPROJECT["tool"]["cibuildwheel"]["environment"] == {"RIDGEFORMER_REQUIRE_CORE": "1"}
    assert 'RIDGEFORMER_REQUIRE_CORE: "1"' in (ROOT / ".github" / "workflows" / "wheels.yml").read_text()


SKIPPING = """
import pytest
def test_package():
    pytest.importorskip("a_package_that_nobody_has")
@pytest.mark.skipif(True, reason="root may write anywhere")
def test_root():
    pass
@pytest.mark.xfail
def test_known():
    raise ValueError
"""


@pytest.mark.parametrize(("forbidden", "code"), [("", 0), ("1", 1)])
@pytest.mark.parametrize("text", [SKIPPING, 'import pytest\npytest.importorskip("a_package_that_nobody_has")'])
@pytest.mark.slow
def test_skips_are_listed_or_are_failures(tmp_path, text, forbidden, code):
    """With RIDGEFORMER_NO_SKIPS=1, as in CI, a missing package fails; otherwise it is listed. Root is an exception."""
    (tmp_path / "test_it.py").write_text(text)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    places = os.pathsep.join(map(str, (SOURCE, ROOT / "tests")))
    environment = {**unmeasured(), "RIDGEFORMER_NO_SKIPS": forbidden, "PYTHONPATH": places}
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", "-p", "no:xdist", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "a_package_that_nobody_has" in done.stdout
    assert ("RIDGEFORMER_NO_SKIPS=1 allows no skips" in done.stdout) == bool(forbidden)
    if text == SKIPPING:
        assert done.returncode == code
        assert ("2 skipped, 1 xfailed" in done.stdout) == (not forbidden)
        assert ("1 failed, 1 skipped, 1 xfailed" in done.stdout) == bool(forbidden)
    else:
        assert done.returncode == (2 if forbidden else 5)  # an error while collecting; or no tests


def test_the_lowest_versions_are_those_of_pyproject():
    done = subprocess.run([sys.executable, ROOT / ".ci/lowest.py", "plot"], capture_output=True, text=True, check=True)
    wanted = [*PYPROJECT["project"]["dependencies"], *PYPROJECT["project"]["optional-dependencies"]["plot"]]
    assert done.stdout.split() == [requirement.replace(">=", "==") for requirement in wanted]


def test_versions_of_python_are_the_same_everywhere():
    """Classifiers, wheels and the tests of the workflow name the same versions, the first of which is required."""
    named = [line.rpartition(" ")[2] for line in PYPROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert PYPROJECT["tool"]["cibuildwheel"]["build"] == [f"cp{version.replace('.', '')}-*" for version in named]
    assert PYPROJECT["project"]["requires-python"] == f">={named[0]}"
    assert f"python: {json.dumps(named)}" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_publishing_waits_for_the_tests():
    wheels = (ROOT / ".github" / "workflows" / "wheels.yml").read_text()
    assert "    needs: [tests, wheels, without-core, windows, source]\n" in wheels
    assert "    uses: $/.github/workflows/ci.yml\n" in wheels
    assert "  workflow_call:" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_actions_are_pinned_by_commit():
    """Actions by commit, with the release beside it; zizmor, in `make lint-project`, checks the rest."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for line in path.read_text().splitlines():
            if "uses:" in line and "uses: $/" not in line:
                assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
