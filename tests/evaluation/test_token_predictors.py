"""Predictors that need tokens are judged through sampled queries, beside those with weights on the same sequences."""

import numpy as np
import pytest

from ridgeformer import ConstRR, InputError, Problem, compare, evaluate, floor
from ridgeformer.evaluation import comparison, sequence_losses
from ridgeformer.moments import Moments
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
    assert (found["weights"].loss, found["tokens"].floor) == (exact.loss, exact.floor)


def test_the_best_predictor_has_the_floor_through_queries_too():
    best = InTokens(PROBLEM.best_predictor())
    found, least = evaluate(PROBLEM, best, sequences=20_000), floor(PROBLEM, sequences=20_000)
    assert abs(found.loss - least.loss) < 4 * np.hypot(found.error, least.error)
    paper = evaluate(PROBLEM, best, sequences=20_000, estimator="query")
    assert abs(paper.loss - least.loss) < 4 * paper.error
    assert paper.error > 2 * found.error


@pytest.mark.parametrize("over", [{"sigma": [0, 1, 2]}, {"context": [4, 8]}, {"context": ["3..5", 8]}], ids=str)
def test_axes_take_them(over):
    both = {"tokens": InTokens(ConstRR(1.5)), "weights": ConstRR(1.5)}
    gap, error = compare(PROBLEM, both, over, sequences=3000).difference("tokens", "weights")
    assert (abs(gap) < 5 * error).all()


@pytest.mark.parametrize("over", [None, {"context": [50, 100]}], ids=str)
def test_long_contexts_are_drawn_in_smaller_blocks(over, monkeypatch):
    """Tokens of 16,384 sequences with 2,000 examples would take gigabytes; here ten sequences make a block."""
    counts, tokens_of = [], sequence_losses._tokens_of
    monkeypatch.setattr(comparison, "TOKENS", 4000)
    monkeypatch.setattr(
        sequence_losses, "_tokens_of", lambda draw, rng: counts.append(len(draw.moments)) or tokens_of(draw, rng)
    )
    both = {"tokens": InTokens(ConstRR(1.5)), "weights": ConstRR(1.5)}
    found = compare(Problem(3, 100, 1), both, over, sequences=25)
    assert counts == [10, 10, 5]
    assert (np.abs(found.difference("tokens", "weights")[0]) < 5 * found.difference("tokens", "weights")[1]).all()


def test_contexts_that_fit_into_no_memory_are_problems_of_their_own():
    found = compare(Problem(3, 6, 1), {"ridge": ConstRR(1)}, {"context": [6, 10**9]}, sequences=50)
    assert found.unadjusted[0, 1] == pytest.approx(1.5e-9, rel=0.5)  # d sigma^2 / 2 n
    assert found.axes["context"] == (6, 10**9)


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
