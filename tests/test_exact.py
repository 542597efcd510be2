"""Exact losses of GD++ by quadrature, against sampling, closed forms and finite differences; eigenvalues."""

import numpy as np
import pytest
from scipy import stats

from ridgeformer import ConstRR, GDpp, LinearTransformer, Problem, evaluate
from ridgeformer.bfgs import BfgsState, descend
from ridgeformer.exact import (
    ExcessLoss,
    const_loss,
    eigenvalues,
    exact_loss,
    expected_oracle_loss,
    least_excess_loss,
    least_loss,
)
from support import each, refused, slopes


@pytest.mark.parametrize("noise", ["fixed(0)", "uniform(0,5)", "categorical(1,3)"])
def test_the_gradient_of_the_excess(noise):
    excess = ExcessLoss(Problem(10, 20, noise))
    point = -np.random.default_rng(0).uniform(0.1, 0.4, 6)
    np.testing.assert_allclose(excess(point)[1], slopes(lambda p: excess(p)[0], point), rtol=1e-6)


@each((10, 20, "uniform(0,5)"), (4, 9, "fixed(0)"), (6, 4, "fixed(1)"), (3, 6, "uniform(0,2)"), (6, 4, "uniform(0,2)"))
def test_exact_losses_are_what_sampling_finds(dim, context, noise):
    """Of GD++, ConstRR and the oracle; with n < d, directions without any example count in full."""
    problem = Problem(dim, context, noise)
    model = LinearTransformer(GDpp(omega=[[-0.1 / context, -0.3 / context], [-0.2 / context, -0.5 / context]]), dim)
    found = evaluate(problem, model, sequences=100_000, with_floor=False)
    assert abs(found.loss - exact_loss(problem, model)) < 4 * found.error
    const = evaluate(problem, ConstRR.tune(problem), sequences=100_000, with_floor=False)
    assert abs(const.loss - const_loss(problem)) <= 4 * const.error + 1e-20
    draw = problem.moments(20_000)
    losses = draw.losses(draw.ridge, draw.task)
    assert abs(losses.mean() - expected_oracle_loss(problem)) <= 4 * losses.std() / np.sqrt(len(losses)) + 1e-20


def test_one_layer_without_noise_has_a_closed_form():
    """omega_yx = -1 / (n + d + 1), of loss 1/2 d (1 - n / (n + d + 1))."""
    problem = Problem(10, 20, "fixed(0)")
    model = LinearTransformer(least_excess_loss(problem, 1), 10)
    assert model.family.omega[0, 1, 0] == pytest.approx(-1 / 31, rel=1e-5)
    assert exact_loss(problem, model) == pytest.approx(5 * (1 - 20 / 31), rel=1e-6)


def test_no_gdpp_model_has_less_than_the_least_expected_loss():
    problem = Problem(noise="uniform(0,0)")
    assert least_loss(problem, 1) == pytest.approx(5 * (1 - 20 / 31), rel=1e-9)
    cut = LinearTransformer(least_excess_loss(problem, 3), 10)
    point, everything = 20 * cut.family.omega[:, :, 0].ravel(), ExcessLoss(problem, 0.0)
    nearby = [everything(point * (1 + k))[0] for k in (-0.02, -0.01, 0, 0.01)]
    assert exact_loss(problem, cut) < least_loss(problem, 3) < min(nearby)  # better on what is common, worse on all


def test_gdpp_only_sees_the_mean_variance():
    """On any noise distribution GD++ solves the fixed-noise problem at E[sigma^2]."""
    mixed, fixed = Problem(10, 20, "uniform(0,5)"), Problem(10, 20, f"fixed({(25 / 3) ** 0.5})")
    for layers in (1, 2, 3):
        one, two = (LinearTransformer(least_excess_loss(p, layers), 10) for p in (mixed, fixed))
        draw = mixed.moments(100)
        np.testing.assert_allclose(one.weights(draw.moments), two.weights(draw.moments), atol=1e-3)
        excess = exact_loss(mixed, one) - const_loss(mixed)
        assert excess == pytest.approx(exact_loss(fixed, two) - const_loss(fixed), rel=1e-3)


@pytest.mark.parametrize("noise", ["fixed(0)", "uniform(0,1)", "uniform(0,5)", "categorical(1,3)"])
def test_gdpp_reaches_its_optimum(noise):
    """Another seed, and five times the starts, find nothing that is 0.2 % better; at sigma = 0 depth 3 is the limit."""
    problem, best = Problem(10, 20, noise), None
    for layers in (1, 2, 3):
        best = LinearTransformer(least_excess_loss(problem, layers, shallower=best), 10)
        excess, rng = ExcessLoss(problem), np.random.default_rng(9)
        other = min(descend(excess, BfgsState.at(-rng.uniform(0, 1, 2 * layers)), 300).value for _ in range(40))
        assert exact_loss(problem, best) <= 1.002 * (other + const_loss(problem))


def test_other_families_are_refused():
    model = LinearTransformer.random("diag", dim=3, layers=1)
    refused(lambda: exact_loss(Problem(3, 6, "fixed(1)"), model), "known for GD")


@pytest.mark.slow
def test_every_seed_finds_the_same_optimum_without_noise():
    """Descents alone end 0 to 15 % higher, depending on the seed: seed 0 had 1.699e-4 and seed 3 1.583e-4."""
    problem = Problem(10, 20, 0)
    for seed in (0, 3):
        best = None
        for layers in range(1, 5):
            best = LinearTransformer(least_excess_loss(problem, layers, seed=seed, shallower=best), 10)
        assert exact_loss(problem, best) == pytest.approx(1.47872e-4, rel=1e-3)  # the least of 15 seeds


@each((1, 1), (1, 5), (2, 2), (3, 6), (7, 9), (10, 20), (10, 10), (10, 4), (60, 61), (100, 150), (10, 10_000))
def test_moments_are_those_of_a_wishart_matrix(dim, context):
    values, weights = eigenvalues(dim, context)
    n, d = context, dim
    assert weights.sum() == pytest.approx(min(n, d), rel=1e-12)
    assert weights @ values == pytest.approx(n * d, rel=1e-10)
    assert weights @ values**2 == pytest.approx(n * d * (n + d + 1), rel=1e-10)
    cube = n * d * (n**2 + d**2 + 3 * n * d + 3 * n + 3 * d + 4)
    assert weights @ values**3 == pytest.approx(cube, rel=1e-10)
    if n > d + 1:
        assert weights @ (1 / values) == pytest.approx(d / (n - d - 1), rel=1e-8)
    assert (weights > -1e-12 * weights.max()).all()


@pytest.mark.parametrize("context", [1, 2, 7, 100])
def test_one_dimension_is_chi_square(context):
    values, weights = eigenvalues(1, context)
    for u in (0.01, 0.5, 2.0):
        assert weights @ np.exp(-u * values) == pytest.approx((1 + 2 * u) ** (-context / 2), rel=1e-9)
    assert weights[values < context].sum() == pytest.approx(stats.chi2(context).cdf(context), abs=0.03)  # node spacing


@pytest.mark.parametrize(("dim", "context"), [(5, 8), (4, 4), (6, 3)])
def test_smooth_averages_agree_with_sampled_matrices(dim, context):
    """Averages of bumps across the spectrum, odd and even numbers of eigenvalues, within 4 standard errors."""
    values, weights = eigenvalues(dim, context)
    sampled = np.linalg.eigvalsh(Problem(dim, context, "fixed(0)").moments(40_000).moments.S)[:, -min(dim, context) :]
    for centre in (0.3, 2, 6, 12, 20):
        width = 0.3 * centre
        expected = weights @ np.exp(-(((values - centre) / width) ** 2))
        found = np.exp(-(((sampled - centre) / width) ** 2)).sum(1)
        assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(len(found))


def test_bad_input():
    refused(lambda: eigenvalues(0, 3), "dim must be at least 1; got 0")
