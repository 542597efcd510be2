"""Patches between noise levels: shares against the model itself on mixed moments."""

import dataclasses
import json

import numpy as np
import pytest

from ridgeformer import Layout, LinearTransformer, Moments, Problem, load
from ridgeformer.evaluation import EVALUATION
from ridgeformer.explanation import patch_noise
from support import tame_model

PROBLEM = Problem(3, 8, "uniform(0,2)", query="powerlaw(1)")


def two_draws(low, high, count=50):
    return [PROBLEM.at_noise(sigma).moments(count, seed=2, stream=EVALUATION) for sigma in (low, high)]


def test_shares_are_those_of_the_model_on_mixed_moments():
    """Before the first layer a patch is another input, for which the model itself can be asked."""
    model = tame_model("diag", 3, 3, 1, 8, seed=4)
    found = patch_noise(PROBLEM, model, low=0.5, high=2, sequences=50, seed=2)
    a, b = two_draws(0.5, 2)
    assert np.array_equal(a.moments.S, b.moments.S)
    assert np.array_equal(a.task, b.task)

    def size(weights):
        return np.einsum("bi,ij,bj->b", weights, a.metric, a.task)

    mixed = Moments.from_parts(a.moments.S, a.moments.b, b.moments.q, 8)
    own, other, patched = (size(model.weights(moments)) for moments in (a.moments, b.moments, mixed))
    whole = size(a.task).sum()
    np.testing.assert_allclose(found.shrinkage, [own.sum() / whole, other.sum() / whole], rtol=1e-10)
    np.testing.assert_allclose(found.oracle, [size(a.ridge).sum() / whole, size(b.ridge).sum() / whole], rtol=1e-10)
    share = (patched - own).sum() / (other - own).sum()
    row = found.part.index("q")
    assert found.restored[row, 0] == pytest.approx(share, rel=1e-8)
    left = (patched - own) - share * (other - own)
    assert found.error[row, 0] == pytest.approx(np.sqrt(np.square(left).sum()) / abs((other - own).sum()), rel=1e-8)
    assert found.restored[found.part.index("gram"), 0] == 1
    np.testing.assert_allclose(found.restored[found.part.index("S"), 0], 0, atol=1e-12)
    np.testing.assert_allclose(found.restored[found.part.index("query"), 0], 0, atol=1e-12)


def test_patches_for_one_layer_are_set_back():
    model = tame_model("full", 3, 3, 1, 8, seed=4)
    found = patch_noise(PROBLEM, model, low=0.5, high=2, parts=["gram"], sequences=50, seed=2)
    a, b = two_draws(0.5, 2)
    here, there = model.trace(a), model.trace(b)
    for layer in range(3):
        T = [there.T[i] if i == layer else here.T[i] for i in range(3)]
        w = -(T[2] @ T[1] @ T[0])[:, -1, :-1]
        own, other, patched = (
            np.einsum("bi,ij,bj->b", weights, a.metric, a.task) for weights in (here.w[-1], there.w[-1], w)
        )
        assert found.once[0, layer] == pytest.approx((patched - own).sum() / (other - own).sum(), rel=1e-8)


def test_gdpp_has_no_noise_estimate():
    """It is linear in y and never reads l; what changes with the noise comes through a alone."""
    found = patch_noise(PROBLEM, tame_model("gdpp", 3, 3, 1, 8), low=0.5, high=2, sequences=50)
    np.testing.assert_allclose(found.restored[found.part.index("q")], 0, atol=1e-10)


def test_the_shipped_model_carries_its_estimate_in_l_and_uses_it_in_the_fifth_layer():
    """The example of docs/explanations/interventions.md, on fewer sequences."""
    found = patch_noise(Problem(noise="uniform(0,5)"), load("zoo:diag/7/uniform(0,5)"), sequences=300)
    assert (found.low, found.high) == (1.0, 4.0)
    share = dict(zip(found.part, found.restored, strict=True))
    assert share["q"][:3].min() > 0.9
    assert np.argmax(found.once[found.part.index("gram")]) == 4
    assert abs(share["gram"][5:]).max() < 0.1
    assert share["query"][5:].min() > 0.8
    assert "The context carries the noise level up to layer 5" in str(found)
    assert "one layer alone restores (gram, once): layer 5 " in str(found)
    tame = dataclasses.replace(found, shrinkage=np.array([0.9, 0.89]))
    assert "hardly adapts to the noise level, so that no layer is named" in str(tame)
    assert "Shares of a change below 10% of the oracle's say nothing; they are shown as -" in str(tame)
    assert {tuple(line.split()[1:]) for line in str(tame).split("\n\n")[1].splitlines()[1:]} == {("-",) * 6}
    assert repr(tame.rows()) == repr(found.rows())  # NaN is not equal to itself
    even = dataclasses.replace(found, once=np.full_like(found.once, 0.1))
    assert "No layer alone restores 25% or more of the change" in str(even)
    opposite = dataclasses.replace(
        found, once=np.where(np.arange(1, 8) == 4, -1.17, np.where(found.layer == 5, 1.17, 0))
    )
    opposite = dataclasses.replace(found, once=np.broadcast_to(opposite.once, found.once.shape))
    assert "(gram, once): layer 4 -117%, layer 5 117%." in str(opposite)  # both are named
    assert np.isnan(share["b"][:2]).all()  # moments that no context has
    assert "The shrinkage factor of the model goes from 0." in str(found)


def test_the_sentence_names_every_layer_of_large_effect_with_the_number_of_the_table():
    """Layers that undo each other have opposite shares; each is named with its sign, the largest first."""
    found = patch_noise(Problem(noise="categorical(1,3)"), load("zoo:full/5/categorical(1,3)"), sequences=300)
    once = found.once[found.part.index("gram")]
    large = [i for i in np.argsort(-np.abs(np.nan_to_num(once))) if abs(once[i]) >= 0.25]
    assert min(once[i] for i in large) < 0 < max(once[i] for i in large)
    named = ", ".join(f"layer {i + 1} {once[i]:.0%}" for i in large)
    assert f"one layer alone restores (gram, once): {named}.\n" in f"{found}\n"
    assert all(f"{once[i]:.3f}" in str(found).split("\n\n")[1] for i in large)


def test_further_coordinates_are_a_part():
    layout = Layout("mean", "length", scratch=1)
    model = LinearTransformer.random("full", dim=3, layers=2, scale=0.1, layout=layout)
    found = patch_noise(Problem(3, 8, "categorical(1,2)"), model, sequences=20)
    assert found.part == ("gram", "S", "b", "q", "further", "query")
    assert (found.low, found.high) == (1.0, 2.0)


def test_the_result_is_a_table():
    found = patch_noise(PROBLEM, tame_model("diag", 3, 2, 1, 8), sequences=20, parts=("q", "query"))
    assert len(found.rows()) == 4
    assert found.rows()[0].keys() == {
        *("name", "low", "high", "part", "layer", "restored", "error", "once", "exploded", "sequences")
    }
    assert json.loads(json.dumps(found.as_dict()))["part"] == ["q", "query"]
    assert np.isnan(found.once[1]).all()
    assert list(found.to_pandas()["layer"]) == [1, 2, 1, 2]
    assert "2 layers" in repr(found)
