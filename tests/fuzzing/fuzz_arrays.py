"""Odd arrays: integers, masked entries and matrices that are not symmetric mean the same everywhere, or are refused.

The truth is the token form of the model in float64, on plain arrays.
"""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_cases import attempt

from ridgeformer import Full, LinearTransformer, Moments
from ridgeformer.problems import Sequences

B, N, D = 2, 5, 3
RNG = np.random.default_rng(0)
MODEL = LinearTransformer(Full(*(0.05 * RNG.standard_normal((2, 2, 1, D + 1, D + 1)))))


def odd(values: Any, kind: str) -> Any:
    """The same numbers in an odd form; masked ones hide a number."""
    if kind == "masked":
        return np.ma.array(values, mask=np.arange(values.size).reshape(values.shape) == 1)
    if kind in ("int8", "int64", ">f8"):
        return values.astype(kind)
    return {"list": values.tolist(), "unmasked": np.ma.array(values), "plain": values}[kind]


@functools.cache
def readers() -> dict[str, Any]:
    """What takes tokens (x, y, queries) and predicts, by name."""
    found = {"predict": MODEL.predict, "moments": _by_moments, "sequences": _by_sequences}
    try:
        from ridgeformer.jax import to_jax

        parameters, apply = to_jax(MODEL)
        found["jax"] = lambda x, y, q: apply(
            parameters, *(v if isinstance(v, np.ndarray) else np.array(v) for v in (x, y, q))
        )
    except ImportError:
        pass
    return found


def _by_moments(x: Any, y: Any, queries: Any) -> Any:
    return np.einsum("bmd,bd->bm", np.asarray(queries), MODEL.weights(Moments.from_tokens(x, y)))


def _by_sequences(x: Any, y: Any, queries: Any) -> Any:
    drawn = Sequences(
        *(v if isinstance(v, np.ma.MaskedArray) else np.asarray(v) for v in (x, y, queries)), np.zeros((B, 1))
    )
    return np.einsum("bmd,bd->bm", np.asarray(queries), MODEL.weights(drawn.moments))


def judge(rng: random.Random, folder: Path) -> str:
    """Odd arrays for one of the readers, or a Gram matrix of which one entry is changed."""
    x, y, queries = (np.array([rng.randint(-3, 3) for _ in range(size)], float) for size in (B * N * D, B * N, B * D))
    tokens = [x.reshape(B, N, D), y.reshape(B, N), queries.reshape(B, 1, D)]
    kinds = [rng.choice(("int8", "int64", ">f8", "list", "masked", "unmasked", "plain")) for _ in "xyq"]
    name = rng.choice([*readers(), "gram"])

    def read() -> str:
        if name == "gram":
            gram = np.array(Moments.from_tokens(*tokens[:2]).gram)
            gram[0, 0, rng.randint(1, D)] += rng.choice((1.0, -1e3, np.nan))
            Moments(gram, N)
            raise AssertionError("an asymmetric Gram matrix was accepted")
        result = readers()[name](*(odd(value, kind) for value, kind in zip(tokens, kinds, strict=True)))
        hidden = "masked" in kinds[:2] or (name in ("predict", "jax") and "masked" in kinds)
        expected = MODEL.predict(*tokens)
        if hidden or not np.allclose(np.asarray(result, float), expected, rtol=1e-3, atol=1e-5):
            raise AssertionError(f"{name} of {kinds} is {result}, not {expected}")
        return "right"

    return f"{name} {' '.join(sorted({*kinds}))}: {attempt(read)}"
