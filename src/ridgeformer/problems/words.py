"""A problem in words: one sentence for each of its parts.

>>> from ridgeformer import Problem
>>> for part, sentence in describe(Problem(dim=4, context="10..40", noise="uniform(0,2)", tasks="pool(64)")).items():
...     print(f"{part}: {sentence}")
features: x is N(0, I) in 4 dimensions.
tasks: w is drawn from a pool of 64 vectors, which are themselves drawn from N(0, I) with seed 0.
context: n is one of the 31 numbers 10..40, each with the same probability; the mean is 25.
noise: sigma has the distribution uniform(0,2); E[sigma^2] is 1.333.
query: Queries have the covariance of the features.
"""

from __future__ import annotations

from ridgeformer.problems.features import (
    Covariance,
    Factors,
    Features,
    Isotropic,
    PowerLaw,
    Rotated,
    Scales,
    Spectrum,
    Standardised,
)
from ridgeformer.problems.problem import Problem
from ridgeformer.problems.tasks import Gaussian, LowRankTasks, Mixture, Pool, Tasks

__all__ = ["describe"]


def describe(problem: Problem) -> dict[str, str]:
    """Say what a problem is.

    Args:
        problem: The distribution of sequences.

    Returns:
        A sentence for `features`, `tasks`, `context`, `noise` and `query`.
    """
    lengths, noise = problem.lengths, problem.noise
    fixed = f"Every context has n = {lengths} examples."
    drawn = (
        f"n is one of the {len(lengths.values)} numbers {lengths}, each with the same probability; "
        f"the mean is {lengths.mean:g}."
    )
    query = (
        "Queries have the covariance of the features."
        if problem.query is None
        else f"Queries have another covariance than the features: {_features(problem.query, problem.dim)}."
    )
    return {
        "features": _features(problem.features, problem.dim) + ".",
        "tasks": _tasks(problem.tasks) + ".",
        "context": fixed if lengths.fixed else drawn,
        "noise": f"sigma has the distribution {noise}; E[sigma^2] is {noise.second_moment:.4g}.",
        "query": query,
    }


def _features(features: Features, dim: int) -> str:
    if isinstance(features, Isotropic):
        return f"x is N(0, I) in {dim} dimensions"
    if isinstance(features, Covariance):
        return f"x is N(0, Lambda) with a given {dim} x {dim} matrix Lambda"
    if isinstance(features, PowerLaw):
        variances = f"variances in proportion to i^-{features.exponent:g}, their sum is {dim}"
        return f"x has independent coordinates with {variances}"
    if isinstance(features, Spectrum):
        return f"x has independent coordinates with {dim} given variances"
    if isinstance(features, Rotated):
        inner = _features(features.spectrum, dim)
        return f"Each sequence has a random rotation of the same law: {inner}"
    if isinstance(features, Factors):
        factors = f"{features.count} common factor{'s' * (features.count > 1)}"
        return (
            f"Each sequence has random correlations from {factors}, with a unique variance of "
            f"{features.unique:g}; every feature has variance 1"
        )
    if isinstance(features, Scales):
        inner = _features(features.base, dim)
        return f"{inner}; each sequence then has random scales, whose logarithms have a spread of {features.spread:g}"
    if isinstance(features, Standardised):
        inner = _features(features.base, dim)
        return f"{inner}; features are then shifted and scaled to mean 0 and variance 1 within each context"
    return f"x has the law {features}"


def _tasks(tasks: Tasks) -> str:
    if isinstance(tasks, Mixture):
        pool = str(tasks._pool)
        return f"w is new with probability {tasks.new:g}, and otherwise from a pool: {pool}"
    if isinstance(tasks, Pool):
        if tasks.vectors is not None:
            return f"w is drawn from a pool of {tasks.count} given vectors"
        law = "N(0, I)" if tasks.kind == "gaussian" else "the sphere of radius sqrt(d)"
        made = f"which are themselves drawn from {law} with seed {tasks.seed}"
        return f"w is drawn from a pool of {tasks.count} vectors, {made}"
    if isinstance(tasks, LowRankTasks):
        return (
            f"w is Gaussian in the first {tasks.rank} coordinates, with variance d / {tasks.rank}, and 0 in the others"
        )
    if isinstance(tasks, Gaussian) and tasks.mean is None and tasks.covariance is None:
        return "w is N(0, I)"
    if isinstance(tasks, Gaussian):
        mean = "mean 0" if tasks.mean is None else "a given mean"
        covariance = "covariance I" if tasks.covariance is None else "a given covariance"
        return f"w is Gaussian with {mean} and {covariance}"
    return f"w has the law {tasks}"
