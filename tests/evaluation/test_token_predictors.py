"""Predictors that need tokens are judged through sampled queries, beside those with weights on the same sequences."""

import numpy as np
import pytest

from ridgeformer import ConstRR, InputError, Problem, compare, evaluate, floor, profile
from ridgeformer.evaluation import by_prefix, shifts
from ridgeformer.moments import Moments
from ridgeformer.predictors.bayes import best_predictor
from ridgeformer.problems import CustomProblem, Dataset, Sequences

PROBLEM = Problem(3, 8, "uniform(0,2)")
PROBLEMS = [
    PROBLEM,
    Problem(3, 8, "uniform(0,2)", features="powerlaw(1)", tasks="pool(5)", query="isotropic()"),
    Problem(3, "4..8", "uniform(0,2)", features="factors(1)"),
]


class InTokens:
    """The predictions of another predictor, without its weights."""

    def __init__(self, predictor):
        self._predictor = predictor

    def predict(self, x, y, queries):
        weights = self._predictor.weights(Moments.from_tokens(x, y))
        return np.einsum("bmd,bd->bm", queries, weights)

    def __repr__(self):
        return "InTokens()"


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_loss_is_that_of_the_weights_within_errors(problem):
    """On the same sequences: the only difference are the queries, whose errors the difference knows."""
    chosen = ConstRR(1.5)
    found = compare(problem, {"tokens": InTokens(chosen), "weights": chosen}, sequences=8000)
    difference, error = found.difference("tokens", "weights")
    assert abs(difference) < 4 * error
    assert error < found["weights"].loss
    exact = evaluate(problem, chosen, sequences=8000)
    spread = np.hypot(exact.error, found["weights"].error)
    assert abs(exact.loss - found["weights"].loss) < 4 * spread
    assert found["tokens"].floor == exact.floor


def test_the_best_predictor_has_the_floor_through_queries_too():
    best = InTokens(best_predictor(PROBLEM))
    found, least = evaluate(PROBLEM, best, sequences=20_000), floor(PROBLEM, sequences=20_000)
    assert abs(found.loss - least.loss) < 4 * np.hypot(found.error, least.error)
    paper = evaluate(PROBLEM, best, sequences=20_000, estimator="query")
    assert abs(paper.loss - least.loss) < 4 * paper.error
    assert paper.error > 2 * found.error


def test_profiles_shifts_and_prefixes_take_them():
    chosen = ConstRR(1.5)
    lines = [profile(PROBLEM, one, sigma=[0, 1, 2], sequences=3000) for one in (InTokens(chosen), chosen)]
    np.testing.assert_allclose(lines[0].loss, lines[1].loss, atol=5 * np.hypot(lines[0].error, lines[1].error).max())
    both = {"tokens": InTokens(chosen), "weights": chosen}
    moved = shifts(PROBLEM, both, sequences=3000, context=[5, 8])
    np.testing.assert_allclose(moved.loss[0], moved.loss[1], atol=5 * moved.error.max())
    prefixes = by_prefix(PROBLEM, both, context=[4, 8], sequences=3000)
    np.testing.assert_allclose(prefixes.loss[0], prefixes.loss[1], atol=5 * prefixes.error.max())


class Cubic(CustomProblem):
    def __init__(self):
        self.dim, self.context = 2, 6

    def draw(self, rng, count):
        x = rng.standard_normal((count, 9, 2))
        y = x[..., 0] ** 3
        return Sequences(x[:, :6], y[:, :6], queries=x[:, 6:], answers=y[:, 6:])


class OnlyMoments(CustomProblem):
    def __init__(self):
        self.dim, self.context = 3, 8

    def draw(self, rng, count):
        return PROBLEM.moments(count, seed=int(rng.integers(1 << 30)))


def test_problems_of_the_user_and_data_sets_have_tokens():
    """Where there is no oracle, losses are those of the problem's own queries, which weights have too."""
    chosen = ConstRR(1.5)
    for problem in (Cubic(), Dataset(PROBLEM.sequences(300, queries=2))):
        found = compare(problem, {"tokens": InTokens(chosen), "weights": chosen}, sequences=300, with_floor=False)
        assert found["tokens"].loss == pytest.approx(found["weights"].loss, rel=0.15)
        if isinstance(problem, Cubic):
            assert found["tokens"].loss == pytest.approx(found["weights"].loss, rel=1e-10)
    with pytest.raises(InputError, match="this needs a problem that draws tokens"):
        evaluate(OnlyMoments(), InTokens(chosen), sequences=10, with_floor=False)


def test_bad_predictors_are_refused_in_words():
    class Other:
        def predict(self, X):
            return X

    class Wrong:
        def predict(self, x, y, queries):
            return y

    with pytest.raises(InputError, match=r"must be a predictor, with weights\(moments\) or predict\(x, y, queries\)"):
        evaluate(PROBLEM, Other())
    with pytest.raises(InputError, match=r"predictions must have shape \(50, 4\); got shape \(50, 8\)"):
        evaluate(PROBLEM, Wrong(), sequences=50)
