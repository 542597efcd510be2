"""Losses after each number of examples."""

import numpy as np
import pytest

from ridgeformer import BayesRR, ConstRR, InputError, Layout, LinearTransformer, Problem, evaluate
from ridgeformer.evaluation import by_prefix
from support import tame_model

PROBLEMS = {
    "isotropic": Problem(3, 8, "uniform(0,2)"),
    "anisotropic": Problem(3, 8, "uniform(0,2)", features="powerlaw(1)", query="powerlaw(0.5)"),
    "rotated": Problem(3, 8, 1, features="rotated(powerlaw(1))"),
    "factors": Problem(3, 8, "uniform(0,2)", features="factors(1)"),
    "prior": Problem(3, 8, 1, tasks="gaussian(mean=[1,0,0])"),
    "pool": Problem(3, 8, "categorical(0.5,2)", tasks="pool(4)"),
}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_a_prefix_is_a_context_of_its_length(problem):
    """The loss at n is that of an evaluation at that n, within 4 standard errors of both; so is the floor."""
    predictors = {"model": tame_model("diag", 3, 2, 1, 8, seed=1), "ConstRR": ConstRR.tune(problem)}
    found = by_prefix(problem, predictors, context=[2, 5, 9], sequences=4000, seed=1)
    assert found.context.tolist() == [2, 5, 9]
    for k, n in enumerate(found.context.tolist()):
        for i, predictor in enumerate(predictors.values()):
            alone = evaluate(problem.replace(context=n), predictor, sequences=4000, seed=7)
            spread = 4 * np.hypot(found.error[i, k], alone.error) + 1e-20
            assert found.loss[i, k] == pytest.approx(alone.loss, abs=spread), (n, i)
            spread = 4 * np.hypot(found.floor_error[k], alone.floor_error) + 1e-20
            assert found.floor[k] == pytest.approx(alone.floor, abs=spread), n


def test_the_floor_is_not_above_any_predictor():
    for problem in PROBLEMS.values():
        chosen = {"ConstRR": ConstRR.tune(problem), "Bayes": BayesRR(problem.noise)}
        found = by_prefix(problem, chosen, context="1..10", sequences=1000)
        assert (found.loss - found.floor > -4 * np.hypot(found.error, found.floor_error) - 1e-20).all(), problem


def test_prefixes_default_to_all_up_to_the_longest_context():
    found = by_prefix(Problem(2, "3..6", 1), ConstRR(1.0), sequences=50)
    assert found.context.tolist() == [1, 2, 3, 4, 5, 6]
    assert repr(found).endswith("n = 1..6)")
    row = found.rows()[0]
    names = ["name", "context", "loss", "error", "floor", "floor_error", "ratio", "exploded", "unexploded", "sequences"]
    assert list(row) == names
    assert found.ratio.shape == (1, 6)
    assert "floor" in str(found)


def test_the_same_sequences_are_used_whatever_is_asked():
    """A prefix does not depend on the other lengths that are asked for, as long as the longest is the same."""
    problem = Problem(2, 6, "uniform(0,1)")
    few = by_prefix(problem, ConstRR(1.0), context=[3, 6], sequences=300)
    all_ = by_prefix(problem, ConstRR(1.0), context="1..6", sequences=300)
    np.testing.assert_allclose(few.loss[0], all_.loss[0, [2, 5]], rtol=1e-12)


def test_models_with_further_coordinates_have_prefixes():
    model = LinearTransformer.random(
        "full", dim=3, layers=2, scale=0.02, context=8, layout=Layout("mean", "length"), seed=1
    )
    problem = PROBLEMS["isotropic"]
    found = by_prefix(problem, model, context=[5, 8], sequences=2000)
    alone = evaluate(problem, model, sequences=2000)
    assert found.loss[0, 1] == pytest.approx(alone.loss, abs=4 * np.hypot(found.error[0, 1], alone.error))


def test_bad_arguments():
    problem = Problem(3, 8, 1)
    with pytest.raises(InputError, match="not standardised within the context; got standardised"):
        by_prefix(problem.replace(features="standardised()"), ConstRR(1.0))
    with pytest.raises(InputError, match="the context must be a number of examples"):
        by_prefix(problem, ConstRR(1.0), context=[])
    with pytest.raises(InputError, match="must be a predictor"):
        by_prefix(problem, 3)
