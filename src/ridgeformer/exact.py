"""GD++ without sampling: its loss is an integral over the eigenvalues of S, so its optimum is found by quadrature.

No flow leaves y, so w = f(S) a with a polynomial f. With e = 1 - lambda f(lambda), a layer (xx, yx) = (p, r) maps, for
each eigenvalue, starting from s = lambda and e = 1,

    e <- e (1 + r s),      s <- s (1 + p s)^2.

On noise of variance v = E[sigma^2] the adjusted loss is that of ConstRR, which no choice of f can change, plus

    1/2 E sum (v - e (lambda + v))^2 / (lambda (lambda + v)),

and this excess loss is minimised. It never cancels: at sigma = 0 it is 1/2 E sum e^2, and losses of 1e-16 are real. The
density reaches far beyond what any number of sequences shows, and a polynomial pays for what lies there; so
eigenvalues outside a range that one sequence in 10^8 leaves are left out.

The eigenvalues of S = sum x x': their exact expected density, as a quadrature rule. No sampling.

The eigenvalues of a Wishart matrix repel each other by |Delta|, so averages over them are Pfaffians (de Bruijn). With
f_j any basis of the weight times polynomials, F_j(t) = int_0^t f_j, and A_jk = int (F_j f_k - f_j F_k), the density is

    rho(t) = sum_jk (A^-1)_jk f_j(t) (2 F_k(t) - F_k(inf))

with one more row and column in A, int f_j, where the number of eigenvalues is odd. In t = sqrt(eigenvalue) the
basis is t^a exp(-t^2/2) L_j(t^2), smooth for every n and d.

>>> values, weights = eigenvalues(10, 20)
>>> round(float(weights.sum()), 9), round(float(weights @ values), 9)  # d of them, and E[tr S] = n d
(10.0, 200.0)
"""

from __future__ import annotations

import functools
import itertools
from operator import attrgetter

import numpy as np
from numpy.polynomial import legendre

from ridgeformer.bfgs import BfgsState, descend
from ridgeformer.errors import kind_of, refuse
from ridgeformer.models.families import GDpp
from ridgeformer.models.transformer import LinearTransformer
from ridgeformer.problems import Problem
from ridgeformer.validation import Array, integer

RARE = 1e-8  # eigenvalues beyond the range that this share of sequences leaves do not count
FRESH, GROWN = 10, 2  # starts at least, and starts per position of the new layer
HOPS = 20  # moves of zeros per layer, in a row without gain, after which a model is final
CONTEXTS, CELLS = 1 << 17, 1 << 23  # contexts that stand for all, at most, and their entries of S
NOTHING = 1e-12  # of the largest eigenvalue: a direction of which a context says nothing
PANEL = 16  # Gauss-Legendre nodes per panel


@functools.lru_cache(maxsize=32)
def eigenvalues(dim: int, context: int, panels: int = 64) -> tuple[Array, Array]:
    """Make a quadrature rule for sums over the non-zero eigenvalues of S = sum x x', with x standard normal.

    Args:
        dim: The dimension d.
        context: The number of vectors n.
        panels: Panels of 16 nodes each.

    Returns:
        Nodes [K] and weights [K] with E[sum_i g(lambda_i)] = weights @ g(nodes). The weights sum to min(n, d).
    """
    dim, context = integer("dim", dim), integer("context", context)
    count, freedom = min(dim, context), max(dim, context)
    t, weights = _panels(count, freedom, panels)
    f = _basis(count, freedom - count, t)
    F, total = _cumulative(f, weights, panels)
    A = (F * weights) @ f.T
    A = A - A.T
    centred = 2 * F - total[:, None]
    if count % 2:
        A = np.block([[A, total[:, None]], [-total[None], np.zeros((1, 1))]])
        f = np.vstack([f, np.zeros_like(t)])
        centred = np.vstack([centred, -np.ones_like(t)])
    density = np.einsum("jk,jt,kt->t", np.linalg.inv(A), f, centred)
    density *= count / (weights @ density)
    rule = t**2, weights * density
    for result in rule:
        result.setflags(write=False)
    return rule


def _panels(count: int, freedom: int, panels: int) -> tuple[Array, Array]:
    """Nodes and weights over every t = sqrt(lambda) that matters: the edges are near sqrt(n) -+ sqrt(d)."""
    low = max(np.sqrt(freedom) - np.sqrt(count) - 9.0, 0.0)
    edges = np.linspace(low, np.sqrt(freedom) + np.sqrt(count) + 9.0, panels + 1)
    x, w = legendre.leggauss(PANEL)
    half = np.diff(edges)[:, None] / 2
    return ((edges[:-1, None] + half) + half * x).ravel(), (half * w).ravel()


def _basis(count: int, excess: int, t: Array) -> Array:
    """t^excess exp(-t^2/2) L_j^(alpha)(t^2), alpha = excess - 1/2, of norm one: orthonormal on t > 0, [count, K]."""
    from scipy.special import gammaln

    alpha, x = excess - 0.5, t**2
    rows = np.empty((count, len(t)))
    with np.errstate(divide="ignore"):
        power = excess * np.log(t) if excess else np.zeros_like(t)
    rows[0] = np.exp(power - x / 2 + 0.5 * (np.log(2) - gammaln(alpha + 1)))
    if count > 1:
        rows[1] = (alpha + 1 - x) / np.sqrt(alpha + 1) * rows[0]
    for j in range(1, count - 1):
        up, down = np.sqrt((j + 1) * (j + 1 + alpha)), np.sqrt(j * (j + alpha))
        rows[j + 1] = ((2 * j + 1 + alpha - x) * rows[j] - down * rows[j - 1]) / up
    return rows


def _cumulative(f: Array, weights: Array, panels: int) -> tuple[Array, Array]:
    """Integrals of f from 0 to every node, and to infinity: exact for polynomials on each panel."""
    x, w = legendre.leggauss(PANEL)
    # Row i integrates the interpolating polynomial from -1 to x_i.
    vandermonde = legendre.legvander(x, PANEL - 1)
    antiderivative = np.stack([legendre.legval(x, legendre.legint(c, lbnd=-1)) for c in np.eye(PANEL)], -1)
    inner = antiderivative @ np.linalg.inv(vandermonde)
    cells = f.reshape(len(f), panels, PANEL)
    half = weights.reshape(panels, PANEL)[:, 0] / w[0]
    totals = (cells * weights.reshape(panels, PANEL)).sum(-1)
    before = np.cumsum(totals, -1) - totals
    F = before[..., None] + half[:, None] * np.einsum("ij,cpj->cpi", inner, cells)
    return F.reshape(f.shape), totals.sum(-1)


class ExcessLoss:
    """The excess of the loss of a GD++ model over ConstRR, as a function of n omega.

    Called with n omega, flattened from [L, 2] = (xx, yx) of every layer, it returns the value and the gradient.

    Args:
        problem: The problem.
        rare: Eigenvalues beyond the range that this share of sequences leaves do not count; 1e-8 by default.
    """

    def __init__(self, problem: Problem, rare: float = RARE) -> None:
        _check(problem)
        self.context, self.variance = problem.context, problem.noise.second_moment
        values, weights = eigenvalues(problem.dim, problem.context)
        below, above = np.cumsum(weights), np.cumsum(weights[::-1])[::-1] - weights
        inside = (below > rare) & (above > rare)
        self.values = values[inside]
        self.factor = weights[inside] / (self.values * (self.values + self.variance))

    def __call__(self, point: Array) -> tuple[float, Array]:
        """Return the value and the gradient at n omega, flattened."""
        omega, shift = point.reshape(-1, 2) / self.context, self.values + self.variance
        s, e = self.values, np.ones_like(self.values)
        trace = []
        for p, r in omega:
            trace.append((s, e))
            e, s = e * (1 + r * s), s * (1 + p * s) ** 2
        residual = self.variance - e * shift
        e_bar, s_bar = -self.factor * residual * shift, np.zeros_like(s)
        slope = np.empty_like(omega)
        for layer in reversed(range(len(omega))):
            (p, r), (s, e) = omega[layer], trace[layer]
            stretch = 1 + p * s
            slope[layer] = (s_bar * 2 * s * s * stretch).sum(), (e_bar * e * s).sum()
            s_bar, e_bar = s_bar * stretch * (stretch + 2 * p * s) + e_bar * e * r, e_bar * (1 + r * s)
        value = 0.5 * float((self.factor * residual * residual).sum())
        if not np.isfinite(slope).all():
            value = np.inf
        return value, slope.ravel() / self.context


def exact_loss(problem: Problem, model: LinearTransformer) -> float:
    """Compute the expected adjusted loss of a GD++ model, without sampling.

    Args:
        problem: The problem.
        model: A GD++ model.

    Returns:
        The expectation over the eigenvalues that count, which are all but the rarest (see the module).

    Raises:
        InputError: The model is not a GD++ model.
    """
    _check(problem)
    if not isinstance(model, LinearTransformer) or not isinstance(model.family, GDpp):
        received = model if isinstance(model, LinearTransformer) else kind_of(model)
        refuse("the exact loss is known for GD++ models", received, "Use evaluate for the others.")
    return _expected(model, problem, RARE)


def _expected(model: LinearTransformer, problem: Problem, rare: float) -> float:
    """The expected adjusted loss of a GD++ model, over the eigenvalues that are not too rare."""
    point = problem.context * model.kernel[0][:, :, 0].astype(np.float64).ravel()
    with np.errstate(all="ignore"):
        return ExcessLoss(problem, rare)(point)[0] + const_loss(problem)


@functools.lru_cache(maxsize=64)
def const_loss(problem: Problem) -> float:
    """Compute the expected adjusted loss of ConstRR, without sampling.

    It is 1/2 E sum (lambda / (lambda + sigma^2) - lambda / (lambda + v)) with v = E[sigma^2].

    Args:
        problem: The problem.

    Returns:
        The expected adjusted loss.
    """
    _check(problem)
    values, weights = eigenvalues(problem.dim, problem.context)
    sigma, chance = problem.noise.quadrature()
    variance = problem.noise.second_moment
    # The difference of the two terms, without cancellation.
    gaps = (variance - sigma[:, None] ** 2) / ((values + sigma[:, None] ** 2) * (values + variance))
    return max(0.5 * float(chance @ gaps @ (weights * values)), 0.0)


def least_loss(problem: Problem, layers: int) -> float:
    """Find the least expected adjusted loss that a GD++ model can have.

    Unlike `exact_loss` it leaves no eigenvalue out, however rare: a model that is better on a sample pays elsewhere. It
    makes four searches with different seeds; one is enough where ConstRR has no loss, because each search then leaves
    local minima by itself.

    Args:
        problem: The problem.
        layers: Layers of the model.

    Returns:
        The least loss that the searches found.
    """
    _check(problem)
    layers = integer("layers", layers, 1, 1000)
    seeds = range(4 if const_loss(problem) else 1)
    for seed, depth in itertools.product(seeds, range(1, layers)):  # into the cache, without recursion
        _grown_on_all(problem, depth, seed)
    return min(_expected(_grown_on_all(problem, layers, seed), problem, rare=0.0) for seed in seeds)


@functools.lru_cache(maxsize=256)
def _grown_on_all(problem: Problem, layers: int, seed: int) -> LinearTransformer:
    shallower = _grown_on_all(problem, layers - 1, seed) if layers > 1 else None
    with np.errstate(all="ignore"):
        best = least_excess_loss(problem, layers, seed=seed, shallower=shallower, rare=0.0)
    return LinearTransformer(best, problem.dim)


def least_excess_loss(
    problem: Problem,
    layers: int,
    *,
    heads: int = 1,
    seed: int = 0,
    shallower: LinearTransformer | None = None,
    rare: float = RARE,
    start: LinearTransformer | None = None,
) -> GDpp:
    """Find the best GD++ model that fresh starts and growth from a shallower one lead to.

    Args:
        problem: The problem.
        layers: Layers of the model.
        heads: Heads per layer; all but the first do nothing.
        seed: Seed of the starts.
        shallower: The best model with one layer less; None if there is none.
        rare: As for `ExcessLoss`.
        start: A further model to start from.

    Returns:
        The parameters.
    """
    layers, heads = integer("layers", layers, 1, 1000), integer("heads", heads, 1, 64)
    excess, constant = ExcessLoss(problem, rare), const_loss(problem)

    def objective(point: Array) -> tuple[float, Array]:
        value, slope = excess(point)
        return value + 1e-6 * constant, slope  # what is far below ConstRR's loss need not be pursued

    rng = np.random.default_rng([seed, layers, 1])
    starts = [_start(problem, layers, rng) for _ in range(max(FRESH, 72 // layers))]
    if shallower is not None:
        scaled = problem.context * shallower.kernel[0][:, :, 0].astype(np.float64)
        same = np.append(scaled, np.zeros((1, 2)), axis=0).ravel()
        grown = [np.insert(scaled, at, -rng.uniform(0.05, 0.8, 2), axis=0).ravel() for at in [*range(layers)] * GROWN]
        # Where ConstRR's loss is all that is left, nothing can be gained.
        starts = [same] if excess(same)[0] < 1e-5 * constant else [same, *grown, *starts]
    if start is not None:
        starts = [*starts, problem.context * start.kernel[0][:, :, 0].astype(np.float64).ravel()]
    lowest = attrgetter("value")
    race = sorted((descend(objective, BfgsState.at(point), 30) for point in starts), key=lowest)
    best = min((descend(objective, point, 300) for point in race[:6]), key=lowest) if len(race) > 1 else race[0]
    if not constant:
        best = _hopped(excess, best, rng)
    omega = best.point.reshape(layers, 2) / problem.context
    size = np.sqrt(np.abs(omega).max(1) + np.finfo(np.float64).tiny)
    p, q = np.zeros((layers, heads, 2)), np.full((layers, heads), 0.1)
    p[:, 0], q[:, 0] = omega / size[:, None], size
    return GDpp(p, q)


def _hopped(excess: ExcessLoss, best: BfgsState, rng: np.random.Generator) -> BfgsState:
    """Leave local minima by moving zeros of e; for problems on which the loss of GD++ falls to 0 with its depth.

    The factor 1 + r s of a layer vanishes at one eigenvalue or at several, and which layer takes which part of the
    spectrum decides in which local minimum a descent ends. So a hop puts the zero of one or two layers elsewhere.
    """
    gained, hop = 0, 0
    while hop - gained < HOPS * (len(best.point) // 2):
        hop += 1
        point = best.point.reshape(-1, 2).copy()
        for layer in rng.integers(len(point), size=rng.integers(1, 3)):
            s = rng.choice(excess.values)
            for p in point[:layer, 0] / excess.context:
                s *= (1 + p * s) ** 2
            point[layer, 1] = -excess.context / s
        reached = descend(excess, BfgsState.at(point.ravel()), 40)
        if reached.value < 1.3 * best.value:
            reached = descend(excess, reached, 300)
        if reached.value < (1 - 1e-4) * best.value:
            best, gained = reached, hop
    return best


def _start(problem: Problem, layers: int, rng: np.random.Generator) -> Array:
    """Return n omega of a random model with equal layers, or with layers that grow geometrically as Newton's do."""
    if rng.random() < 0.5:
        return -rng.uniform(0, 1, 2 * layers)
    largest = (1 + np.sqrt(problem.dim / problem.context)) ** 2  # eigenvalue of S / n, nearly
    growth = rng.uniform(1.5, 5) ** np.arange(layers)[:, None]
    first = rng.uniform(0.2, 0.8) / largest
    return np.asarray(-first * growth * np.exp(rng.normal(0, 0.2, (layers, 2)))).ravel()


def _check(problem: object) -> None:
    """Refuse a problem whose eigenvalues are not those of an isotropic one."""
    if not isinstance(problem, Problem) or not problem.is_isotropic:
        received = problem if isinstance(problem, Problem) else kind_of(problem)
        refuse("exact losses of GD++ are known for isotropic problems", received, "Use evaluate for others.")


@functools.lru_cache(maxsize=64)
def expected_oracle_loss(problem: Problem) -> float:
    """Compute the unadjusted loss of the oracle with as little sampling as possible.

    For Gaussian tasks, given a context and sigma, it is half the trace of the posterior covariance, a sum over the
    eigenvalues e of S, in coordinates in which tasks are N(0, I), of sigma^2 / (sigma^2 + e). For isotropic problems
    their law is known exactly; elsewhere it is that of random contexts. Tasks and noise are only sampled where tasks
    are not Gaussian.

    Args:
        problem: The distribution of sequences.

    Returns:
        The loss.

    >>> round(expected_oracle_loss(Problem(dim=3, context=6, noise="uniform(0,2)")), 4)
    0.3551
    """
    if not isinstance(problem, Problem):
        refuse("the loss of the oracle is known for built-in problems", kind_of(problem), "Pass a Problem.")
    if problem.is_isotropic:
        values, weights = eigenvalues(problem.dim, problem.context)
        return 0.5 * float(weights @ _unknown(problem, values)) + 0.5 * max(problem.dim - problem.context, 0)
    draw = problem.moments(min(CONTEXTS, CELLS // problem.dim**2 + 1))
    if not problem.has_ridge_oracle:
        return float(draw.losses(draw.ridge, draw.task).mean())
    values, basis = np.linalg.eigh(problem.prior.whiten(draw.moments).S.astype(np.float64))
    if problem.prior.factor is not None:
        basis = problem.prior.factor @ basis
    metric = np.eye(problem.dim) if draw.metric is None else np.asarray(draw.metric, np.float64)
    weights = np.einsum("bik,bik->bk", basis, metric @ basis)
    return 0.5 * float((weights * _unknown(problem, values)).sum(1).mean())


def _unknown(problem: Problem, values: Array) -> Array:
    """E sigma^2 / (sigma^2 + e) for eigenvalues e, over the noise; interpolated where there are many eigenvalues."""
    largest = float(values.max())
    grid = np.geomspace(NOTHING * largest, largest, 4096)
    sigma, chance = problem.noise.quadrature()
    variance = sigma**2
    shares = sum(c * (v / (v + grid)) for v, c in zip(variance.tolist(), chance.tolist(), strict=True))
    share = np.interp(np.log(np.maximum(values, grid[0])), np.log(grid), np.asarray(shares))
    return np.where(values <= grid[0], 1.0, share)
