"""The eigenvalue density against moments in closed form, a chi-square, and sampled matrices."""

import numpy as np
import pytest
from scipy import stats

from ridgeformer import Problem
from ridgeformer.wishart import eigenvalues
from support import refused

SHAPES = [
    (1, 1),
    (1, 5),
    (2, 2),
    (3, 6),
    (7, 9),
    (10, 20),
    (10, 10),
    (10, 4),
    (20, 30),
    (60, 61),
    (100, 150),
    (10, 10_000),
]


@pytest.mark.parametrize(("dim", "context"), SHAPES)
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
