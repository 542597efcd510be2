"""Losses on problems that differ in one respect, each beside its own floor."""

import numpy as np
import pytest

from own_problems import HeavyTails
from ridgeformer import (
    BayesRR,
    ConstRR,
    Diag,
    InputError,
    Layout,
    LinearTransformer,
    OracleRR,
    Problem,
    compare,
    evaluate,
    shifts,
)
from ridgeformer.evaluation import oracle_risk
from ridgeformer.evaluation.sequence_losses import block_losses
from ridgeformer.problems import Dataset
from support import tame_model

PROBLEM = Problem(3, 8, "uniform(0,2)")
VALUES = {
    "noise": [0.5, "categorical(1,3)", "uniform(0,4)"],
    "context": [4, "6..12", [5, 9]],
    "features": ["isotropic()", "powerlaw(1)", "rotated(powerlaw(1))", "factors(1)", "standardised()"],
    "tasks": ["gaussian()", "lowrank(2)", "pool(4)", "mixture(pool(4),0.5)", "gaussian(mean=[1,0,0])"],
    "query": [None, "powerlaw(2)", [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]],
}


@pytest.mark.parametrize("what", VALUES)
def test_each_problem_is_evaluated_as_itself(what):
    """Losses and floors are those of `evaluate` on the shifted problem, to the bit."""
    predictors = {"model": tame_model("diag", 3, 2, 1, 8, seed=1), "ConstRR": ConstRR.tune(PROBLEM)}
    found = shifts(PROBLEM, predictors, sequences=400, seed=2, **{what: VALUES[what]})
    assert found.what == what
    assert found.name == ("model", "ConstRR")
    assert found.loss.shape == found.error.shape == found.exploded.shape == (2, len(VALUES[what]))
    for k, value in enumerate(VALUES[what]):
        other = PROBLEM.replace(**{what: value})
        for i, predictor in enumerate(predictors.values()):
            alone = evaluate(other, predictor, sequences=400, seed=2)
            assert found.loss[i, k] == pytest.approx(alone.loss, rel=1e-9)
            assert found.floor[k] == pytest.approx(alone.floor, rel=1e-9, abs=1e-20)
            assert found.floor_error[k] == pytest.approx(alone.floor_error, rel=1e-9, abs=1e-20)
            assert found.unadjusted[i, k] == pytest.approx(alone.unadjusted, rel=1e-9)


def test_the_floor_is_not_above_any_predictor():
    """By more than the noise of the difference: 4 standard errors."""
    model = tame_model("full", 3, 3, 1, 8, seed=3)
    chosen = {"model": model, "ConstRR": ConstRR.tune(PROBLEM), "Bayes": BayesRR(PROBLEM.noise)}
    for what, values in VALUES.items():
        found = shifts(PROBLEM, chosen, sequences=2000, **{what: values})
        assert (found.loss - found.floor > -4 * np.hypot(found.error, found.floor_error) - 1e-20).all(), what


def test_results_have_the_names_of_all_results():
    found = shifts(PROBLEM, ConstRR.tune(PROBLEM), noise=[1, 2], sequences=100)
    (first, _) = found.rows()
    names = ["name", "noise", "loss", "error", "floor", "floor_error", "ratio", "exploded"]
    names += ["unexploded", "sequences", "unadjusted"]
    assert list(first) == names
    assert first["noise"] == "fixed(1)"
    assert found.as_dict()["floor"] == found.floor.tolist()
    assert "differ in noise" in str(found)
    assert "e-2" not in str(found)  # the floor of a known noise level is printed as 0
    assert np.isinf(found.ratio).all()
    assert found.ratio.shape == (1, 2)


def test_bad_shifts():
    rr = ConstRR.tune(PROBLEM)
    with pytest.raises(InputError, match=r"there must be one shift, one of context, noise, .*; got none"):
        shifts(PROBLEM, rr)
    with pytest.raises(InputError, match=r"there must be one shift"):
        shifts(PROBLEM, rr, noise=[1], context=[4])
    with pytest.raises(InputError, match=r"there must be one shift, .*; got layers"):
        shifts(PROBLEM, rr, layers=[1])
    with pytest.raises(InputError, match=r"a shift needs at least one value; got none"):
        shifts(PROBLEM, rr, noise=[])
    with pytest.raises(InputError, match=r"the rank of tasks can be at most d = 3; got 9"):
        shifts(PROBLEM, rr, tasks=["lowrank(9)"])


def test_models_with_further_coordinates_are_shifted_too():
    model = LinearTransformer.random(
        "full", dim=3, layers=2, scale=0.02, context=8, layout=Layout("mean", "length"), seed=1
    )
    found = shifts(PROBLEM, model, context=[4, "6..12"], sequences=200)
    assert np.isfinite(found.loss).all()


@pytest.mark.parametrize("change", [{}, {"features": "factors(1)"}, {"tasks": "pool(3)"}, {"query": "powerlaw(1)"}])
def test_the_oracles_risk_is_what_unadjusted_losses_have_in_common(change):
    problem = PROBLEM.replace(**change)
    found = oracle_risk(problem, sequences=4000, seed=1)
    draw = problem.moments(4000, seed=1, stream=1 << 30)
    assert found.loss == pytest.approx(draw.losses(draw.ridge, draw.task).mean(), rel=1e-12)
    const = evaluate(problem, ConstRR.tune(problem), sequences=4000, seed=1)
    assert const.unadjusted - const.loss == pytest.approx(found.loss, abs=6 * (found.error + const.error))
    if not problem.has_pool:
        oracle = evaluate(problem, OracleRR(problem.prior), sequences=4000, seed=1)
        assert oracle.unadjusted == pytest.approx(found.loss, rel=1e-9)


def test_problems_of_ones_own_are_shifted_in_their_arguments_or_listed():
    problem = HeavyTails()
    rr = ConstRR.tune(problem, sequences=1000)
    found = shifts(problem, {"rr": rr}, freedom=[3.0, 30.0], sequences=500)
    assert (found.what, found.values) == ("freedom", ("3.0", "30.0"))
    for k, freedom in enumerate((3.0, 30.0)):
        assert found.loss[0, k] == evaluate(HeavyTails(freedom=freedom), rr, sequences=500).loss
    assert np.isnan(found.floor).all()
    few = Dataset(Problem(3, 8, 1).sequences(50))
    listed = shifts(problem, {"rr": rr}, to={"fifty": few, "own": problem}, sequences=500)
    assert listed.values == ("fifty", "own")
    assert listed.loss[0].tolist() == [evaluate(one, rr, sequences=500).loss for one in (few, problem)]
    assert shifts(few, rr, to=[few], sequences=500).values == (str(few),)
    assert str(listed)


def test_bad_shifts_of_problems_of_ones_own():
    rr = ConstRR(1.0)
    with pytest.raises(InputError, match=r"one of dim, context, freedom, to; got noise. Pass to="):
        shifts(HeavyTails(), rr, noise=[1])
    with pytest.raises(InputError, match="a HeavyTails has the arguments dim, context, freedom; got noise"):
        HeavyTails().replace(noise=1)
    with pytest.raises(InputError, match="the problem must be a Problem; got an int"):
        shifts(HeavyTails(), rr, to=[1])

    class Forgetful(HeavyTails):
        name = None

        def __init__(self, more):
            super().__init__()

    with pytest.raises(InputError, match="as attributes of the same names; got a Forgetful without more"):
        Forgetful(1).replace()


def test_fixed_context_lengths_and_noise_levels_are_kept_as_numbers():
    rr = ConstRR(1.0)
    for change, numbers in (
        ({"noise": [2, 1]}, (2.0, 1.0)),
        ({"context": [4, 9]}, (4.0, 9.0)),
        ({"noise": [1, "uniform(0,2)"]}, None),
        ({"context": [4, "6..12"]}, None),
        ({"tasks": ["lowrank(1)"]}, None),
    ):
        assert shifts(PROBLEM, rr, sequences=20, **change).numbers == numbers


def test_the_mean_of_the_sequences_that_do_not_explode():
    """A model that explodes now and then: computed from the single losses, by the rule of `ridgeformer.losses`."""
    loud = LinearTransformer(Diag(omega=[[[0, 0], [-0.05, 0]], [[0.02, 0], [-0.5, 0.5]]]), 3)
    found = shifts(PROBLEM, {"loud": loud}, noise=[PROBLEM.noise], sequences=400, seed=2)
    losses, _, _ = block_losses({"loud": loud}, PROBLEM, "exact", 2, 0, 400)
    calm = losses[np.abs(losses) <= 300]  # 100 times the signal, d = 3
    assert 0 < found.exploded[0, 0] == 400 - len(calm) < 400
    assert found.unexploded[0, 0] == pytest.approx(calm.mean(), rel=1e-12)
    assert "unexploded" in str(found)
    names = compare(PROBLEM, {"loud": loud}, sequences=400)
    assert "zz" not in names
    with pytest.raises(KeyError, match=r"the name must be one of loud; got 'zz'"):
        names["zz"]
