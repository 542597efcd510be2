"""Sequences of the general problem, simulated token by token with NumPy alone: what the package's samplers must match.

Nothing here comes from ridgeformer. A law of features is a function of (rng, count, n, m, d) that returns the features
of contexts [count, n, d] and of queries [count, m, d], and E[x x'] of a query given its sequence, [count, d, d].
"""

from dataclasses import dataclass

import numpy as np
from scipy import integrate

LAMBDA = np.array([[1.5, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])  # covariances of features and of tasks
GAMMA = np.array([[0.5, 0.2, 0.1], [0.2, 1.2, 0.0], [0.1, 0.0, 0.8]])
MEAN = np.array([0.5, -1.0, 0.2])
THIN = np.array([[1.0, 0.3], [-2.0, 0.1], [0.5, 1.0]])
POOL = np.array([[1.0, 0.0, 0.5], [0.0, -1.5, 0.5], [1.0, 1.0, 1.0], [-0.3, 0.2, 0.9], [0.0, 0.0, 2.0]])
OTHER = np.array([[0.4, 0.1, 0.0], [0.1, 2.0, 0.5], [0.0, 0.5, 1.0]])  # of queries


def gaussian(matrix):
    """x ~ N(0, matrix), by the symmetric root of the matrix."""
    values, vectors = np.linalg.eigh(matrix)
    root = vectors * np.sqrt(values) @ vectors.T

    def law(rng, count, n, m, d):
        x = rng.standard_normal((count, n + m, d)) @ root
        return x[:, :n], x[:, n:], np.broadcast_to(matrix, (count, d, d))

    return law


def rotated(spectrum):
    """A basis for each sequence: the eigenvectors of a Gaussian symmetric matrix, which are uniformly distributed."""
    spectrum = np.asarray(spectrum, float)

    def law(rng, count, n, m, d):
        raw = rng.standard_normal((count, d, d))
        basis = np.linalg.eigh(raw + np.swapaxes(raw, 1, 2))[1]
        x = np.einsum("bij,bnj->bni", basis, rng.standard_normal((count, n + m, d)) * np.sqrt(spectrum))
        return x[:, :n], x[:, n:], np.einsum("bij,j,bkj->bik", basis, spectrum, basis)

    return law


def factors(number, unique):
    """A factor model as it is written down: x = loadings f + unique part, divided by its standard deviation."""

    def law(rng, count, n, m, d):
        loadings = rng.standard_normal((count, d, number)) / np.sqrt(number)
        common = np.einsum("bik,bnk->bni", loadings, rng.standard_normal((count, n + m, number)))
        x = common + np.sqrt(unique) * rng.standard_normal((count, n + m, d))
        deviation = np.sqrt(np.square(loadings).sum(2) + unique)
        x = x / deviation[:, None, :]
        covariance = np.einsum("bik,bjk->bij", loadings, loadings) + unique * np.eye(d)
        return x[:, :n], x[:, n:], covariance / deviation[:, :, None] / deviation[:, None, :]

    return law


def scaled(spread, base):
    """Each feature of a sequence times exp(spread g - spread^2)."""

    def law(rng, count, n, m, d):
        x, queries, covariance = base(rng, count, n, m, d)
        by = np.exp(spread * rng.standard_normal((count, 1, d)) - spread**2)
        return x * by, queries * by, covariance * by * np.swapaxes(by, 1, 2)

    return law


def standardised(base):
    """Mean 0 and variance 1 of each feature over the tokens of its context; the same map for the queries."""

    def law(rng, count, n, m, d):
        x, queries, covariance = base(rng, count, n, m, d)
        mean, deviation = x.mean(1, keepdims=True), x.std(1, keepdims=True)
        second = (covariance + np.swapaxes(mean, 1, 2) * mean) / deviation / np.swapaxes(deviation, 1, 2)
        return (x - mean) / deviation, (queries - mean) / deviation, second

    return law


def other_queries(base, matrix):
    """Queries with a covariance of their own."""
    ask = gaussian(matrix)

    def law(rng, count, n, m, d):
        queries, second = ask(rng, count, 0, m, d)[1:]
        return base(rng, count, n, m, d)[0], queries, second

    return law


def gaussian_tasks(mean, factor):
    """w = mean + factor g."""
    mean, factor = np.asarray(mean, float), np.asarray(factor, float)
    return lambda rng, count: mean + rng.standard_normal((count, factor.shape[1])) @ factor.T


def pool_tasks(pool):
    """One of the vectors, all equally probable."""
    pool = np.asarray(pool, float)
    return lambda rng, count: pool[rng.integers(len(pool), size=count)]


def mixed_tasks(pool, share, rest):
    """New tasks with probability `share`, of the pool otherwise."""
    return lambda rng, count: np.where(rng.random((count, 1)) < share, rest(rng, count), pool_tasks(pool)(rng, count))


def sparse_tasks(sizes, variance):
    """As many weights as `sizes` draws, each from N(0, variance), at random places."""

    def law(rng, count):
        w = np.zeros((count, 3))
        for one, size in zip(w, sizes(rng, count), strict=True):
            one[rng.permutation(3)[:size]] = np.sqrt(variance) * rng.standard_normal(size)
        return w

    return law


@dataclass
class Tokens:
    """Simulated sequences; those with fewer tokens are filled up with zeros."""

    x: np.ndarray  # [B, n, d]
    y: np.ndarray  # [B, n]
    queries: np.ndarray  # [B, m, d]
    second: np.ndarray  # [B, d, d], E[x x'] of a query of the sequence
    task: np.ndarray  # [B, d]
    sigma: np.ndarray  # [B]
    n: np.ndarray  # [B]

    @property
    def gram(self):
        e = np.concatenate([self.x, self.y[..., None]], 2)
        return np.einsum("bni,bnj->bij", e, e)

    @property
    def sums(self):
        return np.concatenate([self.x.sum(1), self.y.sum(1)[:, None]], 1)


def simulate(count, dim, lengths, sigma, features, tasks, queries=1, seed=0):
    """Draw sequences: `lengths` is the list of context lengths, `sigma(rng, count)` draws noise levels."""
    rng = np.random.default_rng(seed)
    n, most = rng.choice(lengths, count), max(lengths)
    out = Tokens(
        np.zeros((count, most, dim)),
        np.zeros((count, most)),
        np.zeros((count, queries, dim)),
        np.zeros((count, dim, dim)),
        tasks(rng, count),
        sigma(rng, count),
        n,
    )
    for length in sorted(set(lengths)):
        which = np.flatnonzero(n == length)
        x, asked, second = features(rng, len(which), length, queries, dim)
        noise = out.sigma[which, None] * rng.standard_normal((len(which), length))
        out.x[which, :length], out.queries[which], out.second[which] = x, asked, second
        out.y[which, :length] = np.einsum("bnd,bd->bn", x, out.task[which]) + noise
    return out


def through(layers, context, queries, share=1.0):
    """The paper's equation in plain loops: tokens of a context and of queries after layers (P, Q) of [H, D, D] each."""
    for P, Q in layers:

        def moved(e, context=context, P=P, Q=Q):
            return e + share * sum((t @ q @ e) * (p @ t) for p, q in zip(P, Q, strict=True) for t in context)

        context, queries = [moved(e) for e in context], [moved(e) for e in queries]
    return np.array(context), np.array(queries)


def predictions(model, x, y, queries, layers=None):
    """What a model with any layout, or other layers in its place, predicts for one context."""
    layout, n = model.layout, len(y)
    further = {"none": [], "constant": [1.0], "length": [np.sqrt(20 / n)]}[layout.coordinate]
    asked = {"none": [], "constant": [1.0], "length": [0.0]}[layout.coordinate]
    zeros = [0.0] * (model.P.shape[-1] - 1 - x.shape[1] - len(further))
    context = [np.array([*row, *further, *zeros, label]) for row, label in zip(x, y, strict=True)]
    rest = [np.array([*row, *asked, *zeros, 0.0]) for row in queries]
    layers = zip(np.asarray(model.P), np.asarray(model.Q), strict=True) if layers is None else layers
    return -through(layers, context, rest, 1 / n if layout.attention == "mean" else 1.0)[1][:, -1]


def gaussian_posterior(x, y, mean, covariance):
    """For tasks from N(mean, covariance), a function of sigma: log p(y | sigma), up to a constant, and E[w | y, sigma].

    By the eigenvalues of the covariance of y.
    """
    cross = covariance @ x.T
    values, vectors = np.linalg.eigh(x @ cross)
    values, c, back = np.maximum(values, 0.0), vectors.T @ (y - x @ mean), cross @ vectors

    def at(sigma):
        spread = values + sigma**2
        return -0.5 * (np.log(spread).sum() + (c**2 / spread).sum()), mean + back @ (c / spread)

    return at


def mixture_posterior(x, y, pool, new, mean, covariance):
    """A function of sigma: log p(y | sigma) and E[w | y, sigma] of a mixture of a pool and a Gaussian law."""
    gaussian = gaussian_posterior(x, y, mean, covariance) if new else None

    def at(sigma):
        parts = []
        if new:
            evidence, w = gaussian(sigma)
            parts.append((np.log(new) + evidence, w))
        for w in pool:
            fit = -len(y) * np.log(sigma) - np.square(y - x @ w).sum() / (2 * sigma**2)
            parts.append((np.log((1 - new) / len(pool)) + fit, w))
        logs = np.array([one[0] for one in parts])
        weights = np.exp(logs - logs.max())
        return logs.max() + np.log(weights.sum()), np.average([one[1] for one in parts], axis=0, weights=weights)

    return at


def by_quadrature(at, high, low=1e-11, density=lambda sigma: 1.0):
    """E[w | y] for a density of sigma on (0, high), by adaptive quadrature in log sigma around the posterior's peak.

    `at(sigma)` gives log p(y | sigma) and E[w | y, sigma]. With few tokens the likelihood stays finite at sigma = 0:
    what is left out below `low` is of the order of `low`.
    """
    grid = np.linspace(np.log(low), np.log(high), 400)
    heights = [at(np.exp(t))[0] + t + np.log(density(np.exp(t))) for t in grid[:-1]]
    top, peak = max(heights), grid[int(np.argmax(heights))]
    cuts = [t for t in (peak - 1, peak - 0.3, peak, peak + 0.3, peak + 1) if grid[0] < t < grid[-1]]

    def integral(of):
        def integrand(t):
            evidence, w = at(np.exp(t))
            return density(np.exp(t)) * np.exp(evidence + t - top) * of(w)

        return integrate.quad(integrand, grid[0], grid[-1], points=cuts, limit=500, epsabs=1e-14, epsrel=1e-11)[0]

    mass = integral(lambda w: 1.0)
    return np.array([integral(lambda w, i=i: w[i]) for i in range(len(at(high)[1]))]) / mass
