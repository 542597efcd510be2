import numpy as np

from ridgeformer import Moments, Problem
from ridgeformer.moments import share_basis, spectrum
from support import each, refusals


def test_from_tokens_is_exact():
    """Integers below 2^26 have exact squares and sums in float64: the moments must be those integers."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(-1000, 1000, (5, 7, 3)), rng.integers(-1000, 1000, (5, 7))
    m = Moments.from_tokens(x, y)
    for b in range(5):
        S = sum(np.outer(v, v) for v in x[b])
        np.testing.assert_array_equal(m.S[b], S)
        np.testing.assert_array_equal(m.b[b], sum(t * v for v, t in zip(x[b], y[b], strict=True)))
        assert m.q[b] == sum(int(t) ** 2 for t in y[b])
    assert (m.dim, m.context, len(m)) == (3, 7, 5)
    np.testing.assert_array_equal(Moments.from_parts(m.S, m.b, m.q, context=7).gram, m.gram)


def test_float32_is_kept_and_slices_are_views():
    m = Moments.from_tokens(np.ones((3, 4, 2), np.float32), np.ones((3, 4), np.float32))
    assert m.dtype == np.float32
    assert np.shares_memory(m[1:].gram, m.gram)
    assert len(m[1:]) == 2
    assert repr(m) == "Moments(3 contexts, dim=2, context=4, float32)"


test_bad_moments_are_refused_in_words = refusals(
    (lambda: Moments.from_tokens(np.ones((2, 3, 4)), np.ones((2, 4))), "y must have shape (2, 3); got shape"),
    (lambda: Moments.from_tokens(np.ones(3), np.ones(3)), "x must have shape (B, n, d)"),
    (lambda: Moments.from_tokens(np.ones((0, 3, 4)), np.ones((0, 3))), "must not be empty"),
    (lambda: Moments.from_tokens(np.ones((2, 0, 4)), np.ones((2, 0))), "must not be empty"),
    (lambda: Moments.from_tokens(np.full((1, 2, 2), np.nan), np.ones((1, 2))), "x must be finite; got NaN or"),
    (lambda: Moments.from_tokens(np.full((1, 2, 2), "a"), np.ones((1, 2))), "real numbers; got dtype <U1"),
    (lambda: Moments.from_tokens(np.ones((1, 2, 2), complex), np.ones((1, 2))), "real numbers; got dtype complex128"),
    (lambda: Moments.from_tokens([[[1, 2], [3]]], [[1, 2]]), "rectangular array"),
    (lambda: Moments(np.ones((1, 2, 3)), 5), "must have shape (B, d+1, d+1)"),
    (lambda: Moments(np.array([[[1.0, 2.0], [3.0, 4.0]]]), 5), "must be symmetric"),
    (lambda: Moments(np.eye(2)[None], 0), "context must be at least 1; got 0"),
    (lambda: Moments(np.eye(2)[None], 3)[0], "indexed by slices"),
    (lambda: Moments(np.eye(2)[None], 3)[1:], "keep at least one"),
    (lambda: Moments.from_parts(np.ones((2, 3, 3)), np.ones((2, 2)), np.ones(2), 4), "b must have shape (2, 3)"),
    (lambda: Moments.from_parts(np.ones((2, 3, 2)), np.ones((2, 3)), np.ones(2), 4), "S must have shape (2, 3, 3)"),
)


# ---- Spectra of contexts, against solvers that know nothing of eigenvalues


def contexts(dim, context, count=6, seed=0):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(count, context, dim)), rng.normal(size=(count, context))
    return x, y, Moments.from_tokens(x, y)


@each((4, 9), (4, 5), (4, 4), (5, 2), (1, 1))  # more, as many and fewer tokens than dimensions
def test_spectra_are_those_of_tokens(dim, context):
    """Ridge solutions of normal equations, solutions of least norm without a variance, and singular values."""
    x, y, moments = contexts(dim, context)
    found = spectrum(moments)
    for variance in (0.3, 20.0):
        expected = [np.linalg.solve(a.T @ a + variance * np.eye(dim), a.T @ b) for a, b in zip(x, y, strict=True)]
        np.testing.assert_allclose(found.ridge(variance), expected, rtol=1e-9, atol=1e-11)
    expected = [np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(found.ridge(0.0), expected, rtol=1e-7, atol=1e-9)
    expected = np.sort([np.linalg.svd(a, compute_uv=False) ** 2 for a in x], axis=1)
    np.testing.assert_allclose(found.values, expected, rtol=1e-8)
    variances = np.linspace(0.1, 3, 6)  # one for each context
    one_by_one = [found.ridge(value)[i] for i, value in enumerate(variances)]
    np.testing.assert_array_equal(found.ridge(variances), one_by_one)


def test_the_residual_is_that_of_least_squares():
    x, y, moments = contexts(3, 8)
    found = spectrum(moments)
    expected = [np.linalg.lstsq(a, b, rcond=None)[1][0] for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(found.residual, expected, rtol=1e-9)
    np.testing.assert_allclose(found.unbiased_variance(), np.array(expected) / 5, rtol=1e-9)
    assert (spectrum(contexts(3, 3)[2]).residual == 0).all()  # with n <= d least squares fits exactly


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
