"""The project around the package: its version is written once."""

import importlib.metadata
import json
import os
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

import ridgeformer

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_build_reads_the_version_of_the_package(monkeypatch):
    """The build backend's own provider, with the settings of pyproject.toml, finds `ridgeformer.__version__`."""
    provider = pytest.importorskip("scikit_build_core.metadata.regex")
    settings = dict(PYPROJECT["tool"]["scikit-build"]["metadata"]["version"])
    assert settings.pop("provider") == provider.__name__
    assert "version" not in PYPROJECT["project"]
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    monkeypatch.chdir(ROOT)
    assert provider.dynamic_metadata("version", settings) == ridgeformer.__version__


def test_the_installed_version_is_that_of_the_package():
    """What pip shows is what `ridgeformer --version` prints."""
    installed = importlib.metadata.distribution("ridgeformer")
    source = json.loads(installed.read_text("direct_url.json") or "{}")
    if source.get("dir_info", {}).get("editable") and not os.path.samefile(unquote(urlparse(source["url"]).path), ROOT):
        pytest.skip("another checkout is installed in this environment (run `make install` here)")
    assert installed.version == ridgeformer.__version__
