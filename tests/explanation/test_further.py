"""What further coordinates hold, for models made by hand so that the answer is known."""

import numpy as np
import pytest

from ridgeformer import Full, Layout, LinearTransformer, Problem, explain
from ridgeformer.explanation.further import channels
from ridgeformer.models import Channels
from ridgeformer.problems import Gaussian
from support import tame_model

PROBLEM = Problem(dim=4, context=9, noise="uniform(0,2)")
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
    (found,) = channels(PROBLEM, model, 2000)
    draw = PROBLEM.moments(2000, stream=12)
    a, ridge = draw.moments.a, draw.ridge
    cosine = (a * ridge).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(ridge, axis=1)
    size = np.sqrt((STEP**2 * np.einsum("bi,bij,bj->b", a, draw.moments.S, a)).mean() / draw.moments.l.mean())
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
    (found,) = channels(PROBLEM, writer(read=0.0), 500)
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
    (found,) = channels(PROBLEM, LinearTransformer(Channels(2, 1)(P_v, Q_v, P_s, Q_s), 4), 500)
    S = PROBLEM.moments(500, stream=12).moments.S
    share = np.einsum("bii->b", S) ** 2 / 4 / np.square(S).sum((1, 2))
    assert found.name == "vector 2"
    np.testing.assert_allclose(found.cosine, [0, share.mean()], rtol=1e-12)


@pytest.mark.parametrize("layout", [Layout(scratch=2), Layout("mean", "length")])
def test_every_layout_is_explained(layout):
    model = LinearTransformer.random("full", dim=4, layers=2, context=200, layout=layout)
    found = explain(PROBLEM, model, sequences=500)
    assert len(found.channels) == len(found.contents) == layout.extra
    assert all(text in str(found) for text in found.contents)
    assert len(found.as_dict()["channels"]) == layout.extra
    assert explain(PROBLEM, tame_model("diag", 4, 2, 1, 9), sequences=500).channels == []


def test_losses_without_a_channel_count_the_intercept():
    """The second further coordinate is never used, so that nothing changes without it."""
    random = LinearTransformer.random("full", dim=4, layers=2, context=99, layout=Layout("sum", "constant", 1))
    P, Q = np.array(random.P), np.array(random.Q)
    for matrix in (P, Q):
        matrix[:, :, 5], matrix[:, :, :, 5] = 0, 0
    model = LinearTransformer(Full(P, Q), layout=random.layout)
    draw = PROBLEM.moments(300, stream=12, sums=True)
    assert np.abs(model.intercepts(draw.moments)).max() > 1e-6
    constant, unused = channels(PROBLEM, model, 300)
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
    assert (explain(PROBLEM, model, sequences=200).symmetry is None) == alike
