"""Sampled moments against closed forms at any context length, and streams of sequences; test_laws.py has all laws."""

import numpy as np
import pytest
from scipy import stats

from ridgeformer import Problem

COUNT = 20_000
# A fixed seed makes each test a yes or no: a correct sampler fails one of 24 comparisons for 1 seed in 4,000.
LEVEL = 1e-5


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("context", [1, 5, 10**6])
def test_closed_forms_at_any_context_length(context, dtype):
    """E S = n I, E a a' and E l = n (d + sigma^2), and S_00 ~ chi2(n), also at n = 10^6 where no tokens fit."""
    problem = Problem(4, context, "fixed(2)")
    m = problem.moments(COUNT, seed=5, dtype=dtype).moments
    for i in range(4):
        assert stats.kstest(m.S[:, i, i].astype(float), stats.chi2(context).cdf).pvalue > LEVEL
    assert m.S.mean(0, dtype=float) == pytest.approx(context * np.eye(4), abs=5 * np.sqrt(2 * context / COUNT))
    assert m.q.mean(dtype=float) == pytest.approx(context * 8, rel=5 * np.sqrt(10 / COUNT))


def test_streams_are_independent_and_reproducible():
    problem = Problem(3, 5, "uniform(0,1)")
    base = problem.moments(50, seed=1, stream=2, step=3).moments.gram
    np.testing.assert_array_equal(base, problem.moments(50, seed=1, stream=2, step=3).moments.gram)
    for other in ({"seed": 2}, {"stream": 3}, {"step": 4}, {"seed": 1 + 2**40}, {"step": 3 + 2**40}):
        changed = problem.moments(50, **({"seed": 1, "stream": 2, "step": 3} | other)).moments.gram
        assert abs(np.corrcoef(base[:, 0, 0], changed[:, 0, 0])[0, 1]) < 0.6
        assert not np.isin(changed, base).any()
