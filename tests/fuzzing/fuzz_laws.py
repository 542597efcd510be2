"""Laws with few examples: oracles and floors are posterior means, summed over all that sigma and w may be.

The truth is the density of the labels of whole sequences, by eigenvalues of their covariance; moments that an engine
draws are judged through tokens with the same Gram matrix, of which the oracle is the same.
"""

from itertools import product
from typing import Any

import numpy as np
from fuzz_cases import attempt

from ridgeformer import Problem, engine

Array = Any
FEATURES = ("isotropic()", "powerlaw(1)", "rotated(powerlaw(2))", "factors(1)", "scales(0.5)", "standardised()")
TASKS = ("gaussian", "mean", "lowrank", "pool", "mixture", "sparse", "some")
EXACT = ("pool", "mixture", "sparse", "some")  # of labels without noise that are exact a Gram matrix cannot tell
ENGINES = [name for name in engine.available() if name != "jax"]


def prior(tasks, d):
    """A law of tasks as a mixture of Gaussians: shares, means and roots of covariances; and its text."""
    points = np.array([[1.0, *([0.5] * (d - 1))], [-1.0] * d])
    pool = "pool([" + ",".join(f"[{','.join(map(repr, map(float, row)))}]" for row in points) + "])"
    whole, nothing = np.eye(d), np.zeros((d, 1))
    if tasks == "gaussian":
        return [(1.0, np.zeros(d), whole)], "gaussian()"
    if tasks == "mean":
        return [(1.0, np.full(d, 0.5), whole)], f"gaussian(mean=[{','.join(['0.5'] * d)}])"
    if tasks == "lowrank":
        return [(1.0, np.zeros(d), np.sqrt(d) * np.eye(d)[:, :1])], "lowrank(1)"
    if tasks in ("sparse", "some"):
        subsets = [np.array(one) for one in product([0.0, 1.0], repeat=d) if tasks == "some" or sum(one) == 1]
        shares = [0.3 ** one.sum() * 0.7 ** (d - one.sum()) if tasks == "some" else 1 / d for one in subsets]
        text = "sparse(p=0.3)" if tasks == "some" else "sparse(1)"
        return [(share, np.zeros(d), np.diag(one)) for share, one in zip(shares, subsets, strict=True)], text
    known = [(0.5, row, nothing) for row in points]
    if tasks == "pool":
        return known, pool
    return [(0.3, np.zeros(d), whole), *((0.35, row, nothing) for row in points)], f"mixture({pool},0.3)"


def given(x, y, sigma, share, mean, root):
    """How singular the density of y is, its logarithm, and E[w | x, y], for w = mean + root g."""
    features, residual = x @ root, y - x @ mean
    values, basis = np.linalg.eigh(features @ features.T)
    c, size = basis.T @ residual, max(float(np.abs(y).max()), 1e-300)
    variances = np.where(values > 1e-11 * max(values.max(), 1e-300), values, 0.0) + sigma**2
    flat = variances == 0
    if (np.abs(c[flat]) > 1e-6 * size).any():
        return 0, -np.inf, mean
    c, variances, basis = c[~flat], variances[~flat], basis[:, ~flat]
    log = np.log(share) - 0.5 * (np.log(2 * np.pi * variances) + c**2 / variances).sum()
    return int(flat.sum()), float(log), mean + root @ features.T @ basis @ (c / variances)


def posterior(x, y, levels, parts):
    """E[w | x, y], where sigma is one of some levels with probabilities."""
    every = [given(x, y, sigma, p * share, *law) for sigma, p in levels for share, *law in parts]
    most = max((flat for flat, log, _ in every if log > -np.inf), default=0)
    logs = np.array([log if flat == most else -np.inf for flat, log, _ in every])
    weights = np.exp(logs - logs.max())
    return np.average([w for *_, w in every], axis=0, weights=weights)


def tokens_of(gram, n):
    """At most n tokens x and y with this Gram matrix."""
    values, basis = (part[..., -min(n, len(gram)) :] for part in np.linalg.eigh(gram))
    rows = np.sqrt(np.maximum(values, 0.0))[:, None] * basis.T
    return rows[:, :-1], rows[:, -1]


def judge(rng, folder):
    """One law, of which a few sequences are judged."""
    return attempt(lambda: _judged(rng))


def _judged(rng):
    d, low = rng.randint(1, 4), rng.randint(1, 5)
    context = rng.choice((low, f"{low}..{low + rng.randint(1, 4)}"))
    levels = sorted({rng.choice((0.0, 0.3, 1.0, 2.5)) for _ in range(rng.randint(1, 3))})
    kind, features = rng.choice(TASKS), rng.choice(FEATURES)
    parts, text = prior(kind, d)
    problem = Problem(d, context, f"categorical({','.join(map(repr, levels))})", features=features, tasks=text)
    noise, seed = [(sigma, 1 / len(levels)) for sigma in levels], rng.randint(0, 10**6)
    s = problem.sequences(4, seed=seed)
    counts = np.full(4, s.x.shape[1]) if s.context is None else s.context
    best, oracle = problem.best_predictor().weights(s.moments), problem.oracle(s)
    # Without noise, sums over subsets know their residuals to 1e-16 of l, which is 1e-4 of the least variance.
    within = 3e-4 if kind in ("sparse", "some") and not levels[0] else 1e-5
    for i, n in enumerate(counts):
        x, y = np.asarray(s.x[i, :n]), np.asarray(s.y[i, :n])
        _agree(best[i], posterior(x, y, noise, parts), f"the floor of {problem}, seed {seed}, sequence {i}", within)
        _agree(oracle[i], posterior(x, y, [(s.sigma[i], 1.0)], parts), f"the oracle of {problem}, {seed}, {i}", within)
    name = rng.choice(ENGINES)
    draw = problem.moments(4, seed=seed, engine=name)
    for i in range(4):
        x, y = tokens_of(np.asarray(draw.moments.gram[i]), int(draw.moments.counts[i]))
        if draw.sigma[i] > 0 or kind not in EXACT:
            truth = posterior(x, y, [(draw.sigma[i], 1.0)], parts)
            _agree(draw.ridge[i], truth, f"{name}: the oracle of {problem}, seed {seed}, sequence {i}", 1e-4)
    return f"{kind} {features.split('(')[0]}: right"


def _agree(found, truth, what, within):
    if not np.allclose(found, truth, rtol=within, atol=within):
        raise AssertionError(f"{what} is {found}, not {truth}")
