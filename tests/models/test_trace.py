"""The moment recursion against tokens, which go through the layers one by one."""

import numpy as np
import pytest

from ridgeformer import LinearTransformer, Problem
from ridgeformer.models.trace import trace
from ridgeformer.moments import Moments


@pytest.mark.parametrize(("family", "heads"), [("full", 1), ("full", 3), ("diag", 2), ("gdpp", 1)])
def test_the_trace_is_that_of_the_tokens(family, heads):
    model = LinearTransformer.random(family, dim=3, layers=4, heads=heads, context=60, seed=heads)
    s = Problem(3, 7, "uniform(0,2)").sequences(5, seed=1, queries=2)
    tokens = model.tokens(s.x, s.y, s.queries)
    found = trace(model.P, model.Q, np.asarray(Moments.from_tokens(s.x, s.y).gram))
    context = tokens[:, :, :7]
    np.testing.assert_allclose(found.G, np.einsum("lbic,lbid->lbcd", context, context), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(np.einsum("lbcd,bid->lbic", found.C, tokens[0]), tokens, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.T @ found.C[:-1], found.C[1:], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(-np.einsum("lbd,bid->lbi", found.w, s.queries), tokens[:, :, 7:, 3], atol=1e-12)


def test_the_precision_is_that_of_the_gram_matrices():
    model = LinearTransformer.random("diag", dim=3, layers=2).astype(np.float32)
    gram = np.asarray(Problem(3, 6, "fixed(1)").moments(2).moments.gram)
    for dtype in (np.float32, np.float64):
        found = trace(model.P, model.Q, gram.astype(dtype))
        assert {part.dtype for part in found} == {np.dtype(dtype)}
