"""Predictors that need tokens are judged through sampled queries, beside those with weights on the same sequences."""

from types import SimpleNamespace

import numpy as np
import pytest

from ridgeformer import ConstRR, Diag, LinearTransformer, Problem, compare, evaluate, floor, load
from ridgeformer.evaluation import comparison, sequence_losses
from ridgeformer.evaluation.sequence_losses import EVALUATION, draw_sequences
from ridgeformer.moments import Moments
from ridgeformer.problems import CustomProblem, Dataset, Sequences
from support import each, refused

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
    monkeypatch.setattr(sequence_losses, "_tokens_of", lambda d, rng: counts.append(len(d.task)) or tokens_of(d, rng))
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
    refused(lambda: evaluate(OnlyMoments(), InTokens(chosen), sequences=10), "this needs a problem that draws tokens")


def test_bad_predictors_are_refused_in_words():
    class Other:
        def predict(self, X):
            return X

    class Wrong:
        def predict(self, x, y, queries):
            return y

    refused(lambda: evaluate(PROBLEM, Other()), "must be a predictor, with weights(moments) or predict(x, y, queries)")
    refused(lambda: evaluate(PROBLEM, Wrong(), sequences=50), "predictions must have shape (50, 4); got shape (50, 8)")


# ---- weights, and tokens that belong to moments


PAPER = Problem(noise="uniform(0,5)")


class Doubled(LinearTransformer):
    """A subclass with weights of its own."""

    def weights(self, moments, **options):
        return 2 * super().weights(moments, **options)


def test_a_subclass_is_asked_for_its_own_weights():
    """Both estimators see what `weights` gives, and so does a profile; not what the engine would compute."""
    whole = load("zoo:diag/3/uniform(0,5)")
    model = Doubled(whole.family, whole.dim)
    draw = PAPER.moments(3000, seed=2, stream=EVALUATION)
    true = 0.5 * np.square(2 * whole.weights(draw.moments) - draw.ridge).sum(1).mean()
    assert evaluate(PAPER, model, sequences=3000, seed=2).loss == pytest.approx(true, rel=1e-12)
    query = evaluate(PAPER, model, sequences=3000, seed=2, estimator="query")
    assert query.loss == pytest.approx(true, abs=4 * query.error)
    draw = Problem(noise="fixed(2)").moments(300, seed=2, stream=EVALUATION)
    true = 0.5 * np.square(2 * whole.weights(draw.moments) - draw.ridge).sum(1).mean()
    losses = compare(PAPER, model, {"sigma": [2.0]}, sequences=300, seed=2)
    assert losses.loss.item() == pytest.approx(true, rel=1e-12)


def test_weights_of_a_wrong_shape_are_refused():
    class Broadcast:
        def weights(self, moments):
            return np.zeros((1, moments.dim))

    refused(lambda: evaluate(PAPER, Broadcast(), sequences=100), "weights must have shape (100, 10); got shape (1, 10)")


@each(
    {},
    {"context": "1..9"},
    {"noise": 0},
    {"features": "factors(1)"},
    {"features": "standardised(powerlaw(1))"},
    ids=str,
)
def test_tokens_have_the_moments_of_the_draw_and_the_law_of_the_problem(change):
    """Sums and products to rounding; fourth moments of the first token and of queries as in whole sequences."""
    problem = Problem(**{"dim": 3, "context": 8, "noise": "uniform(0,2)", **change})
    draw, sequences = draw_sequences(problem, 1, 0, 20_000, tokens=True), problem.sequences(20_000, queries=4)
    moments = draw.tokens.moments
    scale = np.abs(draw.moments.gram).max((1, 2), keepdims=True)
    np.testing.assert_allclose(moments.gram / scale, draw.moments.gram / scale, atol=1e-12)
    np.testing.assert_allclose(moments.sums, draw.moments.sums, atol=1e-9 * np.sqrt(scale.max()))
    np.testing.assert_array_equal(draw.tokens.answers, np.einsum("bmd,bd->bm", draw.tokens.queries, draw.task))
    for one, other in (
        (fourth(draw.tokens.x[:, 0], draw.tokens.y[:, 0]), fourth(sequences.x[:, 0], sequences.y[:, 0])),
        (fourth(draw.tokens.queries[:, 0]), fourth(sequences.queries[:, 0])),
    ):
        spread = np.hypot(one.std(0), other.std(0)) / np.sqrt(20_000)
        assert (abs(one.mean(0) - other.mean(0)) < 5 * spread + 1e-9).all()


def fourth(x, y=None):
    """Squares of products, after a root that tames the tails."""
    columns = [x[:, 0] * x[:, 0], x[:, 0] * x[:, 1], *([] if y is None else [x[:, 0] * y, y * y])]
    return np.sqrt(np.abs(np.stack(columns, 1)))


@each(np.ma.masked_equal(np.zeros((5, 3)), 0), np.zeros((5, 3), complex), np.full((5, 3), "a"))
def test_predictors_return_real_numbers(odd):
    """What lies below a mask, the real parts of complex numbers, and texts are no predictions."""
    by_weights = SimpleNamespace(weights=lambda moments: odd)
    by_tokens = SimpleNamespace(predict=lambda x, y, queries: odd[:, :1].repeat(queries.shape[1], 1))
    for one in (by_weights, by_tokens):
        refused(lambda one=one: evaluate(PROBLEM, one, sequences=5), "a predictor must return real numbers")


# ---- running statistics


DESCENT = LinearTransformer(Diag(omega=[[[0, 0], [-0.03, 0]]]), 10)


def test_blocks_add_up_to_the_whole():
    """Mean, error, tail and maximum of 40,000 sequences in three blocks, against all losses at once."""
    result = evaluate(PAPER, DESCENT, sequences=40_000, seed=3, with_floor=False)
    d = PAPER.moments(40_000, seed=3, stream=1 << 30)
    losses = 0.5 * np.square(DESCENT.weights(d.moments) - d.ridge).sum(1)
    assert result.loss == pytest.approx(losses.mean(), rel=1e-12)
    assert result.error == pytest.approx(losses.std(ddof=1) / 200, rel=1e-9)
    assert result.largest == pytest.approx(losses.max(), rel=1e-12)
    assert result.tail == pytest.approx(np.sort(losses)[-4], rel=1e-12)
