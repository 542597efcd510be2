from types import SimpleNamespace

import numpy as np
import pytest

from ridgeformer import (
    InputError,
    LinearTransformer,
    Problem,
    compare,
    evaluate,
    load,
)
from ridgeformer.evaluation import EVALUATION
from ridgeformer.evaluation.sequence_losses import draw_sequences

PROBLEM = Problem(noise="uniform(0,5)")


class Doubled(LinearTransformer):
    """A subclass with weights of its own."""

    def weights(self, moments, **options):
        return 2 * super().weights(moments, **options)


def test_a_subclass_is_asked_for_its_own_weights():
    """Both estimators see what `weights` gives, and so does a profile; not what the engine would compute."""
    whole = load("zoo:diag/3/uniform(0,5)")
    model = Doubled(whole.family, whole.dim)
    draw = PROBLEM.moments(3000, seed=2, stream=EVALUATION)
    true = 0.5 * np.square(2 * whole.weights(draw.moments) - draw.ridge).sum(1).mean()
    assert evaluate(PROBLEM, model, sequences=3000, seed=2).loss == pytest.approx(true, rel=1e-12)
    query = evaluate(PROBLEM, model, sequences=3000, seed=2, estimator="query")
    assert query.loss == pytest.approx(true, abs=4 * query.error)
    draw = Problem(noise="fixed(2)").moments(300, seed=2, stream=EVALUATION)
    true = 0.5 * np.square(2 * whole.weights(draw.moments) - draw.ridge).sum(1).mean()
    losses = compare(PROBLEM, model, {"sigma": [2.0]}, sequences=300, seed=2)
    assert losses.loss.item() == pytest.approx(true, rel=1e-12)


def test_weights_of_a_wrong_shape_are_refused():
    class Broadcast:
        def weights(self, moments):
            return np.zeros((1, moments.dim))

    with pytest.raises(InputError, match=r"weights must have shape \(100, 10\); got shape \(1, 10\)"):
        evaluate(PROBLEM, Broadcast(), sequences=100)


@pytest.mark.parametrize(
    "change",
    [{}, {"context": "1..9"}, {"noise": 0}, {"features": "factors(1)"}, {"features": "standardised(powerlaw(1))"}],
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


@pytest.mark.parametrize(
    "odd", [np.ma.masked_array(np.zeros((5, 3)), mask=True), np.zeros((5, 3), complex), np.full((5, 3), "a")]
)
def test_predictors_return_real_numbers(odd):
    """What lies below a mask, the real parts of complex numbers, and texts are no predictions."""
    by_weights = SimpleNamespace(weights=lambda moments: odd)
    by_tokens = SimpleNamespace(predict=lambda x, y, queries: odd[:, :1].repeat(queries.shape[1], 1))
    for predictor in (by_weights, by_tokens):
        with pytest.raises(InputError, match="a predictor must return real numbers"):
            evaluate(Problem(3, 6, 1), predictor, sequences=5)
