"""Layers beside classical algorithms: models that are these algorithms, and the algorithms written out."""

import dataclasses
import json

import numpy as np
import pytest

from ridgeformer import Diag, Full, Layout, LinearTransformer, Moments, Problem, explain, load
from ridgeformer.evaluation.sequence_losses import EVALUATION
from ridgeformer.explanation import compare_algorithms, patch_noise
from ridgeformer.explanation.algorithms import ALGORITHMS
from ridgeformer.explanation.further import channels
from ridgeformer.models import Channels
from ridgeformer.predictors.ridge import TUNING
from ridgeformer.problems import Gaussian
from support import tame_model

PROBLEM = Problem(3, 8, "uniform(0,1)", features="powerlaw(1)", query="powerlaw(0.5)")
FEW = {"iterations": 12, "sequences": 40, "seed": 3}


def gradient_descent(step, layers=5):
    """Every layer is a step of gradient descent."""
    return LinearTransformer(Diag(omega=np.broadcast_to([[0, 0], [-step, 0]], (layers, 2, 2))), 3)


def test_a_model_that_is_gradient_descent_is_found_to_be():
    step = compare_algorithms(PROBLEM, gradient_descent(0.01), **FEW).settings["gradient descent"]["step"]
    found = compare_algorithms(PROBLEM, gradient_descent(step), **FEW)
    assert found.closest("gradient descent").tolist() == [1, 2, 3, 4, 5]
    assert found.needed("gradient descent").tolist() == [1, 2, 3, 4, 5]
    for layer in range(5):
        assert found.relative_error["gradient descent"][layer, layer + 1] < 1e-12
        assert found.cosine["gradient descent"][layer, layer + 1] == pytest.approx(1, abs=1e-12)


def by_hand(name, found, S, a):
    """All iterates of an algorithm for one context, with the numbers that were tuned."""
    settings, count = found.settings[name], len(found.iteration[name])
    eye, before, w, iterates = np.eye(3), np.zeros(3), np.zeros(3), []
    if name == "ridge":
        return [np.linalg.solve(S + penalty * eye, a) for penalty in found.iteration[name]]
    if name == "newton":
        X = settings["scale"] * S
        for _ in range(count):
            iterates.append(X @ a)
            X = X @ (2 * eye - S @ X)
        return iterates
    P = eye
    if name == "preconditioned gd":
        P = np.linalg.inv(np.asarray(PROBLEM.moments(4096, seed=3, stream=TUNING).moments.S).mean(0))
    for _ in range(count):
        iterates.append(w)
        before, w = w, w + settings["step"] * P @ (a - S @ w) + settings.get("momentum", 0) * (w - before)
    return iterates


@pytest.mark.parametrize("name", ALGORITHMS)
def test_maps_are_those_of_the_algorithms_written_out(name):
    model = tame_model("diag", 3, 2, 2, 8, seed=5)
    found = compare_algorithms(PROBLEM, model, **FEW)
    draw = PROBLEM.moments(40, seed=3, stream=EVALUATION)
    iterates = np.array([by_hand(name, found, S, a) for S, a in zip(draw.moments.S, draw.moments.b, strict=True)])
    metric = np.asarray(draw.metric)
    for layer in (1, 2):
        w = model.truncate(layer).weights(draw.moments)[:, None]
        inner = lambda u, v: np.einsum("bki,ij,bkj->bk", u, metric, v)  # noqa: E731
        size = inner(w, w) * inner(iterates, iterates)
        cosine = (inner(np.broadcast_to(w, iterates.shape), iterates) / np.sqrt(np.where(size > 0, size, 1))).mean(0)
        error = np.sqrt(inner(w - iterates, w - iterates).mean(0) / inner(w, w).mean())
        np.testing.assert_allclose(found.cosine[name][layer - 1], cosine, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(found.relative_error[name][layer - 1], error, rtol=1e-6)
    goal = np.asarray(draw.ridge)[:, None]
    distance = np.sqrt(inner(iterates - goal, iterates - goal).mean(0) / inner(goal, goal).mean())
    np.testing.assert_allclose(found.distances[name], distance, rtol=1e-6, atol=1e-9)


def test_tuned_numbers_are_the_best():
    """Steps 20 % smaller or larger have larger errors to least squares, summed over iterations and contexts."""
    settings = compare_algorithms(PROBLEM, tame_model("diag", 3, 2, 1, 8), **FEW).settings
    draw = PROBLEM.moments(4096, seed=3, stream=TUNING)
    S, a = np.asarray(draw.moments.S), np.asarray(draw.moments.b)
    star = np.linalg.solve(S, a[..., None])[..., 0]

    def total(step, momentum):
        before, w, found = 0.0, np.zeros_like(a), 0.0
        for _ in range(13):
            found += np.einsum("bi,bij,bj->", w - star, S, w - star)
            before, w = w, w + step * (a - np.einsum("bij,bj->bi", S, w)) + momentum * (w - before)
        return found

    for name in ("gradient descent", "heavy ball"):
        step, momentum = settings[name]["step"], settings[name].get("momentum", 0.0)
        assert total(step, momentum) < min(total(0.8 * step, momentum), total(1.2 * step, momentum))


def test_the_result_is_a_table():
    found = compare_algorithms(PROBLEM, tame_model("gdpp", 3, 2, 1, 8), **FEW)
    assert tuple(found.iteration) == ALGORITHMS
    assert len(found.rows()) == 2 * (4 * 13 + 41)
    assert found.rows()[0].keys() == {"algorithm", "layer", "iteration", "cosine", "relative_error"}
    facts = json.loads(json.dumps(found.as_dict()))
    assert len(facts["closest"]["newton"]) == len(facts["needed"]["newton"]) == 2
    assert np.isnan(found.needed("ridge")).all()
    assert "Tuned on the problem: gradient descent: step" in str(found)
    assert "2 layers" in repr(found)
    assert len(found.to_pandas()) == len(found.rows())
    slow = compare_algorithms(Problem(3, 8, 0), tame_model("gdpp", 3, 1, 1, 8), iterations=1, sequences=20)
    assert set(slow.needed("newton")) <= {0.0, 1.0, np.inf}


def test_contexts_may_vary_and_be_short():
    found = compare_algorithms(Problem(3, "2..9", "uniform(0,1)"), tame_model("full", 3, 2, 1, 8), **FEW)
    assert all(np.isfinite(values).all() for values in found.relative_error.values())


# ---- Patches between noise levels: shares against the model itself on mixed moments


PATCHED = Problem(3, 8, "uniform(0,2)", query="powerlaw(1)")


def two_draws(low, high, count=50):
    return [PATCHED.at_noise(sigma).moments(count, seed=2, stream=EVALUATION) for sigma in (low, high)]


def test_shares_are_those_of_the_model_on_mixed_moments():
    """Before the first layer a patch is another input, for which the model itself can be asked."""
    model = tame_model("diag", 3, 3, 1, 8, seed=4)
    found = patch_noise(PATCHED, model, low=0.5, high=2, sequences=50, seed=2)
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
    found = patch_noise(PATCHED, model, low=0.5, high=2, parts=["gram"], sequences=50, seed=2)
    a, b = two_draws(0.5, 2)
    here, there = model.trace(a), model.trace(b)
    for layer in range(3):
        T = [there.T[i] if i == layer else here.T[i] for i in range(3)]
        w = -(T[2] @ T[1] @ T[0])[:, -1, :-1]
        own, other, patched = (np.einsum("bi,ij,bj->b", v, a.metric, a.task) for v in (here.w[-1], there.w[-1], w))
        assert found.once[0, layer] == pytest.approx((patched - own).sum() / (other - own).sum(), rel=1e-8)


def test_gdpp_has_no_noise_estimate():
    """It is linear in y and never reads l; what changes with the noise comes through a alone."""
    found = patch_noise(PATCHED, tame_model("gdpp", 3, 3, 1, 8), low=0.5, high=2, sequences=50)
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
    opposite = dataclasses.replace(found, once=np.where(np.arange(1, 8) == 4, -1.17, 1.25 * (found.layer == 5)))
    opposite = dataclasses.replace(found, once=np.broadcast_to(opposite.once, found.once.shape))
    assert "(gram, once): layer 5 125%, layer 4 -117%.\n" in f"{opposite}\n"  # both with their sign, the largest first
    assert np.isnan(share["b"][:2]).all()  # moments that no context has
    assert "The shrinkage factor of the model goes from 0." in str(found)


def test_further_coordinates_are_a_part():
    layout = Layout("mean", "length", scratch=1)
    model = LinearTransformer.random("full", dim=3, layers=2, scale=0.1, layout=layout)
    found = patch_noise(Problem(3, 8, "categorical(1,2)"), model, sequences=20)
    assert found.part == ("gram", "S", "b", "q", "further", "query")
    assert (found.low, found.high) == (1.0, 2.0)


def test_a_patching_is_a_table():
    found = patch_noise(PATCHED, tame_model("diag", 3, 2, 1, 8), sequences=20, parts=("q", "query"))
    assert len(found.rows()) == 4
    assert found.rows()[0].keys() == {
        *("name", "low", "high", "part", "layer", "restored", "error", "once", "exploded", "sequences")
    }
    assert json.loads(json.dumps(found.as_dict()))["part"] == ["q", "query"]
    assert np.isnan(found.once[1]).all()
    assert list(found.to_pandas()["layer"]) == [1, 2, 1, 2]
    assert "2 layers" in repr(found)


# ---- What further coordinates hold, for models made by hand so that the answer is known


READ = Problem(dim=4, context=9, noise="uniform(0,2)")
STEP = 0.02


def writer(further=-STEP, read=1.0):
    """Layer 1 writes `further` times what gradient descent would add to y into a scalar; layer 2 adds it to y.

    With Q = 1 for x and P_s[0, y] = further, a token's scalar becomes further <sum y x, x>. Layer 2 adds read times
    sum_j (scalar_j y_j) y to y, which is one number per context times y.
    """
    P_v, Q_v, P_s, Q_s = np.zeros((2, 1, 1, 1)), np.zeros((2, 1, 1, 1)), np.zeros((2, 1, 2, 2)), np.zeros((2, 1, 2, 2))
    Q_v[0, 0], P_s[0, 0, 0, 1] = 1.0, further
    P_s[1, 0, 1, 1], Q_s[1, 0, 1, 0] = read * 1e-3, 1.0  # y += read 1e-3 (sum_j y_j^2) scalar
    return LinearTransformer(Channels(1, 2)(P_v, Q_v, P_s, Q_s), 4)


def test_a_scalar_that_holds_a_gradient_step():
    model = writer()
    (found,) = channels(READ, model, 2000)
    draw = READ.moments(2000, stream=12)
    a, ridge = draw.moments.b, draw.ridge
    cosine = (a * ridge).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(ridge, axis=1)
    size = np.sqrt((STEP**2 * np.einsum("bi,bij,bj->b", a, draw.moments.S, a)).mean() / draw.moments.q.mean())
    assert found.name == "scalar 1"
    np.testing.assert_allclose(found.size, [0, size, size], rtol=1e-12)
    np.testing.assert_allclose(found.label, 0, atol=1e-15)
    np.testing.assert_allclose(found.cosine, [0, cosine.mean(), cosine.mean()], rtol=1e-12)
    own = draw.losses(model.weights(draw.moments), ridge).mean()
    nothing = draw.losses(np.zeros_like(ridge), ridge).mean()  # without the scalar the model predicts 0
    np.testing.assert_allclose(found.erased, [1, nothing / own, 1], rtol=1e-12)
    assert "predictions along the oracle's weights" in found.sentence
    assert "after layer 1" in found.sentence


def test_in_large_units_erasing_a_scalar_has_the_same_effect():
    """Layer 1 writes a step into the scalar, layer 2 adds sum_j scalar_j <x_j, x> to y: linear in the labels."""
    P_v, Q_v, P_s, Q_s = np.zeros((2, 1, 1, 1)), np.ones((2, 1, 1, 1)), np.zeros((2, 1, 2, 2)), np.zeros((2, 1, 2, 2))
    P_s[0, 0, 0, 1], P_s[1, 0, 1, 0] = -STEP, STEP
    model, effects = LinearTransformer(Channels(1, 2)(P_v, Q_v, P_s, Q_s), 4), []
    for unit in (1.0, 1e9):
        problem = Problem(4, 9, f"uniform(0,{2 * unit})", tasks=Gaussian(covariance=unit**2 * np.eye(4)))
        effects.append(channels(problem, model, 500)[0].erased)
    assert abs(effects[0][1] - 1) > 0.01
    np.testing.assert_allclose(effects[1], effects[0], rtol=1e-9)


def test_a_scalar_that_nothing_reads():
    (found,) = channels(READ, writer(read=0.0), 500)
    np.testing.assert_allclose(found.erased, 1)
    assert "the model hardly uses it" in found.sentence


def test_residuals_are_recognised():
    """A scalar that holds y - <v, x> with v near the oracle: least squares by many small steps, written by hand."""
    from ridgeformer.explanation.further import Channel

    held = Channel("scalar", 1, *np.array([[0, 1.0], [0, 0.5], [0, 0.99], [np.inf, 0.01], [np.nan, 0.9], [1, 3.0]]))
    assert held.sentence == (
        "Further scalar 1: it matters most after layer 1, where it holds 0.5 times the residuals of weights that are "
        "those of the oracle but for a relative error of 0.01; its mean square has a rank correlation of 0.90 with "
        "sigma. Erasing it there multiplies the loss by 3."
    )


def test_vectors_are_compared_with_x():
    P_v, Q_v, P_s, Q_s = (np.zeros((1, 1, k, k)) for k in (2, 2, 1, 1))
    P_v[..., 1, 0], Q_v[..., 0, 0] = 0.01, 1.0  # the second vector becomes .01 S x
    (found,) = channels(READ, LinearTransformer(Channels(2, 1)(P_v, Q_v, P_s, Q_s), 4), 500)
    S = READ.moments(500, stream=12).moments.S
    share = np.einsum("bii->b", S) ** 2 / 4 / np.square(S).sum((1, 2))
    assert found.name == "vector 2"
    np.testing.assert_allclose(found.cosine, [0, share.mean()], rtol=1e-12)


@pytest.mark.parametrize("layout", [Layout(scratch=2), Layout("mean", "length")])
def test_every_layout_is_explained(layout):
    model = LinearTransformer.random("full", dim=4, layers=2, context=200, layout=layout)
    found = explain(READ, model, sequences=500)
    assert len(found.channels) == len(found.contents) == layout.extra
    assert all(text in str(found) for text in found.contents)
    assert len(found.as_dict()["channels"]) == layout.extra
    assert explain(READ, tame_model("diag", 4, 2, 1, 9), sequences=500).channels == []


def test_losses_without_a_channel_count_the_intercept():
    """The second further coordinate is never used, so that nothing changes without it."""
    random = LinearTransformer.random("full", dim=4, layers=2, context=99, layout=Layout("sum", "constant", 1))
    P, Q = np.array(random.P), np.array(random.Q)
    for matrix in (P, Q):
        matrix[:, :, 5], matrix[:, :, :, 5] = 0, 0
    model = LinearTransformer(Full(P, Q), layout=random.layout)
    draw = READ.moments(300, stream=12, sums=True)
    assert np.abs(model.intercepts(draw.moments)).max() > 1e-6
    constant, unused = channels(READ, model, 300)
    np.testing.assert_allclose(unused.erased, 1, rtol=1e-12)
    assert abs(constant.erased[0] - 1) > 1e-6


def test_a_vector_of_one_dimension_is_a_vector():
    model = LinearTransformer.random("channels(2,2)", dim=1, layers=2, context=9)
    scalar, vector = channels(Problem(dim=1, context=9, noise=1.0), model, 200)
    assert (scalar.name, vector.name) == ("scalar 1", "vector 2")
    assert np.isnan(vector.error).all()


@pytest.mark.parametrize(("kind", "alike"), [("lowrank(2)", 0), ("looped(full,2)", 0), ("looped(diag,2)", 1)])
def test_directions_are_compared_unless_the_family_treats_them_alike(kind, alike):
    model = LinearTransformer.random(kind, dim=4, layers=1, context=99)
    assert (explain(READ, model, sequences=200).symmetry is None) == alike
