"""The problem: noisy linear regression in context, y_i = <w, x_i> + sigma xi_i with w, x_i ~ N(0, I).

>>> problem = Problem(dim=10, context=20, noise="uniform(0,5)")
>>> draw = problem.moments(1000, seed=1)
>>> draw.moments
Moments(1000 contexts, dim=10, context=20, float64)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ridgeformer import engine as engines
from ridgeformer.engine import Engine, Key
from ridgeformer.errors import refuse
from ridgeformer.moments import Moments
from ridgeformer.noise import Noise, as_noise
from ridgeformer.validation import integer, precision
from ridgeformer.values import Value, read_only

__all__ = ["Draw", "Problem", "Sequences"]

Float = NDArray[np.floating[Any]]
Array = NDArray[np.float64]
MOST = 1 << 32  # sequences of one key


@dataclass(eq=False, repr=False)
class Sequences(Value):
    """Whole sequences, token by token.

    Attributes:
        x: [B, n, d]; y: [B, n]: the context.
        queries: [B, m, d]; answers: [B, m], without noise.
        task: [B, d], the w of each sequence; sigma: [B].
    """

    x: Array
    y: Array
    queries: Array
    answers: Array
    task: Array
    sigma: Array

    def __repr__(self) -> str:
        count, n, d = self.x.shape
        return f"Sequences({count} of {n} tokens, dim={d}, {self.queries.shape[1]} queries each)"


@dataclass(eq=False, repr=False)
class Draw(Value):
    """Moments of random sequences and what is known about each.

    Attributes:
        moments: of B contexts.
        task: [B, d], the w of each sequence.
        ridge: [B, d], E[w | context, sigma]: the best prediction when sigma is known.
        sigma: [B].
    """

    moments: Moments
    task: Float
    ridge: Float
    sigma: Array

    def __repr__(self) -> str:
        return f"Draw({self.moments!r}, task, ridge, sigma)"


@dataclass(init=False, unsafe_hash=True)
class Problem(Value):
    """In-context regression in `dim` dimensions from `context` examples, with noise levels drawn from `noise`.

    `noise` may be a `Noise`, its text, a number, or a frozen scipy.stats distribution.
    """

    dim: int
    context: int
    noise: Noise

    def __init__(self, dim: int = 10, context: int = 20, noise: object = None) -> None:
        if noise is None:
            refuse("a problem needs a noise distribution", "none", 'Pass noise="uniform(0,5)", for example.')
        self.dim = integer("dim", dim, 1, 4096)
        self.context = integer("context", context, 1, 1 << 52)
        self.noise = as_noise(noise)

    def __init_subclass__(cls, **keywords: object) -> NoReturn:
        """Refuse subclasses: training and evaluation would use their methods in some places and not in others."""
        refuse("Problem has no subclasses yet", cls.__name__, "Use Problem(dim, context, noise), with any noise.")

    def sigmas(
        self,
        count: int,
        *,
        seed: int = 0,
        stream: int = 0,
        step: int = 0,
        first: int = 0,
        engine: Engine | str | None = None,
    ) -> Array:
        """Noise levels of sequences `first` to `first + count`, [B]."""
        key = check_key(seed, stream, step)
        count = check_count(count, first)
        levels = self.noise.quantile(engines.resolve(engine).uniforms(key, count, first))
        return read_only(np.array(levels, np.float64, ndmin=1))

    def moments(
        self,
        count: int,
        *,
        seed: int = 0,
        stream: int = 0,
        step: int = 0,
        first: int = 0,
        dtype: DTypeLike = np.float64,
        engine: Engine | str | None = None,
        threads: int | None = None,
    ) -> Draw:
        """Moments drawn directly by Bartlett's decomposition, at a cost that does not depend on `context`.

        Sequence i of (seed, stream, step) is the same whatever `count`, `first` and the number of threads.
        """
        engine = engines.resolve(engine)
        dtype = precision(dtype)
        sigma = self.sigmas(count, seed=seed, stream=stream, step=step, first=first, engine=engine)
        key = Key(seed, stream, step)
        drawn = engine.sample(self.dim, self.context, sigma, key, first=first, dtype=dtype, threads=threads)
        gram, task, ridge = drawn
        return Draw(Moments._trusted(gram, self.context, sigma), read_only(task), read_only(ridge), sigma)

    def sequences(self, count: int, *, seed: int = 0, stream: int = 0, step: int = 0, queries: int = 1) -> Sequences:
        """Whole sequences: tokens, queries, task vectors, noise levels. Same law as `moments`, other numbers."""
        key = check_key(seed, stream, step)
        count, queries = check_count(count, 0), integer("queries", queries)
        rng = np.random.default_rng(np.random.SeedSequence(key))
        sigma = self.noise.quantile(rng.random(count))
        task = rng.standard_normal((count, self.dim))
        x = rng.standard_normal((count, self.context, self.dim))
        y = np.einsum("bnd,bd->bn", x, task) + sigma[:, None] * rng.standard_normal((count, self.context))
        asked = rng.standard_normal((count, queries, self.dim))
        answers = np.einsum("bnd,bd->bn", asked, task)
        return Sequences(*map(read_only, (x, y, asked, answers, task, sigma)))

    def __str__(self) -> str:
        return f"d={self.dim} n={self.context} {self.noise}"


def check_key(seed: int, stream: int, step: int) -> Key:
    """The key that names a stream of sequences."""
    return Key(
        integer("seed", seed, 0, (1 << 64) - 1),
        integer("stream", stream, 0, (1 << 32) - 1),
        integer("step", step, 0, (1 << 64) - 1),
    )


def check_count(count: int, first: int) -> int:
    """The number of sequences asked for."""
    first = integer("first", first, 0, MOST - 1)
    return integer("the number of sequences", count, 1, MOST - first)
