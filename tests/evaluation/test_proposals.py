"""Weighted sequences of a wider law against plain sequences of the problem, and averages over spheres."""

import numpy as np
import pytest
from scipy.special import ive

from ridgeformer import ConstRR, Problem
from ridgeformer.evaluation.proposals import Proposal
from ridgeformer.evaluation.tilts import log_sphere_average

PROBLEMS = (
    "d=4 n=8 uniform(0,3)",
    "d=6 n=3 fixed(1)",
    "d=4 n=5,9,16 lognorm(0.5) features=covariance([[2,1,0,0],[1,2,0,0],[0,0,1,0],[0,0,0,0.3]]) query=powerlaw(1)",
    "d=4 n=8 categorical(0,2) features=rotated(powerlaw(1)) tasks=lowrank(2)",
    "d=4 n=8 fixed(1) features=scales(0.5,factors(2)) tasks=gaussian(mean=[1,0,2,0])",
    "d=4 n=9 fixed(1) features=standardised(factors(1))",
    "d=3 n=2,6 fixed(1) features=standardised(scales(1))",
    "d=3 n=6 uniform(0,2) tasks=pool(5)",
    "d=3 n=6 uniform(0,2) tasks=mixture(pool(5),0.4)",
)


def statistics(draw):
    """Numbers that depend on every part of a sequence, [B, K]."""
    m = draw.moments
    values = np.linalg.eigvalsh(m.S)
    trace = np.trace(np.eye(m.dim) if draw.metric is None else draw.metric, axis1=-2, axis2=-1) + np.zeros(len(m))
    losses = draw.losses(ConstRR(2.5).weights(m), draw.ridge)
    tasks, noise = (
        np.square(draw.task).sum(1),
        m.q - np.einsum("bi,bi->b", 2 * m.b - (m.S @ draw.task[..., None])[..., 0], draw.task),
    )
    sums = m.sums[:, -1] ** 2, m.sums[:, 0] ** 2
    return np.round(
        np.column_stack([values[:, -2], values[:, -1], m.q, m.counts, draw.sigma, trace, losses, tasks, noise, *sums]),
        9,
    )


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("text", PROBLEMS)
def test_weighted_sequences_have_the_law_of_the_problem(text, directed):
    """The shares of sequences above quantiles, 30,000 weighted ones against 60,000 plain ones, within 4.5 errors."""
    problem = Problem.parse(text)
    proposal = Proposal(problem)
    if directed:
        proposal = proposal.directed(proposal.draw(5, 7, 0).directions, np.ones(5))
    counts = {name: len(share) for name, share in proposal.widest.items()}
    proposal.shares = {name: np.append(0.5, np.full(k - 1, 0.5 / (k - 1))) for name, k in counts.items()}
    tilted = proposal.draw(30_000, 1, 0)
    weights = np.exp(proposal.log_weights(tilted.log_ratios(np.arange(30_000))))
    assert weights.max() < proposal.largest_weight
    assert weights.mean() == pytest.approx(1, abs=4.5 * weights.std() / np.sqrt(30_000))
    plain, wide = statistics(problem.moments(60_000, seed=2, sums=True)), statistics(tilted.draw)
    for level in (0.1, 0.5, 0.9, 0.99):
        edges = np.quantile(plain, level, axis=0) * (1 + 1e-9)
        share, weighted = (plain > edges).mean(0), weights[:, None] * (wide > edges)
        error = np.sqrt(weighted.var(0) / 30_000 + share * (1 - share) / 60_000)
        assert (np.abs(weighted.mean(0) - share) <= 4.5 * error + 1e-4).all()


def test_a_large_eigenvalue_is_as_likely_both_ways():
    """P(largest eigenvalue > 80) of S for d = 10, n = 20 is 4.5e-4, counted and weighted."""
    problem = Problem(noise="uniform(0,5)")
    plain = (np.linalg.eigvalsh(problem.moments(200_000, seed=5).moments.S)[:, -1] > 80).mean()
    tilted = Proposal(problem).draw(40_000, 3, 0)
    index = np.flatnonzero(np.linalg.eigvalsh(tilted.draw.moments.S)[:, -1] > 80)
    stretch = tilted.log_ratios(index)["stretch"]  # what else was widened does not change S
    weights = 1 / np.exp(stretch).mean(1)
    error = np.sqrt(np.square(weights).sum()) / 40_000
    assert plain == pytest.approx(4.5e-4, abs=4 * np.sqrt(4.5e-4 / 200_000))
    assert weights.sum() / 40_000 == pytest.approx(4.5e-4, abs=4 * error)
    assert error < 2e-5


def test_averages_over_spheres():
    """One and two dimensions have closed forms, others are integrated by simulation to their errors."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 6)) * 30
    assert log_sphere_average(a[:, None]) == pytest.approx(a, rel=1e-6, abs=1e-6)
    bessel = (a + b) / 2 + np.log(ive(0, np.abs(a - b) / 2)) + np.abs(a - b) / 2
    assert log_sphere_average(np.stack([a, b], 1)) == pytest.approx(bessel, rel=1e-6, abs=1e-6)
    for d in (3, 12):
        values, u = rng.normal(size=(4, d)) * 3, rng.normal(size=(200_000, d))
        terms = np.exp(np.square(u / np.linalg.norm(u, axis=1, keepdims=True)) @ values.T)
        error = terms.std(0) / terms.mean(0) / np.sqrt(200_000)
        assert (np.abs(log_sphere_average(values) - np.log(terms.mean(0))) < 4.5 * error).all()
