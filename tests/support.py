"""Shared by many tests: models that stay of order one, draws, gradients by differences, and records of runs."""

import json
import os

import numpy as np

from ridgeformer import LinearTransformer, Problem, engine, load, save
from ridgeformer.training.store.files import checksum

LONGEST = 600  # seconds until a process counts as hanging, on a busy machine too
NATIVE = [name for name in engine.available() if name not in ("numpy", "jax")]


def unmeasured():
    """The environment for a process that a test interrupts: without coverage.

    Coverage holds a lock while it notes a line, and a KeyboardInterrupt at that moment leaves it locked for ever.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


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


def slopes(function, point, step=1e-6):
    """The gradient by central differences, [k]."""
    eye = step * np.eye(len(point))
    return np.array([(function(point + e) - function(point - e)) / (2 * step) for e in eye])


def write_record(folder, record):
    """Write another record into a finished run, with the checksums that it would have if training had written it."""
    path = folder / "model.safetensors"
    told = {name: value for name, value in record.items() if name not in ("model", "checksum")}
    save(load(path), path, record=told)
    record["checksum"] = checksum(record)
    (folder / "record.json").write_text(json.dumps(record))
