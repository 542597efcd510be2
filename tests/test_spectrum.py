"""Spectra of contexts, against solvers that know nothing of eigenvalues."""

import numpy as np
import pytest

from ridgeformer import Moments, Problem
from ridgeformer.moments import share_basis, spectrum

SHAPES = [(4, 9), (4, 5), (4, 4), (5, 2), (1, 1)]  # more, as many and fewer tokens than dimensions


def contexts(dim, context, count=6, seed=0):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(count, context, dim)), rng.normal(size=(count, context))
    return x, y, Moments.from_tokens(x, y)


@pytest.mark.parametrize(("dim", "context"), SHAPES)
@pytest.mark.parametrize("variance", [0.3, 20.0])
def test_ridge_is_the_solution_of_its_equations(dim, context, variance):
    x, y, moments = contexts(dim, context)
    expected = [np.linalg.solve(a.T @ a + variance * np.eye(dim), a.T @ b) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(spectrum(moments).ridge(variance), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("dim", "context"), SHAPES)
def test_no_variance_gives_the_least_squares_solution_of_least_norm(dim, context):
    x, y, moments = contexts(dim, context)
    expected = [np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(spectrum(moments).ridge(0.0), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("dim", "context"), SHAPES)
def test_eigenvalues_are_squares_of_singular_values(dim, context):
    x, _, moments = contexts(dim, context)
    expected = np.sort([np.linalg.svd(a, compute_uv=False) ** 2 for a in x], axis=1)
    np.testing.assert_allclose(spectrum(moments).values, expected, rtol=1e-8)


def test_the_residual_is_that_of_least_squares():
    x, y, moments = contexts(3, 8)
    found = spectrum(moments)
    expected = [np.linalg.lstsq(a, b, rcond=None)[1][0] for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(found.residual, expected, rtol=1e-9)
    np.testing.assert_allclose(found.unbiased_variance(), np.array(expected) / 5, rtol=1e-9)
    assert (spectrum(contexts(3, 3)[2]).residual == 0).all()  # with n <= d least squares fits exactly


def test_a_variance_for_every_context():
    _, _, moments = contexts(4, 9)
    found, variance = spectrum(moments), np.linspace(0.1, 3, 6)
    one_by_one = [found.ridge(value)[i] for i, value in enumerate(variance)]
    np.testing.assert_array_equal(found.ridge(variance), one_by_one)


def test_bits_do_not_depend_on_the_number_of_threads():
    moments = Problem(3, 6, "uniform(0,2)").moments(9000).moments
    one, three = spectrum(moments, threads=1), spectrum(moments, threads=3)
    assert (one.values == three.values).all()
    assert (one.vectors == three.vectors).all()


def test_a_shared_basis_has_the_same_bits_and_only_where_S_is_the_same():
    quiet, loud, other = (
        Problem(3, 6, noise).moments(50, seed=seed).moments
        for noise, seed in (("fixed(1)", 0), ("fixed(2)", 0), ("fixed(1)", 1))
    )
    before = spectrum(loud)
    assert quiet.spectrum is quiet.spectrum
    share_basis(loud, quiet)
    assert "spectrum" in vars(loud)
    for name in ("values", "c", "vectors", "residual", "total"):
        assert (getattr(loud.spectrum, name) == getattr(before, name)).all()
    share_basis(other, quiet)
    assert "spectrum" not in vars(other)
