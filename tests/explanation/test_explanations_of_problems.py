"""Explanations on problems that are not isotropic: what they measure, and what they refuse."""

import pickle

import numpy as np
import pytest

from own_problems import HeavyTails
from ridgeformer import InputError, Layout, LinearTransformer, Problem, ablate, evaluate, explain, export
from ridgeformer.explanation.ablation import without_flow, without_layer
from ridgeformer.explanation.coefficients import diagonal_part
from ridgeformer.explanation.symmetry import symmetry
from support import tame_model

PROBLEMS = [
    Problem(3, 8, "uniform(0,2)", features="powerlaw(1)"),
    Problem(3, 8, "uniform(0,2)", features="rotated(powerlaw(1))"),
    Problem(3, 8, "categorical(0.5,2)", features="factors(1)"),
    Problem(3, 8, "uniform(0,2)", query="powerlaw(2)"),
    Problem(3, 8, "uniform(0,2)", features="standardised()"),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("family", ["diag", "full"])
def test_loss_and_floor_are_those_of_an_evaluation(problem, family):
    """With the metric of the queries, whichever way these are drawn."""
    model = tame_model(family, 3, 2, 1, 8, seed=1)
    found = explain(model, problem, sequences=1000, seed=2)
    result = evaluate(model, problem, sequences=1000, seed=2)
    assert found.behaviour.loss[-1] == pytest.approx(result.loss, rel=1e-6)
    assert found.behaviour.floor == pytest.approx(result.floor, rel=1e-6)
    parts = found.behaviour.direction + found.behaviour.shrinkage + found.behaviour.size
    np.testing.assert_allclose(parts, found.behaviour.loss, rtol=1e-6)
    assert found.symmetry is None  # these problems do not treat all directions alike
    assert str(found)


def test_attention_by_mean_is_explained_as_the_same_function():
    problem = PROBLEMS[0]
    model = tame_model("diag", 3, 2, 1, 8, seed=1)
    by_sum, by_mean = (explain(one, problem, sequences=500) for one in (model, model.to_attention("mean", 8)))
    np.testing.assert_allclose(by_mean.behaviour.loss, by_sum.behaviour.loss, rtol=1e-9)
    assert by_mean.behaviour.loss[-1] == pytest.approx(
        evaluate(model.to_attention("mean", 8), problem, sequences=500).loss, rel=1e-6
    )
    assert [role.kind for role in by_mean.roles] == [role.kind for role in by_sum.roles]


@pytest.mark.parametrize("family", ["diag", "full"])
def test_ablations_keep_attention_by_mean(family):
    model = tame_model(family, 3, 2, 1, 8, seed=1)
    by_mean = model.to_attention("mean", 8)
    for change in (lambda one: without_layer(one, 0), lambda one: without_flow(one, 1, "yx"), diagonal_part):
        assert change(by_mean).layout == Layout("mean")
    problem = PROBLEMS[0]
    expected = ablate(model, problem, sequences=300)
    for one, other in zip(ablate(by_mean, problem, sequences=300), expected, strict=True):
        assert one.what == other.what
        assert one.loss == pytest.approx(other.loss, rel=1e-6)


def test_ablations_work_on_problems_of_ones_own():
    found = ablate(tame_model("diag", 3, 2, 1, 8, seed=1), HeavyTails(), sequences=300)
    assert found[0].what == "nothing"
    assert found[0].over_whole == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tasks": "pool(4)"}, r"ridge regression for tasks from N\(0, I\); got tasks pool\(4\)"),
        ({"tasks": "lowrank(2)"}, r"for tasks from N\(0, I\); got tasks lowrank\(2\)"),
        ({"context": "4..8"}, r"contexts of one length; got n = 4..8. Choose one, .* --context 20"),
    ],
)
def test_what_the_readings_do_not_fit_is_refused(change, words):
    with pytest.raises(InputError, match=words):
        explain(tame_model("diag", 3, 2, 1, 8), Problem(3, 8, 1).replace(**change), sequences=100)


def test_models_and_problems_that_cannot_be_explained():
    wide = LinearTransformer.random("full", dim=3, layers=1, layout=Layout("mean", "length"))
    for function in (explain, ablate):
        with pytest.raises(InputError, match=r"models whose tokens are \(x, y\); got a model with Layout"):
            function(wide, Problem(3, 8, 1), sequences=100)
    with pytest.raises(InputError, match="whose laws of noise and tasks are known; got a HeavyTails"):
        explain(tame_model("diag", 3, 1, 1, 8), HeavyTails(), sequences=100)
    with pytest.raises(InputError, match="on problems that treat all of them alike; got d=3"):
        symmetry(tame_model("full", 3, 1, 1, 8), PROBLEMS[0])


def test_export_refuses_what_it_cannot_write():
    mean = LinearTransformer.random("diag", dim=3, layers=1, layout=Layout("mean"))
    with pytest.raises(InputError, match=r"attention by sum and tokens \(x, y\); .* Pass context=20"):
        export.export(mean)
    wide = LinearTransformer.random("full", dim=3, layers=1, layout=Layout("sum", "constant"))
    for to in ("python", "latex", "torch", "onnx"):
        with pytest.raises(InputError, match="Train one without further coordinates"):
            export.export(wide, to)


def test_ablations_are_a_list_that_prints_as_a_table():
    found = ablate(tame_model("diag", 3, 1, 1, 8, seed=1), Problem(3, 8, 1), sequences=100)
    lines = str(found).splitlines()
    assert lines[0] == "Adjusted loss without each part of the model on 100 sequences"
    assert lines[2].split() == ["what", "loss", "over_whole"]
    assert len(lines) == 3 + len(found)
    assert isinstance(found, list)
    assert found[0].what == "nothing"
    assert pickle.loads(pickle.dumps(found)) == found
