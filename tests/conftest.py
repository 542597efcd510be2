"""Shared by all tests: the engines to test, and models that stay of order one."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from ridgeformer import LinearTransformer, Problem, engine, load, save
from ridgeformer.training import runs

settings.register_profile(
    "default", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")

# A shell that starts the tests in the background makes them, and the processes that they start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

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


NATIVE = [name for name in engine.available() if name != "numpy"]


@pytest.fixture(params=NATIVE)
def native(request):
    return engine.named(request.param)


@pytest.fixture(params=engine.available())
def any_engine(request):
    return engine.named(request.param)


def tame_model(kind, dim, layers, heads, context, seed=0):
    """A random model whose layers change tokens by about a tenth: nothing explodes, nothing is negligible.

    G has a norm of about (sqrt(n) + sqrt(D))^2 (1 + |w|^2) <= 4 (n + D) D, and P and Q one of 2 sqrt(D) times their
    standard deviation if Full: together they must make up for that.
    """
    D = dim + 1
    size = 4 * (context + D) * D
    spread = 0.5 / np.sqrt(heads) / (2 * np.sqrt(D) if kind == "full" else 1)
    return LinearTransformer.random(kind, dim=dim, layers=layers, heads=heads, scale=spread, context=size, seed=seed)


def draw(dim, context, count=9, seed=0, noise="uniform(0,1)", **options):
    return Problem(dim, context, noise).moments(count, seed=seed, **options)


def write_record(folder, record):
    """Write another record into a finished run, with the checksums that it would have if training had written it."""
    path = folder / "model.safetensors"
    told = {name: value for name, value in record.items() if name not in ("model", "checksum")}
    save(load(path), path, told)
    record["checksum"] = runs._checksum(record)
    (folder / "record.json").write_text(json.dumps(record))
