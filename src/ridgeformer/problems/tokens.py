"""Whole sequences of a problem, token by token: the same law as its moments, from other random numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ridgeformer.engine import Choices, Engine, Key, Law
from ridgeformer.engine.sampler import task_uniforms
from ridgeformer.problems.draws import Draw, Sequences
from ridgeformer.values import read_only

if TYPE_CHECKING:
    from ridgeformer.problems.problem import Problem

__all__ = ["draw_tokens", "draw_with_tokens", "law_and_choices"]

Array = NDArray[np.float64]


def law_and_choices(problem: Problem, key: Key, count: int, first: int, engine: Engine) -> tuple[Law, Choices]:
    """Return what engines draw sequences from: tasks that they cannot draw are a pool, one for each sequence.

    Args:
        problem: The distribution of sequences.
        key: The stream of random sequences.
        count: How many sequences, B.
        first: The number of the first one.
        engine: Where random numbers are computed.

    Returns:
        The law and the choices.
    """
    choices = problem.choices(count, **key._asdict(), first=first, engine=engine)
    if not (numbers := problem.tasks.numbers(problem.dim)):
        return problem.law, choices
    tasks = problem.tasks.drawn(task_uniforms(key, count, first, numbers))
    return replace(problem.law, pool=tasks), replace(choices, task=np.arange(count))


def draw_tokens(problem: Problem, rng: np.random.Generator, count: int, queries: int) -> Sequences:
    """Draw whole sequences.

    Args:
        problem: The distribution of sequences.
        rng: The random numbers.
        count: How many sequences, B.
        queries: How many queries each sequence has.

    Returns:
        The sequences; where n varies, contexts are filled up with tokens that are 0.
    """
    n, each = problem.lengths.most, problem.noise.per_token
    sigma = problem.noise.quantile(rng.random((count, n) if each else count))
    task = rng.standard_normal((count, problem.dim))
    x = rng.standard_normal((count, n, problem.dim))
    noise = (sigma if each else sigma[:, None]) * rng.standard_normal((count, n))
    asked = rng.standard_normal((count, queries, problem.dim))
    counts = metric = None
    if not problem.is_isotropic:
        counts = None if problem.lengths.fixed else problem.lengths.quantile(rng.random(count))
        there = np.arange(n) < (n if counts is None else counts[:, None])
        covariances = problem.features.covariances(problem.dim, count, rng)
        x, asked, metric = _shaped(problem, x, asked, covariances, np.broadcast_to(there, (count, n)))
        noise, task = noise * there, _task(problem, task, rng)
    y = np.einsum("bnd,bd->bn", x, task) + noise
    answers = np.einsum("bnd,bd->bn", asked, task)
    x, y, asked, answers, task, sigma = map(read_only, (x, y, asked, answers, task, sigma))
    return Sequences(x, y, asked, answers, task, sigma, counts, metric)


def draw_with_tokens(problem: Problem, rng: np.random.Generator, count: int, queries: int = 4) -> Draw:
    """Draw whole sequences with all that is known about them.

    Args:
        problem: The distribution of sequences.
        rng: The random numbers.
        count: How many sequences, B.
        queries: How many queries each sequence has.

    Returns:
        The draw, with its tokens.
    """
    tokens = draw_tokens(problem, rng, count, queries)
    moments, task = tokens.moments, tokens.task
    assert task is not None
    return Draw(moments, task, problem.oracle(tokens), moments.sigma, tokens.metric, tokens=tokens)


def _shaped(
    problem: Problem, x: Array, asked: Array, covariances: Array, there: Any
) -> tuple[Array, Array, Array | None]:
    """Features and queries with their covariances, [B, n, d] and [B, m, d], and the queries' one as a metric.

    Tokens that are not there become 0.
    """
    roots = np.linalg.cholesky(covariances)
    x = np.einsum("bij,bnj->bni", roots, x) * there[:, :, None]
    if problem.query is not None:
        roots = np.broadcast_to(np.linalg.cholesky(problem.query.mean_covariance(problem.dim)), roots.shape)
    asked = np.einsum("bij,bnj->bni", roots, asked)
    if not problem.features.standardised:
        return x, asked, np.array(covariances) if problem.law.own_metric else problem.law.metric
    n = there.sum(1)[:, None, None]
    mean = x.sum(1, keepdims=True) / n
    x = (x - mean) * there[:, :, None]
    scale = np.sqrt(np.square(x).sum(1, keepdims=True) / n)
    return x / scale, (asked - mean) / scale, covariances / np.swapaxes(scale, 1, 2) / scale * (1 + 1 / n)


def _task(problem: Problem, g: Array, rng: np.random.Generator) -> Array:
    if numbers := problem.tasks.numbers(problem.dim):
        return problem.tasks.drawn(rng.random((len(g), numbers)))
    u, prior, pool = rng.random(len(g)), problem.prior, problem.law.pool
    w = prior.back(g if prior.factor is None else g[:, : prior.factor.shape[1]])
    if pool is None:
        return w
    chosen = problem.tasks.choose(u, problem.dim)
    assert chosen is not None
    return np.where((chosen >= 0)[:, None], pool[chosen], w)
