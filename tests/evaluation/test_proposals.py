"""Weighted sequences of a wider law against plain sequences of the problem, and averages over spheres."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ive
from scipy.stats import chi2, lognorm, norm

from own_problems import HeavyTails
from ridgeformer import ConstRR, Full, LinearTransformer, Problem, compare, evaluate, explosion_probability, load
from ridgeformer.engine import Layout
from ridgeformer.evaluation.explosions import upper_bound
from ridgeformer.evaluation.proposals import Proposal
from ridgeformer.evaluation.tilts import log_sphere_average
from support import each, refused

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


# ---- Explosion probabilities against closed forms, plain counts, and each other


class Trigger:
    """A predictor that explodes where a function of the moments is above a threshold."""

    def __init__(self, size, threshold):
        self.size, self.threshold = size, threshold

    def weights(self, moments):
        w = np.zeros((len(moments), moments.dim))
        w[self.size(moments) > self.threshold] = 1e6
        return w


@pytest.mark.parametrize("probability", [1e-3, 1e-9, 1e-14])
def test_thresholds_of_known_probability(probability):
    """S of one feature and of all, and the labels of a single task, are multiples of chi2."""
    one, ten = Problem(1, 20, 1), Problem(10, 20, 1)
    cases = [
        (one, lambda m: m.S[:, 0, 0], chi2(20).isf(probability)),
        (ten, lambda m: np.trace(m.S, axis1=1, axis2=2), chi2(200).isf(probability)),
        (Problem(2, 12, 3, tasks="pool([[0,0]])"), lambda m: m.q / 9, chi2(12).isf(probability)),
    ]
    for problem, size, threshold in cases:
        rare = explosion_probability(problem, Trigger(size, threshold), sequences=20_000)
        assert rare.hits > 50
        assert rare.probability == pytest.approx(probability, abs=4.5 * rare.error)
        assert rare.bound == "none"


@pytest.mark.parametrize("seed", [0, 4])
def test_explosions_in_one_direction_are_found(seed):
    """Explodes where one coordinate of the least-squares estimate is large, whose law is known.

    With w ~ N(0, I), it has the variance 1 + sigma^2 (S^-1)_11 given S, and (S^-1)_11 is the inverse of a chi2 variable
    with n - d + 1 degrees of freedom.
    """
    problem, threshold = Problem(10, 60, 3), 6.0
    first = Trigger(lambda m: np.abs(np.linalg.solve(m.S, m.b[..., None])[:, 0, 0]), threshold)
    rare = explosion_probability(problem, first, sequences=20_000, seed=seed)
    exact, _ = quad(lambda s: 2 * norm.sf(threshold / np.sqrt(1 + 9 / s)) * chi2(51).pdf(s), 5, 200, epsabs=1e-14)
    assert exact < 1e-6
    assert rare.hits > 5  # 3 without a second stage, whose estimate is a hundredth of the probability
    assert rare.probability == pytest.approx(exact, abs=4.5 * rare.error)
    assert exact < rare.upper < 20 * exact  # p + 1.645 error is too low with the second seed, of 8 effective hits


def test_rare_noise_levels_are_seen():
    """The noise level is above the threshold with a probability of 1e-5."""
    problem = Problem(3, 2000, "lognorm(0.8)", tasks="pool([[0,0,0]])")
    trigger = Trigger(lambda m: m.q / 2000, lognorm(0.8).isf(1e-5) ** 2)
    assert explosion_probability(problem, trigger, sequences=20_000).probability == pytest.approx(1e-5, rel=0.3)


@pytest.mark.parametrize("change", [{}, {"context": "15..25"}, {"features": "factors(2)"}])
def test_frequent_explosions_are_counted_as_often(change):
    """A model with a last layer that is too large explodes about once in 10,000: against 300,000 plain sequences."""
    problem, model = Problem(noise="uniform(0,5)").replace(**change), load("zoo:diag/3/uniform(0,5)")
    plain = evaluate(problem, model, sequences=300_000, with_floor=False)
    if plain.exploded < 5:
        problem = problem.replace(noise="uniform(0,9)")
        plain = evaluate(problem, model, sequences=300_000, with_floor=False)
    rare = explosion_probability(problem, model, sequences=20_000)
    error = np.hypot(rare.error, np.sqrt(plain.exploded) / 300_000)
    assert plain.exploded > 5
    assert rare.probability == pytest.approx(plain.exploded / 300_000, abs=4 * error)


@pytest.mark.slow
def test_seeds_agree_with_each_other_and_with_30_million_sequences():
    """15 of 30,015,488 plain sequences exploded: 5.0e-7 +- 1.3e-7."""
    problem, model = Problem(noise="uniform(0,5)"), load("zoo:diag/3/uniform(0,5)")
    results = [explosion_probability(problem, model, seed=seed) for seed in range(3)]
    for one in results:
        assert one.probability == pytest.approx(5.0e-7, abs=3 * np.hypot(1.3e-7, one.error))
        assert one.probability == pytest.approx(results[0].probability, abs=4.5 * np.hypot(one.error, results[0].error))


def test_a_predictor_that_never_explodes_has_an_upper_bound():
    rare = explosion_probability(Problem(3, 6, 1), ConstRR(1.0), sequences=2_000)
    assert (rare.probability, rare.bound, rare.hits) == (0, "upper", 0)
    assert 0 < rare.upper <= 1
    assert str(rare).startswith("below ")
    assert rare.as_dict()["bound"] == "upper"
    assert upper_bound(1e-6, 1e-7, 16.0) == pytest.approx(1e-6 * np.exp(1.645 * 1.5 * 0.1))  # with 16 hits


def test_refusals_say_why():
    class Tokens:
        def predict(self, x, y, queries):
            return queries[..., 0]

    refused(lambda: explosion_probability(Problem(3, 6, 1), Tokens()), "contexts are drawn as moments; got Tokens")
    refused(lambda: explosion_probability(HeavyTails(), ConstRR(1.0)), "built-in Problem")
    refused(lambda: explosion_probability(Problem(3, 6, 1), ConstRR(1.0), sequences=10), "sequences")


def test_losses_show_explosion_probabilities_on_request():
    """Along layers and noise levels, the same numbers as one by one; prefixes are refused."""
    problem, model = Problem(noise="uniform(0,5)"), load("zoo:diag/2/uniform(0,5)")
    table = compare(problem, {"two": model}, {"layer": [1, 2], "sigma": [2.0]}, sequences=100, explosions=True)
    one = explosion_probability(problem.at_noise(2), model.truncate(1))
    assert table.explosion_probability[0, 0, 0] == one.probability
    assert table.at(layer=2, sigma=2.0)["two"].explosion_error > 0
    assert table.rows()[0]["explosion_error"] == one.error
    assert table.rows()[0]["explosion_hits"] == one.hits > 0
    assert "explosion_probability" in str(table.at(sigma=2.0))
    assert "explosion_probability" not in compare(problem, model, sequences=100).rows()[0]
    refused(lambda: compare(problem, model, {"context": [5, 10]}, sequences=100, explosions=True), "whole contexts")


def test_what_hardly_ever_and_what_always_explodes():
    """Weights below the least positive number are no error, and no probability is above 1."""
    problem, mild = Problem(3, 8, "uniform(0,2)"), LinearTransformer.random("diag", dim=3, layers=2, scale=0.1)
    rare = explosion_probability(problem.replace(tasks="mixture(pool(4),0.2)"), mild, sequences=1000)
    assert rare.probability < 1e-30
    assert np.isfinite([rare.error, rare.hits]).all()
    always = explosion_probability(problem, Trigger(lambda m: m.q, -1.0), sequences=1000)
    assert 0.8 < always.probability <= always.upper == 1


@each("none", "ratio", "constant", "length")
def test_models_with_a_further_coordinate_explode_as_often_as_counted(coordinate):
    """Full layers of random numbers whose further coordinate acts too; 20,000 plain sequences, within 4.5 errors."""
    layout = Layout("mean", coordinate)
    width = 4 + layout.extra
    rng = np.random.default_rng(3)
    model = LinearTransformer(Full(*(0.35 * rng.standard_normal((2, 2, 1, width, width)))), 3, layout)
    for context in (6, "4,8"):
        problem = Problem(3, context, "uniform(0,2)")
        rare = explosion_probability(problem, model, sequences=20_000)
        share = evaluate(problem, model, sequences=20_000, with_floor=False).exploded / 20_000
        assert 1e-3 < share < 0.5
        assert rare.probability == pytest.approx(share, abs=4.5 * np.hypot(rare.error, np.sqrt(share / 20_000)))
