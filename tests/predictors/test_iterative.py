"""IterativeRR against AdaRR and against the algorithm in matrices."""

import numpy as np
import pytest

from ridgeformer import AdaRR, InputError, Problem
from ridgeformer.predictors import IterativeRR
from support import draw


def test_iterative_converges_to_ada_without_an_inversion():
    """The paper: about 100 iterations. In float64 it goes on until the two are the same."""
    d = Problem(10, 20, "uniform(0,5)").moments(2000)
    exact = AdaRR().weights(d.moments)
    trace = IterativeRR(3000).weights_by_step(d.moments[:200])
    gap = [np.square(trace[k] - exact[:200]).sum(1).mean() for k in (0, 10, 100, 1000, 3000)]
    assert (np.diff(gap) < 0).all()
    assert gap[2] < 0.05 * gap[1]
    assert gap[-1] < 1e-5
    assert (trace[0] == 0).all()
    np.testing.assert_array_equal(IterativeRR(10).weights(d.moments[:200]), trace[10])


def test_iterative_is_the_algorithm_it_claims_to_be():
    """Two plain gradient descents on one context, written with matrices."""
    m = draw(3, 7, 1, noise="fixed(1)").moments
    S, a, total = m.S[0], m.b[0], m.q[0]
    largest = np.abs(S).sum(1).max()
    w, v = np.zeros(3), np.zeros(3)
    for _ in range(5):
        variance = (total - 2 * w @ a + w @ S @ w) / (7 - 3)
        w, v = w - (S @ w - a) / largest, v - (S @ v + variance * v - a) / (largest + variance)
    np.testing.assert_allclose(IterativeRR(5).weights(m)[0], v, rtol=1e-10)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: IterativeRR(3).weights(draw(4, 3).moments), "n > d"),
        (lambda: IterativeRR(0), "steps must be at least 1"),
    ],
)
def test_bad_input_is_refused_in_words(make, words):
    with pytest.raises(InputError, match=words):
        make()
