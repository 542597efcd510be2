"""Shared by many tests: models that stay of order one, draws, gradients by differences, and records of runs."""

import inspect
import json
import os
import re

import numpy as np
import pytest

from ridgeformer import InputError, LinearTransformer, Problem, engine, load, save
from ridgeformer.models import family_named
from ridgeformer.training import GradientDescent
from ridgeformer.training.store import checksum

LONGEST = 600  # seconds until a process counts as hanging, on a busy machine too
SMALL = Problem(dim=3, context=6, noise="uniform(0,2)")  # for descents
FEW = {"sequences": 1000, "threads": 1}
NATIVE = [name for name in engine.available() if name not in ("numpy", "jax")]


def unmeasured():
    """The environment for a process that a test interrupts: without coverage.

    Coverage holds a lock while it notes a line, and a KeyboardInterrupt at that moment leaves it locked for ever.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


def refused(call, words, kind=InputError):
    """The call raises an error with these words, in which ` ... ` stands for any text; returns the message."""
    with pytest.raises(kind, match="(?s)" + ".*".join(map(re.escape, words.split(" ... ")))) as caught:
        call()
    return str(caught.value)


def each(*rows, ids=None):
    """Repeat a test for every row, which holds its first arguments; a single one needs no tuple."""

    def decorate(test):
        names = list(inspect.signature(test).parameters)[: len(rows[0]) if isinstance(rows[0], tuple) else 1]
        return pytest.mark.parametrize(names if len(names) > 1 else names[0], rows, ids=ids)(test)

    return decorate


def refusals(*rows, by=lambda call: call(), kind=InputError):
    """A test of every row, which holds arguments of `by` and the words of the error that they lead to."""

    @pytest.mark.parametrize("row", rows, ids=range(len(rows)))
    def test(row):
        refused(lambda: by(*row[:-1]), row[-1], kind)

    return test


def tame_model(kind, dim, layers, heads, context, seed=0):
    """A random model whose layers change tokens by about a tenth: nothing explodes, nothing is negligible.

    G has a norm of about (sqrt(n) + sqrt(D))^2 (1 + |w|^2) <= 4 (n + D) D, and P and Q one of 2 sqrt(D) times their
    standard deviation if Full: together they must make up for that.
    """
    D = dim + 1
    size = 4 * (context + D) * D
    spread = 0.5 / np.sqrt(heads) / (2 * np.sqrt(D) if kind == "full" else 1)
    return LinearTransformer.random(kind, dim=dim, layers=layers, heads=heads, scale=spread, context=size, seed=seed)


def repeated(family, layers, **options):
    """A random model with as many layers, in which a looped family repeats its own."""
    once = max(layers // getattr(family_named(family), "loops", 1), 1)
    return LinearTransformer.random(family, dim=3, layers=once, **options)


def same_model(one, other):
    """Two models have the same arrays, bit by bit."""
    return all((a == other.family.arrays[name]).all() for name, a in one.family.arrays.items())


def descent(**options):
    """Gradient descent of 40 steps, unless told."""
    return GradientDescent(**{"rate": 1e-3, "steps": 40, "scale": 0.05, **options})


def draw(dim, context, count=9, seed=0, noise="uniform(0,1)", **options):
    return Problem(dim, context, noise).moments(count, seed=seed, **options)


# Float32 has 6e-8 to lose per operation and some hundred dependent ones: 1e-4 of the largest entry.
TOLERANCE = {np.float64: 1e-10, np.float32: 1e-4}


def close(actual, expected, dtype=np.float64, tolerance=None):
    """To rounding, relative to the largest entry; the gradients of a kernel, which are float64, array by array."""
    if isinstance(expected, tuple):
        assert {piece.dtype for piece in actual} == {np.dtype(np.float64)}
        for mine, other in zip(actual, expected, strict=True):
            close(mine, other, dtype, tolerance)
        return
    assert np.shape(actual) == np.shape(expected)
    scale = max(float(np.abs(expected).max(initial=0)), 1e-6)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=(tolerance or TOLERANCE[dtype]) * scale)


def check_slope(evaluate, kernel, seed=0, h=1e-5):
    """Gradients by central differences along random directions: error h^2 from curvature, 1e-16 / h from rounding.

    `evaluate(kernel, gradient)` gives the evaluation of a kernel.
    """
    result, rng = evaluate(kernel, True), np.random.default_rng(seed)
    for _ in range(3):
        direction = [rng.standard_normal(p.shape) * np.abs(p).max() for p in kernel]
        moved = ([p + s * h * v for p, v in zip(kernel, direction, strict=True)] for s in (1, -1))
        up, down = (evaluate(type(kernel)(*arrays), False).loss for arrays in moved)
        parts = [g * v for g, v in zip(result.gradient, direction, strict=True)]
        slope, size = sum(part.sum() for part in parts), sum(np.abs(part).sum() for part in parts)
        assert slope == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-6 * size + 1e-9 * result.loss)


def slopes(function, point, step=1e-6):
    """The gradient by central differences, [k]."""
    eye = step * np.eye(len(point))
    return np.array([(function(point + e) - function(point - e)) / (2 * step) for e in eye])


def write_grid(path, seeds):
    """A grid of eight runs for each seed."""
    path.write_text(
        'noise = ["uniform(0,3)", "fixed(1)"]\ndim = [3]\ncontext = [6]\nfamilies = ["gdpp", "diag"]\nlayers = [1, 2]\n'
        f"seeds = {list(range(seeds))}\nsequences = 1000\n[protocol]\neffort = 0.2\n"
    )
    return path


def bits(folders):
    """The bytes of all parameters of stored models, by the names of their runs."""
    models = {folder.name: load(folder / "model.safetensors") for folder in folders}
    return {name: {key: v.tobytes() for key, v in model.family.arrays.items()} for name, model in models.items()}


def write_record(folder, record):
    """Write another record into a finished run, with the checksums that it would have if training had written it."""
    path = folder / "model.safetensors"
    told = {name: value for name, value in record.items() if name not in ("model", "checksum")}
    save(load(path), path, record=told)
    record["checksum"] = checksum(record)
    (folder / "record.json").write_text(json.dumps(record))
