import numpy as np
import pytest

from ridgeformer import (
    InputError,
    LinearTransformer,
    Problem,
    evaluate,
    profile,
    zoo,
)
from ridgeformer.evaluation import EVALUATION

PROBLEM = Problem(noise="uniform(0,5)")


class Doubled(LinearTransformer):
    """A subclass with weights of its own."""

    def weights(self, moments, **options):
        return 2 * super().weights(moments, **options)


def test_a_subclass_is_asked_for_its_own_weights():
    """Both estimators see what `weights` gives, and so does a profile; not what the engine would compute."""
    whole = zoo.load("diag", 3, "uniform(0,5)")
    model = Doubled(whole.family, whole.dim)
    draw = PROBLEM.moments(3000, seed=2, stream=EVALUATION)
    true = 0.5 * np.square(2 * whole.weights(draw.moments) - draw.ridge).sum(1).mean()
    assert evaluate(PROBLEM, model, sequences=3000, seed=2).loss == pytest.approx(true, rel=1e-12)
    query = evaluate(PROBLEM, model, sequences=3000, seed=2, estimator="query")
    assert query.loss == pytest.approx(true, abs=4 * query.error)
    draw = Problem(noise="fixed(2)").moments(300, seed=2, stream=EVALUATION)
    true = 0.5 * np.square(2 * whole.weights(draw.moments) - draw.ridge).sum(1).mean()
    assert profile(PROBLEM, model, sigma=[2.0], sequences=300, seed=2).loss == pytest.approx(true, rel=1e-12)


def test_weights_of_a_wrong_shape_are_refused():
    class Broadcast:
        def weights(self, moments):
            return np.zeros((1, moments.dim))

    for measure in (evaluate, profile):
        with pytest.raises(InputError, match=r"weights must have shape \(100, 10\); got shape \(1, 10\)"):
            measure(PROBLEM, Broadcast(), sequences=100)
