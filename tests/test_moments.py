import numpy as np
import pytest

from ridgeformer import Moments
from support import refused


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


def test_from_parts_is_the_inverse_of_the_parts():
    m = Moments.from_tokens(np.random.default_rng(0).normal(size=(4, 6, 2)), np.ones((4, 6)))
    again = Moments.from_parts(m.S, m.b, m.q, context=6)
    np.testing.assert_array_equal(again.gram, m.gram)


def test_float32_is_kept_and_slices_are_views():
    m = Moments.from_tokens(np.ones((3, 4, 2), np.float32), np.ones((3, 4), np.float32))
    assert m.dtype == np.float32
    assert np.shares_memory(m[1:].gram, m.gram)
    assert len(m[1:]) == 2
    assert repr(m) == "Moments(3 contexts, dim=2, context=4, float32)"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Moments.from_tokens(np.ones((2, 3, 4)), np.ones((2, 4))), "y must have shape (2, 3); got shape"),
        (lambda: Moments.from_tokens(np.ones(3), np.ones(3)), "x must have shape (B, n, d)"),
        (lambda: Moments.from_tokens(np.ones((0, 3, 4)), np.ones((0, 3))), "must not be empty"),
        (lambda: Moments.from_tokens(np.ones((2, 0, 4)), np.ones((2, 0))), "must not be empty"),
        (lambda: Moments.from_tokens(np.full((1, 2, 2), np.nan), np.ones((1, 2))), "x must be finite; got NaN or"),
        (lambda: Moments.from_tokens(np.full((1, 2, 2), "a"), np.ones((1, 2))), "real numbers; got dtype <U1"),
        (
            lambda: Moments.from_tokens(np.ones((1, 2, 2), complex), np.ones((1, 2))),
            "real numbers; got dtype complex128",
        ),
        (lambda: Moments.from_tokens([[[1, 2], [3]]], [[1, 2]]), "rectangular array"),
        (lambda: Moments(np.ones((1, 2, 3)), 5), "must have shape (B, d+1, d+1)"),
        (lambda: Moments(np.array([[[1.0, 2.0], [3.0, 4.0]]]), 5), "must be symmetric"),
        (lambda: Moments(np.eye(2)[None], 0), "context must be at least 1; got 0"),
        (lambda: Moments(np.eye(2)[None], 3)[0], "indexed by slices"),
        (lambda: Moments(np.eye(2)[None], 3)[1:], "keep at least one"),
        (lambda: Moments.from_parts(np.ones((2, 3, 3)), np.ones((2, 2)), np.ones(2), 4), "b must have shape (2, 3)"),
        (lambda: Moments.from_parts(np.ones((2, 3, 2)), np.ones((2, 3)), np.ones(2), 4), "S must have shape (2, 3, 3)"),
    ],
)
def test_bad_moments_are_refused_in_words(make, words):
    refused(make, words)
