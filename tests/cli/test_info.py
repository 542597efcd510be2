"""`ridgeformer info` and `--version`."""

import json

from commands import call, process
from ridgeformer import __version__, engine


def test_info_says_version_features_and_threads():
    done = call("info", "--json", RIDGEFORMER_THREADS="3")
    facts = json.loads(done.stdout)
    assert facts["version"] == __version__
    assert facts["engine"] == engine.available()[0]
    assert facts["engines"] == list(engine.available())
    assert facts["threads"] == 3
    text = call("info").stdout
    assert __version__ in text
    assert "threads" in text


def test_version():
    assert process("--version").stdout == f"ridgeformer {__version__}\n"
